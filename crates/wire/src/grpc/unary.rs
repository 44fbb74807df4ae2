//! The answer to a call with one message each way, in the form of gRPC-Web, where trailers are the last message of the body
//! ([`super::call::write_web_trailers`]).

use super::call::{from_web, status_number};
use super::only_message;

/// Flag of the message that holds trailers.
const TRAILERS: u8 = 0x80;
/// Bytes before each message.
const PREFIX_BYTES: usize = 5;

/// Why a call has no message to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// The endpoint answered with this status of gRPC, which is not 0.
    Status(u8),
    /// The response is not one of gRPC, and this is why.
    Malformed(&'static str),
}

/// Returns the message of a response with the HTTP status 200, of which `content_type` and `head_status` are the fields `content-type` and
/// `grpc-status` of its head.
///
/// # Errors
/// There is no message, or it does not count.
pub fn answer<'a>(
    content_type: Option<&[u8]>,
    head_status: Option<&[u8]>,
    body: &'a [u8],
) -> Result<&'a [u8], Unanswered> {
    const NO_STATUS: Unanswered = Unanswered::Malformed("the response ends without a status");
    if content_type.is_none_or(|own| from_web(own).is_none()) {
        return Err(Unanswered::Malformed("the response is not gRPC"));
    }
    // A response of trailers only has them in its head.
    let status = |text: &[u8]| status_number(text).ok_or(Unanswered::Malformed("the status is no number"));
    if let Some(text) = head_status {
        return Err(match status(text)? {
            0 => Unanswered::Malformed("there is no message"),
            number => Unanswered::Status(number),
        });
    }
    let (messages, trailers) = split(body).ok_or(NO_STATUS)?;
    match status(grpc_status(trailers).ok_or(NO_STATUS)?)? {
        0 => only_message(messages).map_err(Unanswered::Malformed),
        number => Err(Unanswered::Status(number)),
    }
}

/// Splits a body into its messages, and the lines of its trailers. `None`: it has no trailers, or something is behind them.
fn split(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut at = 0;
    loop {
        let prefix = body.get(at..at + PREFIX_BYTES)?;
        let length = u32::from_be_bytes(prefix[1..].try_into().ok()?) as usize;
        let content = at + PREFIX_BYTES;
        let end = content.checked_add(length).filter(|end| *end <= body.len())?;
        if prefix[0] & TRAILERS != 0 {
            return (end == body.len()).then(|| (&body[..at], &body[content..end]));
        }
        at = end;
    }
}

fn grpc_status(trailers: &[u8]) -> Option<&[u8]> {
    let mut values = trailers.split(|byte| *byte == b'\n').filter_map(|line| line.strip_prefix(b"grpc-status:"));
    values.next().map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WEB: Option<&[u8]> = Some(b"application/grpc-web+proto");

    fn frame(flag: u8, content: &[u8]) -> Vec<u8> {
        [&[flag][..], &(content.len() as u32).to_be_bytes(), content].concat()
    }

    fn ended(messages: &[u8], trailers: &str) -> Vec<u8> {
        [messages, &frame(TRAILERS, trailers.as_bytes())].concat()
    }

    #[test]
    fn the_message_before_a_good_status_is_the_answer() {
        for trailers in ["grpc-status: 0\r\n", "grpc-message: \r\ngrpc-status:0\r\nx-more: 1\r\n"] {
            assert_eq!(answer(WEB, None, &ended(&frame(0, b"yes"), trailers)), Ok(&b"yes"[..]));
        }
        assert_eq!(answer(WEB, None, &ended(&frame(0, b""), "grpc-status: 0\r\n")), Ok(&b""[..]), "all by default");
    }

    #[test]
    fn another_status_counts_more_than_a_message() {
        let body = ended(&frame(0, b"yes"), "grpc-status: 7\r\n");
        assert_eq!(answer(WEB, None, &body), Err(Unanswered::Status(7)));
        assert_eq!(answer(WEB, None, &ended(b"", "grpc-status: 14\r\n")), Err(Unanswered::Status(14)));
        assert_eq!(answer(WEB, Some(b"12"), b""), Err(Unanswered::Status(12)), "of trailers only");
    }

    #[test]
    fn what_is_no_answer_is_refused_with_a_reason() {
        let good = ended(&frame(0, b"yes"), "grpc-status: 0\r\n");
        let two = [frame(0, b"yes"), frame(0, b"yes")].concat();
        for (content_type, status, body, why) in [
            (Some(&b"text/html"[..]), None, good.clone(), "the response is not gRPC"),
            (None, None, good.clone(), "the response is not gRPC"),
            (WEB, Some(&b"0"[..]), Vec::new(), "there is no message"),
            (WEB, Some(b"-1"), Vec::new(), "the status is no number"),
            (WEB, None, ended(&frame(0, b"yes"), "grpc-status: x\r\n"), "the status is no number"),
            (WEB, None, ended(&frame(0, b"yes"), "x: 0\r\n"), "the response ends without a status"),
            (WEB, None, frame(0, b"yes"), "the response ends without a status"),
            (WEB, None, Vec::new(), "the response ends without a status"),
            (WEB, None, [&good[..], b"x"].concat(), "the response ends without a status"),
            (WEB, None, ended(b"", "grpc-status: 0\r\n"), "there is no message"),
            (WEB, None, ended(&two, "grpc-status: 0\r\n"), "more than one message came"),
            (
                WEB,
                None,
                ended(&frame(1, b"yes"), "grpc-status: 0\r\n"),
                "the message is compressed, which was not offered",
            ),
        ] {
            assert_eq!(answer(content_type, status, &body), Err(Unanswered::Malformed(why)));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_within_their_bounds(body: Vec<u8>) {
            let _ = answer(WEB, None, &body);
        }

        #[test]
        fn a_body_that_is_cut_anywhere_is_no_answer(at in 0_usize..28) {
            let good = ended(&frame(0, b"yes"), "grpc-status: 0\r\n");
            prop_assert_eq!(good.len(), 29);
            prop_assert!(answer(WEB, None, &good[..at]).is_err());
        }
    }
}
