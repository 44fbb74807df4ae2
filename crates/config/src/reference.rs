//! The reference pages, generated from the schema (and so from the comments in `file`), from the filters' own
//! documentation, and from the table of faults. The output depends on nothing else, so that it can be compared with
//! the pages in the tree.

use std::fmt::Write;

use model::Fault;
use model::filter::FilterSpec;
use serde_json::{Map, Value};

use crate::defaults;
use crate::expectation::{allowed_values, integer_bounds};
use crate::schema::schema;
use crate::units::{DURATION_FORMAT, MARGIN_FORMAT, PERCENT_FORMAT, SHIFT_FORMAT, SIZE_FORMAT};

const GENERATED: &str = "<!-- Generated from the program: change the comments there, not this page. -->\n\n";

/// Returns all pages: name of the file under `docs/reference/`, and Markdown. `balancers` are names (as under `balance:`) with their
/// documentation in Markdown.
pub fn reference(filters: &[FilterSpec], balancers: &[(&str, &str)]) -> Vec<(String, String)> {
    vec![
        ("configuration.md".to_owned(), configuration()),
        ("filters.md".to_owned(), filters_page(filters)),
        ("balancers.md".to_owned(), balancers_page(balancers)),
        ("faults.md".to_owned(), faults_page()),
    ]
}

fn configuration() -> String {
    let root = schema(&[]);
    let mut page = format!("# Configuration\n\n{GENERATED}");
    page.push_str(INTRODUCTION);
    let mut writer = Writer { root: &root, sections: Vec::new(), page };
    writer.collect("", &root);
    writer.object("The file", &root);
    for (name, path) in writer.sections.clone() {
        let definition = &root["$defs"][&name];
        let heading = format!("`{path}`");
        if definition.get("properties").is_some() {
            writer.object(&heading, definition);
        } else {
            writer.values(&heading, definition);
        }
    }
    writer.page
}

const INTRODUCTION: &str = "\
A configuration is one file in YAML 1.2 or JSON. `equipoise schema` prints its JSON Schema, from which editors complete; \
`equipoise check FILE` reports all mistakes in it at once.

- Durations: `250ms`, `2s`, `5m`, `1h`, `1m30s`; greater than zero, at most one year.
- Sizes: a number of bytes, or `16KiB`, `1MiB`, `1GiB` (powers of 1024), `1kB`, `1MB`, `1GB` (powers of 1000).
- Shares: `50%`, from 0% to 100%; percentages of 100% or more: `125%`. They are whole numbers with a percent sign.
- `${NAME}` in a value is replaced by an environment variable, `${NAME:-default}` by the default when the variable is not \
set or empty; `$${` stands for `${`. Put such values in quotes inside `{ }` and `[ ]`. The result is not expanded \
again, and cannot add keys.
- Relative paths start at the file that contains them.
- YAML 1.2: only `true` and `false` are truth values; `on`, `yes` and the like are text. Aliases work, tags and merge \
keys (`<<`) do not. Each key may occur once.

";

/// Writes objects, each once, in the order in which they are met.
struct Writer<'a> {
    root: &'a Value,
    /// Definitions that have a section, with the path that is its heading.
    sections: Vec<(String, String)>,
    page: String,
}

