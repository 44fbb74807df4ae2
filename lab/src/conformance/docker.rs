//! A real Docker Engine: what containers, their labels, networks and health do to endpoints and routes.

use super::stage::Bench;
use super::verdicts::Verdict;
use crate::failure::Failure;
use crate::measure::child::Launch;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(600);
/// The engine with all its libraries.
const ROOT: &str = "docker-root";
/// Mounts, networks and processes of its own, which only root gets: they end with it, however it ends.
const NAMESPACES: [&str; 8] =
    ["--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--mount-proc", "--kill-child=SIGKILL"];

/// Every case of `conformance/docker.py`.
pub(crate) fn run(bench: &Bench<'_>) -> Result<Vec<Verdict>, Failure> {
    let root = bench.paths.peers.join(ROOT);
    let launch = Launch::new("unshare")
        .args(NAMESPACES)
        // Who is first among processes inherits those that the engine leaves.
        .arg(root.join("usr/bin/tini-static"))
        .args(["--", "python3"])
        .arg(bench.paths.lab.join("conformance/docker.py"))
        .arg(&root)
        .arg(bench.equipoise)
        .arg(bench.out)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let ended = bench.finish("docker", &launch, TIMEOUT)?;
    let found: Vec<Verdict> = ended.said.lines().filter_map(Verdict::of_line).collect();
    if ended.success { Ok(found) } else { Err(Failure::new(format!("it did not end well: {}", ended.last_words()))) }
}
