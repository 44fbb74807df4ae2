//! Which bodies are decoded, what their heads say, and what hostile ones come to.

use std::io::Write;
use std::sync::Arc;

use model::FieldName;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::testing::{Beside, World, chain, issue, listed, request, response};
use super::super::{BadBody, Chain, Coder, Turning};
use super::*;

const CODINGS: [(&str, Coding); 4] =
    [("gzip", Coding::Gzip), ("deflate", Coding::Zlib), ("br", Coding::Brotli), ("zstd", Coding::Zstd)];
const BOUNDS: Bounds = Bounds { ratio_max: 100_000, size_max: u64::MAX };

fn coded(coding: Coding, body: &[u8]) -> Vec<u8> {
    let level = flate2::Compression::new(6);
    match coding {
        Coding::Gzip => {
            let mut writer = flate2::write::GzEncoder::new(Vec::new(), level);
            writer.write_all(body).unwrap();
            writer.finish().unwrap()
        }
        Coding::Zlib => {
            let mut writer = flate2::write::ZlibEncoder::new(Vec::new(), level);
            writer.write_all(body).unwrap();
            writer.finish().unwrap()
        }
        Coding::Brotli => {
            let mut writer = brotli::CompressorWriter::new(Vec::new(), 4096, 4, 22);
            writer.write_all(body).unwrap();
            writer.into_inner()
        }
        Coding::Zstd => zstd::stream::encode_all(body, 3).unwrap(),
    }
}

fn decoder(coding: Coding, bounds: Bounds) -> Decoder {
    Decoder::new(coding, bounds, &Arc::from([FieldName::new("content-digest").unwrap()]))
}

/// All that comes of a body that arrives in pieces of one size, in rooms of another.
fn decoded(coder: &mut Decoder, body: &[u8], (piece, room): (usize, usize)) -> Result<Vec<u8>, BadBody> {
    let (mut out, mut buffer) = (Vec::new(), vec![0; room]);
    let mut pieces: Vec<(&[u8], Turning)> = body.chunks(piece).map(|piece| (piece, Turning::More)).collect();
    pieces.push((&[], Turning::End));
    for (mut rest, turning) in pieces {
        loop {
            let done = coder.code(rest, &mut buffer, turning)?;
            assert!(
                done.read + done.written > 0 || done.is_done || turning == Turning::More && rest.is_empty(),
                "it goes on"
            );
            rest = &rest[done.read..];
            out.extend_from_slice(&buffer[..done.written]);
            if done.is_done || turning == Turning::More && rest.is_empty() && done.written < room {
                break;
            }
        }
    }
    Ok(out)
}

/// The head of a request after the filter, and how many stages its body passes.
fn begun(chain: &Chain, fields: &[(&str, &str)]) -> (String, usize) {
    let (world, mut beside) = (World::new(), Beside::new());
    let facts = world.facts();
    let mut head = request("POST", "/", fields);
    let (stages, extent) = chain.begin_request_body(&mut head, Extent::Known(9), &mut beside.turn(&facts));
    assert_eq!(extent, if stages.is_empty() { Extent::Known(9) } else { Extent::Unknown });
    (listed(&head.fields), stages.len())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_body_comes_back_whatever_its_pieces(
        body in proptest::collection::vec(0_u8..4, 0..20_000), piece in 1_usize..3_000, room in 1_usize..3_000,
    ) {
        for (_, coding) in CODINGS {
            let sent = coded(coding, &body);
            prop_assert_eq!(decoded(&mut decoder(coding, BOUNDS), &sent, (piece, room)).unwrap(), body.as_slice());
        }
    }

    #[test]
    fn no_bytes_make_a_decoder_panic_or_run_for_ever(
        bytes in proptest::collection::vec(any::<u8>(), 0..2_000), at in 0_usize..300, by in any::<u8>(),
    ) {
        for (_, coding) in CODINGS {
            let _ = decoded(&mut decoder(coding, BOUNDS), &bytes, (97, 113));
            let mut bent = coded(coding, &bytes);
            let at = at % bent.len();
            bent[at] ^= by;
            let _ = decoded(&mut decoder(coding, BOUNDS), &bent, (97, 113));
        }
    }
}

