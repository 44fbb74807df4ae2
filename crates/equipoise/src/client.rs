//! Asks the administrator's listener of a running program.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use control::HeadLimits;
use control::admin_tls::{self, UntrustedCertificate};
use control::http_client::{ClientRequest, ClientResponse};
use model::snapshot::{Certificate, Pem, UpstreamTls};
use model::{FieldName, ResponseHead, Version};

/// For each step of the conversation.
const PATIENCE: Duration = Duration::from_secs(30);
/// For the answer: a change may wait for others, and for names to be found.
const PATIENCE_FOR_ANSWER: Duration = Duration::from_secs(300);
/// Largest answer that is read.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// The head of our own listener is short.
const LIMITS: HeadLimits = HeadLimits { head_bytes_max: 16 << 10, fields_max: model::limits::FIELDS_MAX };
/// The admin address is in this variable of the environment, unless one is named.
pub(crate) const ADMIN: &str = "EQUIPOISE_ADMIN";
/// The token is in this variable of the environment, unless a file is named.
pub(crate) const TOKEN: &str = "EQUIPOISE_TOKEN";

/// Where a running program can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AdminAddress {
    /// By an address of the network: the first of these that answers.
    Ip(Vec<SocketAddr>),
    /// The same, by TLS.
    Secure {
        /// Host and port as they were written: the certificate has to be for the host.
        authority: String,
        /// Where that is: the first of these that answers.
        addresses: Vec<SocketAddr>,
    },
    /// By a Unix socket.
    Unix(PathBuf),
}

impl AdminAddress {
    /// Reads `127.0.0.1:9900`, `localhost:9900`, `http://127.0.0.1:9900/`, `https://localhost:9900` or `unix:/path`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(path.into()));
        }
        let (rest, is_secure) = match text.strip_prefix("https://") {
            Some(rest) => (rest, true),
            None => (text.strip_prefix("http://").unwrap_or(text), false),
        };
        let bare = rest.trim_end_matches('/');
        let addresses = look_up(bare)?;
        Ok(if is_secure { Self::Secure { authority: bare.to_owned(), addresses } } else { Self::Ip(addresses) })
    }

    /// Returns what the configuration of the program has to have, for this to be its address.
    fn as_written(&self) -> String {
        match self {
            Self::Secure { addresses, .. } => format!("admin: {{ bind: \"{}\", tls: … }}", first(addresses)),
            other => format!("admin: {{ bind: \"{other}\" }}"),
        }
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(addresses) => f.write_str(&first(addresses)),
            Self::Secure { authority, .. } => write!(f, "https://{authority}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Returns all addresses of a host with a port: a name may have those of both families, and the program listens at one of them.
fn look_up(text: &str) -> Result<Vec<SocketAddr>, String> {
    let host = text.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map(|(host, _)| host);
    let Some(host) = host.filter(|host| !host.is_empty()) else {
        let forms = "host:port, such as 127.0.0.1:9900, https://host:port, or unix:/path";
        return Err(format!("an admin address is {forms}"));
    };
    match text.to_socket_addrs().map(Iterator::collect::<Vec<_>>) {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(format!("`{host}` has no address")),
        Err(error) => Err(format!("`{host}` cannot be found: {error}")),
    }
}

/// Returns the first one as a text.
fn first(addresses: &[SocketAddr]) -> String {
    addresses.first().map(ToString::to_string).unwrap_or_default()
}

/// Files that TLS with the admin address needs.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Tls {
    /// For https://: CA certificates (PEM) that issued the program's certificate; the system's by default
    #[arg(long, global = true, value_name = "FILE", env = "EQUIPOISE_CA_FILE", hide_env_values = true)]
    pub(crate) ca_file: Option<PathBuf>,
    /// For https://: client certificate with its intermediates (PEM)
    #[arg(long, global = true, value_name = "FILE", env = "EQUIPOISE_CERT_FILE", hide_env_values = true)]
    pub(crate) cert_file: Option<PathBuf>,
    /// The key of that certificate, in PEM
    #[arg(long, global = true, value_name = "FILE", env = "EQUIPOISE_KEY_FILE", hide_env_values = true)]
    pub(crate) key_file: Option<PathBuf>,
}

impl Tls {
    /// Returns what was written on the command line for an address with TLS. What the environment names may be meant for another address.
    fn flag(&self) -> Option<&'static str> {
        let all = [
            ("--ca-file", "EQUIPOISE_CA_FILE", &self.ca_file),
            ("--cert-file", "EQUIPOISE_CERT_FILE", &self.cert_file),
            ("--key-file", "EQUIPOISE_KEY_FILE", &self.key_file),
        ];
        let is_of_environment = |variable: &str, file: &Path| std::env::var_os(variable).is_some_and(|of| of == *file);
        let written = |(_, variable, file): &(_, &str, &Option<PathBuf>)| {
            file.as_ref().is_some_and(|file| !is_of_environment(variable, file))
        };
        all.into_iter().find(written).map(|(flag, ..)| flag)
    }

    /// Returns the options with the contents of their files.
    fn read(&self) -> io::Result<UpstreamTls> {
        let authorities = self.ca_file.as_deref().map(pem).transpose()?;
        let certificate = match (&self.cert_file, &self.key_file) {
            (Some(chain), Some(key)) => Some(Certificate { chain: pem(chain)?, key: pem(key)? }),
            (None, None) => None,
            _ => return Err(ours("a certificate needs its key: give both --cert-file and --key-file".to_owned())),
        };
        Ok(UpstreamTls { server_name: None, verify: true, authorities, certificate })
    }
}

