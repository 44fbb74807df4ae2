//! Who asks, and whether he may.
//!
//! A foreign page in a browser must not use a listener on loopback: it may send requests there, although it cannot read the
//! answers. So the name in `host` is checked (see [`crate::host`]), a foreign `origin` is refused, and a call that changes
//! something must have a field that a page cannot send without asking first, which is never allowed.

use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode, header};
use control::admin_tls::ShownCertificate;
use model::Name;
use model::snapshot::{Admin, AdminRole};

use crate::problem::Problem;

/// Who is not asked for credentials is called so in the history.
const NOBODY: &str = "local";
/// A field that says that no foreign page in a browser sends this.
const OURS: &str = "x-equipoise";

/// Who was let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// As the history tells it.
    pub(crate) name: Arc<str>,
    /// He has shown a token or a certificate, or could open a socket that only some may open.
    pub(crate) is_trusted: bool,
}

/// What someone shows: fields of his request, and the certificate of his connection, which is verified.
pub(crate) type Credentials<'a> = (&'a HeaderMap, Option<&'a ShownCertificate>);

/// Whom credentials are of.
struct Found<'a> {
    name: &'a Name,
    role: AdminRole,
    /// What kind they are.
    by: &'static str,
}

/// Lets a call in, or not.
pub(crate) fn enter(admin: &Admin, needs: AdminRole, (headers, shown): Credentials<'_>) -> Result<Caller, Problem> {
    let found = find(admin, (headers, shown))?;
    let is_trusted = found.is_some() || admin.is_for_some_only();
    let name = match found {
        Some(found) if found.role >= needs => found.name.as_str().into(),
        Some(Found { name, by, .. }) => {
            let message = format!("the {by} `{name}` may only read");
            return Err(Problem::new(StatusCode::FORBIDDEN, message).suggest("use one whose `role` is `admin`"));
        }
        None => NOBODY.into(),
    };
    if needs == AdminRole::Admin {
        if !admin.changes_allowed {
            let message =
                "this listener can be reached from outside and requires no credentials, so it accepts no changes";
            return Err(Problem::new(StatusCode::FORBIDDEN, message).suggest("add `tokens` to `admin` in the file"));
        }
        refuse_foreign_pages(headers)?;
    }
    Ok(Caller { name, is_trusted })
}

/// Returns the identity of a request, or `None` if no credentials are required. A token takes precedence over a certificate, which a client
/// may present to every listener.
fn find<'a>(admin: &'a Admin, (headers, shown): Credentials<'_>) -> Result<Option<Found<'a>>, Problem> {
    if !admin.asks_for_credentials() {
        return Ok(None);
    }
    let takes_token = !admin.tokens.is_empty();
    let sends_token = takes_token && headers.contains_key(header::AUTHORIZATION);
    if let Some(shown) = shown.filter(|_| !sends_token)
        && let Some(one) = admin.identities.iter().find(|one| shown.bears(&one.certificate))
    {
        return Ok(Some(Found { name: &one.name, role: one.role, by: "certificate of" }));
    }
    if takes_token { of_token(admin, headers).map(Some) } else { Err(unknown(shown)) }
}

/// Returns the problem that the certificate matches no entry of `identities`.
fn unknown(shown: Option<&ShownCertificate>) -> Problem {
    let message = match shown {
        Some(shown) => format!("the certificate of `{}` matches no identity", shown.subject),
        None => "a certificate is required".to_owned(),
    };
    Problem::new(StatusCode::FORBIDDEN, message).suggest("use one with a name of `admin.identities`")
}

/// Returns the owner of the token.
fn of_token<'a>(admin: &'a Admin, headers: &HeaderMap) -> Result<Found<'a>, Problem> {
    let denied = |message: &str| {
        let mend = "send `authorization: Bearer TOKEN` with a token of `admin.tokens`";
        Err(Problem::new(StatusCode::UNAUTHORIZED, message).suggest(mend))
    };
    let mut fields = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(field), None) = (fields.next(), fields.next()) else { return denied("a token is required") };
    let bytes = field.as_bytes();
    let Some((scheme, sent)) = bytes.split_at_checked(7) else { return denied("a token is required") };
    if !scheme.eq_ignore_ascii_case(b"bearer ") {
        return denied("a token is required");
    }
    // Every token is looked at, so that the time tells nothing.
    let fitting = admin
        .tokens
        .iter()
        .fold(None, |found, token| if is_same(&token.secret.0, sent.trim_ascii()) { Some(token) } else { found });
    match fitting {
        Some(token) => Ok(Found { name: &token.name, role: token.role, by: "token" }),
        None => denied("the token is unknown"),
    }
}

