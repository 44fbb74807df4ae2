//! Whole configurations as they were active once: to be rolled back to, and held without a copy of what is the same.

use std::fmt;
use std::sync::Arc;

use crate::changes;
use crate::tree::{Kind, Node};

/// A whole configuration, secrets included, from which it can be made again. Generations of the same files share these.
#[derive(Clone)]
pub struct Whole(Form);

#[derive(Clone)]
enum Form {
    /// What files say, and the objects in the place of theirs.
    Joined(Arc<Node>, Arc<Objects>),
    Text(Arc<str>),
}

/// Objects by place; `None` takes one out.
pub(crate) type Objects = Vec<(String, Option<Node>)>;

impl Whole {
    pub(crate) fn joined(files: &Arc<Node>, objects: &Arc<Objects>) -> Self {
        Self(Form::Joined(Arc::clone(files), Arc::clone(objects)))
    }

    /// Returns the tree as YAML.
    pub fn text(&self) -> Arc<str> {
        match &self.0 {
            Form::Joined(files, objects) if objects.is_empty() => changes::text(files).into(),
            Form::Joined(files, objects) => changes::text(&changes::merge(files, objects.to_vec())).into(),
            Form::Text(text) => Arc::clone(text),
        }
    }

    /// Returns whether both are copies of one.
    pub fn is_copy_of(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Form::Joined(files, objects), Form::Joined(other_files, others)) => {
                Arc::ptr_eq(files, other_files) && Arc::ptr_eq(objects, others)
            }
            (Form::Text(one), Form::Text(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// Puts it as a text, which takes less room, unless it shares the files of `newer`, which is kept anyway.
    pub fn pack(&mut self, newer: &Self) {
        let is_shared = match (&self.0, &newer.0) {
            (Form::Joined(files, _), Form::Joined(others, _)) => Arc::ptr_eq(files, others),
            (form, _) => matches!(form, Form::Text(_)),
        };
        if !is_shared {
            self.0 = Form::Text(self.text());
        }
    }

    /// Returns whether its text has more bytes than these, about. It is looked at no further than it takes to tell.
    pub fn is_longer_than(&self, bytes: usize) -> bool {
        let mut left = bytes;
        match &self.0 {
            Form::Text(text) => text.len() > bytes,
            Form::Joined(files, objects) => {
                let fits = |(place, node): &(String, Option<Node>)| {
                    take(place.len(), &mut left) && node.as_ref().is_none_or(|node| has_room(node, &mut left))
                };
                !(objects.iter().all(fits) && has_room(files, &mut left))
            }
        }
    }

    /// Returns roughly how many bytes it occupies, without files that it shares with the active configuration.
    pub fn bytes(&self) -> usize {
        match &self.0 {
            Form::Joined(_, objects) => {
                objects.iter().map(|(place, node)| place.len() + node.as_ref().map_or(0, bytes)).sum()
            }
            Form::Text(text) => text.len(),
        }
    }
}

impl From<Arc<str>> for Whole {
    fn from(text: Arc<str>) -> Self {
        Self(Form::Text(text))
    }
}

impl PartialEq for Whole {
    fn eq(&self, other: &Self) -> bool {
        self.is_copy_of(other) || self.text() == other.text()
    }
}

/// It may hold secrets.
impl fmt::Debug for Whole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Whole({} bytes)", self.bytes())
    }
}

/// Takes from `left` what the text of a node has at least. `false`: it is more.
fn has_room(node: &Node, left: &mut usize) -> bool {
    match &node.kind {
        Kind::Map(entries) => entries.iter().all(|(key, node)| take(key.text.len() + 2, left) && has_room(node, left)),
        Kind::List(items) => items.iter().all(|node| take(2, left) && has_room(node, left)),
        Kind::Scalar(scalar) => take(scalar.text.len() + 1, left),
        Kind::Invalid => true,
    }
}

fn take(bytes: usize, left: &mut usize) -> bool {
    let rest = left.checked_sub(bytes);
    *left = rest.unwrap_or(0);
    rest.is_some()
}

fn bytes(node: &Node) -> usize {
    let held = match &node.kind {
        Kind::Map(entries) => entries.iter().map(|(key, node)| size_of_val(key) + key.text.len() + bytes(node)).sum(),
        Kind::List(items) => items.iter().map(bytes).sum(),
        Kind::Scalar(scalar) => scalar.text.len() + scalar.written.as_ref().map_or(0, |written| written.len()),
        Kind::Invalid => 0,
    };
    size_of::<Node>() + held
}
