//! What filters do to a request, one after the other.

use std::sync::Arc;

use model::RequestHead;
use model::filter::FilterUse;
use serde::{Deserialize, Serialize};

use super::method_text;
use crate::filter::{Away, Beginning, CalledCluster, Chain, Flow, Found, Need, RequestStep, Turn, compile_one};

/// One filter, and what it does to this request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FilterExplanation {
    /// What it is called in the configuration.
    pub name: String,
    /// Lines of the request that it takes away, with `- ` before them, and those that it puts there, with `+ `.
    pub changes: Vec<String>,
    /// It changes the response too.
    pub changes_response: bool,
    /// It answers with this status, and nothing after it sees the request.
    pub answers: Option<u16>,
    /// It closes the connection without an answer.
    #[serde(default)]
    pub closes: bool,
    /// It calls this cluster, and the request goes on if the response allows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<String>,
    /// It sends a copy of the request to this cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirrors: Option<String>,
}

/// Applies filters to the head until one answers.
pub(super) fn apply(
    (uses, chain): (&[FilterUse], &Chain),
    head: &mut RequestHead,
    hides_values: bool,
    turn: &mut Turn<'_>,
) -> Result<Vec<FilterExplanation>, String> {
    let mut compiling = chain.compiling_again();
    let mut told: Vec<FilterExplanation> = Vec::with_capacity(uses.len());
    for (place, used) in uses.iter().enumerate() {
        let steps = compile_one((place, used), &mut compiling)
            .map_err(|issue| format!("the filter `{}`: {}", used.name, issue.message))?;
        let before = lines(head);
        let (flow, called) = steps.request.map_or((Flow::Continue, None), |step| follow(&*step, head, turn));
        let name = |called: CalledCluster| Some(chain.called().get(called.place())?.cluster.to_string());
        let mirrors = turn.notes.mirrors.pop().and_then(|mirror| name(mirror.cluster));
        let closes = flow == Flow::Close;
        let answers = match flow {
            Flow::Respond(local) => Some(local.status),
            Flow::Stream(streamed) => Some(streamed.status),
            Flow::Continue | Flow::Stored(_) | Flow::Close | Flow::Need(_) => None,
        };
        told.push(FilterExplanation {
            name: used.name.clone(),
            changes: changes(before, lines(head), hides_values),
            changes_response: steps.response.is_some() || steps.response_body.is_some(),
            answers,
            closes,
            calls: called.and_then(name),
            mirrors,
        });
        if answers.is_some() || closes {
            break;
        }
    }
    Ok(told)
}

/// Returns one step, with all that it needs, but for calls, whose response is taken for one that allows the request: the cluster that was
/// to be called is returned. No other request waits here, and what is drawn is forgotten with the steps.
fn follow(step: &dyn RequestStep, head: &mut RequestHead, turn: &mut Turn<'_>) -> (Flow, Option<CalledCluster>) {
    let none = Arc::from([]);
    let mut flow = step.apply(head, turn);
    for _ in 0..Need::PER_STEP_MAX {
        let found = match flow {
            Flow::Need(Need::Work(job)) => Found::Work(job.0.run(&mut || 0)),
            Flow::Need(Need::Until(_) | Need::Hold(_) | Need::Redirect(_) | Need::Again) => Found::Now,
            // Nothing is spent there: the answer is what this process knows.
            Flow::Need(Need::Store(_)) => Found::Store(Err(Away)),
            Flow::Need(Need::Body { .. }) => Found::Body(Ok(&none)),
            // Explaining knows no body.
            Flow::Need(Need::Beginning { .. }) => Found::Beginning(Beginning::Whole(&none)),
            // Explaining reads no files.
            Flow::Need(Need::File(_) | Need::Cached(_)) => return (Flow::Continue, None),
            Flow::Need(Need::Call(call) | Need::Grpc(call)) => return (Flow::Continue, Some(call.cluster)),
            Flow::Need(Need::Apart(apart)) => return (Flow::Continue, Some(apart.call.cluster)),
            end => return (end, None),
        };
        flow = step.resume(head, found, turn);
    }
    (flow, None)
}

/// Returns the head, line by line.
fn lines(head: &RequestHead) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let query = head.query().map_or(String::new(), |query| format!("?{}", text(query)));
    let line = format!("{} {}{query}", method_text(head), text(head.path()));
    let fields = head.fields.iter().map(|field| format!("{}: {}", text(field.name), text(field.value)));
    std::iter::once(line).chain(fields).collect()
}

/// Returns what only the one or the other has; a line that stands twice counts twice. The values of new fields may be hidden.
fn changes(before: Vec<String>, mut after: Vec<String>, hides_values: bool) -> Vec<String> {
    let mut gone = Vec::new();
    for line in before {
        match after.iter().position(|kept| *kept == line) {
            Some(at) => drop(after.remove(at)),
            None => gone.push(format!("- {line}")),
        }
    }
    let shown = |line: String| match line.split_once(": ") {
        Some((name, _)) if hides_values => format!("+ {name}: (hidden)"),
        _ => format!("+ {line}"),
    };
    gone.extend(after.into_iter().map(shown));
    gone
}
