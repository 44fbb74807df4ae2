//! Connections are counted by network, refused beyond a bound, and given back.

use std::time::Duration;

use super::*;

fn bounds(max: Option<u32>, rate: Option<&str>) -> ConnectionsPerAddress {
    ConnectionsPerAddress {
        max,
        rate: rate.map(str::to_owned),
        burst: None,
        except: vec!["192.0.2.128/25".parse().unwrap()],
        ipv4_prefix: 32,
        ipv6_prefix: 64,
        keys_max: 1_000,
    }
}

fn open(of: &PerAddress, address: &str, now: Instant) -> Result<Option<OpenPlace>, Beyond> {
    of.open(address.parse().unwrap(), now, &mut || 7)
}

#[test]
fn an_address_has_so_many_connections_and_each_that_ends_makes_room() {
    let (of, now) = (PerAddress::compile(&bounds(Some(2), None), None).unwrap(), Instant::now());
    let first = open(&of, "192.0.2.7", now).unwrap();
    let _second = open(&of, "::ffff:192.0.2.7", now).unwrap();
    assert_eq!(open(&of, "192.0.2.7", now).err(), Some(Beyond::Max));
    assert!(of.is_full("192.0.2.7".parse().unwrap()) && !of.is_full("192.0.2.8".parse().unwrap()));
    assert!(open(&of, "192.0.2.8", now).is_ok());
    drop(first);
    assert!(!of.is_full("192.0.2.7".parse().unwrap()) && open(&of, "192.0.2.7", now).is_ok());
    let networks = [open(&of, "2001:db8::1", now), open(&of, "2001:db8::ffff:1", now)];
    assert!(networks.iter().all(Result::is_ok));
    assert_eq!(open(&of, "2001:db8::2:1", now).err(), Some(Beyond::Max), "IPv6 addresses count by their network");
}

#[test]
fn those_who_are_excepted_are_not_counted() {
    let (of, now) = (PerAddress::compile(&bounds(Some(1), Some("1/h")), None).unwrap(), Instant::now());
    let held: Vec<_> = (0..10).map(|_| open(&of, "192.0.2.200", now).unwrap()).collect();
    assert!(held.iter().all(Option::is_none) && !of.is_full("192.0.2.200".parse().unwrap()));
}

#[test]
fn connections_that_are_refused_for_their_rate_are_not_open_and_those_for_their_number_spend_no_rate() {
    let (of, now) = (PerAddress::compile(&bounds(Some(1), Some("1/s")), None).unwrap(), Instant::now());
    let held = open(&of, "192.0.2.7", now).unwrap();
    for _ in 0..5 {
        assert_eq!(open(&of, "192.0.2.7", now).err(), Some(Beyond::Max));
    }
    drop(held);
    assert_eq!(open(&of, "192.0.2.7", now).err(), Some(Beyond::Rate));
    assert!(!of.is_full("192.0.2.7".parse().unwrap()));
    assert!(open(&of, "192.0.2.7", now + Duration::from_secs(1)).is_ok());
}

#[test]
fn what_was_counted_stays_with_other_bounds_and_not_with_other_networks() {
    let now = Instant::now();
    let before = PerAddress::compile(&bounds(Some(2), None), None).unwrap();
    let _held = [open(&before, "192.0.2.7", now), open(&before, "192.0.2.7", now)];
    let narrow = PerAddress::compile(&bounds(Some(1), Some("5/s")), Some(&before)).unwrap();
    assert_eq!(open(&narrow, "192.0.2.7", now).err(), Some(Beyond::Max));
    let wide = PerAddress::compile(&ConnectionsPerAddress { ipv4_prefix: 24, ..bounds(Some(1), None) }, Some(&narrow));
    assert!(open(&wide.unwrap(), "192.0.2.7", now).is_ok());
}

#[test]
fn open_connections_still_count_when_only_the_room_for_rates_is_another() {
    let now = Instant::now();
    let before = PerAddress::compile(&bounds(Some(1), None), None).unwrap();
    let held = open(&before, "192.0.2.7", now).unwrap();
    let more = ConnectionsPerAddress { keys_max: 5_000, ..bounds(Some(1), None) };
    let after = PerAddress::compile(&more, Some(&before)).unwrap();
    assert_eq!(open(&after, "192.0.2.7", now).err(), Some(Beyond::Max));
    drop(held);
    assert!(open(&after, "192.0.2.7", now).is_ok());
}

#[test]
fn a_rate_that_cannot_be_understood_is_an_issue() {
    for (rate, told) in [("fast", "rate"), ("0/s", "rate")] {
        assert_eq!(PerAddress::compile(&bounds(None, Some(rate)), None).err().unwrap().path, told);
    }
    let burst = ConnectionsPerAddress { burst: Some(0), ..bounds(None, Some("1/s")) };
    assert_eq!(PerAddress::compile(&burst, None).err().unwrap().path, "burst");
}
