//! `equipoise ctl`: asks and changes a running program by its API. It does nothing that the API does not.

mod map;
pub(crate) mod options;
mod text;

use std::io::Read;
use std::path::Path;

use serde_json::{Value, json};

use crate::client::{Answered, Asked, Client, Unanswered, encoded};
use crate::ending::Ending;
use map::Map;
use options::{Action, CacheAction, CanaryEnd, Command, Config, Ctl, Dry, Endpoint, TableAction, Tag, Try};

/// Runs the command.
pub(crate) fn run(options: &Ctl) -> Ending {
    match carry_out(options) {
        Ok(text) => crate::print(&text),
        Err((message, ending)) => {
            eprintln!("{}", message.trim_end());
            ending
        }
    }
}

fn carry_out(options: &Ctl) -> Result<String, (String, Ending)> {
    let bad = |message: String| (message, Ending::Bad);
    let mut client = Client::new(options.admin.clone(), options.tls.clone());
    if let Some(file) = &options.token_file {
        let text =
            std::fs::read_to_string(file).map_err(|error| bad(format!("cannot read {}: {error}", file.display())))?;
        client.token = Some(text.trim().to_owned());
    }
    let asked = asked(&options.command).map_err(bad)?;
    let answer = client.ask(&asked).map_err(|unanswered| match unanswered {
        Unanswered::Not(message) => bad(message),
        Unanswered::Unknown(message) => (message, Ending::Unknown),
    })?;
    if let (Command::Config(Config::Get { etag_file: Some(file), .. }), 200) = (&options.command, answer.status) {
        let tag = answer.etag.as_deref().unwrap_or_default();
        let failed = |error| bad(format!("cannot write {}: {error}", file.display()));
        std::fs::write(file, format!("{tag}\n")).map_err(failed)?;
    }
    if options.json && !answer.body.is_empty() {
        let shown = format!("{}\n", answer.body.trim_end());
        return if answer.status == 200 { Ok(shown) } else { Err(bad(shown)) };
    }
    if answer.status != 200 {
        return Err(bad(refusal_of(&answer, Sent::by(&options.command).as_ref())));
    }
    let told = serde_json::from_str(&answer.body).map_err(|_| bad(client.foreign()))?;
    Ok(text::render(&options.command, &told))
}

/// A file that a command sends, which the API knows by names of its own.
struct Sent {
    /// As diagnostics are to call it.
    name: String,
    /// What the API calls it besides `request`, if its lines are those of the file.
    place: Option<String>,
}

impl Sent {
    fn by(command: &Command) -> Option<Self> {
        let (file, place) = match command {
            Command::Config(Config::Put { file, .. }) => (file, None),
            Command::Config(Config::Set { kind, name, file, .. }) => {
                (file, Some(format!("api:{}/{name}", kind.as_str())))
            }
            _ => return None,
        };
        let name = if file == Path::new("-") { "<stdin>".to_owned() } else { file.display().to_string() };
        Some(Self { name, place })
    }

    fn is_called(&self, name: &str) -> bool {
        name == "request" || self.place.as_deref() == Some(name)
    }
}

/// Returns what was refused, and why, for people.
pub(crate) fn refusal(answer: &Answered) -> String {
    refusal_of(answer, None)
}

/// Returns the same of what a file said.
fn refusal_of(answer: &Answered, sent: Option<&Sent>) -> String {
    crate::escape::lines(&refused(answer, sent))
}

fn refused(answer: &Answered, sent: Option<&Sent>) -> String {
    let Ok(told) = serde_json::from_str::<Value>(&answer.body) else {
        return if answer.body.trim().is_empty() {
            format!("the program answered {} without a message", answer.status)
        } else {
            answer.body.trim_end().to_owned()
        };
    };
    let mut text = told["message"].as_str().unwrap_or("it was refused").to_owned();
    if let Some(suggestion) = told["suggestion"].as_str() {
        text.push_str(&format!("\n     help: {suggestion}"));
    }
    for one in told["diagnostics"].as_array().into_iter().flatten() {
        let known = sent.filter(|sent| one["file"].as_str().is_some_and(|name| sent.is_called(name)));
        let name = known.map_or_else(|| one["file"].clone(), |sent| Value::from(sent.name.as_str()));
        text.push_str(&format!("\n\n{}", text::diagnostic(&name, one)));
    }
    if answer.status == 401 {
        text.push_str(&format!(
            "\n     help: put it into {}, or name its file: --token-file FILE",
            crate::client::TOKEN
        ));
    }
    text
}

