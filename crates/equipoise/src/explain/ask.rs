//! The question, put to the admin address of a running program.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use control::explain::Explanation;

use crate::cli;

/// For each step of the conversation.
const PATIENCE: Duration = Duration::from_secs(5);
/// Largest answer that is read.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Asks the program whose admin address this is.
pub(super) fn ask(admin: SocketAddr, options: &cli::Explain) -> Result<Explanation, String> {
    let answer = get(admin, &path(options)).map_err(|error| {
        format!("cannot ask {admin}: {error}\nIs the program running, with `admin: {{ bind: \"{admin}\" }}`?")
    })?;
    let foreign = || format!("{admin} does not answer as the admin address of Equipoise does");
    let text = String::from_utf8(answer).map_err(|_| foreign())?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(foreign)?;
    match head.split(' ').nth(1) {
        Some("200") => serde_json::from_str(body).map_err(|_| foreign()),
        Some("400" | "503") => Err(body.trim_end().to_owned()),
        _ => Err(foreign()),
    }
}

fn get(admin: SocketAddr, path: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&admin, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n").as_bytes())?;
    let (mut answer, mut piece) = (Vec::new(), [0; 16 * 1024]);
    while answer.len() < ANSWER_BYTES_MAX && !is_whole(&answer) {
        match stream.read(&mut piece)? {
            0 => break,
            count => answer.extend_from_slice(&piece[..count]),
        }
    }
    Ok(answer)
}

/// Whether an answer that says how long it is has come to its end. Others end when the connection does.
fn is_whole(answer: &[u8]) -> bool {
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    length.is_some_and(|length| answer.len() - end - 4 >= length)
}

fn path(options: &cli::Explain) -> String {
    let mut path = format!("/api/explain?request={}&client={}", encoded(&options.request), options.client);
    for (name, value) in &options.fields {
        path.push_str(&format!("&header={}", encoded(&format!("{name}: {value}"))));
    }
    if let Some(listener) = &options.listener {
        path.push_str(&format!("&listener={}", encoded(listener)));
    }
    path
}

/// Percent-encodes all but what is plain in a query (RFC 3986 section 2.3).
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}
