//! Endpoints and routes from the labels of containers, by the API of the engine.
//!
//! ```text
//!  open the stream of events ─▶ list containers ─▶ state ─▶ an event, or long silence ─┐
//!                                    ▲                                                  │
//!                                    └──────────────── a moment for more ◀──────────────┘
//! ```
//! Paths carry no version: the engine answers as its newest does, and what is read is there since 1.24.

mod containers;

use std::time::Duration;

use model::provider::DockerProvider;
use serde_json::{Value, json};

use super::Sink;
use super::backoff::backoff;
use super::client::{Client, Request, Response};

use containers::{Checked, read};

/// Bytes of a list of containers.
const BYTES_MAX: u64 = 64 << 20;
const CONTAINERS_MAX: usize = 10_000;
/// Several events that come together are one change.
const GATHERED_FOR: Duration = Duration::from_millis(50);
/// A stream that says nothing for so long may be dead: everything is asked for again.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// An engine that does not begin its stream of events so soon is asked for its containers meanwhile.
const HEAD_WAIT: Duration = Duration::from_millis(500);
/// What changes which containers can be reached.
const EVENTS: [&str; 9] =
    ["start", "die", "destroy", "pause", "unpause", "health_status", "connect", "disconnect", "rename"];

/// Lists and watches containers.
pub(super) async fn run(settings: DockerProvider, sink: Sink) {
    let mut failures = 0;
    let mut checked = Checked::after(&sink.known());
    loop {
        let mut has_listed = false;
        let ended = follow((&settings, &mut checked), &sink, &mut has_listed).await;
        if has_listed {
            failures = 0;
        }
        if let Err(why) = ended {
            sink.failed(&why);
            failures += 1;
            tokio::time::sleep(backoff(failures, sink.name())).await;
        }
    }
}

/// `Ok`: it is time to begin anew.
async fn follow(
    (settings, checked): (&DockerProvider, &mut Checked),
    sink: &Sink,
    has_listed: &mut bool,
) -> Result<(), String> {
    let client = Client::new(&settings.origin)?;
    let filters = json!({ "type": ["container", "network"], "event": EVENTS }).to_string();
    let path = format!("/events?filters={}", encoded(&filters));
    let mut opening = Box::pin(open(&client, &path));
    // Docker answers at once, Podman with its first event.
    let mut events = match tokio::time::timeout(HEAD_WAIT, &mut opening).await {
        Ok(opened) => Some(opened?),
        Err(_) => None,
    };
    loop {
        let (state, problems) = read(&list(&client, settings).await?, settings, sink.name(), checked);
        *has_listed = true;
        sink.send(state);
        sink.leave_out(problems);
        let event = async {
            match &mut events {
                Some(stream) => stream.chunk().await?.map(drop).ok_or_else(|| "the stream of events ended".to_owned()),
                none => {
                    *none = Some(opening.as_mut().await?);
                    // What changed since the list is not among its events.
                    Ok(())
                }
            }
        };
        match tokio::time::timeout(SILENCE_MAX, event).await {
            Err(_) => return Ok(()),
            Ok(event) => event?,
        }
        tokio::time::sleep(GATHERED_FOR).await;
    }
}

/// The stream of events.
async fn open(client: &Client, path: &str) -> Result<Response, String> {
    let events = client.ask(Request { method: "GET", path, ..Request::default() }).await?;
    if events.status == 200 { Ok(events) } else { Err(format!("status {} for events", events.status)) }
}

async fn list(client: &Client, settings: &DockerProvider) -> Result<Vec<Value>, String> {
    // A value that is neither `true` nor `false` is reported.
    let label = format!("{}.enable", settings.prefix);
    let path = match settings.all {
        true => "/containers/json".to_owned(),
        false => format!("/containers/json?filters={}", encoded(&json!({ "label": [label] }).to_string())),
    };
    let mut response = client.send(Request { method: "GET", path: &path, ..Request::default() }).await?;
    let body = tokio::time::timeout(settings.origin.timeout, response.whole(BYTES_MAX)).await;
    let body = body.unwrap_or_else(|_| Err("the list of containers does not end".to_owned()))?;
    if response.status != 200 {
        return Err(format!("status {} for the list of containers", response.status));
    }
    match serde_json::from_slice(&body) {
        Ok(Value::Array(all)) if all.len() > CONTAINERS_MAX => {
            Err(format!("there are more than {CONTAINERS_MAX} containers"))
        }
        Ok(Value::Array(all)) => Ok(all),
        Ok(_) => Err("the list of containers is not a list".to_owned()),
        Err(error) => Err(format!("the list of containers is not JSON: {error}")),
    }
}

fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests;
