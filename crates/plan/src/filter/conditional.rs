//! Steps of a filter that has a `when`: they do nothing where that does not hold.

use std::sync::Arc;

use model::matching::When;
use model::{Issue, RequestHead, ResponseHead};

use super::{
    Answers, Compiling, Extent, Flow, Found, GuardedResponse, MakeStage, Pace, Rank, RequestBodyStep, RequestStep,
    ResponseBodyStep, ResponseStep, ResponseView, Stage, Steps, Turn, ask_body,
};
use crate::expression::Scope;
use crate::route::when::{Asked, WhenPlan};

/// Something done where a condition holds.
struct Conditional<S> {
    when: Arc<WhenPlan>,
    step: S,
}

/// Asks the condition of something done to the response, or to a body, when it is its turn among what is done to the request: what comes after it
/// may change the path, or take a field away.
struct Judge(Arc<WhenPlan>);

/// What conditions are asked of.
fn asked<'h, 'a: 'h>(head: &'h RequestHead, turn: &Turn<'a>) -> Asked<'h> {
    Asked { head, facts: turn.facts, now: Some(turn.now) }
}

/// The same steps, under a condition. Verdicts that are kept for the response are notes. `reads_body`: expressions of the steps read the body
/// of the request.
///
/// # Errors
/// What is wrong with the condition, with its path below `when`.
pub(super) fn steps(
    when: &When,
    (steps, reads_body): (Steps, bool),
    compiling: &mut Compiling<'_>,
) -> Result<Steps, Issue> {
    let acts_on_requests = steps.request.is_some() || steps.request_body.is_some();
    let scope = if acts_on_requests { Scope::Request } else { Scope::Response };
    let mut when = WhenPlan::compile(when, scope, compiling)?;
    if acts_on_requests && let Some(path) = when.asks_status() {
        let issue = Issue::at(path, "there is no status yet when this filter acts on the request");
        return Err(issue.suggest("use it for filters that act on responses alone, such as set_response_header"));
    }
    let is_asked_later = steps.response.is_some() || steps.request_body.is_some() || steps.response_body.is_some();
    if is_asked_later {
        when.number(compiling);
    }
    let when = Arc::new(when);
    let conditional = |step| Box::new(Conditional { when: Arc::clone(&when), step }) as Box<dyn RequestStep>;
    let request: Option<Box<dyn RequestStep>> = match steps.request {
        Some(step) if reads_body => Some(conditional(ask_body::first(Some(step)))),
        Some(step) => Some(conditional(step)),
        // Whether it holds is known later.
        None if reads_body && when.waits_for_response() => Some(ask_body::first(Some(Box::new(Judge(when.clone()))))),
        None if reads_body => Some(conditional(ask_body::first(None))),
        None if is_asked_later => Some(Box::new(Judge(Arc::clone(&when)))),
        None => None,
    };
    let request = match request {
        Some(step) if compiling.take_reads_body() => Some(ask_body::first_if_asked(step, &when)),
        request => request,
    };
    Ok(Steps {
        request,
        response: steps.response.map(|step| Box::new(Conditional { when: Arc::clone(&when), step }) as Box<_>),
        request_body: steps.request_body.map(|step| Box::new(Conditional { when: Arc::clone(&when), step }) as Box<_>),
        response_body: steps
            .response_body
            .map(|step| Box::new(Conditional { when: Arc::clone(&when), step }) as Box<_>),
        guarded: steps.guarded,
        guarded_response: GuardedResponse { when: Some(when), ..steps.guarded_response },
    })
}

impl RequestStep for Judge {
    fn apply(&self, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        self.0.judge(asked(head, turn), turn.notes, turn.scratch);
        Flow::Continue
    }
}

impl RequestStep for Conditional<Box<dyn RequestStep>> {
    fn apply(&self, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        self.when.judge(asked(head, turn), turn.notes, turn.scratch);
        if self.when.holds(asked(head, turn), (turn.notes, None), turn.scratch) {
            self.step.apply(head, turn)
        } else {
            Flow::Continue
        }
    }

    fn resume(&self, head: &mut RequestHead, found: Found<'_>, turn: &mut Turn<'_>) -> Flow {
        self.step.resume(head, found, turn)
    }

    fn fetches_by(&self) -> Option<usize> {
        self.step.fetches_by()
    }
}

impl ResponseStep for Conditional<Box<dyn ResponseStep>> {
    fn answers(&self) -> Answers {
        self.step.answers()
    }

    fn liking(&self, request: &RequestHead) -> u16 {
        self.step.liking(request)
    }

    fn answer(&self, head: &ResponseHead, view: &ResponseView<'_>, turn: &mut Turn<'_>) -> Flow {
        if self.holds_for(head, view, turn) { self.step.answer(head, view, turn) } else { Flow::Continue }
    }

    fn resume(&self, head: &ResponseHead, found: Found<'_>, view: &ResponseView<'_>, turn: &mut Turn<'_>) -> Flow {
        self.step.resume(head, found, view, turn)
    }

    fn apply(&self, head: &mut ResponseHead, view: &ResponseView<'_>, turn: &mut Turn<'_>) {
        if self.holds_for(head, view, turn) {
            self.step.apply(head, view, turn);
        }
    }
}

impl<S> Conditional<S> {
    fn holds_for(&self, head: &ResponseHead, view: &ResponseView<'_>, turn: &mut Turn<'_>) -> bool {
        self.when.holds(asked(view.request, turn), (turn.notes, Some((head, view))), turn.scratch)
    }
}

impl RequestBodyStep for Conditional<Box<dyn RequestBodyStep>> {
    fn rank(&self) -> Rank {
        self.step.rank()
    }

    fn begin(&self, head: &mut RequestHead, extent: Extent, turn: &mut Turn<'_>) -> Option<(MakeStage, Extent)> {
        let holds = self.when.holds(asked(head, turn), (turn.notes, None), turn.scratch);
        if holds { self.step.begin(head, extent, turn) } else { None }
    }

    fn pace_tunnel(&self, head: &RequestHead, turn: &mut Turn<'_>) -> Option<Box<dyn Pace>> {
        let holds = self.when.holds(asked(head, turn), (turn.notes, None), turn.scratch);
        if holds { self.step.pace_tunnel(head, turn) } else { None }
    }
}

impl ResponseBodyStep for Conditional<Box<dyn ResponseBodyStep>> {
    fn rank(&self) -> Rank {
        self.step.rank()
    }

    fn begin(
        &self,
        head: &mut ResponseHead,
        view: &ResponseView<'_>,
        extent: Extent,
        turn: &mut Turn<'_>,
    ) -> Option<(Stage, Extent)> {
        if self.holds_for(head, view, turn) { self.step.begin(head, view, extent, turn) } else { None }
    }

    fn pace_tunnel(&self, head: &ResponseHead, view: &ResponseView<'_>, turn: &mut Turn<'_>) -> Option<Box<dyn Pace>> {
        if self.holds_for(head, view, turn) { self.step.pace_tunnel(head, view, turn) } else { None }
    }
}
