//! What an operator wishes of endpoints beside the configuration: to drain one, to work on it, to take it for well or unwell
//! whatever its checks say. A wish lasts until it is taken back or its endpoint is gone from the configuration.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

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

/// All wishes, by cluster and endpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<Wish>", into = "Vec<Wish>")]
pub struct Wishes(BTreeMap<(String, String), Wish>);

impl From<Vec<Wish>> for Wishes {
    fn from(list: Vec<Wish>) -> Self {
        Self(list.into_iter().map(|wish| ((wish.cluster.clone(), wish.endpoint.clone()), wish)).collect())
    }
}

impl From<Wishes> for Vec<Wish> {
    fn from(wishes: Wishes) -> Self {
        wishes.0.into_values().collect()
    }
}

impl Wishes {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, by cluster and endpoint.
    pub fn iter(&self) -> impl Iterator<Item = &Wish> {
        self.0.values()
    }

    /// The wish for one endpoint.
    pub fn get(&self, cluster: &str, endpoint: &str) -> Option<&Wish> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&(cluster.to_owned(), endpoint.to_owned()))
    }

    /// Takes a wish in; `state` is one of [`STATES`], or `None` to take it back.
    pub fn set(&mut self, (cluster, endpoint): (&str, &str), state: Option<&str>, author: &str, at: SystemTime) {
        let id = (cluster.to_owned(), endpoint.to_owned());
        let Some(state) = state else {
            self.0.remove(&id);
            return;
        };
        let at_unix_s = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64();
        // More digits would not all be the same when they are read back from text.
        let at_unix_s = (at_unix_s * 1000.0).round() / 1000.0;
        let (cluster, endpoint) = id.clone();
        let wish = Wish { cluster, endpoint, state: state.to_owned(), author: author.to_owned(), at_unix_s };
        self.0.insert(id, wish);
    }

    /// Puts the wishes into a snapshot. Those for endpoints that it does not have end.
    pub fn apply(&mut self, snapshot: &mut Snapshot) {
        if self.0.is_empty() {
            return;
        }
        let mut found = Vec::new();
        for cluster in &mut snapshot.clusters {
            let name = cluster.name.to_string();
            if !self.0.keys().any(|(wanted, _)| *wanted == name) {
                continue;
            }
            for endpoint in &mut Arc::make_mut(cluster).endpoints {
                let id = (name.clone(), endpoint.name.to_string());
                let Some(wish) = self.0.get(&id) else { continue };
                if let Some((_, state)) = STATES.iter().find(|(text, _)| *text == wish.state) {
                    endpoint.state = *state;
                    found.push(id);
                }
            }
        }
        self.0.retain(|id, _| found.contains(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        wishes.apply(&mut empty);
        assert!(wishes.is_empty(), "its endpoint is gone");
    }
}
