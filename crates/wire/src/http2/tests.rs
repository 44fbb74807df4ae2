use super::*;

fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
}

#[test]
fn the_preface_is_known_however_it_is_split_and_nothing_else_is_taken_for_it() {
    for end in 0..PREFACE.len() {
        assert_eq!(preface(&PREFACE[..end]), Preface::Partial, "{end}");
    }
    assert_eq!(preface(PREFACE), Preface::Whole);
    assert_eq!(preface(&[&PREFACE[..], b"\0\0\0"].concat()), Preface::Whole);
    for other in [&b"GET / HTTP/1.1\r\n"[..], b"POST", b"PR ", b"PRI * HTTP/2.1", b"PRI * HTTP/2.0\r\n\r\nSX", b"\x16"]
    {
        assert_eq!(preface(other), Preface::No, "{other:?}");
    }
}

#[test]
fn frames_that_carry_something_are_not_counted_and_all_others_are() {
    let of = |bytes: &[u8]| FrameMeter::after(0).take(bytes);
    for (kind, flags, payload, idle) in [
        (0, 0, &b"x"[..], 0),
        (0, 0, b"", 1),
        (0, 1, b"", 0),
        (1, 4, b"x", 0),
        (2, 0, &[0; 5], 1),
        (3, 0, &[0; 4], 2),
        (4, 0, b"", 1),
        (6, 0, &[0; 8], 1),
        (8, 0, &[0, 1, 0, 0], 0),
        (8, 0, &[0, 0, 0, 1], 1),
        (9, 4, b"x", 0),
        (9, 0, b"", 1),
        (200, 0, b"xyz", 1),
    ] {
        assert_eq!(of(&frame(kind, flags, payload)), idle, "{kind} {flags} {payload:?}");
    }
}

#[test]
fn the_count_does_not_depend_on_how_the_bytes_are_split() {
    let mut all = PREFACE.to_vec();
    for (kind, payload) in [(4, &b""[..]), (6, &[0; 8]), (0, &[9; 700]), (8, &[0, 0, 0, 9]), (3, &[0; 4]), (1, b"abc")]
    {
        all.extend(frame(kind, 0, payload));
    }
    let whole = FrameMeter::after(24).take(&all);
    assert_eq!(whole, 5);
    for size in 1..40 {
        let mut meter = FrameMeter::after(24);
        assert_eq!(all.chunks(size).map(|piece| meter.take(piece)).sum::<u32>(), whole, "{size}");
        assert_eq!(meter.heads(), 1, "{size}");
    }
}

#[test]
fn frames_that_may_begin_a_stream_are_counted_as_they_begin() {
    let mut meter = FrameMeter::after(0);
    for (kind, payload, heads) in [(1, &b"abc"[..], 1), (9, b"d", 1), (0, &[1; 40], 1), (5, &[0; 4], 1), (1, b"", 2)] {
        meter.take(&frame(kind, 0, payload));
        assert_eq!(meter.heads(), heads, "{kind}");
    }
    let last = frame(1, 5, b"abc");
    meter.take(&last[..8]);
    assert_eq!(meter.heads(), 2);
    meter.take(&last[8..9]);
    assert_eq!(meter.heads(), 3);
    meter.take(&last[9..]);
    assert_eq!(meter.heads(), 3);
}

#[test]
fn streams_that_are_ended_for_breaking_the_rules_are_seen_however_the_bytes_are_split() {
    let mut all = Vec::new();
    for (kind, payload) in [
        (3, &[0, 0, 0, 1][..]),
        (0, &[0, 0, 4, 3, 0, 0, 0, 0, 9, 0, 0, 0, 1]),
        (3, &[0, 0, 0, 7]),
        (8, &[0, 0, 0, 1]),
        (3, &[0, 0, 0, 1, 0]),
        (3, b""),
        (3, &[0, 0, 0, 1]),
    ] {
        all.extend(frame(kind, 0, payload));
    }
    for size in 1..all.len() + 1 {
        let (mut meter, mut seen) = (RefusalMeter::default(), Vec::new());
        all.chunks(size).for_each(|piece| meter.take(piece, |stream| seen.push(stream)));
        assert_eq!(seen, [1, 1], "{size}");
    }
}

#[test]
fn an_allowance_is_spent_earned_and_fills_with_time() {
    let start = Instant::now();
    let mut allowance = Allowance::new(3, 10, start);
    assert!(allowance.spend(3, start));
    assert!(!allowance.spend(1, start + Duration::from_millis(99)));
    assert!(allowance.spend(1, start + Duration::from_millis(100)));
    assert!(!allowance.spend(1, start + Duration::from_millis(150)));
    assert!(allowance.spend(1, start + Duration::from_millis(200)));
    allowance.earn(9);
    assert!(allowance.spend(3, start + Duration::from_millis(200)));
    assert!(!allowance.spend(1, start + Duration::from_millis(200)));
    assert!(allowance.spend(3, start + Duration::from_secs(1 << 40)));
}
