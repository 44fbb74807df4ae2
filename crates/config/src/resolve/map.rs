//! Maps: their entries, from the configuration or from a file.

use std::sync::Arc;

use model::map::{Collector, Entries, Map, MapKind, parse};

use super::Resolver;
use crate::file;
use crate::mmdb;
use crate::tree::Node;

/// Bytes of one file. A million entries are a tenth of it.
const FILE_BYTES_MAX: usize = 512 << 20;

impl Resolver<'_> {
    /// Returns the map called `name`.
    pub(super) fn map(&mut self, name: &str, written: &mut file::Map) -> Option<Map> {
        let at = format!("maps/{name}");
        let kind = match written.kind {
            file::MapKind::Exact => MapKind::Exact,
            file::MapKind::Prefix => MapKind::Prefix,
            file::MapKind::Regex => MapKind::Regex,
            file::MapKind::Cidr => MapKind::Cidr,
        };
        let kind = self.kind_of_field(&at, written, kind);
        let entries = match &written.file {
            Some(file) => self.filed_entries(&format!("{at}/file"), file, (kind, written.field.as_deref()))?,
            None => self.written_entries(&format!("{at}/entries"), name, kind)?,
        };
        // As it is written, like the values of entries: `1.10` is not 1.1.
        let node = self.tree.get("maps").and_then(|maps| maps.get(name)).and_then(|map| map.get("default"));
        let text = node.and_then(Node::text);
        let default = written.default.as_ref().map(|value| text.map_or_else(|| value.0.clone(), Into::into));
        Some(Map { name: name.into(), kind, default, file: written.file.clone(), entries: Arc::new(entries) })
    }

    /// The kind of a map: with a field of a MaxMind DB, one of networks.
    fn kind_of_field(&mut self, at: &str, written: &mut file::Map, kind: MapKind) -> MapKind {
        if written.field.is_none() {
            return kind;
        }
        if written.file.is_none() {
            let span = self.key_span(at, "field");
            self.sink.push(span, "`field` has no effect without `file`".to_owned(), Some("leave it out".to_owned()));
        }
        if kind != MapKind::Cidr && self.has(at, "match") {
            let message = "a MaxMind DB has networks as keys";
            self.report(&format!("{at}/match"), message, Some("write `match: cidr`, or leave it out".to_owned()));
        }
        written.kind = file::MapKind::Cidr;
        MapKind::Cidr
    }

    /// Entries that stand in the configuration, in its order.
    fn written_entries(&mut self, at: &str, name: &str, kind: MapKind) -> Option<Entries> {
        let tree = self.tree;
        let map = tree.get("maps").and_then(|maps| maps.get(name));
        let nodes = map.and_then(|map| map.get("entries")).map_or(&[][..], Node::entries);
        let mut collector = Collector::new(kind);
        let mut is_whole = true;
        for (key, node) in nodes {
            let Some(value) = node.text() else { continue };
            if kind == MapKind::Regex {
                self.expression(&format!("{at}/{}", key.text), &key.text);
            }
            if let Err(message) = collector.add(&key.text, value) {
                self.sink.push(key.span, message, None);
                is_whole = false;
            }
        }
        if !is_whole {
            return None;
        }
        match collector.finish() {
            Ok(entries) => Some(entries),
            Err((first, second)) => {
                let place = |entry: usize| nodes.get(entry).map(|(key, _)| key);
                if let Some((first, second)) = place(first).zip(place(second)) {
                    let message = format!("the key is that in line {}, with another value", first.span.line);
                    self.sink.push(second.span, message, None);
                }
                None
            }
        }
    }

    /// Entries of a file.
    fn filed_entries(&mut self, at: &str, name: &str, (kind, field): (MapKind, Option<&str>)) -> Option<Entries> {
        let path = self.beside(name);
        let bytes = match self.file_bytes(&path, FILE_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(message) => {
                self.report_unread(at, &path, &message);
                // Where files are not looked at, what uses the map may still be checked.
                return self.loader.is_offline.then(Entries::default);
            }
        };
        // Its entries are kept, so that the text need not be.
        self.pems.remove(&path);
        if let Some(field) = field {
            return mmdb::entries(&bytes, field)
                .map_err(|message| self.report(at, format!("cannot use `{name}`: {message}"), None))
                .ok();
        }
        if mmdb::is_one(&bytes) {
            let mend = "name one of its fields, such as `field: country.iso_code`".to_owned();
            self.report(at, format!("`{name}` is a MaxMind DB"), Some(mend));
            return None;
        }
        let text = match std::str::from_utf8(&bytes) {
            Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text),
            Err(error) => {
                let line = bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
                let span = self.tree.locate(at);
                self.sink.push(span, format!("cannot read `{}`: line {line} is not UTF-8", path.display()), None);
                return None;
            }
        };
        match parse(text, kind) {
            Ok(entries) => Some(entries),
            Err(message) => {
                let span = self.tree.locate(at);
                self.sink.push(span, format!("`{name}`, {message}"), None);
                None
            }
        }
    }
}
