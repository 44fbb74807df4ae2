use super::*;

#[test]
fn a_ramp_climbs_from_a_tenth_to_the_whole_and_never_falls() {
    let (ramp, over, begun) = (Ramp::default(), Duration::from_secs(30), Instant::now());
    assert!((ramp.share(), ramp.step(begun, over)) == (WHOLE, false));
    ramp.begin();
    assert!(!ramp.step(begun, over), "the time counts from the first step");
    let mut last = FIRST;
    let mut changes = 0;
    for millis in (0..=30_000).step_by(100) {
        let changed = ramp.step(begun + Duration::from_millis(millis), over);
        assert_eq!(changed, ramp.share() != last);
        assert!(ramp.share() >= last);
        changes += u32::from(changed);
        last = ramp.share();
    }
    assert_eq!((last, changes), (WHOLE, WHOLE - FIRST));
    assert_eq!(share_after(Duration::ZERO, Duration::ZERO), WHOLE);
}
