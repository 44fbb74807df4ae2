//! The state that a process hands to its successor, as JSON: health, circuits, sessions, counters. It is written and read here.
//!
//! Objects go by their names, endpoints by cluster, name and address. What either side does not know is passed over: the
//! other may be of another version.

use std::time::{Duration, Instant};

use model::Name;
use plan::breaker::CircuitHandover;
use plan::health::agent::{PERCENT_MAX, Report, Wish};
use plan::health::handover::EndpointHandover;
use plan::health::passive::{Cause, Evidence, PassiveHandover};
use plan::{HealthState, Moment, Plan, TableHandover};
use serde_json::{Map, Value, json};
use telemetry::Figures;
use telemetry::figures::{Counts, Gone};

/// Bytes of an entry of a table of sessions.
const ENTRY_BYTES: usize = 20;

/// What is known of the endpoints of a plan.
pub fn of_endpoints(plan: &Plan, now: Instant) -> Value {
    let mut clusters = Map::new();
    for cluster in plan.clusters.iter().filter(|cluster| cluster.endpoints.are_made()) {
        let known = cluster.hand_over(now).into_iter().zip(&cluster.endpoints).map(|(handed, plan)| {
            let mut told = endpoint(&handed);
            told["name"] = plan.endpoint.name.as_str().into();
            told["address"] = plan.endpoint.address.to_string().into();
            told
        });
        clusters.insert(cluster.cluster.name.to_string(), known.collect());
    }
    clusters.into()
}

/// Takes in what [`of_endpoints`] tells.
pub fn inherit_endpoints(plan: &Plan, told: &Value, now: Instant) {
    for cluster in &plan.clusters {
        let Some(list) = told[cluster.cluster.name.as_str()].as_array() else { continue };
        let mut handed = Vec::new();
        for one in list {
            let is_it = |plan: &plan::EndpointPlan| {
                one["name"] == plan.endpoint.name.as_str() && one["address"] == plan.endpoint.address.to_string()
            };
            if let Some(place) = cluster.endpoints.iter().position(is_it) {
                handed.push((place, read_endpoint(one)));
            }
        }
        if !handed.is_empty() {
            cluster.inherit(&handed, now);
        }
    }
}

fn endpoint(handed: &EndpointHandover) -> Value {
    let EndpointHandover { health: (health, against), agent, climb, passive } = handed;
    let mut told = json!({ "health": health.as_str(), "against": against });
    if *agent != Report::default() {
        let wish = match agent.wish {
            Wish::Ready => "ready",
            Wish::Drain => "drain",
            Wish::Maintenance => "maint",
        };
        told["agent"] = json!({ "wish": wish, "down": agent.is_down, "percent": agent.percent });
    }
    if let Some((share, gone)) = climb {
        told["climb"] = json!({ "share": share, "for_s": gone.as_secs_f64() });
    }
    if let Some(passive) = passive {
        told["passive"] = told_passive(passive);
    }
    told
}

fn told_passive(passive: &PassiveHandover) -> Value {
    let counts: Map<String, Value> =
        passive.counts.iter().map(|(cause, count)| (cause.as_str().to_owned(), (*count).into())).collect();
    let mut told = json!({ "level": passive.level, "counts": counts, "run": passive.run });
    if let Some((number, left)) = passive.ejected {
        told["ejected"] = json!({ "number": number, "left_s": left.as_secs_f64() });
    }
    if let Some(evidence) = passive.evidence {
        told["evidence"] = json!({ "cause": evidence.cause().as_str(), "figures": evidence.figures() });
    }
    told
}

fn read_endpoint(told: &Value) -> EndpointHandover {
    let health = match told["health"].as_str() {
        Some("up") => HealthState::Up,
        Some("down") => HealthState::Down,
        _ => HealthState::Unknown,
    };
    let agent = &told["agent"];
    let wish = match agent["wish"].as_str() {
        Some("drain") => Wish::Drain,
        Some("maint") => Wish::Maintenance,
        _ => Wish::Ready,
    };
    let percent = agent["percent"].as_u64().map_or(100, |percent| percent.min(PERCENT_MAX.into()) as u16);
    let report = Report { wish, is_down: agent["down"] == true, percent };
    let climb = &told["climb"];
    let climb = number(&climb["share"]).zip(seconds(&climb["for_s"]));
    let passive = told.get("passive").map(read_passive);
    EndpointHandover { health: (health, number(&told["against"]).unwrap_or(0)), agent: report, climb, passive }
}

