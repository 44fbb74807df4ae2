//! What the tests share: a loader with stand-ins for the world, and certificates.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use config::{Diagnostics, Loaded, Loader};
use model::Issue;
use model::filter::{FilterSpec, PATH_FORMAT, RATE_FORMAT};
use serde_json::{Value, json};

/// Stand-ins for the filters of the product, which this crate must not know.
pub(crate) const FILTERS: [FilterSpec; 6] = [
    FilterSpec { name: "set_request_header", doc: "Sets fields.\n\nMore.", schema: fields, check: lower_case },
    FilterSpec { name: "set_response_header", doc: "Sets fields.", schema: fields, check: lower_case },
    FilterSpec { name: "remove_response_header", doc: "Removes fields.", schema: names, check: anything },
    FilterSpec { name: "rewrite", doc: "Changes the path.", schema: rewrite, check: anything },
    FilterSpec { name: "basic_auth", doc: "Asks for a password.", schema: basic_auth, check: anything },
    FilterSpec { name: "deny", doc: "Refuses.", schema: deny, check: anything },
];

fn fields() -> Value {
    json!({ "type": "object", "additionalProperties": { "type": "string" } })
}

fn names() -> Value {
    json!({ "type": "array", "items": { "type": "string" } })
}

fn rewrite() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": { "anyOf": [{ "$ref": "#/$defs/Change" }, { "type": "null" }] },
            "host": { "type": ["string", "null"] },
            "below": { "anyOf": [
                { "type": "object", "properties": { "from": { "type": "string", "format": PATH_FORMAT } } },
                { "type": "null" },
            ] },
        },
        "additionalProperties": false,
        "$defs": { "Change": {
            "oneOf": [
                { "type": "object", "properties": { "prefix": { "type": "string" } }, "required": ["prefix"], "additionalProperties": false },
                { "type": "object", "properties": { "replace": { "type": "string" }, "all": { "type": "boolean" } }, "required": ["replace"], "additionalProperties": false },
            ],
        } },
    })
}

fn basic_auth() -> Value {
    json!({
        "type": "object",
        "properties": { "realm": { "type": "string" }, "users": { "type": "object", "writeOnly": true } },
        "required": ["users"],
        "additionalProperties": false,
    })
}

fn deny() -> Value {
    json!({
        "type": "object",
        "properties": {
            "rate": { "type": "string", "format": RATE_FORMAT },
            "key": { "anyOf": [
                { "type": "string", "enum": ["client"] },
                { "type": "object", "properties": { "header": { "type": "string" } }, "required": ["header"] },
            ] },
        },
        "additionalProperties": false,
    })
}

fn lower_case(settings: &Value) -> Result<(), Issue> {
    let upper = settings.as_object().into_iter().flatten().find(|(name, _)| name.chars().any(char::is_uppercase));
    match upper {
        Some((name, _)) => Err(Issue::at(name, "not in lower case").suggest("write it small")),
        None => Ok(()),
    }
}

fn anything(_: &Value) -> Result<(), Issue> {
    Ok(())
}

pub(crate) fn environment(name: &str) -> Option<String> {
    match name {
        "PORT" => Some("8443".to_owned()),
        "PIN" => Some("90210".to_owned()),
        "YES" => Some("true".to_owned()),
        "SOON" => Some("250ms".to_owned()),
        "EMPTY" => Some(String::new()),
        "TOKEN" => Some("s3cret".to_owned()),
        "CERTS" => CERTS.with(|certs| certs.borrow().clone()),
        _ => None,
    }
}

thread_local! {
    static CERTS: std::cell::RefCell<Option<String>> = const { std::cell::RefCell::new(None) };
}

/// What `${CERTS}` stands for in this test.
pub(crate) fn set_certs(folder: &Path) {
    CERTS.with(|certs| *certs.borrow_mut() = Some(folder.display().to_string()));
}

pub(crate) fn resolve(_: &model::provider::NameLookup, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    match name {
        "localhost" => Ok(vec![([127, 0, 0, 1], port).into()]),
        "login.example.com" => Ok(vec![([192, 0, 2, 1], port).into()]),
        "empty.example" => Ok(Vec::new()),
        name if name.ends_with(".internal") => Ok(vec![([10, 0, 0, 1], port).into(), ([10, 0, 0, 2], port).into()]),
        _ => Err(io::Error::other("no such name")),
    }
}

pub(crate) const LOADER: Loader<'static> =
    Loader { filters: &FILTERS, environment: &environment, resolve_host: &resolve, within: None, is_offline: false };

/// Loads a text that names no files.
pub(crate) fn load(text: &str) -> Result<Loaded, Diagnostics> {
    LOADER.load_text("site.yaml", text, Path::new("/nowhere"))
}

/// What is reported about a text, which must be wrong.
pub(crate) fn told(text: &str) -> String {
    match load(text) {
        Ok(_) => panic!("this loads:\n{text}"),
        Err(diagnostics) => diagnostics.to_string(),
    }
}

/// Messages and suggestions only, one a line.
pub(crate) fn messages(text: &str) -> Vec<String> {
    let shown = |diagnostic: config::Diagnostic| match diagnostic.suggestion {
        Some(suggestion) => format!("{}: {} ({suggestion})", diagnostic.line, diagnostic.message),
        None => format!("{}: {}", diagnostic.line, diagnostic.message),
    };
    load(text).err().map_or_else(Vec::new, |all| all.list.into_iter().map(shown).collect())
}

/// Writes `NAME.pem`, `NAME.key` and `ca.pem` for some names.
pub(crate) fn write_certificates(folder: &Path, names: &[&str]) {
    for name in names {
        let made = rcgen::generate_simple_self_signed(vec![format!("{name}.example")]).expect("a certificate");
        std::fs::write(folder.join(format!("{name}.pem")), made.cert.pem()).expect("a file");
        std::fs::write(folder.join(format!("{name}.key")), made.signing_key.serialize_pem()).expect("a file");
    }
}
