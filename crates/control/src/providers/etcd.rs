//! Endpoints and configuration from etcd, by its gateway for JSON.
//!
//! ```text
//!  range ─▶ pairs at revision R ─▶ watch from R + 1 ─▶ events ─┐
//!    ▲                                ▲     └──────────────────┘ a state after each batch
//!    └── the stream ended, was compacted, or was silent for long
//! ```
//! What is bound to a lease is deleted by etcd when the lease ends, so it leaves as anything else does.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use model::base64;
use model::provider::{EtcdProvider, Origin};
use serde_json::{Value, json};

use super::Sink;
use super::backoff::backoff;
use super::client::{Client, Request, Response};
use super::pairs::{PAIRS_MAX, Reader, end_of_prefix};

/// Bytes of one answer to a range, of one message of a watch, and of all pairs.
const BYTES_MAX: usize = 64 << 20;
/// Pairs of one page of a range.
const PAGE: usize = 1_000;
/// A watch that says nothing for so long may be dead: everything is asked for again.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// A watch that ends sooner is none that can be lived on.
const STEADY: Duration = Duration::from_secs(10);

/// Reads and watches a prefix.
pub(super) async fn run(settings: EtcdProvider, sink: Sink) {
    let origins = settings.origins.len();
    let (mut place, mut failures) = (0_usize, 0_usize);
    let mut reader = Reader::after(&sink.known());
    loop {
        let mut read_at: Option<Instant> = None;
        let origin = &settings.origins[place % origins];
        let ended = follow((origin, &settings), &sink, &mut reader, &mut read_at).await;
        let is_short = read_at.is_some_and(|at| at.elapsed() < STEADY);
        if read_at.is_some() {
            failures = 0;
        }
        match ended {
            Ok(()) if !is_short => continue,
            Ok(()) => {}
            Err(why) => sink.failed(&why),
        }
        (place, failures) = (place + 1, failures + 1);
        // Each of several is tried at once before there is a wait, but for one that answers and then ends the watch: between
        // members that all do that, everything would be asked for again and again without any.
        if is_short || failures.is_multiple_of(origins) {
            let rounds = u32::try_from(failures.div_ceil(origins)).unwrap_or(u32::MAX);
            tokio::time::sleep(backoff(rounds, sink.name())).await;
        }
    }
}

/// `Ok`: it is time to read everything again.
async fn follow(
    (origin, settings): (&Origin, &EtcdProvider),
    sink: &Sink,
    reader: &mut Reader,
    read_at: &mut Option<Instant>,
) -> Result<(), String> {
    let client = Client::new(origin)?;
    let token = authenticate(&client, settings).await?;
    let caller = Caller { client, token };
    let (mut pairs, revision) = caller.range(&settings.prefix).await?;
    *read_at = Some(Instant::now());
    tell(&pairs, reader, sink);
    let mut stream = caller.watch(&settings.prefix, revision + 1).await?;
    let mut lines = Lines::default();
    loop {
        let chunk = match tokio::time::timeout(SILENCE_MAX, stream.chunk()).await {
            Err(_) => return Ok(()),
            Ok(chunk) => chunk?.ok_or("the watch ended")?,
        };
        lines.push(&chunk)?;
        let mut has_changed = false;
        while let Some(message) = lines.next()? {
            match apply(&mut pairs, &settings.prefix, &message)? {
                Step::Changed => has_changed = true,
                Step::Nothing => {}
                Step::Again => return Ok(()),
            }
        }
        if has_changed {
            tell(&pairs, reader, sink);
        }
    }
}

fn tell(pairs: &BTreeMap<String, Vec<u8>>, reader: &mut Reader, sink: &Sink) {
    let (state, problems) = reader.state(pairs);
    sink.send(state);
    sink.leave_out(problems);
}

async fn authenticate(client: &Client, settings: &EtcdProvider) -> Result<Option<String>, String> {
    let Some((user, password)) = &settings.user else { return Ok(None) };
    let body = json!({ "name": user, "password": password });
    let answer = call(client, "/v3/auth/authenticate", &body, None).await?;
    match answer["token"].as_str() {
        Some(token) => Ok(Some(token.to_owned())),
        None => Err("no token for user and password".to_owned()),
    }
}

struct Caller {
    client: Client,
    token: Option<String>,
}

