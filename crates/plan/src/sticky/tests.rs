//! What is made of cookies and tables, and of endpoints that come and go.

use std::time::Duration;

use model::fitness::AdminState;
use model::persistence::{SameSite, Secret, SessionCookie, SessionPick, SessionRoute};
use model::snapshot::Balance::{Hash as ByHash, RoundRobin};
use model::snapshot::{Hash, HashKey};

use super::*;
use crate::balance::tests::begin;
use crate::testing::{Bell, Worker, anywhere, bounded, cluster, fetched, head, health_check, plan_of, queue, weighted};
use crate::{Ask, ClusterPlan, LastResort, Lease, Outcome, Pick, Refusal, Wait};

const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));
const TABLE: SessionTable = SessionTable { entries_max: 100, expires: Duration::from_secs(60), is_replicated: false };

fn cookie() -> SessionCookie {
    SessionCookie {
        name: "sticky".into(),
        secrets: vec![secret("first of all secrets")],
        path: "/".into(),
        domain: None,
        same_site: SameSite::Lax,
        secure: None,
        http_only: true,
        max_age: None,
        idle_max: None,
        life_max: None,
        pass_on: false,
        mark_private: true,
    }
}

fn secret(text: &str) -> Secret {
    Secret(text.as_bytes().into())
}

fn by(by: SessionBy) -> Option<model_of::Persistence> {
    Some(model_of::Persistence { by, otherwise: WhenAway::Another, when_full: WhenFull::Wait })
}

fn by_cookie(cookie: SessionCookie) -> Option<model_of::Persistence> {
    by(SessionBy::Cookie(cookie))
}

fn of(persistence: Option<model_of::Persistence>, count: usize) -> Cluster {
    cluster("shop", RoundRobin, weighted(&vec![1; count])).with(|it| it.persistence = persistence)
}

fn at(seconds: u64) -> Moment {
    Moment { now: begin() + Duration::from_secs(seconds), unix: Duration::from_secs(1_700_000_000 + seconds) }
}

fn find(plan: &ClusterPlan, fields: &[(&str, &str)], when: u64) -> Session {
    let head = head("GET", "/?r=x.b", fields);
    plan.persistence.as_ref().unwrap().find(Some(&head), CLIENT, at(when), &mut || 7)
}

/// The fields of a response after `endpoint` has answered with `fields`.
fn kept(plan: &ClusterPlan, session: &Session, endpoint: usize, when: u64, fields: &[(&str, &str)]) -> Vec<String> {
    let mut response = ResponseHead::default();
    for (name, value) in fields {
        response.fields.append(&FieldName::new(name).unwrap(), value.as_bytes());
    }
    plan.persistence.as_ref().unwrap().keep(session, endpoint, Some((&mut response, false)), (at(when), &mut || 7));
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    response.fields.iter().map(|field| format!("{}: {}", text(field.name), text(field.value))).collect()
}

/// The value of the cookie that a new session at `endpoint` gets.
fn given(plan: &ClusterPlan, endpoint: usize, when: u64) -> String {
    let fields = kept(plan, &Session::default(), endpoint, when, &[]);
    fields[0].split(['=', ';']).nth(1).unwrap().to_owned()
}

fn shown(plan: &ClusterPlan, value: &str, when: u64) -> Option<u32> {
    find(plan, &[("cookie", &format!("sticky={value}"))], when).pinned()
}

fn ask(pinned: u32) -> Ask<'static> {
    Ask { pinned: Some(pinned), ..Ask::new(begin()) }
}

/// Where a request goes that is pinned there: an index, or what came instead.
fn picked(plan: &ClusterPlan, pinned: u32) -> Result<usize, &'static str> {
    match Worker::new(1).pick_for(plan, &ask(pinned)) {
        Pick::Endpoint(lease) => Ok(lease.endpoint_index()),
        Pick::Full => Err("full"),
        Pick::None => Err("none"),
    }
}

