//! `client_certificate`.

use model::facts::{ClientNames, TlsFacts};
use model::{Issue, RequestHead};
use schemars::JsonSchema;
use serde::Deserialize;

use super::pattern::NamePattern;
use super::settings::Settings;
use super::{Compiling, EventCounter, FilterEntry, Flow, RequestStep, Steps, Turn};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<ClientCertificate>("client_certificate", DOC);

const DOC: &str = r#"Requires a client certificate with certain names.

The listener verifies the certificate: its `tls` needs `client: { mode: required }`, or `optional` if other routes are open to all. The
filter then compares the names in it. A request passes if the certificate has one name of any of these lists:

- `dns_names`, `uris`, `emails`: subject alternative names. Case is ignored in DNS names;
- `spiffe_ids`: the URI of a SPIFFE ID, if it is the only URI of the certificate, as X509-SVID has it;
- `common_names`: the most specific common name of the subject;
- `subjects`: the whole subject, as RFC 4514 writes it (`CN=ann,OU=Ops,O=Acme`), see `{tls_client_subject}`.

With `issuers`, the certificate must also be from one of these issuers, which are written like subjects. Without any other list every
certificate of these issuers passes. A text may begin or end with `*`, as in `spiffe://prod.example/ns/web/*` and `*.internal.example`.

All other requests get 403, and `equipoise_filter_events_total` counts them as `refused`. `{user}` is the name that was found.

```yaml
filters:
  - client_certificate: { spiffe_ids: ["spiffe://prod.example/ns/web/*"], dns_names: [batch.internal.example] }
```
"#;

/// Which certificates pass.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ClientCertificate {
    /// DNS names of the certificate.
    #[serde(default)]
    dns_names: Vec<String>,
    /// URIs of the certificate.
    #[serde(default)]
    uris: Vec<String>,
    /// SPIFFE IDs of the certificate.
    #[serde(default)]
    spiffe_ids: Vec<String>,
    /// Mail addresses of the certificate.
    #[serde(default)]
    emails: Vec<String>,
    /// Common names of the subject.
    #[serde(default)]
    common_names: Vec<String>,
    /// Subjects, as RFC 4514 writes them.
    #[serde(default)]
    subjects: Vec<String>,
    /// Issuers of which the certificate must be from one, as RFC 4514 writes them.
    #[serde(default)]
    issuers: Vec<String>,
}

impl Settings for ClientCertificate {
    fn compile(self, compiling: &mut Compiling<'_>) -> Result<Steps, Issue> {
        if let Some(place) = self.spiffe_ids.iter().position(|id| !id.starts_with("spiffe://") || id.len() < 10) {
            let issue =
                Issue::at(format!("spiffe_ids/{place}"), format!("`{}` is not a SPIFFE ID", self.spiffe_ids[place]));
            return Err(issue.suggest("write one such as `spiffe://prod.example/ns/web/*`"));
        }
        let step = ClientCertificateStep {
            dns_names: patterns("dns_names", &self.dns_names)?,
            uris: patterns("uris", &self.uris)?,
            spiffe_ids: patterns("spiffe_ids", &self.spiffe_ids)?,
            emails: patterns("emails", &self.emails)?,
            common_names: patterns("common_names", &self.common_names)?,
            subjects: patterns("subjects", &self.subjects)?,
            issuers: patterns("issuers", &self.issuers)?,
            refused: compiling.counter("refused"),
        };
        if step.names_no_one() && step.issuers.is_empty() {
            let issue = Issue::at("", "no name is listed, so every request would be rejected");
            return Err(issue.suggest("add `dns_names`, `spiffe_ids`, `common_names`, `issuers` or another list"));
        }
        Ok(Steps::of_request(step))
    }
}

fn patterns(key: &str, list: &[String]) -> Result<Box<[NamePattern]>, Issue> {
    let parse = |(place, text): (usize, &String)| {
        NamePattern::parse(text).map_err(|issue| issue.below(&format!("{key}/{place}")))
    };
    list.iter().enumerate().map(parse).collect()
}

struct ClientCertificateStep {
    dns_names: Box<[NamePattern]>,
    uris: Box<[NamePattern]>,
    spiffe_ids: Box<[NamePattern]>,
    emails: Box<[NamePattern]>,
    common_names: Box<[NamePattern]>,
    subjects: Box<[NamePattern]>,
    issuers: Box<[NamePattern]>,
    refused: EventCounter,
}

