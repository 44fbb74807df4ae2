//! Which endpoint of a cluster a request would get.
//!
//! The balancer itself is asked, in a rehearsal: a view with the same standings, weights, counts in flight, times and
//! turns, whose places nobody else sees. The first pick is what would happen now; many more tell the shares.

use std::sync::Arc;

use model::PickReason;
use model::snapshot::{Balance, HashKey};
use serde::{Deserialize, Serialize};

use super::asked::Asked;
use super::rules;
use crate::balance::{self, Ask, View};
use crate::cluster::state::{ClusterState, EndpointState};
use crate::cluster::subset::Subset;
use crate::cluster::{ClusterPlan, EndpointPlan};
use crate::health::standing::Roll;

/// Picks that tell the shares, fewer where there are many endpoints to look at.
const PICKS: usize = 1_000;
/// Looks at endpoints that all these picks may take.
const LOOKS_MAX: usize = 200_000;
/// Endpoints that are told of one cluster at most: those that would get work first.
const ENDPOINTS_MAX: usize = 100;

/// A cluster that a request may go to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterExplanation {
    /// Its name.
    pub name: String,
    /// Share of the route's requests that go here, in percent.
    pub share: f64,
    /// How an endpoint is chosen, as the configuration calls it.
    pub balance: String,
    /// The endpoint that this request would get now.
    pub endpoint: Option<String>,
    /// The reason by which metrics and logs would count it.
    pub pick: Option<String>,
    /// Why that one, or why none.
    pub why: String,
    /// Requests that wait for an endpoint now.
    pub waiting: u32,
    /// What else bears on the choice.
    pub notes: Vec<String>,
    /// Endpoints, those that would get work first.
    pub endpoints: Vec<EndpointExplanation>,
    /// Endpoints that are left out of the list because there are many.
    pub left_out: usize,
}

/// An endpoint of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndpointExplanation {
    /// Its name.
    pub name: String,
    /// Where it stands: `fit`, `down`, `ejected`, `drain` and so on.
    pub standing: String,
    /// It takes requests only when no regular endpoint can.
    #[serde(default)]
    pub is_backup: bool,
    /// Its weight as it counts now.
    pub weight: u32,
    /// Requests or connections that it has now.
    pub in_flight: u32,
    /// The bound on these.
    pub connections_max: Option<u32>,
    /// Share of requests like this one that it would get, in percent.
    pub share: f64,
}

/// Tells about one cluster, which gets `share` percent of what is asked.
pub(super) fn tell(
    plan: &ClusterPlan,
    share: f64,
    asked: &Asked<'_>,
    chance: &mut dyn FnMut() -> u64,
) -> ClusterExplanation {
    let key = match asked.head {
        Some(head) => plan.key(head, asked.client),
        None => plan.key_of_client(asked.client),
    };
    let subset = match (asked.route, asked.head) {
        (Some(route), Some(head)) => route.subset(plan, head),
        _ => Subset::ALL,
    };
    let ask = Ask { key, subset, ..Ask::new(asked.at.now) };
    let roll = plan.roll();
    let rehearsal = Rehearsal::new(plan, &roll);
    let session = session(plan, &rehearsal, (asked, subset), chance);
    let mut pick = || match session {
        Session::At(index) => Some((index, PickReason::Session)),
        Session::Refused => None,
        Session::New | Session::Moves => rehearsal.pick(&ask, chance),
    };
    let first = pick();
    let mut picks = vec![0_u32; plan.endpoints.len()];
    let count = (LOOKS_MAX / picks.len().max(1)).clamp(20, PICKS) as u32;
    for _ in 0..count {
        if let Some((index, _)) = pick() {
            picks[index] += 1;
        }
    }
    let (endpoints, left_out) = endpoints(plan, &roll, (&picks, count), first.map(|(index, _)| index));
    let refusal = plan.would_refuse(asked.at.now);
    let is_full = is_at_its_bound(plan);
    let name = |index: usize| plan.endpoints[index].endpoint.name.to_string();
    let told = first.filter(|_| refusal.is_none() && !is_full);
    ClusterExplanation {
        name: plan.cluster.name.to_string(),
        share,
        balance: plan.cluster.balance.name().to_owned(),
        endpoint: told.map(|(index, _)| name(index)),
        pick: told.map(|(_, reason)| reason.as_str().to_owned()),
        why: refusal.unwrap_or_else(|| why(plan, &rehearsal, (first, session), &ask)),
        waiting: plan.state.waiting(),
        notes: [notes(plan, &roll, (&ask, session)), rules::notes(plan, asked, matches!(session, Session::At(_)))]
            .concat(),
        endpoints,
        left_out,
    }
}