#[test]
fn a_cookie_brings_back_the_endpoint_that_gave_it_and_is_written_once() {
    let plan = plan_of(of(by_cookie(cookie()), 3));
    for endpoint in 0..3 {
        let first = kept(&plan, &Session::default(), endpoint, 0, &[("x", "y")]);
        assert_eq!(first[0], "x: y");
        let value = given(&plan, endpoint, 0);
        assert_eq!(value.len(), 44);
        assert_eq!(first[1], format!("Set-Cookie: sticky={value}; Path=/; SameSite=Lax; HttpOnly"));
        assert_eq!(first[2..], ["Cache-Control: private".to_owned()]);
        let session = find(&plan, &[("cookie", &format!("a=1; sticky={value}; b=2"))], 1_000_000);
        assert_eq!(session.pinned(), Some(endpoint as u32));
        assert_eq!(kept(&plan, &session, endpoint, 1_000_000, &[]), [""; 0]);
        assert_eq!(session.outcome(Some(endpoint)), Some(SessionPick::Kept));
        let other = (endpoint + 1) % 3;
        assert!(kept(&plan, &session, other, 5, &[])[0].starts_with("Set-Cookie: sticky="), "it moves");
        assert_eq!(session.outcome(Some(other)), Some(SessionPick::Moved));
    }
}

#[test]
fn a_cookie_has_the_attributes_that_are_written() {
    let settings = SessionCookie {
        path: "/shop".into(),
        domain: Some("example.com".into()),
        same_site: SameSite::None,
        secure: Some(true),
        http_only: false,
        max_age: Some(Duration::from_secs(600)),
        life_max: Some(Duration::from_secs(700)),
        mark_private: false,
        ..cookie()
    };
    let plan = plan_of(of(by_cookie(settings), 1));
    let fields = kept(&plan, &Session::default(), 0, 0, &[]);
    assert_eq!(fields.len(), 1);
    let end = "; Path=/shop; Domain=example.com; SameSite=None; Secure; Max-Age=600";
    assert!(fields[0].ends_with(end), "{}", fields[0]);
    let value = given(&plan, 0, 0);
    let session = find(&plan, &[("cookie", &format!("sticky={value}"))], 400);
    let again = kept(&plan, &session, 0, 400, &[]);
    assert!(again[0].ends_with("; Max-Age=300"), "no longer than the session may live: {}", again[0]);
}

#[test]
fn a_response_that_is_private_already_stays_as_it_is() {
    let plan = plan_of(of(by_cookie(cookie()), 1));
    for (value, count) in [("no-store", 2), ("max-age=3, Private", 2), ("public, max-age=60", 3), ("no-storex", 3)] {
        let fields = kept(&plan, &Session::default(), 0, 0, &[("cache-control", value)]);
        assert_eq!(fields.len(), count, "{fields:?}");
    }
}

#[test]
fn a_cookie_that_is_not_ours_is_as_if_there_were_none() {
    let plan = plan_of(of(by_cookie(cookie()), 2));
    let genuine = given(&plan, 1, 0);
    assert_eq!(shown(&plan, &genuine, 0), Some(1));
    let other = |persistence, name: &str| given(&plan_of(Cluster { name: name.into(), ..of(persistence, 2) }), 1, 0);
    let wrong_secret = SessionCookie { secrets: vec![secret("another secret of ours")], ..cookie() };
    for forged in [
        other(by_cookie(cookie()), "other-cluster"),
        other(by_cookie(wrong_secret), "shop"),
        String::new(),
        genuine[..43].to_owned(),
        format!("{genuine}A"),
        format!("\"{genuine}\""),
        "A".repeat(44),
        "A".repeat(20_000),
        genuine.replace(&genuine[3..4], if &genuine[3..4] == "A" { "B" } else { "A" }),
    ] {
        assert_eq!(shown(&plan, &forged, 0), None, "{forged}");
    }
    for place in 0..44 {
        let mut changed = genuine.clone().into_bytes();
        changed[place] = if changed[place] == b'Q' { b'R' } else { b'Q' };
        assert_eq!(shown(&plan, std::str::from_utf8(&changed).unwrap(), 0), None, "{place}");
    }
}

