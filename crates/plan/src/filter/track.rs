//! `track`.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use model::table::{Counter, Reading};
use model::{Issue, RequestHead, ResponseHead};
use schemars::JsonSchema;
use serde::Deserialize;

use super::settings::Settings;
use super::tables::KeyedTable;
use super::{AtEnd, Compiling, Ended, FilterEntry, Flow, RequestStep, ResponseStep, ResponseView, Steps, Turn};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<Track>("track", DOC);

const DOC: &str = r#"Counts a request in a table of `tables`, by the key of that table.

`requests` and its rate are counted when the request passes this filter; `errors`, `failures`, `bytes_in` and `bytes_out` when its exchange
ends, however it ends. A table that does not count one of these passes over it. Conditions read what was counted: `when: { table: … }`. Put
this filter before them, so that the request itself is counted. Responses of later filters, such as a refusal with 403, count as `errors`.

`mark: request` adds one to `marks` instead, when the request passes this filter, and `mark: response`, when its response does. Together
with `when`, these count whatever conditions can tell, such as responses with 401.

```yaml
filters:
  - track: { table: abuse }
  - track: { table: abuse, mark: response }
    when: { status: 401 }
```
"#;

/// Where and what to count.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Track {
    /// Name of the table.
    table: String,
    /// Add one to `marks`, and count nothing else.
    mark: Option<Mark>,
}

/// When a mark is made.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Mark {
    /// When the request passes the filter.
    Request,
    /// When the response passes the filter.
    Response,
}

impl Settings for Track {
    fn compile(self, compiling: &mut Compiling<'_>) -> Result<Steps, Issue> {
        let Some(table) = KeyedTable::find(compiling, &self.table, "table")? else { return Ok(self.unknown()) };
        let marks = [false, true].map(|is_rate| Reading { counter: Counter::Marks, is_rate });
        if self.mark.is_some() && !marks.iter().any(|reading| table.table.has(*reading)) {
            let issue = Issue::at("mark", format!("the table `{}` does not count `marks`", self.table));
            return Err(issue.suggest("add `marks` to its `counters` or `rates`"));
        }
        Ok(match self.mark {
            None => Steps::of_request(TrackStep(Arc::new(Tracked(table)))),
            Some(Mark::Request) => Steps::of_request(MarkStep(table)),
            Some(Mark::Response) => Steps::of_response(MarkStep(table)),
        })
    }
}

impl Track {
    /// The steps of settings that are only checked, where tables are not known.
    fn unknown(&self) -> Steps {
        match self.mark {
            Some(Mark::Response) => Steps::of_response(NoStep),
            _ => Steps::of_request(NoStep),
        }
    }
}

struct NoStep;

impl RequestStep for NoStep {
    fn apply(&self, _: &mut RequestHead, _: &mut Turn<'_>) -> Flow {
        Flow::Continue
    }
}

impl ResponseStep for NoStep {}

struct TrackStep(Arc<Tracked>);

/// What counts a request at the end of its exchange.
struct Tracked(KeyedTable);

impl RequestStep for TrackStep {
    fn apply(&self, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        if !turn.is_rehearsal {
            let count = [(Counter::Requests, 1)];
            let entry =
                self.0.0.with_key(head, turn, |table, key, turn| table.count(key, &count, turn.now, turn.chance));
            turn.notes.at_end(Arc::clone(&self.0) as Arc<dyn AtEnd>, entry);
        }
        Flow::Continue
    }
}

impl AtEnd for Tracked {
    fn at_end(&self, entry: u64, ended: &Ended) {
        let Some(now) = ended.now else { return };
        let is_error = (400..500).contains(&ended.status);
        // A client that goes away has not failed, and neither has the endpoint.
        let is_failure = ended.status >= 500 || ended.status == 0 && ended.is_our_failure();
        let amounts = [
            (Counter::Errors, u64::from(is_error)),
            (Counter::Failures, u64::from(is_failure)),
            (Counter::BytesIn, ended.received_bytes),
            (Counter::BytesOut, ended.sent_bytes),
        ];
        self.0.table.count_more(entry, &amounts, now);
    }
}

struct MarkStep(KeyedTable);

impl MarkStep {
    fn mark(&self, head: &RequestHead, turn: &mut Turn<'_>) {
        if !turn.is_rehearsal {
            let count = [(Counter::Marks, 1)];
            self.0.with_key(head, turn, |table, key, turn| table.count(key, &count, turn.now, turn.chance));
        }
    }
}

impl RequestStep for MarkStep {
    fn apply(&self, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        self.mark(head, turn);
        Flow::Continue
    }
}

impl ResponseStep for MarkStep {
    fn apply(&self, _: &mut ResponseHead, view: &ResponseView<'_>, turn: &mut Turn<'_>) {
        self.mark(view.request, turn);
    }
}
