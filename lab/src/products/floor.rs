//! The lab's own bare relay.

use super::{Features, Product, Setup, Version, as_asked};
use crate::failure::Failure;
use crate::measure::child::Launch;
use crate::policy::Policy;
use std::path::Path;

/// How the floor is run.
pub(crate) const PRODUCT: Product =
    Product { name: "floor", is_peer: false, home: "", refuses, templates: &[], launch, version, remark: as_asked };

fn refuses(features: &Features, workers: usize) -> Option<&'static str> {
    let Features { http2, http3, grpc, websocket, udp, .. } = *features;
    if http2 || http3 || grpc || websocket || udp {
        return Some("the floor speaks HTTP/1.1 only");
    }
    match () {
        () if workers > 1 => Some("the floor has one thread"),
        () if features.tls => Some("the floor has no TLS"),
        () if features.access_log || features.header_steps || features.routes > 0 => Some("the floor has no features"),
        () if features.compress.is_some() || features.policy != Policy::None => Some("the floor has no features"),
        () => None,
    }
}

fn launch(setup: &Setup<'_>, _file: &Path) -> Result<Launch, Failure> {
    let me = std::env::current_exe()?;
    let mut launch = Launch::new(me).args(["floor", "--listen"]).arg(format!("127.0.0.1:{}", setup.ports.web));
    for port in setup.ports.origin {
        launch = launch.arg("--to").arg(format!("127.0.0.1:{port}"));
    }
    Ok(launch)
}

fn version(_setup: &Setup<'_>) -> Result<Version, Failure> {
    Ok(Version { version: env!("CARGO_PKG_VERSION").to_owned(), tls: "none".to_owned() })
}