#[test]
fn of_several_cookies_the_first_genuine_one_counts_within_a_bound() {
    let plan = plan_of(of(by_cookie(cookie()), 2));
    let (zero, one) = (given(&plan, 0, 0), given(&plan, 1, 0));
    let found = |text: String| find(&plan, &[("cookie", &text)], 0).pinned();
    assert_eq!(found(format!("sticky=planted; sticky={one}; sticky={zero}")), Some(1));
    let planted = "sticky=x; ".repeat(SESSION_COOKIES_MAX);
    assert_eq!(found(format!("{planted}sticky={one}")), None);
    let session = find(&plan, &[("cookie", "a=1"), ("cookie", &format!("sticky={one}"))], 0);
    assert_eq!(session.pinned(), Some(1));
}

#[test]
fn endpoints_do_not_see_the_cookie_unless_they_are_to() {
    for (pass_on, expected) in [(false, "a=1; b=2"), (true, "a=1; sticky=x; b=2; sticky=y")] {
        let plan = plan_of(of(by_cookie(SessionCookie { pass_on, ..cookie() }), 1));
        let mut head = head("GET", "/", &[("Cookie", "a=1; sticky=x; b=2; sticky=y")]);
        plan.persistence.as_ref().unwrap().clean(&mut head, &mut Vec::new());
        assert_eq!(head.fields.get_known(model::Known::Cookie), Some(expected.as_bytes()));
    }
}

#[test]
fn a_cookie_ends_when_it_was_idle_or_lived_too_long_and_is_refreshed_before() {
    let bounds =
        SessionCookie { idle_max: Some(Duration::from_secs(80)), life_max: Some(Duration::from_secs(300)), ..cookie() };
    let plan = plan_of(of(by_cookie(bounds), 1));
    let first = given(&plan, 0, 0);
    let session = |value: &str, when| find(&plan, &[("cookie", &format!("sticky={value}"))], when);
    assert_eq!((shown(&plan, &first, 79), shown(&plan, &first, 80)), (Some(0), None));
    assert_eq!(kept(&plan, &session(&first, 9), 0, 9, &[]).len(), 0, "not with each response");
    let mut value = first.clone();
    for when in (10..300).step_by(10) {
        let fields = kept(&plan, &session(&value, when), 0, when, &[]);
        assert!(!fields.is_empty(), "refreshed after {when} s");
        value = fields[0].split(['=', ';']).nth(1).unwrap().to_owned();
    }
    assert_eq!((shown(&plan, &value, 299), shown(&plan, &value, 300)), (Some(0), None), "it has lived");
    assert_eq!(shown(&plan, &first, 290), None, "an old one does not come back");
    let ahead = given(&plan, 0, 2 * 86_400);
    assert_eq!((shown(&plan, &ahead, 0), shown(&plan, &ahead, 86_400)), (None, Some(0)));
}

#[test]
fn a_secret_is_changed_without_losing_a_session() {
    let both = |first: &str, second: &str| SessionCookie { secrets: vec![secret(first), secret(second)], ..cookie() };
    let old = plan_of(of(by_cookie(cookie()), 2));
    let new = plan_of(of(by_cookie(both("second of all secrets", "first of all secrets")), 2));
    let value = given(&old, 1, 0);
    let session = find(&new, &[("cookie", &format!("sticky={value}"))], 0);
    assert_eq!(session.pinned(), Some(1));
    assert_eq!(kept(&new, &session, 1, 0, &[]).len(), 2, "signed by the first from now on");
    let value = given(&new, 1, 0);
    assert_eq!(shown(&old, &value, 0), None);
    let only_new = SessionCookie { secrets: vec![secret("second of all secrets")], ..cookie() };
    assert_eq!(shown(&plan_of(of(by_cookie(only_new), 2)), &value, 0), Some(1));
}

