//! Answers of the API, for people.

use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::map::Map;
use super::options::{CacheAction, CanaryEnd, Command, Config, TableAction};
use crate::escape;

/// Returns the answer to a command.
pub(super) fn render(command: &Command, told: &Value) -> String {
    let text = match command {
        // JSON is YAML: it can be edited and put back, so nothing of it is made visible.
        Command::Config(Config::Get { .. }) => return format!("{told:#}\n"),
        Command::Status => status(told),
        Command::Changes => changes(told),
        Command::Providers => providers(told),
        Command::Generations { generation: None } => generations(told),
        Command::Generations { .. } => generation(told),
        Command::Canary { end: None } => canaries(told),
        Command::Canary { end: Some(CanaryEnd::Abort) } => "canary rolled back\n".to_owned(),
        Command::Endpoints { .. } => endpoints(&told["endpoints"]),
        Command::Map(map) => maps(map, told),
        Command::Log { .. } => format!("{}\n", text(&told["level"])),
        Command::Connections { .. } => connections(told),
        Command::Peers => peers(told),
        Command::Table { action } => tables(action.as_ref(), told),
        Command::Cache { action: None } => caches(told),
        Command::Cache { action: Some(CacheAction::Purge { .. }) } => {
            format!("{} responses purged\n", text(&told["purged"]))
        }
        Command::Upgrade => format!("process {} has taken over\n", text(&told["successor"])),
        Command::End { connection } => format!("connection {connection} closed\n"),
        _ => done(told),
    };
    escape::lines(&text)
}

/// Returns one problem, as `check` shows it.
pub(super) fn diagnostic(name: &Value, one: &Value) -> String {
    let number = |key: &str| one[key].as_u64().unwrap_or(0) as usize;
    let (line, gutter) = (number("line"), number("line").to_string().len().max(3));
    let mut out = format!("{}:{line}:{}: {}", text(name), number("column"), text(&one["message"]));
    // Lines that may hold secrets are not told.
    if line > 0 && number("caret") > 0 {
        let (indent, marks) = (number("caret").saturating_sub(1), number("width").max(1));
        out.push_str(&format!("\n {line:>gutter$} | {}", text(&one["line_text"]).trim_end()));
        out.push_str(&format!("\n {:>gutter$} | {:indent$}{:^<marks$}", "", "", ""));
    }
    if let Some(suggestion) = one["suggestion"].as_str() {
        out.push_str(&format!("\n     help: {suggestion}"));
    }
    out
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}

/// Columns as wide as their widest cell.
fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| escape::line(cell)).collect()).collect();
    let mut widths: Vec<usize> = head.iter().map(|cell| cell.chars().count()).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> = cells.zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    let mut out = line(&mut head.iter().copied());
    for row in &rows {
        out.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    out
}