impl<'a> Writer<'a> {
    /// Finds the sections below an object.
    fn collect(&mut self, path: &str, schema: &'a Value) {
        for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            for (path, name) in self.definitions(&join(path, name), property, 0) {
                // What defaults may be is said in words: every key of theirs stands elsewhere on the page.
                if defaults::is_partial(&name) {
                    continue;
                }
                if name == crate::file::FILTER_DEFINITION || self.sections.iter().any(|(known, _)| *known == name) {
                    continue;
                }
                self.sections.push((name.clone(), path.clone()));
                self.collect(&path, &self.root["$defs"][&name]);
            }
        }
    }

    fn object(&mut self, heading: &str, schema: &'a Value) {
        let _ = writeln!(self.page, "## {heading}\n");
        if let Some(text) = schema.get("description").and_then(Value::as_str) {
            let _ = writeln!(self.page, "{text}\n");
        }
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
        if properties.is_empty() {
            self.page.push_str("It has no settings: `{}`.\n\n");
            return;
        }
        self.page.push_str("| key | value | default | meaning |\n|---|---|---|---|\n");
        for (name, property) in properties {
            let row = self.row(name, property, schema);
            self.page.push_str(&row);
        }
        self.page.push('\n');
    }

    fn row(&self, name: &str, property: &Value, object: &Value) -> String {
        let required =
            object.get("required").and_then(Value::as_array).is_some_and(|keys| keys.iter().any(|k| k == name));
        let default = match property.get("default") {
            _ if required => "needed".to_owned(),
            Some(Value::Object(_)) | None => String::new(),
            Some(Value::Array(items)) if items.is_empty() => String::new(),
            Some(Value::String(text)) => format!("`{text}`"),
            Some(other) => format!("`{other}`"),
        };
        let meaning = property.get("description").and_then(Value::as_str).unwrap_or_default();
        let value = self.value(property, 0);
        format!("| `{name}` | {} | {} | {} |\n", cell(&value), cell(&default), cell(meaning))
    }

    /// Writes a section that lists the allowed values.
    fn values(&mut self, heading: &str, definition: &Value) {
        let Some(branches) = definition.get("oneOf").and_then(Value::as_array) else { return };
        let about = definition.get("description").and_then(Value::as_str).unwrap_or_default();
        let _ = writeln!(self.page, "## {heading}\n\n{about}\n\n| value | meaning |\n|---|---|");
        for branch in branches {
            let value = branch.get("const").map(shown).unwrap_or_default();
            let meaning = branch.get("description").and_then(Value::as_str).unwrap_or_default();
            let _ = writeln!(self.page, "| {value} | {} |", cell(meaning));
        }
        self.page.push('\n');
    }

    /// Definitions that a property refers to, with the path that leads there.
    fn definitions(&self, path: &str, property: &Value, depth: usize) -> Vec<(String, String)> {
        if depth > 4 {
            return Vec::new();
        }
        if let Some(name) = property.get("$ref").and_then(Value::as_str).and_then(|name| name.strip_prefix("#/$defs/"))
        {
            return vec![(path.to_owned(), name.to_owned())];
        }
        let mut all = Vec::new();
        if let Some(items) = property.get("items") {
            all.extend(self.definitions(&format!("{path}[]"), items, depth + 1));
        }
        if let Some(values) = property.get("additionalProperties") {
            all.extend(self.definitions(&format!("{path}.NAME"), values, depth + 1));
        }
        for branch in property.get("anyOf").and_then(Value::as_array).into_iter().flatten() {
            all.extend(self.definitions(path, branch, depth + 1));
        }
        all
    }

    /// Returns what may stand for a property, in few words.
    fn value(&self, property: &Value, depth: usize) -> String {
        let Some(map) = property.as_object() else { return "anything".to_owned() };
        if depth > 4 {
            return "…".to_owned();
        }
        if let Some(name) = map.get("$ref").and_then(Value::as_str).and_then(|name| name.strip_prefix("#/$defs/")) {
            if name == crate::file::FILTER_DEFINITION {
                return "[filter](filters.md)".to_owned();
            }
            let definition = self.root.get("$defs").and_then(|defs| defs.get(name));
            let section = self.sections.iter().find(|(known, _)| known == name);
            return match (definition, section) {
                (Some(definition), Some((_, path))) if definition.get("properties").is_some() => {
                    format!("[map](#{})", anchor(path))
                }
                (Some(definition), _) => self.value(definition, depth + 1),
                (None, _) => String::new(),
            };
        }
        let values = allowed_values(map);
        if !values.is_empty() {
            return values.into_iter().map(shown).collect::<Vec<_>>().join(" or ");
        }
        match map.get("format").and_then(Value::as_str) {
            Some(DURATION_FORMAT) => return "duration".to_owned(),
            Some(SHIFT_FORMAT) => return "duration, or `-` and one".to_owned(),
            Some(SIZE_FORMAT) => return "size".to_owned(),
            Some(PERCENT_FORMAT) => return "share".to_owned(),
            Some(MARGIN_FORMAT) => return "percentage".to_owned(),
            _ => {}
        }
        if let Some(types) = map.get("type").and_then(Value::as_array) {
            return types.iter().filter_map(Value::as_str).map(type_word).collect::<Vec<_>>().join(" or ");
        }
        match map.get("type").and_then(Value::as_str) {
            Some("object") => match map.get("additionalProperties").filter(|other| other.is_object()) {
                Some(values) => format!("map of {}", self.value(values, depth + 1)),
                None => "map".to_owned(),
            },
            Some("array") => {
                format!("list of {}", map.get("items").map_or_else(String::new, |item| self.value(item, depth + 1)))
            }
            Some("integer") => number(map),
            Some(other) => type_word(other).to_owned(),
            None => self.branches(map, depth),
        }
    }

    fn branches(&self, map: &Map<String, Value>, depth: usize) -> String {
        let branches = map.get("anyOf").and_then(Value::as_array);
        let mut parts: Vec<String> = Vec::new();
        for part in branches.into_iter().flatten().map(|branch| self.value(branch, depth + 1)) {
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
        // Naming what a list holds would repeat all that precedes it.
        let item = parts.last().and_then(|last| last.strip_prefix("list of "));
        let others = parts.split_last().map_or_else(String::new, |(_, others)| others.join(", or "));
        if item == Some(others.as_str()) { format!("{others}, or a list") } else { parts.join(", or ") }
    }
}

