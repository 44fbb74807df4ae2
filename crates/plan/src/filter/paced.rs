//! A step that holds bodies of responses to a rate.

use model::{RequestHead, ResponseHead};

use super::{Extent, Pace, Rank, ResponseBodyStep, ResponseView, Stage, Turn};

/// Asks the function which pace the response to a request has; `None`: it is as fast as it can be. It is asked for bodies and for tunnels.
pub(super) struct Paced<F>(pub(super) F);

impl<F> ResponseBodyStep for Paced<F>
where
    F: Fn(&RequestHead, &mut Turn<'_>) -> Option<Box<dyn Pace>> + Send + Sync,
{
    fn rank(&self) -> Rank {
        Rank::Account
    }

    fn begin(
        &self,
        _: &mut ResponseHead,
        view: &ResponseView<'_>,
        extent: Extent,
        turn: &mut Turn<'_>,
    ) -> Option<(Stage, Extent)> {
        if matches!(extent, Extent::Absent | Extent::Known(0)) {
            return None;
        }
        let pace = (self.0)(view.request, turn)?;
        Some((Stage::Pace(pace), extent))
    }

    fn pace_tunnel(&self, _: &ResponseHead, view: &ResponseView<'_>, turn: &mut Turn<'_>) -> Option<Box<dyn Pace>> {
        (self.0)(view.request, turn)
    }
}
