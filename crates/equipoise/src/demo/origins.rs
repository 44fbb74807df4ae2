//! Three tiny origins for the demo: each says who it is and what it was asked, after a time of its own.
//!
//! They speak as much HTTP/1.1 as our own proxy sends them, and nothing they are sent makes them grow: heads and
//! bodies are bounded.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Bound of a request head.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Bound of a request body; a longer one is answered and the connection closed.
const BODY_BYTES_MAX: u64 = 1 << 20;
/// A connection that says nothing for this long is closed.
const IDLE: Duration = Duration::from_secs(120);

/// Name, and the time it takes to answer.
pub(crate) const ORIGINS: [(&str, Duration); 3] =
    [("swift", Duration::from_millis(1)), ("steady", Duration::from_millis(5)), ("slow", Duration::from_millis(20))];

/// A running origin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) name: &'static str,
    pub(crate) takes: Duration,
    pub(crate) address: SocketAddr,
}

/// Starts the origins on free ports of the loopback address. They live as long as the runtime.
///
/// # Errors
/// No port could be had.
pub(crate) async fn start() -> io::Result<Vec<Origin>> {
    let mut origins = Vec::with_capacity(ORIGINS.len());
    for (name, takes) in ORIGINS {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let origin = Origin { name, takes, address: listener.local_addr()? };
        tokio::spawn(accept(listener, origin));
        origins.push(origin);
    }
    Ok(origins)
}

async fn accept(listener: TcpListener, origin: Origin) {
    loop {
        match listener.accept().await {
            // What goes wrong on a connection of a demo ends that connection.
            Ok((stream, _)) => drop(tokio::spawn(async move { converse(stream, origin).await.ok() })),
            // Out of file descriptors: give others time to close theirs.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn converse(stream: TcpStream, origin: Origin) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        head.clear();
        let arrived = tokio::time::timeout(IDLE, read_head(&mut stream, &mut head)).await;
        if !arrived.map_err(|_| io::ErrorKind::TimedOut)?? {
            return Ok(());
        }
        let Some(asked) = Asked::parse(&head) else { return Err(io::ErrorKind::InvalidData.into()) };
        let keep = match asked.body {
            Body::Bytes(length) if length <= BODY_BYTES_MAX => skip(&mut stream, length).await?,
            Body::Bytes(_) | Body::Unknown => false,
        };
        if asked.path != "/healthz" {
            tokio::time::sleep(origin.takes).await;
        }
        stream.get_mut().write_all(&answer(&asked, origin, keep)).await?;
        if !keep {
            return Ok(());
        }
    }
}

/// Reads up to the empty line. `false`: the connection was closed between requests.
async fn read_head(stream: &mut BufReader<TcpStream>, head: &mut Vec<u8>) -> io::Result<bool> {
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == HEAD_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && head.is_empty() => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Reads a body and forgets it. `true`: the connection can carry another request.
async fn skip(stream: &mut BufReader<TcpStream>, length: u64) -> io::Result<bool> {
    let (mut body, mut nowhere) = (stream.take(length), tokio::io::sink());
    let skipped = tokio::io::copy(&mut body, &mut nowhere);
    let skipped = tokio::time::timeout(IDLE, skipped).await.map_err(|_| io::ErrorKind::TimedOut)??;
    Ok(skipped == length)
}

#[derive(Debug, PartialEq)]
enum Body {
    Bytes(u64),
    Unknown,
}

#[derive(Debug, PartialEq)]
struct Asked {
    method: String,
    path: String,
    headers: BTreeMap<String, String>,
    body: Body,
}

impl Asked {
    fn parse(head: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(head);
        let mut lines = text.split("\r\n");
        let mut request = lines.next()?.split(' ');
        let (method, path) = (request.next()?.to_owned(), request.next()?.to_owned());
        let headers: BTreeMap<String, String> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let body = match (headers.get("transfer-encoding"), headers.get("content-length")) {
            (Some(_), _) => Body::Unknown,
            (None, Some(length)) => length.parse().map_or(Body::Unknown, Body::Bytes),
            (None, None) => Body::Bytes(0),
        };
        Some(Self { method, path, headers, body })
    }
}

fn answer(asked: &Asked, origin: Origin, keep: bool) -> Vec<u8> {
    let said = serde_json::json!({
        "name": origin.name,
        "answers_in_ms": u64::try_from(origin.takes.as_millis()).unwrap_or(u64::MAX),
        "method": asked.method,
        "path": asked.path,
        "headers": asked.headers,
    });
    let body = format!("{said:#}\n");
    let connection = if keep { "keep-alive" } else { "close" };
    let sent = if asked.method == "HEAD" { "" } else { body.as_str() };
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: {connection}\r\n\
         x-origin: {}\r\n\r\n{sent}",
        body.len(),
        origin.name
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ask(stream: &mut TcpStream, request: &str, answers: usize) -> String {
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut got = String::new();
        let mut buffer = [0; 4096];
        while got.matches("\n}\n").count() < answers {
            let read = stream.read(&mut buffer).await.unwrap();
            assert_ne!(read, 0, "closed after {got}");
            got.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
        }
        got
    }

    #[tokio::test]
    async fn an_origin_says_who_it_is_and_what_it_was_asked_on_one_connection() {
        let origins = start().await.unwrap();
        for origin in origins {
            let mut stream = TcpStream::connect(origin.address).await.unwrap();
            let said = ask(&mut stream, "GET /a?b=1 HTTP/1.1\r\nHost: x\r\nX-Y: z\r\n\r\n", 1).await;
            for wanted in [format!("\"name\": \"{}\"", origin.name), "\"/a?b=1\"".into(), "\"x-y\": \"z\"".into()] {
                assert!(said.contains(&wanted), "{wanted} in {said}");
            }
            let post =
                "POST /p HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabcGET /after HTTP/1.1\r\nhost: x\r\n\r\n";
            let said = ask(&mut stream, post, 2).await;
            assert!(said.contains("\"/p\"") && said.contains("\"/after\""), "{said}");
        }
    }

    #[tokio::test]
    async fn an_origin_closes_on_a_head_without_end() {
        let origin = start().await.unwrap()[0];
        let mut stream = TcpStream::connect(origin.address).await.unwrap();
        let written = async {
            loop {
                stream.write_all(&[b'a'; 1024]).await?;
            }
        };
        let ended: io::Result<()> = tokio::time::timeout(Duration::from_secs(20), written).await.unwrap();
        assert!(ended.is_err());
    }

    #[test]
    fn a_body_of_unknown_length_is_told_from_none() {
        let body = |head: &str| Asked::parse(head.as_bytes()).unwrap().body;
        assert_eq!(body("GET / HTTP/1.1\r\n\r\n"), Body::Bytes(0));
        assert_eq!(body("PUT / HTTP/1.1\r\nContent-Length: 5\r\n\r\n"), Body::Bytes(5));
        assert_eq!(body("PUT / HTTP/1.1\r\nContent-Length: -5\r\n\r\n"), Body::Unknown);
        assert_eq!(body("PUT / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"), Body::Unknown);
        assert_eq!(Asked::parse(b"\r\n\r\n"), None);
    }
}
