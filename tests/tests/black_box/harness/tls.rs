//! Certificates of the tests' own, and TLS for both ends.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType,
    date_time_ymd,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme, StreamOwned,
    SupportedProtocolVersion,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};

use super::peer::{Peer, Stream};
use super::poll::PATIENCE;

/// A certificate authority.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate with its key.
pub(crate) struct Identity {
    certificate: CertificateDer<'static>,
    key: KeyPair,
    pem: String,
}

impl Authority {
    /// Makes one.
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"));
        Self { issuer: issuer.expect("an authority") }
    }

    /// Issues a certificate for these names.
    pub(crate) fn issue(&self, names: &[&str]) -> Identity {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name.remove(DnType::CommonName);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params)
    }

    /// Issues a certificate for these names, for a server and a client.
    pub(crate) fn issue_peer(&self, names: &[&str]) -> Identity {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name.remove(DnType::CommonName);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params)
    }

    /// Issues a certificate for a client with this common name.
    pub(crate) fn issue_client(&self, common_name: &str) -> Identity {
        self.sign(&of_client(common_name))
    }

    /// The same, with another common name before it, of what it belongs to.
    pub(crate) fn issue_client_below(&self, group: &str, common_name: &str) -> Identity {
        let mut params = of_client(group);
        // The library takes each kind once, and knows this one by its number alone.
        params.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 3]), common_name);
        self.sign(&params)
    }

    /// The same, with a URI beside it.
    pub(crate) fn issue_client_at(&self, common_name: &str, uri: &str) -> Identity {
        let mut params = of_client(common_name);
        params.subject_alt_names.push(SanType::URI(uri.try_into().expect("a URI is ASCII")));
        self.sign(&params)
    }

    /// The same, whose time has been over for years.
    pub(crate) fn issue_expired_client(&self, common_name: &str) -> Identity {
        let mut params = of_client(common_name);
        params.not_before = date_time_ymd(2019, 1, 1);
        params.not_after = date_time_ymd(2020, 1, 1);
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Identity {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Identity { certificate: certificate.der().clone(), pem: certificate.pem(), key }
    }

    /// Writes the authority's certificate where the product can read it.
    pub(crate) fn write(&self, folder: &Path, name: &str) {
        std::fs::write(folder.join(name), self.issuer.pem()).expect("the folder is ours");
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).expect("an authority");
        Arc::new(roots)
    }
}

fn of_client(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

impl Identity {
    /// Writes `NAME.pem` and `NAME.key`, each at once, as a tool that renews certificates would.
    pub(crate) fn write(&self, folder: &Path, name: &str) {
        for (extension, text) in [("pem", self.pem.clone()), ("key", self.key.serialize_pem())] {
            let (fresh, place) = (folder.join("fresh"), folder.join(format!("{name}.{extension}")));
            std::fs::write(&fresh, text).expect("the folder is ours");
            std::fs::rename(fresh, place).expect("the folder is ours");
        }
    }

    /// The certificate.
    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    fn key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.serialize_der()).into()
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// How a test's client speaks TLS.
pub(crate) struct Client<'a> {
    /// Whom it trusts; nobody: it takes any certificate.
    pub(crate) trust: Option<&'a Authority>,
    /// What it shows.
    pub(crate) identity: Option<&'a Identity>,
    /// Versions it speaks.
    pub(crate) versions: &'a [&'static SupportedProtocolVersion],
    /// What it would speak inside.
    pub(crate) protocols: &'a [&'a str],
}

impl Client<'_> {
    /// Trusts this authority and is otherwise plain.
    pub(crate) fn trusting(authority: &Authority) -> Client<'_> {
        Client { trust: Some(authority), identity: None, versions: rustls::ALL_VERSIONS, protocols: &[] }
    }

    /// Its configuration; connections that share it share tickets.
    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(provider());
        let builder = builder.with_protocol_versions(self.versions).expect("versions");
        let builder = match self.trust {
            Some(authority) => builder.with_root_certificates(authority.roots()),
            None => builder.dangerous().with_custom_certificate_verifier(Arc::new(TakeAny)),
        };
        let mut config = match self.identity {
            Some(identity) => builder.with_client_auth_cert(vec![identity.certificate.clone()], identity.key()),
            None => Ok(builder.with_no_client_auth()),
        }
        .expect("a key that fits");
        config.alpn_protocols = self.protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

/// Connects and completes the handshake.
pub(crate) fn connect(address: SocketAddr, name: &str, config: &Arc<ClientConfig>) -> Peer {
    try_connect(address, name, config).unwrap_or_else(|error| panic!("the handshake for `{name}` failed: {error}"))
}

/// The same, where failing is an answer.
pub(crate) fn try_connect(address: SocketAddr, name: &str, config: &Arc<ClientConfig>) -> std::io::Result<Peer> {
    try_connect_behind(address, name, config, b"")
}

/// Connects, sends these bytes, and completes the handshake.
pub(crate) fn connect_behind(address: SocketAddr, name: &str, config: &Arc<ClientConfig>, first: &[u8]) -> Peer {
    let connected = try_connect_behind(address, name, config, first);
    connected.unwrap_or_else(|error| panic!("the handshake for `{name}` failed: {error}"))
}

fn try_connect_behind(
    address: SocketAddr,
    name: &str,
    config: &Arc<ClientConfig>,
    first: &[u8],
) -> std::io::Result<Peer> {
    let mut sock = TcpStream::connect_timeout(&address, PATIENCE)?;
    sock.write_all(first)?;
    over(sock, name, config)
}

/// Completes the handshake over a connection.
pub(crate) fn over(sock: TcpStream, name: &str, config: &Arc<ClientConfig>) -> std::io::Result<Peer> {
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    sock.set_read_timeout(Some(PATIENCE))?;
    let conn = ClientConnection::new(Arc::clone(config), name).expect("a client");
    let mut tls = StreamOwned::new(conn, sock);
    while tls.conn.is_handshaking() {
        tls.conn.complete_io(&mut tls.sock)?;
    }
    Ok(Peer::new(Stream::Client(Box::new(tls))))
}

/// TLS for an origin that shows `identity` and, when `clients` is given, needs a certificate of that authority.
pub(crate) fn origin(identity: &Identity, clients: Option<&Authority>) -> Arc<ServerConfig> {
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let builder = builder.expect("versions");
    let builder = match clients {
        Some(authority) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(authority.roots(), provider()).build();
            builder.with_client_cert_verifier(verifier.expect("a verifier"))
        }
        None => builder.with_no_client_auth(),
    };
    let config = builder.with_single_cert(vec![identity.certificate.clone()], identity.key());
    Arc::new(config.expect("a key that fits"))
}

/// The certificate that the other side of a client's connection showed.
pub(crate) fn shown(peer: &Peer) -> CertificateDer<'static> {
    let chain = peer.tls().peer_certificates().expect("a handshake was done");
    chain.first().expect("a leaf").clone().into_owned()
}

#[derive(Debug)]
struct TakeAny;

impl ServerCertVerifier for TakeAny {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
