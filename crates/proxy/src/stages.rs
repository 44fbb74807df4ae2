//! Which stages the bodies of an exchange pass, and how that changes their framing.

use std::sync::Arc;

use model::limits::REPLAY_BYTES_MAX;
use plan::filter::{BadBody, Coded, Coder, Extent, ResponseSource, Stage, Turning};
use wire::grpc::call::WebForm;
use wire::http1::Framing;

use crate::exchange::Exchange;
use crate::grpc::web::{TextDecoder, WebEncoder};
use crate::relay::Stages;
use crate::retry::KeptBody;

/// A body that is here whole, as the source of stages: it comes out as they take it.
struct Made {
    body: Arc<[u8]>,
    written: usize,
}

impl Coder for Made {
    fn code(&mut self, _: &[u8], room: &mut [u8], _: Turning) -> Result<Coded, BadBody> {
        let rest = &self.body[self.written..];
        let written = rest.len().min(room.len());
        room[..written].copy_from_slice(&rest[..written]);
        self.written += written;
        Ok(Coded { read: 0, written, is_done: written == rest.len() })
    }
}

impl Exchange<'_> {
    /// The stages of the request's body on the way to an endpoint. What is sent once more in the endpoint's form passes none.
    pub(crate) fn stages_of_request(&self) -> Option<Box<Stages>> {
        Stages::new(self.request_stages(), true)
    }

    fn request_stages(&self) -> Vec<Stage> {
        let is_coded = self.sends_text() && !self.replay.again().is_some_and(|kept| kept.is_coded);
        if is_coded { vec![Stage::Coder(Box::<TextDecoder>::default())] } else { Vec::new() }
    }

    /// The stages of a request's body that is in memory, of which the first gives it out piece by piece. `None`: it fits into one buffer.
    pub(crate) fn stages_of_kept(&self, kept: &KeptBody) -> Option<Box<Stages>> {
        if kept.bytes.len() <= REPLAY_BYTES_MAX {
            return None;
        }
        let mut stages = vec![Stage::Coder(Box::new(Made { body: kept.bytes.clone(), written: 0 }))];
        stages.extend(self.request_stages());
        Stages::new(stages, false)
    }

    /// Begins the stages of a response that comes with this framing, and says how it is framed behind them. `web`: it is made one of
    /// gRPC-Web.
    #[inline]
    pub(crate) fn stages_of_response(
        &mut self,
        framing: Framing,
        web: Option<WebForm>,
    ) -> (Option<Box<Stages>>, Framing) {
        if web.is_none() && !self.told.route.is_some_and(|route| route.chain.has_response_bodies()) {
            return (None, framing);
        }
        let (stages, behind) = self.begin_response_body((framing, ResponseSource::Endpoint), web);
        (Stages::new(stages, matches!(framing, Framing::Chunked | Framing::UntilClose)), behind)
    }

    /// The same for a body that is here. `None`: it passes no stages.
    #[inline]
    pub(crate) fn stages_of_answer(&mut self, framing: Framing, body: &[u8]) -> Option<(Box<Stages>, Framing)> {
        if !self.told.route.is_some_and(|route| route.chain.has_response_bodies()) {
            return None;
        }
        let (mut stages, behind) = self.begin_response_body((framing, ResponseSource::Local(None)), None);
        if stages.is_empty() {
            return None;
        }
        stages.insert(0, Stage::Coder(Box::new(Made { body: body.into(), written: 0 })));
        Some((Stages::new(stages, false)?, behind))
    }

    #[cold]
    fn begin_response_body(
        &mut self,
        (framing, source): (Framing, ResponseSource),
        web: Option<WebForm>,
    ) -> (Vec<Stage>, Framing) {
        let extent = match framing {
            Framing::None => Extent::Absent,
            Framing::Length(length) => Extent::Known(length),
            Framing::Chunked | Framing::UntilClose => Extent::Unknown,
        };
        let (mut stages, mut extent) = (Vec::new(), extent);
        if let Some(form) = web.filter(|_| !matches!(extent, Extent::Absent | Extent::Known(0))) {
            stages.push(Stage::Coder(Box::new(WebEncoder::new(form))));
            extent = Extent::Unknown;
        }
        let Some(route) = self.told.route else { return (stages, framing) };
        let behind = self.with_response(source, |head, view, turn| {
            let (more, behind) = route.chain.begin_response_body(head, view, extent, turn);
            stages.extend(more);
            behind
        });
        let behind = behind.unwrap_or(extent);
        let framing = match behind {
            _ if stages.is_empty() => framing,
            Extent::Absent => Framing::None,
            Extent::Known(length) => Framing::Length(length),
            Extent::Unknown => Framing::Chunked,
        };
        (stages, framing)
    }
}
