//! Parts of a cluster, by the labels of its endpoints.
//!
//! A route names labels, with values that are written or come from the request. When the plan is made, the endpoints that
//! have all of these labels are sorted by their values: each combination that occurs is a subset, which the balancer
//! treats as if it were the whole cluster. Finding it for a request is one look into a table.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use model::placement::{LabelValue, Otherwise, SubsetRule};
use model::{FieldName, RequestHead};

use crate::cluster::Endpoints;
use crate::hash::{self, FastMap};
use crate::random::mix;

/// Names of labels that some route goes by, sorted.
pub(crate) type Names = Vec<String>;

/// The subsets of one cluster. Number 0 is the whole of it.
#[derive(Default)]
pub(crate) struct Subsets {
    /// By which labels there are subsets.
    names: BTreeSet<Names>,
    numbers: FastMap<u64, u32>,
    /// Of each subset but the whole, what it is called by and the places of its endpoints.
    pub(crate) parts: Vec<(u64, Vec<usize>)>,
}

/// The endpoints that a request may go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Subset {
    /// The number of the one that is wanted.
    pub(crate) wanted: u32,
    /// The number of the one that takes over while no one in that may get work.
    pub(crate) otherwise: u32,
}

/// The number that no subset has.
const NOBODY: u32 = u32::MAX;

impl Subset {
    /// All endpoints of the cluster.
    pub const ALL: Self = Self { wanted: 0, otherwise: NOBODY };
}

/// What a route says about subsets, compiled.
pub(crate) struct SubsetPlan {
    /// Hashes of names, in order, and where the values come from.
    labels: Box<[(u64, Value)]>,
    otherwise: Fallback,
}

enum Value {
    /// Its hash.
    Written(u64),
    Header(FieldName),
}

enum Fallback {
    Nobody,
    Anybody,
    /// What the subset is called by.
    Subset(u64),
}

impl SubsetPlan {
    pub(crate) fn new(rule: &SubsetRule) -> Self {
        let value = |value: &LabelValue| match value {
            LabelValue::Written(text) => Some(Value::Written(hash::of_bytes(text.as_bytes()))),
            LabelValue::Header(name) => FieldName::new(name).ok().map(Value::Header),
        };
        let label = |(name, from): (&String, &LabelValue)| Some((hash::of_bytes(name.as_bytes()), value(from)?));
        let otherwise = match &rule.otherwise {
            Otherwise::Nobody => Fallback::Nobody,
            Otherwise::Anybody => Fallback::Anybody,
            Otherwise::Labels(labels) => Fallback::Subset(called(labels)),
        };
        Self { labels: rule.labels.iter().filter_map(label).collect(), otherwise }
    }

    /// Returns what the subset that a request wants is called by; `None` when it lacks a header field.
    fn called(&self, head: &RequestHead) -> Option<u64> {
        self.labels.iter().try_fold(0, |sum, (name, value)| {
            let value = match value {
                Value::Written(hash) => *hash,
                Value::Header(name) => hash::of_bytes(head.fields.get(name)?),
            };
            Some(fold(sum, *name, value))
        })
    }
}

/// Returns the names of labels that a rule goes by, with those of its fallback.
pub(crate) fn names_of(rule: &SubsetRule) -> impl Iterator<Item = Names> {
    let otherwise = match &rule.otherwise {
        Otherwise::Labels(labels) => Some(labels.keys().cloned().collect()),
        _ => None,
    };
    std::iter::once(rule.labels.keys().cloned().collect()).chain(otherwise)
}

impl Subsets {
    /// Compiles the subsets. Most clusters have none, and share one empty value.
    pub(crate) fn new(names: BTreeSet<Names>, endpoints: &Endpoints) -> Arc<Self> {
        static NONE: LazyLock<Arc<Subsets>> = LazyLock::new(Arc::default);
        if names.is_empty() {
            return Arc::clone(&NONE);
        }
        let mut subsets = Self { names, ..Self::default() };
        for names in &subsets.names {
            for (index, plan) in endpoints.iter().enumerate() {
                let labels = &plan.endpoint.placement.labels;
                let pairs = names.iter().map(|name| labels.get(name).map(|value| (name, value)));
                let Some(labels) = pairs.collect::<Option<Vec<_>>>() else { continue };
                let called = called(labels);
                let number = *subsets.numbers.entry(called).or_insert_with(|| {
                    subsets.parts.push((called, Vec::new()));
                    subsets.parts.len() as u32
                });
                subsets.parts[number as usize - 1].1.push(index);
            }
        }
        Arc::new(subsets)
    }

    /// Returns whether they are made by these labels.
    pub(crate) fn are_by(&self, names: &BTreeSet<Names>) -> bool {
        self.names == *names
    }

    /// Returns whether the endpoint at this place belongs to a part, by its number.
    pub(crate) fn holds(&self, number: u32, place: u32) -> bool {
        match number.checked_sub(1) {
            None => true,
            // They were sorted in the order of their places.
            Some(part) => {
                self.parts.get(part as usize).is_some_and(|(_, places)| places.binary_search(&(place as usize)).is_ok())
            }
        }
    }

    /// Returns the like of one of these subsets among those of another plan.
    pub(crate) fn translate(&self, subset: Subset, to: &Self) -> Subset {
        let number = |number: u32| match number.checked_sub(1) {
            None => 0,
            Some(part) => {
                let called = self.parts.get(part as usize).map(|(called, _)| called);
                called.and_then(|called| to.numbers.get(called).copied()).unwrap_or(NOBODY)
            }
        };
        Subset { wanted: number(subset.wanted), otherwise: number(subset.otherwise) }
    }

    /// Returns what a request may go to by the rule of its route.
    pub(crate) fn find(&self, rule: &SubsetPlan, head: &RequestHead) -> Subset {
        let number = |called: u64| self.numbers.get(&called).copied().unwrap_or(NOBODY);
        Subset {
            wanted: rule.called(head).map_or(NOBODY, number),
            otherwise: match rule.otherwise {
                Fallback::Nobody => NOBODY,
                Fallback::Anybody => 0,
                Fallback::Subset(called) => number(called),
            },
        }
    }
}

/// Returns what a subset is called by: labels in the order of their names.
fn called<'a>(labels: impl IntoIterator<Item = (&'a String, &'a String)>) -> u64 {
    let hash = |text: &String| hash::of_bytes(text.as_bytes());
    labels.into_iter().fold(0, |sum, (name, value)| fold(sum, hash(name), hash(value)))
}

#[inline]
fn fold(sum: u64, name: u64, value: u64) -> u64 {
    mix(mix(sum ^ name).wrapping_add(value))
}

#[cfg(test)]
mod tests;
