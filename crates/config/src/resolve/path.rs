//! Paths that routes and filters name, in the form in which they are compared: anyone who writes `/caf%c3%a9` means what clients ask
//! for, and a route that guards a path guards it however the configuration spells it.

use model::filter::PATH_FORMAT;
use model::path::normal;
use model::snapshot::{EscapedSlashes, Paths};
use serde_json::Value;

use super::Resolver;

impl Resolver<'_> {
    /// Notes into which forms the listeners of the route that comes next bring paths; no names are all listeners.
    pub(super) fn note_forms(&mut self, listeners: &[String]) {
        self.objects.forms.clear();
        for (name, paths) in &self.objects.paths {
            let is_one = listeners.is_empty() || listeners.contains(name);
            if is_one && !self.objects.forms.contains(paths) {
                self.objects.forms.push(*paths);
            }
        }
    }

    /// Returns a path as the listeners of the route have it. Where they do not agree, or refuse it, it stays as it was written, and that is
    /// told.
    pub(super) fn compared_path(&mut self, at: &str, path: &str) -> String {
        let of = |rules: &Option<Paths>| match rules {
            Some(rules) if path.starts_with('/') => normal(path, rules),
            _ => Some(path.to_owned()),
        };
        let mut found: Vec<String> = self.objects.forms.iter().filter_map(of).collect();
        found.sort_unstable();
        found.dedup();
        match found.as_slice() {
            [one] => return one.clone(),
            [] if self.objects.forms.is_empty() => {}
            [] => self.warn_of_no_form(at, path),
            several => {
                let list = several.iter().map(|form| format!("`{form}`")).collect::<Vec<_>>().join(" and ");
                let message = format!("the listeners of this route normalize the path `{path}` differently: {list}");
                let mend = "give each listener its own route, with `listeners`; here the path is compared as written";
                self.warn(at, message, Some(mend.to_owned()));
            }
        }
        path.to_owned()
    }

    fn warn_of_no_form(&mut self, at: &str, path: &str) {
        let kept = Paths { merge_slashes: true, escaped_slashes: EscapedSlashes::Keep };
        let mend = normal(path, &kept).map(|_| "set `paths: { escaped_slashes: keep }` in the listener".to_owned());
        let message = format!("no request has the path `{path}`: it is ambiguous, so such requests are rejected");
        self.warn(at, message, mend);
    }

    /// Brings the paths among the settings of a filter into their form, wherever its schema says that there is one.
    pub(super) fn compare_settings(&mut self, at: &str, schema: &Value, settings: &mut Value) {
        match settings {
            Value::String(path) if schema.get("format").and_then(Value::as_str) == Some(PATH_FORMAT) => {
                *path = self.compared_path(at, path);
            }
            Value::Object(map) => {
                for (key, value) in map {
                    if let Some(schema) = of_key(schema, key) {
                        self.compare_settings(&format!("{at}/{key}"), schema, value);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Returns what a schema says of a key, also where `null` may stand in place of the whole.
fn of_key<'s>(schema: &'s Value, key: &str) -> Option<&'s Value> {
    let own = schema.get("properties").and_then(|properties| properties.get(key));
    own.or_else(|| schema.get("anyOf")?.as_array()?.iter().find_map(|one| of_key(one, key)))
}
