//! Names of signature algorithms (RFC 7518 section 3.1, RFC 8037, RFC 9864).

use std::fmt;

/// An algorithm that verifies tokens. `none` is not among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the algorithm of its name")]
pub enum Algorithm {
    Hs256,
    Hs384,
    Hs512,
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    Es512,
    EdDsa,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Hs256,
        Self::Hs384,
        Self::Hs512,
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::Es256,
        Self::Es384,
        Self::Es512,
        Self::EdDsa,
    ];

    /// Returns the algorithm of this name, which is case-sensitive. `Ed25519` (RFC 9864) is `EdDSA` with a key of that curve.
    pub fn find(name: &str) -> Option<Self> {
        let name = if name == "Ed25519" { "EdDSA" } else { name };
        Self::ALL.into_iter().find(|algorithm| algorithm.as_str() == name)
    }

    /// Returns the name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::Hs384 => "HS384",
            Self::Hs512 => "HS512",
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Es512 => "ES512",
            Self::EdDsa => "EdDSA",
        }
    }
}

/// A set of algorithms.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Algorithms(u16);

impl Algorithms {
    /// Every algorithm there is.
    pub const ALL: Self = Self(u16::MAX);
    /// No algorithm.
    pub const NONE: Self = Self(0);

    /// Returns the set with one more.
    pub fn with(self, algorithm: Algorithm) -> Self {
        Self(self.0 | 1 << algorithm as u16)
    }

    /// Returns whether it contains an algorithm.
    pub fn contains(self, algorithm: Algorithm) -> bool {
        self.0 & 1 << algorithm as u16 != 0
    }
}

impl fmt::Debug for Algorithms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(Algorithm::ALL.iter().filter(|algorithm| self.contains(**algorithm))).finish()
    }
}
