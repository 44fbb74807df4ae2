//! Notices that certificate files have changed, by looking at them once in a while.
//!
//! Looking is what works everywhere: notifications of the kernel do not cross network file systems and miss the
//! symbolic-link swap by which Kubernetes renews a secret.
//!
//! ```text
//!            a stamp differs                      same stamps at the next look
//!  Settled ────────────────────▶ Changing(stamps) ────────────────────────────▶ report, Settled(new stamps)
//!     ▲                             │      ▲  │
//!     └─────── as they were ────────┘      └──┘ they differ again
//! ```

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// File systems keep times as coarse as this; a file changed this shortly before it was read may have changed after.
pub(crate) const CLOCK_GRAIN: Duration = Duration::from_secs(2);

/// After so many looks a file that is missing is taken for one that is gone, which is reported.
const MISSING_LOOKS: u32 = 5;

/// What tells one content of a file from another without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// When it was last written, in nanoseconds since 1970.
    pub modified_ns: i128,
    /// Bytes.
    pub length: u64,
    /// Device and inode: a file put in place of another has a new one.
    pub identity: (u64, u64),
}

impl Stamp {
    /// Looks at a file, through symbolic links. `None`: it cannot be looked at, for instance because it is being
    /// replaced.
    pub fn of(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|found| Self::from(&found))
    }
}

impl From<&Metadata> for Stamp {
    fn from(found: &Metadata) -> Self {
        Self {
            modified_ns: i128::from(found.mtime()) * 1_000_000_000 + i128::from(found.mtime_nsec()),
            length: found.len(),
            identity: (found.dev(), found.ino()),
        }
    }
}

type Stamps = BTreeMap<PathBuf, Option<Stamp>>;

/// The files of the running configuration and how they looked when it was read.
#[derive(Debug, Default)]
pub struct Watch {
    settled: Stamps,
    /// With how many looks have found the same since.
    changing: Option<(Stamps, u32)>,
    /// Files written while they were read: their next look counts as a change whatever their stamps say.
    suspect: bool,
}