#[test]
fn an_endpoint_is_known_by_its_name_wherever_it_stands_and_while_it_is_gone() {
    let three = of(by_cookie(cookie()), 3);
    let mut turned = three.clone();
    turned.endpoints.reverse();
    let mut without = three.clone();
    without.endpoints.remove(2);
    let (three, turned, without) = (plan_of(three), plan_of(turned), plan_of(without));
    let value = given(&three, 2, 0);
    assert_eq!((shown(&three, &value, 0), shown(&turned, &value, 0)), (Some(2), Some(0)));
    assert_eq!(shown(&without, &value, 0), Some(GONE));
    assert!(picked(&without, GONE).is_ok(), "another one");
    let session = find(&without, &[("cookie", &format!("sticky={value}"))], 0);
    assert_eq!(session.outcome(Some(0)), Some(SessionPick::Moved));
}

#[test]
fn a_header_sticks_while_it_is_used_and_moves_with_its_answer() {
    let plan = plan_of(of(by(SessionBy::Header("x-user".into(), TABLE)), 3));
    let anna = |when| find(&plan, &[("X-User", "anna")], when);
    let session = anna(0);
    assert_eq!((session.pinned(), session.outcome(Some(2))), (None, Some(SessionPick::New)));
    kept(&plan, &session, 2, 0, &[]);
    for when in [0, 50, 100, 150] {
        assert_eq!(anna(when).pinned(), Some(2));
    }
    assert_eq!(find(&plan, &[("x-user", "bert")], 150).pinned(), None);
    kept(&plan, &anna(150), 1, 150, &[]);
    assert_eq!(anna(209).pinned(), Some(1));
    assert_eq!(anna(269).pinned(), None, "expired");
    for nothing in [&[][..], &[("x-user", "")]] {
        let session = find(&plan, nothing, 0);
        assert_eq!(session.pinned(), None);
        kept(&plan, &session, 1, 0, &[]);
    }
    assert_eq!(plan.persistence.as_ref().unwrap().table(at(150).now), Some((0, 0)));
}

#[test]
fn an_answer_that_comes_late_does_not_take_a_session_from_where_it_went_meanwhile() {
    let plan = plan_of(of(by(SessionBy::Header("x-user".into(), TABLE)), 3));
    let anna = |when| find(&plan, &[("X-User", "anna")], when);
    let (slow, fast) = (anna(0), anna(0));
    kept(&plan, &fast, 2, 1, &[]);
    kept(&plan, &slow, 0, 40, &[]);
    assert_eq!(anna(40).pinned(), Some(2), "the first answer says where it begins");
    let (slow, fast) = (anna(40), anna(40));
    kept(&plan, &fast, 1, 41, &[]);
    kept(&plan, &slow, 0, 42, &[]);
    assert_eq!(anna(42).pinned(), Some(1), "and the first where it moves");
    kept(&plan, &anna(42), 0, 43, &[]);
    assert_eq!(anna(43).pinned(), Some(0), "who knew that may move it on");
    kept(&plan, &slow, 1, 200, &[]);
    assert_eq!(anna(200).pinned(), Some(1), "nobody goes by what has expired");
}

#[test]
fn a_source_counts_as_far_as_its_prefix() {
    let by_source = |v4, v6| {
        let plan = plan_of(of(by(SessionBy::Source(PrefixLengths { v4, v6 }, TABLE)), 3));
        move |address: &str| {
            let client = address.parse().unwrap();
            let persistence = plan.persistence.as_ref().unwrap();
            let session = persistence.find(None, client, at(0), &mut || 7);
            if session.pinned().is_none() {
                persistence.keep(&session, 1, None, (at(0), &mut || 7));
            }
            session.pinned().is_some()
        }
    };
    let exact = by_source(32, 64);
    assert!(!exact("192.0.2.1") && exact("192.0.2.1") && exact("::ffff:192.0.2.1") && !exact("192.0.2.2"));
    assert!(!exact("2001:db8::1") && exact("2001:db8::2") && !exact("2001:db8:0:1::1"));
    let wide = by_source(24, 0);
    assert!(!wide("192.0.2.1") && wide("192.0.2.99") && !wide("192.0.3.1"));
    assert!(!wide("2001:db8::1") && wide("fe80::1"));
    let all = by_source(0, 128);
    assert!(!all("192.0.2.1") && all("10.0.0.1") && !all("2001:db8::1") && !all("2001:db8::2"));
}

