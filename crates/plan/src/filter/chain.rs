//! The filters of one route.

use std::fmt;
use std::sync::Arc;

use model::filter::FilterUse;
use model::{Issue, RequestHead, ResponseHead};

use super::compiling::{Called, Holdings, Kept};
use super::events::Counted;
use super::{
    Answers, Compiling, Extent, Flow, Found, Guarded, GuardedResponse, MakeStage, Rank, RequestBodyStep, RequestStep,
    ResponseBodyStep, ResponseStep, ResponseView, Stage, Turn, compile_one,
};
use crate::cache::CacheStore;
use crate::expression::Tables;
use crate::jose::KeySource;
use crate::limit::{LimitName, LimitState};
use crate::map::{MapPlan, Maps};
use crate::table::Table;

/// The filters of one route, compiled: only the steps that exist.
#[derive(Default)]
pub struct Chain {
    request: Box<[Box<dyn RequestStep>]>,
    response: Box<[Box<dyn ResponseStep>]>,
    /// Places in `response` of those that answer.
    answering: Box<[usize]>,
    answers: Answers,
    guarded: Box<[Guarded]>,
    guarded_response: Box<[GuardedResponse]>,
    /// By rank.
    request_bodies: Box<[Box<dyn RequestBodyStep>]>,
    /// By rank.
    response_bodies: Box<[Box<dyn ResponseBodyStep>]>,
    holdings: Holdings,
}

impl Chain {
    /// Compiles the filters of a route that had those of `before`, if it was there: what they keep is taken over. Their expressions may use
    /// no maps.
    ///
    /// # Errors
    /// As [`Self::compile_with`].
    pub fn compile(uses: &[FilterUse], before: Option<&Self>) -> Result<Self, Vec<Issue>> {
        Self::compile_with(uses, before, (&[], Maps::Known(&[])))
    }

