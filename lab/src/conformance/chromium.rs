//! Chromium opens a page through the product in every version that it speaks, and asks for more from there.
//!
//! The page tells how each of its checks went by a request, which the product's access log shows.

use super::stage::{Bench, Site};
use super::verdicts::Verdict;
use crate::failure::Failure;
use crate::measure::child::{self, Launch, Running};
use crate::sys;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Name, option, what the browser calls it, and what the access log does.
const VERSIONS: &[(&str, &[&str], &str, &str)] = &[
    ("h1", &["--disable-quic", "--disable-http2"], "http/1.1", "HTTP/1.1"),
    ("h2", &["--disable-quic"], "h2", "HTTP/2"),
    ("h3", &[], "h3", "HTTP/3"),
];

/// Without `${`, which is the environment's in a configuration.
const PAGE: &str = include_str!("../../conformance/page.html");
const TIMEOUT: Duration = Duration::from_secs(40);
/// The checks of the page and what they should tell; nothing: what the browser calls the version.
const CHECKS: &[(&str, Option<&str>)] = &[
    ("page", None),
    ("requests", None),
    ("upload", Some("300000")),
    ("download", Some("2000000")),
    ("cancel", Some("200")),
    ("websocket", Some("hello")),
];
const TOLD: &str = "/anything/told/";

/// A browser for each version.
pub(crate) fn run(bench: &Bench<'_>) -> Result<Vec<Verdict>, Failure> {
    let program = std::env::var_os("CHROMIUM").unwrap_or_else(|| "/usr/bin/chromium".into());
    if !Path::new(&program).exists() {
        return Err(Failure::new("there is no Chromium; install Debian's, or name one in CHROMIUM"));
    }
    let (endpoint, _endpoint) = bench.httpbin()?;
    let mut found = Vec::new();
    for (name, options, called, logged) in VERSIONS {
        let page = serde_json::to_string(PAGE).map_err(|error| Failure::new(error.to_string()))?;
        let site = bench.site_with(endpoint, &[&format!(
            "{{ match: {{ path: {{ exact: /page }} }}, respond: {{ headers: {{ content-type: text/html }}, body: {page} }} }}"
        )])?;
        let records = visit(bench, &site, &Launch::new(&program).args(options.iter().copied()))?;
        let told = |check: &str| {
            let start = format!("{TOLD}{check}/");
            let path =
                records.iter().filter_map(|record| record["path"].as_str()).find(|path| path.starts_with(&start));
            path.map_or("nothing", |path| &path[start.len()..]).to_owned()
        };
        for (check, wanted) in CHECKS {
            let (said, wanted) = (told(check), wanted.map_or_else(|| called.replace('/', "%2F"), str::to_owned));
            let result = if said == wanted { Ok(()) } else { Err(format!("{said} instead of {wanted}")) };
            found.push(Verdict::of(format!("{name} {check}"), result));
        }
        // Connections that the browser gave up before a request are none of its business.
        // It takes WebSockets elsewhere when the page came by HTTP/3.
        let is_page = |record: &&Value| record["kind"] == "exchange" && (*name != "h3" || record["status"] != 101);
        let exchanges = records.iter().filter(is_page);
        let spoken = exchanges.map(|record| record["version"].to_string());
        let other: Vec<String> = spoken.filter(|version| version.trim_matches('"') != *logged).collect();
        let result = if other.is_empty() { Ok(()) } else { Err(format!("also {}", other.join(", "))) };
        found.push(Verdict::of(format!("{name} spoken in every exchange"), result));
    }
    Ok(found)
}

/// Opens the page, and waits until all its checks are told; the records of what was asked.
fn visit(bench: &Bench<'_>, site: &Site, chromium: &Launch) -> Result<Vec<Value>, Failure> {
    let key = format!(
        "openssl x509 -in '{}' -pubkey -noout | openssl pkey -pubin -outform der | openssl dgst -sha256 -binary | \
         openssl base64",
        bench.certificate()?.display()
    );
    let key = child::output_of(&Launch::new("/bin/sh").args(["-c", &key]))?;
    let profile = bench.out.join("profile");
    let _ = fs::remove_dir_all(&profile);
    let launch = chromium.clone().args([
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--remote-debugging-port=0",
        &format!("--user-data-dir={}", profile.display()),
        &format!("--ignore-certificate-errors-spki-list={}", key.trim()),
        &format!("--origin-to-force-quic-on={}", site.sealed),
        &format!("https://{}/page", site.sealed),
    ]);
    let log = bench.out.join("chromium.log");
    let mut browser = Running::start("chromium", &launch, &sys::cores_allowed()?, &log)?;
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let records = bench.records();
        let told = |record: &&Value| record["path"].as_str().is_some_and(|path| path.starts_with(TOLD));
        if records.iter().filter(told).count() >= CHECKS.len() || Instant::now() > deadline {
            return Ok(records);
        }
        browser.check_alive()?;
        child::pause(Duration::from_millis(100))?;
    }
}
