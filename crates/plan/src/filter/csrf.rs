//! `csrf`.

use std::sync::LazyLock;

use model::{Facts, FieldName, Issue, Known, Method, RequestHead, Scheme};
use schemars::JsonSchema;
use serde::Deserialize;

use super::origins::{OriginSetting, Origins, compile_origins};
use super::settings::Settings;
use super::{Compiling, EventCounter, FilterEntry, Flow, RequestStep, Steps, Turn};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<Csrf>("csrf", DOC);

const DOC: &str = r#"Rejects requests that pages of other sites make a browser send (cross-site request forgery).

Use it where users are known by a cookie, a client certificate or basic authentication: a browser sends these also when another site
makes it send the request. `GET`, `HEAD`, `OPTIONS` and `TRACE` pass, unless they begin a WebSocket: such requests must not change anything.
Of all others, one passes if the first of these that applies allows it:

1. `origin` is one of `allow_origins`, which are written as for `cors`;
2. `sec-fetch-site`, which current browsers send over TLS: `same-origin` and `none` (the user typed the address) pass, `same-site` passes with
   `allow_same_site`, `cross-site` does not;
3. `origin`: its host and port must be those of the request; over TLS, its scheme must be `https`. `null` does not pass;
4. `referer`, by the same rule;
5. without any of these fields, the request is not from a current browser: it passes with `allow_missing`.

All others get 403, and `equipoise_filter_events_total` counts them as `refused`. The host is the one that the client has requested.

```yaml
filters:
  - csrf: { allow_origins: ["https://checkout.example.com"] }
```
"#;

/// Which pages may send requests that change something.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Csrf {
    /// Other origins whose pages may: `https://a.example`, `https://*.a.example` or `{ regex: … }`.
    #[serde(default)]
    allow_origins: Vec<OriginSetting>,
    /// Pages of the same site may, such as those of other names below the same domain.
    #[serde(default)]
    allow_same_site: bool,
    /// Requests that say nothing of where they come from may, such as those of programs.
    #[serde(default)]
    allow_missing: bool,
}

impl Settings for Csrf {
    fn compile(self, compiling: &mut Compiling<'_>) -> Result<Steps, Issue> {
        let is_open = |origin: &OriginSetting| matches!(origin, OriginSetting::Text(text) if matches!(text.as_str(), "*" | "null"));
        if let Some(place) = self.allow_origins.iter().position(is_open) {
            let issue = Issue::at(format!("allow_origins/{place}"), "it would allow the pages of any site");
            return Err(issue.suggest("name the origins, or leave the filter out"));
        }
        let origins = match &self.allow_origins[..] {
            [] => None,
            list => Some(compile_origins(list, true).map_err(|issue| issue.below("allow_origins"))?),
        };
        let refused = compiling.counter("refused");
        let (same_site, missing) = (self.allow_same_site, self.allow_missing);
        Ok(Steps::of_request(CsrfStep { origins, allows_same_site: same_site, allows_missing: missing, refused }))
    }
}

static SEC_FETCH_SITE: LazyLock<FieldName> = LazyLock::new(|| name("sec-fetch-site"));
static REFERER: LazyLock<FieldName> = LazyLock::new(|| name("referer"));

fn name(text: &str) -> FieldName {
    FieldName::new(text).unwrap_or_else(|_| unreachable!("a constant token"))
}

struct CsrfStep {
    origins: Option<Origins>,
    allows_same_site: bool,
    allows_missing: bool,
    refused: EventCounter,
}

impl CsrfStep {
    fn allows(&self, head: &RequestHead, facts: &Facts<'_>) -> bool {
        let mut origins = head.fields.all_known(Known::Origin);
        let origin = match (origins.next(), origins.next()) {
            (Some(_), Some(_)) => return false,
            (origin, _) => origin,
        };
        if let (Some(listed), Some(origin)) = (&self.origins, origin)
            && listed.allows(origin)
        {
            return true;
        }
        let mut sites = head.fields.all(&SEC_FETCH_SITE);
        match (sites.next(), sites.next()) {
            (Some(b"same-origin" | b"none"), None) => return true,
            (Some(b"same-site"), None) => return self.allows_same_site,
            (Some(_), _) => return false,
            (None, _) => {}
        }
        match origin.or_else(|| head.fields.get(&REFERER)) {
            Some(page) => is_own(page, head, facts),
            None => self.allows_missing,
        }
    }
}

/// Returns whether a page or an origin is one of the host that is requested.
fn is_own(page: &[u8], head: &RequestHead, facts: &Facts<'_>) -> bool {
    let (port, rest) = match (page.strip_prefix(b"https://"), page.strip_prefix(b"http://")) {
        (Some(rest), _) => (&b":443"[..], rest),
        (_, Some(rest)) if facts.scheme == Scheme::Http => (&b":80"[..], rest),
        _ => return false,
    };
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    let authority = &rest[..end];
    let usual = |authority: &'_ [u8]| authority.strip_suffix(port).unwrap_or(authority).to_ascii_lowercase();
    // A user in front of the host is none of its name, and browsers send none.
    !authority.is_empty() && !authority.contains(&b'@') && usual(authority) == usual(head.received_authority())
}

