//! Sending a client elsewhere: the `Location` of a redirect (RFC 9110 section 10.2.2).

use std::sync::Arc;

use model::head::host_without_port;
use model::snapshot::Redirect;
use model::template::{self, Piece};
use model::{Facts, Issue, LocalResponse, RequestHead, Scheme};

use crate::expression::{Names, Subject, Target, Used};
use crate::filter::variables::{Stage, Values};
use crate::filter::{Noted, Notes, Template};

/// A redirect, compiled. What is not given is kept from the request.
#[derive(Clone, Debug)]
pub struct RedirectPlan {
    status: u16,
    scheme: Option<Scheme>,
    host: Option<Box<str>>,
    port: Option<u16>,
    path: Option<PathTemplate>,
    /// The whole location, instead of its parts.
    to: Option<Arc<Target>>,
}

#[derive(Clone, Debug)]
struct PathTemplate {
    template: Template,
    /// It says what the query is; otherwise that of the request is kept.
    holds_query: bool,
    /// It holds a `#` as text.
    holds_fragment: bool,
}

impl RedirectPlan {
    /// Compiles a redirect that may use these maps and tables.
    ///
    /// # Errors
    /// Every part that is wrong, with its path below `redirect`.
    pub(crate) fn compile<'n>(redirect: &Redirect, names: impl Into<Names<'n>>) -> Result<Self, Vec<Issue>> {
        let mut issues = Vec::new();
        if !matches!(redirect.status, 301 | 302 | 303 | 307 | 308) {
            issues.push(Issue::at("status", format!("{} is not 301, 302, 303, 307 or 308", redirect.status)));
        }
        let scheme = match redirect.scheme.as_deref() {
            None => None,
            Some("http") => Some(Scheme::Http),
            Some("https") => Some(Scheme::Https),
            Some(other) => {
                issues.push(Issue::at("scheme", format!("`{other}` is neither `http` nor `https`")));
                None
            }
        };
        let path = redirect.path.as_deref().and_then(|text| match PathTemplate::compile(text) {
            Ok(path) => Some(path),
            Err(issue) => {
                issues.push(issue.below("path"));
                None
            }
        });
        let to = redirect.to.as_deref().and_then(|text| match Target::compile(text, names) {
            Ok(target) => Some(Arc::new(target)),
            Err(issue) => {
                issues.push(issue.below("to/expression"));
                None
            }
        });
        let host = redirect.host.as_deref().map(Into::into);
        let plan = Self { status: redirect.status, scheme, host, port: redirect.port, path, to };
        if issues.is_empty() { Ok(plan) } else { Err(issues) }
    }

    /// Returns the maps and tables that it uses.
    pub(crate) fn used(&self) -> Option<&Used> {
        self.to.as_ref().map(|target| target.used())
    }

    /// Returns the answer to one request, which filters have noted something of: 404 if an expression has no target for it. `scratch` is as it was afterwards.
    ///
    /// The port of the request is kept unless the scheme changes. The query is kept unless the path template holds one.
    /// Bytes that may not stand in a URI are percent-encoded, so that nothing a client sent can begin a new field.
    pub fn respond(&self, head: &RequestHead, noted: Noted<'_>, scratch: &mut Vec<u8>) -> LocalResponse {
        let Noted { facts, notes, now } = noted;
        let location = match &self.to {
            None => Some(self.by_parts(head, (facts, notes))),
            Some(target) => {
                let of = Subject::of_request(head, facts).with_notes(notes).at(now);
                target.with(of, scratch, |configured, rest| self.whole((configured, rest), head, facts))
            }
        };
        match location {
            Some(location) => {
                let fields = vec![("location".to_owned(), location)];
                LocalResponse { status: self.status, fields, body: Vec::new() }
            }
            None => LocalResponse { status: 404, fields: Vec::new(), body: Vec::new() },
        }
    }

    /// Returns the location that an expression gives in two parts, of which only the first may name another site. All bytes that may not
    /// stand in a URI are percent-encoded. `None`: there is none.
    fn whole(&self, (configured, rest): (&[u8], &[u8]), head: &RequestHead, facts: &Facts<'_>) -> Option<String> {
        if configured.is_empty() && rest.is_empty() {
            return None;
        }
        let mut location = String::with_capacity(64 + configured.len() + rest.len());
        let path = match site(configured) {
            Some((scheme, host, path)) => {
                location.push_str(scheme);
                push_encoded(host, is_host_byte, &mut location);
                path
            }
            None => {
                location.push_str(facts.scheme.as_str());
                location.push_str("://");
                self.push_authority(head, facts, &mut location);
                configured
            }
        };
        if !matches!(path.first().or_else(|| rest.first()), None | Some(b'/' | b'?' | b'#')) {
            location.push('/');
        }
        for part in [path, rest] {
            push_encoded(part, |byte| is_path_byte(byte) || matches!(byte, b'?' | b'#'), &mut location);
        }
        Some(location)
    }

    fn by_parts(&self, head: &RequestHead, (facts, notes): (&Facts<'_>, &Notes)) -> String {
        let mut location = String::with_capacity(64 + head.path().len());
        let scheme = self.scheme.unwrap_or(facts.scheme);
        location.push_str(scheme.as_str());
        location.push_str("://");
        self.push_authority(head, facts, &mut location);
        self.push_path(head, (facts, notes), &mut location);
        location
    }

    fn push_authority(&self, head: &RequestHead, facts: &Facts<'_>, out: &mut String) {
        // Without `Host` (HTTP/1.0) our own address is all there is to go by.
        let ours = facts.local.to_string();
        let authority = if head.host().is_empty() { ours.as_bytes() } else { head.authority() };
        let host = host_without_port(authority);
        push_encoded(self.host.as_deref().map_or(host, str::as_bytes), is_host_byte, out);
        let scheme = self.scheme.unwrap_or(facts.scheme);
        let kept = || {
            let digits = authority.get(host.len() + 1..).and_then(|digits| std::str::from_utf8(digits).ok());
            digits.and_then(|digits| digits.parse::<u16>().ok()).filter(|_| scheme == facts.scheme)
        };
        let own = match scheme {
            Scheme::Http => 80,
            Scheme::Https => 443,
        };
        if let Some(port) = self.port.or_else(kept).filter(|&port| port != own && port != 0) {
            out.push(':');
            out.push_str(&port.to_string());
        }
    }

    fn push_path(&self, head: &RequestHead, (facts, notes): (&Facts<'_>, &Notes), out: &mut String) {
        let mut written = Vec::new();
        let (path, keeps_query) = match &self.path {
            Some(path) => {
                path.template.write(&Values::of_request(head, facts).with_notes(notes), &mut written);
                (&*written, !path.holds_query)
            }
            None => (head.path(), true),
        };
        let (query, fragment) = self.path.as_ref().map_or((false, false), |p| (p.holds_query, p.holds_fragment));
        if path.first() != Some(&b'/') {
            out.push('/');
        }
        // `*` is no path but the target of OPTIONS for a whole host (RFC 9112 section 3.2.4).
        let path = if self.path.is_none() && path == b"*" { b"" } else { path };
        let allowed = |byte| is_path_byte(byte) || (byte == b'?' && query) || (byte == b'#' && fragment);
        push_encoded(path, allowed, out);
        if let Some(query) = head.query().filter(|_| keeps_query) {
            out.push('?');
            push_encoded(query, |byte| is_path_byte(byte) || byte == b'?', out);
        }
    }
}

impl PathTemplate {
    fn compile(text: &str) -> Result<Self, Issue> {
        let template = Template::compile(text, Stage::Request)?;
        let pieces = template::parse(text).map_err(|message| Issue::at("", message))?;
        let holds = |sign| pieces.iter().any(|piece| matches!(piece, Piece::Literal(text) if text.contains(sign)));
        let names_uri = pieces.iter().any(|piece| matches!(piece, Piece::Variable { name, .. } if name == "uri"));
        Ok(Self { template, holds_query: holds('?') || names_uri, holds_fragment: holds('#') })
    }
}

/// Returns scheme, authority and the rest of an absolute URL of HTTP that names a host.
fn site(text: &[u8]) -> Option<(&'static str, &[u8], &[u8])> {
    let scheme = ["https://", "http://"]
        .into_iter()
        .find(|scheme| text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme.as_bytes())))?;
    let rest = &text[scheme.len()..];
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    (!host.is_empty()).then_some((scheme, host, path))
}

