//! Endpoints from the domain name system.
//!
//! ```text
//! for each key that clusters ask for:  look up ─▶ endpoints ─▶ sleep as long as the records live ─┐
//!                                         ▲   └─▶ no answer: what was known stays, back off ──────┤
//!                                         └───────────────────────────────────────────────────────┘
//! ```
//! What was known is also what was known before this began: to one before with other settings, or to the program before.

mod ask;
mod endpoints;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use config::file::EndpointSettings;
use model::provider::DnsProvider;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;

pub(crate) use self::ask::DnsClient;
use self::ask::{Found, NotFound};
pub(crate) use self::endpoints::Answers;
use self::endpoints::Target;
use super::Sink;
use super::backoff::{backoff, jittered};
use crate::given::State;

/// Names that are looked up at once; others wait for their turn.
const LOOK_UPS_MAX: usize = 32;
/// Hosts of one SRV name that are looked up.
const HOSTS_MAX: usize = 256;
/// TTL of a negative answer that has none.
const NEGATIVE_TTL: Duration = Duration::from_secs(5);
/// What is not there may come at any time: longer is not waited for it.
const NEGATIVE_TTL_MAX: Duration = Duration::from_secs(30);

type Outcome = (String, Result<(Vec<EndpointSettings>, Option<NotFound>), String>);

