//! Certificates and keys: read, and looked at just enough to tell a wrong file at the line that names it.
//!
//! Whether key and certificate belong together is found out by who uses them.

use std::path::Path;
use std::sync::Arc;

use model::snapshot::{Certificate, Pem};

use super::Resolver;
use crate::file;
use crate::read::{Access, read_bytes};

/// Bytes of one PEM file. A bundle of all public authorities has a quarter of it.
pub(super) const PEM_BYTES_MAX: usize = 1 << 20;
const KEYS: [&str; 3] = ["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"];

/// What a file is needed for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Certificates,
    Key,
}

impl Resolver<'_> {
    pub(super) fn certificate(&mut self, at: &str, written: &file::Certificate) -> Option<Certificate> {
        let chain = self.pem(&format!("{at}/chain"), &written.chain, Need::Certificates);
        let key = self.pem(&format!("{at}/key"), &written.key, Need::Key);
        Some(Certificate { chain: chain?, key: key? })
    }

    pub(super) fn authorities(&mut self, at: &str, path: &str) -> Option<Pem> {
        self.pem(at, path, Need::Certificates)
    }

    fn pem(&mut self, at: &str, written: &str, need: Need) -> Option<Pem> {
        let path = self.beside(written);
        let bytes = match self.file_bytes(&path, PEM_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(message) => {
                self.report_unread(at, &path, &message);
                return None;
            }
        };
        match check(&bytes, need) {
            Ok(()) => Some(Pem { path, bytes }),
            Err((message, suggestion)) => {
                let span = self.tree.locate(at);
                self.sink.push(span, format!("`{}`: {message}", path.display()), suggestion);
                None
            }
        }
    }

    /// Reads a file once, however often it is named.
    pub(super) fn file_bytes(&mut self, path: &Path, bytes_max: usize) -> Result<Arc<[u8]>, String> {
        self.reuse.looks_outside = true;
        if self.access == Access::None {
            return Err("files are not read here".to_owned());
        }
        if let Some(known) = self.pems.get(path) {
            return known.clone();
        }
        let read = read_bytes(path, bytes_max).map(Arc::from);
        self.pems.insert(path.to_owned(), read.clone());
        self.files.push(path.to_owned());
        read
    }
}

fn check(bytes: &[u8], need: Need) -> Result<(), (String, Option<String>)> {
    let text = std::str::from_utf8(bytes).map_err(|_| {
        let mend = "convert it, for instance with `openssl x509 -inform der -in FILE -out FILE.pem`".to_owned();
        ("it is not PEM; it may be DER".to_owned(), Some(mend))
    })?;
    let labels = labels(text).map_err(|message| (message, None))?;
    if labels.is_empty() {
        return Err(("it is not PEM: no `-----BEGIN …-----` in it".to_owned(), None));
    }
    let is_key = |label: &&str| KEYS.contains(label);
    let has_certificate = labels.contains(&"CERTIFICATE");
    match need {
        Need::Certificates if has_certificate => Ok(()),
        Need::Certificates if labels.iter().any(is_key) => Err((
            "it holds a private key, but no certificate".to_owned(),
            Some("are `chain` and `key` mixed up?".to_owned()),
        )),
        Need::Certificates => Err((format!("it holds no certificate, only `{}`", labels[0]), None)),
        Need::Key if labels.iter().any(is_key) => Ok(()),
        Need::Key if labels.contains(&"ENCRYPTED PRIVATE KEY") => Err((
            "its private key needs a passphrase".to_owned(),
            Some("store it without, for instance with `openssl pkey -in FILE -out FILE.plain`".to_owned()),
        )),
        Need::Key if has_certificate => Err((
            "it holds a certificate, but no private key".to_owned(),
            Some("are `chain` and `key` mixed up?".to_owned()),
        )),
        Need::Key => Err((format!("it holds no private key, only `{}`", labels[0]), None)),
    }
}

/// Returns the labels of the blocks (RFC 7468), each with something like base64 in it and closed.
fn labels(text: &str) -> Result<Vec<&str>, String> {
    let mut labels = Vec::new();
    let mut open: Option<(&str, usize)> = None;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(label) = line.strip_prefix("-----BEGIN ").and_then(|rest| rest.strip_suffix("-----")) {
            open = Some((label, 0));
        } else if let Some(label) = line.strip_prefix("-----END ").and_then(|rest| rest.strip_suffix("-----")) {
            match open.take() {
                Some((begun, bytes)) if begun == label && bytes > 0 => labels.push(label),
                Some(_) => return Err(format!("the block `{label}` that ends in line {} is broken", number + 1)),
                None => return Err(format!("`END {label}` in line {} without a beginning", number + 1)),
            }
        } else if let Some((label, bytes)) = &mut open {
            // Old keys carry headers such as `Proc-Type: 4,ENCRYPTED`.
            if line.contains("ENCRYPTED") {
                *label = "ENCRYPTED PRIVATE KEY";
                return Ok(vec!["ENCRYPTED PRIVATE KEY"]);
            }
            let base64 = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=');
            if !line.bytes().all(base64) && !line.contains(": ") {
                return Err(format!("line {} is not base64", number + 1));
            }
            *bytes += line.len();
        }
    }
    match open {
        Some((label, _)) => Err(format!("the block `{label}` is never closed")),
        None => Ok(labels),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CERTIFICATE: &str = "text before\n-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    const KEY: &str = "-----BEGIN PRIVATE KEY-----\r\nAAAA\r\n-----END PRIVATE KEY-----\r\n";

    #[test]
    fn certificates_and_keys_are_told_apart() {
        assert!(check(CERTIFICATE.as_bytes(), Need::Certificates).is_ok());
        assert!(check(KEY.as_bytes(), Need::Key).is_ok());
        assert!(check(format!("{CERTIFICATE}{KEY}").as_bytes(), Need::Key).is_ok());
        assert!(check(KEY.as_bytes(), Need::Certificates).unwrap_err().1.unwrap().contains("mixed up"));
        assert!(check(CERTIFICATE.as_bytes(), Need::Key).unwrap_err().1.unwrap().contains("mixed up"));
    }

    #[test]
    fn what_is_not_pem_is_told() {
        let told = |text: &[u8]| check(text, Need::Key).unwrap_err().0;
        assert_eq!(told(b""), "it is not PEM: no `-----BEGIN …-----` in it");
        assert_eq!(told(b"\x30\x82\xff"), "it is not PEM; it may be DER");
        assert_eq!(told(b"-----BEGIN PRIVATE KEY-----\nAAAA\n"), "the block `PRIVATE KEY` is never closed");
        assert_eq!(told(b"-----BEGIN PRIVATE KEY-----\nA!A\n-----END PRIVATE KEY-----"), "line 2 is not base64");
        let old = b"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END RSA PRIVATE KEY-----";
        assert_eq!(told(old), "its private key needs a passphrase");
    }
}
