//! Filters of a route: their settings checked by what they are, and the files that these name read.

use model::Name;
use model::filter::{CLUSTER_FORMAT, FILE_FORMAT, FILE_TEXT, FilterUse};
use model::matching::When;
use serde_json::{Value, json};

use super::Resolver;
use crate::file::{self, WHEN};

/// Bytes of one file that a filter or a list names. A million networks are a quarter of it.
const FILE_BYTES_MAX: usize = 64 << 20;

impl Resolver<'_> {
    /// Returns the filters of the route at a place.
    pub(super) fn filters(&mut self, route: usize, written: &[file::FilterUse]) -> Vec<FilterUse> {
        let at = format!("routes/{route}/filters");
        let mut all = Vec::new();
        for (index, filter) in written.iter().enumerate() {
            let when = self.when_of(&format!("{at}/{index}/{WHEN}"), filter);
            for (name, settings) in &filter.0 {
                let path = format!("{at}/{index}/{name}");
                // The schema knows the very same filters.
                let Some(spec) = self.loader.filters.iter().find(|spec| spec.name == name) else { continue };
                let (schema, mut settings) = ((spec.schema)(), settings.clone());
                if !self.read_files(&path, &schema, &mut settings) {
                    continue;
                }
                self.compare_settings(&path, &schema, &mut settings);
                // What is wrong was taken out. A check of the rest would miss it.
                if self.faulty.has_filter(route, (index, name)) {
                    continue;
                }
                match (spec.check)(&settings) {
                    Ok(()) => {
                        let calls = self.called_clusters(&path, &schema, &settings);
                        all.push(FilterUse { name: name.clone(), settings, when: when.clone(), calls });
                    }
                    Err(issue) => self.issue(issue.below(&path)),
                }
            }
        }
        all
    }

    /// Returns the clusters that the settings of a filter name, wherever its schema says that there is one.
    fn called_clusters(&mut self, at: &str, schema: &Value, settings: &Value) -> Vec<Name> {
        match settings {
            Value::String(name) if schema.get("format").and_then(Value::as_str) == Some(CLUSTER_FORMAT) => {
                self.cluster_exists(at, name);
                vec![Name::from(name.as_str())]
            }
            Value::Object(map) => {
                let known = |key| Some((key, schema.get("properties")?.get(key)?));
                let parts = map.iter().filter_map(|(key, value)| known(key.as_str()).map(|found| (found, value)));
                parts
                    .flat_map(|((key, schema), value)| self.called_clusters(&format!("{at}/{key}"), schema, value))
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    fn when_of(&mut self, at: &str, filter: &file::FilterUse) -> Option<When> {
        let written = filter.0.get(WHEN)?;
        match serde_json::from_value::<file::When>(written.clone()) {
            Ok(written) => Some(self.when(at, &written)),
            Err(error) => {
                // What is wrong with it has been told already, with its place.
                if self.sink.is_empty() {
                    self.report(at, error.to_string(), None);
                }
                None
            }
        }
    }

    fn when(&mut self, at: &str, written: &file::When) -> When {
        let mut statuses = Vec::new();
        for (index, status) in written.status.as_slice().iter().enumerate() {
            match status.0.parse() {
                Ok(status) => statuses.push(status),
                Err(message) => self.report(&written.status.path(&format!("{at}/status"), index), message, None),
            }
        }
        let mut list = |key: &str, list: &Option<Vec<file::When>>| {
            let list = list.iter().flatten().enumerate();
            list.map(|(index, one)| self.when(&format!("{at}/{key}/{index}"), one)).collect::<Vec<_>>()
        };
        let (any, all) = (list("any", &written.any), list("all", &written.all));
        let not = written.not.as_ref().map(|not| Box::new(self.when(&format!("{at}/not"), not)));
        let tables = self.table_tests(at, &written.table);
        When { matches: self.matches(at, &written.matches()), statuses, tables, not, any, all }
    }

    /// Puts what files hold in the place of their names, wherever the schema of a filter says that there is one. False: one
    /// cannot be read, which has been told.
    fn read_files(&mut self, at: &str, schema: &Value, settings: &mut Value) -> bool {
        match settings {
            Value::String(name) if schema.get("format").and_then(Value::as_str) == Some(FILE_FORMAT) => {
                let Some(text) = self.text_file(at, name) else { return false };
                *settings = json!({ "name": name, FILE_TEXT: text });
                true
            }
            Value::Object(map) => {
                let mut are_read = true;
                for (key, value) in map {
                    let known = schema.get("properties").and_then(|properties| properties.get(key));
                    if let Some(schema) = known.or_else(|| schema.get("additionalProperties")) {
                        are_read &= self.read_files(&format!("{at}/{key}"), schema, value);
                    }
                }
                are_read
            }
            Value::Array(items) => {
                let Some(schema) = schema.get("items") else { return true };
                let mut are_read = true;
                for (index, value) in items.iter_mut().enumerate() {
                    are_read &= self.read_files(&format!("{at}/{index}"), schema, value);
                }
                are_read
            }
            _ => true,
        }
    }

    /// Returns what a file of text holds. `None`: it cannot be read, which has been told.
    pub(super) fn text_file(&mut self, at: &str, name: &str) -> Option<String> {
        let path = self.beside(name);
        let bytes = match self.file_bytes(&path, FILE_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(message) => {
                self.report_unread(at, &path, &message);
                return None;
            }
        };
        match std::str::from_utf8(&bytes) {
            Ok(text) => Some(text.strip_prefix('\u{feff}').unwrap_or(text).to_owned()),
            Err(error) => {
                let line = bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
                let span = self.tree.locate(at);
                // As above: where the file is, is no secret.
                self.sink.push(span, format!("cannot read `{}`: line {line} is not UTF-8", path.display()), None);
                None
            }
        }
    }
}