fn read_passive(told: &Value) -> PassiveHandover {
    let cause = |name: &str| Cause::ALL.into_iter().find(|cause| cause.as_str() == name);
    let counts = told["counts"].as_object().into_iter().flatten();
    let ejected = &told["ejected"];
    let evidence = &told["evidence"];
    let figures = serde_json::from_value(evidence["figures"].clone()).unwrap_or_default();
    PassiveHandover {
        ejected: ejected["number"].as_u64().filter(|number| *number > 0).zip(seconds(&ejected["left_s"])),
        evidence: evidence["cause"].as_str().and_then(cause).map(|cause| Evidence::of(cause, figures)),
        level: number(&told["level"]).unwrap_or(0),
        counts: counts.filter_map(|(name, count)| Some((cause(name)?, count.as_u64()?))).collect(),
        run: serde_json::from_value(told["run"].clone()).unwrap_or_default(),
    }
}

fn number(told: &Value) -> Option<u32> {
    told.as_u64().and_then(|number| u32::try_from(number).ok())
}

fn seconds(told: &Value) -> Option<Duration> {
    Duration::try_from_secs_f64(told.as_f64()?).ok()
}

/// Where circuits stand that are not closed, or were not always.
pub fn of_circuits(plan: &Plan, now: Instant) -> Value {
    let mut clusters = Map::new();
    for cluster in &plan.clusters {
        let handed = cluster.hand_over_circuit(now).filter(|handed| *handed != CircuitHandover::default());
        let Some(CircuitHandover { opened, rests_for }) = handed else { continue };
        let told = json!({ "opened": opened, "rests_for_s": rests_for.map(|rest| rest.as_secs_f64()) });
        clusters.insert(cluster.cluster.name.to_string(), told);
    }
    clusters.into()
}

/// Takes in what [`of_circuits`] tells.
pub fn inherit_circuits(plan: &Plan, told: &Value, now: Instant) {
    for cluster in &plan.clusters {
        let told = &told[cluster.cluster.name.as_str()];
        let (opened, rests_for) = (told["opened"].as_u64().unwrap_or(0), seconds(&told["rests_for_s"]));
        let handed = CircuitHandover { opened, rests_for };
        if handed != CircuitHandover::default() {
            cluster.inherit_circuit(handed, now);
        }
    }
}

/// What tables of sessions remember. Entries are one text of hexadecimal digits each, for there may be a million. Where all that was
/// told before, `since` is how long ago: what was used since then is told, and may be what was told before.
pub fn of_sessions(plan: &Plan, now: Instant, since: Option<Duration>) -> Value {
    let mut clusters = Map::new();
    for cluster in &plan.clusters {
        let Some(persistence) = &cluster.persistence else { continue };
        let Some((known_by, mut handed)) = persistence.hand_over(now) else { continue };
        if let Some(since) = since {
            // In tenths of a second, which either moment may have been within.
            let ages = u32::try_from(since.as_millis() / 100 + 2).unwrap_or(u32::MAX);
            handed.entries.retain(|(_, _, age)| *age <= ages);
            handed.evictions = 0;
        }
        let mut entries = Vec::with_capacity(handed.entries.len() * ENTRY_BYTES);
        for (key, endpoint, age) in &handed.entries {
            entries.extend(key.to_be_bytes());
            entries.extend(endpoint.to_be_bytes());
            entries.extend(age.to_be_bytes());
        }
        let told = json!({
            "by": known_by,
            "seed": handed.seed,
            "evictions": handed.evictions,
            "entries": to_hex(&entries),
        });
        clusters.insert(cluster.cluster.name.to_string(), told);
    }
    clusters.into()
}

/// Takes in what [`of_sessions`] tells.
pub fn inherit_sessions(plan: &Plan, told: &Value, at: Moment) {
    for cluster in &plan.clusters {
        let Some(persistence) = &cluster.persistence else { continue };
        let told = &told[cluster.cluster.name.as_str()];
        let (Some(known_by), Ok(seed)) = (told["by"].as_str(), serde_json::from_value(told["seed"].clone())) else {
            continue;
        };
        let bytes = told["entries"].as_str().and_then(from_hex).unwrap_or_default();
        let (entries, _) = bytes.as_chunks::<ENTRY_BYTES>();
        let entry = |bytes: &[u8; ENTRY_BYTES]| {
            let number = |from: usize| bytes[from..from + 8].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
            // The last four of its bytes.
            (number(0), number(8), (number(12) & u64::from(u32::MAX)) as u32)
        };
        let evictions = told["evictions"].as_u64().unwrap_or(0);
        let handed = TableHandover { seed, evictions, entries: entries.iter().map(entry).collect() };
        persistence.inherit(known_by, &handed, at);
    }
}