impl ClientCertificateStep {
    fn names_no_one(&self) -> bool {
        let lists = [&self.dns_names, &self.uris, &self.spiffe_ids, &self.emails, &self.common_names, &self.subjects];
        lists.iter().all(|list| list.is_empty())
    }

    /// Returns the name by which a certificate passes.
    fn passes<'a>(&self, tls: &'a TlsFacts) -> Option<&'a str> {
        // Without a subject there was no certificate.
        let subject = tls.client_subject.as_deref()?;
        let names = tls.client_names.as_deref();
        if !self.issuers.is_empty() {
            let issuer = names?.issuer.as_deref()?;
            self.issuers.iter().find(|known| known.is(issuer.as_bytes()))?;
        }
        if self.names_no_one() {
            return Some(subject);
        }
        let is = |list: &[NamePattern], name: &&str| list.iter().any(|known| known.is(name.as_bytes()));
        let is_host = |name: &&str| self.dns_names.iter().any(|known| known.is_field(name.as_bytes()));
        let in_names = names.and_then(|names| {
            let dns = || names.dns.iter().map(String::as_str).find(is_host);
            let uri = || names.uris.iter().map(String::as_str).find(|uri| is(&self.uris, uri));
            let email = || names.emails.iter().map(String::as_str).find(|email| is(&self.emails, email));
            let spiffe = || spiffe_id(names).filter(|id| is(&self.spiffe_ids, id));
            spiffe().or_else(uri).or_else(dns).or_else(email)
        });
        let common = || tls.client_common_name.as_deref().filter(|name| is(&self.common_names, name));
        in_names.or_else(common).or_else(|| Some(subject).filter(|subject| is(&self.subjects, subject)))
    }
}

