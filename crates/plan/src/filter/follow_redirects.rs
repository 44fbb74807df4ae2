//! `follow_redirects`, and what the data plane needs of it: where a request goes next.

#[cfg(test)]
mod tests;

use model::head::host_without_port;
use model::limits::TARGET_BYTES_MAX;
use model::{FieldName, Issue, Method, RequestHead, ResponseHead};
use schemars::JsonSchema;
use serde::Deserialize;

use super::redirected::{Followed, Redirected};
use super::settings::Settings;
use super::{
    Answers, Compiling, EventCounter, FilterEntry, Flow, Found, Need, ResponseSource, ResponseStep, ResponseView,
    Steps, Turn,
};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<FollowRedirects>("follow_redirects", DOC);

const DOC: &str = r#"Follows redirects of endpoints in the proxy, along the routes of the listener.

When an endpoint answers with one of `statuses` (301, 302, 303, 307 and 308) and a `location`, the request is routed again with the host,
path and query of `location`. The client gets the response of the last endpoint.

A `location` leads to a route, never to an address: its host is that of the request or one of `hosts`, and a route of the listener must match.
Scheme, port and fragment do not matter. In all other cases the client gets the redirect, and so it does after `max` redirects (3).

The filters of the next route run, too, on the request as the filters before have left it. For another host, `authorization`,
`proxy-authorization` and `cookie` are removed first. A request with a body is followed if the body is held, by `buffer` or
`retry: { body_max }`. After 303, and after 301 or 302 to a POST, the next request is a GET without a body (RFC 9110 section 15.4).
Upgrades and gRPC are not followed. Relative paths with `.` or `..` are not either.

With `field: x-accel-redirect`, a response with that field is followed whatever its status, as nginx does: its value is a path, perhaps with a
query. The next request is a GET, or a HEAD. It alone also reaches routes with `internal: true`, which clients cannot. So an application checks
who may have a file, and another endpoint sends it. The field never reaches the client, and redirects by status are then followed only if
`statuses` is given.

Retries, hedging, `mirror` and time-outs of each route apply to its own part. The client gets the response of the last endpoint, changed by the
filters of the last route. The access log has the last route, cluster and target, and `{redirects}` counts those that were followed. `timeout` of
the last route counts from the beginning of the request. `equipoise_filter_events_total` counts redirects that were `followed`, and `explain` does
not follow any.

```yaml
filters:
  - follow_redirects: { max: 2, statuses: [302, 307], hosts: [files.example.com] }
  - follow_redirects: { field: x-accel-redirect }
```
"#;

const STATUSES: [u16; 5] = [301, 302, 303, 307, 308];
const REDIRECTS: u8 = 3;
const REDIRECTS_MAX: u8 = 8;
const HOSTS_MAX: usize = 256;

/// Which redirects are followed.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FollowRedirects {
    /// Redirects of one request that are followed, from 1 to 8; 3 by default.
    #[schemars(range(min = 1, max = 8))]
    max: Option<u8>,
    /// Statuses that are followed; 301, 302, 303, 307 and 308 by default, none with `field`.
    #[schemars(length(min = 1, max = 5))]
    statuses: Option<Vec<u16>>,
    /// Hosts, beside that of the request, to which a `location` may lead; none by default.
    #[schemars(length(max = 256))]
    hosts: Option<Vec<String>>,
    /// A field of responses whose value is the path where the request goes on, such as `x-accel-redirect`.
    field: Option<String>,
}

impl Settings for FollowRedirects {
    fn compile(self, compiling: &mut Compiling<'_>) -> Result<Steps, Issue> {
        let max = self.max.unwrap_or(REDIRECTS);
        if !(1..=REDIRECTS_MAX).contains(&max) {
            return Err(Issue::at("max", format!("{max} is not from 1 to {REDIRECTS_MAX}")));
        }
        let field = self.field.as_deref().map(|name| FieldName::new(name).map_err(|told| Issue::at("field", told)));
        let field = field.transpose()?;
        let by_default = if field.is_some() { &[][..] } else { &STATUSES };
        let statuses = self.statuses.unwrap_or_else(|| by_default.to_vec());
        if let Some(place) = statuses.iter().position(|status| !STATUSES.contains(status)) {
            let issue = Issue::at(format!("statuses/{place}"), format!("{} is not a redirect", statuses[place]));
            return Err(issue.suggest("use 301, 302, 303, 307 and 308"));
        }
        let hosts = self.hosts.unwrap_or_default();
        if hosts.len() > HOSTS_MAX {
            return Err(Issue::at("hosts", format!("{} hosts are more than {HOSTS_MAX}", hosts.len())));
        }
        if let Some(place) = hosts.iter().position(|host| !is_host(host.as_bytes()) || host.contains(':')) {
            let issue = Issue::at(format!("hosts/{place}"), format!("`{}` is not a host", hosts[place]));
            return Err(issue.suggest("write a name such as `files.example.com`, without scheme, port and path"));
        }
        let location = FieldName::new("location").map_err(|message| Issue::at("", message))?;
        let followed = compiling.counter("followed");
        let hosts = hosts.into_iter().map(|host| host.to_ascii_lowercase()).collect();
        Ok(Steps::of_response(FollowStep { max, statuses: statuses.into(), hosts, location, field, followed }))
    }
}

struct FollowStep {
    max: u8,
    statuses: Box<[u16]>,
    /// In lower case.
    hosts: Box<[String]>,
    location: FieldName,
    field: Option<FieldName>,
    followed: EventCounter,
}

impl ResponseStep for FollowStep {
    fn answers(&self) -> Answers {
        Answers::All
    }

