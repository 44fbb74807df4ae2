//! Round trips, flushes and memory.

use std::io::Read;

use proptest::prelude::*;

use super::super::engine::Algorithm;
use super::super::kept::KEPT_MAX;
use super::*;

const KINDS: [(Algorithm, [u8; 3]); 3] =
    [(Algorithm::Gzip, [1, 5, 9]), (Algorithm::Zstd, [1, 3, 19]), (Algorithm::Br, [0, 3, 9])];

fn coder(kind: Kind, length: Option<u64>) -> BodyCoder {
    BodyCoder::new(kind, length, &Arc::from([FieldName::new("content-digest").unwrap()])).unwrap()
}

/// What is decoded of a coding, whole or as far as it goes.
fn decoded(algorithm: Algorithm, coded: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut reader: Box<dyn Read> = match algorithm {
        Algorithm::Gzip => Box::new(flate2::read::GzDecoder::new(coded)),
        Algorithm::Zstd => Box::new(zstd::stream::read::Decoder::new(coded).unwrap()),
        Algorithm::Br => Box::new(brotli::Decompressor::new(coded, 4096)),
    };
    let mut buffer = [0; 4096];
    while let Ok(count) = reader.read(&mut buffer) {
        if count == 0 {
            break;
        }
        out.extend_from_slice(&buffer[..count]);
    }
    out
}

/// Whether a coding is whole.
fn is_whole(algorithm: Algorithm, coded: &[u8]) -> bool {
    let mut out = Vec::new();
    match algorithm {
        Algorithm::Gzip => flate2::read::GzDecoder::new(coded).read_to_end(&mut out),
        Algorithm::Zstd => zstd::stream::read::Decoder::new(coded).unwrap().read_to_end(&mut out),
        Algorithm::Br => brotli::Decompressor::new(coded, 4096).read_to_end(&mut out),
    }
    .is_ok()
}

/// Feeds all of the input, in rooms of sizes that are taken in turn, until it is taken, or with a flush or an end until it is done.
fn feed(coder: &mut BodyCoder, mut input: &[u8], turning: Turning, rooms: &mut impl Iterator<Item = usize>) -> Vec<u8> {
    let mut out = Vec::new();
    for call in 0.. {
        assert!(call < 10_000_000, "it does not come to an end");
        let mut room = vec![0; rooms.next().unwrap().max(1)];
        let coded = coder.code(input, &mut room, turning).unwrap();
        if turning == Turning::More && !input.is_empty() {
            assert!(coded.read > 0 || coded.written > 0, "it does one or the other");
        }
        input = &input[coded.read..];
        out.extend_from_slice(&room[..coded.written]);
        if coded.is_done || (turning == Turning::More && input.is_empty()) {
            assert!(input.is_empty());
            return out;
        }
    }
    unreachable!("the loop has no end");
}

fn kinds() -> impl Strategy<Value = Kind> {
    (prop::sample::select(KINDS.to_vec()), 0..3_usize)
        .prop_map(|((algorithm, levels), place)| Kind { algorithm, level: levels[place] })
}

/// Bytes that repeat themselves, and such that do not.
fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let random = prop::collection::vec(any::<u8>(), 0..6_000);
    let repeated =
        (prop::collection::vec(any::<u8>(), 1..60), 1..4_000_usize).prop_map(|(part, times)| part.repeat(times));
    prop_oneof![random.clone(), repeated.clone(), (repeated, random).prop_map(|(one, other)| [one, other].concat())]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn what_is_coded_in_any_pieces_is_decoded_to_the_same(
        kind in kinds(),
        body in bodies(),
        cuts in prop::collection::vec((0..70_000_usize, prop::sample::select(vec![Turning::More, Turning::Flush])), 0..8),
        rooms in prop::collection::vec(prop_oneof![1..9_usize, 1..200_usize, 1..20_000_usize], 1..6),
        says_length in any::<bool>(),
    ) {
        let mut coder = coder(kind, says_length.then_some(body.len() as u64));
        let (mut rooms, mut out, mut at) = (rooms.into_iter().cycle(), Vec::new(), 0);
        for (length, turning) in cuts {
            let end = (at + length).min(body.len());
            out.extend(feed(&mut coder, &body[at..end], turning, &mut rooms));
            at = end;
            if turning == Turning::Flush {
                prop_assert_eq!(&decoded(kind.algorithm, &out)[..], &body[..at]);
            }
        }
        out.extend(feed(&mut coder, &body[at..], Turning::End, &mut rooms));
        prop_assert!(is_whole(kind.algorithm, &out));
        prop_assert_eq!(decoded(kind.algorithm, &out), body);
        prop_assert!(feed(&mut coder, b"", Turning::End, &mut rooms).is_empty(), "an end that is asked for again adds nothing");
    }
}

