//! Fields that filters decide, so that they must not come as trailers either.

use std::sync::Arc;
use std::time::Instant;

use model::fields::reads_as;
use model::{Facts, FieldName, ResponseHead};

use super::ResponseView;
use super::notes::Notes;
use super::pattern::NamePattern;
use crate::route::when::{Asked, WhenPlan};

/// Some fields of requests or responses.
#[derive(Clone, Debug)]
pub enum Guarded {
    /// What endpoints could read as the field of this name.
    Name(FieldName),
    /// What endpoints could read as one whose name has this pattern.
    Pattern(NamePattern),
    /// The field of this very name.
    Exact(FieldName),
    /// Fields whose names have this very pattern, but never the end of a gRPC call.
    ExactPattern(NamePattern),
    /// Names with other signs than these.
    Beyond(Box<Signs>),
}

impl Guarded {
    /// Returns whether a field of this name is one of them.
    pub fn covers(&self, name: &[u8]) -> bool {
        match self {
            Self::Name(guarded) => reads_as(name, guarded.as_str()),
            Self::Pattern(pattern) => pattern.reads_as_field(name),
            Self::Exact(guarded) => name.eq_ignore_ascii_case(guarded.as_str().as_bytes()),
            // A call without its status is a broken one.
            Self::ExactPattern(pattern) => pattern.is_field(name) && !name.eq_ignore_ascii_case(b"grpc-status"),
            Self::Beyond(signs) => !signs.spell(name),
        }
    }
}

/// Fields of responses that one filter decides.
#[derive(Clone, Default)]
pub struct GuardedResponse {
    /// When it does; `None`: always.
    pub(super) when: Option<Arc<WhenPlan>>,
    pub(super) fields: Vec<Guarded>,
}

impl GuardedResponse {
    /// Returns whether this depends on the exchange.
    pub fn is_conditional(&self) -> bool {
        self.when.is_some()
    }

    /// Returns the fields that no trailer of this response may bring. `scratch` as in [`super::Turn`].
    pub fn fields(
        &self,
        of: (&ResponseHead, &ResponseView<'_>),
        noted: Noted<'_>,
        scratch: &mut Vec<u8>,
    ) -> &[Guarded] {
        let Noted { facts, notes, now } = noted;
        let asked = Asked { head: of.1.request, facts, now: Some(now) };
        let holds = self.when.as_ref().is_none_or(|when| when.holds(asked, (notes, Some(of)), scratch));
        if holds { &self.fields } else { &[] }
    }
}

/// What is known of an exchange beside its heads, when its trailers come.
#[derive(Clone, Copy, Debug)]
pub struct Noted<'a> {
    /// What is known of its connection.
    pub facts: &'a Facts<'a>,
    /// What filters have noted.
    pub notes: &'a Notes,
    /// The time when it was last looked at.
    pub now: Instant,
}

/// The signs that field names may be written with.
#[derive(Clone, Debug)]
pub struct Signs([bool; 256]);

impl Signs {
    /// Returns the set of ASCII letters and digits, `-`, and these signs.
    pub(super) fn with(more: &str) -> Self {
        let mut known = [false; 256];
        for (byte, known) in (0_u8..=255).zip(&mut known) {
            *known = byte.is_ascii_alphanumeric() || byte == b'-' || more.as_bytes().contains(&byte);
        }
        Self(known)
    }

    /// Returns whether a name holds no other sign.
    pub(super) fn spell(&self, name: &[u8]) -> bool {
        name.iter().all(|&byte| self.0[usize::from(byte)])
    }
}
