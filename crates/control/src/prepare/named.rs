//! Endpoints whose host names have other addresses, made ready beside all else: nothing is read for that.

use config::Diagnostics;

use super::Preparation;
use crate::load::{self, Candidate, Next};
use crate::names::Move;
use crate::overrides::Desired;

/// Endpoints that get other addresses.
#[derive(Debug)]
pub struct Moves(Vec<Move>);

impl Moves {
    /// Logs them once they are active.
    pub fn tell(&self) {
        for Move { cluster, endpoint, from, to } in &self.0 {
            let pairs: telemetry::log::Pairs<'_> =
                &[("cluster", cluster), ("endpoint", endpoint), ("from", from), ("to", to)];
            telemetry::log::info("an endpoint has moved", pairs);
        }
    }
}

impl Preparation {
    /// Makes ready what follows from lookups of host names. `Ok(None)`: no endpoint moves.
    ///
    /// # Errors
    /// Endpoints cannot be there.
    pub fn prepare_names(&self) -> Result<Option<(Candidate, Moves)>, Diagnostics> {
        let answers = self.names.take();
        let Some((loaded, plan)) = &self.running else { return Ok(None) };
        let (moved, left) = self.desired.moved.after(&plan.snapshot, &answers);
        self.names.note_left(left);
        let Some((moved, moves)) = moved else { return Ok(None) };
        let desired = Desired { moved, ..self.desired.clone() };
        let generation = self.tried.as_ref().map_or(self.generation, |tried| tried.plan.generation + 1);
        let mut candidate = load::prepare_wishes(loaded, desired, Next { generation, ..self.next() })?;
        if let Some(tried) = &self.tried {
            let anew = tried.anew(&candidate, self.inspect);
            candidate.tried = Some(anew.map(Box::new).map_err(|why| why.to_string()));
        }
        Ok(Some((candidate, Moves(moves))))
    }
}
