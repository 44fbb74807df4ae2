//! Where a request carries a credential: in a header field, a query parameter or a cookie.

use std::sync::LazyLock;

use model::fields::{is_token, reads_as};
use model::{FieldName, Fields, Issue, RequestHead, cookie};
use schemars::JsonSchema;
use serde::Deserialize;

use super::fields::changeable_name;
use super::variables::Stage;
use crate::route::query::{decoded, equals_decoded, parameter, split_at_equals};

static COOKIE: LazyLock<FieldName> =
    LazyLock::new(|| FieldName::new("cookie").unwrap_or_else(|_| unreachable!("a constant token")));

/// The scheme of tokens in `authorization` (RFC 6750 section 2.1).
const BEARER: &[u8] = b"bearer";

/// Where a credential is looked for: in this order; the first place that has one decides.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TakenFrom {
    /// A header field. In `authorization` the credential follows the scheme `Bearer`.
    header: Option<String>,
    /// A query parameter.
    query: Option<String>,
    /// A cookie.
    cookie: Option<String>,
}

/// Places where a credential may be. They are searched in the order header field, query parameter, cookie; the first that has one decides.
#[derive(Debug)]
pub(super) struct Places {
    header: Option<HeaderPlace>,
    query: Option<Box<str>>,
    cookie: Option<Box<str>>,
}

#[derive(Debug)]
struct HeaderPlace {
    name: FieldName,
    /// Only values with the scheme `Bearer` count, without it.
    is_bearer: bool,
}

/// What a request carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carried {
    /// No credential.
    None,
    /// One, which was written out, and where it is.
    One(Place),
    /// Two in the same place, or one that is too long.
    Bad,
}

/// A place that may have a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Header,
    Query,
    Cookie,
}

impl Places {
    /// Compiles the setting `from`. Without any place, it is the header field `default`.
    ///
    /// # Errors
    /// A name that cannot be one, with its key as the path.
    pub(super) fn compile(from: &TakenFrom, default: &str) -> Result<Self, Issue> {
        let (header, query, cookie) = (from.header.as_deref(), from.query.as_deref(), from.cookie.as_deref());
        let is_alone = query.is_none() && cookie.is_none();
        let header = header.or(is_alone.then_some(default));
        let header = header.map(|name| changeable_name(name, Stage::Request)).transpose();
        let header = header.map_err(|issue| issue.below("from/header"))?;
        if query.is_some_and(str::is_empty) {
            return Err(Issue::at("from/query", "the name of a parameter is empty"));
        }
        if let Some(name) = cookie.filter(|name| !is_token(name.as_bytes())) {
            // RFC 6265 section 4.1.1.
            return Err(Issue::at("from/cookie", format!("`{name}` is not the name of a cookie")));
        }
        let header =
            header.map(|name| HeaderPlace { is_bearer: name.as_str().eq_ignore_ascii_case("authorization"), name });
        Ok(Self { header, query: query.map(Into::into), cookie: cookie.map(Into::into) })
    }

    /// Writes the credential of a request into `out`, in place of what was there. Allocates nothing once `out` has its working size.
    pub(super) fn read(&self, head: &RequestHead, out: &mut Vec<u8>, bytes_max: usize) -> Carried {
        out.clear();
        let in_header = self.header.iter().flat_map(|place| place.values(&head.fields));
        let found = take(Place::Header, in_header, bytes_max, |value| out.extend_from_slice(value));
        if found != Carried::None {
            return found;
        }
        if let (Some(name), Some(query)) = (&self.query, head.query()) {
            let pairs = query.split(|&byte| byte == b'&').map(split_at_equals);
            let values = pairs.filter(|(key, _)| equals_decoded(key, name.as_bytes())).map(|(_, value)| value);
            let found = take(Place::Query, values, bytes_max, |value| out.extend(decoded(value)));
            if found != Carried::None {
                return found;
            }
        }
        let in_cookie = self.cookie.iter().flat_map(|name| cookie::values(&head.fields, name.as_bytes()));
        take(Place::Cookie, in_cookie, bytes_max, |value| out.extend_from_slice(value))
    }

