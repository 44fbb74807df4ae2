//! curl in every version that it speaks, before an origin of many tricks.

use super::stage::{Bench, Site};
use super::verdicts::Verdict;
use crate::failure::Failure;
use crate::measure::child::write_file;
use std::net::SocketAddr;
use std::time::Duration;

/// How curl is told to speak a version, and how it calls it.
struct Version {
    name: &'static str,
    option: &'static str,
    tls: bool,
    called: &'static str,
}

const VERSIONS: &[Version] = &[
    Version { name: "h1", option: "--http1.1", tls: false, called: "1.1" },
    Version { name: "h1s", option: "--http1.1", tls: true, called: "1.1" },
    Version { name: "h2c", option: "--http2-prior-knowledge", tls: false, called: "2" },
    Version { name: "h2", option: "--http2", tls: true, called: "2" },
    Version { name: "h3", option: "--http3-only", tls: true, called: "3" },
];

/// One call: name, options, target, status and size of the answer where it is known.
type Case = (&'static str, &'static [&'static str], &'static str, &'static str);

/// `BIG` stands for a file of 3,000,000 bytes.
const CASES: &[Case] = &[
    ("get", &[], "/get", "200"),
    ("head", &["-I"], "/get", "200"),
    ("options", &["-X", "OPTIONS"], "/anything", "200"),
    ("delete", &["-X", "DELETE"], "/delete", "200"),
    ("post", &["-d", "a=1"], "/post", "200"),
    ("upload", &["-T", "BIG"], "/put", "200"),
    ("upload in pieces", &["-H", "Transfer-Encoding: chunked", "-T", "BIG"], "/put", "200"),
    ("upload that waits for 100", &["-H", "Expect: 100-continue", "-T", "BIG"], "/put", "200"),
    ("form", &["-F", "file=@BIG"], "/post", "200"),
    ("download", &[], "/bytes/3000000?seed=1", "200 3000000"),
    ("download in pieces", &[], "/stream-bytes/100000?seed=1&chunk_size=1000", "200 100000"),
    ("slow download", &[], "/drip?numbytes=10&duration=1s", "200 10"),
    ("range", &["-r", "100-199"], "/range/1024", "206 100"),
    ("redirects", &["-L"], "/redirect/3", "200"),
    ("gzip", &["--compressed"], "/gzip", "200"),
    ("deflate", &["--compressed"], "/deflate", "200"),
    ("cookies", &["-L", "-c", "/dev/null"], "/cookies/set?a=1", "200"),
    ("basic", &["-u", "a:b"], "/basic-auth/a/b", "200"),
    ("digest", &["--digest", "-u", "a:b"], "/digest-auth/auth/a/b", "200"),
    ("events", &[], "/sse?count=3&duration=1s", "200"),
    ("trailers", &["-H", "TE: trailers"], "/trailers?x=1", "200"),
    ("no content", &[], "/status/204", "204 0"),
    ("not modified", &[], "/status/304", "304 0"),
    ("an error of the origin", &[], "/status/500", "500"),
    ("many at once", &["-Z"], "/get?n=[1-40]", "200"),
    ("many after each other", &[], "/get?n=[1-40]", "200"),
];

const TIMEOUT: Duration = Duration::from_secs(60);
const BIG_BYTES: usize = 3_000_000;

/// Every call in every version.
pub(crate) fn run(bench: &Bench<'_>) -> Result<Vec<Verdict>, Failure> {
    let (endpoint, _endpoint) = bench.httpbin()?;
    let site = bench.site(endpoint, &[])?;
    write_file(&bench.out.join("big"), &"0123456789".repeat(BIG_BYTES / 10))?;
    let mut found = Vec::new();
    for version in VERSIONS {
        for case in CASES {
            let name = format!("{} {}", version.name, case.0);
            found.push(Verdict::of(&name, call(bench, &site, version, case)?));
        }
    }
    Ok(found)
}

fn call(bench: &Bench<'_>, site: &Site, version: &Version, case: &Case) -> Result<Result<(), String>, Failure> {
    let (name, options, target, wanted) = *case;
    let big = bench.out.join("big").display().to_string();
    let launch = bench.paths.unpacked("curl-root", "usr/bin/curl")?;
    let launch = launch.env("OPENSSL_CONF", bench.paths.lab.join("configs/openssl.cnf"));
    let launch = launch.args([
        "-q",
        "-s",
        "-S",
        "-o",
        "/dev/null",
        "-w",
        "%{http_version} %{response_code} %{size_download}\\n",
    ]);
    let launch = launch.arg("--cacert").arg(bench.certificate()?).arg(version.option);
    let launch = launch.args(options.iter().map(|option| option.replace("BIG", &big)));
    let ended = bench.finish(&format!("{} {name}", version.name), &launch.arg(url(site, version, target)), TIMEOUT)?;
    let wanted = format!("{} {wanted}", version.called);
    let is_right = |line: &str| line == wanted || line.starts_with(&format!("{wanted} "));
    let right = ended.success && !ended.said.is_empty() && ended.said.lines().all(is_right);
    Ok(if right { Ok(()) } else { Err(format!("{wanted} was due: {}", ended.last_words())) })
}

fn url(site: &Site, version: &Version, target: &str) -> String {
    let (scheme, address): (_, SocketAddr) = if version.tls { ("https", site.sealed) } else { ("http", site.clear) };
    format!("{scheme}://{address}{target}")
}
