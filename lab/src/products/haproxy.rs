//! HAProxy, from the newest Debian packages.

use super::{Features, Product, Setup, Version, no_datagrams, word_after};
use crate::failure::Failure;
use crate::measure::child::{Launch, output_of};
use crate::policy::Policy;
use std::path::Path;

/// How HAProxy is run.
pub(crate) const PRODUCT: Product = Product {
    name: "haproxy",
    is_peer: true,
    home: "haproxy-root",
    refuses,
    templates: &["haproxy.cfg"],
    launch,
    version,
    remark,
};

/// The one of Debian stable.
pub(crate) const DEBIAN: Product = Product { name: "haproxy-debian", home: "stable-root", ..PRODUCT };

fn refuses(features: &Features, workers: usize) -> Option<&'static str> {
    match features {
        Features { compress: Some(compression), .. } if compression.encoding != "gzip" => {
            Some("it compresses with gzip only")
        }
        Features { policy: Policy::ForwardAuth, .. } => Some("it asks others in Lua or over SPOE only"),
        Features { policy: Policy::Files, .. } => Some("it sends no files"),
        Features { policy: Policy::Mirror, .. } => Some("it mirrors over SPOE only, by a program beside it"),
        _ => no_datagrams(features, workers),
    }
}

fn remark(features: &Features) -> Option<&'static str> {
    features.compress.is_some().then_some("libslz: one level")
}

fn program(setup: &Setup<'_>) -> Result<Launch, Failure> {
    setup.paths.unpacked(setup.product.home, "usr/sbin/haproxy")
}

fn launch(setup: &Setup<'_>, file: &Path) -> Result<Launch, Failure> {
    let mut launch = program(setup)?.arg("-db").arg("-f").arg(file);
    // Its access log goes to the standard output, which stands for /dev/null here.
    launch.discard_output = true;
    Ok(launch)
}

fn version(setup: &Setup<'_>) -> Result<Version, Failure> {
    let text = output_of(&program(setup)?.arg("-vv"))?;
    // "SSL library" since 3.3, "OpenSSL" before.
    let is_running = |line: &&str| line.starts_with("Running on ") && line.contains("SSL");
    let line = text.lines().find(is_running).and_then(|line| line.split_once(" : "));
    Ok(Version {
        version: word_after(&text, "HAProxy version ").unwrap_or("unknown").to_owned(),
        tls: line.map_or("unknown", |(_, library)| library.trim()).to_owned(),
    })
}