    /// Removes credentials from all places but the one that is `kept`, so that no endpoint takes one that was not verified. With a header
    /// field go all that endpoints could read as it, see [`reads_as`].
    pub(super) fn strip(&self, kept: Option<Place>, head: &mut RequestHead, scratch: &mut Vec<u8>) {
        if let Some(HeaderPlace { name, is_bearer }) = &self.header {
            let name = name.as_str();
            head.fields.retain(|field| match field.name.eq_ignore_ascii_case(name.as_bytes()) {
                true => kept == Some(Place::Header) || (*is_bearer && bearer(field.value).is_none()),
                false => !reads_as(field.name, name),
            });
        }
        if let (Some(name), Some(query)) = (&self.query, head.query())
            && kept != Some(Place::Query)
            && parameter(query, name.as_bytes()).is_some()
        {
            scratch.clear();
            let is_other = |pair: &&[u8]| !equals_decoded(split_at_equals(pair).0, name.as_bytes());
            for (place, pair) in query.split(|&byte| byte == b'&').filter(is_other).enumerate() {
                if place > 0 {
                    scratch.push(b'&');
                }
                scratch.extend_from_slice(pair);
            }
            head.set_query(scratch);
        }
        if let Some(name) = &self.cookie
            && kept != Some(Place::Cookie)
        {
            cookie::remove(&mut head.fields, &COOKIE, name.as_bytes(), scratch);
        }
    }
}

impl HeaderPlace {
    fn values<'a>(&'a self, fields: &'a Fields) -> impl Iterator<Item = &'a [u8]> {
        fields.all(&self.name).filter_map(move |value| if self.is_bearer { bearer(value) } else { Some(value) })
    }
}

/// Returns what follows the scheme `Bearer`, in any case (RFC 9110 section 11.1). Any byte that cannot be in a scheme ends it, because
/// endpoints may be as lenient: a tab, for one.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.trim_ascii_start().split_at_checked(BEARER.len())?;
    let is_ended = token.first().is_some_and(|byte| !is_token(&[*byte]));
    (is_ended && scheme.eq_ignore_ascii_case(BEARER)).then(|| token.trim_ascii())
}

