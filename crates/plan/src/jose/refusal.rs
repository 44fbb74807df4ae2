//! Why a token is refused.

/// Why a token is refused. The text says nothing of keys, nor anything that the token does not say itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is not a signed token in the compact form, or what it says is not JSON.
    Malformed,
    /// Its algorithm is `none`, unknown, not allowed, or not one of the key that it names.
    Algorithm,
    /// It has extensions that must be understood (`crit`, RFC 7515 section 4.1.11).
    Critical,
    /// Its type (`typ`) is another one.
    Type,
    /// No key is known that could have signed it.
    UnknownKey,
    /// The signature is wrong.
    Signature,
    /// No key is known that could decrypt it.
    UnknownDecryptionKey,
    /// It cannot be decrypted.
    Decryption,
    /// What was encrypted is not signed.
    Unsigned,
    /// It is not encrypted.
    NotEncrypted,
    /// It says nothing about when it expires.
    NoExpiry,
    /// It has expired.
    Expired,
    /// It is too old.
    TooOld,
    /// It is not valid yet, or was issued in the future.
    NotYet,
    /// Its issuer is another one.
    Issuer,
    /// It is for another audience.
    Audience,
}

impl Refusal {
    /// Returns a description for the client (`error_description`, RFC 6750 section 3): no quotes, no backslash.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "the token is malformed",
            Self::Algorithm => "the algorithm of the token is not allowed",
            Self::Critical => "the token has extensions that are not supported",
            Self::Type => "the token is of another type",
            Self::UnknownKey => "the key of the token is unknown",
            Self::Signature => "the signature of the token is wrong",
            Self::UnknownDecryptionKey => "the decryption key of the token is unknown",
            Self::Decryption => "the token cannot be decrypted",
            Self::Unsigned => "the token is not signed",
            Self::NotEncrypted => "the token is not encrypted",
            Self::NoExpiry => "the token has no expiry",
            Self::Expired => "the token has expired",
            Self::TooOld => "the token is too old",
            Self::NotYet => "the token is not valid yet",
            Self::Issuer => "the token is from another issuer",
            Self::Audience => "the token is for another audience",
        }
    }
}
