//! Which crate may know which (the table of ARCHITECTURE.md), and what each refuses to know.

use super::{assert_none, files};

/// Crate, ours that it may use, others that it must not use.
const LAYERS: &[(&str, &[&str], &[&str])] = &[
    ("model", &[], &["serde", "tokio", "httparse", "rustls", "libc", "socket2"]),
    ("config", &["model"], &["tokio", "rustls", "httparse", "libc", "socket2"]),
    ("wire", &["model"], &["serde", "serde_json", "tokio", "rustls", "libc", "socket2"]),
    ("plan", &["model"], &["tokio", "rustls", "httparse", "libc", "socket2"]),
    ("telemetry", &["model"], &["tokio", "rustls", "httparse", "axum", "serde"]),
    ("proxy", &["model", "wire", "plan", "telemetry"], &["serde", "serde_json", "schemars", "saphyr-parser", "axum"]),
    ("control", &["model", "config", "wire", "plan", "telemetry"], &["axum", "clap", "socket2"]),
    ("admin", &["model", "config", "control", "telemetry"], &["clap", "rustls", "libc", "socket2"]),
    ("equipoise", &["model", "config", "plan", "telemetry", "proxy", "control", "admin"], &["axum", "httparse"]),
];

/// The keys of the tables of a manifest whose names end in `dependencies`; `dev` chooses those for tests.
fn dependencies(manifest: &str, dev: bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut inside = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(table) = line.strip_prefix('[') {
            let table = table.trim_end_matches(']');
            inside = table.ends_with("dependencies") && (table.ends_with("dev-dependencies") == dev);
        } else if inside && let Some((key, _)) = line.split_once('=') {
            found.push(key.trim().trim_end_matches(".workspace").to_owned());
        }
    }
    found
}

#[test]
fn every_crate_knows_only_what_it_may() {
    let ours: Vec<&str> = LAYERS.iter().map(|(name, ..)| *name).collect();
    let mut found = Vec::new();
    for (name, allowed, refused) in LAYERS {
        let manifest = files::read(&format!("crates/{name}/Cargo.toml"));
        for dependency in dependencies(&manifest, false) {
            let is_ours = ours.contains(&dependency.as_str());
            if is_ours && !allowed.contains(&dependency.as_str()) {
                found.push(format!("{name} must not know {dependency}"));
            }
            if refused.contains(&dependency.as_str()) {
                found.push(format!("{name} must not use {dependency}"));
            }
        }
    }
    assert_none("the house has its directions", &found);
}

#[test]
fn the_table_of_layers_knows_every_crate() {
    let listed: std::collections::BTreeSet<String> = LAYERS.iter().map(|(name, ..)| (*name).to_owned()).collect();
    let there: std::collections::BTreeSet<String> = files::names("crates").into_iter().collect();
    assert_eq!(listed, there, "a crate is added with an ADR and a row");
}

#[test]
fn the_lab_and_the_tests_know_the_product_only_as_an_executable() {
    let mut found = Vec::new();
    for place in ["lab", "tests"] {
        let manifest = files::read(&format!("{place}/Cargo.toml"));
        let mut all = dependencies(&manifest, false);
        all.extend(dependencies(&manifest, true));
        let is_ours =
            |name: &String| LAYERS.iter().any(|(ours, ..)| name == ours || *name == format!("equipoise-{ours}"));
        found.extend(all.into_iter().filter(is_ours).map(|name| format!("{place} must not know {name}")));
    }
    assert_none("they see what users see", &found);
}

#[test]
fn a_manifest_is_read_as_cargo_reads_it() {
    let manifest = "[package]\nname = \"x\"\n[dependencies]\nmodel.workspace = true\ntokio = { workspace = true }\n\
                    [dev-dependencies]\nserde = \"1\"\n[target.'cfg(unix)'.dependencies]\nlibc = \"0.2\"\n";
    assert_eq!(dependencies(manifest, false), ["model", "tokio", "libc"]);
    assert_eq!(dependencies(manifest, true), ["serde"]);
}
