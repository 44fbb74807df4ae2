//! Signed and encrypted tokens (JWT, RFC 7519; JWE, RFC 7516) and the keys that verify them (JWK, RFC 7517; PEM).
//!
//! ```text
//!  bytes ── Token::parse ──► Token ── KeySet::verify ──► Claims ── Rules::check ──► good until …
//! ```
//! What a token says is bytes of a stranger until its signature is verified: all of it is bounded, nothing in it chooses more than one of the
//! keys that are there, and a key is used only with algorithms of its own type (RFC 8725 section 3.1).

mod algorithm;
mod claims;
mod decryption;
mod encrypted;
mod encryption;
mod json;
mod key;
mod key_set;
mod management;
mod metadata;
mod pem;
mod refusal;
mod rules;
mod source;
mod token;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use algorithm::{Algorithm, Algorithms};
pub use claims::Claims;
pub use decryption::DecryptionKeys;
pub use encrypted::Encrypted;
pub use encryption::Encryption;
pub use key::Key;
pub use key_set::{KeySet, Trust};
pub use management::KeyManagement;
pub use metadata::Metadata;
pub use refusal::Refusal;
pub use rules::{Lifetime, Rules};
pub use source::{KeyPlace, KeySource};
pub use token::{TOKEN_BYTES_MAX, Token};

pub(crate) use claims::text;
pub(crate) use metadata::is_endpoint;
