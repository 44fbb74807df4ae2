//! The cryptography of both sides.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

/// What both sides are built with.
pub(super) type Provider = Arc<CryptoProvider>;
