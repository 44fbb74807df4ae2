//! Steps of a filter that has a `when`: they do nothing where that does not hold.

use std::sync::Arc;

use model::matching::When;
use model::{Facts, Issue, LocalResponse, RequestHead, ResponseHead};

use super::{Failure, Flow, GuardedResponse, PageStep, RequestStep, ResponseStep, ResponseView, Steps};
use crate::route::when::WhenPlan;

/// Something done where a condition holds.
struct Conditional<S> {
    when: Arc<WhenPlan>,
    step: S,
}

/// Asks the condition of something done to the response when it is its turn among what is done to the request: what comes after it
/// may change the path, or take a field away.
struct Judge(Arc<WhenPlan>);

/// The same steps, under a condition. Verdicts that are kept for the response have numbers from `next` on.
///
/// # Errors
/// What is wrong with the condition, with its path below `when`.
pub(super) fn steps(when: &When, steps: Steps, next: &mut usize) -> Result<Steps, Issue> {
    let mut when = WhenPlan::compile(when)?;
    if steps.request.is_some()
        && let Some(path) = when.asks_status()
    {
        let issue = Issue::at(path, "there is no status yet when this filter acts on the request");
        return Err(issue.suggest("use it for filters that act on responses alone, such as set_response_header"));
    }
    let is_asked_later = steps.response.is_some() || steps.page.is_some();
    if is_asked_later {
        when.number(next);
    }
    let when = Arc::new(when);
    let request: Option<Box<dyn RequestStep>> = match steps.request {
        Some(step) => Some(Box::new(Conditional { when: Arc::clone(&when), step })),
        None if is_asked_later => Some(Box::new(Judge(Arc::clone(&when)))),
        None => None,
    };
    Ok(Steps {
        request,
        response: steps.response.map(|step| Box::new(Conditional { when: Arc::clone(&when), step }) as Box<_>),
        page: steps.page.map(|step| Box::new(Conditional { when: Arc::clone(&when), step }) as Box<_>),
        guarded: steps.guarded,
        guarded_response: GuardedResponse { when: Some(when), ..steps.guarded_response },
    })
}

impl RequestStep for Judge {
    fn apply(&self, head: &mut RequestHead, facts: &Facts<'_>, scratch: &mut Vec<u8>) -> Flow {
        self.0.judge(head, facts.caller(), scratch);
        Flow::Continue
    }
}

impl RequestStep for Conditional<Box<dyn RequestStep>> {
    fn apply(&self, head: &mut RequestHead, facts: &Facts<'_>, scratch: &mut Vec<u8>) -> Flow {
        self.when.judge(head, facts.caller(), scratch);
        if self.when.holds((head, facts.caller()), None, scratch) {
            self.step.apply(head, facts, scratch)
        } else {
            Flow::Continue
        }
    }

    fn resume(&self, head: &mut RequestHead, found: bool) -> Flow {
        self.step.resume(head, found)
    }
}

impl ResponseStep for Conditional<Box<dyn ResponseStep>> {
    fn apply(&self, head: &mut ResponseHead, view: &ResponseView<'_>, scratch: &mut Vec<u8>) {
        if self.when.holds((view.request, view.facts.caller()), Some(head.status), scratch) {
            self.step.apply(head, view, scratch);
        }
    }
}

impl PageStep for Conditional<Box<dyn PageStep>> {
    fn intercepts(&self) -> bool {
        self.step.intercepts()
    }

    fn fits(&self, failure: &Failure<'_>, scratch: &mut Vec<u8>) -> bool {
        let view = failure.view;
        self.when.holds((view.request, view.facts.caller()), Some(failure.status), scratch)
            && self.step.fits(failure, scratch)
    }

    fn liking(&self, request: &RequestHead) -> u16 {
        self.step.liking(request)
    }

    fn make(&self, failure: &Failure<'_>, kept: Vec<(String, String)>, scratch: &mut Vec<u8>) -> LocalResponse {
        self.step.make(failure, kept, scratch)
    }
}