/// Returns an error for which no one had to be asked.
fn ours(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

fn pem(path: &Path) -> io::Result<Pem> {
    let failed = |error: io::Error| ours(format!("cannot read {}: {error}", path.display()));
    Ok(Pem { path: path.to_owned(), bytes: std::fs::read(path).map_err(failed)?.into() })
}

/// A request, all but where it goes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) method: &'static str,
    /// Path and query.
    pub(crate) path: String,
    pub(crate) fields: Vec<(&'static str, String)>,
    pub(crate) body: String,
}

/// What was answered.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    /// The tag of what is in the body, if it has one.
    pub(crate) etag: Option<String>,
    pub(crate) body: String,
}

/// Why there is no answer: a sentence, with what could be done about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// It was not asked, or no one who could do it was.
    Not(String),
    /// It was asked, and may have been done.
    Unknown(String),
}

impl std::fmt::Display for Unanswered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Not(text) | Self::Unknown(text)) = self;
        f.write_str(text)
    }
}

/// Who asks, and where.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) admin: AdminAddress,
    pub(crate) token: Option<String>,
    pub(crate) tls: Tls,
}

impl Client {
    /// Returns a client with the token of the environment, if there is one.
    pub(crate) fn new(admin: AdminAddress, tls: Tls) -> Self {
        let token = std::env::var(TOKEN).ok().filter(|token| !token.is_empty());
        Self { admin, token, tls }
    }

    /// Asks.
    ///
    /// # Errors
    /// There is no answer, or none of an admin address.
    pub(crate) fn ask(&self, asked: &Asked) -> Result<Answered, Unanswered> {
        let admin = &self.admin;
        self.refuse_to_ask_in_clear()?;
        let request = self.written(asked).map_err(Unanswered::Not)?;
        let mut stream = self.connect().map_err(|error| Unanswered::Not(self.unasked(&error)))?;
        let heard = converse(&mut *stream, &request);
        // Where it only looked, nothing can have been done.
        let lost = |why: &str| match asked.method {
            "GET" => Unanswered::Not(format!("{admin} sent no complete response: {why}")),
            _ => Unanswered::Unknown(format!(
                "{admin} sent no complete response: {why}\nThe change may have been applied all the same: `equipoise ctl generations` shows it"
            )),
        };
        let heard = heard.map_err(|error| match admin_tls::is_refusal(&error) {
            true => Unanswered::Not(self.refused(&error)),
            false => lost(&error.to_string()),
        })?;
        match heard {
            Heard::Nothing => Err(lost("the connection was closed")),
            Heard::CutShort => Err(lost("it is truncated")),
            Heard::Foreign => Err(Unanswered::Not(self.foreign())),
            Heard::Whole(answered) => Ok(answered),
        }
    }

