//! `error_page`.

mod page;
mod preference;

use std::collections::BTreeMap;

use model::status::StatusRange;
use model::{Fault, FieldName, Issue, Known, LocalResponse, RequestHead, ResponseHead};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

use super::settings::{FileText, Settings, suggest_nearest};
use super::{Answers, Compiling, FilterEntry, Flow, ResponseSource, ResponseStep, ResponseView, Steps, Turn};
use page::{Escape, Page};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<ErrorPage>("error_page", DOC);

const DOC: &str = r#"Shows a page of your own in place of an error.

`status` selects errors by status (`404`, `5xx`, `500-503`, or a list of them), `faults` by the label of their fault
([faults](faults.md)); if both are given, both must match. The page is a text (`body`) or a file (`file`, at most 1 MiB, read
again when it changes). In it, `{status}`, `{reason}`, `{fault}`, `{request_id}` and every other
[variable](#variables) are replaced by their values, escaped for HTML, XML and JSON by the content type; all other braces
are kept, so style sheets and scripts need no escaping.

It replaces responses of the proxy itself with a status from 400 on: faults, responses of filters and fixed responses of the route.
Their fields are kept (`retry-after`, `www-authenticate`), except the content type. With `intercept: true` it also replaces responses of
endpoints with that status: their body is dropped, and of their fields `www-authenticate`, `proxy-authenticate`, `allow`,
`retry-after` and `set-cookie` are kept. gRPC responses and upgraded connections are never changed. A request without a matching
route has no filters; add a last route with `respond: { status: 404 }`, which has.

List the filter once for each page. If several match, the client's `accept` selects the content type, and among equals the
first is used: so an API gets JSON and a browser HTML.

```yaml
filters:
  - error_page: { status: 5xx, body: "<h1>Sorry</h1><p>{status} {reason}, {request_id}" }
  - error_page:
      status: [404, 5xx]
      content_type: application/json
      body: '{"status": {status}, "request": "{request_id}"}'
      intercept: true
```
"#;

/// Bytes of a page before variables are filled in.
const PAGE_BYTES_MAX: usize = 1 << 20;

/// A page, and what it is shown for.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ErrorPage {
    /// Statuses that the page replaces: `404`, `5xx`, `500-503`, or a list of them, from 400 on. By default all of them.
    #[serde(default)]
    status: Statuses,
    /// Labels of the faults that the page is shown for. By default any fault, or none.
    #[serde(default)]
    faults: Vec<String>,
    /// The page.
    body: Option<String>,
    /// A file with the page.
    file: Option<FileText>,
    /// Content type of the page; `text/html; charset=utf-8` by default.
    #[serde(default = "html")]
    content_type: String,
    /// Further header fields of the response.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// The status that the client gets; by default that of the error.
    #[serde(rename = "as")]
    #[schemars(range(min = 200, max = 599))]
    answered: Option<u16>,
    /// Replace responses of endpoints, too.
    #[serde(default)]
    intercept: bool,
}

fn html() -> String {
    "text/html; charset=utf-8".to_owned()
}

/// One status or several as they are written.
#[derive(Default)]
struct Statuses {
    texts: Vec<String>,
    is_list: bool,
}

impl<'de> Deserialize<'de> for Statuses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = |value: &Value| match value {
            Value::Number(number) => Ok(number.to_string()),
            Value::String(text) => Ok(text.clone()),
            other => Err(de::Error::custom(format!("{other} is not a status"))),
        };
        match Value::deserialize(deserializer)? {
            Value::Array(list) => Ok(Self { texts: list.iter().map(text).collect::<Result<_, _>>()?, is_list: true }),
            one => Ok(Self { texts: vec![text(&one)?], is_list: false }),
        }
    }
}

impl JsonSchema for Statuses {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Statuses".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "type": ["integer", "string"] },
            { "type": "array", "items": { "type": ["integer", "string"] }, "minItems": 1 },
        ] })
    }
}

impl Statuses {
    fn compile(&self) -> Result<Box<[StatusRange]>, Issue> {
        let one = |(place, text): (usize, &String)| {
            let path = if self.is_list { format!("status/{place}") } else { "status".to_owned() };
            let range: StatusRange = text.parse().map_err(|message: String| Issue::at(&path, message))?;
            if range.first() < 400 {
                return Err(Issue::at(path, format!("`{text}` is no error: only statuses from 400 on have pages")));
            }
            Ok(range)
        };
        self.texts.iter().enumerate().map(one).collect()
    }
}

