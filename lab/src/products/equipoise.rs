//! Equipoise itself, known here only as an executable; and a second one to compare it with.

use super::{Features, Product, Setup, Version, as_asked};
use crate::failure::Failure;
use crate::measure::child::{Launch, output_of};
use std::fmt::Write;
use std::path::Path;

/// How Equipoise is run.
pub(crate) const PRODUCT: Product = Product {
    name: "equipoise",
    is_peer: false,
    home: "",
    refuses,
    templates: TEMPLATES,
    launch,
    version,
    remark: as_asked,
};

/// How the executable given with `--baseline` is run.
pub(crate) const BASELINE: Product = Product {
    name: "equipoise-base",
    is_peer: false,
    home: "",
    refuses,
    templates: TEMPLATES,
    launch: launch_baseline,
    version: version_baseline,
    remark: as_asked,
};

/// Equipoise with the features of a cloud's application load balancer.
pub(crate) const ALB: Product = Product { name: "equipoise-alb", templates: &["equipoise-alb.yaml"], ..PRODUCT };

const TEMPLATES: &[&str] = &["equipoise.yaml"];

fn refuses(_features: &Features, _workers: usize) -> Option<&'static str> {
    None
}

fn launch(setup: &Setup<'_>, file: &Path) -> Result<Launch, Failure> {
    Ok(start(setup, setup.equipoise, file))
}

fn launch_baseline(setup: &Setup<'_>, file: &Path) -> Result<Launch, Failure> {
    Ok(start(setup, baseline(setup)?, file))
}

fn baseline<'a>(setup: &Setup<'a>) -> Result<&'a Path, Failure> {
    setup.baseline.ok_or_else(|| Failure::new("no --baseline PATH was given"))
}

fn start(setup: &Setup<'_>, program: &Path, file: &Path) -> Launch {
    Launch::new(program).args(["run", "-c"]).arg(file).args(["--workers", &setup.workers.to_string()])
}

/// Routes by host and path prefix beside the one that matches everything; the measured request matches the middle one.
pub(crate) fn extra_routes(count: usize) -> String {
    let mut text = String::new();
    for number in 0..count {
        let end = if number + 1 < count { "\n" } else { "" };
        let matching = format!("{{ host: h{number:04}.example.com, path: {{ prefix: /p{number:04} }} }}");
        let _ = write!(text, "  - match: {matching}\n    cluster: site{end}");
    }
    text
}

fn version(setup: &Setup<'_>) -> Result<Version, Failure> {
    ask(setup.equipoise)
}

fn version_baseline(setup: &Setup<'_>) -> Result<Version, Failure> {
    ask(baseline(setup)?)
}

fn ask(program: &Path) -> Result<Version, Failure> {
    let text = output_of(&Launch::new(program).arg("version"))?;
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("unknown").trim();
    let version = first.strip_prefix("equipoise ").unwrap_or(first).to_owned();
    Ok(Version { version, tls: "rustls, aws-lc".to_owned() })
}
