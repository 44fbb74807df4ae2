//! Paces, alone and shared, and mistakes.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::testing::{Beside, World, chain, issue, request, response};
use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// The stage of a response with a long body.
fn paced(settings: Value) -> impl Fn() -> Box<dyn Pace> {
    let chain = chain(json!([{ "bandwidth_limit": settings }]));
    move || {
        let (world, mut beside, request) = (World::new(), Beside::new(), request("GET", "/", &[]));
        let facts = world.facts();
        let (mut head, mut turn) = (response(200, &[]), beside.turn(&facts));
        let (mut stages, extent) =
            chain.begin_response_body(&mut head, &world.view(&request), Extent::Unknown, &mut turn);
        assert_eq!((stages.len(), extent), (1, Extent::Unknown));
        let Some(Stage::Pace(pace)) = stages.pop() else { panic!("another stage") };
        pace
    }
}

/// How long so many bytes take of senders that take turns, each of which writes as soon as it may.
fn time_of(paces: &mut [Box<dyn Pace>], bytes: usize, begun: Instant) -> Duration {
    let mut at = vec![begun; paces.len()];
    let mut left = bytes;
    while left > 0 {
        let next = (0..at.len()).min_by_key(|place| at[*place]).unwrap();
        let (count, from) = paces[next].reserve(left, at[next]);
        assert!(count >= 1 && count <= left);
        at[next] = at[next].max(from);
        left -= count;
    }
    *at.iter().max().unwrap() - begun
}

#[test]
fn a_stream_has_its_rate_from_the_beginning_or_after_what_is_free() {
    let now = Instant::now();
    for (settings, bytes, least, most) in [
        (json!({ "download": "1MB/s" }), 3_000_000, 2_800, 3_000),
        (json!({ "download": "1MB/s", "after": "2MB" }), 3_000_000, 800, 1_000),
        (json!({ "download": "10B/s" }), 30, 2_800, 3_000),
        (json!({ "download": "100GB/s" }), 1_000_000, 0, 10),
    ] {
        let time = time_of(&mut [paced(settings.clone())()], bytes, now).as_millis();
        assert!((least..=most).contains(&time), "{settings}: {time}");
    }
}

#[test]
fn streams_of_a_key_share_its_rate_and_each_has_a_part() {
    let make = paced(json!({ "download": "1MB/s", "per": "key" }));
    let now = Instant::now();
    let time = time_of(&mut [make(), make(), make(), make()], 4_000_000, now).as_millis();
    assert!((3_800..=4_100).contains(&time), "{time}");
    let alone = paced(json!({ "download": "1MB/s" }));
    let time = time_of(&mut [alone(), alone(), alone(), alone()], 4_000_000, now).as_millis();
    assert!((800..=1_100).contains(&time), "{time}");
}

#[test]
fn a_sender_that_was_silent_catches_up_for_a_moment_only() {
    for settings in [json!({ "download": "1MB/s" }), json!({ "download": "1MB/s", "per": "key" })] {
        let mut pace = paced(settings.clone())();
        let begun = Instant::now();
        pace.reserve(1, begun);
        let later = begun + 60 * SECOND;
        let time = time_of(&mut [pace], 1_000_000, later);
        assert!(time >= Duration::from_millis(850), "{settings}: {time:?}");
    }
}

#[test]
fn streams_that_end_before_their_turn_leave_it_to_the_others_of_their_key() {
    let make = paced(json!({ "download": "1MB/s", "per": "key" }));
    let now = Instant::now();
    let mut first = make();
    first.reserve(usize::MAX, now);
    for _ in 0..10_000 {
        let mut given_up = make();
        let (count, from) = given_up.reserve(usize::MAX, now);
        assert!(from < now + SECOND, "{:?}", from - now);
        given_up.give_back(count, now);
    }
    let time = time_of(&mut [first], 1_000_000, now).as_millis();
    assert!((850..=1_100).contains(&time), "{time}");
}

