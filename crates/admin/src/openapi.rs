//! The API as an OpenAPI 3.1 document, made of the table of calls.

use model::snapshot::AdminRole;
use serde_json::{Map, Value, json};

use crate::VERSION;
use crate::table::{Body, CALLS, Call, KINDS, What};

/// Returns the complete document.
pub(crate) fn document() -> Value {
    let mut paths = Map::new();
    for call in CALLS {
        let path = paths.entry(call.path).or_insert_with(|| json!({}));
        path[call.method.as_str()] = operation(call);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Equipoise",
            "version": VERSION,
            "description": "Inspects and changes a running Equipoise.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" }, "certificate": { "type": "mutualTLS" } },
            "schemas": { "Problem": problem(), "Done": done() },
        },
    })
}

fn operation(call: &Call) -> Value {
    let mut operation = json!({
        "summary": call.summary,
        "operationId": format!("{:?}", call.what),
        "responses": responses(call),
    });
    let parameters = parameters(call);
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if let Some(body) = body(call.what.body()) {
        operation["requestBody"] = body;
    }
    // Where neither tokens nor identities are configured, no one is asked for one.
    let ways = json!([{ "token": [] }, { "certificate": [] }, {}]);
    operation["security"] = if call.needs.is_some() { ways } else { json!([]) };
    if call.needs == Some(AdminRole::Admin) {
        let what = "Requires a token or certificate with the role `admin` if tokens or identities are configured.";
        operation["description"] = what.into();
    }
    operation
}

fn parameters(call: &Call) -> Vec<Value> {
    let in_path = call.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut all: Vec<Value> = in_path
        .map(|name| {
            let schema = match name {
                "kind" => json!({ "enum": KINDS }),
                "generation" | "connection" => json!({ "type": "integer", "minimum": 1 }),
                _ => json!({ "type": "string" }),
            };
            json!({ "name": name, "in": "path", "required": true, "schema": schema })
        })
        .collect();
    for (name, what) in call.query {
        let schema = json!({ "type": "string" });
        all.push(json!({ "name": name, "in": "query", "description": what, "schema": schema }));
    }
    if call.what.is_order() {
        let what = "The `etag` of the version that is replaced; `*` overwrites unconditionally";
        let (required, schema) = (call.what.replaces(), json!({ "type": "string" }));
        all.push(
            json!({ "name": "if-match", "in": "header", "description": what, "required": required, "schema": schema }),
        );
    }
    all
}

fn body(body: Body) -> Option<Value> {
    let one = |name: &str, schema: Value| json!({ "type": "object", "required": [name], "properties": { name: schema }, "additionalProperties": false });
    let schema = match body {
        Body::None => return None,
        Body::Configuration | Body::Object => {
            let what = "As `equipoise schema` describes";
            let schema = json!({ "description": what });
            let content = json!({ "application/json": { "schema": schema }, "application/yaml": { "schema": schema } });
            return Some(json!({ "required": true, "content": content }));
        }
        Body::Weight => one("weight", json!({ "type": "integer", "minimum": 0 })),
        Body::State => one("state", json!({ "enum": ["up", "down", "drain", "maintenance", "ready"] })),
        Body::Values => {
            json!({ "type": "object", "minProperties": 1, "additionalProperties": { "type": "integer", "minimum": 0 } })
        }
        Body::Value => one("value", json!({ "type": ["string", "number", "boolean"] })),
        Body::Level => one("level", json!({ "enum": ["info", "warn", "error"] })),
    };
    Some(json!({ "required": true, "content": { "application/json": { "schema": schema } } }))
}

/// Returns the response of a successful call.
fn good(call: &Call) -> Value {
    let mut good = if call.what.is_order() {
        let schema = json!({ "$ref": "#/components/schemas/Done" });
        json!({ "description": "Done, or what would be", "content": { "application/json": { "schema": schema } } })
    } else {
        json!({ "description": call.summary })
    };
    if call.what.is_order() || [What::Config, What::Objects, What::Object, What::Changes].contains(&call.what) {
        let what = "Identifies this version of the configuration, for `if-match`";
        good["headers"] = json!({ "etag": { "description": what, "schema": { "type": "string" } } });
    }
    good
}