fn maps(asked: &Map, told: &Value) -> String {
    let summary = |one: &Value| ["name", "match", "entries", "edited", "file"].map(|key| text(&one[key])).to_vec();
    match asked {
        Map::List { map: None, .. } => {
            let rows: Vec<Vec<String>> = list(&told["maps"]).map(summary).collect();
            table(&["MAP", "MATCH", "ENTRIES", "EDITED", "FILE"], &rows)
        }
        Map::List { .. } => {
            let edited = |one: &Value| if one["edited"] == true { "yes" } else { "-" }.to_owned();
            let row = |one: &Value| vec![text(&one["key"]), text(&one["value"]), edited(one)];
            let rows: Vec<Vec<String>> = list(&told["list"]).map(row).collect();
            let mut out = table(&["KEY", "VALUE", "EDITED"], &rows);
            if let Some(next) = told["next"].as_u64() {
                out.push_str(&format!("more: --after {next}\n"));
            }
            out
        }
        Map::Get { .. } => format!("{}\n", text(&told["value"])),
        Map::Set { .. } => "set until the program ends\n".to_owned(),
        Map::Delete { .. } => "deleted until the program ends\n".to_owned(),
        Map::Reset { .. } => format!("{} entries of the map {} are edited\n", told["edited"], text(&told["name"])),
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn status(told: &Value) -> String {
    let mut out = format!(
        "equipoise {}, pid {}, {}, generation {}, {} requests, {} failed, {} connections open\n\n",
        text(&told["version"]),
        told["pid"],
        text(&told["state"]),
        told["generation"],
        told["requests"],
        told["failed"],
        told["connections_open"],
    );
    let listeners: Vec<Vec<String>> = list(&told["listeners"])
        .map(|one| {
            ["name", "address", "protocol", "connections_open", "requests", "faults"]
                .map(|key| text(&one[key]))
                .to_vec()
        })
        .collect();
    out.push_str(&table(&["LISTENER", "ADDRESS", "PROTOCOL", "OPEN", "REQUESTS", "FAULTS"], &listeners));
    for cluster in list(&told["clusters"]) {
        let (name, balance, waiting) = (text(&cluster["name"]), text(&cluster["balance"]), &cluster["waiting"]);
        out.push_str(&format!("\ncluster {name}, {balance}, {waiting} waiting\n"));
        out.push_str(&endpoints(&cluster["endpoints"]));
    }
    out
}

fn endpoints(all: &Value) -> String {
    let row = |one: &Value| {
        let wish = match one["wish"]["state"].as_str() {
            Some(state) => format!("{state} by {}, {}", text(&one["wish"]["author"]), time(&one["wish"]["at_unix_s"])),
            None => "-".to_owned(),
        };
        let mut cells: Vec<String> = ["name", "standing", "health", "weight", "in_flight", "requests", "faults"]
            .map(|key| text(&one[key]))
            .to_vec();
        cells.push(wish);
        cells.push(text(&one["reason"]));
        cells
    };
    let head = ["ENDPOINT", "STANDING", "HEALTH", "WEIGHT", "IN FLIGHT", "REQUESTS", "FAULTS", "WISH", "REASON"];
    table(&head, &list(all).map(row).collect::<Vec<_>>())
}

fn canaries(told: &Value) -> String {
    let row = |one: &Value| {
        let side = |side: &Value| {
            let p90 = side["latency_p90_ms"].as_f64().map_or("-".to_owned(), |ms| format!("{ms:.1} ms"));
            format!("{} done, {} failed, p90 {p90}", side["exchanges"], side["failed"])
        };
        let (share, time) = (&one["terms"]["share_percent"], one["terms"]["for_s"].as_f64().unwrap_or(0.0));
        let terms = format!("{share}% for {time} s");
        let texts = [time_of(one), terms, text(&one["author"]), text(&one["result"])];
        let mut cells = texts.to_vec();
        cells.extend([side(&one["new"]), side(&one["old"]), text(&one["reason"])]);
        cells
    };
    let rows: Vec<Vec<String>> = list(&told["canaries"]).map(row).collect();
    if rows.is_empty() {
        return "nothing was tried\n".to_owned();
    }
    table(&["BEGAN", "SHARE", "BY", "RESULT", "NEW", "OLD", "WHY"], &rows)
}

fn time_of(one: &Value) -> String {
    time(&one["at_unix_s"])
}

fn connections(told: &Value) -> String {
    let row = |one: &Value| {
        let open = Duration::try_from_secs_f64(one["open_for_s"].as_f64().unwrap_or(0.0)).unwrap_or_default();
        let since = ago(open);
        vec![text(&one["id"]), text(&one["listener"]), text(&one["peer"]), since, text(&one["worker"])]
    };
    let mut out = table(
        &["ID", "LISTENER", "PEER", "OPENED", "WORKER"],
        &list(&told["connections"]).map(row).collect::<Vec<_>>(),
    );
    if let Some(next) = told["next"].as_u64() {
        out.push_str(&format!("there may be more: --after {next}\n"));
    }
    out
}

fn peers(told: &Value) -> String {
    let row = |one: &Value| {
        let heard = if one["is_heard"] == true { "yes" } else { "no" };
        let lag = format!("{} ms", text(&one["lag_ms"]));
        let mut cells = ["member", "address", "state"].map(|key| text(&one[key])).to_vec();
        cells.extend([heard.to_owned(), lag, text(&one["backlog_bytes"]), text(&one["last_error"]["message"])]);
        cells
    };
    let rows: Vec<_> = list(&told["peers"]).map(row).collect();
    if rows.is_empty() {
        return "there are no peers\n".to_owned();
    }
    table(&["MEMBER", "ADDRESS", "STATE", "HEARD", "LAG", "BACKLOG", "LAST ERROR"], &rows)
}

fn tables(action: Option<&TableAction>, told: &Value) -> String {
    match action {
        None => {
            let row = |one: &Value| {
                let kept = Duration::try_from_secs_f64(one["expire_s"].as_f64().unwrap_or(0.0)).unwrap_or_default();
                let kept = ago(kept).trim_end_matches(" ago").to_owned();
                let mut cells = ["name", "key", "entries", "keys_max", "evictions"].map(|key| text(&one[key])).to_vec();
                cells.push(kept);
                cells.push(list(&one["readings"]).map(text).collect::<Vec<_>>().join(" "));
                cells
            };
            let rows: Vec<_> = list(&told["tables"]).map(row).collect();
            if rows.is_empty() {
                return "there are no tables\n".to_owned();
            }
            table(&["NAME", "KEY", "ENTRIES", "MAX", "EVICTED", "KEPT", "COUNTS"], &rows)
        }
        Some(TableAction::Show { .. }) => entries(&list(&told["rows"]).collect::<Vec<_>>()),
        Some(TableAction::Get { .. } | TableAction::Set { .. }) => entries(&[told]),
        Some(TableAction::Clear { .. }) => format!("{} entries cleared\n", text(&told["cleared"])),
    }
}

fn caches(told: &Value) -> String {
    let keys = ["name", "entries", "bytes", "memory", "hits", "misses", "evictions", "purged"];
    let row = |one: &Value| {
        let mut cells = keys.map(|key| text(&one[key])).to_vec();
        cells.extend(["entries", "bytes"].map(|key| one["disk"].get(key).map_or_else(|| "-".to_owned(), text)));
        cells
    };
    let rows: Vec<_> = list(&told["caches"]).map(row).collect();
    if rows.is_empty() {
        return "there are no caches\n".to_owned();
    }
    table(
        &["NAME", "ENTRIES", "BYTES", "MAX", "HITS", "MISSES", "EVICTED", "PURGED", "ON DISK", "BYTES ON DISK"],
        &rows,
    )
}

fn entries(rows: &[&Value]) -> String {
    let Some(names) = rows.first().and_then(|row| row["values"].as_object()) else {
        return "the table has no entries\n".to_owned();
    };
    let names: Vec<&str> = names.keys().map(String::as_str).collect();
    let row = |one: &&Value| {
        let idle = ago(Duration::try_from_secs_f64(one["idle_s"].as_f64().unwrap_or(0.0)).unwrap_or_default());
        let mut cells = vec![text(&one["key"]), idle];
        cells.extend(names.iter().map(|name| text(&one["values"][name])));
        cells
    };
    let head: Vec<String> = ["key", "counted"].iter().chain(&names).map(|name| name.to_uppercase()).collect();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    table(&head, &rows.iter().map(row).collect::<Vec<_>>())
}

fn changes(told: &Value) -> String {
    let mut out = String::new();
    let objects: Vec<Vec<String>> =
        list(&told["objects"]).map(|one| vec![text(&one["place"]), text(&one["change"])]).collect();
    if objects.is_empty() {
        out.push_str("nothing in the files is overridden\n");
    } else {
        out.push_str(&table(&["OBJECT", "BY THE API"], &objects));
    }
    let wishes: Vec<Vec<String>> = list(&told["wishes"])
        .map(|one| {
            let mut cells = ["cluster", "endpoint", "state", "author"].map(|key| text(&one[key])).to_vec();
            cells.push(time(&one["at_unix_s"]));
            cells
        })
        .collect();
    if !wishes.is_empty() {
        out.push_str(&format!("\n{}", table(&["CLUSTER", "ENDPOINT", "WISH", "BY", "SINCE"], &wishes)));
    }
    match told["kept_in"].as_str() {
        Some(folder) => out.push_str(&format!("\nkept in {folder}\n")),
        None => out.push_str("\nlost when the program stops; `admin: { state: DIR }` keeps them\n"),
    }
    out
}

fn providers(told: &Value) -> String {
    let row = |one: &Value| {
        let when = |key: &str| if one[key].is_null() { "never".to_owned() } else { time(&one[key]) };
        let kept = if one["kept_from_before"] == true { ", from an earlier run" } else { "" };
        let count = |key: &str, what: &str| match one[key].as_u64() {
            Some(1) => format!("1 {what}"),
            other => format!("{} {what}s", other.unwrap_or(0)),
        };
        let holds = format!("{}, {}{kept}", count("endpoints", "endpoint"), count("texts", "text"));
        let state = text(&one["state"]);
        let (answered, changed) = (when("last_success_unix_s"), when("last_change_unix_s"));
        vec![text(&one["name"]), text(&one["kind"]), state, answered, changed, holds, text(&one["refused"])]
    };
    let rows: Vec<Vec<String>> = list(&told["providers"]).map(row).collect();
    if rows.is_empty() {
        return "there are no providers\n".to_owned();
    }
    let head = ["PROVIDER", "KIND", "STATE", "ANSWERED", "CHANGED", "ACTIVE", "REFUSED"];
    let mut out = table(&head, &rows);
    for one in list(&told["providers"]) {
        if let Some(reason) = one["reason"].as_str() {
            out.push_str(&format!("\n{} is unreachable: {reason}\n", text(&one["name"])));
        }
        for why in list(&one["left_out"]) {
            out.push_str(&format!("\nparts of {} are ignored: {}\n", text(&one["name"]), text(why)));
        }
        for key in list(&one["missing"]) {
            out.push_str(&format!("\n{} delivers no endpoints for `{}`\n", text(&one["name"]), text(key)));
        }
        if let Some(problems) = one["problems"].as_str() {
            out.push_str(&format!("\nthe new state of {} is rejected:\n{}\n", text(&one["name"]), problems.trim_end()));
        }
    }
    out
}

fn generations(told: &Value) -> String {
    let rows: Vec<Vec<String>> = list(&told["generations"])
        .map(|one| {
            let differences: Vec<String> = list(&one["differences"]).map(|one| text(&one["path"])).collect();
            let more = differences.len().saturating_sub(3);
            let mut shown = differences.into_iter().take(3).collect::<Vec<_>>().join(", ");
            if more > 0 {
                shown.push_str(&format!(" and {more} more"));
            }
            vec![text(&one["generation"]), time(&one["at_unix_s"]), text(&one["origin"]), text(&one["author"]), shown]
        })
        .collect();
    table(&["GENERATION", "AT", "BY WAY OF", "BY", "DIFFERENCES"], &rows)
}

fn generation(told: &Value) -> String {
    let author = told["author"].as_str().map_or_else(String::new, |author| format!(" by {author}"));
    let head = format!(
        "generation {}, {}, {}{author}\n",
        told["generation"],
        time(&told["at_unix_s"]),
        text(&told["origin"]),
    );
    head + &differences(told)
}

fn differences(told: &Value) -> String {
    let mut out = String::new();
    for one in list(&told["differences"]) {
        let path = text(&one["path"]);
        let line = match (one.get("before"), one.get("after")) {
            (None, Some(after)) => format!("  + {path}: {after}"),
            (Some(before), None) => format!("  - {path}: {before}"),
            _ => format!("  ~ {path}: {} -> {}", one["before"], one["after"]),
        };
        out.push_str(&format!("{line}\n"));
    }
    match told["differences_left_out"].as_u64() {
        Some(count @ 1..) => out.push_str(&format!("  and {count} more\n")),
        _ if out.is_empty() => out.push_str("  no differences\n"),
        _ => {}
    }
    out
}

fn done(told: &Value) -> String {
    if told["changed"] == false && told["canary"] == false && list(&told["differences"]).next().is_none() {
        return format!("nothing to change: generation {} is the same\n", told["generation"]);
    }
    let mut out = match told["dry_run"] {
        _ if told["canary"] == true => {
            format!(
                "canary running beside generation {}; `equipoise ctl canary` shows its figures:\n",
                told["generation"]
            )
        }
        Value::Bool(true) => {
            format!("dry run, nothing was changed; this would change in generation {}:\n", told["generation"])
        }
        _ => format!("generation {} is active\n", told["generation"]),
    };
    out.push_str(&differences(told));
    let effects = &told["effects"];
    for (key, what) in [("listeners_bound", "is bound"), ("listeners_closed", "is closed")] {
        for one in list(&effects[key]) {
            let open = one["connections"].as_u64().filter(|open| *open > 0);
            let open = open.map_or_else(String::new, |open| format!(", {open} connections end when they are idle"));
            out.push_str(&format!("listener {} on {} {what}{open}\n", text(&one["name"]), text(&one["bind"])));
        }
    }
    let kinds = [
        ("endpoints_added", "is added"),
        ("endpoints_removed", "is removed"),
        ("endpoints_drained", "gets nothing new"),
        ("endpoints_readied", "gets work again"),
    ];
    for (key, what) in kinds {
        for one in list(&effects[key]) {
            let busy = one["in_flight"].as_u64().filter(|busy| *busy > 0);
            let busy = busy.map_or_else(String::new, |busy| format!(", {busy} in flight there"));
            out.push_str(&format!("endpoint {} of {} {what}{busy}\n", text(&one["name"]), text(&one["cluster"])));
        }
    }
    if let Some(reason) = told["not_kept"].as_str() {
        out.push_str(&format!(
            "\nwarning: the change is active, but could not be saved for the next start: {reason}\n"
        ));
    }
    for warning in list(&told["warnings"]) {
        out.push_str(&format!("\nwarning: {}\n", diagnostic(&warning["file"], warning)));
    }
    out
}

/// Returns how long ago, in the largest unit.
fn time(value: &Value) -> String {
    let at = Duration::try_from_secs_f64(value.as_f64().unwrap_or(0.0)).unwrap_or_default();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    ago(now.saturating_sub(at))
}

fn ago(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s ago"),
        60..3_600 => format!("{} min ago", seconds / 60),
        3_600..86_400 => format!("{} h ago", seconds / 3_600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tables_have_columns_as_wide_as_they_need_to_be() {
        let rows = [vec!["a".to_owned(), "long cell".to_owned()], vec!["bbb".to_owned(), "é".to_owned()]];
        assert_eq!(table(&["X", "YY"], &rows), "X    YY\na    long cell\nbbb  é\n");
    }

    #[test]
    fn words_of_an_agent_neither_drive_the_terminal_nor_forge_a_row() {
        let told = json!({ "endpoints": [{ "name": "x:1", "reason": "\u{1b}[2J\nx:2  up" }] });
        let shown = render(&Command::Endpoints { cluster: "site".to_owned() }, &told);
        assert!(shown.lines().count() == 2 && shown.contains("\\u{1b}[2J\\nx:2  up"), "{shown}");
    }

    #[test]
    fn what_was_done_is_told_with_what_it_does_to_what_is_alive() {
        let told = json!({
            "generation": 4, "dry_run": true,
            "differences": [{ "path": "a/b", "before": 1, "after": 2 }, { "path": "c", "after": {} }, { "path": "d", "before": "x" }],
            "differences_left_out": 0,
            "effects": {
                "listeners_closed": [{ "name": "web", "bind": "127.0.0.1:80", "connections": 3 }],
                "endpoints_removed": [{ "cluster": "site", "name": "x:1", "in_flight": 2 }],
            },
            "warnings": [],
        });
        assert_eq!(
            done(&told),
            "dry run, nothing was changed; this would change in generation 4:\n  ~ a/b: 1 -> 2\n  + c: {}\n  - d: \"x\"\n\
             listener web on 127.0.0.1:80 is closed, 3 connections end when they are idle\n\
             endpoint x:1 of site is removed, 2 in flight there\n"
        );
        let told = json!({ "generation": 4, "changed": false, "dry_run": false, "canary": false, "differences": [] });
        assert_eq!(done(&told), "nothing to change: generation 4 is the same\n");
        assert_eq!(ago(Duration::from_secs(7_300)), "2 h ago");
    }
}
