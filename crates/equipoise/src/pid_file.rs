//! A file with the number of the process that serves, for programs that want it so.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Taken away when this is dropped, unless another process has written its number there by then.
pub(crate) struct PidFile(PathBuf);

impl PidFile {
    /// Writes it. That it cannot be written is reported, and hinders nothing: the process serves already.
    pub(crate) fn write(path: PathBuf) -> Self {
        if let Err(error) = replace(&path, &content()) {
            let shown = path.display();
            telemetry::log::error("the pid file cannot be written", &[("file", &shown), ("error", &error)]);
        }
        Self(path)
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // It may be gone by itself.
        let _ = remove_own(&self.0);
    }
}

/// Removes the file if it holds the number of this process. The successor may write its own at any moment: to read first and to remove
/// then would remove that one. So the file is moved aside, and put back if it is another's, unless there is a newer one by then.
fn remove_own(path: &Path) -> io::Result<()> {
    // Someone may have put a pipe in its place, which is not waited for.
    let read = |path: &Path| io::read_to_string(config::open_file(path)?.take(CONTENT_BYTES_MAX));
    if read(path)? != content() {
        return Ok(());
    }
    let aside = beside(path);
    fs::rename(path, &aside)?;
    if read(&aside).is_ok_and(|found| found != content()) {
        match fs::hard_link(&aside, path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return fs::rename(&aside, path),
            _ => {}
        }
    }
    fs::remove_file(&aside)
}

/// More than a number and the end of its line.
const CONTENT_BYTES_MAX: u64 = 64;

fn content() -> String {
    format!("{}\n", std::process::id())
}

/// A name beside it that is this process's own.
fn beside(path: &Path) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    PathBuf::from(beside)
}

/// Replaces the file atomically, so that readers see one number or the other.
fn replace(path: &Path, content: &str) -> io::Result<()> {
    let beside = beside(path);
    // Of a process that had this number and was killed. Anyone who else may write into the folder could have left a link there: what it
    // leads to is not touched.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::create_new(&beside)?.write_all(content.as_bytes())?;
    fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_with_its_process_and_that_of_another_stays() {
        let path = std::env::temp_dir().join(format!("equipoise-pid-{}", std::process::id()));
        let written = PidFile::write(path.clone());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), content());
        drop(written);
        assert!(!path.exists());
        let written = PidFile::write(path.clone());
        std::fs::write(&path, "1\n").unwrap();
        drop(written);
        assert!(path.exists());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn the_file_of_a_successor_that_writes_at_the_same_time_is_never_lost() {
        let folder = std::env::temp_dir().join(format!("equipoise-pid-race-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (path, new) = (folder.join("pid"), folder.join("new"));
        for _ in 0..300 {
            fs::write(&path, content()).unwrap();
            fs::write(&new, "1\n").unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| fs::rename(&new, &path).unwrap());
                scope.spawn(|| drop(PidFile(path.clone())));
            });
            assert_eq!(fs::read_to_string(&path).unwrap(), "1\n");
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_a_link_beside_it_leads_to_is_not_touched() {
        let folder = std::env::temp_dir().join(format!("equipoise-pid-link-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (path, treasure) = (folder.join("run.pid"), folder.join("treasure"));
        fs::write(&treasure, "gold").unwrap();
        std::os::unix::fs::symlink(&treasure, folder.join(format!("run.pid.{}", std::process::id()))).unwrap();
        let written = PidFile::write(path.clone());
        assert_eq!(
            (fs::read_to_string(&path).unwrap(), fs::read_to_string(&treasure).unwrap()),
            (content(), "gold".into())
        );
        drop(written);
        fs::remove_dir_all(folder).unwrap();
    }
}