fn responses(call: &Call) -> Value {
    let problem = |what: &str| {
        let schema = json!({ "$ref": "#/components/schemas/Problem" });
        json!({ "description": what, "content": { "application/json": { "schema": schema } } })
    };
    let mut all = Map::new();
    all.insert("200".to_owned(), good(call));
    let add = |all: &mut Map<String, Value>, status: &str, what: &str| all.insert(status.to_owned(), problem(what));
    if call.needs.is_some() {
        add(&mut all, "401", "The token is missing or unknown");
        add(&mut all, "403", "The certificate is missing or matches no identity");
    }
    add(&mut all, "400", "The request is malformed: a parameter, the `host` field or the body");
    if call.what == What::Explain {
        let schema = json!({ "schema": { "type": "string" } });
        all.insert(
            "400".to_owned(),
            json!({ "description": "The question is wrong", "content": { "text/plain": schema } }),
        );
    }
    add(&mut all, "421", "This listener does not have the name in the `host` field");
    if call.path.contains('{') || call.what == What::Connections {
        add(&mut all, "404", "The object does not exist; with a suggestion");
    }
    if call.needs == Some(AdminRole::Admin) {
        let more = if call.what.is_order() { ", or the change needs credentials" } else { "" };
        let what = format!("The credentials may only read or are unknown, or a foreign page sent the request{more}");
        add(&mut all, "403", &what);
    }
    if call.what.is_order() || [What::SetLog, What::SetEntry].contains(&call.what) {
        add(
            &mut all,
            "422",
            "The input is invalid: every mistake with its place and a suggestion. Nothing was changed",
        );
    }
    if call.needs.is_some() {
        add(
            &mut all,
            "503",
            "The program is starting or shutting down, is overloaded, or the rules of the listener are changing",
        );
    }
    if call.what == What::Ready {
        all.insert("503".to_owned(), json!({ "description": "It is not: `starting` or `draining`" }));
    }
    if call.what.is_order() {
        let what = "Valid, but the system does not allow it, such as a port in use; a dry run does not check that. Nothing was changed";
        add(&mut all, "409", what);
        add(&mut all, "500", "Internal error; nothing was changed");
        add(&mut all, "412", "The configuration has changed since. Nothing was changed");
    }
    if call.what.body() != Body::None {
        add(&mut all, "408", "The body took too long to arrive");
        add(&mut all, "413", "The body is too large");
        add(&mut all, "415", "The body is neither JSON nor YAML");
    }
    if call.what.replaces() {
        add(&mut all, "428", "`if-match` is missing");
    }
    Value::Object(all)
}

fn problem() -> Value {
    json!({
        "type": "object",
        "required": ["message"],
        "properties": {
            "message": { "type": "string" },
            "suggestion": { "type": "string" },
            "diagnostics": { "type": "array", "items": {
                "type": "object",
                "properties": {
                    "file": { "type": "string" },
                    "line": { "type": "integer" },
                    "column": { "type": "integer" },
                    "line_text": { "type": "string" },
                    "caret": { "type": "integer" },
                    "width": { "type": "integer" },
                    "is_warning": { "type": "boolean" },
                    "message": { "type": "string" },
                    "suggestion": { "type": ["string", "null"] },
                },
            } },
            "diagnostics_left_out": { "type": "integer" },
        },
    })
}

fn done() -> Value {
    let difference = json!({
        "type": "object",
        "required": ["path"],
        "properties": { "path": { "type": "string" }, "before": {}, "after": {} },
    });
    let effect = json!({ "type": "array", "items": { "type": "object" } });
    let lists = [
        "listeners_bound",
        "listeners_closed",
        "endpoints_added",
        "endpoints_removed",
        "endpoints_drained",
        "endpoints_readied",
    ];
    let mut effects: Map<String, Value> = lists.iter().map(|name| ((*name).to_owned(), effect.clone())).collect();
    effects.insert("left_out".to_owned(), json!({ "type": "integer" }));
    json!({
        "type": "object",
        "properties": {
            "generation": { "type": "integer" },
            "changed": { "type": "boolean", "description": "Whether the configuration differs from the active one; if not, no generation is created" },
            "dry_run": { "type": "boolean" },
            "canary": { "type": "boolean", "description": "It runs as a canary and is not active yet" },
            "differences": { "type": "array", "items": difference },
            "differences_left_out": { "type": "integer" },
            "effects": { "type": "object", "properties": effects },
            "warnings": { "type": "array", "items": { "type": "object" } },
            "not_kept": { "type": "string", "description": "Why it is active, but could not be saved for the next start" },
        },
    })
}