fn push_encoded(bytes: &[u8], allowed: impl Fn(u8) -> bool, out: &mut String) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in bytes {
        if allowed(byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
}

/// Returns what RFC 3986 section 3.2.2 allows in a host, percent sign and the brackets of an IPv6 literal included.
fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%[]:".contains(&byte)
}

/// Returns what RFC 3986 section 3.3 allows in a path, slash and percent sign included.
fn is_path_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%:@/".contains(&byte)
}

#[cfg(test)]
mod tests {
    use model::fields::Span;
    use model::{FieldName, Name, Version};

    use super::*;
    use crate::map::{MapPlan, Maps};

    fn redirect() -> Redirect {
        Redirect { status: 301, scheme: None, host: None, port: None, path: None, to: None }
    }

    fn location(redirect: &Redirect, host: &str, target: &str, scheme: Scheme) -> String {
        let response = response(redirect, host, target, scheme, &[]);
        assert_eq!((response.status, response.fields[0].0.as_str()), (redirect.status, "location"));
        response.fields[0].1.clone()
    }

    fn response(redirect: &Redirect, host: &str, target: &str, scheme: Scheme, maps: &[Arc<MapPlan>]) -> LocalResponse {
        let mut head = RequestHead::default();
        let start = head.fields.load(target.as_bytes());
        head.set_line(Span::default(), Span::new(start, start + target.len()), Version::Http11);
        if !host.is_empty() {
            head.fields.append(&FieldName::new("Host").unwrap(), host.as_bytes());
        }
        let facts = Facts {
            peer: "192.0.2.1:4000".parse().unwrap(),
            client: "192.0.2.1".parse().unwrap(),
            local: "198.51.100.1:8080".parse().unwrap(),
            scheme,
            tls: None,
            sender: None,
            listener: &Name::from("web"),
            request_id: "",
            user: None,
        };
        let noted = Noted { facts: &facts, notes: &Notes::default(), now: std::time::Instant::now() };
        RedirectPlan::compile(redirect, Maps::Known(maps)).unwrap().respond(&head, noted, &mut Vec::new())
    }

