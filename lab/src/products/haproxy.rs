//! HAProxy, from the newest Debian packages.

use super::{Product, Setup, Version, no_datagrams, word_after};
use crate::failure::Failure;
use crate::measure::child::{Launch, output_of};
use std::path::Path;

/// How HAProxy is run.
pub(crate) const PRODUCT: Product = Product {
    name: "haproxy",
    is_peer: true,
    home: "haproxy-root",
    refuses: no_datagrams,
    templates: &["haproxy.cfg"],
    launch,
    version,
};

/// The one of Debian stable.
pub(crate) const DEBIAN: Product = Product { name: "haproxy-debian", home: "stable-root", ..PRODUCT };

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