#[test]
fn a_turn_is_at_most_five_minutes_ahead_after_a_slower_rate() {
    let rates = Rates::new(10);
    let now = Instant::now();
    let number = rates.number_of(b"a", now, &mut || 7);
    let minute = 60_000_000_000;
    rates.reserve(number, (60 * minute, 0), now);
    assert_eq!(rates.reserve(number, (1, 0), now), 5 * minute);
    assert_eq!(rates.reserve(number, (u64::MAX, 0), now), 5 * minute);
    assert_eq!(rates.reserve(number, (1, 0), now), 5 * minute, "nothing overflows");
}

#[test]
fn bodies_that_are_empty_or_absent_pass_no_stage_and_uploads_make_one_for_each_attempt() {
    let chain = chain(json!([{ "bandwidth_limit": { "download": "1MB/s", "upload": "1MB/s" } }]));
    let (world, mut beside, mut head) = (World::new(), Beside::new(), request("POST", "/", &[]));
    let facts = world.facts();
    for extent in [Extent::Absent, Extent::Known(0)] {
        let mut answer = response(200, &[]);
        let (stages, behind) =
            chain.begin_response_body(&mut answer, &world.view(&head), extent, &mut beside.turn(&facts));
        assert!(stages.is_empty() && behind == extent);
    }
    let (make, extent) = chain.begin_request_body(&mut head, Extent::Known(7), &mut beside.turn(&facts));
    assert_eq!((make.len(), extent), (1, Extent::Known(7)));
    assert!(matches!((make[0](), make[0]()), (Stage::Pace(_), Stage::Pace(_))));
}

#[test]
fn mistakes_are_found_when_the_configuration_is_checked() {
    let rate = |text: &str| format!(": `{text}` is not a rate such as 1MB/s or 64KiB/s");
    for (settings, told) in [
        (json!({}), ": no rate is given (add `download: 1MB/s`, `upload: 1MB/s` or both)".to_owned()),
        (json!({ "download": "fast" }), rate("fast")),
        (json!({ "download": "1MB" }), rate("1MB")),
        (json!({ "download": "0/s" }), rate("0/s")),
        (json!({ "download": "-1/s" }), rate("-1/s")),
        (json!({ "download": "99999999999GB/s" }), rate("99999999999GB/s")),
        (
            json!({ "upload": "1MB/s", "after": "1MB" }),
            "after: `after` is for `download` of each stream (leave it out)".to_owned(),
        ),
        (
            json!({ "download": "1MB/s", "key": "client" }),
            "per: `key`, `ipv6_prefix` and `keys_max` have no effect with `per: stream` (write `per: key`)".to_owned(),
        ),
        (
            json!({ "download": "1MB/s", "per": "key", "keys_max": 0 }),
            "keys_max: 0 keys are not between 1 and 10000000 (leave it out for 100000)".to_owned(),
        ),
        (
            json!({ "download": "1MB/s", "per": "key", "key": { "header": "a b" } }),
            "key/header: `a b` is not a header field name".to_owned(),
        ),
    ] {
        assert_eq!(issue("bandwidth_limit", settings), told);
    }
    chain(json!([{ "bandwidth_limit": { "download": "64 KiB/s" } }]));
}

proptest! {
    /// No span of time has more than the rate and a moment's burst.
    #[test]
    fn no_span_of_time_has_more_than_the_rate(
        rate in 1_u64..10_000_000, steps in prop::collection::vec((1_usize..100_000, 0_u64..300), 1..100), shares in any::<bool>(),
    ) {
        let settings = if shares { json!({ "download": format!("{rate}/s"), "per": "key" }) } else { json!({ "download": format!("{rate}/s") }) };
        let mut pace = paced(settings)();
        let (mut now, mut sent) = (Instant::now(), Vec::new());
        for (wanted, pause) in steps {
            let (count, from) = pace.reserve(wanted, now);
            now = now.max(from);
            sent.push((now, count as u64));
            now += Duration::from_millis(pause);
        }
        let allowed = |time: Duration| (time.as_nanos() + u128::from(2 * BURST)) * u128::from(rate) / 1_000_000_000 + 2;
        for first in 0..sent.len() {
            let mut sum = 0;
            // What begins at a moment may leave at it.
            for (at, count) in &sent[first..] {
                prop_assert!(u128::from(sum) <= allowed(*at - sent[first].0), "{} {:?}", sum, *at - sent[first].0);
                sum += count;
            }
        }
    }
}