#[test]
fn a_flush_without_new_input_writes_nothing() {
    for (algorithm, levels) in KINDS {
        for level in levels {
            for room in [1, 5, 6, 7, 63, 64, 65, 4_096] {
                let (mut coder, mut rooms) = (coder(Kind { algorithm, level }, None), std::iter::repeat(room));
                assert!(feed(&mut coder, b"", Turning::Flush, &mut rooms).is_empty(), "before there is anything");
                let mut out = Vec::new();
                for event in ["data: 1\n\n", "data: 2\n\n", "data: 3\n\n"] {
                    out.extend(feed(&mut coder, event.as_bytes(), Turning::More, &mut rooms));
                    out.extend(feed(&mut coder, b"", Turning::Flush, &mut rooms));
                    for _ in 0..100 {
                        assert!(feed(&mut coder, b"", Turning::Flush, &mut rooms).is_empty(), "{algorithm:?} {room}");
                    }
                    assert!(decoded(algorithm, &out).ends_with(event.as_bytes()), "{algorithm:?} {level} {room}");
                }
                out.extend(feed(&mut coder, b"", Turning::End, &mut rooms));
                assert_eq!(decoded(algorithm, &out), b"data: 1\n\ndata: 2\n\ndata: 3\n\n");
            }
        }
    }
}

#[test]
fn a_body_of_64_mib_passes_in_a_room_of_16_kib() {
    let zeros = vec![0; 64 << 10];
    for (algorithm, levels) in KINDS {
        let mut coder = coder(Kind { algorithm, level: levels[1] }, None);
        let (mut rooms, mut written) = (std::iter::repeat(16 << 10), 0);
        for _ in 0..1_024 {
            written += feed(&mut coder, &zeros, Turning::More, &mut rooms).len();
        }
        written += feed(&mut coder, b"", Turning::End, &mut rooms).len();
        assert!((10..100_000).contains(&written), "{algorithm:?}: {written}");
    }
}

#[test]
fn the_tables_of_zstd_stay_within_4_mib_at_every_level() {
    let text: Vec<u8> = (0..400_000_u32).flat_map(u32::to_le_bytes).collect();
    for level in 1..=19 {
        let mut coder = coder(Kind { algorithm: Algorithm::Zstd, level }, None);
        feed(&mut coder, &text, Turning::More, &mut std::iter::repeat(4_096));
        let Some(Way::Streamed(Engine::Zstd(state))) = &coder.way else { panic!("another engine") };
        let most = if level <= 3 { 2_100 << 10 } else { 4_200 << 10 };
        assert!(state.sizeof() <= most, "{level}: {} KiB", state.sizeof() >> 10);
    }
}

#[test]
fn a_worker_keeps_few_engines_and_they_begin_anew() {
    let count = |kind: Kind| kept::counts(kind).0;
    for (algorithm, kept) in [(Algorithm::Gzip, 4), (Algorithm::Zstd, 4), (Algorithm::Br, 0)] {
        let kind = Kind { algorithm, level: 4 };
        let mut all: Vec<_> = (0..20).map(|_| coder(kind, None)).collect();
        for coder in &mut all {
            // What is broken off leaves nothing in the next body.
            feed(coder, b"secret secret secret", Turning::More, &mut std::iter::repeat(100));
        }
        drop(all);
        assert_eq!(count(kind), kept);
        let mut next = coder(kind, None);
        let out = feed(&mut next, b"hello", Turning::End, &mut std::iter::repeat(100));
        assert_eq!(decoded(algorithm, &out), b"hello");
        assert_eq!(count(kind), kept.max(1) - 1);
    }
    for level in 1..=9 {
        drop((0..4).map(|_| coder(Kind { algorithm: Algorithm::Gzip, level }, None)).collect::<Vec<_>>());
    }
    assert_eq!(kept::counts(Kind { algorithm: Algorithm::Gzip, level: 1 }).1, KEPT_MAX);
}