#[test]
fn what_the_application_gives_out_is_learned_and_nothing_else() {
    for (learned, given, asked) in [
        (Learned::Cookie("ID".into()), ("Set-Cookie", "ID=7f; Path=/"), ("Cookie", "a=b; ID=7f")),
        (Learned::Header("x-session".into()), ("X-Session", "7f"), ("x-session", "7f")),
    ] {
        let plan = plan_of(of(by(SessionBy::Learned(learned, TABLE)), 3));
        let unknown = find(&plan, &[asked], 0);
        assert_eq!((unknown.pinned(), unknown.outcome(Some(1))), (None, None), "none begins by what a client says");
        kept(&plan, &unknown, 1, 0, &[]);
        assert_eq!(find(&plan, &[asked], 0).pinned(), None, "a client cannot enter what it likes");
        kept(&plan, &Session::default(), 2, 0, &[("Set-Cookie", "other=1"), given]);
        let session = find(&plan, &[asked], 30);
        assert_eq!(session.pinned(), Some(2));
        kept(&plan, &session, 0, 30, &[]);
        assert_eq!(find(&plan, &[asked], 30).pinned(), Some(0), "it moves with who answers");
        assert_eq!(find(&plan, &[asked], 90).pinned(), None);
    }
}

#[test]
fn of_several_values_the_first_that_is_known_counts_within_a_bound() {
    let learned = plan_of(of(by(SessionBy::Learned(Learned::Cookie("ID".into()), TABLE)), 3));
    kept(&learned, &Session::default(), 2, 0, &[("Set-Cookie", "ID=7f")]);
    let route = SessionRoute { on: HashKey::Cookie("ID".into()), label: "route".into() };
    let mut labelled = of(by(SessionBy::Route(route)), 3);
    labelled.endpoints[2].placement.labels = [("route".to_owned(), "7f".to_owned())].into();
    for plan in [learned, plan_of(labelled)] {
        let pinned = |planted: usize| {
            let cookies = format!("{}ID=7f", "ID=planted; ".repeat(planted));
            find(&plan, &[("cookie", &cookies)], 0).pinned()
        };
        assert_eq!([0, 1, SESSION_COOKIES_MAX - 1].map(pinned), [Some(2); 3]);
        assert_eq!(pinned(SESSION_COOKIES_MAX), None);
    }
}

#[test]
fn a_route_names_its_endpoint() {
    let mut config = of(None, 3);
    for (endpoint, name) in config.endpoints.iter_mut().zip(["a", "b", "node.c"]) {
        endpoint.placement.labels.insert("route".into(), name.into());
    }
    let on = |on| by(SessionBy::Route(SessionRoute { on, label: "route".into() }));
    let plan = |key| plan_of(config.clone().with(|it| it.persistence = on(key)));
    let by_cookie = plan(HashKey::Cookie("id".into()));
    let pinned = |value: &str| find(&by_cookie, &[("cookie", &format!("id={value}"))], 0).pinned();
    assert_eq!((pinned("7f.a"), pinned("b"), pinned("node.c")), (Some(0), Some(1), Some(2)));
    assert_eq!((pinned("7f.x"), pinned(""), pinned("a.7f"), pinned(".")), (None, None, None, None));
    assert_eq!(find(&plan(HashKey::Header("x-node".into())), &[("X-Node", "b")], 0).pinned(), Some(1));
    assert_eq!(find(&plan(HashKey::Query("r".into())), &[], 0).pinned(), Some(1));
}