impl Settings for ErrorPage {
    fn compile(self, _: &mut Compiling<'_>) -> Result<Steps, Issue> {
        let statuses = self.status.compile()?;
        let faults = faults(&self.faults)?;
        let (key, text) = match (self.body, self.file) {
            (Some(text), None) => ("body", text),
            (None, Some(file)) => ("file", file.text),
            (None, None) => return Err(Issue::at("", "there is no page").suggest("add `body` or `file`")),
            (Some(_), Some(_)) => {
                return Err(Issue::at("file", "`body` and `file` exclude each other").suggest("keep one of them"));
            }
        };
        if text.len() > PAGE_BYTES_MAX {
            return Err(Issue::at(key, format!("the page is larger than {PAGE_BYTES_MAX} bytes")));
        }
        if let Some(status @ (204 | 205 | 304)) = self.answered {
            return Err(Issue::at("as", format!("a response with status {status} has no body")));
        }
        if self.answered.is_some_and(|status| !(200..600).contains(&status)) {
            return Err(Issue::at("as", "a status is between 200 and 599"));
        }
        if !model::fields::is_field_value(self.content_type.as_bytes()) || !self.content_type.contains('/') {
            let issue = Issue::at("content_type", format!("`{}` is not a content type", self.content_type));
            return Err(issue.suggest("write one such as `text/html; charset=utf-8`"));
        }
        let page = Page::compile(&text, Escape::of(&self.content_type)).map_err(|issue| issue.below(key))?;
        let mut fields = vec![("content-type".to_owned(), self.content_type.clone())];
        for (name, value) in self.headers {
            fields.push(field(name, value)?);
        }
        let media_type = preference::media_type(&self.content_type);
        let (answered, intercepts) = (self.answered, self.intercept);
        Ok(Steps::of_response(ErrorPageStep { statuses, faults, page, media_type, fields, answered, intercepts }))
    }
}

fn faults(labels: &[String]) -> Result<Box<[Fault]>, Issue> {
    let answered = || Fault::ALL.iter().filter(|fault| fault.consequence().status != 0);
    let one = |(place, label): (usize, &String)| {
        let path = format!("faults/{place}");
        match Fault::ALL.iter().find(|fault| fault.consequence().label == label) {
            Some(fault) if fault.consequence().status != 0 => Ok(*fault),
            Some(_) => Err(Issue::at(path, format!("no response is possible after `{label}`"))),
            None => {
                let issue = Issue::at(path, format!("there is no fault `{label}`"));
                Err(suggest_nearest(issue, label, answered().map(|fault| fault.consequence().label)))
            }
        }
    };
    labels.iter().enumerate().map(one).collect()
}

fn field(name: String, value: String) -> Result<(String, String), Issue> {
    let path = format!("headers/{name}");
    let known = FieldName::new(&name).map_err(|message| Issue::at(&path, message))?.known();
    if known == Known::ContentLength || known == Known::TransferEncoding || known.is_hop_by_hop() {
        return Err(Issue::at(path, format!("`{name}` is written by the proxy itself")));
    }
    if name.eq_ignore_ascii_case("content-type") {
        return Err(Issue::at(path, "set the content type with `content_type`"));
    }
    if !model::fields::is_field_value(value.as_bytes()) {
        return Err(Issue::at(path, "the value of a header field cannot contain control characters"));
    }
    Ok((name, value))
}

struct ErrorPageStep {
    /// None: any.
    statuses: Box<[StatusRange]>,
    /// None: any, and what is no fault.
    faults: Box<[Fault]>,
    page: Page,
    /// Of the content type, in lower case.
    media_type: Box<str>,
    fields: Vec<(String, String)>,
    answered: Option<u16>,
    intercepts: bool,
}

impl ErrorPageStep {
    fn fits(&self, status: u16, source: ResponseSource) -> bool {
        let fault = match source {
            ResponseSource::Endpoint if !self.intercepts => return false,
            ResponseSource::Endpoint => None,
            ResponseSource::Local(fault) => fault,
        };
        let fits_status = self.statuses.is_empty() || self.statuses.iter().any(|range| range.contains(status));
        let fits_fault = self.faults.is_empty() || fault.is_some_and(|fault| self.faults.contains(&fault));
        status >= 400 && fits_status && fits_fault
    }

    /// Returns the fields of the error that stay, but for those that the page has itself: of an answer that is made here all that are not
    /// about its body, of an endpoint's what the client needs to go on.
    fn kept(&self, head: &ResponseHead, source: ResponseSource) -> impl Iterator<Item = (String, String)> {
        const OF_ENDPOINT: [&[u8]; 4] = [b"www-authenticate", b"proxy-authenticate", b"allow", b"retry-after"];
        const NOT_OF_LOCAL: [&[u8]; 3] = [b"content-type", b"content-length", b"date"];
        let is_any = |names: &[&[u8]], name: &[u8]| names.iter().any(|one| one.eq_ignore_ascii_case(name));
        let stays = move |name: &[u8]| match source {
            ResponseSource::Endpoint => is_any(&OF_ENDPOINT, name),
            ResponseSource::Local(_) => !is_any(&NOT_OF_LOCAL, name),
        };
        let is_own = |name: &str| self.fields.iter().any(|(own, _)| own.eq_ignore_ascii_case(name));
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        let kept = head.fields.iter().filter(move |field| stays(field.name));
        kept.filter_map(move |field| Some((text(field.name)?, text(field.value)?)))
            .filter(move |(name, _)| !is_own(name))
    }
}

impl ResponseStep for ErrorPageStep {
    fn answers(&self) -> Answers {
        if self.intercepts { Answers::All } else { Answers::Local }
    }

    fn liking(&self, request: &RequestHead) -> u16 {
        preference::liking(request, &self.media_type)
    }

    fn answer(&self, head: &ResponseHead, view: &ResponseView<'_>, turn: &mut Turn<'_>) -> Flow {
        if !self.fits(head.status, view.source) {
            return Flow::Continue;
        }
        let mut fields = self.fields.clone();
        fields.extend(self.kept(head, view.source));
        let mut body = Vec::new();
        self.page.write((head, view), turn, &mut body);
        Flow::Respond(Box::new(LocalResponse { status: self.answered.unwrap_or(head.status), fields, body }))
    }
}

#[cfg(test)]
mod tests;
