//! The last state of each provider on disk, so that a start does not need the providers to be there.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::atomic_file;
use crate::given::{Given, State};

/// How long a change waits for others before it is written.
const EVERY: Duration = Duration::from_secs(2);
/// How long what could not be written waits until it is tried again.
const AGAIN: Duration = Duration::from_secs(30);
/// The version of what is written.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Kept<S> {
    format: u32,
    state: S,
}

/// Writes the accepted state, a while after it was accepted.
#[derive(Debug, Default)]
pub(super) struct Cache {
    folder: Option<PathBuf>,
    written: BTreeMap<String, Arc<State>>,
    open: BTreeMap<String, Arc<State>>,
    /// Could not be written the last time.
    failing: BTreeSet<String>,
    due: Option<Instant>,
}

impl Cache {
    /// Notes the accepted state.
    pub(super) fn follow(&mut self, folder: Option<PathBuf>, given: &Given) {
        if self.folder != folder {
            self.written.clear();
            self.folder = folder;
        }
        if self.folder.is_none() {
            (self.open, self.due) = (BTreeMap::new(), None);
            return;
        }
        let is_written = |name: &str, state: &Arc<State>| {
            self.written.get(name).is_some_and(|known| Arc::ptr_eq(known, state) || known == state)
        };
        let open = given.states().filter(|(name, state)| !is_written(name, state));
        let open: BTreeMap<String, Arc<State>> =
            open.map(|(name, state)| (name.to_owned(), Arc::clone(state))).collect();
        let is_new = |(name, state): (&String, &Arc<State>)| self.open.get(name).is_none_or(|known| known != state);
        let soon = open.iter().any(is_new).then(|| Instant::now() + EVERY);
        self.due = if open.is_empty() { None } else { self.due.into_iter().chain(soon).min() };
        // Those that are no more are forgotten.
        self.written.retain(|name, _| given.states().any(|(known, _)| known == name));
        self.failing.retain(|name| open.contains_key(name));
        self.open = open;
    }

    /// When something is to be written.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due
    }

    /// Writes all that is not written. A failure is logged once, and retried after a while or with the next change.
    pub(super) fn keep(&mut self) {
        self.due = None;
        let Some(folder) = &self.folder else { return };
        for (name, state) in std::mem::take(&mut self.open) {
            if !self.written.contains_key(&name) {
                atomic_file::sweep(folder, &file_of(&name));
            }
            match write(folder, &name, &state) {
                Ok(()) => {
                    self.failing.remove(&name);
                    self.written.insert(name, state);
                }
                Err(error) => {
                    if self.failing.insert(name.clone()) {
                        let pairs: telemetry::log::Pairs<'_> = &[("provider", &name), ("error", &error)];
                        telemetry::log::error("the state of a provider is active but could not be saved", pairs);
                    }
                    self.open.insert(name, state);
                }
            }
        }
        self.due = (!self.open.is_empty()).then(|| Instant::now() + AGAIN);
    }
}

fn file_of(name: &str) -> String {
    format!("provider.{name}.json")
}

fn path_of(folder: &Path, name: &str) -> PathBuf {
    folder.join(file_of(name))
}

/// Reads the cached state of a provider. One that cannot be read is logged and skipped: the program must start, and the provider itself is
/// most likely reachable.
pub(super) fn recall(folder: &Path, name: &str) -> Option<State> {
    read(folder, name).unwrap_or_else(|error| {
        telemetry::log::warn("the saved state of a provider cannot be read", &[("provider", &name), ("error", &error)]);
        None
    })
}

fn read(folder: &Path, name: &str) -> io::Result<Option<State>> {
    let path = path_of(folder, name);
    let named = |error: String| io::Error::other(format!("{}: {error}", path.display()));
    let Some(text) = atomic_file::read_file(&path).map_err(|error| named(error.to_string()))? else { return Ok(None) };
    let kept: Kept<State> = serde_json::from_str(&text).map_err(|error| named(error.to_string()))?;
    if kept.format != FORMAT {
        return Err(named(format!("its format is {}, and this program knows {FORMAT}", kept.format)));
    }
    Ok(Some(kept.state))
}