/// Returns the SPIFFE ID of a certificate: its only URI, with a trust domain, without query and fragment (X509-SVID section 2, SPIFFE-ID
/// section 2).
fn spiffe_id(names: &ClientNames) -> Option<&str> {
    let [uri] = &names.uris[..] else { return None };
    let rest = uri.strip_prefix("spiffe://")?;
    let (domain, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let is_domain = !domain.is_empty()
        && domain.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-._".contains(&b));
    let is_path = path.split('/').skip(1).all(|segment| {
        let is_plain = segment.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
        is_plain && !matches!(segment, "" | "." | "..")
    });
    (is_domain && is_path).then_some(uri)
}

impl RequestStep for ClientCertificateStep {
    fn apply(&self, _: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        match turn.facts.tls.and_then(|tls| self.passes(tls)) {
            Some(name) => {
                turn.notes.set_user(name.as_bytes());
                Flow::Continue
            }
            None => {
                turn.count(&self.refused);
                Flow::refuse(403, "a client certificate with a known name is required")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use model::Facts;
    use serde_json::{Value, json};

    use super::super::Flow;
    use super::super::testing::{Beside, World, chain, issue, request};
    use super::*;

    fn certificate() -> TlsFacts {
        let text = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        TlsFacts {
            client_subject: Some("CN=web,OU=Ops,O=Acme".into()),
            client_common_name: Some("web".into()),
            client_names: Some(Box::new(ClientNames {
                issuer: Some("CN=Ours,O=Acme".into()),
                dns: text(&["Web.internal.example", "b.example"]),
                uris: text(&["spiffe://prod.example/ns/web/sa/main"]),
                emails: text(&["ops@acme.example"]),
                ..ClientNames::default()
            })),
            ..TlsFacts::default()
        }
    }

    /// The name by which a certificate passes.
    fn user(settings: &Value, tls: Option<&TlsFacts>) -> Option<String> {
        let (chain, world, mut beside) =
            (chain(json!([{ "client_certificate": settings }])), World::new(), Beside::new());
        let facts = Facts { tls, ..world.facts() };
        match chain.on_request(&mut request("GET", "/", &[]), &mut beside.turn(&facts)) {
            Flow::Continue => Some(String::from_utf8(beside.notes.user().unwrap().to_vec()).unwrap()),
            Flow::Respond(local) if local.status == 403 => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn any_listed_name_lets_a_certificate_pass_and_is_the_user() {
        let tls = certificate();
        for (settings, name) in [
            (json!({ "dns_names": ["*.INTERNAL.example"] }), Some("Web.internal.example")),
            (json!({ "dns_names": ["a.example", "b.example"] }), Some("b.example")),
            (json!({ "dns_names": ["example"] }), None),
            (json!({ "spiffe_ids": ["spiffe://prod.example/ns/web/*"] }), Some("spiffe://prod.example/ns/web/sa/main")),
            (json!({ "spiffe_ids": ["spiffe://prod.example/ns/we/*"] }), None),
            (json!({ "spiffe_ids": ["spiffe://prod.example/ns/web"] }), None),
            (json!({ "uris": ["*/main"] }), Some("spiffe://prod.example/ns/web/sa/main")),
            (json!({ "emails": ["ops@acme.example"] }), Some("ops@acme.example")),
            (json!({ "emails": ["OPS@acme.example"] }), None),
            (json!({ "common_names": ["web"] }), Some("web")),
            (json!({ "common_names": ["Web"] }), None),
            (json!({ "subjects": ["*,OU=Ops,O=Acme"] }), Some("CN=web,OU=Ops,O=Acme")),
            (json!({ "issuers": ["CN=Ours,O=Acme"] }), Some("CN=web,OU=Ops,O=Acme")),
            (json!({ "issuers": ["CN=Theirs,O=Acme"], "common_names": ["web"] }), None),
            (json!({ "issuers": ["CN=Ours,*"], "common_names": ["web"] }), Some("web")),
            (json!({ "issuers": ["CN=Ours,*"], "common_names": ["db"] }), None),
            (json!({ "common_names": ["db"], "emails": ["ops@*"] }), Some("ops@acme.example")),
        ] {
            assert_eq!(user(&settings, Some(&tls)).as_deref(), name, "{settings}");
        }
    }

    #[test]
    fn without_tls_or_a_certificate_no_request_passes() {
        for settings in [json!({ "common_names": ["*web*"] }), json!({ "issuers": ["CN=Ours*"] })] {
            assert_eq!(user(&settings, None), None);
            assert_eq!(user(&settings, Some(&TlsFacts::default())), None);
        }
        let bare = TlsFacts { client_subject: Some("CN=web".into()), ..TlsFacts::default() };
        assert_eq!(user(&json!({ "issuers": ["CN=Ours*"] }), Some(&bare)), None);
    }

    #[test]
    fn only_a_single_well_formed_uri_is_a_spiffe_id() {
        let settings = json!({ "spiffe_ids": ["spiffe://prod.example/*"] });
        for (uris, passes) in [
            (&["spiffe://prod.example/a"][..], true),
            (&["spiffe://prod.example/a", "https://x.example/"], false),
            (&["spiffe://prod.example/a", "spiffe://prod.example/b"], false),
            (&["spiffe://prod.example/a?b"], false),
            (&["spiffe://prod.example/a#b"], false),
            (&["spiffe://prod.example/../a"], false),
            (&["spiffe://prod.example//a"], false),
            (&["SPIFFE://prod.example/a"], false),
            (&["spiffe://prod.example:80/a"], false),
            (&["spiffe://evil@prod.example/a"], false),
            (&[], false),
        ] {
            let mut tls = certificate();
            tls.client_names.as_mut().unwrap().uris = uris.iter().map(|uri| (*uri).to_owned()).collect();
            assert_eq!(user(&settings, Some(&tls)).is_some(), passes, "{uris:?}");
        }
    }

    #[test]
    fn mistakes_are_reported_with_their_place() {
        for (settings, told) in [
            (
                json!({}),
                ": no name is listed, so every request would be rejected (add `dns_names`, `spiffe_ids`, `common_names`, `issuers` or another list)",
            ),
            (
                json!({ "spiffe_ids": ["prod.example/a"] }),
                "spiffe_ids/0: `prod.example/a` is not a SPIFFE ID (write one such as `spiffe://prod.example/ns/web/*`)",
            ),
            (
                json!({ "uris": ["a", "*"] }),
                "uris/1: `*` matches every name (write a name, or a part of one with `*`, such as `x-internal-*`)",
            ),
        ] {
            assert_eq!(issue("client_certificate", settings), told);
        }
    }
}
