//! Preparing a configuration aside: with copies of what the owner holds, so that the owner goes on meanwhile.

mod named;
mod provided;

use std::sync::Arc;
use std::time::SystemTime;

use config::{Changes, Diagnostics, Loaded, Loader, Whole};
use plan::Plan;

use crate::admin_tls::AdminTls;
use crate::history::Origin;
use crate::load::{self, Candidate, Inspect, Next, Source, Tried};
use crate::names::{Book, Names};
use crate::orders::{Change, Order};
use crate::overrides::Desired;
use crate::providers::Inbox;
use crate::refusal::Refusal;
use crate::view::View;

pub use named::Moves;
pub(crate) use provided::refuse;
pub use provided::{ProviderOutcome, Wanted};

/// Prepares candidates from what ran when it was made; changes nothing.
#[derive(Clone)]
pub struct Preparation {
    pub(crate) source: Source,
    pub(crate) inspect: Inspect,
    pub(crate) desired: Desired,
    pub(crate) running: Option<(Arc<Loaded>, Arc<Plan>)>,
    /// How the administrator's listener shakes hands.
    pub(crate) admin_tls: Option<Arc<AdminTls>>,
    /// The number of the next generation.
    pub(crate) generation: u64,
    pub(crate) view: View,
    /// What providers want.
    pub(crate) inbox: Arc<Inbox>,
    /// What host names of endpoints were found to have.
    pub(crate) names: Arc<Book>,
    /// Whether that comes in when files are read.
    pub(crate) takes_news: bool,
    /// What is tried.
    pub(crate) tried: Option<Tried>,
}

impl Preparation {
    /// As above, but when files are read, new states of providers are left for later.
    #[must_use]
    pub fn without_news(&self) -> Self {
        Self { takes_news: false, ..self.clone() }
    }

    /// Reads the configuration again and prepares it.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn prepare(&self) -> Result<Candidate, Diagnostics> {
        let names = if self.running.is_some() { Names::of_a_reload() } else { Names::of_a_start() };
        self.read_anew(&names).inspect_err(|_| self.view.count_refused())
    }

    /// Prepares a requested change.
    ///
    /// # Errors
    /// Everything that is wrong with it, or that what it is about is not there, or that who asks may not ask for it.
    pub fn prepare_change(&self, order: &Order) -> Result<(Candidate, Origin), Refusal> {
        let change = &order.change;
        if *change == Change::Reload {
            return Ok((self.read_anew(&Names::of_a_reload())?, Origin::Reload));
        }
        let Some((loaded, plan)) = &self.running else { return Err(Refusal::Ending) };
        let mut desired = self.desired.clone();
        if let Change::Wish { cluster, endpoint, state } = change {
            // What is wished of one that is away can be taken back.
            if state.is_some() || desired.wishes.get(cluster, endpoint).is_none() {
                find_endpoint(plan, cluster, Some(endpoint))?;
            }
            desired.wishes.set((cluster, endpoint), *state, &order.author, SystemTime::now());
            let candidate = load::prepare_wishes(loaded, desired, self.next());
            return Ok((candidate?, Origin::Endpoint));
        }
        let names = Names::of_a_change();
        // Who shows no credentials cannot have the program use more of its rights than it does already. What the files say is theirs.
        let within = Some(&**loaded).filter(|_| !order.is_trusted && *change != Change::Reset);
        let (changes, origin) = self.wanted(change, (loaded, plan), (&names, within))?;
        desired.changes = changes;
        let candidate = load::prepare_changed(loaded, desired, self.next(), (&names, within))?;
        Ok((candidate, origin))
    }

    fn next(&self) -> Next<'_> {
        Next {
            previous: self.running.as_ref().map(|(_, plan)| &**plan),
            running: self.running.as_ref().map(|(loaded, _)| &**loaded),
            admin_tls: self.admin_tls.as_ref(),
            generation: self.generation,
            inspect: self.inspect,
        }
    }

    /// What is to stand beside the files after a change of the configuration.
    fn wanted(
        &self,
        change: &Change,
        (loaded, plan): (&Loaded, &Plan),
        (names, within): (&Names, Option<&Loaded>),
    ) -> Result<(Changes, Origin), Refusal> {
        let changes = &self.desired.changes;
        let wanted = match change {
            Change::Replace(text) => {
                load::with_known(loaded, names, |loader| Loader { within, ..*loader }.replace(loaded, text))?
            }
            Change::ReplaceObject { kind, name, text } => {
                if text.is_none() {
                    find_object(loaded, kind, name)?;
                }
                let at = (*kind, name.as_str());
                load::with_known(loaded, names, |loader| {
                    Loader { within, ..*loader }.replace_object(loaded, changes, at, text.as_deref())
                })?
            }
            Change::Rollback(generation) => {
                let text = self.text_of(*generation)?;
                let changes = load::with_known(loaded, names, |loader| {
                    Loader { within, ..*loader }.go_back(loaded, &text.text())
                })?;
                return Ok((changes, Origin::Rollback));
            }
            Change::Endpoints { cluster, edit } => {
                let name = match edit {
                    config::EndpointEdit::Add(_) => None,
                    config::EndpointEdit::Remove(name) | config::EndpointEdit::Weight(name, _) => Some(name.as_str()),
                };
                find_endpoint(plan, cluster, name)?;
                let edited = load::with_known(loaded, names, |loader| {
                    Loader { within, ..*loader }.edit_endpoints(loaded, changes, cluster, edit)
                })?;
                edited.ok_or_else(|| not_listed(plan, cluster))?
            }
            Change::Reset | Change::Reload | Change::Upgrade | Change::Wish { .. } | Change::EndCanary { .. } => {
                Changes::default()
            }
        };
        Ok((wanted, Origin::Api))
    }

    fn text_of(&self, generation: u64) -> Result<Whole, Refusal> {
        let entries = self.view.generations();
        let known: Vec<u64> =
            entries.iter().filter(|entry| entry.text.is_some()).map(|entry| entry.generation).collect();
        let found = entries.into_iter().find(|entry| entry.generation == generation).and_then(|entry| entry.text);
        found.ok_or_else(|| {
            let help = (!known.is_empty()).then(|| format!("the history has generations {}", ranges(&known)));
            missing(format!("generation {generation} is not in the history"), help)
        })
    }
}

