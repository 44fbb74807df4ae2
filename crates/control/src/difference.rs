//! What two configurations differ in, as a person would say it. Pure: from two values to a list.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use crate::admin_state::{Wish, Wishes};

/// Differences told; the others are counted.
pub const DIFFERENCES_MAX: usize = 200;
/// Longest value that is shown, in bytes of JSON.
const VALUE_BYTES_MAX: usize = 300;

/// One place that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Parts are joined by `/`; items of lists go by their name or address where they have one, and by their place from 0
    /// otherwise.
    pub path: String,
    /// What was there. `None`: nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// What is there. `None`: nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

/// All of them, in the order of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Differences {
    /// At most [`DIFFERENCES_MAX`].
    pub list: Vec<Difference>,
    /// How many more there are.
    pub left_out: usize,
}

impl Differences {
    /// Between two configurations.
    pub fn between(before: &Value, after: &Value) -> Self {
        let mut all = Self::default();
        all.compare("", Some(before), Some(after));
        all
    }

    /// Whether both say the same.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Adds what is wished otherwise of endpoints.
    pub fn add_wishes(&mut self, before: &Wishes, after: &Wishes) {
        let state = |wish: Option<&Wish>| wish.map(|wish| Value::from(wish.state.as_str()));
        let mut ids: Vec<(&str, &str)> = before.iter().chain(after.iter()).map(Wish::id).collect();
        ids.sort_unstable();
        ids.dedup();
        for (cluster, endpoint) in ids {
            let (old, new) = (state(before.get(cluster, endpoint)), state(after.get(cluster, endpoint)));
            if old != new {
                self.push(&format!("wishes/{cluster}/{endpoint}"), old.as_ref(), new.as_ref());
            }
        }
    }

    fn compare(&mut self, path: &str, before: Option<&Value>, after: Option<&Value>) {
        match (before, after) {
            (Some(before), Some(after)) if before == after => {}
            (Some(before), Some(after)) => match parts(before, after) {
                Some((first, second)) => self.descend(path, &first, &second),
                None => self.push(path, Some(before), Some(after)),
            },
            // A long object that was added or removed is shown by its parts.
            (before, after) => {
                match before.or(after).filter(|_| self.list.len() < DIFFERENCES_MAX).and_then(long_parts) {
                    Some(all) if before.is_some() => self.descend(path, &all, &[]),
                    Some(all) => self.descend(path, &[], &all),
                    None => self.push(path, before, after),
                }
            }
        }
    }

    fn descend(&mut self, path: &str, before: &[(String, &Value)], after: &[(String, &Value)]) {
        let second: BTreeMap<&str, &Value> = after.iter().map(|(key, value)| (key.as_str(), *value)).collect();
        let first: BTreeMap<&str, &Value> = before.iter().map(|(key, value)| (key.as_str(), *value)).collect();
        let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}/{key}") };
        let count = self.list.len();
        for (key, value) in before {
            self.compare(&below(key), Some(value), second.get(key.as_str()).copied());
        }
        for (key, value) in after.iter().filter(|(key, _)| !first.contains_key(key.as_str())) {
            self.compare(&below(key), None, Some(value));
        }
        if self.list.len() == count && self.left_out == 0 {
            // Only the order differs.
            let order = |parts: &[(String, &Value)]| parts.iter().map(|(key, _)| Value::from(key.as_str())).collect();
            let (before, after): (Value, Value) = (order(before), order(after));
            if before != after && !path.is_empty() {
                self.push(&below("(order)"), Some(&before), Some(&after));
            }
        }
    }

    fn push(&mut self, path: &str, before: Option<&Value>, after: Option<&Value>) {
        if self.list.len() >= DIFFERENCES_MAX {
            self.left_out += 1;
            return;
        }
        let shown = |value: &Value| config::unsealed(value.clone());
        let (before, mut after) = (before.map(shown), after.map(shown));
        if before.is_some() && before == after {
            // Only what is hidden differs.
            after = Some("(hidden, changed)".into());
        }
        let told = |value: Option<Value>| value.as_ref().map(brief);
        self.list.push(Difference { path: path.to_owned(), before: told(before), after: told(after) });
    }
}

/// Parts of a value, each by a key of its own.
type Parts<'a> = Vec<(String, &'a Value)>;