#[test]
fn a_body_that_is_cut_short_or_goes_on_behind_its_end_is_malformed() {
    for (name, coding) in CODINGS {
        let whole = coded(coding, &[7; 5_000]);
        for cut in [1, 2, whole.len() / 2, whole.len() - 1] {
            let read = decoded(&mut decoder(coding, BOUNDS), &whole[..cut], (64, 64));
            assert_eq!(read, Err(BadBody::Malformed), "{name} to {cut}");
        }
        let longer = [&whole[..], b"garbage"].concat();
        assert_eq!(decoded(&mut decoder(coding, BOUNDS), &longer, (64, 64)), Err(BadBody::Malformed), "{name}");
        assert_eq!(decoded(&mut decoder(coding, BOUNDS), b"", (64, 64)), Ok(Vec::new()), "{name}: there is none");
    }
}

#[test]
fn members_of_gzip_and_frames_of_zstd_follow_one_another() {
    for coding in [Coding::Gzip, Coding::Zstd] {
        let sent = [coded(coding, b"one, "), coded(coding, b""), coded(coding, b"two")].concat();
        for piece in [1, 7, 1_000] {
            let read = decoded(&mut decoder(coding, BOUNDS), &sent, (piece, 3)).unwrap();
            assert_eq!(read, b"one, two", "{coding:?} in pieces of {piece}");
        }
    }
}

#[test]
fn a_body_that_grows_beyond_its_bounds_is_too_long_and_never_leaves_a_buffer() {
    let zeros = vec![0; 4 << 20];
    for (name, coding) in CODINGS {
        let bomb = coded(coding, &zeros);
        let by_ratio = Bounds { ratio_max: 100, size_max: u64::MAX };
        assert_eq!(decoded(&mut decoder(coding, by_ratio), &bomb, (4_096, 65_536)), Err(BadBody::TooLong), "{name}");
        let by_size = Bounds { ratio_max: 1_000_000, size_max: 1 << 20 };
        assert_eq!(decoded(&mut decoder(coding, by_size), &bomb, (4_096, 65_536)), Err(BadBody::TooLong), "{name}");
        let allowed = Bounds { ratio_max: 1_000_000, size_max: 4 << 20 };
        assert_eq!(decoded(&mut decoder(coding, allowed), &bomb, (4_096, 65_536)).unwrap().len(), 4 << 20, "{name}");
        // The ratio says nothing of a few bytes.
        let few = coded(coding, &zeros[..60_000]);
        assert_eq!(decoded(&mut decoder(coding, by_ratio), &few, (4_096, 65_536)).unwrap().len(), 60_000, "{name}");
    }
}

#[test]
fn a_flush_brings_out_all_that_can_be_decoded() {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
    writer.write_all(b"an event").unwrap();
    writer.flush().unwrap();
    let (mut coder, mut room) = (decoder(Coding::Gzip, BOUNDS), [0; 100]);
    let done = coder.code(writer.get_ref(), &mut room, Turning::Flush).unwrap();
    assert_eq!((&room[..done.written], done.is_done), (&b"an event"[..], true));
}

#[test]
fn windows_beyond_the_bounds_are_refused() {
    // Frame header of zstd with a window of 16 MiB (RFC 8878 section 3.1.1.1.2), and of brotli with its large window.
    let zstd = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 14 << 3, 0x01, 0x00, 0x00];
    assert_eq!(decoded(&mut decoder(Coding::Zstd, BOUNDS), &zstd, (9, 9)), Err(BadBody::Malformed));
    let brotli = [0x11, 30, 0x03];
    assert_eq!(decoded(&mut decoder(Coding::Brotli, BOUNDS), &brotli, (9, 9)), Err(BadBody::Malformed));
    for (bits, is_accepted) in [(16, true), (18, true), (22, true), (23, false), (24, false)] {
        let mut writer = brotli::CompressorWriter::new(Vec::new(), 4096, 4, bits);
        // What is short would get a smaller window.
        let body: Vec<u8> = (0..9 << 20).map(|number: u32| (number.wrapping_mul(2_654_435_761) >> 30) as u8).collect();
        writer.write_all(&body).unwrap();
        let read = decoded(&mut decoder(Coding::Brotli, BOUNDS), &writer.into_inner(), (65_536, 65_536));
        assert_eq!(
            read.map(|read| read.len()),
            if is_accepted { Ok(9 << 20) } else { Err(BadBody::TooLong) },
            "{bits}"
        );
    }
}

