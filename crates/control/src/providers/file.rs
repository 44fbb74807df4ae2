//! A file or a folder that is watched, by looking at it: notifications of the kernel do not cross network file systems, and a
//! look at a few files costs microseconds.
//!
//! What has changed is taken once two looks have found it the same, so that a file that is being written in pieces is not
//! read half; and what is read is looked at again, so that a folder that is swapped meanwhile is read anew. Where the kernel tells
//! that a single file is whole, it is taken at once ([`notices`]).

mod notices;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use model::provider::FileProvider;

use self::notices::Notices;
use super::sink::Sink;
use crate::given::{State, Text};
use crate::watch::{CLOCK_GRAIN, Stamp};

/// Bytes of all files together.
const BYTES_MAX: usize = 64 << 20;

/// How everything looks.
type Look = BTreeMap<PathBuf, Stamp>;

/// While a file is written all the time, reading it takes at most one part in this many of the time.
const REST_FACTOR: u32 = 4;

pub(super) async fn run(settings: FileProvider, sink: Sink) {
    let mut watched = Watched::default();
    let mut notices = None;
    loop {
        if notices.is_none() && !settings.path.is_dir() {
            // Without, it is looked at all the same; and tried again, for its folder may come.
            notices = Notices::of(&settings.path).ok();
        }
        let (begun, untold) = (Instant::now(), watched.untold);
        match watched.turn(&settings.path, SystemTime::now()) {
            Ok(Some(texts)) => sink.send(State::of_texts(texts, true)),
            Ok(None) if watched.before.is_none() => sink.unchanged(),
            Ok(None) => {}
            Err(why) => sink.failed(why),
        }
        if watched.untold != untold {
            // What was listened to may be elsewhere by now.
            notices = None;
        }
        let rest = (begun.elapsed() * REST_FACTOR).min(settings.interval);
        tokio::time::sleep(rest).await;
        let told = tokio::time::timeout(settings.interval - rest, told(notices.as_mut())).await;
        watched.is_told = matches!(told, Ok(Ok(())));
        if matches!(told, Ok(Err(_))) {
            notices = None;
            tokio::time::sleep(settings.interval).await;
        }
    }
}

/// Waits until the file is reported as whole.
async fn told(notices: Option<&mut Notices>) -> std::io::Result<()> {
    match notices {
        Some(notices) => notices.whole().await,
        None => std::future::pending().await,
    }
}

/// What is known of the files.
#[derive(Default)]
struct Watched {
    taken: Option<Taken>,
    /// The look before, if it was another than what was taken.
    before: Option<Look>,
    /// The file was reported as whole.
    is_told: bool,
    /// Changes that were taken without that being said.
    untold: u64,
    hasher: RandomState,
}

/// What was read.
struct Taken {
    look: Look,
    hash: u64,
    /// A file is as young as the clock of a file system is coarse: it may have been written after it was read without looking other.
    until: Option<SystemTime>,
}

impl Watched {
    /// Looks once. `Some`: this is what the files say by now, and it is other than before.
    ///
    /// # Errors
    /// They cannot be read.
    fn turn(&mut self, path: &Path, clock: SystemTime) -> Result<Option<Vec<Text>>, String> {
        let is_told = std::mem::take(&mut self.is_told);
        let now = look(path).inspect_err(|_| {
            // What comes back is taken even if it looks as it did.
            (self.before, self.taken) = (None, None);
        })?;
        let is_new = self.taken.as_ref().is_none_or(|taken| taken.look != now);
        let is_due = self.taken.as_ref().and_then(|taken| taken.until).is_some_and(|until| clock > until);
        if !is_new && !is_due && !is_told {
            self.before = None;
            return Ok(None);
        }
        // A start does not wait for a second look; a half-written file is looked at again.
        let is_first = self.taken.is_none() && self.before.is_none();
        if is_new && !is_told && !is_first && self.before.as_ref() != Some(&now) {
            self.before = Some(now);
            return Ok(None);
        }
        self.untold += u64::from(is_new && !is_told && !is_first);
        self.before = None;
        self.take(path, now, clock)
    }

