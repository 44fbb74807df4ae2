//! Origins of web pages, as `cors` and `csrf` list them.

use model::Issue;
use regex::bytes::Regex;
use schemars::JsonSchema;
use serde::Deserialize;

/// One origin, or an expression for several.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum OriginSetting {
    Text(String),
    Expression(OriginExpression),
}

/// Every origin that an expression matches as a whole.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OriginExpression {
    /// The expression.
    regex: String,
}

/// Compiles a list of origins.
///
/// # Errors
/// One that is none, or `*` with credentials. The path is the place in the list.
pub(super) fn compile_origins(list: &[OriginSetting], credentials: bool) -> Result<Origins, Issue> {
    if list.is_empty() {
        return Err(Issue::at("", "the list is empty").suggest("name an origin, or leave the filter out"));
    }
    if let Some(place) = list.iter().position(|origin| matches!(origin, OriginSetting::Text(text) if text == "*")) {
        let at = |message| Issue::at(place.to_string(), message);
        if credentials {
            return Err(at("`*` cannot stand with allow_credentials: true (Fetch standard)")
                .suggest("name the origins, or leave allow_credentials out"));
        }
        if list.len() > 1 {
            return Err(at("`*` allows every origin already").suggest("leave the others out, or `*`"));
        }
        return Ok(Origins::Any);
    }
    let compile = |(place, origin): (usize, &OriginSetting)| {
        let compiled = match origin {
            OriginSetting::Text(text) => compile_origin(text),
            OriginSetting::Expression(OriginExpression { regex }) => {
                crate::route::expression::whole(regex).map(OriginTest::Expression).map_err(|issue| issue.below("regex"))
            }
        };
        compiled.map_err(|issue| issue.below(&place.to_string()))
    };
    list.iter().enumerate().map(compile).collect::<Result<_, _>>().map(Origins::Listed)
}

/// Compiles an origin. Browsers send it with lower-case scheme and host, and without the default port (RFC 6454 section 6.2).
fn compile_origin(text: &str) -> Result<OriginTest, Issue> {
    let origin = text.to_ascii_lowercase();
    if origin == "null" {
        return Ok(OriginTest::Exact(origin));
    }
    let wrong = || Issue::at("", format!("`{text}` is not an origin"));
    let Some((scheme, authority)) = origin.split_once("://") else {
        return Err(wrong().suggest(format!("write `https://{text}`")));
    };
    if let Some(at) = authority.find(['/', '?', '#']) {
        let end = scheme.len() + "://".len() + at;
        return Err(wrong().suggest(format!("an origin has no path: write `{}`", &origin[..end])));
    }
    let usual_port = match scheme {
        "http" | "ws" => ":80",
        "https" | "wss" => ":443",
        _ => "\n",
    };
    if let Some(short) = authority.strip_suffix(usual_port) {
        return Err(wrong().suggest(format!("browsers leave the usual port out: write `{scheme}://{short}`")));
    }
    let (wildcard, rest) = match authority.strip_prefix("*.") {
        Some(rest) => (true, rest),
        None => (false, authority),
    };
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b':' | b'[' | b']');
    if !model::fields::is_token(scheme.as_bytes()) || rest.is_empty() || !rest.bytes().all(is_plain) {
        return Err(wrong().suggest("write `https://a.example`, `https://*.a.example` or { regex: … }"));
    }
    if wildcard {
        return Ok(OriginTest::Below { scheme: format!("{scheme}://"), suffix: format!(".{rest}") });
    }
    Ok(OriginTest::Exact(origin))
}

/// Whose requests are allowed.
#[derive(Debug)]
pub(super) enum Origins {
    Any,
    Listed(Box<[OriginTest]>),
}

#[derive(Debug)]
pub(super) enum OriginTest {
    Exact(String),
    /// `scheme` ends in `://`; `suffix` begins with a dot and ends with the port, if there is one.
    Below {
        scheme: String,
        suffix: String,
    },
    Expression(Regex),
}

impl Origins {
    /// Returns whether an origin, as browsers send it, is one of them.
    pub(super) fn allows(&self, origin: &[u8]) -> bool {
        match self {
            Self::Any => true,
            Self::Listed(tests) => tests.iter().any(|test| test.allows(origin)),
        }
    }
}

impl OriginTest {
    fn allows(&self, origin: &[u8]) -> bool {
        match self {
            Self::Exact(text) => origin == text.as_bytes(),
            Self::Below { scheme, suffix } => origin
                .strip_prefix(scheme.as_bytes())
                .and_then(|rest| rest.strip_suffix(suffix.as_bytes()))
                .is_some_and(are_labels),
            // `null` is everybody's: only its own name allows it.
            Self::Expression(regex) => origin != b"null" && regex.is_match(origin),
        }
    }
}

/// Returns whether this is one or more labels of a host name: nothing that could end the host early, such as `/`, `@` or `:`.
fn are_labels(text: &[u8]) -> bool {
    let is_label =
        |label: &[u8]| !label.is_empty() && label.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    text.split(|&b| b == b'.').all(is_label)
}
