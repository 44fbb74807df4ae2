//! Frames.

use super::Broken;
use super::bytes::{array, long, take, text, write_text};

/// The version of the protocol that this program speaks.
pub const VERSION: u16 = 1;
/// Bytes of a frame, without its length.
pub const FRAME_BYTES_MAX: usize = 1 << 20;
/// Instances that one may know of.
pub const KNOWN_MAX: usize = 1024;
/// Bytes of the name of a table, or of an instance.
pub const NAME_BYTES_MAX: usize = 64;

const MAGIC: &[u8; 8] = b"EQ-PEERS";
const LENGTH_BYTES: usize = 4;

/// The first frame of either side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The version that it speaks; both go by the lower one.
    pub version: u16,
    /// Drawn at random when the process began.
    pub instance: u128,
    /// Whether it knows what the others counted before it began.
    pub is_settled: bool,
    /// For people.
    pub name: String,
}

/// Some numbers of a journal, with what was counted under them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// The first number, from 1.
    pub first: u64,
    /// The last.
    pub last: u64,
    /// Milliseconds since the oldest of it was counted.
    pub age: u64,
    /// For [`super::Blocks`].
    pub blocks: &'a [u8],
}

/// Sessions that an instance has learned. An entry replaces another if it is newer, so it does no harm if one comes twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sessions<'a> {
    /// The receiver has all up to this number then; 0: more follows.
    pub number: u64,
    /// Milliseconds since it was written.
    pub age: u64,
    /// For [`super::Blocks`]: one for each cluster, each record is a [`super::SessionRecord`].
    pub blocks: &'a [u8],
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Comes first.
    Hello(Hello),
    /// Receiver: send what follows this number. It has also what these instances have sent.
    Follow {
        /// The last number that it has; 0: none.
        after: u64,
        /// At most [`KNOWN_MAX`].
        known: Vec<u128>,
    },
    /// Sender: what was asked for is not kept any more; or the receiver lacks what others have sent. It has what these have sent, at most
    /// [`KNOWN_MAX`].
    Gap(Vec<u128>),
    /// Receiver: send all that you know.
    Teach,
    /// Sender: it knows too little itself.
    NotYet,
    /// Sender: increments.
    Segment(Segment<'a>),
    /// Receiver: it has all up to this number.
    Ack(u64),
    /// Sender: a part of all that it knows.
    State(&'a [u8]),
    /// Sender: this was all. It has what it counted itself up to `head`, and what others did up to these numbers.
    StateEnd {
        /// Its own number.
        head: u64,
        /// At most [`KNOWN_MAX`].
        vector: Vec<(u128, u64)>,
    },
    /// Either: it is there.
    Ping,
    /// Receiver: send the sessions that follow this number; 0: all that you know, and what follows.
    FollowSessions(u64),
    /// Sender: sessions.
    Sessions(Sessions<'a>),
    /// Receiver: it has all sessions up to this number.
    AckSessions(u64),
    /// A type of a newer version.
    Unknown(u8),
}

/// Reads a frame. Returns it with the number of bytes that it took; `None`: there is no whole one yet.
///
/// # Errors
/// It is longer than [`FRAME_BYTES_MAX`], or broken.
pub fn next(bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, Broken> {
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let length = u32::from_be_bytes(*length) as usize;
    if length == 0 || length > FRAME_BYTES_MAX {
        return Err(Broken("a frame is empty or longer than 1 MiB"));
    }
    let Some(mut body) = rest.get(..length) else { return Ok(None) };
    let [kind] = array(&mut body)?;
    let frame = read(kind, &mut body)?;
    let is_open = matches!(frame, Frame::Hello(_) | Frame::Unknown(_));
    // A newer version may append to its greeting.
    if !body.is_empty() && !is_open {
        return Err(Broken("a frame is longer than its contents"));
    }
    Ok(Some((frame, LENGTH_BYTES + length)))
}

fn read<'a>(kind: u8, body: &mut &'a [u8]) -> Result<Frame<'a>, Broken> {
    Ok(match kind {
        1 => Frame::Hello(hello(body)?),
        2 => Frame::Follow { after: long(body)?, known: instances(body)? },
        3 => Frame::Gap(instances(body)?),
        4 => Frame::Teach,
        5 => Frame::NotYet,
        6 => {
            let (first, last, age) = (long(body)?, long(body)?, long(body)?);
            if first == 0 || last < first {
                return Err(Broken("the numbers of a segment are out of order"));
            }
            Frame::Segment(Segment { first, last, age, blocks: std::mem::take(body) })
        }
        7 => Frame::Ack(long(body)?),
        8 => Frame::State(std::mem::take(body)),
        9 => Frame::StateEnd {
            head: long(body)?,
            vector: many(body, |body| Ok((array(body).map(u128::from_be_bytes)?, long(body)?)))?,
        },
        10 => Frame::Ping,
        11 => Frame::FollowSessions(long(body)?),
        12 => Frame::Sessions(Sessions { number: long(body)?, age: long(body)?, blocks: std::mem::take(body) }),
        13 => Frame::AckSessions(long(body)?),
        other => Frame::Unknown(other),
    })
}

fn hello(body: &mut &[u8]) -> Result<Hello, Broken> {
    if take(body, MAGIC.len())? != MAGIC {
        return Err(Broken("it does not speak the protocol of peers"));
    }
    let version = u16::from_be_bytes(array(body)?);
    if version == 0 {
        return Err(Broken("version 0 of the protocol does not exist"));
    }
    let instance = u128::from_be_bytes(array(body)?);
    let [is_settled] = array(body)?;
    Ok(Hello { version, instance, is_settled: is_settled == 1, name: text(body, NAME_BYTES_MAX)?.to_owned() })
}

fn instances(body: &mut &[u8]) -> Result<Vec<u128>, Broken> {
    many(body, |body| array(body).map(u128::from_be_bytes))
}

fn write_instances(known: &[u128], to: &mut Vec<u8>) {
    let known = &known[..known.len().min(KNOWN_MAX)];
    to.extend((known.len() as u16).to_be_bytes());
    known.iter().for_each(|one| to.extend(one.to_be_bytes()));
}

fn many<'a, T>(body: &mut &'a [u8], mut one: impl FnMut(&mut &'a [u8]) -> Result<T, Broken>) -> Result<Vec<T>, Broken> {
    let count = usize::from(u16::from_be_bytes(array(body)?));
    if count > KNOWN_MAX {
        return Err(Broken("it knows more than 1024 instances"));
    }
    (0..count).map(|_| one(body)).collect()
}

/// Appends a frame.
pub fn write(frame: &Frame<'_>, to: &mut Vec<u8>) {
    let begin = to.len();
    to.extend([0; LENGTH_BYTES]);
    to.push(kind(frame));
    match frame {
        Frame::Hello(hello) => {
            to.extend(MAGIC);
            to.extend(hello.version.to_be_bytes());
            to.extend(hello.instance.to_be_bytes());
            to.push(u8::from(hello.is_settled));
            write_text(&hello.name[..hello.name.floor_char_boundary(NAME_BYTES_MAX)], to);
        }
        Frame::Follow { after, known } => {
            to.extend(after.to_be_bytes());
            write_instances(known, to);
        }
        Frame::Gap(known) => write_instances(known, to),
        Frame::Segment(segment) => {
            [segment.first, segment.last, segment.age].iter().for_each(|number| to.extend(number.to_be_bytes()));
            to.extend(segment.blocks);
        }
        Frame::Sessions(sessions) => {
            [sessions.number, sessions.age].iter().for_each(|number| to.extend(number.to_be_bytes()));
            to.extend(sessions.blocks);
        }
        Frame::Ack(number) | Frame::FollowSessions(number) | Frame::AckSessions(number) => {
            to.extend(number.to_be_bytes())
        }
        Frame::State(blocks) => to.extend(*blocks),
        Frame::StateEnd { head, vector } => {
            to.extend(head.to_be_bytes());
            let vector = &vector[..vector.len().min(KNOWN_MAX)];
            to.extend((vector.len() as u16).to_be_bytes());
            for (instance, number) in vector {
                to.extend(instance.to_be_bytes());
                to.extend(number.to_be_bytes());
            }
        }
        Frame::Teach | Frame::NotYet | Frame::Ping | Frame::Unknown(_) => {}
    }
    let length = (to.len() - begin - LENGTH_BYTES) as u32;
    to[begin..begin + LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
}

fn kind(frame: &Frame<'_>) -> u8 {
    match frame {
        Frame::Hello(_) => 1,
        Frame::Follow { .. } => 2,
        Frame::Gap(_) => 3,
        Frame::Teach => 4,
        Frame::NotYet => 5,
        Frame::Segment(_) => 6,
        Frame::Ack(_) => 7,
        Frame::State(_) => 8,
        Frame::StateEnd { .. } => 9,
        Frame::Ping => 10,
        Frame::FollowSessions(_) => 11,
        Frame::Sessions(_) => 12,
        Frame::AckSessions(_) => 13,
        Frame::Unknown(kind) => *kind,
    }
}