    fn moved() -> Arc<MapPlan> {
        use model::map::{Map, MapKind, parse};
        let text = "/old /new\n/q /new?a=1#top\n/away https://shop.example:8443/x y\n/bare https://b.example\n\
                    /deep news/today\n/evil //evil.example/x\n/script javascript:alert(1)\n/none https://\n/back /\\evil.example\n";
        let entries = Arc::new(parse(text, MapKind::Exact).unwrap());
        let map = Map { name: "moved".into(), kind: MapKind::Exact, default: None, file: None, entries };
        MapPlan::compile(&Arc::new(map), None).unwrap()
    }

    fn to(expression: &str, target: &str) -> Option<String> {
        let redirect = Redirect { to: Some(expression.into()), ..redirect() };
        let response = response(&redirect, "h:8080", target, Scheme::Http, &[moved()]);
        assert_eq!(response.status, if response.fields.is_empty() { 404 } else { 301 });
        response.fields.first().map(|(_, location)| location.clone())
    }

    #[test]
    fn a_map_names_the_whole_location() {
        for (path, wanted) in [
            ("/old?x=1", Some("http://h:8080/new")),
            ("/q", Some("http://h:8080/new?a=1#top")),
            ("/away", Some("https://shop.example:8443/x%20y")),
            ("/bare", Some("https://b.example")),
            ("/deep", Some("http://h:8080/news/today")),
            ("/missing", None),
            // These are paths, whatever a browser would make of them alone.
            ("/evil", Some("http://h:8080//evil.example/x")),
            ("/script", Some("http://h:8080/javascript:alert(1)")),
            ("/none", Some("http://h:8080/https://")),
            ("/back", Some("http://h:8080/%5Cevil.example")),
        ] {
            assert_eq!(to("maps.moved[request.path]", path).as_deref(), wanted, "{path}");
        }
        let with_query = "maps.moved[request.path] + \"?\" + request.query_string";
        assert_eq!(to(with_query, "/old?x=1&y=a%0Ab").as_deref(), Some("http://h:8080/new?x=1&y=a%0Ab"));
        let or_home = "map(\"moved\", request.path, \"/\")";
        assert_eq!(to(or_home, "/missing").as_deref(), Some("http://h:8080/"));
    }

