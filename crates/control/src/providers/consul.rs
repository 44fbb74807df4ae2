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

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use config::file::EndpointSettings;
use model::provider::ConsulProvider;
use model::{base64, limits};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;

use super::Sink;
use super::backoff::{backoff, jittered};
use super::client::{Client, Request};
use super::pairs::{PAIRS_MAX, Reader};
use crate::given::State;

/// Bytes of an answer.
const BYTES_MAX: u64 = 64 << 20;
/// Labels of an endpoint, and characters of one.
const LABELS_MAX: usize = 64;
const LABEL_CHARS_MAX: usize = 256;
/// Beyond the wait, Consul adds up to a sixteenth of it.
const GRACE: Duration = Duration::from_secs(10);
/// Between two answers, whatever changes how often.
const PAUSE: Duration = Duration::from_millis(100);

/// Keys whose changes are waited for; the store is one more. Two processes of an upgrade stay below what an agent lets them have.
const HELD_MAX: usize = 64;
/// Questions about other keys at the same time, and how long after an answer the next is asked.
const POLLS_MAX: usize = 8;
const POLL_EVERY: Duration = Duration::from_secs(5);

/// Field of an answer, `true` if there is more than whoever asked may see (Consul 1.11 and newer).
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
    // Who names an index is answered when something is new, or after the wait; anybody else at once.
    let held = if index > 0 { settings.wait + GRACE } else { Duration::ZERO };
    let origin = model::provider::Origin { timeout: settings.origin.timeout + held, ..settings.origin.clone() };
    let (client, path) = (Client::new(&origin)?, path(subject, settings, index));
    let mut response = client.send(Request { method: "GET", path: &path, ..Request::default() }).await?;
    let status = response.status;
    let index = response.field("x-consul-index").and_then(|text| text.parse::<u64>().ok());
    let is_filtered = response.field(FILTERED).as_deref() == Some("true");
    let body = tokio::time::timeout(settings.origin.timeout, response.whole(BYTES_MAX)).await;
    let body = body.unwrap_or_else(|_| Err("the answer does not end".to_owned()))?;
    // Nothing is stored there yet.
    let is_empty = status == 404 && *subject == Subject::Store;
    if status != 200 && !is_empty {
        let text: String = String::from_utf8_lossy(&body).trim().chars().take(200).collect();
        return Err(format!("status {status}: {text}"));
    }
    if is_empty {
        return Ok(Answer { list: Vec::new(), index, is_filtered });
    }
    match serde_json::from_slice(&body).map_err(|error| format!("what came is no JSON: {error}"))? {
        Value::Array(list) => Ok(Answer { list, index, is_filtered }),
        _ => Err("what came is no list".to_owned()),
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
            Err(format!("its ACLs let the token see no key behind `{prefix}`: it needs `read` for them"))
        }
        Subject::Store => {
            let (state, mut problems) = reader.state(&stored(list, prefix)?);
            if is_filtered {
                problems.push(format!("keys behind `{prefix}` that the ACLs of Consul do not let the token see"));
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

/// Those that have no critical check, and why others are left out. One with a warning has the weight for that.
fn endpoints(list: &[Value]) -> (Vec<EndpointSettings>, Vec<String>) {
    let mut found: BTreeMap<SocketAddr, EndpointSettings> = BTreeMap::new();
    let mut problems = Vec::new();
    for entry in list {
        let checks = entry["Checks"].as_array().map_or(&[][..], Vec::as_slice);
        let has = |status: &str| checks.iter().any(|check| check["Status"] == status);
        if has("critical") || has("maintenance") {
            continue;
        }
        let (offer, node) = (&entry["Service"], &entry["Node"]);
        let address = match address_of(offer, node) {
            Ok(address) => address,
            Err(why) => {
                let named = [&offer["ID"], &node["Node"]].into_iter().find_map(Value::as_str).unwrap_or_default();
                problems.push(format!("the instance `{}` {why}", named.chars().take(100).collect::<String>()));
                continue;
            }
        };
        let mut endpoint = EndpointSettings::at(address.to_string());
        let weight = &offer["Weights"][if has("warning") { "Warning" } else { "Passing" }];
        endpoint.weight = weight.as_u64().map_or(1, |weight| weight.min(u64::from(limits::WEIGHT_MAX)) as u32);
        let meta = offer["Meta"].as_object().into_iter().flatten();
        let texts = meta.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
        let fits = |(name, value): &(String, String)| {
            !name.is_empty() && name.len() <= 64 && !value.is_empty() && value.chars().count() <= LABEL_CHARS_MAX
        };
        endpoint.labels = texts.filter(fits).take(LABELS_MAX).collect();
        found.entry(address).or_insert(endpoint);
    }
    (found.into_values().collect(), problems)
}

/// Where an instance is: its own address, or that of its node.
fn address_of(offer: &Value, node: &Value) -> Result<SocketAddr, String> {
    let mut texts = [&offer["Address"], &node["Address"]].into_iter().filter_map(Value::as_str);
    let text = texts.find(|text| !text.is_empty()).ok_or("has no address")?;
    let ip: IpAddr = text.parse().map_err(|_| {
        let text: String = text.chars().take(100).collect();
        format!("has the address `{text}`, which is no IP address: names are not looked up here")
    })?;
    let port = offer["Port"].as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
    Ok(SocketAddr::new(ip, port.ok_or("has no port")?))
}

/// The pairs behind the prefix.
fn stored(list: &[Value], prefix: &str) -> Result<BTreeMap<String, Vec<u8>>, String> {
    if list.len() > PAIRS_MAX {
        return Err(format!("there are more than {PAIRS_MAX} keys behind `{prefix}`"));
    }
    let mut pairs = BTreeMap::new();
    for entry in list {
        let Some(key) = entry["Key"].as_str().and_then(|key| key.strip_prefix(prefix)) else { continue };
        let value =
            base64::decode(entry["Value"].as_str().unwrap_or_default().as_bytes()).ok_or("what came is no base64")?;
        pairs.insert(key.to_owned(), value);
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settings() -> ConsulProvider {
        ConsulProvider {
            origin: model::provider::Origin {
                place: model::provider::Place::Host("localhost".to_owned(), 8500),
                host: "localhost:8500".to_owned(),
                tls: None,
                timeout: Duration::from_secs(1),
                fields: Vec::new(),
            },
            datacenter: Some("east 1".to_owned()),
            namespace: None,
            stale: true,
            prefix: Some("eq uipoise/".to_owned()),
            wait: Duration::from_secs(60),
        }
    }

    #[test]
    fn what_is_asked_for_is_written_as_consul_reads_it() {
        let of = |subject| path(&subject, &settings(), 7);
        assert_eq!(of(Subject::Key("web".into())), "/v1/health/service/web?index=7&wait=60000ms&dc=east%201&stale");
        assert_eq!(
            of(Subject::Key("a/b.web".into())),
            "/v1/health/service/web?tag=a%2Fb&index=7&wait=60000ms&dc=east%201&stale"
        );
        assert_eq!(of(Subject::Store), "/v1/kv/eq%20uipoise/?recurse=true&index=7&wait=60000ms&dc=east%201&stale");
    }

    #[test]
    fn an_index_that_goes_back_begins_anew() {
        assert_eq!((next_index(0, Some(5)), next_index(5, Some(5)), next_index(5, Some(9))), (5, 5, 9));
        assert_eq!((next_index(9, Some(5)), next_index(9, Some(0)), next_index(9, None)), (0, 0, 0));
    }

    #[test]
    fn critical_ones_are_left_out_and_warned_ones_weigh_what_is_said_for_that() {
        let entry = |address: &str, node: &str, port: u64, statuses: &[&str]| {
            let checks: Vec<Value> = statuses.iter().map(|status| json!({ "Status": status })).collect();
            json!({
                "Node": { "Address": node },
                "Service": {
                    "ID": "web-1", "Address": address, "Port": port, "Weights": { "Passing": 10, "Warning": 2 },
                    "Meta": { "version": "v2", "empty": "" },
                },
                "Checks": checks,
            })
        };
        let (found, problems) = endpoints(&[
            entry("10.0.0.2", "10.9.9.9", 80, &["passing", "warning"]),
            entry("", "10.0.0.1", 80, &["passing"]),
            entry("10.0.0.3", "", 80, &["passing", "critical"]),
            entry("10.0.0.4", "", 0, &[]),
            entry("host.example", "10.0.0.9", 80, &[]),
            entry("10.0.0.2", "", 80, &[]),
            json!({}),
        ]);
        let shown: Vec<_> = found.iter().map(|one| (one.address.as_str(), one.weight, one.labels.len())).collect();
        assert_eq!(shown, [("10.0.0.1:80", 10, 1), ("10.0.0.2:80", 2, 1)]);
        let name =
            "the instance `web-1` has the address `host.example`, which is no IP address: names are not looked up here";
        assert_eq!(problems, ["the instance `web-1` has no port", name, "the instance `` has no address"]);
    }

    #[test]
    fn what_the_token_may_not_see_is_not_taken_for_what_is_not_there() {
        let mut reader = Reader::default();
        let mut told = |subject: &Subject, is_filtered, list: &[Value]| match read(
            (subject, is_filtered),
            list,
            "eq/",
            &mut reader,
        ) {
            Ok(Found::Endpoints(list, _)) => format!("{} endpoints", list.len()),
            Ok(Found::Stored(state, problems)) => format!("{} keys, {problems:?}", state.endpoints.len()),
            Err(why) => why,
        };
        let (web, store) = (Subject::Key("web".into()), Subject::Store);
        let one = [json!({ "Service": { "Address": "10.0.0.1", "Port": 80 } })];
        let key = [json!({ "Key": "eq/endpoints/web/a", "Value": "MTAuMC4wLjE6ODA=" })];
        assert_eq!([told(&web, false, &[]), told(&web, false, &one)], ["0 endpoints", "1 endpoints"]);
        assert_eq!(told(&web, true, &one), "1 endpoints", "the others are on nodes that are not for us");
        let why = "its ACLs let the token see none of them: it needs `read` for the service and for its nodes";
        assert_eq!(told(&web, true, &[]), why);
        assert_eq!([told(&store, false, &[]), told(&store, false, &key)], ["0 keys, []", "1 keys, []"]);
        assert_eq!(
            told(&store, true, &key),
            "1 keys, [\"keys behind `eq/` that the ACLs of Consul do not let the token see\"]"
        );
        let why = "its ACLs let the token see no key behind `eq/`: it needs `read` for them";
        assert_eq!(told(&store, true, &[]), why);
    }

    #[test]
    fn of_what_fails_what_was_known_before_stays() {
        let list = |address: &str| vec![EndpointSettings::at(address)];
        let by_key = |all: &[(&str, &str)]| -> BTreeMap<String, Vec<EndpointSettings>> {
            all.iter().map(|(key, address)| ((*key).to_owned(), list(address))).collect()
        };
        let text = crate::given::Text { text: "routes: []".to_owned(), ..Default::default() };
        let before = [("web", "10.0.0.1:1"), ("api", "10.0.0.2:1"), ("stored", "10.0.0.3:1")];
        let sink = Sink::after(State { texts: vec![text], endpoints: by_key(&before), ..State::default() });
        let before = sink.known();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let one = |known: Option<Found>| Watched {
            failing: known.is_none().then(|| "no answer".to_owned()),
            known,
            task: runtime.spawn(async {}),
        };
        let key = |name: &str| Subject::Key(name.to_owned());
        let mut watched: BTreeMap<Subject, Watched> =
            [key("web"), key("api"), Subject::Store].map(|subject| (subject, one(None))).into();
        tell(&watched, &before, &sink);
        assert!(sink.inbox.statuses()[0].is_kept, "nothing was found");
        watched.insert(key("web"), one(Some(Found::Endpoints(list("10.0.0.9:1"), Vec::new()))));
        tell(&watched, &before, &sink);
        let shown = |state: &State| -> Vec<(String, String)> {
            let all = state.endpoints.iter().map(|(key, list)| (key.clone(), list[0].address.clone()));
            all.collect()
        };
        let told = |all: &[(&str, &str)]| -> Vec<(String, String)> {
            all.iter().map(|(key, address)| ((*key).to_owned(), (*address).to_owned())).collect()
        };
        let state = sink.known();
        assert_eq!(shown(&state), told(&[("api", "10.0.0.2:1"), ("stored", "10.0.0.3:1"), ("web", "10.0.0.9:1")]));
        assert_eq!(state.texts.len(), 1);
        // What the store says itself counts, also of a name of which the catalog has no instances.
        watched.insert(key("api"), one(Some(Found::Endpoints(Vec::new(), Vec::new()))));
        let stored = State { endpoints: by_key(&[("api", "10.0.0.7:1")]), ..State::default() };
        watched.insert(Subject::Store, one(Some(Found::Stored(stored, vec!["a key".to_owned()]))));
        tell(&watched, &before, &sink);
        let state = sink.known();
        assert_eq!(sink.inbox.statuses()[0].left_out, ["a key"]);
        assert_eq!(shown(&state), told(&[("api", "10.0.0.7:1"), ("web", "10.0.0.9:1")]));
        assert!(state.texts.is_empty());
    }

    #[test]
    fn a_name_that_only_the_store_knows_keeps_its_endpoints_while_the_store_does_not_answer() {
        let list = |address: &str| vec![EndpointSettings::at(address)];
        let kept = [("gone".to_owned(), list("10.0.0.8:1")), ("web".to_owned(), list("10.0.0.1:1"))];
        let sink = Sink::after(State { endpoints: kept.into(), ..State::default() });
        let mut before = State::clone(&sink.known());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let one = |known: Option<Found>| Watched { known, failing: None, task: runtime.spawn(async {}) };
        let (web, gone) = (Subject::Key("web".to_owned()), Subject::Key("gone".to_owned()));
        let mut watched: BTreeMap<Subject, Watched> = BTreeMap::new();
        watched.insert(Subject::Store, one(None));
        watched.insert(gone.clone(), one(None));
        let mut answer = |watched: &mut BTreeMap<Subject, Watched>, subject: &Subject, found: Found| {
            watched.insert(subject.clone(), one(Some(found)));
            forget_answered(&mut before, watched, subject);
            tell(watched, &before, &sink);
            let known = sink.known();
            let address = |key: &str| known.endpoints.get(key).and_then(|list| Some(list.first()?.address.clone()));
            (address("web").unwrap_or_default(), address("gone").unwrap_or_default())
        };
        let of = |web: &str, gone: &str| (web.to_owned(), gone.to_owned());
        let none = || Found::Endpoints(Vec::new(), Vec::new());
        assert_eq!(answer(&mut watched, &web, none()), of("10.0.0.1:1", "10.0.0.8:1"));
        // What the catalog has said itself it may take back.
        assert_eq!(
            answer(&mut watched, &gone, Found::Endpoints(list("10.0.0.9:1"), Vec::new())),
            of("10.0.0.1:1", "10.0.0.9:1")
        );
        assert_eq!(answer(&mut watched, &gone, none()), of("10.0.0.1:1", ""));
        let stored = Found::Stored(State::default(), Vec::new());
        assert_eq!(answer(&mut watched, &Subject::Store, stored), of("", ""));
    }

    #[test]
    fn what_is_stored_is_read_behind_the_prefix() {
        let list = [
            json!({ "Key": "eq/", "Value": null }),
            json!({ "Key": "eq/endpoints/web/a", "Value": "MTAuMC4wLjE6ODA=" }),
            json!({ "Key": "other", "Value": "?" }),
        ];
        let (state, problems) = Reader::default().state(&stored(&list, "eq/").unwrap());
        assert_eq!((state.endpoints["web"][0].address.as_str(), problems.len()), ("10.0.0.1:80", 0));
        assert!(stored(&[json!({ "Key": "eq/x", "Value": "?" })], "eq/").is_err());
    }
}
