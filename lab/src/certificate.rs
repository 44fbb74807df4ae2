//! The self-signed certificates that all products use, for `localhost` and 127.0.0.1: ECDSA P-256, and RSA where a study
//! asks for it.

use crate::failure::Failure;
use crate::measure::child::write_file;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, SignatureAlgorithm};
use std::fs;
use std::path::Path;

/// Makes `site.pem`, `site.key` and `site-both.pem` in a folder, unless they are there.
pub(crate) fn ensure(folder: &Path) -> Result<(), Failure> {
    make(folder, "site", &PKCS_ECDSA_P256_SHA256)
}

/// Makes the same with RSA (2,048 bits): `rsa.pem`, `rsa.key` and `rsa-both.pem`.
pub(crate) fn ensure_rsa(folder: &Path) -> Result<(), Failure> {
    make(folder, "rsa", &PKCS_RSA_SHA256)
}

fn make(folder: &Path, name: &str, algorithm: &'static SignatureAlgorithm) -> Result<(), Failure> {
    let file = |end: &str| folder.join(format!("{name}{end}"));
    if file("-both.pem").exists() {
        return Ok(());
    }
    fs::create_dir_all(folder).map_err(|error| Failure::io(folder, &error))?;
    let failed = |error: rcgen::Error| Failure::new(format!("making the certificate: {error}"));
    let key = KeyPair::generate_for(algorithm).map_err(failed)?;
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certificate = CertificateParams::new(names).map_err(failed)?.self_signed(&key).map_err(failed)?;
    write_file(&file(".pem"), &certificate.pem())?;
    write_file(&file(".key"), &key.serialize_pem())?;
    write_file(&file("-both.pem"), &(certificate.pem() + &key.serialize_pem()))
}