/// Compares in a time that depends on the length of `sent` alone.
fn is_same(secret: &[u8], sent: &[u8]) -> bool {
    let mut differs = u8::from(secret.len() != sent.len());
    for (index, byte) in sent.iter().enumerate() {
        let ours = secret.get(index).copied().unwrap_or(0);
        differs = std::hint::black_box(differs | (byte ^ ours));
    }
    std::hint::black_box(differs) == 0
}

fn refuse_foreign_pages(headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let host = text("host").unwrap_or_default();
    let is_foreign_origin = text("origin").is_some_and(|origin| {
        let own = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        own != Some(host)
    });
    let is_foreign_site = text("sec-fetch-site").is_some_and(|site| !matches!(site, "same-origin" | "none"));
    if is_foreign_origin || is_foreign_site {
        return Err(Problem::new(StatusCode::FORBIDDEN, "pages of other origins may not change anything here"));
    }
    let is_plain = text("content-type").is_none_or(|kind| media_type(kind).is_none());
    let has_field =
        [header::AUTHORIZATION.as_str(), header::IF_MATCH.as_str(), OURS].iter().any(|name| text(name).is_some());
    if is_plain && !has_field {
        let message = "a foreign page in a browser could have sent this";
        return Err(Problem::new(StatusCode::FORBIDDEN, message).suggest("send the field `x-equipoise: 1` too"));
    }
    Ok(())
}

