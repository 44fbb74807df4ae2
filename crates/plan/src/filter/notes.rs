//! What filters leave for later steps of the same exchange, and for its access log.

use std::sync::Arc;

use super::mirror::Mirror;
use crate::jose::Claims;

/// What one filter has noted, under the number that [`super::Compiling::note`] gave it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Note {
    /// Nothing yet.
    #[default]
    None,
    /// A yes or a no.
    Flag(bool),
    /// A number.
    Number(u64),
}

/// The notes of one exchange. They belong to a head in the pool of its worker, so that a worker that is warm allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    /// Bytes of the request's body that are carried, where a filter bounds them.
    pub body_max: Option<u64>,
    /// Copies that are sent with the request, once it is sent.
    pub mirrors: Vec<Arc<Mirror>>,
    user: Vec<u8>,
    has_user: bool,
    claims: Option<Arc<Claims>>,
    numbered: Vec<Note>,
}

impl Notes {
    /// Forgets all of them; memory stays.
    #[inline]
    pub fn clear(&mut self) {
        self.body_max = None;
        self.mirrors.clear();
        self.has_user = false;
        self.claims = None;
        self.numbered.clear();
    }

    /// Notes the user that a filter has verified; any bytes.
    pub fn set_user(&mut self, name: &[u8]) {
        self.user.clear();
        self.user.extend_from_slice(name);
        self.has_user = true;
    }

    /// Returns the user that a filter has verified, if one has; may hold any byte.
    #[inline]
    pub fn user(&self) -> Option<&[u8]> {
        self.has_user.then_some(&*self.user)
    }

    /// Notes the claims of a token that a filter has verified.
    pub fn set_claims(&mut self, claims: Arc<Claims>) {
        self.claims = Some(claims);
    }

    /// Returns the claims of the token that a filter has verified, if one has.
    #[inline]
    pub fn claims(&self) -> Option<&Claims> {
        self.claims.as_deref()
    }

    /// Returns the note of this number.
    pub fn get(&self, number: usize) -> Note {
        self.numbered.get(number).copied().unwrap_or_default()
    }

    /// Puts a note under this number.
    pub fn set(&mut self, number: usize, note: Note) {
        if self.numbered.len() <= number {
            self.numbered.resize(number + 1, Note::None);
        }
        self.numbered[number] = note;
    }

    /// Returns the yes or no under this number, if there is one.
    pub fn flag(&self, number: usize) -> Option<bool> {
        match self.get(number) {
            Note::Flag(flag) => Some(flag),
            Note::None | Note::Number(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_found_under_their_number_and_gone_when_they_are_cleared() {
        let mut notes = Notes::default();
        notes.set(2, Note::Flag(true));
        notes.set(0, Note::Number(7));
        notes.set_user(b"ann");
        notes.body_max = Some(1);
        assert_eq!(
            (notes.get(0), notes.get(1), notes.flag(2), notes.get(9)),
            (Note::Number(7), Note::None, Some(true), Note::None)
        );
        assert_eq!((notes.flag(0), notes.user()), (None, Some(&b"ann"[..])));
        notes.clear();
        assert_eq!((notes.flag(2), notes.user(), notes.body_max), (None, None, None));
        notes.set_user(b"");
        assert_eq!(notes.user(), Some(&b""[..]));
    }
}
