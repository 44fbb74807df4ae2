//! Changes of header fields that a request step has left for the response, or makes itself.

use std::fmt;

use model::fields::is_field_value;
use model::{FieldName, Fields, RequestHead, ResponseHead};

/// Fields of one answer that are changed, and their bytes.
const CHANGES_MAX: usize = 64;
const BYTES_MAX: usize = 32 << 10;

/// What is done to a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Others of its name stay.
    Append,
    /// It is added if there is none of its name.
    AddIfAbsent,
    /// Others of its name are replaced.
    Set,
    /// The same, but only if there are some.
    Overwrite,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    name: FieldName,
    value: Box<[u8]>,
    action: Action,
}

/// Changes of header fields, in their order.
#[derive(Clone, Default, PartialEq, Eq)]
pub(in crate::filter) struct FieldChanges {
    changes: Vec<Change>,
    bytes: usize,
}

impl FieldChanges {
    /// Returns whether nothing is changed.
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Adds one. Returns false if the value is none, or there are too many changes or bytes of them.
    pub(super) fn add(&mut self, name: FieldName, value: &[u8], action: Action) -> bool {
        self.bytes += name.as_str().len() + value.len();
        if !is_field_value(value) || self.changes.len() == CHANGES_MAX || self.bytes > BYTES_MAX {
            return false;
        }
        self.changes.push(Change { name, value: value.into(), action });
        true
    }

    /// Changes the fields of a request. What the client sent by a name that reads alike does not stay beside what is set.
    pub(super) fn apply_to_request(&self, head: &mut RequestHead) {
        for Change { name, value, action } in &self.changes {
            match action {
                Action::Set => head.fields.set_alone(name, value),
                Action::Overwrite if head.fields.get(name).is_some() => head.fields.set_alone(name, value),
                _ => change(&mut head.fields, name, value, *action),
            }
        }
    }

    /// Changes the fields of a response.
    pub(super) fn apply_to_response(&self, head: &mut ResponseHead) {
        self.changes.iter().for_each(|one| change(&mut head.fields, &one.name, &one.value, one.action));
    }
}

fn change(fields: &mut Fields, name: &FieldName, value: &[u8], action: Action) {
    let is_there = fields.get(name).is_some();
    match action {
        Action::Append => fields.append(name, value),
        Action::AddIfAbsent if is_there => {}
        Action::Overwrite if !is_there => {}
        Action::AddIfAbsent => fields.append(name, value),
        Action::Set | Action::Overwrite => fields.set(name, value),
    }
}

impl fmt::Debug for FieldChanges {
    /// Values may be secrets: only names are shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.changes.iter().map(|change| change.name.as_str())).finish()
    }
}