/// Returns the request that a command is.
fn asked(command: &Command) -> Result<Asked, String> {
    Ok(match command {
        Command::Status => get("/api/status"),
        Command::Changes => get("/api/changes"),
        Command::Providers => get("/api/providers"),
        Command::Generations { generation: None } => get("/api/generations"),
        Command::Generations { generation: Some(number) } => get(format!("/api/generations/{number}")),
        Command::Endpoints { cluster } => get(format!("/api/clusters/{}/endpoints", encoded(cluster))),
        Command::Log { level: None } => get("/api/log"),
        Command::Log { level: Some(level) } => send("PUT", "/api/log".to_owned(), &json!({ "level": level.as_str() })),
        Command::Connections { listener, limit, after } => {
            let listener = listener.as_ref().map_or_else(String::new, |name| format!("&listener={}", encoded(name)));
            get(format!("/api/connections?limit={limit}&after={}{listener}", after.unwrap_or(0)))
        }
        Command::End { connection } => bare("DELETE", &format!("/api/connections/{connection}"), None),
        Command::Canary { end: None } => get("/api/canary"),
        Command::Canary { end: Some(CanaryEnd::Promote) } => bare("POST", "/api/canary/promote", None),
        Command::Canary { end: Some(CanaryEnd::Abort) } => bare("DELETE", "/api/canary", None),
        Command::Reload => bare("POST", "/api/reload", None),
        Command::Upgrade => bare("POST", "/api/upgrade", None),
        Command::Rollback { generation, dry } => {
            bare("POST", &format!("/api/generations/{generation}/rollback"), Some(*dry))
        }
        Command::Peers => get("/api/peers"),
        Command::Table { action } => table_asked(action.as_ref()),
        Command::Cache { action } => cache_asked(action.as_ref()),
        Command::Map(map) => map_asked(map),
        Command::Config(config) => config_asked(config)?,
        Command::Endpoint(endpoint) => endpoint_asked(endpoint),
    })
}

fn config_asked(config: &Config) -> Result<Asked, String> {
    let object = |kind: &options::Kind, name: &str| format!("/api/config/{}/{}", kind.as_str(), encoded(name));
    Ok(match config {
        Config::Get { kind, name, defaults, .. } => {
            let path = match (kind, name) {
                (None, _) => "/api/config".to_owned(),
                (Some(kind), None) => format!("/api/config/{}", kind.as_str()),
                (Some(kind), Some(name)) => object(kind, name),
            };
            get(format!("{path}{}", if *defaults { "" } else { "?as=written" }))
        }
        Config::Put { file, tag, first, dry } => put_file("/api/config", (file, tag), (*dry, first))?,
        Config::Set { kind, name, file, tag, first, dry } => put_file(&object(kind, name), (file, tag), (*dry, first))?,
        Config::Remove { kind, name, dry } => bare("DELETE", &object(kind, name), Some(*dry)),
        Config::Reset { dry } => bare("DELETE", "/api/config", Some(*dry)),
    })
}

fn map_asked(asked: &Map) -> Asked {
    let path = |map: &str| format!("/api/maps/{}", encoded(map));
    let entry = |map: &str, key: &str| format!("{}/entries/{}", path(map), encoded(key));
    match asked {
        Map::List { map: None, .. } => get("/api/maps"),
        Map::List { map: Some(map), containing, limit, after } => {
            let containing =
                containing.as_ref().map_or_else(String::new, |text| format!("&containing={}", encoded(text)));
            get(format!("{}?limit={limit}&after={}{containing}", path(map), after.unwrap_or(0)))
        }
        Map::Get { map, key } => get(entry(map, key)),
        Map::Set { map, key, value } => send("PUT", entry(map, key), &json!({ "value": value })),
        Map::Delete { map, key } => bare("DELETE", &entry(map, key), None),
        Map::Reset { map, key: Some(key) } => bare("DELETE", &format!("{}/edits/{}", path(map), encoded(key)), None),
        Map::Reset { map, key: None } => bare("DELETE", &format!("{}/edits", path(map)), None),
    }
}

fn endpoint_asked(asked: &Endpoint) -> Asked {
    let all = format!("/api/clusters/{}/endpoints", encoded(&asked.cluster));
    let one = format!("{all}/{}", encoded(&asked.endpoint));
    let dry = query(asked.dry);
    match (asked.action, asked.action.state()) {
        (_, Some(state)) => send("PUT", format!("{one}/state{dry}"), &json!({ "state": state })),
        (Action::Remove, _) => bare("DELETE", &one, Some(asked.dry)),
        (Action::Add, _) => {
            // The configuration would take `${…}` for a variable.
            let mut settings = json!({ "address": asked.endpoint.replace("${", "$${") });
            if let Some(weight) = asked.weight {
                settings["weight"] = weight.into();
            }
            send("POST", format!("{all}{dry}"), &settings)
        }
        _ => send("PUT", format!("{one}/weight{dry}"), &json!({ "weight": asked.weight })),
    }
}

