//! No product at all: the generator asks the origin itself.

use super::{Features, Product, Setup, Version, as_asked};
use crate::failure::Failure;
use crate::measure::child::Launch;
use std::path::Path;

/// The direct run. Studies that have it send the load to the origin instead of starting it.
pub(crate) const PRODUCT: Product =
    Product { name: "direct", is_peer: false, home: "", refuses, templates: &[], launch, version, remark: as_asked };

fn refuses(_features: &Features, _workers: usize) -> Option<&'static str> {
    None
}

fn launch(_setup: &Setup<'_>, _file: &Path) -> Result<Launch, Failure> {
    Err(Failure::new("the direct run starts no product"))
}

fn version(_setup: &Setup<'_>) -> Result<Version, Failure> {
    Ok(Version { version: "no proxy".to_owned(), tls: "that of the origin".to_owned() })
}
