//! A limit that several instances share through Redis or Valkey: the setting `shared`.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA256, digest};
use model::Issue;
use model::filter::CLUSTER_FORMAT;
use schemars::JsonSchema;
use serde::Deserialize;

use super::need::{CalledCluster, StoreAsk, StoreCost, StoreLogin};
use super::settings::{DurationText, FileText};
use super::{Compiling, EventCounter};
use crate::limit::{Limit, Rates};

/// Bytes of a name, and of a key that is sent as it is; of a longer one, its digest is sent.
const NAME_BYTES_MAX: usize = 128;
const KEY_BYTES_MAX: usize = 256;
const TIMEOUT_MAX: Duration = Duration::from_secs(10);

/// A limit that several instances share.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Shared {
    /// Where the limit is counted.
    redis: Redis,
    /// Name of the limit, up to 128 bytes: instances and filters with the same name count together. By default one of the rate, the burst
    /// and the key.
    name: Option<String>,
    /// What becomes of requests while the store does not answer: `local` (by default) counts them in this process, `open` lets them pass,
    /// and `closed` rejects them with 503.
    #[serde(default)]
    when_away: WhenAway,
    /// How long a request waits for the store, up to 10s; 100ms by default.
    timeout: Option<DurationText>,
}

/// A store that speaks the protocol of Redis.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Redis {
    /// The cluster of its endpoints. The first that is up is asked.
    #[schemars(extend("format" = CLUSTER_FORMAT))]
    cluster: String,
    /// The user (ACL) to log in as; by default the default user.
    username: Option<String>,
    /// A file that holds the password; white space at its end does not count.
    password_file: Option<FileText>,
    /// Number of the database, from 0 to 1023; 0 by default.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1023))]
    database: u16,
}

/// What becomes of requests while the store does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum WhenAway {
    /// They are counted in this process.
    #[default]
    Local,
    /// They pass.
    Open,
    /// They are rejected with 503.
    Closed,
}

/// A limit that is counted elsewhere, compiled.
pub(super) struct SharedLimit {
    cluster: CalledCluster,
    login: Arc<StoreLogin>,
    /// What the keys of this limit begin with.
    prefix: Vec<u8>,
    /// Numbers for the script: the interval, the burst and what a request may wait at most, in microseconds.
    arguments: Arc<[String; 3]>,
    timeout: Duration,
    pub(super) when_away: WhenAway,
    /// Requests that the store did not judge.
    pub(super) away: EventCounter,
    /// Costs of responses that the store did not take.
    lost: EventCounter,
}

/// What a response takes of a key in a store. It is sent beside the response, which does not wait for it.
pub struct Charge {
    /// What is asked of the store.
    pub ask: StoreAsk,
    lost: EventCounter,
    /// Where it is taken if the store does not.
    instead: Option<Instead>,
}

/// A key in the table of this process, and what is taken of it.
pub(super) struct Instead {
    pub rates: Arc<Rates>,
    pub number: u64,
    pub limit: Limit,
    pub cost: u64,
}

impl Charge {
    /// Counts that the store has not taken it; it is taken here instead, if that is what the configuration says.
    pub fn lose(self, now: Instant) {
        self.lost.add_one();
        if let Some(Instead { rates, number, limit, cost }) = self.instead {
            rates.charge(number, (&limit, cost), now);
        }
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Charge").field("ask", &self.ask).finish_non_exhaustive()
    }
}

