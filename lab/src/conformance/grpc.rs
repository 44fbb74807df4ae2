//! gRPC's own interoperability cases, with a client before the product and an endpoint behind it.

use super::stage::Bench;
use super::verdicts::Verdict;
use crate::failure::Failure;
use crate::measure::child::Launch;
use std::time::Duration;

/// All that need no account of a cloud, and that the endpoint in Go can answer without anything between: it tells no name of its
/// own (`pick_first_unary`), and its client hears no reports of load (`orca_per_rpc`, `orca_oob`).
const CASES: &[&str] = &[
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "timeout_on_sleeping_server",
    "cancel_after_begin",
    "cancel_after_first_response",
    "status_code_and_message",
    "special_status_message",
    "custom_metadata",
    "unimplemented_method",
    "unimplemented_service",
    "rpc_soak",
    "channel_soak",
];

const TIMEOUT: Duration = Duration::from_secs(60);

/// With TLS on both sides.
pub(crate) fn sealed(bench: &Bench<'_>) -> Result<Vec<Verdict>, Failure> {
    run(bench, true)
}

/// In clear on both sides.
pub(crate) fn clear(bench: &Bench<'_>) -> Result<Vec<Verdict>, Failure> {
    run(bench, false)
}

fn run(bench: &Bench<'_>, tls: bool) -> Result<Vec<Verdict>, Failure> {
    let certificate = bench.certificate()?;
    let endpoint = Bench::free_address()?;
    let port = format!("-port={}", endpoint.port());
    let mut launch = Launch::new(bench.paths.peer_file("go-grpc/bin/server")?).arg(port);
    let mut cluster = vec!["http_versions: [h2]"];
    if tls {
        launch = launch.arg("-use_tls").arg("-tls_cert_file").arg(&certificate);
        launch = launch.arg("-tls_key_file").arg(bench.out.join("site.key"));
        cluster.push("tls: { authorities: site.pem }");
    }
    let _endpoint = bench.start("endpoint", &launch, endpoint)?;
    let site = bench.site(endpoint, &cluster)?;
    let address = if tls { site.sealed } else { site.clear };
    let mut found = Vec::new();
    for case in CASES {
        let mut launch = Launch::new(bench.paths.peer_file("go-grpc/bin/client")?)
            .args(["-server_host=127.0.0.1", &format!("-server_port={}", address.port())])
            .arg(format!("-test_case={case}"));
        if tls {
            launch = launch.args(["-use_tls", "-use_test_ca", "-ca_file"]).arg(&certificate);
        }
        let ended = bench.finish(case, &launch, TIMEOUT)?;
        found.push(Verdict::of(*case, if ended.success { Ok(()) } else { Err(ended.last_words()) }));
    }
    Ok(found)
}
