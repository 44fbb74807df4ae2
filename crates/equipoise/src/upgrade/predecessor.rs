//! The new program's side: the old process, as far as this one has to do with it.

use std::collections::VecDeque;
use std::fmt::Display;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use proxy::handover::{Inherited, Place};
use serde_json::{Value, json};

use super::VARIABLE;
use super::channel::{Channel, Frame, Kind};
use super::manifest;

/// Longest wait for the old process, which has nothing else to do meanwhile.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest wait until a process that is ending has ended: its sockets are closed a little before.
const DYING: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Debug)]
pub(crate) struct Predecessor {
    channel: Channel,
    pub(crate) offer: Offer,
    /// The admin listener goes on with the socket of the process before.
    pub(crate) takes_admin: bool,
}

/// What the old process has.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) sockets: Vec<Inherited>,
    /// Where the admin listener was asked to be, and its socket.
    pub(crate) admin: Option<(model::Address, OwnedFd)>,
    /// Everything that is told beside them.
    pub(crate) told: Value,
}

impl Predecessor {
    /// The process that has started this one to follow it. `None`: nobody has.
    ///
    /// # Errors
    /// There should be one, but it does not say what it has.
    pub(crate) fn find() -> io::Result<Option<Self>> {
        let Some(number) = std::env::var_os(VARIABLE) else { return Ok(None) };
        let wrong =
            |error: &dyn Display| io::Error::other(format!("the previous process, named by {VARIABLE}: {error}"));
        let number = number.to_str().and_then(|text| text.parse().ok()).unwrap_or(-1);
        let channel = Channel::inherited(number).map_err(|error| wrong(&error))?;
        channel.set_patience(PATIENCE).map_err(|error| wrong(&error))?;
        let offer = expect(&channel, Kind::Offer).and_then(Offer::read).map_err(|error| wrong(&error))?;
        Ok(Some(Self { channel, offer, takes_admin: false }))
    }

    /// Says that all is ready to take over these sockets, and gets what the old process has come to know. What there may be much of
    /// comes first, while that still reads datagrams: `take_in` takes it.
    ///
    /// # Errors
    /// It does not answer.
    pub(crate) fn prepared(&self, taken: &[Place], take_in: impl FnOnce(&Value)) -> io::Result<Value> {
        let body = json!({ "taken": manifest::write_taken(taken), "admin": self.takes_admin, "in_parts": true });
        let first = self.ask(&body)?;
        if first["goes_on"] != true {
            return Ok(first);
        }
        take_in(&first);
        self.ask(&json!({}))
    }

    fn ask(&self, told: &Value) -> io::Result<Value> {
        self.channel.send(Kind::Prepared, told.to_string().as_bytes(), &[])?;
        let state = expect(&self.channel, Kind::State)?;
        serde_json::from_slice(&state.body).map_err(io::Error::other)
    }

    /// Says that this process takes what arrives.
    ///
    /// # Errors
    /// The old process is gone.
    pub(crate) fn ready(&self) -> io::Result<()> {
        let body = json!({ "pid": std::process::id() }).to_string();
        self.channel.send(Kind::Ready, body.as_bytes(), &[])
    }

    /// Says why this process cannot take over.
    pub(crate) fn refuse(&self, reason: &str) {
        let body = json!({ "reason": reason }).to_string();
        // It sees the end of this process in any case.
        let _ = self.channel.send(Kind::Refused, body.as_bytes(), &[]);
    }

    /// Whether the old process has died over this, rather than that it wants no successor any more. Then nobody would serve if
    /// this one did not, which has the sockets.
    pub(crate) fn has_died(&self) -> bool {
        if is_not_wanted(&self.channel) {
            return false;
        }
        let (Some(pid), Some(began)) = (self.offer.told["pid"].as_u64(), self.offer.told["began"].as_str()) else {
            return false;
        };
        let until = Instant::now() + DYING;
        while is_alive(pid, began) {
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }
}

/// Who hears what the old process still says while it drains. To be had before [`Predecessor::ready`]: behind that nothing may fail
/// any more, for the old process does not go on.
pub(crate) struct Ear(Sender<Channel>);

impl Ear {
    /// Tells `hear` what is said, and nothing when that process is gone.
    ///
    /// # Errors
    /// A thread cannot be had.
    pub(crate) fn open(hear: impl Fn(Option<&Frame>) + Send + 'static) -> io::Result<Self> {
        let (sender, receiver) = channel::<Channel>();
        std::thread::Builder::new().name("predecessor".into()).spawn(move || {
            // Nobody is to be listened to: this process does not take over.
            let Ok(channel) = receiver.recv() else { return };
            loop {
                match channel.receive(Instant::now() + Duration::from_secs(3600)) {
                    Ok(frame) => hear(Some(&frame)),
                    Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
                    Err(_) => return hear(None),
                }
            }
        })?;
        Ok(Self(sender))
    }

