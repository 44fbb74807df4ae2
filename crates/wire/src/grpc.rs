//! gRPC: what a proxy needs to know of calls ([`call`]), and what a check needs of its messages: the question of
//! `grpc.health.v1.Health/Check`, and the answer. The text form of gRPC-Web is base64, which [`model::base64`] reads and writes.
//!
//! A message of gRPC has five bytes before it: whether it is compressed, and its length. What is read comes from an endpoint and may be
//! anything: it is read within its bounds or refused with a reason.

pub mod call;
pub mod unary;

use model::protobuf::{Malformed, Reader, Value, Writer};

/// Path of the question.
pub const HEALTH_PATH: &str = "/grpc.health.v1.Health/Check";

/// What an endpoint says of itself: `HealthCheckResponse.ServingStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serving {
    /// It does not know.
    Unknown,
    /// It wants work.
    Yes,
    /// It wants none.
    No,
    /// It has nothing of the name that was asked for.
    NoSuchName,
    /// A number that is not in the protocol.
    Other(u64),
}

impl std::fmt::Display for Serving {
    /// As the protocol calls it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown => f.write_str("UNKNOWN"),
            Self::Yes => f.write_str("SERVING"),
            Self::No => f.write_str("NOT_SERVING"),
            Self::NoSuchName => f.write_str("SERVICE_UNKNOWN"),
            Self::Other(number) => write!(f, "{number}"),
        }
    }
}

/// The question after what has this name; an empty one asks after the endpoint as a whole. With the five bytes before it.
pub fn health_question(name: &str) -> Vec<u8> {
    let mut message = Writer::default();
    message.bytes(1, name.as_bytes());
    let message = message.into_bytes();
    let length = u32::try_from(message.len()).expect("names are bounded by the configuration");
    [&[0][..], &length.to_be_bytes(), &message].concat()
}

/// Reads the answer, which is all of a response's body.
///
/// # Errors
/// Says why it is none.
pub fn health_answer(body: &[u8]) -> Result<Serving, &'static str> {
    serving(only_message(body)?).map_err(|Malformed| "the message is not protobuf")
}

/// Returns the one message of a body, which was not to be compressed.
///
/// # Errors
/// Says why there is not one.
pub fn only_message(body: &[u8]) -> Result<&[u8], &'static str> {
    let (flag, rest) = body.split_first().ok_or("there is no message")?;
    let (length, message) = rest.split_at_checked(4).ok_or("the message is cut short")?;
    match flag {
        0 => {}
        1 => return Err("the message is compressed, which was not offered"),
        _ => return Err("the message begins with neither 0 nor 1"),
    }
    let length = u32::from_be_bytes(length.try_into().expect("four bytes")) as usize;
    match message.len() {
        got if got < length => Err("the message is cut short"),
        got if got > length => Err("more than one message came"),
        _ => Ok(message),
    }
}

/// The last field 1 that is a number; others are passed over, as protobuf wants it. Left out means 0.
fn serving(message: &[u8]) -> Result<Serving, Malformed> {
    let mut status = 0;
    for field in Reader::new(message) {
        if let (1, Value::Number(number)) = field? {
            status = number;
        }
    }
    Ok(match status {
        0 => Serving::Unknown,
        1 => Serving::Yes,
        2 => Serving::No,
        3 => Serving::NoSuchName,
        other => Serving::Other(other),
    })
}

/// Name of a status of gRPC.
pub fn status_name(code: u32) -> &'static str {
    const NAMES: [&str; 17] = [
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];
    NAMES.get(code as usize).copied().unwrap_or("of an unknown kind")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(message: &[u8]) -> Vec<u8> {
        [&[0, 0, 0, 0, message.len() as u8][..], message].concat()
    }

    #[test]
    fn questions_are_written_as_protobuf_has_them() {
        assert_eq!(health_question(""), [0, 0, 0, 0, 0]);
        assert_eq!(health_question("shop"), [&[0, 0, 0, 0, 6, 0x0a, 4][..], b"shop"].concat());
        let long = "x".repeat(300);
        assert_eq!(health_question(&long), [&[0, 0, 0, 1, 0x2f, 0x0a, 0xac, 0x02][..], long.as_bytes()].concat());
    }

    #[test]
    fn answers_say_whether_the_endpoint_serves() {
        let read = |message: &[u8]| health_answer(&framed(message));
        assert_eq!(read(&[8, 1]), Ok(Serving::Yes));
        assert_eq!(read(&[8, 2]), Ok(Serving::No));
        assert_eq!(read(&[8, 3]), Ok(Serving::NoSuchName));
        assert_eq!(read(&[]), Ok(Serving::Unknown), "0 is left out");
        assert_eq!(read(&[8, 0]), Ok(Serving::Unknown));
        assert_eq!(read(&[8, 0xac, 0x02]), Ok(Serving::Other(300)));
        assert_eq!(read(&[8, 0x81, 0x00]), Ok(Serving::Yes), "longer than it need be");
    }

    #[test]
    fn what_is_not_known_is_passed_over_and_the_last_word_counts() {
        let others = [&[0x12, 3][..], b"abc", &[0x19], &[9; 8], &[0x25], &[9; 4], &[0x28, 0xff, 0x01]].concat();
        let both = [&[8, 2][..], &others, &[8, 1]].concat();
        assert_eq!(health_answer(&framed(&both)), Ok(Serving::Yes));
        assert_eq!(health_answer(&framed(&[0x0a, 1, 1])), Ok(Serving::Unknown), "field 1 of another kind");
    }

    #[test]
    fn what_is_no_answer_is_refused_with_a_reason() {
        let refused = |body: &[u8]| health_answer(body).unwrap_err();
        assert_eq!(refused(b""), "there is no message");
        for cut in [&[0][..], &[0, 0, 0, 0], &[0, 0, 0, 0, 2, 8], &[0, 0xff, 0xff, 0xff, 0xff, 8, 1]] {
            assert_eq!(refused(cut), "the message is cut short");
        }
        assert_eq!(refused(&[1, 0, 0, 0, 2, 8, 1]), "the message is compressed, which was not offered");
        assert_eq!(refused(b"HTTP/1.1 200 OK"), "the message begins with neither 0 nor 1");
        assert_eq!(refused(&[&framed(&[8, 1])[..], &framed(&[8, 1])].concat()), "more than one message came");
        let endless = [8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        let too_large = [8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2];
        let far = [0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        for message in
            [&[8][..], &[8, 0x80], &[0, 1], &[0x0b], &[0x0c], &[0x0f], &[0x12, 5, 1], &[0x19, 1], &[0x25, 1], &[0x80]]
                .into_iter()
                .chain([&endless[..], &too_large, &far])
        {
            assert_eq!(refused(&framed(message)), "the message is not protobuf", "{message:?}");
        }
    }

    #[test]
    fn statuses_have_names() {
        assert_eq!([0, 5, 12, 16].map(status_name), ["OK", "NOT_FOUND", "UNIMPLEMENTED", "UNAUTHENTICATED"]);
        assert_eq!(status_name(17), "of an unknown kind");
    }
}