fn take<'a>(
    place: Place,
    mut values: impl Iterator<Item = &'a [u8]>,
    bytes_max: usize,
    write: impl FnOnce(&'a [u8]),
) -> Carried {
    match (values.next(), values.next()) {
        (None, _) => Carried::None,
        (Some(value), None) if value.len() <= bytes_max => {
            write(value);
            Carried::One(place)
        }
        _ => Carried::Bad,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{listed, request};
    use super::*;

    fn read(places: &Places, head: &RequestHead) -> (Carried, String) {
        let mut out = b"before".to_vec();
        let carried = places.read(head, &mut out, 8);
        (carried, String::from_utf8(out).unwrap())
    }

    fn places(header: Option<&str>, query: Option<&str>, cookie: Option<&str>) -> Result<Places, Issue> {
        let text = |name: Option<&str>| name.map(str::to_owned);
        Places::compile(&TakenFrom { header: text(header), query: text(query), cookie: text(cookie) }, "authorization")
    }

    fn all() -> Places {
        places(Some("x-key"), Some("key"), Some("key")).unwrap()
    }

    #[test]
    fn the_first_place_that_has_a_credential_decides() {
        let places = all();
        let cookie = ("cookie", "a=1; key=c; b=2");
        let one = |place, text: &str| (Carried::One(place), text.to_owned());
        assert_eq!(read(&places, &request("GET", "/?a=1&key=q", &[cookie, ("X-Key", "h")])), one(Place::Header, "h"));
        assert_eq!(read(&places, &request("GET", "/?a=1&k%65y=q%2F+", &[cookie])), one(Place::Query, "q/ "));
        assert_eq!(read(&places, &request("GET", "/?a=1", &[cookie])), one(Place::Cookie, "c"));
        assert_eq!(read(&places, &request("GET", "/?a=key", &[("cookie", "xkey=1")])), (Carried::None, String::new()));
    }

    #[test]
    fn two_in_one_place_and_one_that_is_too_long_are_bad() {
        let places = all();
        let bad = |target: &str, fields: &[(&str, &str)]| {
            assert_eq!(
                read(&places, &request("GET", target, fields)),
                (Carried::Bad, String::new()),
                "{target} {fields:?}"
            );
        };
        bad("/", &[("x-key", "a"), ("X-KEY", "a")]);
        bad("/?key=a&key=a", &[]);
        bad("/?key=a&%6bey=b", &[]);
        bad("/", &[("cookie", "key=a; key=b")]);
        bad("/", &[("cookie", "key=a"), ("cookie", "key=b")]);
        bad("/", &[("x-key", "123456789")]);
    }

    #[test]
    fn in_authorization_only_the_scheme_bearer_counts() {
        let places = places(None, None, None).unwrap();
        let of = |values: &[&str]| {
            let fields: Vec<_> = values.iter().map(|value| ("Authorization", *value)).collect();
            read(&places, &request("GET", "/", &fields))
        };
        let one = |text: &str| (Carried::One(Place::Header), text.to_owned());
        assert_eq!(of(&["bEARER  abc"]), one("abc"));
        assert_eq!(of(&["Bearer\tabc"]), one("abc"));
        assert_eq!(of(&["Basic abc", "Bearer a"]), one("a"));
        for other in ["Bearer b", "Bearer\tb", "Bearer,b", "bearer=b"] {
            assert_eq!(of(&[other, "Bearer a"]).0, Carried::Bad, "{other}");
        }
        for other in ["Basic abc", "Bearer", "Bearerabc", "", "DPoP abc"] {
            assert_eq!(of(&[other]).0, Carried::None, "{other}");
        }
        let mut head =
            request("GET", "/", &[("Authorization", "Basic abc"), ("authorization", "bearer\ta"), ("a", "b")]);
        places.strip(None, &mut head, &mut Vec::new());
        assert_eq!(listed(&head.fields), "Authorization: Basic abc|a: b");
    }

    #[test]
    fn credentials_are_removed_from_all_places_and_nothing_else_is() {
        let places = all();
        let mut scratch = Vec::new();
        let fields = [("x-key", "h"), ("X_Key", "forged"), ("cookie", "a=1; key=c; b=2"), ("X-Keys", "h")];
        let mut head = request("GET", "/p?a=%20&key=q&&b=2&k%65y", &fields);
        places.strip(None, &mut head, &mut scratch);
        assert_eq!(listed(&head.fields), "cookie: a=1; b=2|X-Keys: h");
        assert_eq!((head.path(), head.query()), (&b"/p"[..], Some(&b"a=%20&&b=2"[..])));
        let mut head = request("GET", "/p?key=q", &[("cookie", "key=c")]);
        places.strip(None, &mut head, &mut scratch);
        assert_eq!((listed(&head.fields).as_str(), head.query()), ("", None));
    }

    #[test]
    fn a_credential_that_is_kept_is_the_only_one_left() {
        for (kept, fields, query) in [
            (Place::Header, "x-key: h", None),
            (Place::Query, "", Some(&b"key=q"[..])),
            (Place::Cookie, "cookie: key=c", None),
        ] {
            let sent = [("x-key", "h"), ("X_Key", "forged"), ("cookie", "key=c")];
            let mut head = request("GET", "/p?key=q", &sent);
            all().strip(Some(kept), &mut head, &mut Vec::new());
            assert_eq!((listed(&head.fields).as_str(), head.query()), (fields, query), "{kept:?}");
        }
    }

    #[test]
    fn names_that_can_be_none_are_issues() {
        for (header, query, cookie, path) in [
            (Some("a b"), None, None, "from/header"),
            (Some("host"), None, None, "from/header"),
            (None, Some(""), None, "from/query"),
            (None, None, Some("a=b"), "from/cookie"),
            (None, None, Some(""), "from/cookie"),
        ] {
            assert_eq!(places(header, query, cookie).unwrap_err().path, path);
        }
    }
}