    /// Listens from now on.
    pub(crate) fn listen(self, before: Predecessor) {
        // The thread waits for it.
        let _ = self.0.send(before.channel);
    }
}

/// Whether the other side has said so before it went, or something that cannot be understood.
fn is_not_wanted(channel: &Channel) -> bool {
    loop {
        match channel.receive(Instant::now() + DYING) {
            Ok(frame) if frame.kind == Kind::Refused => return true,
            Ok(_) => {}
            Err(error) => {
                use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
                return !matches!(error.kind(), UnexpectedEof | ConnectionReset | BrokenPipe);
            }
        }
    }
}

/// When a process began, in clock ticks since the machine did (proc_pid_stat(5)); `None` if it has ended, whether somebody has
/// waited for it or not.
pub(crate) fn began(pid: u64) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    let began = fields.nth(18)?;
    (!matches!(state, "Z" | "X")).then(|| began.to_owned())
}

/// Whether the process that has this number is still the one that began then; also if that cannot be known.
fn is_alive(pid: u64, told: &str) -> bool {
    began(u64::from(std::process::id())).is_none() || began(pid).is_some_and(|began| began == told)
}

fn expect(channel: &Channel, wanted: Kind) -> io::Result<Frame> {
    let until = Instant::now() + PATIENCE;
    loop {
        let frame = channel.receive(until)?;
        if frame.kind == wanted {
            return Ok(frame);
        }
        if frame.kind != Kind::Note {
            return Err(io::Error::other(format!("it sent {:?} instead of {wanted:?}", frame.kind)));
        }
    }
}

impl Offer {
    fn read(frame: Frame) -> io::Result<Self> {
        let told: Value = serde_json::from_slice(&frame.body).map_err(io::Error::other)?;
        let mut descriptors: VecDeque<OwnedFd> = frame.descriptors.into();
        let sockets = manifest::read(&told["sockets"], &mut descriptors);
        let bind = told["admin"].as_str().and_then(|text| text.parse().ok());
        let admin = bind.zip(descriptors.pop_front());
        Ok(Self { sockets, admin, told })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_lives_until_it_has_ended_and_its_number_alone_is_not_believed() {
        let ours = u64::from(std::process::id());
        let began_then = began(ours).unwrap();
        assert!(began_then.parse::<u64>().unwrap() > 0);
        assert!(is_alive(ours, &began_then) && !is_alive(ours, "1"));
        let mut other = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = u64::from(other.id());
        let told = began(pid).unwrap();
        assert!(is_alive(pid, &told));
        other.kill().unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while is_alive(pid, &told) {
            assert!(Instant::now() < until, "it has not been waited for, but it is dead");
            std::thread::sleep(Duration::from_millis(1));
        }
        other.wait().unwrap();
        assert!(!is_alive(pid, &told));
    }

    #[test]
    fn what_is_said_is_heard_from_when_it_is_listened_to_until_the_end() {
        let (told, heard) = channel();
        let ear = Ear::open(move |frame: Option<&Frame>| told.send(frame.map(|frame| frame.kind)).unwrap()).unwrap();
        let (ours, theirs) = Channel::pair().unwrap();
        let theirs = Channel::of(theirs);
        theirs.send(Kind::Figures, b"{}", &[]).unwrap();
        let offer = Offer { sockets: Vec::new(), admin: None, told: Value::Null };
        let before = Predecessor { channel: ours, offer, takes_admin: false };
        before.ready().unwrap();
        ear.listen(before);
        assert_eq!(theirs.receive(Instant::now() + PATIENCE).unwrap().kind, Kind::Ready);
        theirs.send(Kind::Note, b"{}", &[]).unwrap();
        drop(theirs);
        let all: Vec<_> = std::iter::repeat_with(|| heard.recv_timeout(PATIENCE).unwrap()).take(3).collect();
        assert_eq!(all, [Some(Kind::Figures), Some(Kind::Note), None]);
        let (told, heard) = channel::<()>();
        drop(Ear::open(move |_| told.send(()).unwrap()).unwrap());
        assert!(heard.recv_timeout(PATIENCE).is_err(), "one that is not used ends its thread");
    }

    #[test]
    fn one_that_says_it_wants_no_successor_has_not_died() {
        for (said, is_said) in [(Some(Kind::Refused), true), (Some(Kind::State), false), (None, false)] {
            let (ours, theirs) = Channel::pair().unwrap();
            let theirs = Channel::of(theirs);
            if let Some(kind) = said {
                theirs.send(kind, b"{}", &[]).unwrap();
            }
            drop(theirs);
            assert_eq!(is_not_wanted(&ours), is_said, "{said:?}");
        }
        let (ours, mut theirs) = Channel::pair().unwrap();
        io::Write::write_all(&mut theirs, b"half of something that is none").unwrap();
        assert!(is_not_wanted(&ours));
    }
}
