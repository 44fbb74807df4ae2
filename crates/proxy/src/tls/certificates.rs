//! Certificates and keys out of PEM, and the certificate that a client gets by the name it asks for.

use std::collections::HashMap;
use std::sync::Arc;

use model::Issue;
use model::facts::ClientNames;
use model::snapshot::{Certificate, Pem};
use rustls::RootCertStore;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use super::provider::Provider;

/// Certificates in a file, at least one.
pub(super) fn chain(pem: &Pem) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem.bytes).collect();
    match chain {
        Ok(chain) if chain.is_empty() => Err(format!("{} contains no certificate", pem.path.display())),
        Ok(chain) => Ok(chain),
        Err(error) => Err(format!("{} cannot be read as PEM: {error}", pem.path.display())),
    }
}

/// Returns the first private key in a file.
pub(super) fn key(pem: &Pem) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(&pem.bytes)
        .map_err(|error| format!("{} contains no usable private key: {error}", pem.path.display()))
}

/// Trust anchors from a file.
pub(super) fn authorities(pem: &Pem) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in chain(pem)? {
        roots
            .add(certificate)
            .map_err(|error| format!("{} has a certificate that cannot be a CA: {error}", pem.path.display()))?;
    }
    Ok(roots)
}

/// Chain and key, checked to belong together.
pub(super) fn certified(certificate: &Certificate, provider: &Provider) -> Result<CertifiedKey, String> {
    let chain = chain(&certificate.chain)?;
    let key = key(&certificate.key)?;
    CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => format!(
            "the key {} does not belong to the certificate {}",
            certificate.key.path.display(),
            certificate.chain.path.display()
        ),
        other => format!("{}: {other}", certificate.chain.path.display()),
    })
}

/// Returns the names that a certificate is for, lower case.
fn names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, parsed)) = x509_parser::certificate::X509Certificate::from_der(certificate) else {
        return Vec::new();
    };
    let Ok(Some(alternatives)) = parsed.subject_alternative_name() else {
        return Vec::new();
    };
    let dns = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    };
    alternatives.value.general_names.iter().filter_map(dns).collect()
}

/// Whose a certificate is, as far as it can be told.
#[derive(Default)]
pub(super) struct Subject {
    /// All of it, as [`wire::subject`] writes it, for the identity field and the log.
    pub whole: Option<String>,
    /// The most specific common name in it.
    pub common_name: Option<String>,
    /// Issuer and alternative names.
    pub names: Option<Box<ClientNames>>,
}

/// Takes a certificate apart, once.
pub(super) fn subject(certificate: Option<&CertificateDer<'_>>) -> Subject {
    let Some(certificate) = certificate else { return Subject::default() };
    Subject {
        whole: wire::subject::subject(certificate),
        common_name: wire::subject::common_name(certificate),
        names: Some(Box::new(client_names(certificate))),
    }
}

/// Returns the names of a client that its certificate has beside the subject.
fn client_names(certificate: &CertificateDer<'_>) -> ClientNames {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, certificate);
    let fingerprint = Some(hexadecimal(digest.as_ref()));
    let mut names = ClientNames { issuer: wire::subject::issuer(certificate), fingerprint, ..ClientNames::default() };
    let Ok((_, parsed)) = x509_parser::certificate::X509Certificate::from_der(certificate) else { return names };
    names.serial = Some(hexadecimal(parsed.raw_serial()).trim_start_matches('0').to_owned());
    // An extension that cannot be read, or is there twice, names no one.
    let Ok(Some(alternatives)) = parsed.subject_alternative_name() else { return names };
    for name in &alternatives.value.general_names {
        match name {
            GeneralName::DNSName(name) => names.dns.push((*name).to_owned()),
            GeneralName::URI(uri) => names.uris.push((*uri).to_owned()),
            GeneralName::RFC822Name(address) => names.emails.push((*address).to_owned()),
            _ => {}
        }
    }
    names
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing into a string cannot fail.
        let _ = std::fmt::Write::write_fmt(&mut text, format_args!("{byte:02x}"));
        text
    })
}

/// Chooses by server name: exact, then wildcard of one label (RFC 6125 section 6.4.3), then the first certificate. Among
/// several for one name, the first whose key type the client can verify.
#[derive(Debug)]
pub(super) struct ByName {
    exact: HashMap<String, Vec<Arc<CertifiedKey>>>,
    wildcard: HashMap<String, Vec<Arc<CertifiedKey>>>,
    all: Vec<Arc<CertifiedKey>>,
}

impl ByName {
    pub(super) fn new(certificates: &[Certificate], provider: &Provider) -> Result<Self, Vec<Issue>> {
        let mut table = Self { exact: HashMap::new(), wildcard: HashMap::new(), all: Vec::new() };
        let mut issues = Vec::new();
        for (place, certificate) in certificates.iter().enumerate() {
            match certified(certificate, provider) {
                Ok(certified) => table.add(Arc::new(certified)),
                Err(message) => issues.push(Issue::at(format!("certificates/{place}"), message)),
            }
        }
        if issues.is_empty() { Ok(table) } else { Err(issues) }
    }

    fn add(&mut self, certified: Arc<CertifiedKey>) {
        for name in certified.cert.first().map(names).unwrap_or_default() {
            let list = match name.strip_prefix("*.") {
                Some(suffix) => self.wildcard.entry(suffix.to_owned()).or_default(),
                None => self.exact.entry(name).or_default(),
            };
            list.push(certified.clone());
        }
        self.all.push(certified);
    }

    fn for_name(&self, name: &str) -> Option<&Vec<Arc<CertifiedKey>>> {
        self.exact.get(name).or_else(|| self.wildcard.get(name.split_once('.')?.1))
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // The library hands the name over in lower case and without a final dot.
        let candidates = hello.server_name().and_then(|name| self.for_name(name)).unwrap_or(&self.all);
        let fits = |certified: &&Arc<CertifiedKey>| certified.key.choose_scheme(hello.signature_schemes()).is_some();
        candidates.iter().find(fits).or_else(|| candidates.first()).cloned()
    }
}
