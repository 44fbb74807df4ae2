//! A chunked body: no panic; the same data however it is split; nothing behind the end is touched; what was decoded and
//! is written in other chunks decodes to the same. A second decoder must agree about it.
#![no_main]

use equipoise_fuzz::{choice_and_message, cuts, plain_chunks};
use libfuzzer_sys::fuzz_target;
use wire::http1::{
    BadChunk, CHUNK_HEAD_BYTES_MAX, CHUNK_TAIL, ChunkDecoder, HeadLimits, write_chunk_head, write_last_chunk,
};

struct Body {
    data: Vec<u8>,
    /// Bytes of the input that belong to the body, once it ended.
    len: Option<usize>,
    decoder: ChunkDecoder,
}

fn feed(bytes: &[u8], choice: u8) -> Result<Body, BadChunk> {
    let limits = HeadLimits { head_bytes_max: 0, fields_max: 16 };
    let mut body = Body { data: Vec::new(), len: None, decoder: ChunkDecoder::new(&limits) };
    let mut start = 0;
    for end in cuts(choice, bytes.len()) {
        let mut piece = bytes[start..end].to_vec();
        let decoded = body.decoder.decode_in_place(&mut piece)?;
        assert!(decoded.data_len <= decoded.consumed && decoded.consumed <= piece.len());
        assert_eq!(piece[decoded.consumed..], bytes[start + decoded.consumed..end]);
        body.data.extend_from_slice(&piece[..decoded.data_len]);
        if decoded.done {
            body.len = Some(start + decoded.consumed);
            break;
        }
        assert_eq!(decoded.consumed, end - start);
        start = end;
    }
    Ok(body)
}

fn trailers(body: &Body) -> String {
    format!("{:?}", body.decoder.trailers())
}

fuzz_target!(|input: &[u8]| {
    let (choice, message) = choice_and_message(input);
    let (whole, split) = (feed(message, 0), feed(message, choice));
    assert_eq!(whole.is_ok(), split.is_ok());
    let (Ok(whole), Ok(split)) = (whole, split) else { return };
    assert_eq!((&whole.data, whole.len, trailers(&whole)), (&split.data, split.len, trailers(&split)));
    let Some(len) = whole.len else { return };
    assert_eq!(plain_chunks(&message[..len]), whole.data);
    let mut bytes = Vec::new();
    for chunk in whole.data.chunks(1 + usize::from(choice)) {
        let mut head = [0; CHUNK_HEAD_BYTES_MAX];
        let start = write_chunk_head(chunk.len(), &mut head);
        bytes.extend_from_slice(&head[start..]);
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(CHUNK_TAIL);
    }
    write_last_chunk(whole.decoder.trailers(), &mut bytes);
    let again = feed(&bytes, choice).expect("what we wrote is well formed");
    assert_eq!((&again.data, again.len, trailers(&again)), (&whole.data, Some(bytes.len()), trailers(&whole)));
});