#[test]
fn a_drained_endpoint_keeps_its_sessions_and_one_that_is_away_does_not() {
    let mut config = of(by_cookie(cookie()), 2).with(|it| it.health_check = health_check(1, 1));
    let with = |config: &mut Cluster, state| {
        config.endpoints[1].state = state;
        plan_of(config.clone())
    };
    assert_eq!(picked(&with(&mut config, AdminState::Drain), 1), Ok(1));
    assert_eq!(picked(&with(&mut config, AdminState::Maintenance), 1), Ok(0));
    assert_eq!(picked(&with(&mut config, AdminState::Down), 1), Ok(0));
    let drained = with(&mut config, AdminState::Drain);
    drained.observe(1, Outcome::Failure);
    assert_eq!(picked(&drained, 1), Ok(0), "drained and down");
    drained.observe(1, Outcome::Success);
    assert_eq!(picked(&drained, 1), Ok(1));
    let up = with(&mut config, AdminState::Auto);
    up.observe(1, Outcome::Failure);
    assert_eq!(picked(&up, 1), Ok(0));
    config.endpoints[1].weight = 0;
    assert_eq!(picked(&with(&mut config, AdminState::Auto), 1), Ok(1), "weight 0 is for those who are new");
    config.endpoints[1].weight = 1;
    config.persistence.as_mut().unwrap().otherwise = WhenAway::Refuse;
    assert_eq!(picked(&with(&mut config, AdminState::Maintenance), 1), Err("none"));
    assert_eq!(picked(&with(&mut config, AdminState::Maintenance), GONE), Err("none"));
    assert_eq!(picked(&with(&mut config, AdminState::Drain), 1), Ok(1));
}

