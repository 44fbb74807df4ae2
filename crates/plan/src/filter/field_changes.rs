//! Header fields that an answer has a request or a response changed by: Envoy's `HeaderValue` and `HeaderValueOption`.

use std::sync::Arc;

use model::ResponseHead;
use model::fields::is_field_value;
use model::protobuf::{Reader, Value};

use super::changes::{Action, FieldChanges};
use super::fields::{changeable_name, without_margin};
use super::variables::Stage;
use super::{ResponseStep, ResponseView, Turn};

/// An answer that is not carried out: it is malformed, too large, or would change what only the proxy decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadAnswer;

impl From<model::protobuf::Malformed> for BadAnswer {
    fn from(_: model::protobuf::Malformed) -> Self {
        Self
    }
}

/// Returns the action of this number of `HeaderAppendAction`.
fn action_of(number: u64) -> Result<Action, BadAnswer> {
    Ok(match number {
        0 => Action::Append,
        1 => Action::AddIfAbsent,
        2 => Action::Set,
        3 => Action::Overwrite,
        _ => return Err(BadAnswer),
    })
}

/// Adds a change.
///
/// # Errors
/// The field belongs to the proxy, name or value are none, or there are too many.
pub(super) fn push(
    changes: &mut FieldChanges,
    stage: Stage,
    (name, value): (&str, &[u8]),
    action: Action,
) -> Result<(), BadAnswer> {
    let name = changeable_name(name, stage).map_err(|_| BadAnswer)?;
    // Controls at the end are no margin of it.
    let is_added = is_field_value(value) && changes.add(name, without_margin(value), action);
    if is_added { Ok(()) } else { Err(BadAnswer) }
}

/// Adds that of a `HeaderValueOption`. `otherwise` is what is done if the message does not say.
///
/// # Errors
/// As [`push`]; the message is malformed.
pub(super) fn push_option(
    changes: &mut FieldChanges,
    stage: Stage,
    message: &[u8],
    otherwise: Action,
) -> Result<(), BadAnswer> {
    let (mut header, mut append, mut action, mut keeps_empty) = (None, None, 0, false);
    for field in Reader::new(message) {
        match field? {
            (1, Value::Bytes(bytes)) => header = Some(bytes),
            (2, Value::Bytes(bytes)) => append = Some(truth(bytes)?),
            (3, Value::Number(number)) => action = number,
            (4, Value::Number(number)) => keeps_empty = number != 0,
            _ => {}
        }
    }
    let action = match (append, action) {
        (Some(true), _) => Action::Append,
        (Some(false), _) => Action::Set,
        (None, 0) => otherwise,
        (None, number) => action_of(number)?,
    };
    let (name, value) = header_value(header.unwrap_or_default())?;
    if value.is_empty() && !keeps_empty && action == Action::Append {
        return Ok(());
    }
    push(changes, stage, (name, value), action)
}

/// Reads name and value of a `HeaderValue`.
///
/// # Errors
/// It is malformed, or the name is not text.
pub(super) fn header_value(message: &[u8]) -> Result<(&str, &[u8]), BadAnswer> {
    let (mut name, mut value, mut raw) = (&[][..], &[][..], &[][..]);
    for field in Reader::new(message) {
        match field? {
            (1, Value::Bytes(bytes)) => name = bytes,
            (2, Value::Bytes(bytes)) => value = bytes,
            (3, Value::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let name = std::str::from_utf8(name).map_err(|_| BadAnswer)?;
    Ok((name, if value.is_empty() { raw } else { value }))
}

/// Reads a `BoolValue`.
fn truth(message: &[u8]) -> Result<bool, BadAnswer> {
    let mut is_true = false;
    for field in Reader::new(message) {
        if let (1, Value::Number(number)) = field? {
            is_true = number != 0;
        }
    }
    Ok(is_true)
}

/// Changes responses by what a request step has left under this number; see [`super::Notes::leave`].
pub(super) struct LeftChanges(pub(super) usize);

impl ResponseStep for LeftChanges {
    fn apply(&self, head: &mut ResponseHead, _: &ResponseView<'_>, turn: &mut Turn<'_>) {
        if let Some(changes) = turn.notes.left(self.0) {
            changes.apply_to_response(head);
        }
    }
}

impl LeftChanges {
    /// Leaves changes for the response, if there are any.
    pub(super) fn leave(note: usize, changes: FieldChanges, turn: &mut Turn<'_>) {
        if !changes.is_empty() {
            turn.notes.leave(note, Arc::new(changes));
        }
    }
}
