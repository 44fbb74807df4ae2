//! Caddy, from the Python package that carries its executable.

use super::{Features, Product, Setup, Version, no_datagrams};
use crate::failure::Failure;
use crate::measure::child::{Launch, output_of};
use crate::policy::Policy;
use std::path::Path;

/// How Caddy is run.
pub(crate) const PRODUCT: Product = Product {
    name: "caddy",
    is_peer: true,
    home: "python-caddy",
    refuses,
    templates: &["caddy.caddyfile"],
    launch,
    version,
    remark,
};

fn refuses(features: &Features, workers: usize) -> Option<&'static str> {
    match features {
        Features { policy: Policy::RateLimit | Policy::RateLimitKeys, .. } => {
            Some("its rate limit is a module that has to be compiled in")
        }
        Features { policy: Policy::JwtEs256 | Policy::JwtRs256, .. } => {
            Some("its JWT is a module that has to be compiled in")
        }
        Features { policy: Policy::Cache, .. } => Some("its cache is a module that has to be compiled in"),
        Features { policy: Policy::Map, .. } => Some("its maps stand in its configuration, and are searched in turn"),
        Features { policy: Policy::Mirror, .. } => Some("its mirror is a module that has to be compiled in"),
        Features { compress: Some(compression), .. } if compression.encoding == "br" => {
            Some("its brotli is a module that has to be compiled in")
        }
        _ => no_datagrams(features, workers),
    }
}

fn remark(features: &Features) -> Option<&'static str> {
    let is_zstd = features.compress.is_some_and(|compression| compression.encoding == "zstd");
    is_zstd.then_some("its default level")
}

fn program(setup: &Setup<'_>) -> Result<Launch, Failure> {
    Ok(Launch::new(setup.paths.peer_file("python-caddy/bin/caddy")?))
}

fn launch(setup: &Setup<'_>, file: &Path) -> Result<Launch, Failure> {
    // It keeps certificates and a copy of its configuration in the home folder unless told where else.
    let launch = program(setup)?.env("GOMAXPROCS", setup.workers.to_string());
    let launch = launch.env("XDG_DATA_HOME", setup.dir).env("XDG_CONFIG_HOME", setup.dir);
    Ok(launch.args(["run", "--adapter", "caddyfile", "--config"]).arg(file))
}

fn version(setup: &Setup<'_>) -> Result<Version, Failure> {
    let text = output_of(&program(setup)?.arg("version"))?;
    let version = text.split_ascii_whitespace().next().unwrap_or("unknown").trim_start_matches('v').to_owned();
    let built = output_of(&program(setup)?.arg("build-info"))?;
    let go = built.lines().find_map(|line| line.strip_prefix("go\t")).unwrap_or("unknown");
    Ok(Version { version, tls: format!("Go {} crypto/tls", go.trim().trim_start_matches("go")) })
}
