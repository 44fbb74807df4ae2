//! Records that reach no output.

use std::io;

/// Records that are lost, and why.
#[derive(Debug)]
pub(super) struct Lost {
    pub records: u64,
    pub why: io::Error,
}
