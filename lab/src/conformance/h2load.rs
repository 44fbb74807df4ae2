//! h2load in every version that it speaks: each of many requests has to be answered.

use super::stage::{Bench, Site};
use super::verdicts::Verdict;
use crate::failure::Failure;
use crate::measure::child::{Launch, write_file};
use std::net::SocketAddr;
use std::time::Duration;

/// Name, option, and whether it is spoken in TLS. Debian's h2load knows the option for HTTP/3, but was built without it.
const VERSIONS: &[(&str, Option<&str>, bool)] =
    &[("h1", Some("--h1"), false), ("h1s", Some("--h1"), true), ("h2c", None, false), ("h2", None, true)];

/// What is asked: name, requests, connections, requests at once on each, target, whether with a body.
type Case = (&'static str, usize, usize, usize, &'static str, bool);

const CASES: &[Case] = &[
    ("small answers", 4000, 20, 10, "/12", false),
    ("large answers", 60, 6, 5, "/1m", false),
    ("uploads", 300, 6, 5, "/12", true),
    ("many streams", 3000, 3, 100, "/10k", false),
];

const TIMEOUT: Duration = Duration::from_secs(120);
const UPLOAD_BYTES: usize = 200_000;

/// Every case in every version.
pub(crate) fn run(bench: &Bench<'_>) -> Result<Vec<Verdict>, Failure> {
    let (endpoint, _origin) = bench.origin()?;
    let site = bench.site(endpoint, &[])?;
    write_file(&bench.out.join("upload"), &"u".repeat(UPLOAD_BYTES))?;
    let mut found = Vec::new();
    for version in VERSIONS {
        for case in CASES {
            found.push(Verdict::of(format!("{} {}", version.0, case.0), load(bench, &site, *version, case)?));
        }
    }
    Ok(found)
}

fn load(
    bench: &Bench<'_>,
    site: &Site,
    (version, option, tls): (&str, Option<&str>, bool),
    (name, requests, connections, streams, target, has_body): &Case,
) -> Result<Result<(), String>, Failure> {
    let (scheme, address): (_, SocketAddr) = if tls { ("https", site.sealed) } else { ("http", site.clear) };
    let launch = bench.paths.unpacked("curl-root", "usr/bin/h2load")?;
    let launch = launch.env("OPENSSL_CONF", bench.paths.lab.join("configs/openssl.cnf"));
    let launch = launch.arg("-n").arg(requests.to_string()).arg("-c").arg(connections.to_string());
    let mut launch: Launch = launch.arg("-m").arg(streams.to_string()).args(option);
    if *has_body {
        launch = launch.arg("-d").arg(bench.out.join("upload"));
    }
    let ended =
        bench.finish(&format!("{version} {name}"), &launch.arg(format!("{scheme}://{address}{target}")), TIMEOUT)?;
    let wanted =
        [format!("{requests} succeeded, 0 failed, 0 errored, 0 timeout"), format!("status codes: {requests} 2xx,")];
    let right = ended.success && wanted.iter().all(|text| ended.said.contains(text));
    let told = |line: &&str| line.starts_with("requests:") || line.starts_with("status codes:");
    let said: Vec<&str> = ended.said.lines().filter(told).collect();
    Ok(if right { Ok(()) } else { Err(format!("{} {}", said.join(" | "), ended.last_words())) })
}