    /// Compiles them where their expressions may use these maps.
    ///
    /// # Errors
    /// Every filter that does not compile. Paths begin with its place in the list and its name: `0/cors/max_age`.
    pub(crate) fn compile_with(
        uses: &[FilterUse],
        before: Option<&Self>,
        beside: (&[Arc<Table>], Maps<'_>),
    ) -> Result<Self, Vec<Issue>> {
        Self::compile_among(uses, before, beside, (&[], 0))
    }

    /// The same where they may use these caches, too. `identity`: a hash of what the route is, the same in every process.
    ///
    /// # Errors
    /// As [`Self::compile_with`].
    pub(crate) fn compile_among(
        uses: &[FilterUse],
        before: Option<&Self>,
        (tables, maps): (&[Arc<Table>], Maps<'_>),
        (caches, identity): (&[Arc<CacheStore>], u64),
    ) -> Result<Self, Vec<Issue>> {
        let (mut request, mut issues) = (Vec::new(), Vec::new());
        let mut response: Vec<Box<dyn ResponseStep>> = Vec::new();
        let mut request_bodies: Vec<Box<dyn RequestBodyStep>> = Vec::new();
        let mut response_bodies: Vec<Box<dyn ResponseBodyStep>> = Vec::new();
        let (mut guarded, mut guarded_response) = (Vec::new(), Vec::new());
        let before = before.map_or(&[][..], |chain| &chain.holdings.kept);
        let mut compiling = Compiling::after(before).among(uses).beside(tables).with_maps(maps).with_caches(caches);
        compiling = compiling.of_route(identity);
        for (place, used) in uses.iter().enumerate() {
            match compile_one((place, used), &mut compiling) {
                Ok(steps) => {
                    request.extend(steps.request);
                    response.extend(steps.response);
                    request_bodies.extend(steps.request_body);
                    response_bodies.extend(steps.response_body);
                    guarded.extend(steps.guarded);
                    guarded_response.extend(Some(steps.guarded_response).filter(|guarded| !guarded.fields.is_empty()));
                }
                Err(issue) => issues.push(issue.below(&place.to_string())),
            }
        }
        if !issues.is_empty() {
            return Err(issues);
        }
        let holdings = compiling.finish();
        let answers = response.iter().map(|step| step.answers()).max().unwrap_or_default();
        let answering = response.iter().enumerate().filter(|(_, step)| step.answers() != Answers::None);
        let answering = answering.map(|(place, _)| place).collect();
        request_bodies.sort_by_key(|step| step.rank());
        response_bodies.sort_by_key(|step| step.rank());
        Ok(Self {
            request: request.into(),
            response: response.into(),
            answering,
            answers,
            guarded: guarded.into(),
            guarded_response: guarded_response.into(),
            request_bodies: request_bodies.into(),
            response_bodies: response_bodies.into(),
            holdings,
        })
    }

    /// Whether a filter keeps state for the chain that takes its place.
    pub(crate) fn keeps_state(&self) -> bool {
        !self.holdings.kept.is_empty()
    }

    /// The clusters that its filters call, in the order of [`CalledCluster::place`].
    pub(crate) fn called(&self) -> &[Called] {
        &self.holdings.called
    }

    /// The maps that its expressions use.
    pub(crate) fn maps(&self) -> &[Arc<MapPlan>] {
        &self.holdings.maps
    }

    /// What its filters have counted. A filter that stands several times in the list has as many of an event.
    pub fn counted(&self) -> &[Counted] {
        &self.holdings.counted
    }

    /// The sources of keys that its filters verify tokens with.
    pub fn key_sources(&self) -> impl Iterator<Item = Arc<KeySource>> {
        self.holdings.kept.iter().filter_map(Kept::state)
    }

    /// The state of its limits, of this route.
    pub(crate) fn limits(&self, of: &str) -> impl Iterator<Item = (LimitName, LimitState)> {
        self.holdings.kept.iter().filter_map(move |kept| kept.limit(of))
    }

    /// For compiling its filters once more, with the very state that they keep.
    pub(crate) fn compiling_again(&self) -> Compiling<'_> {
        Compiling::after(&self.holdings.kept)
            .beside(&self.holdings.tables)
            .with_maps(Maps::Known(&self.holdings.maps))
            .with_caches(&self.holdings.caches)
    }

    /// Whether the tables that its filters use are the very same as those of their names in a list.
    pub(crate) fn has_tables(&self, tables: &[Arc<Table>]) -> bool {
        Tables::Known(tables).have(&self.holdings.tables)
    }

    /// Whether the caches that its filters use are the very same as those of their names in a list.
    pub(crate) fn has_caches(&self, caches: &[Arc<CacheStore>]) -> bool {
        self.holdings.caches.iter().all(|used| caches.iter().any(|known| Arc::ptr_eq(known, used)))
    }

    /// Runs the request steps until one answers, closes or needs something.
    #[inline]
    pub fn on_request(&self, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        self.on_request_from(&mut 0, head, turn)
    }

    /// The same from the step at `place` on, which is then that of the step that ended it.
    #[inline]
    pub fn on_request_from(&self, place: &mut usize, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        while let Some(step) = self.request.get(*place) {
            match step.apply(head, turn) {
                Flow::Continue => *place += 1,
                end => return end,
            }
        }
        Flow::Continue
    }

    /// Goes on with the step at `place`, which had a need, and then with those after it.
    pub fn resume(&self, place: &mut usize, found: Found<'_>, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        match self.request.get(*place).map(|step| step.resume(head, found, turn)) {
            None | Some(Flow::Continue) => {
                *place += 1;
                self.on_request_from(place, head, turn)
            }
            Some(end) => end,
        }
    }

    /// Runs the response steps; see the [module](self) on which responses pass here.
    #[inline]
    pub fn on_response(&self, head: &mut ResponseHead, view: &ResponseView<'_>, turn: &mut Turn<'_>) {
        for step in &self.response {
            step.apply(head, view, turn);
        }
    }

    /// Begins with the body of a request whose head the request steps are done with. Says how long the body is behind the stages that
    /// each attempt makes.
    #[cold]
    pub fn begin_request_body(
        &self,
        head: &mut RequestHead,
        extent: Extent,
        turn: &mut Turn<'_>,
    ) -> (Vec<MakeStage>, Extent) {
        let (mut stages, mut extent) = (Vec::new(), extent);
        for step in &self.request_bodies {
            if let Some((make, behind)) = step.begin(head, extent, turn) {
                stages.push(make);
                extent = behind;
            }
        }
        (stages, extent)
    }

    /// Whether there is a step for the bodies of requests.
    #[inline]
    pub fn has_request_bodies(&self) -> bool {
        !self.request_bodies.is_empty()
    }

    /// Begins with the body of a response whose head the response steps are done with. Says how long the body is behind the stages.
    #[cold]
    pub fn begin_response_body(
        &self,
        head: &mut ResponseHead,
        view: &ResponseView<'_>,
        extent: Extent,
        turn: &mut Turn<'_>,
    ) -> (Vec<Stage>, Extent) {
        let (mut stages, mut extent) = (Vec::new(), extent);
        for step in &self.response_bodies {
            if let Some((stage, behind)) = step.begin(head, view, extent, turn) {
                stages.push(stage);
                extent = behind;
            }
        }
        (stages, extent)
    }

