//! Envoy, from the Python package that carries its executable.

use super::{Features, Product, Setup, Version, as_asked, one_route_only};
use crate::failure::Failure;
use crate::measure::child::{Launch, output_of};
use crate::policy::Policy;
use std::path::Path;

/// How Envoy is run.
pub(crate) const PRODUCT: Product = Product {
    name: "envoy",
    is_peer: true,
    home: "python-envoy",
    refuses,
    templates: &["envoy.yaml"],
    launch,
    version,
    remark: as_asked,
};

fn refuses(features: &Features, workers: usize) -> Option<&'static str> {
    match features.policy {
        Policy::Map => Some("it has no maps from files"),
        Policy::Cache => Some("its cache is work in progress, by its own documentation"),
        Policy::Files => Some("it sends no files"),
        _ => one_route_only(features, workers),
    }
}

fn program(setup: &Setup<'_>) -> Result<Launch, Failure> {
    Ok(Launch::new(setup.paths.peer_file("python-envoy/envoy/_bin/envoy")?))
}

fn launch(setup: &Setup<'_>, file: &Path) -> Result<Launch, Failure> {
    Ok(program(setup)?.arg("-c").arg(file).args(["--concurrency", &setup.workers.to_string()]).args([
        "--disable-hot-restart",
        // Access logs are otherwise written every ten seconds.
        "--file-flush-interval-msec",
        "250",
        "--log-level",
        "error",
    ]))
}

fn version(setup: &Setup<'_>) -> Result<Version, Failure> {
    let text = output_of(&program(setup)?.arg("--version"))?;
    // A hash, the version, the state of its source, the kind of build, the TLS library.
    let parts: Vec<&str> = text.trim().rsplit(' ').next().unwrap_or("").split('/').collect();
    let part = |number: usize| parts.get(number).copied().unwrap_or("unknown").to_owned();
    Ok(Version { version: part(1), tls: part(4) })
}