/// What the request's session means for it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Session {
    /// It has none that is known.
    New,
    /// It stays with this endpoint.
    At(usize),
    /// Its endpoint is away, and another one takes it over.
    Moves,
    /// Its endpoint is away, and nobody else may have it.
    Refused,
}

fn session(
    plan: &ClusterPlan,
    rehearsal: &Rehearsal,
    (asked, subset): (&Asked<'_>, Subset),
    chance: &mut dyn FnMut() -> u64,
) -> Session {
    let Some(persistence) = &plan.persistence else { return Session::New };
    match persistence.peek(asked.head, asked.client, asked.at, chance).pinned() {
        None => Session::New,
        Some(pinned) if plan.keeps(&rehearsal.view, pinned, subset) => Session::At(pinned as usize),
        Some(_) if plan.refuses_others() => Session::Refused,
        Some(_) => Session::Moves,
    }
}

/// The places of a cluster, copied.
struct Rehearsal {
    view: View,
}

impl Rehearsal {
    fn new(plan: &ClusterPlan, roll: &Roll) -> Self {
        let state = Arc::new(ClusterState::new());
        // Held until the view holds them.
        let _tiers = plan.state.copy_tiers(&state);
        let copy = |endpoint: &EndpointPlan| EndpointPlan {
            state: Arc::new(EndpointState::rehearsed(&endpoint.state, state.clone())),
            ..endpoint.clone()
        };
        let endpoints: Box<[EndpointPlan]> = plan.endpoints.iter().map(copy).collect();
        Self { view: View::of(&plan.cluster, &endpoints, (&state, &plan.subsets), roll) }
    }

    /// The place of the endpoint that is picked, and why. Its place there is free again at once.
    fn pick(&self, ask: &Ask<'_>, chance: &mut dyn FnMut() -> u64) -> Option<(usize, PickReason)> {
        let regular = balance::take(self.view.tiers(ask.subset), chance, ask);
        let lease = regular.or_else(|| self.view.take_last(chance, ask))?;
        let lease = self.view.explained(lease, ask);
        Some((lease.endpoint_index(), lease.reason()))
    }
}

fn endpoints(
    plan: &ClusterPlan,
    roll: &Roll,
    (picks, count): (&[u32], u32),
    first: Option<usize>,
) -> (Vec<EndpointExplanation>, usize) {
    let mut order: Vec<usize> = (0..plan.endpoints.len()).collect();
    // In the order of the file, unless there are too many to tell of all.
    if order.len() > ENDPOINTS_MAX {
        order.sort_by_key(|&index| (Some(index) != first, std::cmp::Reverse(picks[index])));
    }
    let told = order.iter().take(ENDPOINTS_MAX).map(|&index| {
        let endpoint = &plan.endpoints[index];
        EndpointExplanation {
            name: endpoint.endpoint.name.to_string(),
            standing: roll.standing(index).as_str().to_owned(),
            is_backup: endpoint.endpoint.placement.is_backup,
            weight: roll.weight(index),
            in_flight: endpoint.state.in_flight(),
            connections_max: endpoint.endpoint.connections_max,
            share: f64::from(picks[index]) * 100.0 / f64::from(count),
        }
    });
    (told.collect(), order.len().saturating_sub(ENDPOINTS_MAX))
}

fn why(
    plan: &ClusterPlan,
    rehearsal: &Rehearsal,
    (first, session): (Option<(usize, PickReason)>, Session),
    ask: &Ask<'_>,
) -> String {
    let queue = plan.cluster.queue.is_some();
    let lends = plan.cluster.queue.as_ref().is_some_and(|queue| queue.use_backups);
    let queue_is_full = plan.cluster.queue.as_ref().is_some_and(|queue| plan.state.waiting() >= queue.requests_max);
    if session == Session::Refused {
        return "the endpoint of its session is not available, and no other may take it: 503".into();
    }
    if plan.cluster.endpoints.is_empty() {
        return "the cluster has no endpoints: 503".into();
    }
    if rehearsal.view.tiers(ask.subset).is_empty() {
        let whole = ask.subset == Subset::ALL;
        return format!(
            "no endpoint of {} is available: 503",
            if whole { "the cluster" } else { "the route's subset" }
        );
    }
    let is_full = is_at_its_bound(plan);
    let waits = |of: &str| {
        if queue_is_full { format!("{of}, and so is the queue: 503") } else { format!("{of}: it waits in the queue") }
    };
    match first {
        _ if is_full && queue => waits("the limit of the cluster is reached"),
        _ if is_full => "the limit of the cluster is reached, and there is no queue: 503".into(),
        None if queue && !lends && !rehearsal.view.reserve(ask.subset).is_empty() => {
            waits("all endpoints are full but for backups, which requests in the queue do not use")
        }
        None if queue => waits("all endpoints are full"),
        Some((index, _)) if session == Session::At(index) => stays(plan, index),
        None => "all endpoints are full, and there is no queue: 503".into(),
        Some(_) if queue && plan.state.waiting() > 0 && plan.is_behind(&rehearsal.view) => {
            "it waits behind the requests already in the queue".into()
        }
        Some((index, reason)) => {
            // Why it comes later is said already.
            let because = match (plan.endpoints[index].endpoint.placement.is_backup, reason) {
                (false, _) => return because(reason, &plan.cluster.balance, ask),
                (true, PickReason::Spill) => balance::reason(&plan.cluster.balance, ask).to_owned(),
                (true, _) => because(reason, &plan.cluster.balance, ask),
            };
            format!("a backup, as no regular endpoint can take the request; {because}")
        }
    }
}

fn stays(plan: &ClusterPlan, index: usize) -> String {
    let endpoint = &plan.endpoints[index];
    let is_full = endpoint.state.is_full(endpoint.endpoint.connections_max);
    format!("its session stays with it{}", if is_full { ", which is full now" } else { "" })
}

/// Whether no more may be under way in the whole cluster.
fn is_at_its_bound(plan: &ClusterPlan) -> bool {
    plan.bound().is_some_and(|max| plan.state.bounded() >= max)
}

fn because(reason: PickReason, balance: &Balance, ask: &Ask<'_>) -> String {
    let chosen = balance::reason(balance, ask);
    match reason {
        PickReason::Only => "no other is available".into(),
        PickReason::Overflow => "the endpoint of the request's key is full".into(),
        PickReason::OwnZone => format!("{chosen}, in the own zone"),
        PickReason::OtherZone => format!("{chosen}, in another zone: the own zone has too little capacity"),
        PickReason::Spill => format!("{chosen}, of a lower priority: the first has too little capacity"),
        PickReason::Panic => format!("{chosen}, regardless of health (panic)"),
        PickReason::Fallback => format!("{chosen}, as fallback for the route's subset"),
        _ => chosen.into(),
    }
}

fn notes(plan: &ClusterPlan, roll: &Roll, (ask, session): (&Ask<'_>, Session)) -> Vec<String> {
    let mut notes = Vec::new();
    if let Balance::Hash(hash) = &plan.cluster.balance {
        let keys: Vec<String> = hash.on.iter().map(key_text).collect();
        notes.push(format!("hashed by {}", keys.join(", else ")));
    }
    if ask.subset != Subset::ALL {
        notes.push("the route uses a subset of the cluster, by labels".to_owned());
    }
    if plan.cluster.spread.aperture.is_some() {
        notes.push("this instance uses a part of the endpoints, by `aperture`".to_owned());
    }
    if plan.persistence.is_some() && session == Session::New {
        notes.push("it has no known session: one may begin".to_owned());
    }
    if session == Session::Moves {
        notes.push("the endpoint of its session is not available: another takes it over".to_owned());
    }
    if roll.panics {
        notes.push("fewer endpoints are healthy than `panic_threshold`: health is ignored".to_owned());
    }
    notes
}

fn key_text(key: &HashKey) -> String {
    match key {
        HashKey::Source => "the client's address".to_owned(),
        HashKey::Header(name) => format!("the header field `{name}`"),
        HashKey::Cookie(name) => format!("the cookie `{name}`"),
        HashKey::Query(name) => format!("the query parameter `{name}`"),
        HashKey::Path => "the path".to_owned(),
        HashKey::Uri => "path and query".to_owned(),
    }
}
