//! A real Consul: what its catalog, its store and its access control lists do to endpoints and routes.

use super::stage::Bench;
use super::verdicts::Verdict;
use crate::failure::Failure;
use crate::measure::child::Launch;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(600);

/// Every case of `conformance/consul.py`.
pub(crate) fn run(bench: &Bench<'_>) -> Result<Vec<Verdict>, Failure> {
    let launch = Launch::new("python3")
        .arg(bench.paths.lab.join("conformance/consul.py"))
        .arg(bench.paths.peer_file("consul/bin/consul")?)
        .arg(bench.equipoise)
        .arg(bench.out)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let ended = bench.finish("consul", &launch, TIMEOUT)?;
    let found: Vec<Verdict> = ended.said.lines().filter_map(Verdict::of_line).collect();
    if ended.success { Ok(found) } else { Err(Failure::new(format!("it did not end well: {}", ended.last_words()))) }
}
