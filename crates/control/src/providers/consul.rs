//! Endpoints from the catalog of Consul, and configuration from its store of keys, by blocking queries.
//!
//! ```text
//! each key of a cluster:  GET /v1/health/service/NAME?index=I&wait=W ─▶ endpoints, index I' ─▶ again with I'
//! the prefix of the store: GET /v1/kv/PREFIX?recurse&index=I&wait=W  ─▶ pairs, index I'     ─▶ again with I'
//! ```
//! Each question that waits holds a connection, and an agent lets a client have 200 by default: of more keys than [`HELD_MAX`] the others
//! are asked for once in a while.
//!
//! An index that is 0, not there or less than before begins anew, as Consul wants it. With the same index as before may come something
//! else: what a token may see changes without it. Nothing at all is asked for once more, without waiting. Of what cannot be asked, or may not be seen, stays what was known, also to a provider
//! before with other settings, or to the program before.

mod answers;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use config::file::EndpointSettings;
use model::provider::ConsulProvider;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;

use super::Sink;
use super::backoff::{backoff, jittered};
use super::client::{Client, Request};
use super::pairs::Reader;
use crate::given::State;

use answers::{endpoints, stored};

/// Bytes of an answer.
const BYTES_MAX: u64 = 64 << 20;
/// Beyond the wait, Consul adds up to a sixteenth of it.
const GRACE: Duration = Duration::from_secs(10);
/// Between two answers, whatever changes how often.
const PAUSE: Duration = Duration::from_millis(100);

/// Keys whose changes are waited for; the store is one more. Two processes of an upgrade stay below what an agent lets them have.
const HELD_MAX: usize = 64;
/// Questions about other keys at the same time, and how long after an answer the next is asked.
const POLLS_MAX: usize = 8;
const POLL_EVERY: Duration = Duration::from_secs(5);

/// Field of a response: `true` if the token may not see all of it (Consul 1.11 and newer).
const FILTERED: &str = "x-consul-results-filtered-by-acls";

/// What is watched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    /// The endpoints of a key.
    Key(String),
    /// The store.
    Store,
}

/// What was found about a subject.
enum Found {
    /// And what is wrong with some of it.
    Endpoints(Vec<EndpointSettings>, Vec<String>),
    /// The same.
    Stored(State, Vec<String>),
}

