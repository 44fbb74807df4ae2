//! Keys for tokens, as the owner of the configuration has to do with them.

use super::Reconciler;

impl Reconciler {
    /// Fetches the keys that the filters of the active configuration need, and those of a canary.
    pub(super) fn follow_token_keys(&mut self) {
        let running = self.running.iter().map(|running| &*running.plan);
        let plans = running.chain(self.trial.iter().map(|trial| &*trial.candidate.plan));
        if let Err(error) = self.token_keys.follow(plans) {
            telemetry::log::error("keys for tokens cannot be fetched", &[("error", &error)]);
        }
    }
}