impl RequestStep for CsrfStep {
    fn apply(&self, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        let is_safe = matches!(head.received_method(), Method::Get | Method::Head | Method::Options | Method::Trace);
        // Browsers let every page open a WebSocket to every site, with its cookies.
        if (is_safe && !head.fields.has_known(Known::Upgrade)) || self.allows(head, turn.facts) {
            return Flow::Continue;
        }
        turn.count(&self.refused);
        Flow::refuse(403, "the request comes from another site")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::testing::{World, chain, flow_of, issue, request};
    use super::super::{Chain, Flow};

    fn status(chain: &Chain, method: &str, is_secure: bool, fields: &[(&str, &str)]) -> u16 {
        let world = World::new();
        let facts = if is_secure { world.tls_facts() } else { world.facts() };
        let fields: Vec<_> = [("host", "Shop.example:8443")].iter().chain(fields).copied().collect();
        match flow_of(chain, &mut request(method, "/", &fields), &facts) {
            Flow::Respond(local) => local.status,
            flow => {
                assert_eq!(flow, Flow::Continue);
                200
            }
        }
    }

    fn of(settings: Value) -> Chain {
        chain(json!([{ "csrf": settings }]))
    }

    #[test]
    fn pages_of_the_same_host_pass_and_others_do_not() {
        let strict = of(json!({}));
        for (fields, passes) in [
            (&[("origin", "https://shop.example:8443")][..], true),
            (&[("origin", "https://SHOP.example:8443")], true),
            (&[("referer", "https://shop.example:8443/a?b#c")], true),
            (&[("referer", "https://shop.example:8443")], true),
            (&[("sec-fetch-site", "same-origin")], true),
            (&[("sec-fetch-site", "none")], true),
            (&[("sec-fetch-site", "same-site")], false),
            (&[("sec-fetch-site", "cross-site")], false),
            (&[("sec-fetch-site", "cross-site"), ("origin", "https://shop.example:8443")], false),
            (&[("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")], false),
            (&[("sec-fetch-site", "")], false),
            (&[], false),
            (&[("origin", "null")], false),
            (&[("origin", "")], false),
            (&[("origin", "http://shop.example:8443")], false),
            (&[("origin", "https://shop.example")], false),
            (&[("origin", "https://shop.example:8443.evil.example")], false),
            (&[("origin", "https://evil.example")], false),
            (&[("origin", "https://evil.example"), ("referer", "https://shop.example:8443/")], false),
            (&[("origin", "https://shop.example:8443"), ("origin", "https://evil.example")], false),
            (&[("referer", "https://shop.example:8443@evil.example/")], false),
            (&[("referer", "https://evil.example/https://shop.example:8443/")], false),
            (&[("referer", "https:///")], false),
            (&[("referer", "shop.example:8443")], false),
        ] {
            assert_eq!(status(&strict, "POST", true, fields), if passes { 200 } else { 403 }, "{fields:?}");
        }
        assert_eq!(status(&strict, "POST", false, &[("origin", "http://shop.example:8443")]), 200);
    }

    #[test]
    fn the_usual_port_may_be_left_out_on_either_side() {
        let strict = of(json!({}));
        let world = World::new();
        for (host, origin, passes) in [
            ("a", "https://a:443", true),
            ("a:443", "https://a", true),
            ("a:443", "https://a:443", true),
            ("a:80", "https://a", false),
            ("[::1]:443", "https://[::1]", true),
        ] {
            let mut head = request("PUT", "/", &[("host", host), ("origin", origin)]);
            assert_eq!(flow_of(&strict, &mut head, &world.tls_facts()) == Flow::Continue, passes, "{host} {origin}");
        }
    }

    #[test]
    fn safe_methods_pass_but_for_websockets() {
        let strict = of(json!({}));
        let evil = ("origin", "https://evil.example");
        for method in ["GET", "HEAD", "OPTIONS", "TRACE"] {
            assert_eq!(status(&strict, method, true, &[evil]), 200, "{method}");
        }
        for method in ["POST", "PUT", "PATCH", "DELETE", "get", "PROPFIND"] {
            assert_eq!(status(&strict, method, true, &[evil]), 403, "{method}");
        }
        let websocket = [("upgrade", "websocket"), ("connection", "upgrade"), evil];
        assert_eq!(status(&strict, "GET", true, &websocket), 403);
        assert_eq!(status(&strict, "GET", true, &[websocket[0], ("origin", "https://shop.example:8443")]), 200);
    }

    #[test]
    fn more_may_be_allowed() {
        let lenient = of(
            json!({ "allow_origins": ["https://*.partner.example"], "allow_same_site": true, "allow_missing": true }),
        );
        for (fields, passes) in [
            (&[][..], true),
            (&[("sec-fetch-site", "same-site")], true),
            (&[("sec-fetch-site", "cross-site"), ("origin", "https://a.partner.example")], true),
            (&[("sec-fetch-site", "cross-site"), ("origin", "https://partner.example")], false),
            (&[("origin", "https://a.partner.example.evil.example")], false),
            (&[("origin", "null")], false),
        ] {
            assert_eq!(status(&lenient, "POST", true, fields), if passes { 200 } else { 403 }, "{fields:?}");
        }
    }

    #[test]
    fn what_would_allow_every_site_is_an_issue() {
        for open in ["*", "null"] {
            assert_eq!(
                issue("csrf", json!({ "allow_origins": ["https://a.example", open] })),
                "allow_origins/1: it would allow the pages of any site (name the origins, or leave the filter out)"
            );
        }
        let told = issue("csrf", json!({ "allow_origins": ["a.example"] }));
        assert_eq!(told, "allow_origins/0: `a.example` is not an origin (write `https://a.example`)");
    }
}
