//! Traefik, from the Python package that carries its executable.

use super::{Features, Product, Setup, Version, one_route_only, word_after};
use crate::failure::Failure;
use crate::measure::child::{Launch, output_of};
use crate::policy::Policy;
use std::path::Path;

/// How Traefik is run.
pub(crate) const PRODUCT: Product = Product {
    name: "traefik",
    is_peer: true,
    home: "python-traefik",
    refuses,
    templates: &["traefik.yaml", "traefik-dynamic.yaml"],
    launch,
    version,
    remark,
};

fn refuses(features: &Features, workers: usize) -> Option<&'static str> {
    match features.policy {
        Policy::JwtEs256 | Policy::JwtRs256 => Some("Traefik Hub only"),
        Policy::Map => Some("it has no maps"),
        Policy::Cache => Some("Traefik Hub only"),
        Policy::Files => Some("it sends no files"),
        _ => one_route_only(features, workers),
    }
}

fn remark(features: &Features) -> Option<&'static str> {
    features.compress.is_some().then_some("its level is fixed")
}

fn program(setup: &Setup<'_>) -> Result<Launch, Failure> {
    Ok(Launch::new(setup.paths.peer_file("python-traefik/bin/traefik")?))
}

fn launch(setup: &Setup<'_>, file: &Path) -> Result<Launch, Failure> {
    let launch = program(setup)?.env("GOMAXPROCS", setup.workers.to_string());
    Ok(launch.arg(format!("--configFile={}", file.display())))
}

fn version(setup: &Setup<'_>) -> Result<Version, Failure> {
    let text = output_of(&program(setup)?.arg("version"))?;
    Ok(Version {
        version: word_after(&text, "Version:").unwrap_or("unknown").to_owned(),
        tls: format!(
            "Go {} crypto/tls",
            word_after(&text, "Go version:").unwrap_or("unknown").trim_start_matches("go")
        ),
    })
}
