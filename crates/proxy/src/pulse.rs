//! Whether the workers are alive.

use std::sync::mpsc::{Receiver, TryRecvError, channel};

use tokio::sync::mpsc::UnboundedSender;

use crate::reconcile::Workers;
use crate::worker::command::Command;

impl Workers {
    /// Asks all workers whether they are alive.
    pub fn pulse(&self) -> Pulse {
        let (sender, answers) = channel();
        let ask = |worker: &UnboundedSender<Command>| worker.send(Command::Pulse { _answer: sender.clone() }).is_ok();
        // All are asked, though one may be gone.
        let asked = self.shared.commands.iter().filter(|worker| ask(worker)).count();
        Pulse { answers, is_lost: asked < self.shared.commands.len() }
    }
}

/// Answers to [`Workers::pulse`].
#[derive(Debug)]
pub struct Pulse {
    /// Ends when all that were asked have answered.
    answers: Receiver<()>,
    is_lost: bool,
}

impl Pulse {
    /// Returns whether all workers have answered.
    pub fn is_answered(&self) -> bool {
        !self.is_lost && self.answers.try_recv() == Err(TryRecvError::Disconnected)
    }

    /// Returns whether a worker has ended, so that they never will.
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use telemetry::Telemetry;

    use super::*;
    use crate::handover::Inheritance;
    use crate::reconcile::Options;

    /// Far longer than a worker takes to answer.
    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn the_pulse_of_workers_of_which_one_has_ended_is_not_felt() {
        let options = Options { workers: 2, telemetry: Telemetry::new(2), inheritance: Inheritance::default() };
        let workers = Workers::start(options).unwrap();
        let wait = |holds: &dyn Fn() -> bool| {
            let until = Instant::now() + LONG;
            while !holds() {
                assert!(Instant::now() < until);
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let pulse = workers.pulse();
        wait(&|| pulse.is_answered());
        assert!(!pulse.is_lost());
        let ended = &workers.shared.commands[1];
        assert!(ended.send(Command::Stop).is_ok());
        wait(&|| ended.is_closed());
        let pulse = workers.pulse();
        wait(&|| pulse.answers.try_recv() == Err(TryRecvError::Disconnected));
        assert!(pulse.is_lost() && !pulse.is_answered(), "the others have answered");
    }
}
