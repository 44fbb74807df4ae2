//! `maintenance`.

#[cfg(test)]
mod tests;

use model::fields::is_field_value;
use model::{Cidr, Issue, LocalResponse, RequestHead};
use schemars::JsonSchema;
use serde::Deserialize;

use super::settings::{DurationText, FileText, Settings};
use super::{Compiling, FilterEntry, Flow, RequestStep, Steps, Turn};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<Maintenance>("maintenance", DOC);

const DOC: &str = r#"Answers all requests with a maintenance page while a switch is on.

The switch is `on: true` or `on: false`, or a `file` whose first word is `on` or `off`; an empty file is `off`. The file is watched:
`echo on > maintenance.txt` takes effect within seconds, without a reload by hand. The program has read the file before it starts, so it
must exist.

Requests get `status` (503 by default) with the text of the file `page`, or a line of text, and `retry-after` if it is given. The response
has `cache-control: no-store`. Clients whose address is in `except` pass, such as the team that tests the new version. Later filters do not
see the request, but those that change responses apply. Clients of gRPC get `UNAVAILABLE`.

```yaml
filters:
  - maintenance: { on: true, retry_after: 10m, except: [10.0.0.0/8] }
```
"#;

const PAGE_BYTES_MAX: usize = 1 << 20;

/// When, and what clients get.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Maintenance {
    /// Whether requests are answered here.
    on: Option<bool>,
    /// A file whose first word is `on` or `off`.
    file: Option<FileText>,
    /// Status of the response, from 400 to 599; 503 by default.
    #[schemars(range(min = 400, max = 599))]
    status: Option<u16>,
    /// Value of `retry-after`, in whole seconds rounded up; none by default.
    retry_after: Option<DurationText>,
    /// A file with the page, up to 1 MiB; a line of text by default.
    page: Option<FileText>,
    /// Media type of the page; `text/html; charset=utf-8` by default.
    content_type: Option<String>,
    /// Addresses and networks of clients that pass.
    #[serde(default)]
    except: Vec<String>,
}

impl Settings for Maintenance {
    fn compile(self, _: &mut Compiling<'_>) -> Result<Steps, Issue> {
        let is_on = match (self.on, &self.file) {
            (Some(on), None) => on,
            (None, Some(file)) => is_on(file)?,
            _ => {
                let issue = Issue::at("", "exactly one of `on` and `file` is needed");
                return Err(issue.suggest("write `on: true`, or `file: maintenance.txt` with `on` or `off` in it"));
            }
        };
        let except = self.except.iter().enumerate().map(|(place, text)| {
            text.parse::<Cidr>().map_err(|message: String| Issue::at(format!("except/{place}"), message))
        });
        let except = except.collect::<Result<_, _>>()?;
        let status = self.status.unwrap_or(503);
        if !(400..600).contains(&status) {
            return Err(Issue::at("status", format!("{status} is not an error status")).suggest("use 400 to 599"));
        }
        if self.page.is_none() && self.content_type.is_some() {
            let issue = Issue::at("content_type", "`content_type` has no effect without `page`");
            return Err(issue.suggest("leave it out, or add `page`"));
        }
        let content_type = match (&self.page, self.content_type) {
            (None, _) => "text/plain; charset=utf-8".to_owned(),
            (Some(_), None) => "text/html; charset=utf-8".to_owned(),
            (Some(_), Some(given)) if given.is_empty() || !is_field_value(given.as_bytes()) => {
                return Err(Issue::at("content_type", "it is not a valid header field value"));
            }
            (Some(_), Some(given)) => given,
        };
        let body = self.page.map_or_else(|| "down for maintenance\n".to_owned(), |page| page.text).into_bytes();
        if body.len() > PAGE_BYTES_MAX {
            return Err(Issue::at("page", format!("the page has {} bytes, more than {PAGE_BYTES_MAX}", body.len())));
        }
        let mut fields = vec![
            ("content-type".to_owned(), content_type),
            // A cache that kept it would show it when the maintenance is over.
            ("cache-control".to_owned(), "no-store".to_owned()),
        ];
        if let Some(DurationText(time)) = self.retry_after {
            fields.push(("retry-after".to_owned(), time.as_millis().div_ceil(1_000).to_string()));
        }
        if !is_on {
            return Ok(Steps::default());
        }
        Ok(Steps::of_request(MaintenanceStep { answer: LocalResponse { status, fields, body }, except }))
    }
}

fn is_on(file: &FileText) -> Result<bool, Issue> {
    match file.text.split_ascii_whitespace().next() {
        None | Some("off") => Ok(false),
        Some("on") => Ok(true),
        Some(other) => {
            let shown: String = other.chars().take(20).collect();
            let issue = Issue::at("file", format!("`{}` begins with `{shown}`", file.name));
            Err(issue.suggest("write `on` or `off` into it"))
        }
    }
}

struct MaintenanceStep {
    answer: LocalResponse,
    except: Box<[Cidr]>,
}

impl RequestStep for MaintenanceStep {
    fn apply(&self, _: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        if self.except.iter().any(|network| network.contains(turn.facts.client)) {
            return Flow::Continue;
        }
        Flow::Respond(Box::new(self.answer.clone()))
    }
}
