//! The server name and the application protocols in a TLS ClientHello (RFC 8446 section 4.1.2, RFC 6066 section 3, RFC 7301 section
//! 3.1), read without answering it, so that the connection can be routed and passed on untouched.

use model::limits::CLIENT_HELLO_BYTES_MAX;

/// What the first bytes of a connection are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hello {
    /// Possibly the beginning of a ClientHello: more bytes are needed. Never so from
    /// [`CLIENT_HELLO_BYTES_MAX`] bytes on.
    NeedMore,
    /// No TLS, or a ClientHello that is malformed or too long.
    NotTls,
    /// A whole ClientHello.
    Found {
        /// The `host_name`, lower case, without a final dot. `None`: the client sent none.
        server_name: Option<String>,
        /// The application protocols that the client offers (ALPN), its favourite first.
        alpn: Vec<Box<[u8]>>,
    },
}

/// Reads the first bytes of a connection. The ClientHello may be fragmented over several records (RFC 8446 section 5.1).
/// More bytes after it (early data) are ignored. What it says of some bytes it says of any longer input, unless it was
/// [`Hello::NeedMore`].
pub fn client_hello(bytes: &[u8]) -> Hello {
    let window = &bytes[..bytes.len().min(CLIENT_HELLO_BYTES_MAX)];
    match read(&mut Handshake::new(window)) {
        Ok(found) => found,
        Err(Stop::NeedMore) if bytes.len() < CLIENT_HELLO_BYTES_MAX => Hello::NeedMore,
        Err(_) => Hello::NotTls,
    }
}

/// Why reading ended early.
enum Stop {
    NeedMore,
    NotTls,
}

/// The handshake bytes inside the records. `left` counts down the ClientHello, so that nothing is read past its end.
struct Handshake<'a> {
    rest: &'a [u8],
    in_record: usize,
    left: usize,
}

const RECORD_HANDSHAKE: u8 = 22;
const RECORD_BYTES_MAX: usize = 1 << 14;
const CLIENT_HELLO: u8 = 1;
const EXTENSION_SERVER_NAME: u64 = 0;
const EXTENSION_ALPN: u64 = 16;
const NAME_TYPE_HOST: u64 = 0;
const NAME_BYTES_MAX: usize = 255;

impl<'a> Handshake<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        // Type and length of the message come first; they reset `left`.
        Self { rest: bytes, in_record: 0, left: 4 }
    }

    /// RFC 8446 section 5.1. Each byte is judged as soon as it is there.
    fn open_record(&mut self) -> Result<(), Stop> {
        let header = &self.rest[..self.rest.len().min(5)];
        let wrong_type = header.first().is_some_and(|&kind| kind != RECORD_HANDSHAKE);
        if wrong_type || header.get(1).is_some_and(|&major| major != 3) {
            return Err(Stop::NotTls);
        }
        let &[_, _, _, high, low] = header else { return Err(Stop::NeedMore) };
        self.in_record = usize::from(u16::from_be_bytes([high, low]));
        self.rest = &self.rest[5..];
        // Handshake records are never empty.
        if self.in_record == 0 || self.in_record > RECORD_BYTES_MAX { Err(Stop::NotTls) } else { Ok(()) }
    }

    /// Gives the next `len` bytes to `take`, in as many pieces as records cut them.
    fn pieces(&mut self, mut len: usize, mut take: impl FnMut(&[u8])) -> Result<(), Stop> {
        self.left = self.left.checked_sub(len).ok_or(Stop::NotTls)?;
        while len > 0 {
            if self.in_record == 0 {
                self.open_record()?;
            }
            let here = len.min(self.in_record).min(self.rest.len());
            if here == 0 {
                return Err(Stop::NeedMore);
            }
            let (piece, rest) = self.rest.split_at(here);
            take(piece);
            self.rest = rest;
            self.in_record -= here;
            len -= here;
        }
        Ok(())
    }

    fn skip(&mut self, len: usize) -> Result<(), Stop> {
        self.pieces(len, |_| {})
    }

    /// A big-endian number of so many bytes.
    fn number(&mut self, bytes: usize) -> Result<u64, Stop> {
        let mut number = 0;
        self.pieces(bytes, |piece| {
            for &byte in piece {
                number = number << 8 | u64::from(byte);
            }
        })?;
        Ok(number)
    }

    /// Skips a vector whose length stands before it in so many bytes.
    fn skip_vector(&mut self, length_bytes: usize) -> Result<usize, Stop> {
        let len = self.number(length_bytes)? as usize;
        self.skip(len)?;
        Ok(len)
    }
}

