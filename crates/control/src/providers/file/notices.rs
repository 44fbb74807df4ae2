//! The kernel's notifications of one file: written to its end, or replaced by another (inotify(7)).
//!
//! They only make the next look come sooner. Without them, as on network file systems, changes are found by looking.
#![allow(unsafe_code)]

use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Who has written it has closed it; it was moved there.
const TELLS: u32 = libc::IN_CLOSE_WRITE | libc::IN_MOVED_TO;
/// Buffer for one read: an event with the longest name fits.
const TOLD_BYTES: usize = 4096;
/// An event without its name.
const HEAD_BYTES: usize = size_of::<libc::inotify_event>();
/// Between two readings: a folder in which much is written costs little.
const PAUSE: Duration = Duration::from_millis(2);

/// The notifications of one file.
pub(super) struct Notices {
    path: PathBuf,
    told: AsyncFd<File>,
    bytes: Box<[u8; TOLD_BYTES]>,
}

impl Notices {
    /// Watches a file, which need not exist yet.
    ///
    /// # Errors
    /// It is in no folder, or the system has no more watches.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        // The folder: who watches the file itself hears nothing of another in its place.
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        // SAFETY: it owns the descriptor, from now until it is dropped.
        let told = unsafe { AsyncFd::register_with_interest(listen(folder)?, Interest::READABLE) }?;
        Ok(Self { path: path.to_owned(), told, bytes: Box::new([0; TOLD_BYTES]) })
    }

    /// Waits until the file is whole: written to its end, or moved into place. Dropping the future loses the events that were read.
    ///
    /// # Errors
    /// Nothing more will be told.
    pub(super) async fn whole(&mut self) -> io::Result<()> {
        loop {
            let read = self.read().await?;
            // By name, and by what a symbolic link goes through: a folder that is mounted into a container changes there.
            let mut names: Vec<OsString> = self.path.file_name().map(OsStr::to_owned).into_iter().collect();
            names.extend(first_step(&self.path));
            let events = Events(&self.bytes[..read]);
            if events.into_iter().any(|name| names.iter().any(|known| known.as_bytes() == name)) {
                return Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn read(&mut self) -> io::Result<usize> {
        loop {
            let mut ready = self.told.readable().await?;
            let bytes = &mut self.bytes[..];
            match ready.try_io(|told| told.get_ref().read(bytes)) {
                Ok(Ok(0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(done) => return done,
                // It was ready for something that is over.
                Err(_) => {}
            }
        }
    }
}

/// The entry beside a symbolic link through which it goes first.
fn first_step(path: &Path) -> Option<OsString> {
    match fs::read_link(path).ok()?.components().next()? {
        Component::Normal(name) => Some(name.to_owned()),
        _ => None,
    }
}

fn listen(folder: &Path) -> io::Result<File> {
    let folder = CString::new(folder.as_os_str().as_bytes())?;
    // SAFETY: no memory is involved.
    let made = unsafe { libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC) };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was created just now, and has no other owner.
    let told = unsafe { OwnedFd::from_raw_fd(made) };
    // SAFETY: `folder` is a text that ends with a zero byte, for the whole call, which only reads it.
    if unsafe { libc::inotify_add_watch(made, folder.as_ptr(), TELLS | libc::IN_ONLYDIR) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(told.into())
}

/// The names in a number of events, without the zero bytes behind them.
struct Events<'a>(&'a [u8]);

impl<'a> Iterator for Events<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(HEAD_BYTES)?;
        // The length of the name is the last number.
        let length = u32::from_ne_bytes(*head.last_chunk()?) as usize;
        let (name, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(name.split(|byte| *byte == 0).next().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::pin::pin;

    use super::*;

    /// Returns whether an event says that the file is whole, after all earlier changes.
    async fn is_told(notices: &mut Notices, folder: &Path) -> bool {
        // Events come in order: by then the event of the file has arrived.
        let mut marked = Notices::of(&folder.join("mark")).unwrap();
        fs::write(folder.join("mark"), "").unwrap();
        marked.whole().await.unwrap();
        let mut whole = pin!(notices.whole());
        // Once for events of other files.
        for _ in 0..3 {
            if tokio::time::timeout(PAUSE * 2, &mut whole).await.is_ok() {
                return true;
            }
        }
        false
    }

    #[tokio::test]
    async fn what_is_written_to_its_end_or_put_in_its_place_is_told_and_nothing_else() {
        let folder = tempfile::TempDir::new().unwrap();
        let (folder, file) = (folder.path(), folder.path().join("fleet.yaml"));
        let mut notices = Notices::of(&file).unwrap();
        assert!(!is_told(&mut notices, folder).await, "nothing was done");
        let mut open = File::create(&file).unwrap();
        io::Write::write_all(&mut open, b"half").unwrap();
        fs::write(folder.join("fleet.yaml.new"), "other").unwrap();
        assert!(!is_told(&mut notices, folder).await, "it is being written");
        drop(open);
        assert!(is_told(&mut notices, folder).await);
        assert!(!is_told(&mut notices, folder).await, "once");
        fs::rename(folder.join("fleet.yaml.new"), &file).unwrap();
        assert!(is_told(&mut notices, folder).await);
    }

    #[tokio::test]
    async fn a_link_that_leads_elsewhere_now_is_told() {
        let folder = tempfile::TempDir::new().unwrap();
        let (folder, file) = (folder.path(), folder.path().join("fleet.yaml"));
        for name in ["..1", "..2"] {
            fs::create_dir(folder.join(name)).unwrap();
            fs::write(folder.join(name).join("fleet.yaml"), name).unwrap();
        }
        symlink("..1", folder.join("..data")).unwrap();
        symlink("..data/fleet.yaml", &file).unwrap();
        let mut notices = Notices::of(&file).unwrap();
        symlink("..2", folder.join("..data_tmp")).unwrap();
        assert!(!is_told(&mut notices, folder).await);
        fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
        assert!(is_told(&mut notices, folder).await);
    }

    #[test]
    fn a_folder_that_is_not_there_tells_nothing() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _here = runtime.enter();
        assert!(Notices::of(Path::new("/nowhere/fleet.yaml")).is_err());
    }

    #[test]
    fn events_that_are_cut_off_are_none() {
        let mut event = [0; HEAD_BYTES].to_vec();
        *event.last_chunk_mut().unwrap() = 16_u32.to_ne_bytes();
        event.extend(b"fleet.yaml\0\0\0\0\0\0");
        let names = |bytes: &[u8]| Events(bytes).map(<[u8]>::to_vec).collect::<Vec<_>>();
        assert_eq!(names(&[&event[..], &event[..]].concat()), [b"fleet.yaml", b"fleet.yaml"]);
        for cut in 0..event.len() {
            assert!(names(&event[..cut]).is_empty());
        }
    }
}
