//! The streams of HTTP/3 in any bytes: no panic; a message is the same in pieces of any size; a request that is accepted is one
//! of HTTP/1.1 too; nothing that is held grows beyond its bound.
#![no_main]

use equipoise_fuzz::choice_and_message;
use libfuzzer_sys::fuzz_target;
use model::{Method, RequestHead, ResponseHead};
use wire::http1::{Framing, HeadLimits, HeadScan, SendRequest, parse_request, write_request};
use wire::http3::frame::{BadFrame, Expected, FrameReader, Step};
use wire::http3::message::{self, Memory, read_request, read_response, read_trailers};
use wire::http3::uni::{Next, PeerState, UniReader};

const LIMITS: HeadLimits = HeadLimits { head_bytes_max: 1 << 12, fields_max: 16 };

type Message = (Vec<u8>, Vec<Vec<u8>>);

fn read(bytes: &[u8], size: usize) -> Result<Message, BadFrame> {
    let mut reader = FrameReader::new(LIMITS.head_bytes_max);
    let (mut body, mut sections) = (Vec::new(), Vec::new());
    for mut piece in bytes.chunks(size) {
        loop {
            let (used, step) = reader.next(piece)?;
            piece = &piece[used..];
            match step {
                Step::More => break,
                Step::Data(count) => {
                    body.extend_from_slice(&piece[..count]);
                    piece = &piece[count..];
                }
                Step::Section => {
                    sections.push(reader.section().to_vec());
                    reader.expect(if sections.len() == 1 { Expected::Body } else { Expected::End });
                }
            }
        }
        assert!(piece.is_empty() && reader.section().len() <= LIMITS.head_bytes_max);
    }
    Ok((body, sections))
}

fn one_way(bytes: &[u8], size: usize, from_client: bool) -> Result<(bool, PeerState), u64> {
    let (mut reader, mut peer) = (UniReader::default(), PeerState::default());
    for piece in bytes.chunks(size) {
        if reader.take(piece, from_client, &mut peer)? == Next::Stop {
            return Ok((true, peer));
        }
    }
    Ok((false, peer))
}

fuzz_target!(|input: &[u8]| {
    let (choice, message) = choice_and_message(input);
    let size = usize::from(choice % 16) + 1;
    let from_client = choice & 16 == 0;
    assert_eq!(one_way(message, size, from_client), one_way(message, usize::MAX, from_client));
    let whole = read(message, usize::MAX);
    assert_eq!(read(message, size), whole);

    let mut memory = Memory::default();
    let mut sections = whole.map(|(_, sections)| sections).unwrap_or_default();
    sections.push(message.to_vec());
    for section in sections {
        let _ = read_trailers(&section, LIMITS.head_bytes_max, &mut memory);
        let ends = choice & 32 == 0;
        let _ = read_response(&section, (Method::Get, &LIMITS, ends), &mut memory, &mut ResponseHead::default());
        let mut head = RequestHead::default();
        let Ok(parsed) = read_request(&section, (&LIMITS, ends), &mut memory, &mut head) else { continue };
        let mut bytes = Vec::new();
        let upgrade = parsed.upgrade;
        let how = SendRequest { framing: parsed.framing, host_fallback: "none", upgrade, keep_alive: true };
        write_request(&head, &how, &mut bytes);
        let mut again = RequestHead::default();
        let limits = HeadLimits { head_bytes_max: 1 << 16, fields_max: LIMITS.fields_max + 8 };
        let found = parse_request(&bytes, &limits, &mut HeadScan::default(), &mut again);
        let found = found.expect("what is accepted is a request of HTTP/1.1").expect("a whole one");
        assert_eq!((found.head_len, found.framing), (bytes.len(), parsed.framing), "one request and nothing more");
        assert_eq!((again.path(), again.query(), again.authority()), (head.path(), head.query(), head.authority()));

        // What goes to an endpoint of HTTP/3 is a request there too, unless encoding makes its target too long.
        if head.path().len() + head.query().map_or(0, <[u8]>::len) > 2_000 {
            continue;
        }
        let mut onward = Vec::new();
        let framing = if upgrade { Framing::None } else { parsed.framing };
        message::write_request(&head, (framing, upgrade), b"none", &mut onward);
        let ends = !upgrade && framing == Framing::None;
        let found = read_request(&onward, (&limits, ends), &mut memory, &mut again);
        assert_eq!(found.map(|found| found.framing), Ok(parsed.framing));
    }
});