/// Returns `json` or `yaml` if the content type is one of these. A form can send neither.
pub(crate) fn media_type(text: &str) -> Option<&'static str> {
    match text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
        "application/json" => Some("json"),
        "application/yaml" | "application/x-yaml" | "text/yaml" | "text/x-yaml" => Some("yaml"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};
    use control::admin_tls::AlternativeKind;
    use model::persistence::Secret;
    use model::snapshot::{AdminIdentity, AdminToken, CertificateName};

    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        fields.iter().map(pair).collect()
    }

    fn admin(tokens: &[(&str, AdminRole, &str)]) -> Admin {
        let token = |(name, role, secret): &(&str, AdminRole, &str)| AdminToken {
            name: (*name).into(),
            role: *role,
            secret: Secret(secret.as_bytes().into()),
        };
        let bind = "127.0.0.1:9900".parse().unwrap();
        let tokens = tokens.iter().map(token).collect();
        let (tls, identities, state) = (None, Vec::new(), None);
        Admin { bind, mode: 0o600, tls, tokens, identities, state, changes_allowed: true }
    }

    fn status(admin: &Admin, needs: AdminRole, fields: &[(&'static str, &'static str)]) -> Result<Arc<str>, u16> {
        status_with(admin, needs, (fields, None))
    }

    fn status_with(
        admin: &Admin,
        needs: AdminRole,
        (fields, shown): (&[(&'static str, &'static str)], Option<&ShownCertificate>),
    ) -> Result<Arc<str>, u16> {
        let entered = enter(admin, needs, (&headers(fields), shown));
        entered.map(|caller| caller.name).map_err(|problem| problem.status().as_u16())
    }

    fn certificate(name: &str) -> ShownCertificate {
        let alternative_names = vec![(AlternativeKind::Dns, format!("{name}.example.com"))];
        let subject = format!("CN={name}");
        ShownCertificate { subject, common_name: Some(name.to_owned()), alternative_names }
    }

    fn identity(name: &str, role: AdminRole, certificate: CertificateName) -> AdminIdentity {
        AdminIdentity { name: name.into(), role, certificate }
    }

    #[test]
    fn a_token_opens_what_its_role_may_do() {
        let admin =
            admin(&[("eye", AdminRole::Read, "0123456789abcdef"), ("hand", AdminRole::Admin, "fedcba9876543210")]);
        let (read, change) = (AdminRole::Read, AdminRole::Admin);
        let with = |value| [("authorization", value)];
        assert_eq!(status(&admin, read, &with("Bearer 0123456789abcdef")), Ok("eye".into()));
        assert_eq!(status(&admin, change, &with("Bearer 0123456789abcdef")), Err(403));
        assert_eq!(status(&admin, change, &with("bearer fedcba9876543210")), Ok("hand".into()));
        for wrong in
            ["Bearer 0123456789abcde", "Bearer 0123456789abcdef0", "Bearer ", "Bear", "Basic 0123456789abcdef", ""]
        {
            assert_eq!(status(&admin, read, &with(wrong)), Err(401), "{wrong}");
        }
        assert_eq!(status(&admin, read, &[]), Err(401));
        let mut two = headers(&with("Bearer 0123456789abcdef"));
        two.append("authorization", HeaderValue::from_static("Bearer fedcba9876543210"));
        assert!(enter(&admin, read, (&two, None)).is_err(), "one token, or none");
    }

    #[test]
    fn a_certificate_opens_what_the_role_of_its_name_may_do() {
        let (read, change) = (AdminRole::Read, AdminRole::Admin);
        let identities = vec![
            identity("eye", read, CertificateName::Subject("eve".into())),
            identity("hand", change, CertificateName::Alternative("hal.example.com".into())),
            identity("shadowed", change, CertificateName::Alternative("eve.example.com".into())),
        ];
        let admin = Admin { identities, ..admin(&[]) };
        let (eve, hal, mallory) = (certificate("eve"), certificate("hal"), certificate("mallory"));
        let ours = &[("x-equipoise", "1"), ("host", "localhost:9900")][..];
        let with = |needs, shown| status_with(&admin, needs, (ours, shown));
        assert_eq!(with(read, Some(&eve)), Ok("eye".into()), "the first that fits");
        assert_eq!(with(change, Some(&eve)), Err(403));
        assert_eq!((with(read, Some(&hal)), with(change, Some(&hal))), (Ok("hand".into()), Ok("hand".into())));
        assert_eq!((with(read, Some(&mallory)), with(read, None)), (Err(403), Err(403)));
        assert!(enter(&admin, read, (&headers(ours), Some(&eve))).unwrap().is_trusted);
        // A browser shows a certificate to every page that wants it.
        let foreign = &[("host", "localhost:9900"), ("content-type", "text/plain")][..];
        assert_eq!(status_with(&admin, change, (foreign, Some(&hal))), Err(403));
        let unsent = &[("authorization", "Bearer 0123456789abcdef")][..];
        assert_eq!(status_with(&admin, read, (unsent, None)), Err(403), "no token is known here");
    }

    #[test]
    fn a_token_counts_before_a_certificate_and_either_will_do() {
        let (read, change) = (AdminRole::Read, AdminRole::Admin);
        let identities = vec![identity("hand", change, CertificateName::Subject("hal".into()))];
        let admin = Admin { identities, ..admin(&[("eye", read, "0123456789abcdef")]) };
        let (hal, mallory) = (certificate("hal"), certificate("mallory"));
        let (token, wrong) =
            (("authorization", "Bearer 0123456789abcdef"), ("authorization", "Bearer fedcba9876543210"));
        let ours = ("x-equipoise", "1");
        let with = |fields: &[_], shown| status_with(&admin, change, (fields, shown));
        assert_eq!(with(&[ours], Some(&hal)), Ok("hand".into()));
        assert_eq!(with(&[ours, token], Some(&hal)), Err(403), "who sends a token wants to come by that");
        assert_eq!(with(&[ours, wrong], Some(&hal)), Err(401));
        assert_eq!((with(&[ours], Some(&mallory)), with(&[ours], None)), (Err(401), Err(401)));
        assert_eq!(status_with(&admin, read, (&[token], Some(&mallory))), Ok("eye".into()));
    }

    #[test]
    fn without_tokens_everybody_who_gets_there_may_but_no_foreign_page() {
        let open = admin(&[]);
        let (read, change) = (AdminRole::Read, AdminRole::Admin);
        assert_eq!(status(&open, read, &[]), Ok(NOBODY.into()));
        let host = ("host", "localhost:9900");
        let json = ("content-type", "application/json; charset=utf-8");
        for fine in [
            &[host, json][..],
            &[host, ("x-equipoise", "1")],
            &[host, ("if-match", "*")],
            &[host, json, ("origin", "http://localhost:9900")],
            &[host, json, ("sec-fetch-site", "same-origin")],
        ] {
            assert_eq!(status(&open, change, fine), Ok(NOBODY.into()), "{fine:?}");
        }
        for foreign in [
            &[host][..],
            &[host, ("content-type", "text/plain")],
            &[host, ("content-type", "application/x-www-form-urlencoded")],
            &[host, json, ("origin", "http://evil.example")],
            &[host, json, ("origin", "null")],
            &[host, json, ("origin", "http://localhost:9901")],
            &[host, ("x-equipoise", "1"), ("sec-fetch-site", "cross-site")],
        ] {
            assert_eq!(status(&open, change, foreign), Err(403), "{foreign:?}");
        }
        assert!(!enter(&open, read, (&headers(&[]), None)).unwrap().is_trusted, "anybody on this machine");
        let socket = Admin { bind: "unix:/run/a.sock".parse().unwrap(), ..admin(&[]) };
        assert!(enter(&socket, read, (&headers(&[]), None)).unwrap().is_trusted, "who may open the file");
        let for_all = Admin { mode: 0o666, ..socket };
        assert!(!enter(&for_all, read, (&headers(&[]), None)).unwrap().is_trusted, "that is everybody");
        let reachable = Admin { changes_allowed: false, ..admin(&[]) };
        assert_eq!(status(&reachable, read, &[]), Ok(NOBODY.into()));
        assert_eq!(status(&reachable, change, &[host, json]), Err(403));
    }
}
