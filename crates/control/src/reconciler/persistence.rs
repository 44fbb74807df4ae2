//! What is saved for the next start: what is desired beside the files, and the history.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::atomic_file::{self, Staged};
use crate::history::writer::Writer;
use crate::history::{Entry, file};
use crate::load::Candidate;
use crate::overrides::{self, Desired};
use crate::view::View;

/// Saves to the folder that the configuration names, if it names one.
#[derive(Default)]
pub(super) struct Persistence {
    folder: Option<Folder>,
    /// Why what is desired is not saved.
    failure: Option<String>,
    writer: Writer,
}

/// A folder that this process has read or written.
struct Folder {
    path: PathBuf,
    /// What is saved there. `None`: the old or the new, for the system did not say.
    desired: Option<Desired>,
}

/// What a folder was found to have.
#[derive(Default)]
pub(super) struct Found {
    pub(super) desired: Desired,
    /// The generation that brought it; 0 if it is not known.
    pub(super) generation: u64,
    /// Oldest first.
    pub(super) history: Vec<Entry>,
}

impl Persistence {
    /// Reads what is saved in a folder.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn read(folder: Option<PathBuf>) -> io::Result<(Self, Found)> {
        let Some(path) = folder else { return Ok(<_>::default()) };
        let (desired, generation) = overrides::read_counted(&path)?;
        [overrides::FILE, file::FILE].iter().for_each(|file| atomic_file::sweep(&path, file));
        let found = Found { desired: desired.clone(), generation, history: file::take_up(&path) };
        let folder = Some(Folder { path, desired: Some(desired) });
        Ok((Self { folder, ..Self::default() }, found))
    }

    /// Returns the folder.
    pub(super) fn folder(&self) -> Option<&Path> {
        self.folder.as_ref().map(|folder| folder.path.as_path())
    }

    /// Takes what the process before had in force. What that one could not save is written with the next commit.
    pub(super) fn follow(&mut self, desired: &Desired) {
        if let Some(folder) = &mut self.folder {
            folder.desired = folder.desired.take().filter(|saved| saved == desired);
        }
    }

    /// Writes what a candidate desires to the disk, beside what is saved, unless that is the same.
    ///
    /// # Errors
    /// It cannot be written, or the folder has changes of another time.
    pub(super) fn stage(&self, candidate: &Candidate) -> Result<Option<Staged>, String> {
        let Some(path) = candidate.state_folder() else { return Ok(None) };
        let failed = |error: io::Error| format!("cannot save changes in {}: {error}", path.display());
        let is_there = match &self.folder {
            Some(folder) if folder.path == *path => folder.desired.as_ref() == Some(&candidate.desired),
            // This process has never read it: another may need what is there.
            _ => {
                let found = overrides::read(path).map_err(failed)?;
                if !found.is_empty() && found != candidate.desired {
                    let place = path.display();
                    return Err(format!(
                        "admin: {place} has API changes of an earlier run: restart to apply them, or remove changes.json there"
                    ));
                }
                found == candidate.desired
            }
        };
        if is_there {
            return Ok(None);
        }
        overrides::stage(path, &candidate.desired, candidate.plan.generation).map(Some).map_err(failed)
    }

    /// Puts what was staged in its place, and notes what is saved.
    pub(super) fn finish(
        &mut self,
        folder: Option<PathBuf>,
        staged: Result<Option<Staged>, String>,
        desired: &Desired,
    ) {
        let finish = |staged: Staged| staged.finish().map_err(|error| error.to_string());
        let finished = staged.and_then(|staged| staged.map_or(Ok(()), finish));
        if let Err(error) = &finished {
            telemetry::log::error("API changes are active but could not be saved", &[("error", error)]);
        }
        let is_saved = finished.is_ok();
        self.failure = finished.err();
        self.folder = folder.map(|path| Folder { path, desired: is_saved.then(|| desired.clone()) });
    }

    /// Tries again to save what could not be saved.
    pub(super) fn retry(&mut self, desired: &Desired, generation: u64) {
        if self.failure.is_none() {
            return;
        }
        let Some(folder) = &mut self.folder else { return };
        if overrides::stage(&folder.path, desired, generation).and_then(Staged::finish).is_ok() {
            folder.desired = Some(desired.clone());
            self.failure = None;
            telemetry::log::info("API changes are saved again", &[]);
        }
    }

    /// Returns why the active configuration is not saved.
    pub(super) fn failure(&self) -> Option<String> {
        self.failure.clone()
    }

    /// Has the history written, in the background.
    pub(super) fn write_history(&mut self, view: &View) {
        if let Some(folder) = &self.folder {
            self.writer.write(&folder.path, view.generations());
        }
    }

    /// Waits until the history is written, at most this long.
    pub(super) fn flush_history(&self, patience: Duration) {
        self.writer.flush(patience);
    }
}
