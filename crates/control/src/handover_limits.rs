//! Limits by key, for the process that follows: how far keys are ahead, and how many places they hold.
//!
//! A limit goes over with its place, its filter, what it counts and a hash of its settings. Its entries are one text of hexadecimal digits:
//! of each the hash of its key, and how many nanoseconds it is ahead or how many places it holds, in eight bytes each. The key of the hash
//! goes with them. The process before reports its places again and again while it drains, because it still holds them.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use plan::Plan;
use plan::limit::{Handed, LimitName, LimitState, Rates};
use serde_json::{Value, json};

use crate::handover::{from_hex, to_hex};
use crate::handover_tables::{read_hash_key, write_hash_key};

/// Keys of all rates that are handed over. Limits share this room, and the keys that are furthest ahead go first.
const RATES_MAX: usize = 500_000;
/// Keys in one report of places.
const PLACES_MAX: usize = 100_000;

/// Rates that have gone over, so that they do not go again.
#[derive(Debug)]
pub struct Told {
    /// When they went over.
    pub at: Instant,
    /// Place of the limit in the plan, hash of a key, and nanoseconds that it was ahead then.
    entries: HashSet<(usize, u64, u64)>,
}

/// Returns what is known of rates, and what remembers it for the next time. With `before`, only what has changed since.
pub fn of_rates(plan: &Plan, before: Option<&Told>, now: Instant) -> (Value, Told) {
    let limits = plan.limits();
    let mut rates: Vec<(usize, usize, &Rates)> = Vec::new();
    for (place, (_, limit)) in limits.iter().enumerate() {
        if let LimitState::Rates(state) = limit {
            rates.push((state.spent(now), place, state));
        }
    }
    // What a limit with few keys leaves of its share goes to those after it.
    rates.sort_by_key(|(count, ..)| *count);
    let at = before.map_or(now, |told| told.at);
    let passed = now.saturating_duration_since(at).as_nanos() as u64;
    let (mut room, mut entries, mut told) = (RATES_MAX, HashSet::new(), Vec::new());
    for (turn, (_, place, state)) in rates.iter().enumerate() {
        let Some(mut handed) = state.hand_over(room / (rates.len() - turn), now) else { continue };
        room -= handed.entries.len();
        let known = |entry: &[u64; 2]| (*place, entry[0], entry[1].saturating_add(passed));
        match before {
            Some(before) => handed.entries.retain(|entry| !before.entries.contains(&known(entry))),
            None => entries.extend(handed.entries.iter().map(known)),
        }
        told.push(told_limit(&limits[*place], &handed));
    }
    (told.into(), Told { at, entries })
}

/// Returns how many places are held.
pub fn of_places(plan: &Plan) -> Value {
    let (mut room, mut told) = (PLACES_MAX, Vec::new());
    for limit in &plan.limits() {
        let LimitState::InFlight(state) = &limit.1 else { continue };
        if let Some(handed) = state.hand_over(room) {
            room -= handed.entries.len();
            told.push(told_limit(limit, &handed));
        }
    }
    told.into()
}

fn told_limit((name, state): &(LimitName, LimitState), handed: &Handed) -> Value {
    let entries: Vec<[u8; 8]> = handed.entries.as_flattened().iter().map(|number| number.to_be_bytes()).collect();
    json!({
        "of": name.of,
        "filter": name.filter,
        "key": name.key,
        "settings": settings_of(name),
        "kind": state.kind(),
        "hash_key": write_hash_key(&handed.hash_key),
        "entries": to_hex(entries.as_flattened()),
    })
}

/// Takes over what [`of_rates`] or [`of_places`] told. A limit takes that of one with equal settings, or else the first that belongs to no
/// limit of the plan.
pub fn inherit_limits(plan: &Plan, told: &Value, now: Instant) {
    let Some(all) = told.as_array().filter(|all| !all.is_empty()) else { return };
    let limits = plan.limits();
    let mut told_as: HashMap<Place<'_>, Vec<&Value>> = HashMap::new();
    for one in all {
        let text = |name: &str| one[name].as_str().unwrap_or_default();
        told_as.entry((text("of"), text("filter"), text("key"), text("kind"))).or_default().push(one);
    }
    let own: HashSet<(Place<'_>, String)> =
        limits.iter().map(|limit| (place_of(limit), settings_of(&limit.0))).collect();
    for limit in &limits {
        let (at, settings) = (place_of(limit), settings_of(&limit.0));
        let Some(free) = told_as.get_mut(&at) else { continue };
        let is_orphan = |one: &&Value| !own.contains(&(at, one["settings"].as_str().unwrap_or_default().to_owned()));
        let equal = free.iter().position(|one| one["settings"] == settings.as_str());
        let Some(found) = equal.or_else(|| free.iter().position(is_orphan)) else { continue };
        if let Some(handed) = read(free.remove(found)) {
            limit.1.inherit(&handed, now);
        }
    }
}

/// Where a limit is: route or listener, filter, key and kind.
type Place<'a> = (&'a str, &'a str, &'a str, &'a str);

fn place_of((name, state): &(LimitName, LimitState)) -> Place<'_> {
    (&name.of, name.filter, &name.key, state.kind())
}

fn settings_of(name: &LimitName) -> String {
    format!("{:016x}", name.settings)
}