impl Watch {
    /// Watches `files`, which were read some time after `read_from`.
    pub fn new(
        files: impl IntoIterator<Item = PathBuf>,
        read_from: SystemTime,
        look: impl Fn(&Path) -> Option<Stamp>,
    ) -> Self {
        let settled: Stamps = files.into_iter().map(|path| (path.clone(), look(&path))).collect();
        let since = read_from.checked_sub(CLOCK_GRAIN).unwrap_or(read_from);
        let since_ns = since.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |age| age.as_nanos() as i128);
        let suspect = settled.values().any(|stamp| stamp.is_none_or(|stamp| stamp.modified_ns >= since_ns));
        Self { settled, changing: None, suspect }
    }

    /// Looks again. `true`: something changed since the last report and has been stable for a whole look. What is
    /// reported is not reported again, so that a bad file is tried, and complained about, once.
    pub fn look(&mut self, look: impl Fn(&Path) -> Option<Stamp>) -> bool {
        let now: Stamps = self.settled.keys().map(|path| (path.clone(), look(path))).collect();
        if now == self.settled && !self.suspect {
            self.changing = None;
            return false;
        }
        // A file that is missing is in the middle of being replaced, unless that lasts.
        let looks = if now.values().all(Option::is_some) { 1 } else { MISSING_LOOKS };
        let same = self.changing.take().filter(|(before, _)| *before == now).map_or(0, |(_, same)| same + 1);
        if same < looks {
            self.changing = Some((now, same));
            return false;
        }
        self.settled = now;
        self.changing = None;
        self.suspect = false;
        true
    }

    /// Files looked at.
    pub fn len(&self) -> usize {
        self.settled.len()
    }

    /// Whether there is nothing to look at.
    pub fn is_empty(&self) -> bool {
        self.settled.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn stamp(second: i128, length: u64, inode: u64) -> Option<Stamp> {
        Some(Stamp { modified_ns: second * 1_000_000_000, length, identity: (1, inode) })
    }

    fn watch(found: Option<Stamp>) -> Watch {
        let read_from = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        Watch::new([PathBuf::from("site.pem")], read_from, |_| found)
    }

    #[test]
    fn a_file_left_alone_is_never_reported() {
        let mut watch = watch(stamp(10, 5, 7));
        for _ in 0..5 {
            assert!(!watch.look(|_| stamp(10, 5, 7)));
        }
    }

    #[test]
    fn a_change_is_reported_once_and_only_when_it_is_stable() {
        let mut watch = watch(stamp(10, 5, 7));
        assert!(!watch.look(|_| stamp(2_000, 1, 7)), "being written");
        assert!(!watch.look(|_| stamp(2_000, 6, 7)), "still being written");
        assert!(watch.look(|_| stamp(2_000, 6, 7)));
        assert!(!watch.look(|_| stamp(2_000, 6, 7)));
    }

    #[test]
    fn time_length_and_inode_each_tell_a_change() {
        for changed in [stamp(11, 5, 7), stamp(10, 6, 7), stamp(10, 5, 8)] {
            let mut watch = watch(stamp(10, 5, 7));
            assert!(!watch.look(|_| changed));
            assert!(watch.look(|_| changed), "{changed:?}");
        }
    }

    #[test]
    fn a_file_that_went_away_is_waited_for() {
        let mut watch = watch(stamp(10, 5, 7));
        for _ in 0..3 {
            assert!(!watch.look(|_| None));
        }
        assert!(!watch.look(|_| stamp(2_000, 5, 9)));
        assert!(watch.look(|_| stamp(2_000, 5, 9)));
    }

    #[test]
    fn a_file_that_stays_away_is_reported_once_and_again_when_it_comes_back() {
        let mut watch = watch(stamp(10, 5, 7));
        let reports = (0..20).filter(|_| watch.look(|_| None)).count();
        assert_eq!(reports, 1);
        assert!(!watch.look(|_| stamp(2_000, 5, 9)));
        assert!(watch.look(|_| stamp(2_000, 5, 9)));
    }

    #[test]
    fn a_change_that_was_taken_back_is_not_reported() {
        let mut watch = watch(stamp(10, 5, 7));
        assert!(!watch.look(|_| stamp(11, 5, 7)));
        assert!(!watch.look(|_| stamp(10, 5, 7)));
        assert!(!watch.look(|_| stamp(11, 5, 7)), "its stability starts anew");
        assert!(watch.look(|_| stamp(11, 5, 7)));
    }

    #[test]
    fn a_file_written_while_it_was_read_is_read_again() {
        let mut watch = watch(stamp(1_000, 5, 7));
        assert!(!watch.look(|_| stamp(1_000, 5, 7)));
        assert!(watch.look(|_| stamp(1_000, 5, 7)));
        assert!(!watch.look(|_| stamp(1_000, 5, 7)));
    }

    #[test]
    fn every_file_is_looked_at() {
        let seen = Cell::new(0);
        let files = ["a", "b", "c"].map(PathBuf::from);
        let mut watch = Watch::new(files, SystemTime::now(), |_| stamp(10, 1, 1));
        assert_eq!((watch.len(), watch.is_empty()), (3, false));
        watch.look(|_| {
            seen.set(seen.get() + 1);
            stamp(10, 1, 1)
        });
        assert_eq!(seen.get(), 3);
    }

    #[test]
    fn a_real_file_replaced_by_another_gets_a_new_stamp() {
        let folder = std::env::temp_dir().join(format!("equipoise-watch-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (path, next) = (folder.join("a.pem"), folder.join("b.pem"));
        std::fs::write(&path, "one").unwrap();
        let before = Stamp::of(&path).unwrap();
        std::fs::write(&next, "two").unwrap();
        std::fs::rename(&next, &path).unwrap();
        assert_ne!(Some(before), Stamp::of(&path));
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(None, Stamp::of(&path));
    }
}
