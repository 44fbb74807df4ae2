//! A document that is asked for by HTTP again and again.

use std::time::Duration;

use model::provider::HttpProvider;
use tokio::time::Instant;

use super::backoff::{backoff, jittered};
use super::client::{Client, Request};
use super::sink::Sink;
use crate::given::{State, Text};

/// What an answer says.
enum Answer {
    /// A document, and what it is known by.
    Document(String, Option<String>),
    /// As before.
    Unchanged,
}

pub(super) async fn run(settings: HttpProvider, sink: Sink) {
    let client = match Client::new(&settings.origin) {
        Ok(client) => client,
        Err(why) => return sink.failed(why),
    };
    let mut known: Option<String> = None;
    let mut failures = 0_u32;
    loop {
        let begun = Instant::now();
        let limit = settings.origin.timeout;
        let asked = tokio::time::timeout(limit, ask(&client, &settings, known.as_deref())).await;
        match asked.unwrap_or_else(|_| Err(format!("no complete response within {limit:?}"))) {
            Ok(Answer::Document(text, tag)) => {
                (known, failures) = (tag, 0);
                let scheme = if settings.origin.tls.is_some() { "https" } else { "http" };
                // A query may carry credentials.
                let path = settings.path.split('?').next().unwrap_or_default();
                let name = format!("{scheme}://{}{path}", settings.origin.host);
                sink.send(State::of_texts(vec![Text { name, folder: None, text }], false));
            }
            Ok(Answer::Unchanged) => {
                failures = 0;
                sink.unchanged();
            }
            Err(why) => {
                failures = failures.saturating_add(1);
                sink.failed(why);
            }
        }
        tokio::time::sleep_until(begun + wait(settings.interval, failures, sink.name())).await;
    }
}

/// From question to question: the interval, longer and longer while there is no answer.
fn wait(interval: Duration, failures: u32, name: &str) -> Duration {
    match failures {
        0 => jittered(interval, name),
        _ => backoff(failures, name).max(jittered(interval, name)),
    }
}

async fn ask(client: &Client, settings: &HttpProvider, known: Option<&str>) -> Result<Answer, String> {
    let mut fields = vec![("accept", "application/yaml, application/json, */*;q=0.1")];
    fields.extend(known.map(|tag| ("if-none-match", tag)));
    let request = Request { path: &settings.path, fields: &fields, ..Request::default() };
    let mut response = client.send(request).await?;
    match response.status {
        304 if known.is_some() => return Ok(Answer::Unchanged),
        200 => {}
        status => return Err(format!("answered {status}")),
    }
    let tag = response.field("etag");
    let body = response.whole(settings.size_max).await?;
    let text = String::from_utf8(body).map_err(|_| "the document is not UTF-8".to_owned())?;
    Ok(Answer::Document(text, tag))
}
