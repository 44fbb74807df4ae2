//! The admin state of endpoints: runtime overrides, which the API calls wishes. They drain an endpoint, put it into maintenance, or take
//! it for up or down whatever its checks say.
//!
//! A wish lasts until it is taken back or the configuration has its endpoint no more. It waits a day for an endpoint that a provider
//! gives: a program that restarts during the work leaves its registry for a moment, and so does one whose name is not found just now.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use model::Snapshot;
use model::fitness::AdminState;
use serde::{Deserialize, Serialize};

/// A wish for one endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wish {
    /// The cluster.
    pub cluster: String,
    /// The endpoint, by its name.
    pub endpoint: String,
    /// `up`, `down`, `drain` or `maintenance`.
    pub state: String,
    /// Who wishes it.
    pub author: String,
    /// Since when, in seconds since 1970, in whole milliseconds.
    pub at_unix_s: f64,
}

impl Wish {
    /// Cluster and endpoint.
    pub(crate) fn id(&self) -> (&str, &str) {
        (&self.cluster, &self.endpoint)
    }
}

/// The states that can be wished, with what they are called.
pub const STATES: [(&str, AdminState); 4] = [
    ("up", AdminState::Up),
    ("down", AdminState::Down),
    ("drain", AdminState::Drain),
    ("maintenance", AdminState::Maintenance),
];

/// How long a wish waits for an endpoint that may be given again.
const ABSENCE_MAX: Duration = Duration::from_secs(24 * 3_600);

/// All wishes, by cluster and endpoint.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Vec<Wish>", into = "Vec<Wish>")]
pub struct Wishes {
    all: BTreeMap<(String, String), Wish>,
    /// Wishes whose endpoint is missing, and since when. Not saved: a start begins the wait again.
    absent: BTreeMap<(String, String), Instant>,
}

/// As far as they are kept.
impl PartialEq for Wishes {
    fn eq(&self, other: &Self) -> bool {
        self.all == other.all
    }
}

impl From<Vec<Wish>> for Wishes {
    fn from(list: Vec<Wish>) -> Self {
        let all = list.into_iter().map(|wish| ((wish.cluster.clone(), wish.endpoint.clone()), wish)).collect();
        Self { all, absent: BTreeMap::new() }
    }
}

impl From<Wishes> for Vec<Wish> {
    fn from(wishes: Wishes) -> Self {
        wishes.all.into_values().collect()
    }
}

impl Wishes {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// All of them, by cluster and endpoint.
    pub fn iter(&self) -> impl Iterator<Item = &Wish> {
        self.all.values()
    }

    /// The wish for one endpoint.
    pub fn get(&self, cluster: &str, endpoint: &str) -> Option<&Wish> {
        if self.all.is_empty() {
            return None;
        }
        self.all.get(&(cluster.to_owned(), endpoint.to_owned()))
    }

    /// Takes a wish in; `state` is one of [`STATES`], or `None` to take it back.
    pub fn set(&mut self, (cluster, endpoint): (&str, &str), state: Option<&str>, author: &str, at: SystemTime) {
        let id = (cluster.to_owned(), endpoint.to_owned());
        self.absent.remove(&id);
        let Some(state) = state else {
            self.all.remove(&id);
            return;
        };
        let at_unix_s = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64();
        // More digits would not all be the same when they are read back from text.
        let at_unix_s = (at_unix_s * 1000.0).round() / 1000.0;
        let (cluster, endpoint) = id.clone();
        let wish = Wish { cluster, endpoint, state: state.to_owned(), author: author.to_owned(), at_unix_s };
        self.all.insert(id, wish);
    }

    /// Puts the wishes into a snapshot, at this moment. Those for endpoints that it does not have end, or wait if the endpoint may be
    /// given again.
    pub fn apply(&mut self, snapshot: &mut Snapshot, now: Instant) {
        let Self { all, absent } = self;
        if all.is_empty() {
            return;
        }
        let is_over = |since: &Instant| now.saturating_duration_since(*since) >= ABSENCE_MAX;
        all.retain(|id, _| !absent.get(id).is_some_and(is_over));
        let mut found = BTreeSet::new();
        let wanted: HashSet<&str> = all.keys().map(|(cluster, _)| cluster.as_str()).collect();
        for cluster in snapshot.clusters.iter_mut().filter(|cluster| wanted.contains(cluster.name.as_str())) {
            let name = cluster.name.to_string();
            for endpoint in &mut Arc::make_mut(cluster).endpoints {
                let id = (name.clone(), endpoint.name.to_string());
                let Some(wish) = all.get(&id) else { continue };
                if let Some((_, state)) = STATES.iter().find(|(text, _)| *text == wish.state) {
                    endpoint.state = *state;
                    found.insert(id);
                }
            }
        }
        all.retain(|id, _| found.contains(id) || may_come_back(snapshot, &id.0));
        absent.retain(|id, _| all.contains_key(id) && !found.contains(id));
        for id in all.keys().filter(|id| !found.contains(*id)) {
            absent.entry(id.clone()).or_insert(now);
        }
    }
}

