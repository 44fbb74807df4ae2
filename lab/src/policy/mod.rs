//! What a product does to requests beside passing them on, one thing for each cell.

mod files;

pub(crate) use files::ensure;

use crate::failure::Failure;
use std::fs;
use std::path::Path;

/// What a configuration does to requests. All requests of a generator are let through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Policy {
    #[default]
    None,
    /// The rate of each client address is limited, to more than any generator sends.
    RateLimit,
    /// The rate of each value of `x-key` is limited; there are a million.
    RateLimitKeys,
    /// A token is verified, signed by ECDSA with P-256.
    JwtEs256,
    /// The same, signed by RSA with 2,048 bits.
    JwtRs256,
    /// Another program is asked over HTTP about each request.
    ForwardAuth,
    /// A header of the request to the endpoint has a value that a map of a million entries gives for the host.
    Map,
    /// Each request is sent to another cluster, too.
    Mirror,
    /// Only requests for which a condition on method, path and host holds are let through.
    Expression,
    /// Responses come from a cache, after the first.
    Cache,
    /// Responses are files.
    Files,
}

/// Entries of the map, and keys of the limit.
pub(crate) const MILLION: usize = 1_000_000;
/// The one that the generator asks for.
pub(crate) const MAPPED_HOST: &str = "h0500000.example.com";

impl Policy {
    pub(crate) const ALL: [Self; 10] = [
        Self::RateLimit,
        Self::RateLimitKeys,
        Self::JwtEs256,
        Self::JwtRs256,
        Self::ForwardAuth,
        Self::Map,
        Self::Mirror,
        Self::Expression,
        Self::Cache,
        Self::Files,
    ];

    /// Its name as a flag of templates.
    pub(crate) fn flag(self) -> &'static str {
        match self {
            Self::None => "plain",
            Self::RateLimit => "rate_limit",
            Self::RateLimitKeys => "rate_limit_keys",
            Self::JwtEs256 => "jwt_es256",
            Self::JwtRs256 => "jwt_rs256",
            Self::ForwardAuth => "forward_auth",
            Self::Map => "map",
            Self::Mirror => "mirror",
            Self::Expression => "expression",
            Self::Cache => "cache",
            Self::Files => "files",
        }
    }

    /// The header that requests need to be let through, with its value.
    pub(crate) fn credential(self, folder: &Path) -> Result<Option<(&'static str, String)>, Failure> {
        let token = |name: &str| {
            let path = folder.join(name);
            let token = fs::read_to_string(&path).map_err(|error| Failure::io(&path, &error))?;
            Ok(Some(("Authorization", format!("Bearer {token}"))))
        };
        match self {
            Self::JwtEs256 => token("es256.token"),
            Self::JwtRs256 => token("rs256.token"),
            Self::ForwardAuth => Ok(Some(("X-Key", "open sesame".to_owned()))),
            _ => Ok(None),
        }
    }

    /// The statuses with which a product may answer a request without that, if it is to refuse it.
    pub(crate) fn refusals(self) -> &'static [u16] {
        match self {
            Self::JwtEs256 | Self::JwtRs256 | Self::ForwardAuth => &[401],
            // Traefik has no route for such requests.
            Self::Expression => &[403, 404],
            _ => &[],
        }
    }

    /// What has to stand in a request that comes to the endpoint.
    pub(crate) fn mark(self) -> Option<&'static str> {
        (self == Self::Map).then_some("x-tenant: t500000\r\n")
    }

    /// The name of the signature's algorithm in tokens; empty: there is none.
    pub(crate) fn algorithm(self) -> &'static str {
        match self {
            Self::JwtEs256 => "ES256",
            Self::JwtRs256 => "RS256",
            _ => "",
        }
    }
}
