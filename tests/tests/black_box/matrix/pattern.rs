//! Bytes that tell where they stand, so that a piece that is lost, doubled or moved is seen.

use std::sync::LazyLock;

/// Longest piece in one go.
pub(super) const PIECE: usize = 64 * 1024;
const PERIOD: usize = 251;

static TABLE: LazyLock<Vec<u8>> = LazyLock::new(|| (0..PIECE + PERIOD).map(|at| (at % PERIOD) as u8).collect());

/// The bytes from `at` on, at most [`PIECE`] of them.
pub(super) fn piece(at: u64, length: u64) -> &'static [u8] {
    let start = (at % PERIOD as u64) as usize;
    let length = PIECE.min(usize::try_from(length).unwrap_or(PIECE));
    &TABLE[start..start + length]
}

/// Looks at bytes as they come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Check {
    /// How many came.
    pub(super) seen: u64,
    /// Whether any was not the one that was due.
    pub(super) wrong: bool,
}

impl Check {
    pub(super) fn take(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(PIECE) {
            self.wrong |= chunk != piece(self.seen, chunk.len() as u64);
            self.seen += chunk.len() as u64;
        }
    }

    /// What a right body of this length gives.
    pub(super) fn right(length: u64) -> Self {
        Self { seen: length, wrong: false }
    }

    /// As text, which an endpoint answers with.
    pub(super) fn verdict(&self) -> String {
        format!("{} {}", self.seen, if self.wrong { "wrong" } else { "right" })
    }
}
