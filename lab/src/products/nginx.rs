//! nginx, from the newest Debian packages.

use super::{Features, Product, Setup, Version, one_route_only, word_after};
use crate::failure::Failure;
use crate::measure::child::{Launch, output_of};
use crate::policy::Policy;
use std::path::Path;

/// How nginx is run.
pub(crate) const PRODUCT: Product = Product {
    name: "nginx",
    is_peer: true,
    home: "debian-root",
    refuses,
    templates: &["nginx.conf"],
    launch,
    version,
    remark,
};

/// The one of Debian stable.
pub(crate) const DEBIAN: Product = Product { name: "nginx-debian", home: "stable-root", ..PRODUCT };

fn refuses(features: &Features, workers: usize) -> Option<&'static str> {
    match features {
        Features { compress: Some(compression), .. } if compression.encoding == "zstd" => {
            Some("Debian has no module with zstd for it")
        }
        Features { policy: Policy::JwtEs256 | Policy::JwtRs256, .. } => Some("nginx Plus only"),
        _ => one_route_only(features, workers),
    }
}

fn remark(features: &Features) -> Option<&'static str> {
    let is_another = features.compress.is_some_and(|compression| compression.zlib_level != compression.level);
    is_another.then_some("at the next level, for that size")
}

fn program(setup: &Setup<'_>) -> Result<Launch, Failure> {
    setup.paths.unpacked(setup.product.home, "usr/sbin/nginx")
}

fn launch(setup: &Setup<'_>, file: &Path) -> Result<Launch, Failure> {
    Ok(program(setup)?.arg("-p").arg(setup.dir).arg("-c").arg(file).args(["-e", "stderr"]))
}

fn version(setup: &Setup<'_>) -> Result<Version, Failure> {
    let text = output_of(&program(setup)?.arg("-V"))?;
    let tls = word_after(&text, "OpenSSL ").map(|version| format!("OpenSSL {version}"));
    Ok(Version {
        version: word_after(&text, "nginx/").unwrap_or("unknown").to_owned(),
        tls: tls.unwrap_or_else(|| "unknown".to_owned()),
    })
}
