//! Suites that others wrote, run against the real executable and compared with what the tree says is expected.
//!
//! A suite is a row of [`SUITES`]. What it needs is installed as peers are, once, into the lab's folder. It returns a verdict for
//! each case; `tests/conformance/SUITE.expected` says what each should be. Start reading at [`run`], then [`stage`].

mod autobahn;
mod chromium;
mod consul;
mod curl;
mod docker;
mod grpc;
mod h2load;
mod h2spec;
mod http3;
mod stage;
mod verdicts;

use crate::failure::Failure;
use crate::measure::child::write_file;
use crate::paths::Paths;
use crate::peers::{self, Wanted};
use crate::products::build;
use clap::Args;
use stage::Bench;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;
use verdicts::{Expected, Verdict, tally};

/// What to run
#[derive(Args)]
pub(crate) struct ConformanceArgs {
    /// Only these; `--list` shows them
    suites: Vec<String>,
    /// Show the suites and end
    #[arg(long)]
    list: bool,
    /// Write what is found down as what is expected
    #[arg(long)]
    accept: bool,
    /// Another executable than the one of this tree
    #[arg(long)]
    equipoise: Option<PathBuf>,
}

/// One suite.
struct Suite {
    name: &'static str,
    /// What it checks, for a person and for the head of its file.
    what: &'static str,
    /// Names of the parts of `peers` that it needs.
    needs: &'static [&'static str],
    run: fn(&Bench<'_>) -> Result<Vec<Verdict>, Failure>,
}

const SUITES: &[Suite] = &[
    Suite {
        name: "h2spec",
        what: "h2spec 2.2.1: RFC 9113 towards clients, in TLS",
        needs: &["h2spec", "go-httpbin"],
        run: h2spec::sealed,
    },
    Suite {
        name: "h2spec-clear",
        what: "h2spec 2.2.1: RFC 9113 towards clients, in clear",
        needs: &["h2spec", "go-httpbin"],
        run: h2spec::clear,
    },
    Suite {
        name: "grpc",
        what: "gRPC interop 1.85.0, client and endpoint in Go, in TLS on both sides",
        needs: &["grpc"],
        run: grpc::sealed,
    },
    Suite {
        name: "grpc-clear",
        what: "gRPC interop 1.85.0, client and endpoint in Go, in clear on both sides",
        needs: &["grpc"],
        run: grpc::clear,
    },
    Suite {
        name: "autobahn",
        what: "Autobahn 0.8.2: WebSockets of go-httpbin through the proxy, as they are without it",
        needs: &["autobahn", "go-httpbin"],
        run: autobahn::run,
    },
    Suite {
        name: "curl",
        what: "curl, with every version towards clients, before go-httpbin",
        needs: &["curl", "go-httpbin"],
        run: curl::run,
    },
    Suite {
        name: "h2load",
        what: "h2load, with HTTP/1.1 and HTTP/2 towards clients: each request is answered",
        needs: &["curl"],
        run: h2load::run,
    },
    Suite {
        name: "aioquic",
        what: "aioquic: HTTP/3 in good order, and the rules of RFC 9114 and RFC 9204 broken one by one, before go-httpbin",
        needs: &["aioquic", "go-httpbin"],
        run: http3::run,
    },
    Suite {
        name: "chromium",
        what: "Chromium opens a page in every version that it speaks, before go-httpbin",
        needs: &["go-httpbin"],
        run: chromium::run,
    },
    Suite {
        name: "consul",
        what: "Consul 1.22.3: endpoints and routes follow its catalog and its store, and what a token may not see takes nothing",
        needs: &["consul"],
        run: consul::run,
    },
    Suite {
        name: "docker",
        what: "Docker Engine of Debian stable: endpoints and routes follow containers, their labels, networks and health",
        needs: &["docker"],
        run: docker::run,
    },
];

/// Runs what was asked for; an error if anything is not as expected.
pub(crate) fn run(args: &ConformanceArgs, paths: &Paths) -> Result<(), Failure> {
    if args.list {
        for suite in SUITES {
            println!("{:<13} {}", suite.name, suite.what);
        }
        return Ok(());
    }
    let chosen = choose(&args.suites)?;
    let needs: Vec<&str> = chosen.iter().flat_map(|suite| suite.needs.iter().copied()).collect();
    let problems = peers::install(paths, false, &Wanted::Suites(&needs))?;
    if let Some(problem) = problems.first() {
        return Err(Failure::new(problem.clone()));
    }
    let equipoise = build::executable_to_test(args.equipoise.as_deref(), paths)?;
    let mut differing = Vec::new();
    for suite in chosen {
        let out = paths.out.join("conformance").join(suite.name);
        let _ = fs::remove_dir_all(&out);
        fs::create_dir_all(&out).map_err(|error| Failure::io(&out, &error))?;
        match check(suite, args, &Bench { paths, equipoise: &equipoise, out: &out }) {
            Ok(true) => {}
            Ok(false) => differing.push(suite.name),
            Err(failure) if failure.is_interruption() => return Err(failure),
            Err(failure) => {
                println!("{}: could not be run: {failure}", suite.name);
                differing.push(suite.name);
            }
        }
    }
    if differing.is_empty() { Ok(()) } else { Err(Failure::new(format!("not as expected: {}", differing.join(", ")))) }
}

fn choose(names: &[String]) -> Result<Vec<&'static Suite>, Failure> {
    if names.is_empty() {
        return Ok(SUITES.iter().collect());
    }
    let find = |name: &String| {
        let known: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
        let found = SUITES.iter().find(|suite| suite.name == name);
        found.ok_or_else(|| Failure::new(format!("no suite is called {name:?}; there are {}", known.join(", "))))
    };
    names.iter().map(find).collect()
}

/// Runs one suite and says how it went; whether that is as expected.
fn check(suite: &Suite, args: &ConformanceArgs, bench: &Bench<'_>) -> Result<bool, Failure> {
    eprintln!("running {}: {}", suite.name, suite.what);
    let start = Instant::now();
    let found = (suite.run)(bench)?;
    let seconds = start.elapsed().as_secs();
    let root = bench.paths.lab.parent().unwrap_or(&bench.paths.lab);
    let file = root.join("tests/conformance").join(format!("{}.expected", suite.name));
    let text = fs::read_to_string(&file).unwrap_or_default();
    let expected = Expected::parse(&text).map_err(|reason| Failure::new(format!("{}: {reason}", file.display())))?;
    let differences = expected.differences(&found);
    if args.accept {
        write_file(&file, &expected.accept(&format!("{}.", suite.what), &found))?;
        println!("{}: {}, written down as expected ({seconds} s)", suite.name, tally(&found));
        return Ok(true);
    }
    if differences.is_empty() {
        println!("{}: {}, as expected ({seconds} s)", suite.name, tally(&found));
        for (case, reason) in expected.exceptions() {
            println!("  {case}: {}", reason.unwrap_or("no reason is given"));
        }
        return Ok(true);
    }
    if text.is_empty() {
        println!("{}: {} ({seconds} s); nothing is expected yet: --accept", suite.name, tally(&found));
        for verdict in found.iter().filter(|verdict| verdict.verdict != "passed") {
            println!("  {}: {}", verdict.case, verdict.why);
        }
        return Ok(false);
    }
    println!("{}: {}; {} not as expected ({seconds} s)", suite.name, tally(&found), differences.len());
    for difference in &differences {
        println!("  {difference}");
    }
    println!("  what it left behind is in {}", bench.out.display());
    println!("  if this is meant: cargo xtask conformance {} --accept", suite.name);
    Ok(false)
}