/// Bytes as hexadecimal digits.
pub fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = |byte: &u8| [DIGITS[usize::from(byte >> 4)] as char, DIGITS[usize::from(byte & 15)] as char];
    bytes.iter().flat_map(digits).collect()
}

/// The reverse of [`to_hex`]. `None`: these are no such digits.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = |pair: &[u8; 2]| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8);
    if rest.is_empty() { pairs.iter().map(byte).collect() } else { None }
}

/// All counters.
pub fn of_figures(figures: &Figures) -> Value {
    let by_name = |list: &[(Name, Counts)]| -> Value {
        list.iter()
            .filter(|(_, counts)| !counts.is_empty())
            .map(|(name, counts)| json!([name.as_str(), counts]))
            .collect()
    };
    let endpoints = figures.endpoints.iter().filter(|(_, counts)| !counts.is_empty());
    let endpoints: Value =
        endpoints.map(|((cluster, name), counts)| json!([cluster.as_str(), name.as_str(), counts])).collect();
    json!({
        "listeners": by_name(&figures.listeners),
        "routes": by_name(&figures.routes),
        "clusters": by_name(&figures.clusters),
        "endpoints": endpoints,
        "gone": { "listeners": figures.gone.listeners, "clusters": figures.gone.clusters },
    })
}

/// The reverse of [`of_figures`].
pub fn read_figures(told: &Value) -> Figures {
    let counts = |told: &Value| serde_json::from_value::<Counts>(told.clone()).ok();
    let name = |told: &Value| told.as_str().map(Name::from);
    let list = |key: &str| told[key].as_array().into_iter().flatten();
    let by_name = |key: &str| list(key).filter_map(|one| Some((name(&one[0])?, counts(&one[1])?))).collect();
    let endpoints = list("endpoints").filter_map(|one| Some(((name(&one[0])?, name(&one[1])?), counts(&one[2])?)));
    Figures {
        listeners: by_name("listeners"),
        routes: by_name("routes"),
        clusters: by_name("clusters"),
        endpoints: endpoints.collect(),
        gone: Gone {
            listeners: counts(&told["gone"]["listeners"]).unwrap_or_default(),
            clusters: counts(&told["gone"]["clusters"]).unwrap_or_default(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_an_endpoint_is_told_and_read_back() {
        let handed = EndpointHandover {
            health: (HealthState::Down, 2),
            agent: Report { wish: Wish::Drain, is_down: true, percent: 40 },
            climb: Some((7, Duration::from_millis(1_500))),
            passive: Some(PassiveHandover {
                ejected: Some((9, Duration::from_secs(4))),
                evidence: Some(Evidence::FailureRate { bad: 6, requests: 10 }),
                level: 3,
                counts: vec![(Cause::FailureRate, 5)],
                run: (1, 2),
            }),
        };
        assert_eq!(read_endpoint(&endpoint(&handed)), handed);
        assert_eq!(read_endpoint(&endpoint(&EndpointHandover::default())), EndpointHandover::default());
        let strange = json!({
            "health": "floating", "against": -1, "agent": 7, "climb": { "share": "x", "for_s": -3 },
            "passive": { "counts": { "moon": 1, "latency": 2.5 }, "ejected": { "number": 0, "left_s": 1e300 }, "run": "x" },
        });
        let read = read_endpoint(&strange);
        assert_eq!((read.health, read.climb), ((HealthState::Unknown, 0), None));
        assert_eq!(read.passive, Some(PassiveHandover::default()));
        let read = read_endpoint(&json!({ "agent": { "percent": u64::MAX } }));
        assert_eq!(read.agent.percent, PERCENT_MAX, "as of an agent itself");
    }

    #[test]
    fn figures_are_told_and_read_back() {
        let counts: Counts = [("requests.2xx".to_owned(), 7), ("latency.nanos".to_owned(), u64::MAX)].into();
        let figures = Figures {
            listeners: vec![("web".into(), counts.clone())],
            routes: vec![("main".into(), counts.clone())],
            clusters: vec![("site".into(), counts.clone())],
            endpoints: vec![(("site".into(), "a:1".into()), counts.clone())],
            gone: Gone { listeners: counts, clusters: Counts::default() },
        };
        let text = of_figures(&figures).to_string();
        assert_eq!(read_figures(&serde_json::from_str(&text).unwrap()), figures);
        assert_eq!(read_figures(&json!({ "listeners": [7, ["a"], ["a", { "b": -1 }]] })), Figures::default());
    }
}