fn read(hello: &mut Handshake<'_>) -> Result<Hello, Stop> {
    if hello.number(1)? != u64::from(CLIENT_HELLO) {
        return Err(Stop::NotTls);
    }
    let len = hello.number(3)? as usize;
    if len > CLIENT_HELLO_BYTES_MAX {
        return Err(Stop::NotTls);
    }
    hello.left = len;
    // legacy_version, random, legacy_session_id, cipher_suites, legacy_compression_methods.
    if hello.number(1)? != 3 {
        return Err(Stop::NotTls);
    }
    hello.skip(1 + 32)?;
    let (session_id, suites, compressions) = (hello.skip_vector(1)?, hello.skip_vector(2)?, hello.skip_vector(1)?);
    if session_id > 32 || suites < 2 || suites % 2 != 0 || compressions == 0 {
        return Err(Stop::NotTls);
    }
    if hello.left == 0 {
        // TLS 1.2 allows a ClientHello without extensions.
        return Ok(Hello::Found { server_name: None, alpn: Vec::new() });
    }
    if hello.number(2)? as usize != hello.left {
        return Err(Stop::NotTls);
    }
    let (mut server_name, mut alpn) = (None, None);
    while hello.left > 0 {
        let kind = hello.number(2)?;
        let len = hello.number(2)? as usize;
        // RFC 8446 section 4.2: no extension twice. Two names could mean one to us and the other to the endpoint.
        match kind {
            EXTENSION_SERVER_NAME if server_name.is_none() => server_name = Some(read_server_name(hello, len)?),
            EXTENSION_ALPN if alpn.is_none() => alpn = Some(read_protocols(hello, len)?),
            EXTENSION_SERVER_NAME | EXTENSION_ALPN => return Err(Stop::NotTls),
            _ => hello.skip(len)?,
        }
    }
    Ok(Hello::Found { server_name, alpn: alpn.unwrap_or_default() })
}

/// RFC 6066 section 3. In practice the list always holds one name, of type `host_name`; anything else is refused.
fn read_server_name(hello: &mut Handshake<'_>, extension_len: usize) -> Result<String, Stop> {
    let list_len = hello.number(2)? as usize;
    let kind = hello.number(1)?;
    let len = hello.number(2)? as usize;
    if extension_len != list_len + 2 || list_len != len + 3 || kind != NAME_TYPE_HOST || len > NAME_BYTES_MAX {
        return Err(Stop::NotTls);
    }
    let mut name = String::with_capacity(len);
    hello.pieces(len, |piece| name.extend(piece.iter().map(|&byte| char::from(byte.to_ascii_lowercase()))))?;
    if name.ends_with('.') {
        name.pop();
    }
    if is_server_name(&name) { Ok(name) } else { Err(Stop::NotTls) }
}

/// RFC 7301 section 3.1: a list of names of one byte or more. An extension without a list says as much as none.
fn read_protocols(hello: &mut Handshake<'_>, extension_len: usize) -> Result<Vec<Box<[u8]>>, Stop> {
    let mut protocols = Vec::new();
    if extension_len == 0 {
        return Ok(protocols);
    }
    let mut left = hello.number(2)? as usize;
    if extension_len != left + 2 {
        return Err(Stop::NotTls);
    }
    while left > 0 {
        let len = hello.number(1)? as usize;
        left = left.checked_sub(len + 1).filter(|_| len > 0).ok_or(Stop::NotTls)?;
        let mut name = Vec::with_capacity(len);
        hello.pieces(len, |piece| name.extend_from_slice(piece))?;
        protocols.push(name.into());
    }
    Ok(protocols)
}

/// Whether this may be taken for the name of a host: at most 253 bytes, of labels of letters, digits, `-` and `_`.
pub fn is_server_name(name: &str) -> bool {
    let plain = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    name.len() <= 253 && name.split('.').all(plain)
}

#[cfg(test)]
mod tests;
