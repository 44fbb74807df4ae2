//! The new program's side: the old process, as far as this one has to do with it.

use std::collections::VecDeque;
use std::fmt::Display;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use proxy::handover::{Inherited, Place};
use serde_json::{Value, json};

use super::VARIABLE;
use super::channel::{Channel, Frame, Kind};
use super::manifest;

/// Longest wait for the old process, which has nothing else to do meanwhile.
const PATIENCE: Duration = Duration::from_secs(30);

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
        let wrong = |error: &dyn Display| io::Error::other(format!("the process before, by {VARIABLE}: {error}"));
        let number = number.to_str().and_then(|text| text.parse().ok()).unwrap_or(-1);
        let channel = Channel::inherited(number).map_err(|error| wrong(&error))?;
        channel.set_patience(PATIENCE).map_err(|error| wrong(&error))?;
        let offer = expect(&channel, Kind::Offer).and_then(Offer::read).map_err(|error| wrong(&error))?;
        Ok(Some(Self { channel, offer, takes_admin: false }))
    }

    /// Says that all is ready to take over these sockets, and gets what the old process has come to know.
    ///
    /// # Errors
    /// It does not answer.
    pub(crate) fn prepared(&self, taken: &[Place]) -> io::Result<Value> {
        let body = json!({ "taken": manifest::write_taken(taken), "admin": self.takes_admin }).to_string();
        self.channel.send(Kind::Prepared, body.as_bytes(), &[])?;
        let estate = expect(&self.channel, Kind::Estate)?;
        serde_json::from_slice(&estate.body).map_err(io::Error::other)
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

    /// What the old process still says while it drains; nothing when it is gone.
    ///
    /// # Errors
    /// A thread or a descriptor cannot be had.
    pub(crate) fn listen(self, hear: impl Fn(Option<&Frame>) + Send + 'static) -> io::Result<()> {
        std::thread::Builder::new().name("predecessor".into()).spawn(move || {
            loop {
                match self.channel.receive(Instant::now() + Duration::from_secs(3600)) {
                    Ok(frame) => hear(Some(&frame)),
                    Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
                    Err(_) => return hear(None),
                }
            }
        })?;
        Ok(())
    }
}

fn expect(channel: &Channel, wanted: Kind) -> io::Result<Frame> {
    let until = Instant::now() + PATIENCE;
    loop {
        let frame = channel.receive(until)?;
        if frame.kind == wanted {
            return Ok(frame);
        }
        if frame.kind != Kind::Note {
            return Err(io::Error::other(format!("it said {:?} instead of {wanted:?}", frame.kind)));
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
