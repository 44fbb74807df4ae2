//! aioquic, a second client of HTTP/3: conversations in good order, and the rules that a client can break.

use super::stage::Bench;
use super::verdicts::Verdict;
use crate::failure::Failure;
use crate::measure::child::Launch;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(300);

/// Every case of `conformance/http3.py`.
pub(crate) fn run(bench: &Bench<'_>) -> Result<Vec<Verdict>, Failure> {
    let (endpoint, _endpoint) = bench.httpbin()?;
    let site = bench.site(endpoint, &[])?;
    let launch = Launch::new("python3")
        .arg(bench.paths.lab.join("conformance/http3.py"))
        .arg(site.sealed.port().to_string())
        .arg(bench.certificate()?)
        .env("PYTHONPATH", bench.paths.peer_file("python-aioquic")?)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let ended = bench.finish("aioquic", &launch, TIMEOUT)?;
    let found: Vec<Verdict> = ended.said.lines().filter_map(Verdict::of_line).collect();
    if ended.success { Ok(found) } else { Err(Failure::new(format!("it did not end well: {}", ended.last_words()))) }
}