    /// Rejects TLS files for an address without `https://`: a forgotten scheme must not send a token in clear text.
    fn refuse_to_ask_in_clear(&self) -> Result<(), Unanswered> {
        let Some(flag) = self.tls.flag() else { return Ok(()) };
        let mend = match &self.admin {
            AdminAddress::Secure { .. } => return Ok(()),
            AdminAddress::Ip(addresses) => format!("write --admin https://{}, or leave {flag} out", first(addresses)),
            AdminAddress::Unix(_) => format!("leave {flag} out"),
        };
        let admin = &self.admin;
        Err(Unanswered::Not(format!("{flag} is for https://, but {admin} is not encrypted\n     help: {mend}")))
    }

    /// Returns the error for a response that is not from the admin API.
    pub(crate) fn foreign(&self) -> String {
        let mut text = format!("{} is not the admin address of Equipoise", self.admin);
        if let AdminAddress::Ip(addresses) = &self.admin {
            text.push_str(&format!("\nIf its `admin` has `tls`, it is https://{}", first(addresses)));
        }
        text
    }

    /// Returns the error for an unreachable program.
    fn unasked(&self, error: &io::Error) -> String {
        let why = format!("cannot reach {}: {error}", self.admin);
        match (admin_tls::untrusted_certificate(error), &self.tls.ca_file) {
            (Some(UntrustedCertificate::Issuer), None) => {
                format!("{why}\n     help: pass the CA that issued its certificate: --ca-file FILE")
            }
            (Some(UntrustedCertificate::Issuer), Some(file)) => {
                format!("{why}\n     help: {} has not issued it; pass the CA that has: --ca-file FILE", file.display())
            }
            (Some(UntrustedCertificate::Certificate), _) => why,
            // Of a file, say.
            (None, _) if error.kind() == io::ErrorKind::InvalidInput => why,
            (None, _) => format!("{why}\nIs the program running, with `{}`?", self.admin.as_written()),
        }
    }

    /// Returns the error for a client certificate that is missing or not accepted.
    fn refused(&self, error: &io::Error) -> String {
        let mend = match &self.tls.cert_file {
            Some(file) => format!("it does not accept {}; the log of the program says why", file.display()),
            None => "present a certificate: --cert-file FILE --key-file FILE".to_owned(),
        };
        format!("{} rejects this client: {error}\n     help: {mend}", self.admin)
    }

    fn connect(&self) -> io::Result<Box<dyn Conversation>> {
        match &self.admin {
            AdminAddress::Ip(addresses) => Ok(Box::new(connected(addresses)?)),
            AdminAddress::Secure { authority, addresses } => {
                let settings = self.tls.read()?;
                Ok(Box::new(admin_tls::dial(&settings, authority, connected(addresses)?)?))
            }
            AdminAddress::Unix(path) => {
                let stream = match path.to_str().and_then(|path| path.strip_prefix('@')) {
                    Some(name) => {
                        use std::os::linux::net::SocketAddrExt;
                        UnixStream::connect_addr(&std::os::unix::net::SocketAddr::from_abstract_name(name)?)?
                    }
                    None => UnixStream::connect(path)?,
                };
                stream.set_read_timeout(Some(PATIENCE_FOR_ANSWER))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Ok(Box::new(stream))
            }
        }
    }

    fn written(&self, asked: &Asked) -> Result<Vec<u8>, String> {
        let host = match &self.admin {
            AdminAddress::Ip(addresses) => first(addresses),
            AdminAddress::Secure { authority, .. } => authority.clone(),
            AdminAddress::Unix(_) => "localhost".to_owned(),
        };
        let token = self.token.as_ref().map(|token| format!("Bearer {token}"));
        let mut fields = vec![("x-equipoise", "1")];
        fields.extend(token.as_deref().map(|token| ("authorization", token)));
        fields.extend(asked.fields.iter().map(|(name, value)| (*name, value.as_str())));
        let Asked { method, path, body, .. } = asked;
        let head = ClientRequest { method, path, host: &host, fields: &fields, body_bytes: Some(body.len()) }.head()?;
        Ok([head.as_slice(), body.as_bytes()].concat())
    }
}

