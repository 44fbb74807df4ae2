//! `k6`, for WebSockets: with the lab's script (`configs/websocket.js`) each connection sends a message when the one before has
//! come back as it was.

use super::Load;
use serde::Deserialize;

/// What the script prints at its end.
#[derive(Deserialize)]
struct Found {
    messages: u64,
    wrong: u64,
    failed: u64,
}

/// Parses the output of `k6` with the lab's script, in which messages were sent for so many seconds.
pub(crate) fn parse(text: &str, seconds: u64) -> Option<Load> {
    let line = text.lines().find_map(|line| line.strip_prefix("lab "))?;
    let found: Found = serde_json::from_str(line).ok()?;
    let mut load = Load { requests: found.messages, rps: found.messages as f64 / seconds as f64, ..Load::default() };
    load.fail("came back changed", found.wrong);
    load.fail("connection failed", found.failed);
    (load.requests > 0 || load.errors > 0).then_some(load)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_failures_are_parsed() {
        let text = "some log\nlab {\"messages\":50000,\"wrong\":1,\"failed\":2}\n";
        let load = parse(text, 5).unwrap();
        assert_eq!((load.requests, load.errors, load.rps), (50_000, 3, 10_000.0));
        assert_eq!(load.error_kinds["came back changed"], 1);
    }

    #[test]
    fn something_else_is_no_result() {
        assert_eq!(parse("ERRO[0000] no such script", 5), None);
        assert_eq!(parse("lab {\"messages\":0,\"wrong\":0,\"failed\":0}", 5), None);
    }
}
