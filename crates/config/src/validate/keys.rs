//! The keys of a map: their names, and those that are not known.

use serde_json::{Map, Value};

use super::{ALL_FILTERS, ALL_KEYS, NAME_RULE, Validator, check_name};
use crate::changes::NAMED;
use crate::elsewhere;
use crate::file::{DEFAULTS, DEFAULTS_KEY, NAME_FORMAT, Protocol, WHEN};
use crate::tree::{ByName, Key, Node, Step};
use crate::wording::{may_hold, mend_place, similar_key};

impl<'a> Validator<'a> {
    pub(super) fn known_by_name(&self) -> Option<ByName<'a>> {
        let [Step::Key(kind)] = self.path.as_slice() else { return None };
        let known = self.known.filter(|_| NAMED.contains(&kind.text.as_str()))?;
        Some(ByName::of(known.get(&kind.text)))
    }

    pub(super) fn check_name(&mut self, schema: &Map<String, Value>, key: &Key) {
        let named = schema.get("propertyNames").and_then(|names| names.get("format")).and_then(Value::as_str);
        if named == Some(NAME_FORMAT)
            && let Err(message) = check_name(&key.text)
        {
            self.tell(key.span, message, Some(NAME_RULE.to_owned()));
        }
    }

    pub(super) fn unknown_key(
        &mut self,
        properties: Option<&'a Map<String, Value>>,
        (key, value): (&'a Key, &'a Node),
        entries: &[(Key, Node)],
    ) {
        if let [Step::Key(top), Step::Key(kind)] = self.path.as_slice()
            && top.text == DEFAULTS_KEY
            && let Some((message, suggestion)) = refusal(&kind.text, &key.text)
        {
            self.path.push(Step::Key(key));
            self.report(key.span, message, suggestion);
            self.path.pop();
            return;
        }
        let place = self.place(self.path.len());
        let suggestion = if self.advise { self.mend_key(properties, (key, value), entries) } else { None };
        let what = if self.inside_filter() { "filter" } else { "key" };
        self.path.push(Step::Key(key));
        self.report(key.span, format!("unknown {what} `{}` in {place}", key.text), suggestion);
        self.path.pop();
    }

    /// What was meant by an unknown key.
    fn mend_key(
        &self,
        properties: Option<&'a Map<String, Value>>,
        (key, value): (&Key, &Node),
        entries: &[(Key, Node)],
    ) -> Option<String> {
        let is_within = matches!(self.path.get(2), Some(Step::Key(key)) if key.text == "filters");
        let filter = match self.path.get(4) {
            Some(Step::Key(name)) if is_within => Some(name.text.as_str()),
            _ => None,
        };
        if let Some(mend) = mend_place((key.text.as_str(), value), properties, (self.root, filter)) {
            return Some(mend);
        }
        if let Some(mend) = elsewhere::key_of_block(&self.path, &key.text) {
            return Some(mend);
        }
        // A filter is looked for among filters; `when` is none.
        let of_filter = self.inside_filter();
        let is_http = self.is_http_listener(entries);
        let names = properties.into_iter().flat_map(Map::keys).map(String::as_str);
        let names = names.filter(|name| !(of_filter && *name == WHEN || is_http && *name == "cluster"));
        let filters = self.root.pointer("/$defs/Filter/properties").and_then(Value::as_object);
        let has_filters = properties.is_some_and(|known| known.contains_key("filters"));
        let is_filter = |name: &str| has_filters && name != WHEN && filters.is_some_and(|all| all.contains_key(name));
        let takes = |name: &str| may_hold(properties.and_then(|known| known.get(name)), self.root, value);
        let all = if is_within { ALL_FILTERS } else { ALL_KEYS };
        let is_there = |name: &str| {
            let own = |(other, _): &(Key, Node)| other.text == *name && !self.of_defaults.contains(&other.span);
            entries.iter().any(own)
        };
        similar_key(&key.text, names, &is_there, (&is_filter, &takes, all))
    }

    /// Whether the current node is a listener that takes requests, which routes lead on.
    fn is_http_listener(&self, entries: &[(Key, Node)]) -> bool {
        let [Step::Key(top), Step::Key(_)] = self.path.as_slice() else { return false };
        let protocol = entries.iter().find(|(key, _)| key.text == "protocol").and_then(|(_, value)| value.text());
        top.text == "listeners" && Protocol::has_routes(protocol)
    }

    /// Whether the current node is an item of a route's `filters`, whose only key is a filter's name.
    pub(super) fn inside_filter(&self) -> bool {
        match self.path.as_slice() {
            [Step::Key(routes), Step::Index(_), Step::Key(filters), Step::Index(_)] => {
                routes.text == "routes" && filters.text == "filters"
            }
            [Step::Key(top), Step::Key(routes), Step::Key(filters), Step::Index(_)] => {
                top.text == DEFAULTS_KEY && routes.text == "routes" && filters.text == "filters"
            }
            _ => false,
        }
    }
}

/// Says that a key of an object can have no default, where that is so.
fn refusal(kind: &str, key: &str) -> Option<(String, Option<String>)> {
    let (kind, _, own) = DEFAULTS.iter().find(|(known, ..)| *known == kind)?;
    let one = kind.trim_end_matches('s');
    own.contains(&key).then(|| {
        let mend = (key != DEFAULTS_KEY).then(|| format!("write it in each {one}"));
        (format!("`{key}` cannot have a default: each {one} has its own"), mend)
    })
}