    #[test]
    fn what_a_client_sends_never_names_the_site_or_leaves_the_field() {
        for (expression, target, wanted) in [
            ("request.query.to", "/?to=https://evil.example/x", "http://h:8080/https://evil.example/x"),
            ("request.query.to", "/?to=//evil.example", "http://h:8080//evil.example"),
            ("request.query.to", "/?to=%0D%0AX-Evil:1", "http://h:8080/%0D%0AX-Evil:1"),
            ("request.query.to.urlDecode()", "/?to=a%2500%0d%0a%20b", "http://h:8080/a%00%0D%0A%20b"),
            ("request.query.to.substring(0)", "/?to=%5C%5Cevil.example", "http://h:8080/%5C%5Cevil.example"),
            ("\"https://b.example\" + request.query.to", "/?to=.evil.example", "https://b.example/.evil.example"),
            ("\"https://b.example\" + request.query.to", "/?to=@evil.example/", "https://b.example/@evil.example/"),
            ("\"https://b.example\" + request.query.to", "/?to=:99/", "https://b.example/:99/"),
            ("\"https://b.example\" + request.uri", "/a?b=c", "https://b.example/a?b=c"),
            ("maps.moved[\"/bare\"] + request.query.to", "/?to=.evil.example", "https://b.example/.evil.example"),
            ("\"https:/\" + request.query.to", "/?to=/evil.example", "http://h:8080/https://evil.example"),
            (
                "request.query.to + maps.moved[\"/away\"]",
                "/?to=https:",
                "http://h:8080/https:https://shop.example:8443/x%20y",
            ),
            (
                "has(request.query.to) ? \"https://b.example/\" + request.query.to : \"/\"",
                "/?to=a",
                "https://b.example/a",
            ),
            ("has(request.query.to) ? \"https://b.example/\" + request.query.to : \"/\"", "/", "http://h:8080/"),
            ("(\"https://b.example/\" + request.query.to).orValue(\"/x\")", "/", "http://h:8080/x"),
        ] {
            assert_eq!(to(expression, target).as_deref(), Some(wanted), "{expression} {target}");
        }
        assert_eq!(to("request.query.to", "/"), None);
    }

    proptest::proptest! {
        #[test]
        fn no_query_makes_a_location_leave_its_site(text in "\\PC{0,20}|[/\\\\@:.%#?\r\n\ta-c]{0,12}") {
            let target = format!("/?to={}", text.replace(['&', '#'], "/"));
            for (expression, site) in [
                ("request.query.to", "http://h:8080"),
                ("\"https://b.example\" + request.query.to", "https://b.example"),
                ("maps.moved[\"/bare\"] + request.query.to.urlDecode()", "https://b.example"),
            ] {
                let Some(location) = to(expression, &target) else { continue };
                proptest::prop_assert!(location.bytes().all(|byte| byte.is_ascii_graphic()), "{}", location);
                let rest = location.strip_prefix(site).expect("the site");
                let ends = rest.is_empty() || rest.starts_with(['/', '?', '#']);
                proptest::prop_assert!(ends, "{}", location);
            }
        }
    }

    #[test]
    fn a_site_that_only_the_request_names_is_a_mistake() {
        for expression in ["\"https://\" + request.host + request.path", "\"//\" + request.query.to"] {
            let wrong = Redirect { to: Some(expression.into()), ..redirect() };
            let issues = RedirectPlan::compile(&wrong, Maps::Known(&[])).unwrap_err();
            assert_eq!((issues[0].path.as_str(), issues.len()), ("to/expression", 1));
            assert!(issues[0].message.contains("the request would choose the site"), "{}", issues[0].message);
        }
        for expression in [
            "map(\"moved\", request.path, request.query.to)",
            "map(\"moved\", request.path, request.uri) + \"?a\"",
            "(has(request.query.to) ? \"https://b.example/\" : request.path) + \"?a\"",
        ] {
            let wrong = Redirect { to: Some(expression.into()), ..redirect() };
            let issues = RedirectPlan::compile(&wrong, Maps::Known(&[moved()])).unwrap_err();
            assert!(issues[0].message.contains("by turns"), "{}", issues[0].message);
        }
    }