#[test]
fn a_flood_of_empty_members_is_too_long_and_members_of_some_size_are_not() {
    let empty = coded(Coding::Gzip, b"").repeat(10_000);
    assert_eq!(decoded(&mut decoder(Coding::Gzip, BOUNDS), &empty, (65_536, 65_536)), Err(BadBody::TooLong));
    let noise: Vec<u8> = (0..400_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let blocks = coded(Coding::Gzip, &noise).repeat(1_000);
    assert_eq!(decoded(&mut decoder(Coding::Gzip, BOUNDS), &blocks, (65_536, 65_536)).unwrap().len(), 400_000);
}

#[test]
fn a_request_with_one_known_coding_is_decoded_and_its_head_says_so() {
    let chain = chain(json!([{ "decompress": {} }]));
    for token in ["gzip", "X-Gzip", "deflate", "br", "zstd", "identity, gzip"] {
        let sent = [("a", "b"), ("content-encoding", token), ("content-length", "9")];
        assert_eq!(begun(&chain, &sent), ("a: b".to_owned(), 1), "{token}");
    }
    for others in [
        &[("content-encoding", "compress")][..],
        &[("content-encoding", "gzip, br")],
        &[("content-encoding", "identity")],
        &[("a", "b")],
        &[("content-encoding", "gzip"), ("content-digest", "sha-256=:AA==:")],
        &[("content-encoding", "gzip"), ("cache-control", "no-transform")],
        &[("content-encoding", "gzip"), ("content-range", "bytes 0-1/2")],
    ] {
        let text: Vec<_> = others.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        assert_eq!(begun(&chain, others), (text.join("|"), 0), "{others:?}");
    }
}

#[test]
fn responses_are_decoded_where_the_settings_say_so() {
    let head_for = |settings: Value, accepted: &str, extent: Extent| {
        let chain = chain(json!([{ "decompress": settings }]));
        let (world, mut beside) = (World::new(), Beside::new());
        let facts = world.facts();
        let request = request("GET", "/", &[("accept-encoding", accepted)]);
        let mut head = response(200, &[("content-encoding", "br"), ("etag", "\"a\""), ("content-length", "9")]);
        let view = world.view(&request);
        let (stages, _) = chain.begin_response_body(&mut head, &view, extent, &mut beside.turn(&facts));
        (listed(&head.fields), stages.len())
    };
    let always = || json!({ "responses": "always" });
    let unless = || json!({ "requests": false, "responses": "unless_accepted" });
    let known = Extent::Known(9);
    assert_eq!(head_for(always(), "br", known), ("etag: W/\"a\"".into(), 1));
    assert_eq!(head_for(always(), "br", Extent::Absent), ("etag: W/\"a\"".into(), 0), "as the answer to GET");
    let varied = ("etag: W/\"a\"|vary: Accept-Encoding".to_owned(), 1);
    for refuses in ["gzip", "br;q=0, *", "", "*;q=0"] {
        assert_eq!(head_for(unless(), refuses, known), varied, "{refuses}");
    }
    let passed = "content-encoding: br|etag: \"a\"|content-length: 9|vary: Accept-Encoding";
    for accepts in ["br", "*", "gzip, BR;q=0.1"] {
        assert_eq!(head_for(unless(), accepts, known), (passed.to_owned(), 0), "{accepts}");
    }
    assert_eq!(head_for(json!({}), "", known).1, 0, "only requests by default");
}

#[test]
fn what_decodes_nothing_or_bounds_everything_is_refused() {
    assert_eq!(
        issue("decompress", json!({ "requests": false })),
        "requests: neither requests nor responses are decoded (set `responses`, or leave the filter out)"
    );
    assert_eq!(issue("decompress", json!({ "ratio_max": 0 })), "ratio_max: no body fits into nothing (use 1 or more)");
}
