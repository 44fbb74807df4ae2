use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use model::Facts;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::testing::{World, chain, flow_of, issue, request};
use super::*;

/// What becomes of a client at this address.
fn flow(settings: Value, client: &str) -> Flow {
    let (world, chain) = (World::new(), chain(json!([{ "address_list": settings }])));
    let facts = Facts { client: client.parse().unwrap(), ..world.facts() };
    flow_of(&chain, &mut request("GET", "/", &[]), &facts)
}

fn is_let_in(settings: Value, client: &str) -> bool {
    flow(settings, client) == Flow::Continue
}

fn file(text: &str) -> Value {
    json!({ "name": "list.txt", "text": text })
}

#[test]
fn the_most_specific_network_decides_wherever_it_is_written() {
    let settings = || {
        json!({ "deny": ["10.1.0.0/16", "2001:db8:1::/48", "10.1.2.3"],
                "allow": ["10.0.0.0/8", "10.1.2.0/24", "2001:db8::/32"] })
    };
    for (client, wanted) in [
        ("10.0.0.1", true),
        ("10.255.255.255", true),
        ("11.0.0.0", false),
        ("9.255.255.255", false),
        ("10.1.0.0", false),
        ("10.1.255.255", false),
        ("10.2.0.0", true),
        ("10.1.2.0", true),
        ("10.1.2.3", false),
        ("10.1.2.4", true),
        ("::ffff:10.1.2.4", true),
        ("::ffff:10.1.2.3", false),
        ("2001:db8::1", true),
        ("2001:db8:1::1", false),
        ("2001:db9::", false),
        ("::", false),
    ] {
        assert_eq!(is_let_in(settings(), client), wanted, "{client}");
    }
}

#[test]
fn others_follow_from_what_is_listed_or_are_said() {
    assert!(is_let_in(json!({ "deny": ["192.0.2.7"] }), "192.0.2.8"));
    assert!(!is_let_in(json!({ "allow": ["192.0.2.7"] }), "192.0.2.8"));
    assert!(!is_let_in(json!({ "allow": ["192.0.2.7"] }), "::1"), "also of the other family");
    assert!(is_let_in(json!({ "allow": ["192.0.2.7"], "others": "allow" }), "192.0.2.8"));
    assert!(!is_let_in(json!({ "deny": ["192.0.2.7"], "others": "deny" }), "192.0.2.8"));
    assert!(!is_let_in(json!({ "deny": ["192.0.2.7"], "allow": ["192.0.2.7/32"] }), "192.0.2.7"), "both: it is denied");
}

#[test]
fn everything_and_the_ends_of_the_address_space_can_be_listed() {
    for (deny, client, wanted) in [
        ("0.0.0.0/0", "255.255.255.255", false),
        ("0.0.0.0/0", "0.0.0.0", false),
        ("0.0.0.0/0", "::1", true),
        ("::/0", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", false),
        ("::/0", "192.0.2.7", true),
        ("255.255.255.255", "255.255.255.255", false),
        ("255.255.255.255", "255.255.255.254", true),
        ("0.0.0.0", "0.0.0.0", false),
        ("0.0.0.0", "0.0.0.1", true),
    ] {
        assert_eq!(is_let_in(json!({ "deny": [deny] }), client), wanted, "{deny} {client}");
    }
}

#[test]
fn files_are_lists_with_remarks() {
    let text = "# office\n10.0.0.0/8\r\n\n  192.0.2.7 ; a neighbour\n\t2001:db8::/32\t# more\n";
    for (client, wanted) in [("10.1.1.1", true), ("192.0.2.7", true), ("2001:db8::7", true), ("192.0.2.8", false)] {
        assert_eq!(is_let_in(json!({ "allow_files": [file(text)] }), client), wanted, "{client}");
    }
    assert!(!is_let_in(json!({ "allow_files": [file("")] }), "10.0.0.1"), "an empty list lets nobody in");
    assert!(!is_let_in(json!({ "deny_files": [file("10.0.0.1")], "allow": ["10.0.0.0/8"] }), "10.0.0.1"));
}

#[test]
fn who_stays_out_is_answered_or_not() {
    let deny = json!({ "deny": ["10.0.0.1"] });
    assert_eq!(flow(deny, "10.0.0.1"), Flow::refuse(403, "your address is not allowed"));
    let told = flow(json!({ "deny": ["10.0.0.1"], "status": 404 }), "10.0.0.1");
    assert_eq!(told, Flow::refuse(404, "your address is not allowed"));
    assert_eq!(flow(json!({ "deny": ["10.0.0.1"], "close": true }), "10.0.0.1"), Flow::Close);
}

#[test]
fn mistakes_are_told_with_their_place() {
    for (settings, told) in [
        (
            json!({}),
            ": no list is given, so the filter would have no effect (add `allow`, `deny`, `allow_files` or `deny_files`)",
        ),
        (json!({ "allow": ["10.0.0.1", "home"] }), "allow/1: `home` is not an address or a network such as 10.0.0.0/8"),
        (json!({ "deny": ["10.0.0.0/33"] }), "deny/0: the prefix length of `10.0.0.0/33` is longer than 32"),
        (json!({ "deny": ["10.0.0.0/x"] }), "deny/0: `x` is not a prefix length"),
        (
            json!({ "deny_files": [file("10.0.0.1\n# fine\n10.0.0\n")] }),
            "deny_files/0: `list.txt`, line 3 is not an address or a network such as 10.0.0.0/8",
        ),
        (json!({ "deny": ["::1"], "status": 302 }), "status: 302 is not between 400 and 599"),
        (
            json!({ "deny": ["::1"], "status": 403, "close": true }),
            "status: `status` has no effect with `close`: no response is sent",
        ),
    ] {
        assert_eq!(issue("address_list", settings), told);
    }
}

/// The same by looking at every network.
fn plainly(entries: &[(IpAddr, u8, bool)], others: bool, client: IpAddr) -> bool {
    let holding = entries.iter().filter(|(address, bits, _)| Cidr::new(*address, *bits).unwrap().contains(client));
    holding.max_by_key(|(_, bits, is_allowed)| (*bits, !*is_allowed)).map_or(others, |(.., is_allowed)| *is_allowed)
}

/// Few different bits, so that networks often lie in one another and meet.
fn address() -> impl Strategy<Value = IpAddr> {
    let spread = |bits: u8| (u32::from(bits & 0xf0) << 24) | u32::from(bits & 0x0f);
    prop_oneof![
        any::<u8>().prop_map(move |bits| IpAddr::V4(Ipv4Addr::from_bits(spread(bits)))),
        any::<u8>().prop_map(move |bits| IpAddr::V6(Ipv6Addr::from_bits(u128::from(spread(bits)) << 92))),
        any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))),
        any::<u128>().prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))),
    ]
}

proptest! {
    #[test]
    fn the_table_says_what_looking_at_every_network_says(
        networks in proptest::collection::vec((address(), 0_u8..=32, any::<bool>()), 0..300),
        clients in proptest::collection::vec(address(), 1..50),
        others in any::<bool>(),
    ) {
        let entry = |(address, bits, is_allowed): &(IpAddr, u8, bool)| Entry {
            network: Cidr::new(*address, *bits).unwrap(),
            is_allowed: *is_allowed,
        };
        let table = AddressTable::new(networks.iter().map(entry).collect(), others);
        let ends = networks.iter().map(|(address, ..)| *address);
        for client in clients.into_iter().chain(ends) {
            prop_assert_eq!(table.allows(client), plainly(&networks, others, client), "{}", client);
        }
    }
}