/// What two maps, or two lists, are made of. Items of lists go by their names where all of both lists have one of their own.
fn parts<'a>(before: &'a Value, after: &'a Value) -> Option<(Parts<'a>, Parts<'a>)> {
    match (before, after) {
        (Value::Object(first), Value::Object(second)) => {
            let all =
                |map: &'a serde_json::Map<String, Value>| map.iter().map(|(key, value)| (key.clone(), value)).collect();
            Some((all(first), all(second)))
        }
        (Value::Array(first), Value::Array(second)) => {
            let counted = |items: &'a [Value]| -> Parts<'a> {
                items.iter().enumerate().map(|(index, item)| (index.to_string(), item)).collect()
            };
            Some(named(first).zip(named(second)).unwrap_or_else(|| (counted(first), counted(second))))
        }
        _ => None,
    }
}

/// The parts of a value that is too long to be shown whole.
fn long_parts(value: &Value) -> Option<Parts<'_>> {
    let parts = parts(value, value)?.0;
    (value.to_string().len() > VALUE_BYTES_MAX && !parts.is_empty()).then_some(parts)
}

fn named(items: &[Value]) -> Option<Parts<'_>> {
    let name = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        value => Some(value.get("name").or_else(|| value.get("address"))?.as_str()?.to_owned()),
    };
    let all: Parts<'_> = items.iter().map(|item| Some((name(item)?, item))).collect::<Option<_>>()?;
    let keys: BTreeSet<&str> = all.iter().map(|(key, _)| key.as_str()).collect();
    (keys.len() == all.len()).then_some(all)
}

fn brief(value: &Value) -> Value {
    let length = value.to_string().len();
    if length <= VALUE_BYTES_MAX { value.clone() } else { Value::String(format!("({length} bytes)")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(before: &Value, after: &Value) -> Vec<String> {
        let show = |value: &Option<Value>| value.as_ref().map_or("-".to_owned(), Value::to_string);
        let all = Differences::between(before, after).list;
        all.iter().map(|one| format!("{} {} {}", one.path, show(&one.before), show(&one.after))).collect()
    }

    #[test]
    fn differences_are_told_by_name_however_items_move() {
        let before = json!({
            "version": 1,
            "clusters": { "a": { "endpoints": ["x:1", { "address": "y:1", "weight": 1 }], "balance": "random" } },
            "routes": [{ "name": "one", "cluster": "a" }, { "name": "two", "cluster": "a" }],
        });
        assert!(told(&before, &before).is_empty());
        let after = json!({
            "version": 1,
            "clusters": { "a": { "endpoints": [{ "address": "y:1", "weight": 2 }, "z:1"], "balance": "random" }, "b": {} },
            "routes": [{ "name": "two", "cluster": "a" }, { "name": "one", "cluster": "b" }],
        });
        assert_eq!(
            told(&before, &after),
            [
                "clusters/a/endpoints/x:1 \"x:1\" -",
                "clusters/a/endpoints/y:1/weight 1 2",
                "clusters/a/endpoints/z:1 - \"z:1\"",
                "clusters/b - {}",
                "routes/one/cluster \"a\" \"b\"",
            ]
        );
        let mut moved = before.clone();
        moved["routes"].as_array_mut().unwrap().reverse();
        assert_eq!(told(&before, &moved), ["routes/(order) [\"one\",\"two\"] [\"two\",\"one\"]"]);
    }

    #[test]
    fn lists_without_names_go_by_place_and_what_is_long_is_cut() {
        assert_eq!(told(&json!({ "l": [1, 2] }), &json!({ "l": [1, 3, 4] })), ["l/1 2 3", "l/2 - 4"]);
        assert_eq!(told(&json!({ "l": ["a", "a"] }), &json!({ "l": ["a"] })), ["l/1 \"a\" -"]);
        assert_eq!(told(&json!({ "l": [] }), &json!({ "l": {} })), ["l [] {}"]);
        assert_eq!(told(&json!({}), &json!({ "t": "x".repeat(2_000) })), ["t - \"(2002 bytes)\""]);
        let text = "x".repeat(200);
        let long = json!({ "l": { "web": { "bind": text, "list": ["b", text], "tls": { "a": 1 } }, "x": 1 } });
        let there = json!({ "l": { "x": 1 } });
        let parts =
            [("bind", format!("\"{text}\"")), ("list", format!("[\"b\",\"{text}\"]")), ("tls", "{\"a\":1}".into())];
        let come = parts.each_ref().map(|(key, value)| format!("l/web/{key} - {value}"));
        let gone = parts.each_ref().map(|(key, value)| format!("l/web/{key} {value} -"));
        assert_eq!((told(&there, &long), told(&long, &there)), (come.to_vec(), gone.to_vec()));
        let many: Value = (0..500).map(|n| (format!("k{n}"), json!(n))).collect::<serde_json::Map<_, _>>().into();
        let all = Differences::between(&json!({}), &many);
        assert_eq!((all.list.len(), all.left_out), (DIFFERENCES_MAX, 300));
    }
}