/// Numbers in their order, those that follow one another as `1 to 5`.
fn ranges(numbers: &[u64]) -> String {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    let runs = sorted.chunk_by(|one, next| one + 1 == *next).map(|run| match run {
        [first, .., last] => format!("{first} to {last}"),
        _ => run[0].to_string(),
    });
    runs.collect::<Vec<_>>().join(", ")
}

/// Endpoints of a cluster that stand in no configuration cannot be changed there.
fn not_listed(plan: &Plan, cluster: &str) -> Refusal {
    match plan.cluster(cluster).and_then(|plan| plan.cluster.endpoints_from.as_ref()) {
        Some(from) => {
            let mend = "change them there; `drain`, `maintain`, `up` and `down` work here too".to_owned();
            missing(
                format!("the endpoints of the cluster `{cluster}` come from the provider `{}`", from.provider),
                Some(mend),
            )
        }
        None => missing("the endpoint is not in the configuration".to_owned(), None),
    }
}

fn missing(message: String, suggestion: Option<String>) -> Refusal {
    Refusal::Missing { message, suggestion }
}

/// Whether the object is there.
fn find_object(loaded: &Loaded, kind: &str, name: &str) -> Result<(), Refusal> {
    let snapshot = &loaded.snapshot;
    let names: Vec<&str> = match kind {
        "listeners" => snapshot.listeners.iter().map(|listener| listener.name.as_str()).collect(),
        "clusters" => snapshot.clusters.iter().map(|cluster| cluster.name.as_str()).collect(),
        _ => snapshot.routes.iter().map(|route| route.name.as_str()).collect(),
    };
    if names.contains(&name) {
        return Ok(());
    }
    let kind = kind.trim_end_matches('s');
    Err(missing(format!("there is no {kind} `{name}`"), config::did_you_mean(name, names)))
}

/// Whether the cluster is there, and the endpoint in it.
fn find_endpoint(plan: &Plan, cluster: &str, endpoint: Option<&str>) -> Result<(), Refusal> {
    let Some(found) = plan.cluster(cluster) else {
        let names: Vec<&str> = plan.clusters.iter().map(|plan| plan.cluster.name.as_str()).collect();
        return Err(missing(format!("there is no cluster `{cluster}`"), config::did_you_mean(cluster, names)));
    };
    let names: Vec<&str> = found.cluster.endpoints.iter().map(|endpoint| endpoint.name.as_str()).collect();
    match endpoint {
        Some(name) if !names.contains(&name) => {
            let message = format!("the cluster `{cluster}` has no endpoint `{name}`");
            Err(missing(message, config::did_you_mean(name, names)))
        }
        _ => Ok(()),
    }
}