impl Shared {
    /// Checks the settings. `default_name` names the limit if nothing else does.
    ///
    /// # Errors
    /// The first that is out of range, with its path below the filter.
    pub(super) fn compile(
        self,
        limit: &Limit,
        default_name: String,
        compiling: &mut Compiling<'_>,
    ) -> Result<SharedLimit, Issue> {
        let name = self.name.unwrap_or(default_name);
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            let issue = Issue::at("shared/name", format!("a name has 1 to {NAME_BYTES_MAX} bytes, not {}", name.len()));
            return Err(issue.suggest("choose a short name, such as that of the API"));
        }
        let timeout = self.timeout.map_or(Duration::from_millis(100), |timeout| timeout.0);
        if timeout > TIMEOUT_MAX {
            let issue = Issue::at("shared/timeout", "a request may wait for at most 10s");
            return Err(issue.suggest("use 100ms; the store is near, and each request waits for it"));
        }
        let Redis { cluster, username, password_file, database } = self.redis;
        if database > 1023 {
            let issue = Issue::at("shared/redis/database", format!("{database} is more than 1023"));
            return Err(issue.suggest("leave it out for 0"));
        }
        let password = password_file.map(|file| file.text.trim_end().to_owned());
        if username.is_some() && password.is_none() {
            let issue = Issue::at("shared/redis/username", "a user needs a password");
            return Err(issue.suggest("add `password_file`"));
        }
        Ok(SharedLimit {
            cluster: compiling.cluster(&cluster, "shared/redis/cluster"),
            login: Arc::new(StoreLogin { username, password, database }),
            prefix: prefix(&name),
            arguments: Arc::new(limit.in_microseconds()),
            timeout,
            when_away: self.when_away,
            away: compiling.counter("away"),
            lost: compiling.counter("charge_lost"),
        })
    }
}

/// Returns what the keys of the limit of a name begin with: also the length of the name, so that none ends where a key begins. It has no
/// braces: a Redis Cluster would take what is between them for a hash tag, and keep all keys of the limit on one node.
fn prefix(name: &str) -> Vec<u8> {
    format!("equipoise:limit:{}:{}:", name.len(), name.replace('{', "(").replace('}', ")")).into_bytes()
}

/// Returns the key in the store: no two keys have the same.
fn stored_key(prefix: &[u8], key: &[u8]) -> Vec<u8> {
    if key.len() <= KEY_BYTES_MAX {
        [prefix, b"=", key].concat()
    } else {
        [prefix, b"#", digest(&SHA256, key).as_ref()].concat()
    }
}

impl SharedLimit {
    /// Returns the key in the store.
    pub(super) fn stored_key(&self, key: &[u8]) -> Vec<u8> {
        stored_key(&self.prefix, key)
    }

    /// Returns what is asked for a request of this key, as it is in the store. `cost`: if it is not one interval.
    pub(super) fn ask(&self, key: Vec<u8>, cost: Option<StoreCost>) -> StoreAsk {
        let (login, arguments) = (Arc::clone(&self.login), Arc::clone(&self.arguments));
        StoreAsk { cluster: self.cluster, login, key, arguments, cost, timeout: self.timeout }
    }

    /// Returns what a response takes of this key, as it is in the store.
    pub(super) fn charge(&self, key: Vec<u8>, limit: &Limit, cost: u64, instead: Option<Instead>) -> Charge {
        let (amount, furthest) = (limit.charge_in_microseconds(cost), Some(limit.furthest_in_microseconds()));
        let cost = StoreCost { amount, furthest, is_charge: true };
        Charge { ask: self.ask(key, Some(cost)), lost: self.lost.clone(), instead }
    }
}

impl fmt::Debug for SharedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedLimit").field("arguments", &self.arguments).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_name_of_a_limit_holds_no_hash_tag_of_a_redis_cluster() {
        let [one, other] = [b"a", b"b"].map(|key| stored_key(&prefix("100/m 100 Client(Network { v4: 1 })"), key));
        assert!(one != other && !one.iter().chain(&other).any(|byte| b"{}".contains(byte)));
    }

    #[test]
    fn no_two_names_and_keys_have_one_key_in_the_store() {
        let long = "x".repeat(KEY_BYTES_MAX);
        let keys = ["b:c", "c", "", "=c", &long, &format!("{long}y"), &format!("{long}z")];
        let digest = [b"#".as_slice(), digest(&SHA256, format!("{long}y").as_bytes()).as_ref()].concat();
        let mut stored = HashSet::new();
        for name in ["a", "a:b", "a:", "1:a"] {
            for key in keys.iter().map(|key| key.as_bytes()).chain([digest.as_slice(), &digest[1..]]) {
                let one = stored_key(&prefix(name), key);
                assert!(one.len() <= 2 * KEY_BYTES_MAX, "{}", one.len());
                assert!(stored.insert(one), "{name} {key:?}");
            }
        }
    }
}