fn table_asked(action: Option<&TableAction>) -> Asked {
    let entry = |table: &str, key: &str| format!("/api/tables/{}/entries/{}", encoded(table), encoded(key));
    match action {
        None => get("/api/tables"),
        Some(TableAction::Show { table, by, limit }) => {
            let by = by.as_ref().map_or_else(String::new, |by| format!("&by={}", encoded(by)));
            get(format!("/api/tables/{}?limit={limit}{by}", encoded(table)))
        }
        Some(TableAction::Get { table, key }) => get(entry(table, key)),
        Some(TableAction::Set { table, key, values }) => {
            let body = values.iter().map(|(name, value)| (name.clone(), Value::from(*value))).collect();
            send("PUT", entry(table, key), &Value::Object(body))
        }
        Some(TableAction::Clear { table, key: Some(key) }) => bare("DELETE", &entry(table, key), None),
        Some(TableAction::Clear { table, key: None }) => {
            bare("DELETE", &format!("/api/tables/{}/entries", encoded(table)), None)
        }
    }
}

fn cache_asked(action: Option<&CacheAction>) -> Asked {
    let Some(CacheAction::Purge { cache, url, prefix, tag, soft, .. }) = action else { return get("/api/caches") };
    let given = [("url", url), ("prefix", prefix), ("tag", tag)];
    let given = given.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", encoded(value.as_ref()?))));
    let query: Vec<_> = given.chain(soft.then(|| "soft=true".to_owned())).collect();
    let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
    bare("DELETE", &format!("/api/caches/{}/entries{query}", encoded(cache)), None)
}

fn get(path: impl Into<String>) -> Asked {
    Asked { method: "GET", path: path.into(), ..Asked::default() }
}

fn bare(method: &'static str, path: &str, dry: Option<Dry>) -> Asked {
    Asked { method, path: format!("{path}{}", dry.map_or("", query)), ..Asked::default() }
}

fn send(method: &'static str, path: String, body: &Value) -> Asked {
    let fields = vec![("content-type", "application/json".to_owned())];
    Asked { method, path, fields, body: body.to_string() }
}

fn put_file(path: &str, (file, tag): (&Path, &Tag), (dry, first): (Dry, &Try)) -> Result<Asked, String> {
    let body = if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .map(|_| text)
            .map_err(|error| format!("cannot read standard input: {error}"))?
    } else {
        std::fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?
    };
    let read =
        |file: &Path| std::fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()));
    let tag = tag.etag_file.as_deref().map_or(Ok("*".to_owned()), read)?;
    if tag.trim().contains(['\r', '\n']) || tag.trim().is_empty() {
        return Err("the etag file must be one that `ctl config get --etag-file FILE` wrote".to_owned());
    }
    let fields = vec![("content-type", "application/yaml".to_owned()), ("if-match", tag.trim().to_owned())];
    let mut path = format!("{path}{}", query(dry));
    let least = first.exchanges_min.map(|least| least.to_string());
    let terms = [
        ("canary", &first.canary),
        ("for", &first.time),
        ("errors_max", &first.errors_max),
        ("latency_max", &first.latency_max),
        ("exchanges_min", &least),
    ];
    for (name, value) in terms {
        if let Some(value) = value {
            let before = if path.contains('?') { '&' } else { '?' };
            path.push_str(&format!("{before}{name}={}", encoded(value)));
        }
    }
    Ok(Asked { method: "PUT", path, fields, body })
}