/// What is known of a key.
struct Watched {
    endpoints: Option<Vec<EndpointSettings>>,
    lack: Option<NotFound>,
    failing: Option<String>,
    task: JoinHandle<()>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Looks up what clusters ask for, as long as they do.
pub(super) async fn run(settings: DnsProvider, mut sink: Sink) {
    let shared = (Rc::new(settings), Rc::new(Semaphore::new(LOOK_UPS_MAX)));
    let (sender, mut outcomes) = mpsc::channel::<Outcome>(LOOK_UPS_MAX);
    let mut watched: BTreeMap<String, Watched> = BTreeMap::new();
    let mut has_told = false;
    let mut before = State::clone(&sink.known());
    loop {
        let asked = sink.asked();
        watched.retain(|key, _| asked.contains(key.as_str()));
        for key in asked.iter().map(ToString::to_string) {
            watched.entry(key).or_insert_with_key(|key| {
                let task = tokio::task::spawn_local(watch(key.clone(), shared.clone(), sender.clone()));
                Watched { endpoints: None, lack: None, failing: None, task }
            });
        }
        // The first word is a whole one: the start of the program waits for it.
        let is_whole = watched.values().all(|one| one.endpoints.is_some() || one.failing.is_some());
        if is_whole || has_told {
            tell(&watched, &before, &sink);
            has_told = true;
        }
        tokio::select! {
            outcome = outcomes.recv() => {
                let Some((key, outcome)) = outcome else { return };
                if let Some(one) = watched.get_mut(&key) {
                    match outcome {
                        Ok((endpoints, lack)) => {
                            before.endpoints.remove(&key);
                            (one.endpoints, one.lack, one.failing) = (Some(endpoints), lack, None);
                        }
                        Err(why) => one.failing = Some(format!("{key}: {why}")),
                    }
                }
            }
            () = sink.asked_changed() => {}
        }
    }
}

/// Tells what is found, and of names for which there was no answer yet what was known before.
fn tell(watched: &BTreeMap<String, Watched>, before: &State, sink: &Sink) {
    let known = |(key, one): (&String, &Watched)| {
        let list = one.endpoints.as_ref().or_else(|| before.endpoints.get(key))?;
        Some((key.clone(), list.clone()))
    };
    let endpoints: BTreeMap<_, _> = watched.iter().filter_map(known).collect();
    let failing = watched.values().find_map(|one| one.failing.as_ref());
    let has_some = watched.values().any(|one| one.endpoints.is_some());
    let whole = State { endpoints, by_parts: true, ..State::default() };
    match failing {
        None => sink.send(whole),
        Some(why) if has_some => sink.send_lacking(whole, why),
        Some(why) => sink.failed(why),
    }
    let lacking = watched.iter().filter_map(|(key, one)| Some(format!("{key}: {}", one.lack?.as_str())));
    sink.leave_out(lacking.collect());
}

/// Looks one key up again and again.
async fn watch(key: String, (settings, turns): (Rc<DnsProvider>, Rc<Semaphore>), outcomes: mpsc::Sender<Outcome>) {
    let target = match Target::parse(&key) {
        Ok(target) => target,
        Err(why) => {
            // It stays as wrong as it is.
            let _ = outcomes.send((key, Err(why))).await;
            return std::future::pending().await;
        }
    };
    let mut answers = Answers::default();
    let mut failures = 0;
    loop {
        let outcome = {
            let _turn = turns.acquire().await;
            look_up(&target, &settings, &mut answers).await
        };
        let pause = match &outcome {
            Ok(ttl) => {
                failures = 0;
                // No longer than they live, and not all names at the same moment for ever.
                jittered((*ttl).clamp(settings.ttl_min, settings.ttl_max), &key)
            }
            Err(_) => {
                failures += 1;
                backoff(failures, &key).min(settings.ttl_max.max(Duration::from_secs(1)))
            }
        };
        let outcome = outcome.map(|_| (answers.endpoints(&target), answers.lack));
        if outcomes.send((key.clone(), outcome)).await.is_err() {
            return;
        }
        tokio::time::sleep(pause).await;
    }
}

/// Asks all that a key needs, and notes the answers. Gives how long they live.
async fn look_up(target: &Target, settings: &DnsProvider, answers: &mut Answers) -> Result<Duration, String> {
    let client = DnsClient::of(settings);
    match target {
        Target::Host { host, .. } => {
            let found = addresses(&client, (host, settings), answers).await?;
            answers.lack = found.lack;
            Ok(found.whole)
        }
        Target::Places(name) => {
            let mut ttl = match client.look_up(name, wire::dns::Kind::Srv).await? {
                Found::Places(places, ttl) => {
                    (answers.places, answers.lack) = (places, None);
                    seconds(ttl)
                }
                Found::Nothing(ttl, lack) => {
                    answers.places.clear();
                    answers.lack = Some(lack);
                    negative(ttl)
                }
                Found::Addresses(..) => return Err("the response has addresses instead of SRV records".to_owned()),
            };
            let hosts = answers.hosts();
            if hosts.len() > HOSTS_MAX {
                return Err(format!("it has {} hosts, and {HOSTS_MAX} are looked up at most", hosts.len()));
            }
            answers.forget_others(&hosts);
            for host in hosts {
                // Whole names: nothing is searched for behind them.
                ttl = ttl.min(addresses(&client, (&format!("{host}."), settings), answers).await?.whole);
            }
            Ok(ttl)
        }
    }
}

/// How long answers about a host live.
pub(crate) struct Ttls {
    /// All of them, also that one family has no addresses.
    pub(crate) whole: Duration,
    /// The addresses, if there are any.
    pub(crate) addresses: Duration,
    /// What is not there, if there are none.
    pub(crate) lack: Option<NotFound>,
}

/// Both families at once. What one has no answer for stays as it was known, as long as the other has one.
pub(crate) async fn addresses(
    client: &DnsClient,
    (host, settings): (&str, &DnsProvider),
    answers: &mut Answers,
) -> Result<Ttls, String> {
    let ask = async |is_wanted: bool, kind| if is_wanted { Some(client.look_up(host, kind).await) } else { None };
    let (v4, v6) = tokio::join!(ask(settings.ipv4, wire::dns::Kind::A), ask(settings.ipv6, wire::dns::Kind::Aaaa));
    let known = answers.addresses_of(host);
    let (mut lives, mut nothing, mut why) = (None, None, None);
    let mut lack = NotFound::Name;
    for (family, outcome) in [v4, v6].into_iter().enumerate() {
        match outcome {
            Some(Ok(Found::Addresses(found, ttl))) => {
                known[family] = found;
                lives = lives.into_iter().chain([ttl]).min();
            }
            Some(Ok(Found::Nothing(ttl, what))) => {
                known[family].clear();
                if what == NotFound::Records {
                    lack = what;
                }
                nothing = Some(nothing.flatten().into_iter().chain(ttl).min());
            }
            Some(Err(failed)) => why = Some(failed),
            None | Some(Ok(Found::Places(..))) => {}
        }
    }
    match (lives, nothing, why) {
        // One family is enough. That the other is not there holds as long as is said, if anything is.
        (Some(ttl), nothing, _) => {
            let whole = seconds(nothing.flatten().map_or(ttl, |nothing| nothing.min(ttl)));
            Ok(Ttls { whole, addresses: seconds(ttl), lack: None })
        }
        (None, _, Some(why)) => Err(why),
        (None, Some(ttl), None) => Ok(Ttls { whole: negative(ttl), addresses: negative(ttl), lack: Some(lack) }),
        (None, None, None) => Err("no family of addresses is wanted".to_owned()),
    }
}

fn seconds(ttl: u32) -> Duration {
    Duration::from_secs(u64::from(ttl))
}

fn negative(ttl: Option<u32>) -> Duration {
    ttl.map_or(NEGATIVE_TTL, seconds).min(NEGATIVE_TTL_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_name_that_fails_what_was_known_before_stays() {
        let list = |address: &str| vec![EndpointSettings::at(address)];
        let kept = [("a:1", "10.0.0.1:1"), ("b:1", "10.0.0.2:1"), ("c:1", "10.0.0.3:1")];
        let endpoints = kept.iter().map(|(key, address)| ((*key).to_owned(), list(address))).collect();
        let sink = Sink::after(State { endpoints, ..State::default() });
        let before = sink.known();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let one = |found: Result<Vec<EndpointSettings>, &str>| Watched {
            failing: found.as_ref().err().map(|why| (*why).to_owned()),
            endpoints: found.ok(),
            lack: None,
            task: runtime.spawn(async {}),
        };
        let mut watched: BTreeMap<String, Watched> =
            ["a:1", "b:1"].map(|key| (key.to_owned(), one(Err("no answer")))).into();
        tell(&watched, &before, &sink);
        assert!(sink.inbox.statuses()[0].is_kept, "nothing was found");
        watched.insert("a:1".to_owned(), one(Ok(list("10.0.0.9:1"))));
        tell(&watched, &before, &sink);
        let state = sink.known();
        let shown: Vec<_> =
            state.endpoints.iter().map(|(key, list)| (key.as_str(), list[0].address.as_str())).collect();
        assert_eq!(shown, [("a:1", "10.0.0.9:1"), ("b:1", "10.0.0.2:1")], "and nobody asks for the third");
        watched.insert("b:1".to_owned(), one(Ok(Vec::new())));
        tell(&watched, &before, &sink);
        assert!(sink.known().endpoints["b:1"].is_empty(), "that is an answer");
    }
}
