//! RESP2, the protocol of Redis and Valkey (<https://redis.io/docs/latest/develop/reference/protocol-spec/>): commands out, replies back.

pub mod cluster;
#[cfg(test)]
mod tests;

/// Bytes of a line: a number, a status or an error.
const LINE_BYTES_MAX: usize = 4 << 10;
/// Bytes of a text.
const BULK_BYTES_MAX: usize = 64 << 10;
/// Items of a list, such as all ranges of slots of a cluster, and lists in one another.
const ITEMS_MAX: usize = 16_384;
const DEPTH_MAX: usize = 4;

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A status, such as `OK`.
    Status(Vec<u8>),
    /// An error, such as `NOSCRIPT No matching script`.
    Error(Vec<u8>),
    /// A number.
    Number(i64),
    /// A text; `None`: there is none.
    Text(Option<Vec<u8>>),
    /// A list; `None`: there is none.
    List(Option<Vec<Reply>>),
}

/// What was received is no reply, or a larger one than is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadReply;

/// Writes a command with its arguments.
pub fn write_command(arguments: &[&[u8]], out: &mut Vec<u8>) {
    write_header(b'*', arguments.len(), out);
    for argument in arguments {
        write_header(b'$', argument.len(), out);
        out.extend_from_slice(argument);
        out.extend_from_slice(b"\r\n");
    }
}

fn write_header(kind: u8, count: usize, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(count.to_string().as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Reads the first reply, and says how many bytes it took. `None`: it is not whole yet.
///
/// # Errors
/// It is no reply, or too large.
pub fn read_reply(bytes: &[u8]) -> Result<Option<(Reply, usize)>, BadReply> {
    let mut reader = Reader { bytes, at: 0 };
    Ok(reader.reply(0)?.map(|reply| (reply, reader.at)))
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn reply(&mut self, depth: usize) -> Result<Option<Reply>, BadReply> {
        let Some(line) = self.line()? else { return Ok(None) };
        let (kind, text) = line.split_first().ok_or(BadReply)?;
        Ok(Some(match kind {
            b'+' => Reply::Status(text.to_vec()),
            b'-' => Reply::Error(text.to_vec()),
            b':' => Reply::Number(number(text)?),
            b'$' => match length(text, BULK_BYTES_MAX)? {
                None => Reply::Text(None),
                Some(count) => match self.text(count)? {
                    Some(text) => Reply::Text(Some(text.to_vec())),
                    None => return Ok(None),
                },
            },
            b'*' if depth < DEPTH_MAX => match length(text, ITEMS_MAX)? {
                None => Reply::List(None),
                Some(count) => {
                    let mut items = Vec::new();
                    for _ in 0..count {
                        match self.reply(depth + 1)? {
                            Some(item) => items.push(item),
                            None => return Ok(None),
                        }
                    }
                    Reply::List(Some(items))
                }
            },
            _ => return Err(BadReply),
        }))
    }

    fn line(&mut self) -> Result<Option<&'a [u8]>, BadReply> {
        let rest = &self.bytes[self.at..];
        match rest.iter().take(LINE_BYTES_MAX).position(|byte| *byte == b'\r') {
            Some(end) => match rest.get(end + 1) {
                Some(b'\n') => {
                    self.at += end + 2;
                    Ok(Some(&rest[..end]))
                }
                Some(_) => Err(BadReply),
                None => Ok(None),
            },
            None if rest.len() >= LINE_BYTES_MAX => Err(BadReply),
            None => Ok(None),
        }
    }

    fn text(&mut self, count: usize) -> Result<Option<&'a [u8]>, BadReply> {
        let rest = &self.bytes[self.at..];
        let Some(whole) = rest.get(..count + 2) else { return Ok(None) };
        if !whole.ends_with(b"\r\n") {
            return Err(BadReply);
        }
        self.at += count + 2;
        Ok(Some(&whole[..count]))
    }
}

fn number(text: &[u8]) -> Result<i64, BadReply> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(BadReply)
}

/// A length; -1 is none.
fn length(text: &[u8], max: usize) -> Result<Option<usize>, BadReply> {
    match number(text)? {
        -1 => Ok(None),
        count => usize::try_from(count).ok().filter(|count| *count <= max).map(Some).ok_or(BadReply),
    }
}