/// Whether a provider may give an endpoint of this cluster, or the whole of it, again.
fn may_come_back(snapshot: &Snapshot, cluster: &str) -> bool {
    let known = snapshot.clusters.iter().find(|known| known.name.as_str() == cluster);
    known.map_or(!snapshot.providers.is_empty(), |known| known.endpoints_from.is_some())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use config::file::EndpointSettings;

    use super::*;
    use crate::loader::without_names;

    #[test]
    fn a_wish_is_kept_as_text_and_read_back() {
        let mut wishes = Wishes::default();
        wishes.set(("a", "x:1"), Some("drain"), "me", SystemTime::UNIX_EPOCH + Duration::from_secs(5));
        wishes.set(("a", "y:1"), Some("up"), "me", SystemTime::UNIX_EPOCH);
        wishes.set(("a", "y:1"), None, "me", SystemTime::UNIX_EPOCH);
        let text = serde_json::to_string(&wishes).unwrap();
        assert_eq!(text, r#"[{"cluster":"a","endpoint":"x:1","state":"drain","author":"me","at_unix_s":5.0}]"#);
        assert_eq!(serde_json::from_str::<Wishes>(&text).unwrap(), wishes);
        assert_eq!(wishes.get("a", "x:1").map(|wish| wish.state.as_str()), Some("drain"));
        for beyond_ms in 0..1000 {
            let at = SystemTime::UNIX_EPOCH + Duration::from_nanos(1_795_311_580_842_811_317 + beyond_ms * 7_919_317);
            wishes.set(("a", "x:1"), Some("drain"), "me", at);
            let text = serde_json::to_string(&wishes).unwrap();
            assert_eq!(serde_json::from_str::<Wishes>(&text).unwrap(), wishes, "{text}");
        }
        let mut empty = Snapshot::default();
        wishes.apply(&mut empty, Instant::now());
        assert!(wishes.is_empty(), "its endpoint is gone");
    }

    #[test]
    fn a_wish_waits_a_day_for_an_endpoint_that_a_provider_may_give_again() {
        let text = "version: 1\nlisteners: { web: { bind: '127.0.0.1:0' } }\nroutes: [{ cluster: site }]\n\
                    clusters: { site: { endpoints: { from: fleet } }, own: { endpoints: ['127.0.0.1:1'] } }\n\
                    providers: { fleet: { file: { path: x } } }\n";
        let loaded = without_names(|loader| loader.load_text("test", text, Path::new("")));
        let away = loaded.unwrap_or_else(|error| panic!("{error}")).snapshot;
        let list = [EndpointSettings::at("127.0.0.1:2")];
        let given = without_names(|loader| loader.endpoints("fleet", "site", &list)).unwrap();
        let mut there = away.clone();
        Arc::make_mut(&mut there.clusters[0]).endpoints = given.to_vec();
        let mut wishes = Wishes::default();
        for id in [("site", "127.0.0.1:2"), ("own", "127.0.0.1:1"), ("own", "127.0.0.1:9"), ("given", "127.0.0.1:2")] {
            wishes.set(id, Some("drain"), "me", SystemTime::UNIX_EPOCH);
        }
        let clusters = |wishes: &Wishes| wishes.iter().map(|wish| wish.cluster.clone()).collect::<Vec<_>>();
        let (now, moment) = (Instant::now(), Duration::from_secs(1));
        let state = |wishes: &mut Wishes, snapshot: &Snapshot, at: Instant| {
            let mut snapshot = snapshot.clone();
            wishes.apply(&mut snapshot, at);
            snapshot.clusters[0].endpoints.first().map(|endpoint| endpoint.state)
        };
        assert_eq!(state(&mut wishes, &away, now), None);
        assert_eq!(clusters(&wishes), ["given", "own", "site"], "one is in no list of anybody");
        let kept = wishes.clone();
        assert_eq!(state(&mut wishes, &there, now + ABSENCE_MAX - moment), Some(AdminState::Drain));
        assert!(wishes == kept, "that it was away is nothing to be written");
        // A day begins anew.
        state(&mut wishes, &away, now + ABSENCE_MAX);
        assert_eq!(clusters(&wishes), ["own", "site"]);
        assert_eq!(state(&mut wishes, &there, now + 2 * ABSENCE_MAX - moment), Some(AdminState::Drain));
        state(&mut wishes, &away, now + 2 * ABSENCE_MAX);
        assert_ne!(state(&mut wishes, &there, now + 3 * ABSENCE_MAX), Some(AdminState::Drain), "too late");
        assert_eq!(clusters(&wishes), ["own"]);
    }
}
