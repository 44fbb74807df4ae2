//! The self-signed certificate that all products use: ECDSA P-256, for `localhost` and 127.0.0.1.

use crate::failure::Failure;
use crate::measure::child::write_file;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};
use std::fs;
use std::path::Path;

/// Makes `site.pem`, `site.key` and `site-both.pem` in a folder, unless they are there.
pub(crate) fn ensure(folder: &Path) -> Result<(), Failure> {
    if folder.join("site-both.pem").exists() {
        return Ok(());
    }
    fs::create_dir_all(folder).map_err(|error| Failure::io(folder, &error))?;
    let failed = |error: rcgen::Error| Failure::new(format!("making the certificate: {error}"));
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certificate = CertificateParams::new(names).map_err(failed)?.self_signed(&key).map_err(failed)?;
    write_file(&folder.join("site.pem"), &certificate.pem())?;
    write_file(&folder.join("site.key"), &key.serialize_pem())?;
    write_file(&folder.join("site-both.pem"), &(certificate.pem() + &key.serialize_pem()))
}
