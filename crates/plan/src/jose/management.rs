//! How the key of an encrypted token is encrypted or agreed upon (RFC 7518 section 4, RFC 8037).

/// An algorithm for keys.
///
/// `RSA1_5` is missing because its errors give plain texts away, and the algorithms of passwords because they let a stranger choose the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the algorithm of its name")]
pub enum KeyManagement {
    RsaOaep,
    RsaOaep256,
    EcdhEs,
    EcdhEsA128Kw,
    EcdhEsA256Kw,
    A128Kw,
    A256Kw,
    A128GcmKw,
    A192GcmKw,
    A256GcmKw,
    Direct,
}

impl KeyManagement {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::RsaOaep,
        Self::RsaOaep256,
        Self::EcdhEs,
        Self::EcdhEsA128Kw,
        Self::EcdhEsA256Kw,
        Self::A128Kw,
        Self::A256Kw,
        Self::A128GcmKw,
        Self::A192GcmKw,
        Self::A256GcmKw,
        Self::Direct,
    ];

    /// Returns the algorithm of this name, which is case-sensitive.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == name)
    }

    /// Returns the name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RsaOaep => "RSA-OAEP",
            Self::RsaOaep256 => "RSA-OAEP-256",
            Self::EcdhEs => "ECDH-ES",
            Self::EcdhEsA128Kw => "ECDH-ES+A128KW",
            Self::EcdhEsA256Kw => "ECDH-ES+A256KW",
            Self::A128Kw => "A128KW",
            Self::A256Kw => "A256KW",
            Self::A128GcmKw => "A128GCMKW",
            Self::A192GcmKw => "A192GCMKW",
            Self::A256GcmKw => "A256GCMKW",
            Self::Direct => "dir",
        }
    }

    /// Returns whether only holders of a shared secret can make such a token. Others prove nothing about who made them.
    pub fn is_shared(self) -> bool {
        match self {
            Self::RsaOaep | Self::RsaOaep256 | Self::EcdhEs | Self::EcdhEsA128Kw | Self::EcdhEsA256Kw => false,
            Self::A128Kw | Self::A256Kw | Self::A128GcmKw | Self::A192GcmKw | Self::A256GcmKw | Self::Direct => true,
        }
    }

    /// Returns whether it takes so long that threads beside the workers do it.
    pub fn is_slow(self) -> bool {
        match self {
            Self::RsaOaep | Self::RsaOaep256 | Self::EcdhEs | Self::EcdhEsA128Kw | Self::EcdhEsA256Kw => true,
            Self::A128Kw | Self::A256Kw | Self::A128GcmKw | Self::A192GcmKw | Self::A256GcmKw | Self::Direct => false,
        }
    }
}