struct Watched {
    known: Option<Found>,
    failing: Option<String>,
    task: JoinHandle<()>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Outcome = (Subject, Result<Found, String>);

/// Watches what clusters ask for, and the store if there is a prefix.
pub(super) async fn run(settings: ConsulProvider, mut sink: Sink) {
    let settings = Rc::new(settings);
    let turns = Rc::new(Turns::default());
    let (sender, mut outcomes) = mpsc::channel::<Outcome>(64);
    let mut watched: BTreeMap<Subject, Watched> = BTreeMap::new();
    let mut has_told = false;
    let mut before = State::clone(&sink.known());
    loop {
        let asked = sink.asked();
        let mut wanted: Vec<Subject> = asked.iter().map(|key| Subject::Key(key.to_string())).collect();
        wanted.extend(settings.prefix.as_ref().map(|_| Subject::Store));
        watched.retain(|subject, _| wanted.contains(subject));
        for subject in wanted {
            watched.entry(subject).or_insert_with_key(|subject| {
                let reader = if *subject == Subject::Store { Reader::after(&before) } else { Reader::default() };
                let shared = (Rc::clone(&settings), Rc::clone(&turns));
                let task = watch((subject.clone(), reader), shared, sender.clone());
                let task = tokio::task::spawn_local(task);
                Watched { known: None, failing: None, task }
            });
        }
        // The first word is a whole one: the start of the program waits for it.
        if has_told || watched.values().all(|one| one.known.is_some() || one.failing.is_some()) {
            tell(&watched, &before, &sink);
            has_told = true;
        }
        tokio::select! {
            outcome = outcomes.recv() => {
                let Some((subject, outcome)) = outcome else { return };
                let Some(one) = watched.get_mut(&subject) else { continue };
                match outcome {
                    Ok(found) => {
                        (one.known, one.failing) = (Some(found), None);
                        forget_answered(&mut before, &watched, &subject);
                    }
                    Err(why) => one.failing = Some(why),
                }
            }
            () = sink.asked_changed() => {}
        }
    }
}

/// Takes over a list where there is none yet: the catalog knows nothing of names that only the store has.
fn fill(whole: &mut State, from: &State, key: &str) {
    let known = whole.endpoints.entry(key.to_owned()).or_default();
    let Some(list) = from.endpoints.get(key).filter(|_| known.is_empty()) else { return };
    known.clone_from(list);
    whole.names.extend(from.names.get(key).map(|names| (key.to_owned(), names.clone())));
}

/// What was known before of a subject counts no longer once that has answered. That the catalog knows nothing of a name says
/// little while the store, which may know something, has not answered yet.
fn forget_answered(before: &mut State, watched: &BTreeMap<Subject, Watched>, answered: &Subject) {
    let is_store_out = watched.get(&Subject::Store).is_some_and(|store| store.known.is_none());
    let has_answered = |key: &str| match watched.get(&Subject::Key(key.to_owned())).map(|one| &one.known) {
        Some(Some(Found::Endpoints(list, _))) => !(is_store_out && list.is_empty()),
        _ => false,
    };
    match answered {
        Subject::Key(key) if has_answered(key) => drop(before.endpoints.remove(key)),
        Subject::Key(_) => {}
        Subject::Store => before.endpoints.retain(|key, _| !has_answered(key)),
    }
}

/// Tells what is found, and of subjects that were not answered for yet what was known before.
fn tell(watched: &BTreeMap<Subject, Watched>, before: &State, sink: &Sink) {
    let mut whole = State { by_parts: true, ..State::default() };
    let mut has_some = false;
    let mut left_out = Vec::new();
    let mut of_store: &[String] = &[];
    for (subject, one) in watched {
        match (subject, &one.known) {
            (Subject::Key(key), Some(Found::Endpoints(list, problems))) => {
                left_out.extend(problems.iter().map(|problem| format!("{key}: {problem}")));
                drop(whole.endpoints.insert(key.clone(), list.clone()));
            }
            (Subject::Store, Some(Found::Stored(stored, problems))) => {
                of_store = problems;
                whole.texts.clone_from(&stored.texts);
                stored.endpoints.keys().for_each(|key| fill(&mut whole, stored, key));
            }
            _ => continue,
        }
        has_some = true;
    }
    for (subject, _) in watched.iter().filter(|(_, one)| one.known.is_none()) {
        let is_store = *subject == Subject::Store;
        if is_store {
            whole.texts.clone_from(&before.texts);
        }
        for key in before.endpoints.keys() {
            if is_store || matches!(subject, Subject::Key(wanted) if wanted == key) {
                fill(&mut whole, before, key);
            }
        }
    }
    let failing = watched.values().find_map(|one| one.failing.as_ref());
    match failing {
        None => sink.send(whole),
        Some(why) if has_some => sink.send_lacking(whole, why),
        Some(why) => return sink.failed(why),
    }
    left_out.extend_from_slice(of_store);
    sink.leave_out(left_out);
}

/// Who may wait for changes, and who asks once in a while.
struct Turns {
    held: Arc<Semaphore>,
    polls: Semaphore,
}

impl Default for Turns {
    fn default() -> Self {
        Self { held: Arc::new(Semaphore::new(HELD_MAX)), polls: Semaphore::new(POLLS_MAX) }
    }
}

async fn watch(
    (subject, mut reader): (Subject, Reader),
    (settings, turns): (Rc<ConsulProvider>, Rc<Turns>),
    outcomes: mpsc::Sender<Outcome>,
) {
    let name = match &subject {
        Subject::Key(key) => key.clone(),
        Subject::Store => "kv".to_owned(),
    };
    let mut index = 0;
    let mut failures = 0;
    let mut held: Option<OwnedSemaphorePermit> = None;
    loop {
        if held.is_none() && subject != Subject::Store {
            // Once it has a turn it keeps it: whose changes are felt at once does not change all the time.
            held = Arc::clone(&turns.held).try_acquire_owned().ok();
        }
        let waits = held.is_some() || subject == Subject::Store;
        let asked = {
            let _turn = if waits { None } else { Some(turns.polls.acquire().await) };
            ask(&subject, &settings, &mut index, &mut reader).await
        };
        if !waits {
            // Without one, it is answered at once.
            index = 0;
        }
        let pause = match &asked {
            Ok(_) => {
                failures = 0;
                if waits { PAUSE } else { jittered(POLL_EVERY, &name) }
            }
            Err(_) => {
                failures += 1;
                index = 0;
                backoff(failures, &name)
            }
        };
        let outcome = asked.map_err(|why| format!("{name}: {why}"));
        if outcomes.send((subject.clone(), outcome)).await.is_err() {
            return;
        }
        tokio::time::sleep(pause).await;
    }
}

/// An answer.
struct Answer {
    list: Vec<Value>,
    index: Option<u64>,
    /// There is more than the token may see.
    is_filtered: bool,
}

async fn ask(
    subject: &Subject,
    settings: &ConsulProvider,
    index: &mut u64,
    reader: &mut Reader,
) -> Result<Found, String> {
    let mut answer = ask_once(subject, settings, *index).await?;
    if answer.list.is_empty() && *index > 0 {
        // One that was waited for comes from a stream of changes, where nothing is said of what may not be seen.
        answer = ask_once(subject, settings, 0).await?;
    }
    *index = next_index(*index, answer.index);
    read((subject, answer.is_filtered), &answer.list, settings.prefix.as_deref().unwrap_or_default(), reader)
}

async fn ask_once(subject: &Subject, settings: &ConsulProvider, index: u64) -> Result<Answer, String> {
    // A request with an index gets its response when something is new, or after the wait; any other at once.
    let held = if index > 0 { settings.wait + GRACE } else { Duration::ZERO };
    let origin = model::provider::Origin { timeout: settings.origin.timeout + held, ..settings.origin.clone() };
    let (client, path) = (Client::new(&origin)?, path(subject, settings, index));
    let mut response = client.send(Request { method: "GET", path: &path, ..Request::default() }).await?;
    let status = response.status;
    let index = response.field("x-consul-index").and_then(|text| text.parse::<u64>().ok());
    let is_filtered = response.field(FILTERED).as_deref() == Some("true");
    let body = tokio::time::timeout(settings.origin.timeout, response.whole(BYTES_MAX)).await;
    let body = body.unwrap_or_else(|_| Err("the response does not end".to_owned()))?;
    // Nothing is stored there yet.
    let is_empty = status == 404 && *subject == Subject::Store;
    if status != 200 && !is_empty {
        let text: String = String::from_utf8_lossy(&body).trim().chars().take(200).collect();
        return Err(format!("status {status}: {text}"));
    }
    if is_empty {
        return Ok(Answer { list: Vec::new(), index, is_filtered });
    }
    match serde_json::from_slice(&body).map_err(|error| format!("the response is not JSON: {error}"))? {
        Value::Array(list) => Ok(Answer { list, index, is_filtered }),
        _ => Err("the response is not a list".to_owned()),
    }
}

/// What a list says. None that may be seen is not none that are there.
fn read(
    (subject, is_filtered): (&Subject, bool),
    list: &[Value],
    prefix: &str,
    reader: &mut Reader,
) -> Result<Found, String> {
    match subject {
        Subject::Key(_) if is_filtered && list.is_empty() => {
            Err("its ACLs let the token see none of them: it needs `read` for the service and for its nodes".to_owned())
        }
        Subject::Key(_) => {
            let (endpoints, problems) = endpoints(list);
            Ok(Found::Endpoints(endpoints, problems))
        }
        Subject::Store if is_filtered && list.is_empty() => {
            Err(format!("its ACLs let the token see no key below `{prefix}`: it needs `read` for them"))
        }
        Subject::Store => {
            let (state, mut problems) = reader.state(&stored(list, prefix)?);
            if is_filtered {
                problems.push(format!("keys below `{prefix}` that the ACLs of Consul do not let the token see"));
            }
            Ok(Found::Stored(state, problems))
        }
    }
}

/// Goes back to 0 where the index went back, and is never trusted where it is 0.
fn next_index(before: u64, said: Option<u64>) -> u64 {
    said.filter(|said| *said >= before).unwrap_or(0)
}

fn path(subject: &Subject, settings: &ConsulProvider, index: u64) -> String {
    let mut path = match subject {
        Subject::Key(key) => {
            // As in the names that Consul answers by DNS: TAG.NAME.
            let (tag, name) = key.split_once('.').map_or((None, key.as_str()), |(tag, name)| (Some(tag), name));
            let tag = tag.map(|tag| format!("tag={}&", encoded(tag, ""))).unwrap_or_default();
            format!("/v1/health/service/{}?{tag}", encoded(name, ""))
        }
        Subject::Store => {
            format!("/v1/kv/{}?recurse=true&", encoded(settings.prefix.as_deref().unwrap_or_default(), "/"))
        }
    };
    path += &format!("index={index}&wait={}ms", settings.wait.as_millis());
    for (name, value) in [("dc", &settings.datacenter), ("ns", &settings.namespace)] {
        if let Some(value) = value {
            path += &format!("&{name}={}", encoded(value, ""));
        }
    }
    if settings.stale {
        path += "&stale";
    }
    path
}

/// RFC 3986 section 2.1.
fn encoded(text: &str, also: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        let plain = byte.is_ascii_alphanumeric()
            || matches!(byte, b'-' | b'.' | b'_' | b'~')
            || also.as_bytes().contains(&byte);
        if plain { out.push(char::from(byte)) } else { out += &format!("%{byte:02X}") }
    }
    out
}

#[cfg(test)]
mod tests;
