//! What a plan would do to what is alive if it took the place of another. Pure: from two plans to lists.

use std::collections::HashMap;
use std::sync::Arc;

use model::fitness::AdminState;
use plan::{ByName, ClusterPlan, Plan};
use serde::Serialize;

/// Of each kind told; the others are counted.
const TOLD_MAX: usize = 200;

/// What becomes of listeners and endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Effects {
    /// New places where connections arrive.
    pub listeners_bound: Vec<ListenerEffect>,
    /// Places that are closed. Connections there end when they are idle.
    pub listeners_closed: Vec<ListenerEffect>,
    /// Endpoints that are new to their cluster.
    pub endpoints_added: Vec<EndpointEffect>,
    /// Endpoints that are removed. Requests in flight there finish.
    pub endpoints_removed: Vec<EndpointEffect>,
    /// Endpoints that get no new requests. Requests in flight there finish.
    pub endpoints_drained: Vec<EndpointEffect>,
    /// Endpoints that are let to work again.
    pub endpoints_readied: Vec<EndpointEffect>,
    /// How many more there are that are not told.
    pub left_out: usize,
}

/// A listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListenerEffect {
    /// Its name.
    pub name: String,
    /// As configured.
    pub bind: String,
    /// Connections open there now.
    pub connections: u32,
}

/// An endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EndpointEffect {
    /// Its cluster.
    pub cluster: String,
    /// Its name.
    pub name: String,
    /// Requests and streams there now.
    pub in_flight: u32,
}

impl Effects {
    /// Of putting `after` in the place of `before`.
    pub fn of(before: &Plan, after: &Plan) -> Self {
        let mut effects = Self::default();
        effects.listeners(before, after);
        let known = ByName::of(&before.clusters, |plan| &plan.cluster.name);
        let wanted = ByName::of(&after.clusters, |plan| &plan.cluster.name);
        for plan in &after.clusters {
            let twin = known.find(&plan.cluster.name);
            if !twin.is_some_and(|twin| Arc::ptr_eq(twin, plan)) {
                effects.endpoints(twin.map(|twin| &**twin), Some(plan));
            }
        }
        for plan in &before.clusters {
            if wanted.find(&plan.cluster.name).is_none() {
                effects.endpoints(Some(plan), None);
            }
        }
        effects.bound();
        effects
    }

    fn listeners(&mut self, before: &Plan, after: &Plan) {
        let told = |plan: &Plan, other: &Plan| -> Vec<ListenerEffect> {
            // A listener that only gets another name keeps its socket, unless its port is a free one.
            let stays = |name: &str, bind: &model::Address| {
                other.listeners.iter().any(|kept| {
                    let is_named = kept.listener.name.as_str() == name;
                    kept.listener.bind == *bind && (is_named || bind.port() != Some(0))
                })
            };
            let gone = plan.listeners.iter().filter(|plan| !stays(&plan.listener.name, &plan.listener.bind));
            let effect = |plan: &Arc<plan::ListenerPlan>| ListenerEffect {
                name: plan.listener.name.to_string(),
                bind: plan.listener.bind.to_string(),
                connections: plan.state.connections(),
            };
            gone.map(effect).collect()
        };
        self.listeners_closed = told(before, after);
        self.listeners_bound = told(after, before);
        self.listeners_bound.iter_mut().for_each(|listener| listener.connections = 0);
    }

    fn endpoints(&mut self, before: Option<&ClusterPlan>, after: Option<&ClusterPlan>) {
        let all = |plan: Option<&ClusterPlan>| -> HashMap<(String, String), (u32, AdminState)> {
            let endpoints = plan.map(|plan| plan.endpoints.peek()).unwrap_or_default();
            let entry = |plan: &plan::EndpointPlan| {
                let id = (plan.endpoint.name.to_string(), plan.endpoint.address.to_string());
                (id, (plan.state.in_flight(), plan.endpoint.state))
            };
            endpoints.iter().map(entry).collect()
        };
        let Some(cluster) = after.or(before).map(|plan| plan.cluster.name.to_string()) else { return };
        let (known, wanted) = (all(before), all(after));
        let effect =
            |name: &str, in_flight| EndpointEffect { cluster: cluster.clone(), name: name.to_owned(), in_flight };
        for ((name, address), (_, state)) in sorted(&wanted) {
            match known.get(&(name.clone(), address.clone())) {
                None => self.endpoints_added.push(effect(name, 0)),
                Some((in_flight, was)) if state.is_out() && !was.is_out() => {
                    self.endpoints_drained.push(effect(name, *in_flight));
                }
                Some((in_flight, was)) if !state.is_out() && was.is_out() => {
                    self.endpoints_readied.push(effect(name, *in_flight));
                }
                Some(_) => {}
            }
        }
        for (id, (in_flight, _)) in sorted(&known).into_iter().filter(|(id, _)| !wanted.contains_key(id)) {
            self.endpoints_removed.push(effect(&id.0, *in_flight));
        }
    }

    fn bound(&mut self) {
        let endpoints = [
            &mut self.endpoints_added,
            &mut self.endpoints_removed,
            &mut self.endpoints_drained,
            &mut self.endpoints_readied,
        ];
        for list in endpoints {
            self.left_out += list.len().saturating_sub(TOLD_MAX);
            list.truncate(TOLD_MAX);
        }
        for list in [&mut self.listeners_bound, &mut self.listeners_closed] {
            self.left_out += list.len().saturating_sub(TOLD_MAX);
            list.truncate(TOLD_MAX);
        }
    }
}

fn sorted<V>(map: &HashMap<(String, String), V>) -> Vec<(&(String, String), &V)> {
    let mut all: Vec<_> = map.iter().collect();
    all.sort_unstable_by_key(|(id, _)| *id);
    all
}
