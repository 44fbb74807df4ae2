//! The old program's side: the process that is to follow it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use proxy::handover::Place;
use serde_json::{Value, json};

use super::channel::{Channel, Frame, Kind, keep_on_exec};
use super::{Program, VARIABLE, manifest};

/// Longest wait for the new process to take over once it has all it needs: datagrams are read by nobody meanwhile.
const TAKE_OVER: Duration = Duration::from_secs(20);
/// Longest wait for the end of a process that says nothing more, to tell how it ended.
const ENDING: Duration = Duration::from_secs(5);

/// A process that was started to follow this one. Dropping it before [`Successor::leave`] ends it.
#[derive(Debug)]
pub(crate) struct Successor {
    child: Option<Child>,
    pub(crate) pid: u32,
    channel: Channel,
    is_unwanted: Arc<AtomicBool>,
    /// It has not taken something whole.
    is_deaf: AtomicBool,
}

/// Ends the conversation from elsewhere.
pub(crate) struct Hold {
    channel: Channel,
    is_unwanted: Arc<AtomicBool>,
}

impl Hold {
    /// Nobody is to take over: whoever waits for the new process sees its end, and that learns that nobody has died.
    pub(crate) fn end(&self) {
        self.is_unwanted.store(true, Ordering::Relaxed);
        // One that hangs takes nothing. In the middle of something else it cannot be understood, which says the same.
        let said = self.channel.set_patience(Duration::from_millis(100));
        let _ = said.and_then(|()| self.channel.send(Kind::Refused, b"{}", &[]));
        self.channel.shut();
    }
}

/// What the new process wants of what it was offered.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) taken: Vec<Place>,
    pub(crate) admin: bool,
    /// It takes what this process has come to know in two parts.
    pub(crate) in_parts: bool,
}

