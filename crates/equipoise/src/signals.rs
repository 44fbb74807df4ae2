//! Signals, as values.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// SIGHUP: read the configuration again, certificates and host names included.
    Reload,
    /// SIGUSR1: open the access logs again.
    ReopenLogs,
    /// SIGUSR2: start the program again and let it take over.
    Upgrade,
    /// SIGTERM or SIGINT: end, in good order the first time, at once the second.
    End,
}

/// The signals this program listens to. Making one takes them over from their defaults.
pub(crate) struct Signals {
    hangup: Signal,
    user: Signal,
    other_user: Signal,
    terminate: Signal,
    interrupt: Signal,
    hangup_ends: bool,
}

impl Signals {
    /// Takes the signals over. To be called within a runtime, before anything else is started.
    ///
    /// # Errors
    /// What the system says against it.
    pub(crate) fn take() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            user: signal(SignalKind::user_defined1())?,
            other_user: signal(SignalKind::user_defined2())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup_ends: false,
        })
    }

    /// Takes SIGHUP for what it first meant: the terminal is gone. For a program that has nothing to read again.
    pub(crate) fn end_on_hangup(&mut self) {
        self.hangup_ends = true;
    }

    /// Waits for the next one. Dropping the future loses none.
    pub(crate) async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.hangup.recv() => if self.hangup_ends { Wish::End } else { Wish::Reload },
            _ = self.user.recv() => Wish::ReopenLogs,
            _ = self.other_user.recv() => Wish::Upgrade,
            _ = self.terminate.recv() => Wish::End,
            _ = self.interrupt.recv() => Wish::End,
        }
    }

    /// Waits for a signal to end; the others are left for [`Self::next`].
    pub(crate) async fn ended(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.hangup.recv(), if self.hangup_ends => {}
        }
    }
}