    #[test]
    fn what_is_not_given_is_kept_from_the_request() {
        let moved = Redirect { host: Some("www.example.com".into()), ..redirect() };
        assert_eq!(location(&moved, "old:8080", "/a/b?x=1", Scheme::Http), "http://www.example.com:8080/a/b?x=1");
        let moved = Redirect { path: Some("/new{path}".into()), status: 308, ..redirect() };
        assert_eq!(location(&moved, "h", "/a?x=1", Scheme::Https), "https://h/new/a?x=1");
    }

    #[test]
    fn the_port_is_kept_only_with_the_scheme_and_left_out_where_it_is_the_schemes_own() {
        let secure = Redirect { scheme: Some("https".into()), ..redirect() };
        assert_eq!(location(&secure, "h:8080", "/", Scheme::Http), "https://h/");
        assert_eq!(location(&secure, "h:8443", "/", Scheme::Https), "https://h:8443/");
        let port = |port| Redirect { scheme: Some("https".into()), port: Some(port), ..redirect() };
        assert_eq!(location(&port(8443), "[::1]:8080", "/", Scheme::Http), "https://[::1]:8443/");
        assert_eq!(location(&port(443), "h:8080", "/", Scheme::Http), "https://h/");
        let up = Redirect { path: Some("/x".into()), ..redirect() };
        assert_eq!(location(&up, "h:80", "/", Scheme::Http), "http://h/x");
        assert_eq!(location(&up, "h:", "/", Scheme::Http), "http://h/x");
        assert_eq!(location(&up, "h:99999", "/", Scheme::Http), "http://h/x");
    }

    #[test]
    fn a_template_may_hold_the_query_itself() {
        let path = |path: &str| Redirect { path: Some(path.into()), ..redirect() };
        assert_eq!(location(&path("/x?from={path}"), "h", "/a?q=1", Scheme::Http), "http://h/x?from=/a");
        assert_eq!(location(&path("/x{uri}"), "h", "/a?q=1", Scheme::Http), "http://h/x/a?q=1");
        assert_eq!(location(&path("/x#top"), "h", "/a", Scheme::Http), "http://h/x#top");
        assert_eq!(location(&path("{query_param:to}"), "h", "/a?to=b?c", Scheme::Http), "http://h/b%3Fc?to=b?c");
    }

    #[test]
    fn nothing_a_client_sends_can_leave_the_field_or_the_host() {
        let secure = Redirect { scheme: Some("https".into()), ..redirect() };
        let sent = location(&secure, "a b\"<>/@evil", "/x\u{e4}\\\"<{", Scheme::Http);
        assert_eq!(sent, "https://a%20b%22%3C%3E%2F%40evil/x%C3%A4%5C%22%3C%7B");
        assert_eq!(location(&secure, "h", "//evil.example/", Scheme::Http), "https://h//evil.example/");
        let named = Redirect { path: Some("/{request_header:host}".into()), ..redirect() };
        assert_eq!(location(&named, "a#b?c d", "/", Scheme::Http), "http://a%23b%3Fc%20d/a%23b%3Fc%20d");
    }

    #[test]
    fn a_request_without_host_or_path_is_still_answered() {
        let secure = Redirect { scheme: Some("https".into()), ..redirect() };
        assert_eq!(location(&secure, "", "*", Scheme::Http), "https://198.51.100.1/");
        assert_eq!(
            location(&Redirect { status: 302, ..redirect() }, "", "", Scheme::Http),
            "http://198.51.100.1:8080/"
        );
    }

    #[test]
    fn every_wrong_part_is_told() {
        let wrong = Redirect { status: 200, scheme: Some("ftp".into()), path: Some("/{nothing}".into()), ..redirect() };
        let issues = RedirectPlan::compile(&wrong, Maps::Known(&[])).unwrap_err();
        assert_eq!(issues.iter().map(|issue| issue.path.as_str()).collect::<Vec<_>>(), ["status", "scheme", "path"]);
    }
}