fn connected(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut why = io::ErrorKind::AddrNotAvailable.into();
    for address in addresses {
        match TcpStream::connect_timeout(address, PATIENCE) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE_FOR_ANSWER))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                return Ok(stream);
            }
            Err(error) => why = error,
        }
    }
    Err(why)
}

/// A connection, of whatever kind.
trait Conversation: Read + Write {}

impl<T: Read + Write> Conversation for T {}

/// What came of a conversation.
enum Heard {
    Nothing,
    /// No response of HTTP/1.1, or one that is no text.
    Foreign,
    CutShort,
    Whole(Answered),
}

fn converse(stream: &mut dyn Conversation, request: &[u8]) -> io::Result<Heard> {
    // What is refused early is answered before all of it was taken.
    let sent = stream.write_all(request);
    let (mut response, mut bytes, mut body) = (ClientResponse::new(LIMITS), Vec::new(), Vec::new());
    let (mut piece, mut is_silent, mut has_head) = (vec![0; 64 * 1024], true, false);
    while !response.is_over() && body.len() < ANSWER_BYTES_MAX {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
            // That it was refused says more than that the rest was not taken.
            Err(error) if is_silent && admin_tls::is_refusal(&error) => return Err(error),
            Err(error) if is_silent => return Err(sent.err().unwrap_or(error)),
            Err(_) => break,
        }
        is_silent = false;
        let Ok(found) = response.read_head(&mut bytes) else { return Ok(Heard::Foreign) };
        has_head = found;
        if has_head {
            let Ok(more) = response.read_body(&mut bytes) else { return Ok(Heard::CutShort) };
            body.extend(more);
        }
    }
    Ok(match has_head {
        false if is_silent => Heard::Nothing,
        false => Heard::Foreign,
        true if response.close().is_err() => Heard::CutShort,
        true => answered(response.head(), body).map_or(Heard::Foreign, Heard::Whole),
    })
}

/// Returns an answer as our own listener gives it; `None` if it is none.
fn answered(head: &ResponseHead, body: Vec<u8>) -> Option<Answered> {
    let etag = FieldName::new("etag").ok().and_then(|name| head.fields.get(&name));
    let etag = etag.and_then(|tag| std::str::from_utf8(tag).ok()).map(str::to_owned);
    let body = String::from_utf8(body).ok()?;
    (head.version == Version::Http11).then_some(Answered { status: head.status, etag, body })
}