#[test]
fn a_body_that_is_not_as_long_as_it_said_is_bad_or_whole() {
    for (algorithm, levels) in KINDS {
        for (said, sent) in [(10, 5), (5, 10)] {
            let mut coder = coder(Kind { algorithm, level: levels[1] }, Some(said));
            let mut room = [0; 200];
            match coder.code(&b"0123456789"[..sent], &mut room, Turning::End) {
                Ok(coded) => assert_eq!(decoded(algorithm, &room[..coded.written]).len(), sent),
                Err(_) => assert_eq!(algorithm, Algorithm::Zstd),
            }
        }
    }
}

/// Lines with words and numbers, as logs have them.
fn lines(length: usize) -> Vec<u8> {
    let words = ["request", "response", "cluster", "endpoint", "listener", "took", "from", "to", "failed"];
    let line = |number: usize| {
        format!("{} {} {} {}\n", words[number % 9], number * 7_919, words[number * number % 7], number % 83)
    };
    let mut lines = (0..).map(line).take(length / 10).collect::<String>().into_bytes();
    lines.truncate(length);
    lines
}

#[test]
fn gzip_of_a_short_body_of_known_length_is_about_as_small_as_streamed() {
    for length in [1_000, 10_000, 100_000, 128 << 10] {
        let body = lines(length);
        for level in 2..=9 {
            let kind = Kind { algorithm: Algorithm::Gzip, level };
            let [whole, streamed] = [Some(length as u64), None].map(|said| {
                let mut coder = coder(kind, said);
                let mut rooms = std::iter::repeat(16 << 10);
                let mut out = Vec::new();
                for piece in body.chunks(16 << 10) {
                    out.extend(feed(&mut coder, piece, Turning::More, &mut rooms));
                }
                out.extend(feed(&mut coder, b"", Turning::End, &mut rooms));
                assert_eq!(decoded(Algorithm::Gzip, &out), body);
                out.len()
            });
            assert!(whole <= streamed + streamed / 30, "{length} at {level}: {whole} and {streamed}");
        }
    }
}

#[test]
fn short_bodies_of_known_length_are_collected() {
    for (algorithm, [low, _, high]) in KINDS {
        let is_whole = |level, length| matches!(coder(Kind { algorithm, level }, length).way, Some(Way::Whole(_)));
        assert!(is_whole(low, Some(0)) && is_whole(high, Some(128 << 10)));
        assert!(!is_whole(low, None) && !is_whole(high, Some((128 << 10) + 1)));
    }
}

#[test]
fn bodies_that_are_collected_use_one_engine_one_after_the_other() {
    for (algorithm, engines) in [(Algorithm::Gzip, 1), (Algorithm::Zstd, 1), (Algorithm::Br, 0)] {
        let kind = Kind { algorithm, level: 1 };
        let body = lines(50_000);
        let mut all: Vec<_> = (0..20).map(|_| coder(kind, Some(50_000))).collect();
        for coder in &mut all {
            assert!(feed(coder, &body[..30_000], Turning::More, &mut std::iter::repeat(100)).is_empty());
        }
        for coder in &mut all {
            let out = feed(coder, &body[30_000..], Turning::End, &mut std::iter::repeat(1_000));
            assert_eq!(decoded(algorithm, &out), body);
        }
        assert_eq!(kept::counts(kind).0, engines, "{algorithm:?}");
    }
}

#[test]
fn a_body_that_is_flushed_or_too_long_after_all_is_streamed() {
    let body = lines(90_000);
    for (algorithm, levels) in KINDS {
        for room in [64, 65, 1_000, 20_000] {
            let mut coder = coder(Kind { algorithm, level: levels[1] }, Some(60_000));
            let mut rooms = std::iter::repeat(room);
            assert!(feed(&mut coder, &body[..50_000], Turning::More, &mut rooms).is_empty(), "it is collected");
            let mut out = feed(&mut coder, &body[50_000..55_000], Turning::Flush, &mut rooms);
            assert_eq!(decoded(algorithm, &out), &body[..55_000]);
            out.extend(feed(&mut coder, &body[55_000..], Turning::End, &mut rooms));
            assert_eq!(decoded(algorithm, &out), body);
            assert!(is_whole(algorithm, &out));
        }
    }
}

#[test]
fn digests_of_the_plain_body_are_no_trailers() {
    let mut trailers = Fields::default();
    for name in ["Content-Digest", "x-checked"] {
        trailers.append(&FieldName::new(name).unwrap(), b"1");
    }
    coder(Kind { algorithm: Algorithm::Gzip, level: 1 }, None).trailers(&mut trailers);
    assert_eq!(trailers.iter().map(|field| field.name).collect::<Vec<_>>(), [b"x-checked"]);
}