impl Caller {
    /// All pairs, by keys behind the prefix, as they were at one revision.
    async fn range(&self, prefix: &str) -> Result<(BTreeMap<String, Vec<u8>>, i64), String> {
        let end = base64::encode(&end_of_prefix(prefix.as_bytes()));
        let mut pairs = BTreeMap::new();
        let mut from = if prefix.is_empty() { vec![0] } else { prefix.as_bytes().to_vec() };
        let mut revision = 0;
        loop {
            let body = json!({ "key": base64::encode(&from), "range_end": end, "limit": PAGE.to_string(), "revision": revision.to_string() });
            let answer = call(&self.client, "/v3/kv/range", &body, self.token.as_deref()).await?;
            if revision == 0 {
                revision = number(&answer["header"]["revision"]).ok_or("the response has no revision")?;
            }
            let page = answer["kvs"].as_array().map_or(&[][..], Vec::as_slice);
            for pair in page {
                let key = bytes(&pair["key"])?;
                from = [&key[..], &[0]].concat();
                pairs.extend(
                    behind(prefix, &key).map(|key| Ok::<_, String>((key, bytes(&pair["value"])?))).transpose()?,
                );
            }
            check_size(&pairs, prefix)?;
            if page.is_empty() || answer["more"] != true {
                return Ok((pairs, revision));
            }
        }
    }

    async fn watch(&self, prefix: &str, revision: i64) -> Result<Response, String> {
        let key = if prefix.is_empty() { vec![0] } else { prefix.as_bytes().to_vec() };
        let create = json!({
            "key": base64::encode(&key), "range_end": base64::encode(&end_of_prefix(prefix.as_bytes())),
            "start_revision": revision.to_string(),
        });
        let body = json!({ "create_request": create });
        let response = send(&self.client, "/v3/watch", &body, self.token.as_deref()).await?;
        if response.status != 200 {
            return Err(refusal(response, &self.client).await);
        }
        Ok(response)
    }
}

async fn send(client: &Client, path: &str, body: &Value, token: Option<&str>) -> Result<Response, String> {
    let body = body.to_string();
    let mut fields = vec![("content-type", "application/json")];
    fields.extend(token.map(|token| ("authorization", token)));
    client.send(Request { method: "POST", path, fields: &fields, body: body.as_bytes() }).await
}

async fn call(client: &Client, path: &str, body: &Value, token: Option<&str>) -> Result<Value, String> {
    let mut response = send(client, path, body, token).await?;
    if response.status != 200 {
        return Err(refusal(response, client).await);
    }
    let bytes = whole(&mut response, BYTES_MAX as u64, client).await?;
    serde_json::from_slice(&bytes).map_err(|error| format!("the response is not JSON: {error}"))
}

/// The body of an answer, within the time for one: on a connection that has died without a word nothing would ever come.
async fn whole(response: &mut Response, bytes_max: u64, client: &Client) -> Result<Vec<u8>, String> {
    let whole = tokio::time::timeout(client.timeout(), response.whole(bytes_max)).await;
    whole.unwrap_or_else(|_| Err("the response does not end".to_owned()))
}

async fn refusal(mut response: Response, client: &Client) -> String {
    let status = response.status;
    let said = whole(&mut response, 64 << 10, client).await.unwrap_or_default();
    let value: Value = serde_json::from_slice(&said).unwrap_or_default();
    let why = value["message"].as_str().or(value["error"].as_str()).unwrap_or("no reason is given");
    format!("status {status}: {}", why.chars().take(200).collect::<String>())
}

/// Numbers of 64 bits are texts in JSON of protocol buffers.
fn number(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}

/// What is not there is empty.
fn bytes(value: &Value) -> Result<Vec<u8>, String> {
    base64::decode(value.as_str().unwrap_or_default().as_bytes()).ok_or_else(|| "the response is not base64".to_owned())
}

/// The key behind the prefix. Keys that are no text are not ours.
fn behind(prefix: &str, key: &[u8]) -> Option<String> {
    Some(std::str::from_utf8(key).ok()?.strip_prefix(prefix)?.to_owned())
}

/// What a message of a watch did.
#[derive(Debug, PartialEq)]
enum Step {
    Changed,
    Nothing,
    /// Revisions are missing: everything is to be read.
    Again,
}

fn apply(pairs: &mut BTreeMap<String, Vec<u8>>, prefix: &str, message: &Value) -> Result<Step, String> {
    let result = &message["result"];
    if let Some(error) = message.get("error") {
        return Err(error["message"].as_str().unwrap_or("the watch failed").chars().take(200).collect());
    }
    if result["canceled"] == true {
        return match number(&result["compact_revision"]) {
            Some(revision) if revision > 0 => Ok(Step::Again),
            _ => Err(result["cancel_reason"].as_str().unwrap_or("the watch was cancelled").chars().take(200).collect()),
        };
    }
    let events = result["events"].as_array().map_or(&[][..], Vec::as_slice);
    for event in events {
        let Some(key) = behind(prefix, &bytes(&event["kv"]["key"])?) else { continue };
        if event["type"] == "DELETE" {
            pairs.remove(&key);
        } else {
            pairs.insert(key, bytes(&event["kv"]["value"])?);
        }
    }
    check_size(pairs, prefix)?;
    Ok(if events.is_empty() { Step::Nothing } else { Step::Changed })
}