fn write(folder: &Path, name: &str, state: &State) -> io::Result<()> {
    let text = serde_json::to_string(&Kept { format: FORMAT, state }).map_err(io::Error::other)?;
    atomic_file::stage_file(folder, &file_of(name), text.as_bytes())?.finish()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::given::Text;
    use crate::loader::without_names;

    #[test]
    fn what_is_kept_is_read_back() {
        let folder = tempfile::TempDir::new().unwrap();
        assert_eq!(read(folder.path(), "a").unwrap(), None);
        let text = Text { name: "x".into(), folder: Some("/etc".into()), text: "routes: []".into() };
        let mut endpoint = config::file::EndpointSettings::at("127.0.0.1:1");
        endpoint.weight = 3;
        let state = State {
            texts: vec![text],
            endpoints: [("site".to_owned(), vec![endpoint])].into(),
            names: [("site".to_owned(), vec!["a".to_owned()])].into(),
            by_parts: true,
        };
        write(folder.path(), "a", &state).unwrap();
        assert_eq!(read(folder.path(), "a").unwrap(), Some(state));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        for bad in ["{", "{\"format\": 2, \"state\": {}}"] {
            fs::write(path_of(folder.path(), "a"), bad).unwrap();
            assert!(read(folder.path(), "a").unwrap_err().to_string().contains("provider.a.json"));
            assert_eq!(recall(folder.path(), "a"), None);
        }
    }

    #[test]
    fn what_cannot_be_written_is_tried_again_though_nothing_changes() {
        let folder = tempfile::TempDir::new().unwrap();
        let place = folder.path().join("later");
        let text = Text { name: "x".into(), folder: None, text: "routes: []".into() };
        let state = Arc::new(State { texts: vec![text], ..State::default() });
        let given = without_names(|loader| Given::default().with(loader, "a", Arc::clone(&state))).unwrap();
        let mut cache = Cache::default();
        cache.follow(Some(place.clone()), &given);
        assert!(cache.next().is_some_and(|due| due <= Instant::now() + EVERY));
        cache.keep();
        let again = cache.next().expect("it is tried again");
        cache.follow(Some(place.clone()), &given);
        assert_eq!(cache.next(), Some(again), "that is nothing new");
        fs::create_dir(&place).unwrap();
        cache.keep();
        assert_eq!(cache.next(), None);
        assert_eq!(read(&place, "a").unwrap().as_ref(), Some(&*state));
        cache.follow(Some(place), &given);
        assert_eq!(cache.next(), None);
    }

    #[test]
    fn what_lies_in_the_way_is_neither_written_nor_followed_and_what_was_left_behind_goes() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let (folder, other) = (tempfile::TempDir::new().unwrap(), tempfile::TempDir::new().unwrap());
        let (folder, elsewhere) = (folder.path(), other.path().join("elsewhere"));
        fs::write(&elsewhere, "precious").unwrap();
        let beside = |pid: u32| folder.join(format!("provider.a.json.{pid}.new"));
        let ours = beside(std::process::id());
        symlink(&elsewhere, &ours).unwrap();
        write(folder, "a", &State::default()).unwrap();
        assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "precious");
        fs::write(&ours, "half").unwrap();
        fs::set_permissions(&ours, fs::Permissions::from_mode(0o666)).unwrap();
        write(folder, "a", &State::default()).unwrap();
        assert_eq!(fs::metadata(path_of(folder, "a")).unwrap().permissions().mode() & 0o777, 0o600);
        // Of one that is no more, and of one that may be writing.
        let (dead, alive) = (beside(u32::MAX), beside(1));
        fs::write(&dead, "half").unwrap();
        fs::write(&alive, "half").unwrap();
        atomic_file::sweep(folder, &file_of("a"));
        assert!(!dead.exists() && alive.exists() && path_of(folder, "a").exists());
    }
}
