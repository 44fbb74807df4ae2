//! Steps of filters whose expressions read the body of the request: they have it read first.

use std::sync::Arc;

use model::{Known, RequestHead, Version};

use super::seen_body::SeenBody;
use super::{Beginning, Flow, Found, Need, RequestStep, Turn};
use crate::route::when::{Asked, WhenPlan};

/// The longest body that is read for expressions, in bytes. What a step before has read is seen whatever its length.
pub(crate) const BODY_SEEN_MAX: u32 = 64 << 10;

/// A step that needs the body, or may need it for its condition.
pub(super) struct AskBody {
    step: Box<dyn RequestStep>,
    /// The body is read only if this comes to ask for it. `None`: always.
    when: Option<Arc<WhenPlan>>,
}

/// Has the body read for what is done to the response.
struct Pass;

impl RequestStep for Pass {
    fn apply(&self, _: &mut RequestHead, _: &mut Turn<'_>) -> Flow {
        Flow::Continue
    }
}

/// Returns a step that has the body before it begins.
pub(super) fn first(step: Option<Box<dyn RequestStep>>) -> Box<dyn RequestStep> {
    Box::new(AskBody { step: step.unwrap_or_else(|| Box::new(Pass)), when: None })
}

/// Returns a step that has the body before it begins, if its condition asks for that.
pub(super) fn first_if_asked(step: Box<dyn RequestStep>, when: &Arc<WhenPlan>) -> Box<dyn RequestStep> {
    Box::new(AskBody { step, when: Some(Arc::clone(when)) })
}

impl AskBody {
    /// Returns whether the condition, as far as it is known, depends on the body.
    fn wants_body(&self, head: &RequestHead, turn: &mut Turn<'_>) -> bool {
        let asked = Asked { head, facts: turn.facts, now: Some(turn.now) };
        self.when.as_ref().is_none_or(|when| when.wants_body(asked, turn.notes, turn.scratch))
    }
}

impl RequestStep for AskBody {
    fn apply(&self, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        if turn.notes.body.is_unread() {
            if !may_be_read(head) {
                turn.notes.body = SeenBody::Absent;
            } else if self.wants_body(head, turn) {
                turn.notes.body = SeenBody::Asked;
                return Flow::Need(Need::Beginning { max: BODY_SEEN_MAX, wants_part: false });
            }
        }
        self.step.apply(head, turn)
    }

    fn resume(&self, head: &mut RequestHead, found: Found<'_>, turn: &mut Turn<'_>) -> Flow {
        if !matches!(turn.notes.body, SeenBody::Asked) {
            return self.step.resume(head, found, turn);
        }
        turn.notes.body = match found {
            Found::Beginning(Beginning::Whole(body)) => SeenBody::held(Arc::clone(body)),
            _ => SeenBody::Absent,
        };
        self.step.apply(head, turn)
    }
}

/// Returns whether there may be a body that is not coded. What `decompress` does comes later.
fn may_be_read(head: &RequestHead) -> bool {
    let may_follow = match head.fields.get_known(Known::ContentLength) {
        Some(length) => length != b"0",
        None => head.version >= Version::Http2 || head.fields.has_known(Known::TransferEncoding),
    };
    let is_coding = |name: &[u8]| name.eq_ignore_ascii_case(b"content-encoding");
    // An empty list names no coding, and one of `identity` alone changes nothing (RFC 9110 section 8.4.1).
    let is_none = |name: &[u8]| matches!(name.trim_ascii(), b"") || name.trim_ascii().eq_ignore_ascii_case(b"identity");
    let is_plain = |value: &[u8]| value.split(|byte| *byte == b',').all(is_none);
    may_follow && head.fields.iter().all(|field| !is_coding(field.name) || is_plain(field.value))
}

#[cfg(test)]
mod tests;