impl Successor {
    /// Starts the program.
    ///
    /// # Errors
    /// The file is not there, or cannot be run.
    pub(crate) fn start(program: &Program) -> Result<Self, String> {
        let failed = |error: io::Error| format!("{} cannot be started: {error}", program.path.display());
        let (channel, theirs) = Channel::pair().map_err(failed)?;
        // This process starts no others.
        let theirs: OwnedFd = theirs.into();
        keep_on_exec(&theirs).map_err(failed)?;
        let mut command = Command::new(&program.path);
        command.args(&program.arguments).env(VARIABLE, theirs.as_raw_fd().to_string()).stdin(Stdio::null());
        if let Some(name) = std::env::args_os().next() {
            command.arg0(name);
        }
        // Those were for this process.
        for name in ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID"] {
            command.env_remove(name);
        }
        let child = command.spawn().map_err(failed)?;
        let (is_unwanted, is_deaf) = <_>::default();
        Ok(Self { pid: child.id(), child: Some(child), channel, is_unwanted, is_deaf })
    }

    /// A way to end the conversation from elsewhere.
    ///
    /// # Errors
    /// No descriptors are left.
    pub(crate) fn hold(&self) -> io::Result<Hold> {
        Ok(Hold { channel: self.channel.try_clone()?, is_unwanted: Arc::clone(&self.is_unwanted) })
    }

    /// Gives it what there is, and waits until it could take over.
    ///
    /// # Errors
    /// Why it cannot.
    pub(crate) fn offer(&mut self, (told, sockets): (&Value, &[OwnedFd]), until: Instant) -> Result<Wanted, String> {
        let patience = until.saturating_duration_since(Instant::now());
        let sent = self.channel.set_patience(patience);
        // A process that has ended says more by how it ended than by not taking this.
        let _ = sent.and_then(|()| self.channel.send(Kind::Offer, told.to_string().as_bytes(), sockets));
        let frame = self.expect(Kind::Prepared, until)?;
        let told: Value = serde_json::from_slice(&frame.body).unwrap_or_default();
        let (admin, in_parts) = (told["admin"] == json!(true), told["in_parts"] == json!(true));
        Ok(Wanted { taken: manifest::read_taken(&told["taken"]), admin, in_parts })
    }

    /// Sends the first part of the runtime state, and waits until the successor has taken it over.
    ///
    /// # Errors
    /// Why it does not.
    pub(crate) fn hand_over_first(&mut self, state: &Value, until: Instant) -> Result<(), String> {
        let sent = self.channel.set_patience(until.saturating_duration_since(Instant::now()));
        let _ = sent.and_then(|()| self.channel.send(Kind::State, state.to_string().as_bytes(), &[]));
        self.expect(Kind::Prepared, until).map(drop)
    }

    /// Sends the runtime state, and waits until the successor takes what arrives, for no longer than `patience`.
    ///
    /// # Errors
    /// Why it does not.
    pub(crate) fn hand_over(&mut self, state: &Value, patience: Duration) -> Result<(), String> {
        let patience = patience.min(TAKE_OVER);
        let until = Instant::now() + patience;
        let sent = self.channel.set_patience(patience);
        let _ = sent.and_then(|()| self.channel.send(Kind::State, state.to_string().as_bytes(), &[]));
        self.expect(Kind::Ready, until).map(drop)
    }

    /// It has taken over: it lives on without this process.
    pub(crate) fn leave(&mut self) {
        self.child = None;
    }

    /// Tells it something while this process drains. Behind what it did not take whole nothing could be understood: then this says
    /// nothing more.
    pub(crate) fn tell(&self, kind: Kind, told: &Value) {
        if self.is_deaf.load(Ordering::Relaxed) {
            return;
        }
        let patience = self.channel.set_patience(Duration::from_secs(1));
        let said = patience.and_then(|()| self.channel.send(kind, told.to_string().as_bytes(), &[]));
        // It may have ended by itself, which is nothing that this process could mend.
        self.is_deaf.store(said.is_err(), Ordering::Relaxed);
    }

    fn expect(&mut self, wanted: Kind, until: Instant) -> Result<Frame, String> {
        loop {
            match self.channel.receive(until) {
                Ok(frame) if frame.kind == wanted => return Ok(frame),
                Ok(frame) if frame.kind == Kind::Refused => {
                    let told: Value = serde_json::from_slice(&frame.body).unwrap_or_default();
                    return Err(told["reason"].as_str().unwrap_or("it reported that it cannot take over").to_owned());
                }
                Ok(frame) if frame.kind == Kind::Note => {}
                Ok(frame) => return Err(format!("it sent {:?} instead of {wanted:?}", frame.kind)),
                Err(error) => return Err(self.told_by(&error)),
            }
        }
    }

    /// Why there is no answer.
    fn told_by(&mut self, error: &io::Error) -> String {
        match error.kind() {
            io::ErrorKind::TimedOut => "it did not become ready in time".to_owned(),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                match self.end() {
                    Some(status) => format!("it ended before it was ready: {status}"),
                    None => "it ended before it was ready".to_owned(),
                }
            }
            _ => format!("its messages cannot be read: {error}"),
        }
    }

    /// How it has ended. It is ended, should it have closed its socket and live on.
    fn end(&mut self) -> Option<std::process::ExitStatus> {
        let child = self.child.as_mut()?;
        let until = Instant::now() + ENDING;
        while Instant::now() < until && !self.is_unwanted.load(Ordering::Relaxed) {
            if let Ok(Some(status)) = child.try_wait() {
                self.child = None;
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Should it be the child of what was started, it learns by this that no one has died whom it could follow.
            self.tell(Kind::Refused, &json!({ "reason": "it must not take over" }));
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn nothing_is_said_behind_what_was_not_taken_whole() {
        let (channel, mut theirs) = Channel::pair().unwrap();
        let (is_unwanted, is_deaf) = <_>::default();
        let successor = Successor { child: None, pid: 0, channel, is_unwanted, is_deaf };
        // More than the kernel holds while nobody reads.
        let much = 8 << 20;
        successor.tell(Kind::Figures, &json!("x".repeat(much)));
        theirs.set_nonblocking(true).unwrap();
        let mut drain = || {
            let (mut count, mut room) = (0, [0; 16 << 10]);
            loop {
                match theirs.read(&mut room) {
                    Ok(read) => count += read,
                    Err(error) => return (count, error.kind()),
                }
            }
        };
        let (taken, _) = drain();
        assert!(taken > 0 && taken < much, "{taken}");
        successor.tell(Kind::Figures, &json!({}));
        assert_eq!(drain(), (0, io::ErrorKind::WouldBlock));
    }
}
