//! Answers to requests with a bearer token that is missing, bad or not enough (RFC 6750 section 3).

use model::LocalResponse;

use super::Flow;

/// Why a request is answered here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// There is no token.
    NoToken,
    /// There are two in one place, or one that is too long.
    BadRequest,
    /// The token is refused; the text is for the client, without quotes.
    BadToken(&'static str),
    /// The token lacks a claim that is required.
    Claims,
    /// What verifies tokens is not available.
    Unavailable(&'static str),
}

impl Lack {
    /// Returns the answer.
    pub(super) fn answer(self) -> Flow {
        let (status, challenge, text) = match self {
            Self::NoToken => (401, "Bearer".to_owned(), "a token is required"),
            Self::BadRequest => {
                (400, challenge("invalid_request", "there is not exactly one token"), "there is not exactly one token")
            }
            Self::BadToken(why) => (401, challenge("invalid_token", why), why),
            Self::Claims => {
                (403, challenge("insufficient_scope", "the token lacks a claim"), "the token lacks a claim")
            }
            Self::Unavailable(why) => return Flow::refuse(503, why),
        };
        let fields = vec![
            ("content-type".to_owned(), "text/plain; charset=utf-8".to_owned()),
            ("www-authenticate".to_owned(), challenge),
        ];
        Flow::Respond(Box::new(LocalResponse { status, fields, body: format!("{text}\n").into_bytes() }))
    }
}

fn challenge(error: &str, description: &str) -> String {
    format!("Bearer error=\"{error}\", error_description=\"{description}\"")
}
