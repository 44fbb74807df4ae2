//! Files that are watched: those of the configuration (`watch: true`), and the certificates that it names.

use std::time::SystemTime;

use super::Reconciler;
use super::watched::Watched;
use crate::history::Origin;
use crate::load::{self, Next, Source};
use crate::loader::without_names;
use crate::refusal::Refusal;
use crate::watch::Stamp;

impl Reconciler {
    /// Watches the files that the configuration names by now, if that is wanted. To be called after each reading.
    pub fn watch_configuration(&mut self) {
        let is_watched = self.running.as_ref().is_some_and(|running| running.plan.snapshot.is_watched);
        let Source::File(path) = &self.source else { return };
        if !is_watched {
            self.watched = None;
            return;
        }
        let roots = without_names(|loader| loader.watched(path));
        match &mut self.watched {
            Some(watched) => watched.follow(roots),
            None => self.watched = Some(Watched::of(roots, SystemTime::now())),
        }
    }

    /// Takes the files as they are now: they are about to be read.
    pub fn note_configuration(&mut self) {
        if let Some(watched) = &mut self.watched {
            watched.take();
        }
    }

    /// Looks whether the files of the configuration have changed, if they are watched. To be called once a second or so.
    pub fn look_at_configuration(&mut self) -> bool {
        self.watched.as_mut().is_some_and(Watched::look)
    }

    /// Looks whether certificate files have changed, and publishes them if they have. To be called once a second or so.
    /// `Ok(None)`: nothing to do.
    ///
    /// # Errors
    /// Why the new files are not used, once for each change: a key that does not match, a file that is no certificate.
    pub fn look_at_files(&mut self) -> Result<Option<u64>, Refusal> {
        let Some(running) = &mut self.running else { return Ok(None) };
        if !running.watch.look(Stamp::of) {
            return Ok(None);
        }
        let running = &*running;
        let next = Next {
            previous: Some(&running.plan),
            running: Some(&running.loaded),
            admin_tls: running.admin_tls.as_ref(),
            generation: running.generation + 1,
            inspect: self.inspect,
        };
        let candidate = load::prepare_files(&running.loaded, self.desired.clone(), next)
            .inspect_err(|_| self.view.count_refused())?;
        if candidate.plan.snapshot == running.plan.snapshot {
            return Ok(None);
        }
        // Maps, and settings of filters, are all else that is in files.
        let (new, old) = (&candidate.plan.snapshot, &running.plan.snapshot);
        let are_same = (&new.listeners, &new.clusters, &new.admin) == (&old.listeners, &old.clusters, &old.admin);
        let origin = if are_same { Origin::Files } else { Origin::Certificates };
        self.commit(candidate, origin).map(Some).map_err(Refusal::Unpublished)
    }
}