/// Whether there is room for so much: it may come in many pages and messages.
fn check_size(pairs: &BTreeMap<String, Vec<u8>>, prefix: &str) -> Result<(), String> {
    if pairs.len() > PAIRS_MAX {
        return Err(format!("there are more than {PAIRS_MAX} keys below `{prefix}`"));
    }
    match pairs.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>() > BYTES_MAX {
        true => Err(format!("there are more than {BYTES_MAX} bytes below `{prefix}`")),
        false => Ok(()),
    }
}

/// Messages, each on a line.
#[derive(Default)]
struct Lines {
    bytes: Vec<u8>,
    /// Of these, no byte ends a line.
    seen: usize,
}

impl Lines {
    fn push(&mut self, chunk: &[u8]) -> Result<(), String> {
        if self.bytes.len() + chunk.len() > BYTES_MAX {
            return Err("a message of the watch is too long".to_owned());
        }
        self.bytes.extend_from_slice(chunk);
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Value>, String> {
        while let Some(end) = self.bytes[self.seen..].iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.bytes.drain(..=self.seen + end).collect();
            self.seen = 0;
            if !line.trim_ascii().is_empty() {
                return serde_json::from_slice(&line)
                    .map(Some)
                    .map_err(|error| format!("the response is not JSON: {error}"));
            }
        }
        self.seen = self.bytes.len();
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str, key: &str, value: &str) -> Value {
        json!({ "type": kind, "kv": { "key": base64::encode(key.as_bytes()), "value": base64::encode(value.as_bytes()) } })
    }

    #[test]
    fn events_put_and_delete_what_is_behind_the_prefix() {
        let mut pairs = BTreeMap::from([("b".to_owned(), vec![1])]);
        let put = json!({ "type": "PUT", "kv": { "key": base64::encode(b"eq/a"), "value": base64::encode(b"x") } });
        // The kind that is 0 is left out.
        let bare = json!({ "kv": { "key": base64::encode(b"eq/c") } });
        let message =
            json!({ "result": { "events": [put, bare, event("DELETE", "eq/b", ""), event("PUT", "other", "y")] } });
        assert_eq!(apply(&mut pairs, "eq/", &message), Ok(Step::Changed));
        assert_eq!(pairs, BTreeMap::from([("a".to_owned(), b"x".to_vec()), ("c".to_owned(), Vec::new())]));
        assert_eq!(apply(&mut pairs, "eq/", &json!({ "result": { "created": true } })), Ok(Step::Nothing));
    }

    #[test]
    fn there_is_a_bound_on_what_comes_in_many_pages_and_messages() {
        let event = |key: usize| json!({ "kv": { "key": base64::encode(format!("{key}").as_bytes()) } });
        let put = |keys: std::ops::Range<usize>| json!({ "result": { "events": keys.map(event).collect::<Vec<_>>() } });
        let mut pairs = BTreeMap::new();
        assert_eq!(apply(&mut pairs, "", &put(0..PAIRS_MAX)), Ok(Step::Changed));
        assert!(apply(&mut pairs, "", &put(PAIRS_MAX..PAIRS_MAX + 1)).unwrap_err().contains("10000 keys"));
        let mut pairs = BTreeMap::from([("a".to_owned(), vec![0; BYTES_MAX / 2])]);
        assert_eq!(apply(&mut pairs, "", &put(0..1)), Ok(Step::Changed));
        pairs.insert("b".to_owned(), vec![0; BYTES_MAX / 2]);
        assert!(apply(&mut pairs, "", &put(0..1)).unwrap_err().contains("67108864 bytes"));
    }

    #[test]
    fn a_watch_that_lost_revisions_is_begun_again_and_other_ends_are_told() {
        let mut pairs = BTreeMap::new();
        let compacted = json!({ "result": { "canceled": true, "compact_revision": "7" } });
        assert_eq!(apply(&mut pairs, "", &compacted), Ok(Step::Again));
        let cancelled = json!({ "result": { "canceled": true, "cancel_reason": "no permission" } });
        assert_eq!(apply(&mut pairs, "", &cancelled), Err("no permission".to_owned()));
        let failed = json!({ "error": { "message": "gone" } });
        assert_eq!(apply(&mut pairs, "", &failed), Err("gone".to_owned()));
        let bad = json!({ "result": { "events": [{ "kv": { "key": "?" } }] } });
        assert!(apply(&mut pairs, "", &bad).is_err());
    }

    #[test]
    fn messages_come_in_any_pieces() {
        let mut lines = Lines::default();
        lines.push(b"{\"result\":").unwrap();
        assert_eq!(lines.next(), Ok(None));
        lines.push(b"1}\n\n{}\n{").unwrap();
        assert_eq!(lines.next(), Ok(Some(json!({ "result": 1 }))));
        assert_eq!(lines.next(), Ok(Some(json!({}))));
        assert_eq!(lines.next(), Ok(None));
        lines.push(b"\n").unwrap();
        assert!(lines.next().is_err());
    }
}
