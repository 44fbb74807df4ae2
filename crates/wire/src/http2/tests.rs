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