fn query(dry: Dry) -> &'static str {
    if dry.dry_run { "?dry_run=true" } else { "" }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli;

    fn request(line: &str) -> String {
        let line = format!("equipoise ctl {line}");
        let parsed = cli::Cli::try_parse_from(line.split_whitespace()).unwrap_or_else(|error| panic!("{error}"));
        let cli::Command::Ctl(options) = parsed.command else { panic!("{line}") };
        let asked = asked(&options.command).unwrap();
        format!("{} {} {}", asked.method, asked.path, asked.body).trim_end().to_owned()
    }

    #[test]
    fn commands_are_requests() {
        for (line, wanted) in [
            ("status", "GET /api/status"),
            ("config get", "GET /api/config?as=written"),
            ("config get clusters --defaults", "GET /api/config/clusters"),
            ("config get route main", "GET /api/config/routes/main?as=written"),
            ("config remove cluster a/b --dry-run", "DELETE /api/config/clusters/a%2Fb?dry_run=true"),
            ("config reset", "DELETE /api/config"),
            ("providers", "GET /api/providers"),
            ("generations 7", "GET /api/generations/7"),
            ("rollback 3", "POST /api/generations/3/rollback"),
            ("reload", "POST /api/reload"),
            ("canary", "GET /api/canary"),
            ("canary promote", "POST /api/canary/promote"),
            ("canary abort", "DELETE /api/canary"),
            ("upgrade", "POST /api/upgrade"),
            ("connections --listener web", "GET /api/connections?limit=100&after=0&listener=web"),
            ("end 4097", "DELETE /api/connections/4097"),
            ("peers", "GET /api/peers"),
            ("table", "GET /api/tables"),
            ("table show a --by errors_rate --limit 5", "GET /api/tables/a?limit=5&by=errors_rate"),
            ("table get a 2001:db8::1", "GET /api/tables/a/entries/2001%3Adb8%3A%3A1"),
            ("table set a k/1 errors=0 marks=7", "PUT /api/tables/a/entries/k%2F1 {\"errors\":0,\"marks\":7}"),
            ("table clear a", "DELETE /api/tables/a/entries"),
            ("table clear a k", "DELETE /api/tables/a/entries/k"),
            ("cache", "GET /api/caches"),
            ("cache purge a --all", "DELETE /api/caches/a/entries"),
            ("cache purge a --tag t/1 --soft", "DELETE /api/caches/a/entries?tag=t%2F1&soft=true"),
            ("log warn", "PUT /api/log {\"level\":\"warn\"}"),
            ("endpoints a", "GET /api/clusters/a/endpoints"),
            ("endpoint drain a unix:/x", "PUT /api/clusters/a/endpoints/unix%3A%2Fx/state {\"state\":\"drain\"}"),
            ("endpoint maintain a b:1", "PUT /api/clusters/a/endpoints/b%3A1/state {\"state\":\"maintenance\"}"),
            (
                "endpoint weight a b:1 5 --dry-run",
                "PUT /api/clusters/a/endpoints/b%3A1/weight?dry_run=true {\"weight\":5}",
            ),
            ("endpoint add a b:1", "POST /api/clusters/a/endpoints {\"address\":\"b:1\"}"),
            ("endpoint add a b:1 9", "POST /api/clusters/a/endpoints {\"address\":\"b:1\",\"weight\":9}"),
            ("endpoint remove a b:1", "DELETE /api/clusters/a/endpoints/b%3A1"),
        ] {
            assert_eq!(request(line), wanted, "{line}");
        }
        for bad in [
            "",
            "endpoint weight a b:1",
            "endpoint drian a b:1",
            "config get a",
            "rollback x",
            "table set a k errors",
            "cache purge a",
            "cache purge a --all --tag t",
            "--admin x status",
        ] {
            let line = format!("equipoise ctl {bad}");
            assert!(cli::Cli::try_parse_from(line.split_whitespace()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_refusal_is_told_with_its_mend() {
        let answer = |status, body: &str| refusal(&Answered { status, etag: None, body: body.to_owned() });
        assert_eq!(
            answer(404, r#"{"message":"there is no x","suggestion":"did you mean `y`?"}"#),
            "there is no x\n     help: did you mean `y`?"
        );
        let told = answer(
            422,
            r#"{"message":"bad","diagnostics":[{"file":"request","line":3,"column":2,"line_text":" a: b","caret":2,"width":1,"message":"no","suggestion":null}]}"#,
        );
        assert_eq!(told, "bad\n\nrequest:3:2: no\n   3 |  a: b\n     |  ^");
        let body = |name: &str| {
            format!(r#"{{"message":"bad","diagnostics":[{{"file":"{name}","line":3,"column":2,"message":"no"}}]}}"#)
        };
        let sent = Sent { name: "a.yaml".to_owned(), place: Some("api:clusters/a".to_owned()) };
        let names = ["request", "api:clusters/a", "api:clusters/b", "other.yaml"];
        for (name, wanted) in names.into_iter().zip(["a.yaml", "a.yaml", "api:clusters/b", "other.yaml"]) {
            let told = refusal_of(&Answered { status: 422, etag: None, body: body(name) }, Some(&sent));
            assert_eq!(told, format!("bad\n\n{wanted}:3:2: no"));
        }
        assert!(answer(401, r#"{"message":"a token is required"}"#).contains("EQUIPOISE_TOKEN"));
        assert_eq!(
            (answer(400, "plain\n").as_str(), answer(500, "").as_str()),
            ("plain", "the program answered 500 without a message")
        );
    }
}
