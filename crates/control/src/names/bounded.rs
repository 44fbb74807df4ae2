//! Host names that a preparation looks up: each once, and all of them within one time.
//!
//! The resolver of the system has a bound for each name alone, and a thousand names would take a thousand times that.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use model::provider::NameLookup;

use super::look_up::look_up;

/// The addresses of a name, or why there are none.
type Found = Result<Vec<SocketAddr>, (io::ErrorKind, String)>;

/// Host names as they were looked up for one preparation.
pub(crate) struct Names {
    ends: Instant,
    known: RefCell<HashMap<(String, u16), Found>>,
}

impl Names {
    pub(super) fn within(time: Duration) -> Self {
        Self { ends: Instant::now() + time, known: RefCell::default() }
    }

    /// For a configuration that is checked offline, where waiting for a name service is of little use.
    pub(crate) fn offline() -> Self {
        Self::within(Duration::from_secs(5))
    }

    /// For a start: nothing else waits for it.
    pub(crate) fn of_a_start() -> Self {
        Self::within(Duration::from_secs(3_600))
    }

    /// For a reload, which looks up all names of a configuration.
    pub(crate) fn of_a_reload() -> Self {
        Self::within(Duration::from_secs(60))
    }

    /// For a change, which looks up new names only; a caller waits for the answer.
    pub(crate) fn of_a_change() -> Self {
        Self::within(Duration::from_secs(10))
    }

    pub(crate) fn look_up(&self, lookup: &NameLookup, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let key = (host.to_owned(), port);
        let known = self.known.borrow().get(&key).cloned();
        let found = known.unwrap_or_else(|| {
            let left = self.ends.saturating_duration_since(Instant::now());
            let found = look_up_within(lookup.clone(), key.0.clone(), port, left)
                .map_err(|error| (error.kind(), error.to_string()));
            self.known.borrow_mut().insert(key, found.clone());
            found
        });
        found.map_err(|(kind, message)| io::Error::new(kind, message))
    }
}

/// Looks a name up on a thread that is left behind if it takes too long.
fn look_up_within(lookup: NameLookup, host: String, port: u16, patience: Duration) -> io::Result<Vec<SocketAddr>> {
    let late = || io::Error::new(io::ErrorKind::TimedOut, "the lookup took too long");
    if patience.is_zero() {
        return Err(late());
    }
    let (sender, found) = channel();
    std::thread::Builder::new().name("names".into()).spawn(move || {
        let all = look_up(&lookup, &host, port);
        // Who asked may have gone.
        let _ = sender.send(all);
    })?;
    found.recv_timeout(patience).unwrap_or_else(|_| Err(late()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_looked_up_once_and_all_within_one_time() {
        let names = Names::within(Duration::from_secs(60));
        assert_eq!(names.look_up(&NameLookup::default(), "127.0.0.1", 80).unwrap(), ["127.0.0.1:80".parse().unwrap()]);
        assert_eq!(names.known.borrow().len(), 1);
        assert!(names.look_up(&NameLookup::default(), "127.0.0.1", 80).is_ok());
        assert_eq!(names.known.borrow().len(), 1);
        let late = Names::within(Duration::ZERO);
        for _ in 0..2 {
            let error = late.look_up(&NameLookup::default(), "127.0.0.1", 80).unwrap_err();
            assert_eq!(
                (error.kind(), error.to_string().as_str()),
                (io::ErrorKind::TimedOut, "the lookup took too long")
            );
        }
    }
}