    fn answer(&self, head: &ResponseHead, view: &ResponseView<'_>, _: &mut Turn<'_>) -> Flow {
        if view.source != ResponseSource::Endpoint {
            return Flow::Continue;
        }
        let by_status = || self.next(head, view.request).filter(|_| self.statuses.contains(&head.status));
        match self.internal(head, view.request).or_else(by_status) {
            Some(to) => Flow::Need(Need::Redirect(Box::new(to))),
            None => Flow::Continue,
        }
    }

    fn apply(&self, head: &mut ResponseHead, view: &ResponseView<'_>, _: &mut Turn<'_>) {
        if let Some(field) = self.field.as_ref().filter(|_| view.source == ResponseSource::Endpoint) {
            head.fields.remove(field);
        }
    }

    /// It is not followed.
    fn resume(&self, _: &ResponseHead, _: Found<'_>, _: &ResponseView<'_>, _: &mut Turn<'_>) -> Flow {
        Flow::Continue
    }
}

impl FollowStep {
    /// Where a field of the response sends the request.
    fn internal(&self, head: &ResponseHead, request: &RequestHead) -> Option<Redirected> {
        let mut values = head.fields.all(self.field.as_ref()?);
        let path = values.next().filter(|path| values.next().is_none() && path.starts_with(b"/"))?;
        // It names no host, and what looks like one is a path.
        let target = path.iter().all(|byte| is_of_target(*byte)).then(|| path.to_vec());
        let target = target.filter(|target| target.len() <= TARGET_BYTES_MAX && !has_dots(target))?;
        let by_get = !matches!(request.method, Method::Get | Method::Head);
        Some(self.redirected((None, target), by_get, true))
    }

    fn redirected(&self, (authority, target): (Option<&[u8]>, Vec<u8>), by_get: bool, is_internal: bool) -> Redirected {
        let (authority, target, max) = (authority.map(Into::into), target.into(), self.max);
        Redirected { authority, target, by_get, is_internal, max, followed: Followed::of(&self.followed) }
    }

    /// Where the request goes next; `None`: the client decides.
    fn next(&self, head: &ResponseHead, request: &RequestHead) -> Option<Redirected> {
        let mut locations = head.fields.all(&self.location);
        let location = locations.next().filter(|_| locations.next().is_none())?;
        let (authority, target) = read(location, request)?;
        let authority = authority.filter(|authority| !authority.eq_ignore_ascii_case(request.authority()));
        if let Some(authority) = authority {
            let host = host_without_port(authority);
            let is_own = host.eq_ignore_ascii_case(request.host());
            let is_named = || self.hosts.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(host));
            if !is_own && !is_named() {
                return None;
            }
        }
        let by_get = match (head.status, request.method) {
            (_, Method::Head) => false,
            (303, _) | (301 | 302, Method::Post) => true,
            _ => false,
        };
        Some(self.redirected((authority, target), by_get, false))
    }
}

/// Reads a `location` (RFC 9110 section 10.2.2, RFC 3986 section 5.2): its authority if it has one, and path with query.
fn read<'a>(location: &'a [u8], request: &RequestHead) -> Option<(Option<&'a [u8]>, Vec<u8>)> {
    let end = location.iter().position(|byte| *byte == b'#').unwrap_or(location.len());
    let location = &location[..end];
    if !location.iter().all(|byte| is_of_target(*byte)) {
        return None;
    }
    let (authority, rest) = match behind_scheme(location)? {
        Some(behind) => {
            let end = behind.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(behind.len());
            let (authority, rest) = behind.split_at(end);
            (Some(Some(authority).filter(|authority| is_host(authority))?), rest)
        }
        None => (None, location),
    };
    let path = request.path();
    let target = match rest.first() {
        Some(b'/') => rest.to_vec(),
        Some(b'?') if authority.is_none() => [path, rest].concat(),
        _ if authority.is_some() => [&b"/"[..], rest].concat(),
        None => return None,
        Some(_) => {
            let folder = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
            [&path[..folder], rest].concat()
        }
    };
    let is_good = target.starts_with(b"/") && target.len() <= TARGET_BYTES_MAX && !has_dots(&target);
    is_good.then_some((authority, target))
}

/// Whether a byte may stand in a target.
fn is_of_target(byte: u8) -> bool {
    (b'!'..0x7f).contains(&byte) && !matches!(byte, b'\\' | b'"' | b'<' | b'>' | b'#')
}

/// What is behind `http://`, `https://` or `//`; `Some(None)`: there is neither. `None`: it is another scheme.
#[allow(clippy::option_option)]
fn behind_scheme(location: &[u8]) -> Option<Option<&[u8]>> {
    for scheme in [&b"https://"[..], b"http://", b"//"] {
        if location.get(..scheme.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(scheme)) {
            return Some(Some(&location[scheme.len()..]));
        }
    }
    // RFC 3986 section 4.2: the first segment of a relative path has no colon.
    let segment = location.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(location.len());
    (!location[..segment].contains(&b':')).then_some(None)
}

/// Whether it is a name or an address, perhaps with a port: no user, no path.
fn is_host(text: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'[' | b']');
    !text.is_empty() && text.iter().all(is_part)
}

/// Whether a segment of the path is `.` or `..`, also percent-encoded: what it stands for depends on who reads it.
fn has_dots(target: &[u8]) -> bool {
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    path.split(|byte| *byte == b'/').any(|segment| {
        let text = String::from_utf8_lossy(segment).to_ascii_lowercase().replace("%2e", ".");
        matches!(text.as_str(), "." | "..")
    })
}
