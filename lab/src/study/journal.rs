//! The journal: every measurement of a run is one line of a file, written when it is made. A run that was ended can so
//! be resumed, and a report can be drawn from what there is.

use crate::failure::Failure;
use crate::measure::child::write_file;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

/// What became of a measurement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome<T> {
    /// It was made, now or before.
    Done(T),
    /// It could not be made, for the reason given. It is tried again when the run is resumed.
    Failed(String),
}

/// One line of the file: a value, or the reason why there is none.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
}

/// The journal of a run.
pub(crate) struct Journal {
    file: RefCell<File>,
    entries: RefCell<BTreeMap<String, Entry>>,
    is_closed: Cell<bool>,
}

/// Why there is nothing of a measurement that the run did not come to.
pub(crate) const ENDED: &str = "the run was ended before this";

/// The first line: a run is only resumed by one of the same kind.
const HEAD: &str = "run";

impl Journal {
    /// Begins a journal, or goes on with the one that is there when it was of the same `kind` of run.
    pub(crate) fn open(path: &Path, kind: &str, resume: bool) -> Result<Self, Failure> {
        let mut entries = BTreeMap::new();
        if resume && path.exists() {
            entries = read(path)?;
            let found = entries.get(HEAD).and_then(|entry| entry.value.as_ref()?.as_str()).unwrap_or("unknown");
            if found != kind {
                return Err(Failure::new(format!(
                    "{} is of another run ({found}; this one: {kind}); run without --resume",
                    path.display()
                )));
            }
        } else {
            write_file(path, "")?;
        }
        let is_new = !entries.contains_key(HEAD);
        let file = OpenOptions::new().append(true).open(path).map_err(|error| Failure::io(path, &error))?;
        let journal = Self { file: file.into(), entries: entries.into(), is_closed: Cell::new(false) };
        if is_new {
            journal.add(Entry { key: HEAD.to_owned(), value: Some(kind.into()), failure: None })?;
        }
        Ok(journal)
    }

    /// Whether a measurement was made before.
    pub(crate) fn holds(&self, key: &str) -> bool {
        self.entries.borrow().get(key).is_some_and(|entry| entry.value.is_some())
    }

    /// From now on nothing is measured: what was not is a failure.
    pub(crate) fn close(&self) {
        self.is_closed.set(true);
    }

    /// Makes a measurement, unless it was made before. Only an interruption is an error.
    pub(crate) fn once<T: Serialize + DeserializeOwned>(
        &self,
        key: &str,
        measure: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<Outcome<T>, Failure> {
        if let Some(value) = self.entries.borrow().get(key).and_then(|entry| entry.value.clone()) {
            let value = serde_json::from_value(value);
            return value
                .map(Outcome::Done)
                .map_err(|error| Failure::new(format!("the journal's {key} is of an older lab ({error})")));
        }
        if self.is_closed.get() {
            let known = self.entries.borrow().get(key).and_then(|entry| entry.failure.clone());
            return Ok(Outcome::Failed(known.unwrap_or_else(|| ENDED.to_owned())));
        }
        let (outcome, value, failure) = match measure() {
            Ok(value) => {
                let json = serde_json::to_value(&value).map_err(|error| Failure::new(error.to_string()))?;
                (Outcome::Done(value), Some(json), None)
            }
            Err(failure) if failure.is_interruption() => return Err(failure),
            Err(failure) => (Outcome::Failed(failure.to_string()), None, Some(failure.to_string())),
        };
        self.add(Entry { key: key.to_owned(), value, failure })?;
        Ok(outcome)
    }

    /// The measurements that failed, with the reasons.
    pub(crate) fn failures(&self) -> Vec<(String, String)> {
        let entries = self.entries.borrow();
        entries.values().filter_map(|entry| Some((entry.key.clone(), entry.failure.clone()?))).collect()
    }

    fn add(&self, entry: Entry) -> Result<(), Failure> {
        let mut line = serde_json::to_string(&entry).map_err(|error| Failure::new(error.to_string()))?;
        line.push('\n');
        self.file.borrow_mut().write_all(line.as_bytes())?;
        self.entries.borrow_mut().insert(entry.key.clone(), entry);
        Ok(())
    }
}

/// Reads the lines; the last one may have been cut off by a crash.
fn read(path: &Path) -> Result<BTreeMap<String, Entry>, Failure> {
    let text = fs::read_to_string(path).map_err(|error| Failure::io(path, &error))?;
    let entries = text.lines().filter_map(|line| serde_json::from_str::<Entry>(line).ok());
    Ok(entries.map(|entry| (entry.key.clone(), entry)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn file(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("lab-test-{}-journal-{name}", std::process::id()))
    }

    #[test]
    fn what_was_measured_is_not_measured_again() {
        let path = file("again");
        let journal = Journal::open(&path, "quick", false).unwrap();
        assert_eq!(journal.once("one", || Ok(1)).unwrap(), Outcome::Done(1));
        let failed = journal.once::<u32>("two", || Err(Failure::new("no luck"))).unwrap();
        assert_eq!(failed, Outcome::Failed("no luck".to_owned()));
        drop(journal);
        let journal = Journal::open(&path, "quick", true).unwrap();
        assert_eq!(journal.once("one", || Ok(10)).unwrap(), Outcome::Done(1));
        assert_eq!(journal.failures(), [("two".to_owned(), "no luck".to_owned())]);
        assert_eq!(journal.once("two", || Ok(2)).unwrap(), Outcome::Done(2));
        assert!(journal.failures().is_empty());
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn an_interruption_goes_up_and_a_closed_journal_measures_nothing() {
        let path = file("closed");
        let journal = Journal::open(&path, "quick", false).unwrap();
        assert!(journal.once::<u32>("one", || Err(Failure::interrupted())).unwrap_err().is_interruption());
        journal.close();
        assert!(matches!(journal.once("one", || Ok(1)).unwrap(), Outcome::Failed(_)));
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_run_of_another_kind_is_not_resumed_and_a_cut_line_is_no_harm() {
        let path = file("kind");
        Journal::open(&path, "quick", false).unwrap().once("one", || Ok(1)).unwrap();
        assert!(Journal::open(&path, "full", true).is_err());
        let mut text = fs::read_to_string(&path).unwrap();
        text.push_str("{\"key\":\"tw");
        fs::write(&path, text).unwrap();
        assert!(Journal::open(&path, "quick", true).unwrap().holds("one"));
        fs::remove_file(path).unwrap();
    }
}
