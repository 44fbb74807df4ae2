use super::*;

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

#[test]
fn time_that_an_allowance_was_full_pays_for_nothing_later() {
    let start = Instant::now();
    let after = |millis| start + Duration::from_millis(millis);
    let mut allowance = Allowance::new(3, 10, start);
    // One by one or at once.
    for (at, pieces) in [(60_000, vec![1; 3]), (120_000, vec![3]), (180_000, vec![2, 1])] {
        assert!(pieces.into_iter().all(|count| allowance.spend(count, after(at))));
        assert!(!allowance.spend(1, after(at)) && !allowance.spend(1, after(at + 99)));
        assert!(allowance.spend(1, after(at + 100)));
        assert!(!allowance.spend(1, after(at + 199)));
    }
    // Nor does that before what was earned filled it.
    allowance.earn(3);
    assert!(allowance.spend(3, after(180_250)));
    assert!(!allowance.spend(1, after(180_349)));
    assert!(allowance.spend(1, after(180_350)));
}