    fn take(&mut self, path: &Path, now: Look, clock: SystemTime) -> Result<Option<Vec<Text>>, String> {
        let texts = read(&now)?;
        if look(path).as_ref() != Ok(&now) {
            self.before = Some(now);
            return Ok(None);
        }
        let said: Vec<_> = texts.iter().map(|text| (&text.name, &text.text)).collect();
        let hash = self.hasher.hash_one(said);
        let is_known = self.taken.as_ref().is_some_and(|taken| taken.hash == hash);
        let until = young_until(&now, clock);
        self.taken = Some(Taken { look: now, hash, until });
        Ok((!is_known).then_some(texts))
    }
}

/// Until when a file may change without looking other, if it may.
fn young_until(look: &Look, clock: SystemTime) -> Option<SystemTime> {
    let newest_ns = look.values().map(|stamp| stamp.modified_ns).max()?;
    let newest = SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(u64::try_from(newest_ns).ok()?))?;
    let until = newest.checked_add(CLOCK_GRAIN)?;
    (until >= clock).then_some(until)
}

/// What it says now.
///
/// # Errors
/// It cannot be read.
pub(super) fn state(settings: &FileProvider) -> Result<State, String> {
    Ok(State::of_texts(read(&look(&settings.path)?)?, true))
}

/// The files, as they look.
fn look(path: &Path) -> Result<Look, String> {
    let files = config::files_of(path).map_err(|why| format!("{}: {why}", path.display()))?;
    let stamp = |file: PathBuf| match Stamp::of(&file) {
        Some(stamp) => Ok((file, stamp)),
        None => Err(format!("{}: there is no such file", file.display())),
    };
    files.into_iter().map(stamp).collect()
}

fn read(look: &Look) -> Result<Vec<Text>, String> {
    let mut texts = Vec::new();
    let mut left = BYTES_MAX;
    for file in look.keys() {
        let text = config::read_text(file).map_err(|why| format!("{}: {why}", file.display()))?;
        left = left
            .checked_sub(text.len())
            .ok_or_else(|| format!("all files together are larger than {BYTES_MAX} bytes"))?;
        let folder = Some(file.parent().unwrap_or(Path::new("")).to_owned());
        texts.push(Text { name: file.display().to_string(), folder, text: text.to_string() });
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use tempfile::TempDir;

    use super::*;

    fn said(found: Result<Option<Vec<Text>>, String>) -> Option<String> {
        found.unwrap().map(|texts| texts.into_iter().map(|text| text.text).collect())
    }

    #[test]
    fn what_has_changed_is_taken_at_the_second_look_and_at_once_when_it_is_told_to_be_whole() {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("fleet.yaml");
        let (mut watched, clock) = (Watched::default(), SystemTime::now());
        let mut turn = |is_told: bool| {
            watched.is_told = is_told;
            watched.turn(&file, clock)
        };
        assert!(turn(false).is_err());
        fs::write(&file, "one").unwrap();
        assert_eq!(said(turn(false)).as_deref(), Some("one"), "nobody waits at the start");
        assert_eq!(said(turn(false)), None);
        fs::write(&file, "second").unwrap();
        assert_eq!(said(turn(false)), None, "it may be half");
        assert_eq!(said(turn(false)).as_deref(), Some("second"));
        fs::write(&file, "the third").unwrap();
        assert_eq!(said(turn(true)).as_deref(), Some("the third"));
        assert_eq!(said(turn(true)), None, "it says the same");
        fs::write(&file, b"\xff").unwrap();
        assert!(turn(true).is_err());
        fs::write(&file, "fourth").unwrap();
        assert_eq!(said(turn(false)), None, "what cannot be read does not make the next be read half");
        assert_eq!(said(turn(false)).as_deref(), Some("fourth"));
    }

    #[test]
    fn what_was_written_within_the_grain_of_the_clock_is_found_though_it_looks_the_same() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("fleet.yaml");
        let mut watched = Watched::default();
        let written = SystemTime::now();
        let write = |text: &str| {
            fs::write(&path, text).unwrap();
            File::options().write(true).open(&path).unwrap().set_modified(written).unwrap();
        };
        write("weight: 2");
        assert!(said(watched.turn(&path, written)).is_some());
        write("weight: 3");
        assert_eq!(said(watched.turn(&path, written)), None);
        let later = written + CLOCK_GRAIN * 2;
        assert_eq!(said(watched.turn(&path, later)).as_deref(), Some("weight: 3"));
        write("weight: 4");
        assert_eq!(said(watched.turn(&path, later)), None, "it was old enough when it was read");
    }
}