    /// The same for a slice of a body, which only a cache sees: all others see the slices put together.
    #[cold]
    pub fn begin_slice(
        &self,
        head: &mut ResponseHead,
        view: &ResponseView<'_>,
        extent: Extent,
        turn: &mut Turn<'_>,
    ) -> (Vec<Stage>, Extent) {
        let received = self.response_bodies.iter().filter(|step| step.rank() == Rank::Received);
        (received.filter_map(|step| step.begin(head, view, extent, turn)).map(|(stage, _)| stage).collect(), extent)
    }

    /// Returns the place of the request step that has this note and has requests be sent beside the exchange.
    #[cold]
    pub fn place_of_cache(&self, number: usize) -> Option<usize> {
        self.request.iter().position(|step| step.fetches_by() == Some(number))
    }

    /// Begins with a tunnel: what holds the bytes to the endpoint to their rates, and those to the client.
    #[cold]
    pub fn pace_tunnel(
        &self,
        head: &ResponseHead,
        view: &ResponseView<'_>,
        turn: &mut Turn<'_>,
    ) -> (Vec<Stage>, Vec<Stage>) {
        let up = self.request_bodies.iter().filter_map(|step| step.pace_tunnel(view.request, turn));
        let up = up.map(Stage::Pace).collect();
        let down = self.response_bodies.iter().filter_map(|step| step.pace_tunnel(head, view, turn));
        (up, down.map(Stage::Pace).collect())
    }

    /// Whether there is a step for the bodies of responses.
    #[inline]
    pub fn has_response_bodies(&self) -> bool {
        !self.response_bodies.is_empty()
    }

    /// Asks the steps that answer in the place of responses, as their clients like it, until one does or needs something.
    /// `place` is 0, and then that of the step that ended it.
    #[cold]
    pub fn answer(
        &self,
        place: &mut usize,
        (head, view): (&ResponseHead, &ResponseView<'_>),
        turn: &mut Turn<'_>,
    ) -> Flow {
        let steps = self.answering_by_liking(view.request);
        while let Some(step) = steps.get(*place) {
            match step.answer(head, view, turn) {
                Flow::Continue => *place += 1,
                end => return end,
            }
        }
        Flow::Continue
    }

    fn answering_by_liking(&self, request: &RequestHead) -> Vec<&dyn ResponseStep> {
        let mut steps: Vec<&dyn ResponseStep> = self.answering.iter().map(|place| &*self.response[*place]).collect();
        if steps.len() > 1 {
            steps.sort_by_cached_key(|step| std::cmp::Reverse(step.liking(request)));
        }
        steps
    }

    /// Goes on with the step at `place` of those that answer, which had a need, and then with those after it.
    pub fn resume_answer(
        &self,
        place: &mut usize,
        found: Found<'_>,
        (head, view): (&ResponseHead, &ResponseView<'_>),
        turn: &mut Turn<'_>,
    ) -> Flow {
        let steps = self.answering_by_liking(view.request);
        match steps.get(*place).map(|step| step.resume(head, found, view, turn)) {
            None | Some(Flow::Continue) => {
                *place += 1;
                self.answer(place, (head, view), turn)
            }
            Some(end) => end,
        }
    }

    /// In the place of which responses its steps may answer.
    #[inline]
    pub fn answers(&self) -> Answers {
        self.answers
    }

    /// Fields of requests that its steps set or remove, whatever the client says.
    #[inline]
    pub fn guarded(&self) -> &[Guarded] {
        &self.guarded
    }

    /// Fields of responses that its steps set or remove, for each filter that does.
    #[inline]
    pub fn guarded_response(&self) -> &[GuardedResponse] {
        &self.guarded_response
    }

    /// Whether there is a step for requests.
    #[inline]
    pub fn has_request_steps(&self) -> bool {
        !self.request.is_empty()
    }

    /// Whether there is no step at all.
    pub fn is_empty(&self) -> bool {
        let has_bodies = self.has_request_bodies() || self.has_response_bodies();
        self.request.is_empty() && self.response.is_empty() && !has_bodies
    }

    /// Whether there is a step for responses, for which the request head must be kept.
    pub fn has_response_steps(&self) -> bool {
        !self.response.is_empty() || !self.response_bodies.is_empty()
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (request, response) = (self.request.len(), self.response.len());
        f.debug_struct("Chain").field("request", &request).field("response", &response).finish()
    }
}