/// Percent-encodes all but what is plain in a path or query (RFC 3986 section 2.3).
pub(crate) fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admin_addresses_are_of_the_network_or_unix_sockets() {
        let ip = AdminAddress::Ip(vec!["127.0.0.1:9900".parse().unwrap()]);
        for text in ["127.0.0.1:9900", "http://127.0.0.1:9900/"] {
            assert_eq!(AdminAddress::parse(text), Ok(ip.clone()));
        }
        let secure = AdminAddress::parse("https://127.0.0.1:9900/").unwrap();
        let addresses = vec!["127.0.0.1:9900".parse().unwrap()];
        assert_eq!(secure, AdminAddress::Secure { authority: "127.0.0.1:9900".into(), addresses });
        assert_eq!(secure.to_string(), "https://127.0.0.1:9900");
        assert_eq!(secure.as_written(), "admin: { bind: \"127.0.0.1:9900\", tls: … }");
        assert_eq!(AdminAddress::parse("unix:/run/a.sock"), Ok(AdminAddress::Unix("/run/a.sock".into())));
        for text in ["nowhere", "https://nowhere/", ":9900", "host:port", "127.0.0.1:70000"] {
            assert!(AdminAddress::parse(text).unwrap_err().starts_with("an admin address is host:port"), "{text}");
        }
        let told = AdminAddress::parse("https://lb.invalid:9900").unwrap_err();
        assert!(told.starts_with("`lb.invalid` cannot be found: "), "{told}");
    }

    #[test]
    fn of_several_addresses_the_first_that_answers_is_asked() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap();
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(connected(&[nobody, here]).unwrap().peer_addr().unwrap(), here);
        assert_eq!(connected(&[nobody]).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        assert!(connected(&[]).is_err());
    }

    #[test]
    fn nothing_goes_out_in_clear_where_files_for_tls_are_named() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let file = Some(PathBuf::from("not-there.pem"));
        for (tls, flag) in [
            (Tls { ca_file: file.clone(), ..Tls::default() }, "--ca-file"),
            (Tls { cert_file: file.clone(), key_file: file.clone(), ..Tls::default() }, "--cert-file"),
            (Tls { key_file: file, ..Tls::default() }, "--key-file"),
        ] {
            let mend = format!("write --admin https://{address}, or leave {flag} out");
            for (admin, mend) in [
                (AdminAddress::Ip(vec![address]), mend),
                (AdminAddress::Unix("a.sock".into()), format!("leave {flag} out")),
            ] {
                let told = format!("{flag} is for https://, but {admin} is not encrypted\n     help: {mend}");
                let client = Client { admin, token: Some("secret".into()), tls: tls.clone() };
                let asked = Asked { method: "GET", path: "/api/status".into(), ..Asked::default() };
                assert_eq!(client.ask(&asked).unwrap_err(), Unanswered::Not(told));
            }
        }
        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock, "nobody has come");
    }

    #[test]
    fn an_answer_that_is_not_whole_is_none() {
        let told = |method: &'static str, answer: &'static [u8]| {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let thread = std::thread::spawn(move || {
                let (mut peer, _) = listener.accept().unwrap();
                let mut piece = [0; 4096];
                let _ = peer.read(&mut piece).unwrap();
                peer.write_all(answer).unwrap();
            });
            let client = Client { admin: AdminAddress::Ip(vec![address]), token: None, tls: Tls::default() };
            let told = client.ask(&Asked { method, path: "/".into(), ..Asked::default() });
            thread.join().unwrap();
            told
        };
        let whole = told("PUT", b"HTTP/1.1 200 OK\r\nETag: \"a-1\"\r\nContent-Length: 2\r\n\r\n{}").unwrap();
        assert_eq!((whole.status, whole.etag.as_deref(), whole.body.as_str()), (200, Some("\"a-1\""), "{}"));
        let cut = b"HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n{}";
        assert!(matches!(told("PUT", cut), Err(Unanswered::Unknown(text)) if text.contains("truncated")));
        assert!(matches!(told("PUT", b""), Err(Unanswered::Unknown(text)) if text.contains("ctl generations")));
        assert!(matches!(told("GET", b""), Err(Unanswered::Not(_))));
        assert!(matches!(told("PUT", b"SSH-2.0\r\n"), Err(Unanswered::Not(text)) if text.contains("Equipoise")));
    }

    #[test]
    fn a_certificate_needs_its_key_and_files_are_named_that_cannot_be_read() {
        let told = |tls: Tls| tls.read().unwrap_err().to_string();
        let nowhere = || Some(PathBuf::from("/nowhere/at.pem"));
        let both = "a certificate needs its key: give both --cert-file and --key-file";
        assert_eq!(told(Tls { cert_file: nowhere(), ..Tls::default() }), both);
        assert_eq!(told(Tls { key_file: nowhere(), ..Tls::default() }), both);
        for tls in [
            Tls { ca_file: nowhere(), ..Tls::default() },
            Tls { cert_file: nowhere(), key_file: nowhere(), ..Tls::default() },
        ] {
            assert!(told(tls).starts_with("cannot read /nowhere/at.pem: "));
        }
        assert!(Tls::default().read().unwrap().verify, "there is no way around that");
    }

    #[test]
    fn a_request_is_written_with_its_token_and_never_more_than_one_line_each() {
        let admin = AdminAddress::parse("unix:/x").unwrap();
        let client = Client { admin, token: Some("t0ken".into()), tls: Tls::default() };
        let asked = Asked {
            method: "PUT",
            path: format!("/api/{}", encoded("a b/\r\n:é")),
            body: "{}".into(),
            ..Asked::default()
        };
        let text = String::from_utf8(client.written(&asked).unwrap()).unwrap();
        assert!(text.starts_with("PUT /api/a%20b%2F%0D%0A%3A%C3%A9 HTTP/1.1\r\nhost: localhost\r\n"), "{text}");
        assert!(text.ends_with("authorization: Bearer t0ken\r\n\r\n{}") && text.contains("content-length: 2\r\n"));
    }
}