#[test]
fn an_attempt_that_failed_is_followed_by_another_endpoint_unless_sessions_stay() {
    let mut config = of(by_cookie(cookie()), 2);
    let second = |plan: &ClusterPlan| {
        let tried = [plan.endpoints[1].state.slot];
        match Worker::new(1).pick_for(plan, &Ask { tried: &tried, ..ask(1) }) {
            Pick::Endpoint(lease) => lease.endpoint_index(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(second(&plan_of(config.clone())), 0);
    config.persistence.as_mut().unwrap().otherwise = WhenAway::Refuse;
    let plan = plan_of(config);
    let tried = [plan.endpoints[1].state.slot];
    let once = Ask { tried: &tried, ..ask(1) };
    assert!(matches!(Worker::new(1).pick_for(&plan, &once), Pick::None), "it has failed, and no other may have it");
    let again = Ask { last_resort: LastResort::Repeat, ..once };
    let Pick::Endpoint(lease) = Worker::new(1).pick_for(&plan, &again) else { panic!("none") };
    assert_eq!((lease.endpoint_index(), lease.reason()), (1, model::PickReason::Retry));
    let has_untried = |pinned, tried: &[u32]| {
        let cache = &mut crate::PickCache::default();
        plan.has_untried(cache, crate::Subset::ALL, pinned, |slot| tried.contains(&slot))
    };
    assert_eq!(
        [has_untried(Some(1), &[]), has_untried(Some(1), &tried), has_untried(None, &tried)],
        [true, false, true]
    );
}

fn full(has_queue: bool, otherwise: WhenAway, when_full: WhenFull) -> Arc<ClusterPlan> {
    let persistence = Some(model_of::Persistence { by: SessionBy::Cookie(cookie()), otherwise, when_full });
    let queue = if has_queue { queue(10) } else { None };
    plan_of(cluster("shop", RoundRobin, bounded(&[1, 1])).with(|it| {
        it.persistence = persistence;
        it.queue = queue
    }))
}

#[test]
fn a_session_whose_endpoint_is_full_waits_moves_or_is_refused() {
    use {WhenAway as A, WhenFull as F};
    for (has_queue, otherwise, when_full, expected) in [
        (true, A::Another, F::Wait, Err("full")),
        (true, A::Refuse, F::Wait, Err("full")),
        (true, A::Another, F::Away, Ok(0)),
        (true, A::Refuse, F::Away, Err("none")),
        (false, A::Another, F::Wait, Ok(0)),
        (false, A::Refuse, F::Wait, Err("full")),
    ] {
        let plan = full(has_queue, otherwise, when_full);
        let Pick::Endpoint(held) = Worker::new(1).pick_for(&plan, &ask(1)) else { panic!("it is free") };
        assert_eq!(held.endpoint_index(), 1);
        assert_eq!(picked(&plan, 1), expected, "{has_queue} {otherwise:?} {when_full:?}");
        if !has_queue {
            let refused = plan.enqueue(Wait { pinned: Some(1), ..anywhere() }, std::task::Waker::noop());
            assert_eq!(refused.unwrap_err(), Refusal::Full);
        }
        drop(held);
        assert_eq!(picked(&plan, 1), Ok(1));
    }
}

/// Endpoints 0 and 1 have one place each, which are taken, and 2 is drained with room.
fn drained(otherwise: WhenAway) -> (Arc<ClusterPlan>, [Lease; 2]) {
    let mut config = (*full(true, otherwise, WhenFull::Away).cluster).clone();
    config.endpoints = bounded(&[1, 1, 1]);
    config.endpoints[2].state = AdminState::Drain;
    let plan = plan_of(config);
    let mut worker = Worker::new(1);
    let held = [worker.lease(&plan), worker.lease(&plan)];
    (plan, held)
}

#[test]
fn a_drained_endpoint_serves_its_sessions_while_others_wait_for_the_rest() {
    for otherwise in [WhenAway::Another, WhenAway::Refuse] {
        let (plan, _held) = drained(otherwise);
        let _waits = plan.enqueue(anywhere(), std::task::Waker::noop()).unwrap();
        assert_eq!(picked(&plan, 2), Ok(2), "nobody who waits could go there");
        assert_eq!(picked(&plan, 0), Err("full"), "here somebody could");
    }
}

#[test]
fn who_waits_for_its_endpoint_gets_that_one_in_order_and_another_when_it_goes_away() {
    let plan = full(true, WhenAway::Another, WhenFull::Wait);
    let mut worker = Worker::new(1);
    let mut take = |pinned| match worker.pick_for(&plan, &ask(pinned)) {
        Pick::Endpoint(lease) => lease,
        other => panic!("{other:?}"),
    };
    let (zero, one) = (take(0), take(1));
    let (bells, wakers): (Vec<_>, Vec<_>) = (0..3).map(|_| Bell::new()).unzip();
    let rung = || bells.iter().map(|bell| bell.rung()).collect::<Vec<_>>();
    let wait = |pinned| Wait { pinned, ..anywhere() };
    let any = plan.enqueue(wait(None), &wakers[0]).unwrap();
    let first = plan.enqueue(wait(Some(1)), &wakers[1]).unwrap();
    let second = plan.enqueue(wait(Some(1)), &wakers[2]).unwrap();
    drop(one);
    assert_eq!(rung(), [1, 0, 0], "the oldest could use it");
    let lease = fetched(&any).unwrap();
    assert_eq!(lease.endpoint_index(), 1);
    drop(zero);
    assert_eq!(rung(), [1, 0, 0], "nobody waits for that one");
    assert_eq!(picked(&plan, 1), Err("full"), "those who wait are not overtaken");
    drop(lease);
    assert_eq!(rung(), [1, 1, 0]);
    assert_eq!(fetched(&first).map(|lease| lease.endpoint_index()), Some(1));
    assert_eq!(fetched(&second).map(|lease| lease.endpoint_index()), Some(1));
}

#[test]
fn who_waits_for_an_endpoint_that_goes_down_gets_another() {
    for (otherwise, expected) in [(WhenAway::Another, 1), (WhenAway::Refuse, 0)] {
        let mut config = (*full(true, otherwise, WhenFull::Wait).cluster).clone();
        config.health_check = health_check(1, 1);
        let plan = plan_of(config);
        let Pick::Endpoint(_held) = Worker::new(1).pick_for(&plan, &ask(1)) else { panic!("it is free") };
        let (bell, waker) = Bell::new();
        let _ticket = plan.enqueue(Wait { pinned: Some(1), ..anywhere() }, &waker).unwrap();
        assert_eq!(bell.rung(), 0);
        plan.observe(1, Outcome::Failure);
        assert_eq!(bell.rung(), expected);
    }
}

#[test]
fn a_table_lives_through_changes_and_finds_an_endpoint_that_comes_back() {
    let config = of(by(SessionBy::Header("x-user".into(), TABLE)), 3);
    let pinned = |plan: &ClusterPlan| find(plan, &[("x-user", "anna")], 1).pinned();
    let first = plan_of(config.clone());
    kept(&first, &find(&first, &[("x-user", "anna")], 0), 2, 0, &[]);
    let mut fewer = config.clone();
    fewer.endpoints.remove(2);
    let second = ClusterPlan::compile(Arc::new(fewer), Some(&first));
    assert_eq!(pinned(&second), Some(GONE));
    let smaller = SessionTable { entries_max: 10, expires: Duration::from_secs(5), is_replicated: false };
    let third = config.clone().with(|it| it.persistence = by(SessionBy::Header("x-user".into(), smaller)));
    let third = ClusterPlan::compile(Arc::new(third), Some(&second));
    assert_eq!(pinned(&third), Some(2));
    let entries = |plan: &ClusterPlan| plan.persistence.as_ref().unwrap().table(at(1).now).map(|(entries, _)| entries);
    for user in 0..20 {
        let fields = [("x-user", &*format!("user-{user}"))];
        kept(&second, &find(&second, &fields, 1), 0, 1, &[]);
        assert_eq!(find(&third, &fields, 1).pinned(), Some(0), "it began while the change was under way");
    }
    assert_eq!(entries(&second), Some(21), "the bound holds from when the plan does");
    let third = Arc::new(third);
    third.take_effect();
    assert_eq!(entries(&third), Some(10));
    let other = config.with(|it| it.persistence = by(SessionBy::Header("x-other".into(), TABLE)));
    let fourth = ClusterPlan::compile(Arc::new(other), Some(&third));
    assert_eq!(find(&fourth, &[("x-other", "anna")], 1).pinned(), None, "known by something else");
}

#[test]
fn places_of_sessions_count_for_a_bounded_load() {
    let bound = Hash { load_max: Some(100), ..Hash::of_source() };
    let config = cluster("shop", ByHash(bound), weighted(&[1, 1])).with(|it| it.persistence = by_cookie(cookie()));
    let plan = plan_of(config);
    let mut worker = Worker::new(1);
    let pinned: Vec<_> = (0..10).map(|_| worker.pick_for(&plan, &ask(0))).collect();
    for key in 0..10 {
        let unpinned = Ask { key: Some(crate::random::mix(key)), pinned: None, ..ask(0) };
        let Pick::Endpoint(lease) = worker.pick_for(&plan, &unpinned) else { panic!("none") };
        assert_eq!(lease.endpoint_index(), 1, "the other has more than its share");
    }
    drop(pinned);
    assert_eq!(plan.endpoints[0].state.in_flight(), 0);
}

#[test]
fn where_there_are_no_sessions_one_endpoint_may_be_liked_best() {
    let plan = plan_of(of(None, 3));
    for liked in [2, 0, 1, 1] {
        assert_eq!(picked(&plan, liked), Ok(liked as usize));
    }
    // One that was tried, or is not there, is as any other.
    let tried = [plan.endpoints[1].state.slot];
    let mut worker = Worker::new(1);
    for _ in 0..6 {
        match worker.pick_for(&plan, &Ask { tried: &tried, ..ask(1) }) {
            Pick::Endpoint(lease) => assert_ne!(lease.endpoint_index(), 1),
            _ => panic!("nobody"),
        }
    }
    assert!(picked(&plan, 7).is_ok());
}
