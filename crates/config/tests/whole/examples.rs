//! Every example, and every whole file in the documentation, loads.

use std::fs;
use std::path::{Path, PathBuf};

use config::Loader;
use model::Issue;
use model::filter::FilterSpec;
use serde_json::{Value, json};

use crate::support::{LOADER, resolve, set_certs, write_certificates};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Names of the product's filters. Their settings are looked at where they are known: by `equipoise check`.
const NAMES: [&str; 45] = [
    "follow_redirects",
    "files",
    "forward_auth",
    "ext_authz",
    "set_request_header",
    "add_request_header",
    "remove_request_header",
    "set_response_header",
    "add_response_header",
    "remove_response_header",
    "header_names",
    "rewrite",
    "rewrite_location",
    "rewrite_cookie",
    "cors",
    "body_limit",
    "address_list",
    "deny",
    "error_page",
    "basic_auth",
    "api_key",
    "jwt",
    "introspection",
    "oidc",
    "client_certificate",
    "signed_url",
    "csrf",
    "aws_signature",
    "client_credentials",
    "rate_limit",
    "rate_limit_service",
    "concurrency_limit",
    "bandwidth_limit",
    "track",
    "compress",
    "decompress",
    "fault",
    "mirror",
    "replace_body",
    "rewrite_header",
    "buffer",
    "cache",
    "maintenance",
    "response_limit",
    "server_timing",
];

fn any_settings() -> Value {
    json!({ "type": ["object", "array"] })
}

fn any(_: &Value) -> Result<(), Issue> {
    Ok(())
}

/// Loads with certificates at `${CERTS}`, and with every filter.
fn loads(what: &str, load: impl Fn(&Loader<'_>) -> Result<config::Loaded, config::Diagnostics>) {
    let folder = tempfile::tempdir().unwrap();
    set_certs(folder.path());
    write_certificates(folder.path(), &["site", "shop", "ca"]);
    let filters = NAMES.map(|name| FilterSpec { name, doc: "", schema: any_settings, check: any });
    let loader = Loader { filters: &filters, resolve_host: &resolve, ..LOADER };
    if let Err(told) = load(&loader) {
        panic!("{what}:\n{told}");
    }
}

fn files(folder: &Path, extension: &str, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, extension, all);
        } else if path.extension().is_some_and(|found| found == extension) {
            all.push(path);
        }
    }
}

#[test]
fn every_example_loads_and_says_what_it_shows() {
    let mut all = Vec::new();
    files(&repository().join("examples"), "yaml", &mut all);
    all.sort();
    let mut whole = 0;
    for path in all {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# "), "{} begins with a comment", path.display());
        if text.contains("\nversion: 1\n") {
            loads(&path.display().to_string(), |loader| loader.load_file(&path));
            whole += 1;
        }
    }
    assert!(whole >= 8, "only {whole} examples");
}

#[test]
fn every_whole_file_in_the_documentation_loads() {
    let mut all = Vec::new();
    files(&repository().join("docs"), "md", &mut all);
    for path in all {
        let text = fs::read_to_string(&path).unwrap();
        for block in text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            if block.starts_with("version:") {
                let what = format!("{}:\n{block}", path.display());
                loads(&what, |loader| loader.load_text("block.yaml", block, &path));
            }
        }
    }
}
