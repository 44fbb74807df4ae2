//! Which stages the bodies of an exchange pass, and how that changes their framing.

use std::sync::Arc;

use model::ResponseHead;
use model::limits::REPLAY_BYTES_MAX;
use plan::RoutePlan;
use plan::filter::{
    BadBody, Coded, Coder, Extent, MakeStage, Part, ResponseSource, ResponseView, Stage, Turn, Turning,
};
use wire::grpc::call::WebForm;
use wire::http1::Framing;

use crate::body_steps::BodySteps;
use crate::exchange::Exchange;
use crate::grpc::web::{TextDecoder, WebEncoder};
use crate::relay::{Held, Parts, Stages};
use crate::replay::KeptBody;
use crate::stored::SliceReader;

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

fn extent_of(framing: Framing) -> Extent {
    match framing {
        Framing::None => Extent::Absent,
        Framing::Length(length) => Extent::Known(length),
        Framing::Chunked | Framing::UntilClose => Extent::Unknown,
    }
}

fn framing_of(extent: Extent) -> Framing {
    match extent {
        Extent::Absent => Framing::None,
        Extent::Known(length) => Framing::Length(length),
        Extent::Unknown => Framing::Chunked,
    }
}

impl Exchange<'_> {
    /// Begins with the filters of the request's body, once for all attempts.
    #[inline]
    pub(crate) fn begin_request_body(&mut self, route: &RoutePlan) {
        if route.chain.has_request_bodies() {
            self.begin_request_steps(route);
        }
    }

    #[cold]
    fn begin_request_steps(&mut self, route: &RoutePlan) {
        if matches!(self.request.framing, Framing::None | Framing::Length(0)) {
            return;
        }
        let extent = extent_of(self.request.framing);
        let (make, behind) = self.in_turn(|head, _, turn| route.chain.begin_request_body(head, extent, turn));
        if !make.is_empty() {
            self.incoming.body_steps = BodySteps { make, extent: Some(behind) };
        }
    }

    /// Has every attempt make this tap, which sees the body as the endpoint gets it.
    pub(crate) fn tap_request_body(&mut self, make: MakeStage) {
        let framing = self.request.framing;
        let steps = &mut self.incoming.body_steps;
        steps.make.push(make);
        steps.extent.get_or_insert(extent_of(framing));
    }

    /// How the endpoint learns of the end of the body: of what is decoded the length is not known ahead.
    pub(crate) fn framing_for_endpoint(&self) -> Framing {
        match self.incoming.body_steps.extent.map_or(self.request.framing, framing_of) {
            Framing::Length(1..) if self.sends_text() => Framing::Chunked,
            framing => framing,
        }
    }

    /// Whether endpoints get another body than the one that the client sends.
    pub(crate) fn changes_request_body(&self) -> bool {
        self.sends_text() || self.incoming.body_steps.extent.is_some()
    }

    /// The stages of the request's body on the way to an endpoint. What is sent once more in the endpoint's form passes none.
    #[inline]
    pub(crate) fn stages_of_request(&self) -> Option<Box<Stages>> {
        if !self.changes_request_body() {
            return None;
        }
        // A client that waits for no length may be one that streams.
        let flushes = !matches!(self.request.framing, Framing::Length(_));
        Stages::new(self.request_stages(), self.promised_to_endpoint(), flushes)
    }

    fn request_stages(&self) -> Vec<Stage> {
        let mut stages = Vec::new();
        if self.replay.again().is_some_and(|kept| kept.is_coded) {
            return stages;
        }
        stages.extend(self.incoming.body_steps.make.iter().map(|make| make()));
        if self.sends_text() {
            // A content coding is one of the text.
            stages.push(Stage::Coder(Box::<TextDecoder>::default()));
        }
        stages
    }

    /// The length that the endpoint reads in the head.
    fn promised_to_endpoint(&self) -> Extent {
        extent_of(self.framing_for_endpoint())
    }

    /// The stages of a request's body that is kept: it is given out piece by piece before them. `None`: it fits into one buffer.
    pub(crate) fn stages_of_kept(&self, kept: &KeptBody) -> Option<Box<Stages>> {
        if let Some(kept) = &kept.file {
            let held = Held::whole(kept.hold.clone(), kept.file.clone(), kept.length);
            return Stages::of_held(held, self.request_stages(), self.promised_to_endpoint());
        }
        if kept.bytes.len() <= REPLAY_BYTES_MAX {
            return None;
        }
        let mut stages = vec![Stage::Coder(Box::new(Made { body: kept.bytes.clone(), written: 0 }))];
        stages.extend(self.request_stages());
        Stages::new(stages, self.promised_to_endpoint(), false)
    }

    /// Begins the stages of a response that comes with this framing, and says how it is framed behind them. `web`: it is made one of
    /// gRPC-Web.
    #[inline]
    pub(crate) fn stages_of_response(
        &mut self,
        framing: Framing,
        web: Option<WebForm>,
    ) -> (Option<Box<Stages>>, Framing) {
        if web.is_none() && !self.progress.route.is_some_and(|route| route.chain.has_response_bodies()) {
            return (None, framing);
        }
        if framing == Framing::UntilClose {
            // Nothing tells a whole body from one that is cut short.
            self.incoming.notes.store_none();
        }
        let (mut stages, behind) = self.begin_response_body((framing, ResponseSource::Endpoint), web);
        let slices = stages.iter_mut().find_map(|stage| match stage {
            Stage::Slices(body) => body.rest.take(),
            _ => None,
        });
        let slices = slices.map(|slices| self.read_slices(slices, None));
        let flushes = matches!(framing, Framing::Chunked | Framing::UntilClose);
        let mut stages = Stages::new(stages, extent_of(behind), flushes);
        if let (Some(stages), Some(slices)) = (&mut stages, slices) {
            stages.follow_by(Parts::of_slices(slices));
        }
        (stages, behind)
    }

    /// The same for a body that is here, of which the first stage gives it out piece by piece. None: it passes no others, and fits into
    /// one buffer.
    #[inline]
    pub(crate) fn stages_of_answer(&mut self, framing: Framing, body: &[u8]) -> (Option<Box<Stages>>, Framing) {
        let (mut stages, behind) = self.stages_of_parts(framing);
        if stages.is_empty() && body.len() <= REPLAY_BYTES_MAX {
            return (None, behind);
        }
        stages.insert(0, Stage::Coder(Box::new(Made { body: body.into(), written: 0 })));
        (Stages::new(stages, extent_of(behind), false), behind)
    }

    /// The same for a body in parts, which are read while it is sent.
    pub(crate) fn stages_of_parts(&mut self, framing: Framing) -> (Vec<Stage>, Framing) {
        if self.progress.route.is_some_and(|route| route.chain.has_response_bodies()) {
            return self.begin_response_body((framing, ResponseSource::Local(None)), None);
        }
        (Vec::new(), framing)
    }

    /// Sends these parts through those stages, with this framing behind them.
    pub(crate) fn through_stages(parts: Vec<Part>, stages: Vec<Stage>, framing: Framing) -> Box<Stages> {
        Stages::of_parts(Parts::new(parts), stages, extent_of(framing))
    }

    /// The same for a stored body, which `source` gives out.
    pub(crate) fn stages_of_stored(&mut self, framing: Framing, source: Stage) -> (Option<Box<Stages>>, Framing) {
        let (mut stages, behind) = self.stages_behind_store(framing);
        if matches!(framing, Framing::None | Framing::Length(0)) {
            return (None, behind);
        }
        stages.insert(0, source);
        (Stages::new(stages, extent_of(behind), false), behind)
    }

    /// The same for a stored body that is read from a file.
    pub(crate) fn stages_of_stored_parts(&mut self, framing: Framing, part: Part) -> (Option<Box<Stages>>, Framing) {
        let (stages, behind) = self.stages_behind_store(framing);
        if matches!(framing, Framing::None | Framing::Length(0)) {
            return (None, behind);
        }
        (Some(Self::through_stages(vec![part], stages, behind)), behind)
    }

    /// The same for a stored body that is put together from slices.
    pub(crate) fn stages_of_slices(
        &mut self,
        framing: Framing,
        slices: Box<SliceReader>,
    ) -> (Option<Box<Stages>>, Framing) {
        let (stages, behind) = self.stages_behind_store(framing);
        if matches!(framing, Framing::None | Framing::Length(0)) {
            return (None, behind);
        }
        (Some(Stages::of_parts(Parts::of_slices(slices), stages, extent_of(behind))), behind)
    }

    fn stages_behind_store(&mut self, framing: Framing) -> (Vec<Stage>, Framing) {
        if self.progress.route.is_some_and(|route| route.chain.has_response_bodies()) {
            return self.begin_response_body((framing, ResponseSource::Endpoint), None);
        }
        (Vec::new(), framing)
    }

    /// What holds a tunnel to its rates: the bytes to the endpoint, and those to the client.
    #[inline]
    pub(crate) fn stages_of_tunnel(&mut self) -> [Option<Box<Stages>>; 2] {
        let Some(route) = self.progress.route else { return [None, None] };
        if !route.chain.has_request_bodies() && !route.chain.has_response_bodies() {
            return [None, None];
        }
        let paced = |head: &mut ResponseHead, view: &ResponseView<'_>, turn: &mut Turn<'_>| {
            route.chain.pace_tunnel(head, view, turn)
        };
        let (up, down) = self.with_response(ResponseSource::Endpoint, paced).unwrap_or_default();
        // Whatever is sent is wanted at once.
        [up, down].map(|stages| Stages::new(stages, Extent::Unknown, true))
    }

    #[cold]
    fn begin_response_body(
        &mut self,
        (framing, source): (Framing, ResponseSource),
        web: Option<WebForm>,
    ) -> (Vec<Stage>, Framing) {
        let (mut stages, mut extent) = (Vec::new(), extent_of(framing));
        if let Some(form) = web.filter(|_| !matches!(extent, Extent::Absent | Extent::Known(0))) {
            stages.push(Stage::Coder(Box::new(WebEncoder::new(form))));
            extent = Extent::Unknown;
        }
        let Some(route) = self.progress.route else { return (stages, framing) };
        let is_slice = self.connection.io.is_piped();
        let behind = self.with_response(source, |head, view, turn| {
            let (more, behind) = match is_slice {
                true => route.chain.begin_slice(head, view, extent, turn),
                false => route.chain.begin_response_body(head, view, extent, turn),
            };
            stages.extend(more);
            behind
        });
        let behind = behind.unwrap_or(extent);
        let framing = if stages.is_empty() { framing } else { framing_of(behind) };
        (stages, framing)
    }
}
