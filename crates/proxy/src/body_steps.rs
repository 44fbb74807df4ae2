//! What filters make of the body of a request, kept from its head to its last attempt.

use plan::filter::{Extent, MakeStage};

/// What filters do with the body of a request on its way to endpoints.
#[derive(Default)]
pub(crate) struct BodySteps {
    /// Make the stages, once for each attempt.
    pub make: Vec<MakeStage>,
    /// How long the body is behind them; `None`: it passes none.
    pub extent: Option<Extent>,
}

impl BodySteps {
    /// Forgets the request.
    pub(crate) fn clear(&mut self) {
        if self.extent.is_some() {
            *self = Self::default();
        }
    }
}
