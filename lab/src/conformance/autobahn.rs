//! The Autobahn suite for WebSockets. What it says of an echo through the product must be what it says of the echo itself.

use super::stage::Bench;
use super::verdicts::Verdict;
use crate::failure::Failure;
use crate::measure::child::{Launch, write_file};
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;

/// All but those that measure speed, of which one of each kind is run.
const CASES: &[&str] = &[
    "1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "9.1.1", "9.2.1", "9.3.1", "9.4.1", "9.5.1", "9.6.1", "9.7.1",
    "9.8.1", "10.*", "12.1.1", "13.1.1",
];

/// The echo of go-httpbin, with room for the largest messages.
const ECHO: &str = "/websocket/echo?max_fragment_size=17000000&max_message_size=17000000";
const TIMEOUT: Duration = Duration::from_secs(900);

/// Through a listener in clear and one with TLS.
pub(crate) fn run(bench: &Bench<'_>) -> Result<Vec<Verdict>, Failure> {
    let program = bench.paths.peer_file("autobahn/wstest")?;
    // The suite's own echo refuses whoever asks for another port than its own.
    let (endpoint, _endpoint) = bench.httpbin()?;
    let site = bench.site(endpoint, &[])?;
    let reports = bench.out.join("reports");
    let agents = [
        json!({ "agent": "direct", "url": format!("ws://{endpoint}{ECHO}") }),
        json!({ "agent": "clear", "url": format!("ws://{}{ECHO}", site.clear) }),
        json!({ "agent": "sealed", "url": format!("wss://{}{ECHO}", site.sealed) }),
    ];
    let wish = json!({
        "options": { "failByDrop": false },
        "outdir": reports,
        "servers": agents,
        "cases": CASES,
        "exclude-cases": [],
        "exclude-agent-cases": {},
    });
    let file = bench.out.join("wish.json");
    write_file(&file, &wish.to_string())?;
    let ended =
        bench.finish("client", &Launch::new(&program).args(["-m", "fuzzingclient", "-s"]).arg(&file), TIMEOUT)?;
    let index = fs::read_to_string(reports.join("index.json"))
        .map_err(|_| Failure::new(format!("it wrote no report: {}", ended.last_words())))?;
    let index: Value = serde_json::from_str(&index).map_err(|error| Failure::new(format!("its report: {error}")))?;
    Ok(compare(&index))
}

fn compare(index: &Value) -> Vec<Verdict> {
    let mut found = Vec::new();
    let direct = index["direct"].as_object().into_iter().flatten();
    let mut cases: Vec<(&String, &Value)> = direct.collect();
    cases.sort_by_key(|(case, _)| case.split('.').map(|part| part.parse().unwrap_or(0)).collect::<Vec<u32>>());
    for agent in ["clear", "sealed"] {
        for (case, wanted) in &cases {
            let (wanted, seen) = (short(wanted), short(&index[agent][case.as_str()]));
            let result = if wanted == seen { Ok(()) } else { Err(format!("{seen}, directly {wanted}")) };
            found.push(Verdict::of(format!("{agent} {case}"), result));
        }
    }
    found
}

/// What the suite says of a case: the conversation, its end, and the code of its end.
fn short(report: &Value) -> String {
    let text = |name: &str| report[name].as_str().unwrap_or("missing").to_owned();
    format!("{} {} {}", text("behavior"), text("behaviorClose"), report["remoteCloseCode"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_from_the_echo_itself_fails() {
        let one = json!({ "behavior": "OK", "behaviorClose": "OK", "remoteCloseCode": 1000 });
        let other = json!({ "behavior": "FAILED", "behaviorClose": "OK", "remoteCloseCode": null });
        let index = json!({
            "direct": { "1.10.1": one, "1.2.1": other },
            "clear": { "1.10.1": one, "1.2.1": other },
            "sealed": { "1.10.1": other },
        });
        let found = compare(&index);
        let short: Vec<_> = found.iter().map(|verdict| (verdict.case.as_str(), verdict.verdict.as_str())).collect();
        assert_eq!(
            short,
            [
                ("clear 1.2.1", "passed"),
                ("clear 1.10.1", "passed"),
                ("sealed 1.2.1", "failed"),
                ("sealed 1.10.1", "failed")
            ]
        );
        assert_eq!(found[3].why, "FAILED OK null, directly OK OK 1000");
    }
}