/// Reads as many entries as are whole.
fn read(told: &Value) -> Option<Handed> {
    let bytes = from_hex(told["entries"].as_str()?)?;
    let (numbers, _) = bytes.as_chunks::<8>();
    let (entries, _) = numbers.as_chunks::<2>();
    let entries = entries.iter().take(RATES_MAX).map(|entry| entry.map(u64::from_be_bytes)).collect();
    Some(Handed { hash_key: read_hash_key(&told["hash_key"])?, entries })
}

/// Gives back the places that the process before held: it has ended.
pub fn forget_places(plan: &Plan) {
    for (_, limit) in plan.limits() {
        if let LimitState::InFlight(places) = limit {
            places.disinherit();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use plan::limit::Limit;

    use crate::loader::without_names;

    use super::*;

    fn plan(filters: &str) -> Plan {
        let text = format!(
            r#"
version: 1
listeners: {{ web: {{ bind: "127.0.0.1:80", connections_per_address: {{ max: 9, rate: 1/h, burst: 9 }} }} }}
routes: [{{ name: main, cluster: site, filters: [{filters}] }}]
clusters: {{ site: {{ endpoints: ["127.0.0.1:1"] }} }}
"#
        );
        let loaded = without_names(|loader| loader.load_text("test", &text, Path::new("")));
        let snapshot = loaded.unwrap_or_else(|error| panic!("{error}")).snapshot;
        plan::compile(Arc::new(snapshot), None, 1).unwrap_or_else(|issues| panic!("{issues:?}"))
    }

    fn limit() -> Limit {
        Limit::compile("1/h", Some(9)).unwrap()
    }

    /// Counts once at each limit, as many times as its place says.
    fn count(plan: &Plan, now: Instant) {
        for (place, (_, state)) in plan.limits().iter().enumerate() {
            for _ in 0..=place {
                match state {
                    LimitState::Rates(rates) => assert!(rates.spend(b"a", &limit(), now, &mut || 7).is_allowed),
                    LimitState::InFlight(places) => assert!(places.enter(b"a", 9, &mut || 7).is_some()),
                }
            }
        }
    }

    /// How many are taken of each limit.
    fn taken(plan: &Plan, now: Instant) -> Vec<u32> {
        let of = |state: &LimitState| match state {
            LimitState::Rates(rates) => 9 - rates.look(b"a", &limit(), now).left - 1,
            LimitState::InFlight(places) => places.count(b"a"),
        };
        plan.limits().iter().map(|(_, state)| of(state)).collect()
    }

    const FILTERS: &str = "{ rate_limit: { rate: 1/s } }, { rate_limit: { rate: 2/s } }, { concurrency_limit: { max: 9 } }, \
        { bandwidth_limit: { download: 1MB/s, per: key } }";

    #[test]
    fn each_limit_gets_its_own_back_in_parts_too() {
        let (before, now) = (plan(FILTERS), Instant::now());
        count(&before, now);
        assert_eq!(before.limits().len(), 7);
        let (first, told) = of_rates(&before, None, now);
        let later = now + Duration::from_millis(20);
        if let LimitState::Rates(rates) = &before.limits()[3].1 {
            rates.spend(b"b", &limit(), later, &mut || 7);
        }
        let (second, _) = of_rates(&before, Some(&told), later);
        let entries: Vec<usize> =
            second.as_array().unwrap().iter().map(|one| one["entries"].as_str().unwrap().len()).collect();
        assert_eq!(entries.iter().sum::<usize>(), 32, "only what has changed: {second}");
        let after = plan(FILTERS);
        for told in [first, second, of_places(&before)] {
            inherit_limits(&after, &told, now);
        }
        assert_eq!(taken(&after, now), taken(&before, now));
        forget_places(&after);
        assert_eq!(taken(&after, now), [0, 2, 3, 4, 0, 6, 7]);
    }

    #[test]
    fn a_limit_whose_settings_change_keeps_its_keys_and_takes_those_of_no_other() {
        let (before, now) = (plan("{ rate_limit: { rate: 1/s } }, { rate_limit: { rate: 2/s } }"), Instant::now());
        count(&before, now);
        let (told, _) = of_rates(&before, None, now);
        let after = plan(
            "{ rate_limit: { rate: 3/s } }, { rate_limit: { rate: 1/s } }, { rate_limit: { rate: 1/s, keys_max: 5 } }",
        );
        inherit_limits(&after, &told, now);
        assert_eq!(taken(&after, now)[2..], [4, 3, 0]);
    }

    #[test]
    fn rubbish_is_passed_over() {
        let (before, now) = (plan(FILTERS), Instant::now());
        count(&before, now);
        let (told, _) = of_rates(&before, None, now);
        let text = told[0]["entries"].as_str().unwrap();
        for strange in ["", "f", "zz", &text[..text.len() - 1], &text[..16], &"f".repeat(4_096)] {
            for part in ["entries", "hash_key", "settings", "key", "kind", "of"] {
                let mut broken = told.clone();
                broken[0][part] = strange.into();
                inherit_limits(&plan(FILTERS), &broken, now);
            }
        }
        for strange in [json!(null), json!({}), json!([7, {}, [], { "of": 1 }])] {
            let after = plan(FILTERS);
            inherit_limits(&after, &strange, now);
            assert!(taken(&after, now).iter().all(|count| *count == 0));
        }
    }
}
