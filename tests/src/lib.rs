//! Tests that know the product only as an executable and a repository: `tests/black_box` starts the real program
//! and talks to it over real sockets; `tests/tidy` reads the sources and holds the rules of the house.
//!
//! This library knows nothing of either. It only says where the repository is. Start reading at
//! `tests/black_box/harness/mod.rs`.

use std::path::{Path, PathBuf};

/// The root of the repository, found from where this crate lies.
///
/// # Panics
/// When this crate does not lie one folder below the root.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the repository").to_path_buf()
}
