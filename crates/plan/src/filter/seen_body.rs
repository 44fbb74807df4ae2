//! The body of a request, as expressions read it.

use std::cell::{Cell, OnceCell};
use std::sync::Arc;

use crate::json::{Index, Item, Path};

/// The longest body whose JSON is read, in bytes. It is parsed in one go, and the other exchanges of the worker wait meanwhile: some
/// milliseconds for this much.
pub(crate) const JSON_MAX: usize = 1 << 20;

/// What is known of a body.
#[derive(Debug)]
pub(crate) enum SeenBody {
    /// No step has asked for it yet. Whether an expression has come to read it.
    Unread(Cell<bool>),
    /// A step waits for it.
    Asked,
    /// There is none, or it cannot be read.
    Absent,
    /// All of it.
    Held(Box<Document>),
}

/// A body, and the values in it once one of them was looked for.
#[derive(Debug)]
pub(crate) struct Document {
    bytes: Arc<[u8]>,
    index: OnceCell<Option<Index>>,
}

impl Default for SeenBody {
    fn default() -> Self {
        Self::Unread(Cell::new(false))
    }
}

impl SeenBody {
    /// Returns one that is known; an empty one has no value.
    pub(crate) fn held(bytes: Arc<[u8]>) -> Self {
        if bytes.is_empty() {
            return Self::Absent;
        }
        Self::Held(Box::new(Document { bytes, index: OnceCell::new() }))
    }

    /// Returns whether nothing is known of it, and forgets what expressions have come to read before.
    pub(crate) fn is_unread(&self) -> bool {
        let Self::Unread(is_wanted) = self else { return false };
        is_wanted.set(false);
        true
    }

    /// Returns whether an expression has come to read it since then.
    pub(crate) fn is_wanted(&self) -> bool {
        matches!(self, Self::Unread(is_wanted) if is_wanted.get())
    }

    fn document(&self) -> Option<&Document> {
        match self {
            Self::Held(document) => Some(document),
            Self::Unread(is_wanted) => {
                is_wanted.set(true);
                None
            }
            Self::Asked | Self::Absent => None,
        }
    }

    /// Returns the bytes.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        self.document().map(|document| &*document.bytes)
    }

    /// Forgets that none could be read.
    pub(crate) fn look_again(&mut self) {
        if matches!(self, Self::Absent) {
            *self = Self::default();
        }
    }

    /// Returns a value of its JSON. The body is parsed when this is called first, and not again. One of more than [`JSON_MAX`] bytes
    /// has no values.
    pub(crate) fn find(&self, path: &Path) -> Option<Item<'_>> {
        let Document { bytes, index } = self.document().filter(|document| document.bytes.len() <= JSON_MAX)?;
        index.get_or_init(|| Index::parse(bytes)).as_ref()?.find(bytes, path)
    }
}