/// Returns a type of JSON Schema in the words of the page.
fn type_word(name: &str) -> &str {
    match name {
        "string" => "text",
        "boolean" => "`true` or `false`",
        "integer" => "number",
        other => other,
    }
}

fn number(map: &Map<String, Value>) -> String {
    let (low, high) = integer_bounds(map);
    // The width of an integer type is not a bound that anyone chose.
    let chosen = map.contains_key("maximum");
    match (low.is_finite() && low != f64::from(i32::MIN), high.is_finite() && chosen) {
        (true, true) => format!("number from {low} to {high}"),
        (true, false) => format!("number from {low}"),
        _ => "number".to_owned(),
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("`{text}`"),
        other => format!("`{other}`"),
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Returns the anchor that a heading with this path gets on the usual sites: lower case, signs left out.
fn anchor(path: &str) -> String {
    path.to_lowercase().chars().filter(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// Returns text for a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn filters_page(filters: &[FilterSpec]) -> String {
    let root = schema(filters);
    let mut page = format!("# Filters\n\n{GENERATED}");
    page.push_str(
        "Filters change requests and responses, or reject them. A route lists them under `filters`, each as its name and \
         its settings; they apply in that order, to requests and to responses. `when` beside the name sets conditions \
         on the request and its client, and for filters that act only on responses also on the status: see [when](#when). Many \
         settings take [variables](#variables).\n\n",
    );
    for filter in filters {
        let _ = writeln!(page, "- [`{0}`](#{0}): {1}", filter.name, filter.doc.lines().next().unwrap_or_default());
    }
    for filter in filters {
        let _ = writeln!(page, "\n## {}\n\n{}", filter.name, filter.doc.trim_end());
        let settings = &root["$defs"][format!("filter_{}", filter.name)];
        let writer = Writer { root: &root, sections: Vec::new(), page: String::new() };
        let Some(properties) = settings.get("properties").and_then(Value::as_object) else { continue };
        page.push_str("\n| setting | value | default | meaning |\n|---|---|---|---|\n");
        for (name, property) in properties {
            page.push_str(&writer.row(name, property, settings));
        }
    }
    page.push_str(&when_section(&root));
    page
}

/// Returns what may stand beside the name of a filter.
fn when_section(root: &Value) -> String {
    let when = &root["$defs"]["When"];
    let mut section = String::from(
        "\n## when\n\nWhen a filter applies. All conditions must hold, for the request as earlier filters left it; `not`, `any` and `all` contain conditions of the same kind. A filter that acts on a request and on its response evaluates them for each.\n\n```yaml\nfilters:\n  - set_response_header: { cache-control: no-store }\n    when: { status: [404, 5xx], not: \
         { path: { prefix: /assets } } }\n```\n\n| setting | value | default | meaning |\n|---|---|---|---|\n",
    );
    let writer = Writer { root, sections: Vec::new(), page: String::new() };
    let rows = |of: &Value| -> String {
        let properties = of.get("properties").and_then(Value::as_object).into_iter().flatten();
        properties.map(|(name, property)| writer.row(name, property, of)).collect()
    };
    section.push_str(&rows(when));
    section.push_str("\n### table\n\nA condition on the entry of the request in a [table](configuration.md#tablesname). A request without an entry has zeros.\n\n| setting | value | default | meaning |\n|---|---|---|---|\n");
    section.push_str(&rows(&root["$defs"]["TableTest"]));
    section
}

fn balancers_page(balancers: &[(&str, &str)]) -> String {
    let mut page = format!("# Balancers\n\n{GENERATED}");
    page.push_str("How a cluster chooses an endpoint, by `balance`. Endpoints that are down or full are skipped.\n");
    for (name, doc) in balancers {
        let _ = writeln!(page, "\n## {name}\n\n{}", doc.trim_end());
    }
    page
}

fn faults_page() -> String {
    let mut page = format!("# Faults\n\n{GENERATED}");
    page.push_str(
        "Everything that can go wrong with an exchange. Access logs show the flag (`{flag}`), metrics the label. Flags begin with `C` for the client, `U` for the endpoint (upstream), `P` for this proxy. Without a status no response is possible any more, and the connection is closed. [Troubleshooting](../guides/troubleshoot.md) lists causes and fixes.\n\n\
         | flag | label | status | whose doing | when | retried | counts against health | meaning |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    let yes = |flag: bool| if flag { "yes" } else { "" };
    for fault in Fault::ALL {
        let told = fault.consequence();
        let status = if told.status == 0 { String::new() } else { told.status.to_string() };
        let _ = writeln!(
            page,
            "| `{}` | `{}` | {status} | {} | {} | {} | {} | {} |",
            told.flag,
            told.label,
            told.source.as_str(),
            told.phase.as_str(),
            yes(told.retryable),
            yes(told.against_health),
            cell(fault.meaning().trim()),
        );
    }
    page
}
