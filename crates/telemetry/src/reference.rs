//! The reference pages of this crate, made from the tables that the code itself uses.

use std::fmt::Write as _;

use model::Fault;

use crate::access_log::format::{JSON_FIELDS, NAMED_VARIABLES, NOT_IN_JSON, VARIABLES};
use crate::access_log::{CLF, COMBINED};
use crate::histogram::EXPOSED_BOUNDS_MICROS;
use crate::names::Metric;
use crate::text::VALUE_BYTES_MAX;

/// Files below `docs/reference` and what is in them. The same at every call.
pub fn reference() -> Vec<(String, String)> {
    vec![("metrics.md".to_owned(), metrics()), ("access-log.md".to_owned(), access_log())]
}

const MADE: &str = "<!-- Generated from the tables in crates/telemetry; change those, not this page. -->\n\n";

fn metrics() -> String {
    let mut page = format!("# Metrics\n\n{MADE}");
    page.push_str(
        "The admin address serves these at `/metrics` in the Prometheus text format 0.0.4. Counters belong to names: an object that still exists after a configuration change continues its counters, and a removed one is no longer shown. Samples by fault, the classes `none` and `1xx`, and histograms appear once there is something to count.\n\n",
    );
    let bounds: Vec<String> = EXPOSED_BOUNDS_MICROS.iter().map(|&bound| (bound as f64 / 1e6).to_string()).collect();
    let _ = writeln!(
        page,
        "Histograms have the bounds (seconds) {}. They are counted in finer buckets, none wider than a sixteenth of the \
         values in it.\n",
        bounds.join(", ")
    );
    page.push_str("| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n");
    for told in Metric::ALL.iter().map(|metric| metric.definition()) {
        let labels: Vec<String> = told.labels.iter().map(|label| format!("`{label}`")).collect();
        let kind = told.kind.as_str();
        let _ = writeln!(page, "| `{}` | {kind} | {} | {} |", told.name, labels.join(", "), told.help.trim());
    }
    page.push_str("\n## Faults\n\nValues of the label `fault`, with the flag that access logs show for each.\n\n");
    page.push_str("| `fault` | Flag | `source` | Status | Meaning |\n|---|---|---|---|---|\n");
    for fault in Fault::ALL {
        let told = fault.consequence();
        let status = if told.status == 0 { "closed".to_owned() } else { told.status.to_string() };
        let _ = writeln!(
            page,
            "| `{}` | `{}` | {} | {status} | {} |",
            told.label,
            told.flag,
            told.source.as_str(),
            fault.meaning().trim()
        );
    }
    page
}

fn access_log() -> String {
    let mut page = format!("# Access logs\n\n{MADE}");
    let _ = writeln!(
        page,
        "One line for each exchange and each TCP stream, written at its end: as a JSON object, or by a template. In a \
         template `{{name}}` stands for a variable, `{{{{` and `}}}}` for the braces themselves. Unknown values are `-` in a line and `null` in JSON.\n\n\
         Clients cannot inject lines or close quotes: in a line, the quote, the backslash and every byte outside printable ASCII are written as `\\xHH`; in JSON, strings are escaped by RFC 8259, and bytes that are not UTF-8 become the text `\\xHH`. A value longer than {VALUE_BYTES_MAX} bytes is cut and \
         ends in `...`.\n\n\
         Workers never wait for a log. If its target is too slow, records that do not fit into the ring buffer of their worker are dropped and counted in `equipoise_access_log_dropped_total`. A record reaches \
         its target within about 100 ms. On `SIGUSR1` files are reopened; earlier records still go to the old ones.\n\n\
         `format: combined` is the Combined Log Format of Apache and nginx, this template:\n\n```\n{COMBINED}\n```\n\n\
         `format: common` is the Common Log Format:\n\n```\n{CLF}\n```\n\n\
         Times in both are UTC. A client that is rejected before its request is parsed has `-` as its request.\n"
    );
    page.push_str("| Variable | In JSON | Meaning |\n|---|---|---|\n");
    for (name, variable, meaning) in VARIABLES {
        let json = if NOT_IN_JSON.contains(variable) { "no" } else { "yes" };
        let _ = writeln!(page, "| `{name}` | {json} | {meaning} |");
    }
    for (name, _, meaning) in NAMED_VARIABLES {
        let json = if name == "value" { "in `values`" } else { "no" };
        let _ = writeln!(page, "| `{name}:NAME` | {json} | {meaning} |");
    }
    for (key, field) in JSON_FIELDS {
        let _ = writeln!(page, "| (`request_header:{field}`) | as `{key}` | |");
    }
    page
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_reference_pages_in_the_tree_are_those_made_from_the_tables() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
        for (file, page) in reference() {
            let path = folder.join(&file);
            if std::env::var_os("EQUIPOISE_WRITE_REFERENCE").is_some() {
                std::fs::write(&path, &page).unwrap();
            }
            let found = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(found == page, "{file} is old: run the tests once with EQUIPOISE_WRITE_REFERENCE=1");
        }
    }
}
