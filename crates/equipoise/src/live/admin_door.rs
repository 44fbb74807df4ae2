//! The admin listener: where it is bound, moved and closed.
//!
//! ```text
//!  bind ──▶ set_closed ─▶ commit ──▶ leave ──▶ open     another address, or none before
//!                           └──────▶ permit             the same address
//! ```

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use admin::{Admin, Bound};
use control::{OrderSender, View};
use model::{Address, snapshot};

/// How long an admin listener that has moved is kept for answers that are on their way.
const LEAVE_AFTER: Duration = Duration::from_secs(1);

/// The admin listener and those before it.
pub(super) struct AdminDoor {
    admin: Option<Admin>,
    /// Listeners that have moved, and since when: pending answers still go out.
    leaving: Vec<(Instant, Admin)>,
    /// The socket of the admin listener of the process before, and its address there.
    offered: Option<(Address, OwnedFd)>,
}

impl AdminDoor {
    /// Creates a door without a listener, which may take over a socket of the previous process.
    pub(super) fn new(offered: Option<(Address, OwnedFd)>) -> Self {
        Self { admin: None, leaving: Vec::new(), offered }
    }

    /// Returns whether the listener is where it is wanted.
    pub(super) fn stays(&self, wanted: Option<&snapshot::Admin>) -> bool {
        match (&self.admin, wanted) {
            (Some(admin), Some(wanted)) => *admin.configured() == wanted.bind,
            _ => false,
        }
    }

    /// Closes listeners that have moved: one of them may hold the very address that is wanted again.
    pub(super) fn close_moved(&mut self) {
        self.leaving.clear();
    }

    /// Returns the socket of the process before, if it is bound there.
    pub(super) fn take_offered(&mut self, bind: &Address) -> Option<OwnedFd> {
        self.offered.take_if(|(offered, _)| offered == bind).map(|(_, socket)| socket)
    }

    /// Drops the socket of the process before.
    pub(super) fn drop_offered(&mut self) {
        self.offered = None;
    }

    /// Binds a listener. What is in the way may be the one before, here or in the process before: that is replaced.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn bind(&self, wanted: &snapshot::Admin) -> io::Result<Bound> {
        let error = match Bound::bind(&wanted.bind, wanted.mode) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => error,
            done => return done,
        };
        let ours = self.admin.as_ref().map(Admin::duplicate).transpose()?;
        let before = ours.as_ref().or(self.offered.as_ref().map(|(_, socket)| socket));
        let (Some(before), Some(address)) = (before, wanted.bind.ip()) else { return Err(error) };
        match proxy::in_place_of(before.as_fd(), address)? {
            Some(socket) => Bound::adopt(&wanted.bind, socket),
            None => Err(error),
        }
    }

    /// Admits callers, or rejects them: the rules of a listener that moves must not be applied to its old address.
    pub(super) fn set_closed(&self, is_closed: bool) {
        self.admin.iter().for_each(|admin| admin.close(is_closed));
    }

    /// Lets go of the listener: its pending answers still go out.
    pub(super) fn leave(&mut self) {
        let now = Instant::now();
        self.leaving.extend(self.admin.take().map(|admin| (now, admin)));
    }

    /// Starts a listener.
    pub(super) fn open(&mut self, bound: Bound, view: &View, orders: &OrderSender) {
        // The configuration is active; without its admin listener the program still carries traffic.
        match Admin::start(bound, view.clone(), orders.clone()) {
            Ok(admin) => self.admin = Some(admin),
            Err(error) => telemetry::log::error("the admin listener cannot start", &[("error", &error)]),
        }
    }

    /// Gives a Unix socket the permissions that are wanted now.
    pub(super) fn permit(&self, mode: u32) {
        if let Some(Err(error)) = self.admin.as_ref().map(|admin| admin.permit(mode)) {
            telemetry::log::error("the permissions of the admin socket could not be changed", &[("error", &error)]);
        }
    }

    /// Takes over the file of a Unix socket from the process before, with these permissions.
    pub(super) fn take_file(&mut self, mode: u32) {
        if let Some(admin) = &mut self.admin {
            admin.take_file();
        }
        self.permit(mode);
    }

    /// Leaves the file of a Unix socket to the process that has taken over.
    pub(super) fn part(&mut self) {
        self.admin.iter_mut().for_each(Admin::part);
    }

    /// Returns the configured address and a duplicate of the socket, for the process that follows.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn offer(&self) -> io::Result<Option<(String, OwnedFd)>> {
        self.admin.as_ref().map(|admin| Ok((admin.configured().to_string(), admin.duplicate()?))).transpose()
    }

    /// Returns the address that was really bound.
    pub(super) fn address(&self) -> Option<&Address> {
        self.admin.as_ref().map(Admin::address)
    }

    /// Closes listeners that have moved a while ago. To be called about once a second.
    pub(super) fn look_after(&mut self) {
        self.leaving.retain(|(since, _)| since.elapsed() < LEAVE_AFTER);
    }
}

/// Logs what an admin listener that asks for no credentials means.
pub(super) fn tell_rules(admin: &model::snapshot::Admin) {
    let so = if !admin.changes_allowed {
        "everyone who reaches its address may read, so the API accepts no changes"
    } else if admin.asks_for_credentials() {
        return;
    } else if admin.bind.ip().is_some() {
        "every user of this machine may change the configuration; tokens or a Unix socket prevent that"
    } else if !admin.is_for_some_only() {
        "its `mode` lets every user of this machine change the configuration; tokens or another `mode` prevent that"
    } else if admin.mode & 0o020 != 0 {
        let so = "its group may change the configuration, and make the program send files that it can read";
        return telemetry::log::info("the admin listener requires no credentials", &[("so", &so)]);
    } else {
        return;
    };
    telemetry::log::warn("the admin listener requires no credentials", &[("so", &so)]);
}
