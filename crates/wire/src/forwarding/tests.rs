use std::net::Ipv4Addr;

use model::Name;
use model::snapshot::ClientAddress;
use proptest::prelude::*;

use super::*;

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn fields(list: &[(&str, &str)]) -> Fields {
    let mut fields = Fields::default();
    for (name, value) in list {
        fields.append(&FieldName::new(name).unwrap(), value.as_bytes());
    }
    fields
}

fn ten() -> Vec<Cidr> {
    vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()]
}

fn client(list: &[(&str, &str)], trusted: &[Cidr]) -> IpAddr {
    client_address(&fields(list), PEER, trusted)
}

#[test]
fn the_clients_scheme_is_what_a_trusted_proxy_says_of_it() {
    type Case<'a> = (&'a [(&'a str, &'a str)], Option<Scheme>);
    const PROTO: &str = "X-Forwarded-Proto";
    let (http, https) = (Some(Scheme::Http), Some(Scheme::Https));
    let cases: &[Case] = &[
        (&[(PROTO, "https")], https),
        (&[(PROTO, "HTTP")], http),
        (&[(PROTO, "wss")], https),
        (&[(PROTO, "http, https")], https),
        (&[(PROTO, "https"), (PROTO, " http ")], http),
        (&[(PROTO, "ftp")], None),
        (&[(PROTO, "")], None),
        (&[(PROTO, "http"), ("Forwarded", "for=1.1.1.1;proto=https")], http),
        (&[("Forwarded", "for=1.1.1.1;proto=https")], https),
        (&[("Forwarded", "Proto=\"https\" ; for=1.1.1.1")], https),
        (&[("Forwarded", "for=1.1.1.1;proto=https, for=10.0.0.2;proto=http")], https),
        (&[("Forwarded", "for=6.6.6.6;proto=https, for=1.1.1.1;proto=http")], http),
        (&[("Forwarded", "for=1.1.1.1")], None),
        (&[("X-Forwarded-For", "1.1.1.1")], None),
        // Its proxy writes another field, and passes on what it does not know.
        (&[("X-Forwarded-For", "1.1.1.1"), ("Forwarded", "for=1.1.1.1;proto=https")], None),
        // What stands in quotes is one value, and what stands there twice is none.
        (&[("Forwarded", "for=1.1.1.1;host=\"a;proto=https;b=c\";proto=http")], http),
        (&[("Forwarded", "host=\"a;proto=https;b=c\";for=1.1.1.1")], None),
        (&[("Forwarded", "proto=https;for=1.1.1.1;proto=http")], None),
        (&[("Forwarded", "proto=https;for=1.1.1.1;x=\"")], None),
    ];
    for &(says, wanted) in cases {
        assert_eq!(client_scheme(&fields(says), PEER, &ten()), wanted, "{says:?}");
        assert_eq!(client_scheme(&fields(says), ip("192.0.2.1"), &ten()), None, "{says:?} from a stranger");
        assert_eq!(client_scheme(&fields(says), PEER, &[]), None);
    }
}

#[test]
fn a_peer_that_is_not_trusted_is_the_client_whatever_it_says() {
    let says = [("X-Forwarded-For", "1.1.1.1"), ("Forwarded", "for=1.1.1.1")];
    assert_eq!(client(&says, &[]), PEER);
    assert_eq!(client(&says, &["10.0.0.2/32".parse().unwrap()]), PEER);
}

#[test]
fn the_client_is_the_nearest_address_that_is_not_trusted() {
    for (value, wanted) in [
        ("1.1.1.1", "1.1.1.1"),
        ("1.1.1.1, 2.2.2.2", "2.2.2.2"),
        ("1.1.1.1,2.2.2.2 , 10.9.9.9,10.1.1.1", "2.2.2.2"),
        ("1.1.1.1:4711", "1.1.1.1"),
        ("2001:db8::1", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("[2001:db8::1]:80", "2001:db8::1"),
        ("::ffff:1.2.3.4", "1.2.3.4"),
        ("2.2.2.2, fd00::1", "2.2.2.2"),
        ("10.0.0.7, 10.0.0.8", "10.0.0.7"),
        ("evil, 2.2.2.2", "2.2.2.2"),
        ("2.2.2.2, evil", "10.0.0.1"),
        ("2.2.2.2, evil, 10.0.0.9", "10.0.0.9"),
        ("2.2.2.2,", "10.0.0.1"),
        ("", "10.0.0.1"),
        ("1.2.3", "10.0.0.1"),
        ("1.2.3.256", "10.0.0.1"),
        ("unknown", "10.0.0.1"),
    ] {
        assert_eq!(client(&[("X-Forwarded-For", value)], &ten()), ip(wanted), "{value:?}");
    }
}

#[test]
fn several_fields_are_one_list() {
    let list = [
        ("X-Forwarded-For", "1.1.1.1"),
        ("A", "9.9.9.9"),
        ("x-forwarded-for", "2.2.2.2, 10.0.0.3"),
        ("X-Forwarded-For", "10.0.0.2"),
    ];
    assert_eq!(client(&list, &ten()), ip("2.2.2.2"));
}

#[test]
fn forwarded_is_read_when_there_is_no_x_forwarded_for() {
    for (value, wanted) in [
        ("for=1.1.1.1", "1.1.1.1"),
        ("for=1.1.1.1, for=2.2.2.2;proto=https", "2.2.2.2"),
        ("FOR=\"2.2.2.2:80\", proto=http; For=10.0.0.5 ;by=x", "2.2.2.2"),
        ("for=\"[2001:db8::1]:4711\"", "2001:db8::1"),
        ("for=\"a,b\", for=2.2.2.2", "2.2.2.2"),
        ("for=2.2.2.2, host=\"a,for=3.3.3.3\";for=10.0.0.2", "2.2.2.2"),
        ("host=\"a;for=10.9.9.9;b=c\";for=2.2.2.2", "2.2.2.2"),
        ("host=\"a;for=3.3.3.3;b=c\"", "10.0.0.1"),
        ("host=\";for=3.3.3.3;\" ; For=\"2.2.2.2\"", "2.2.2.2"),
        ("for=10.9.9.9;for=2.2.2.2", "10.0.0.1"),
        ("for=2.2.2.2, for=10.9.9.9;by=x;FOR=3.3.3.3", "10.0.0.1"),
        ("for=unknown", "10.0.0.1"),
        ("for=_hidden", "10.0.0.1"),
        ("proto=http", "10.0.0.1"),
        ("for=2.2.2.2, x\\", "10.0.0.1"),
        ("for=9.9.9.9;x=\"\\\", for=2.2.2.2\"", "10.0.0.1"),
        ("for=9.9.9.9;x=\"\\\", for=2.2.2.2", "2.2.2.2"),
        ("\"for=2.2.2.2", "10.0.0.1"),
        ("x\", for=2.2.2.2", "2.2.2.2"),
        ("", "10.0.0.1"),
    ] {
        assert_eq!(client(&[("Forwarded", value)], &ten()), ip(wanted), "{value:?}");
    }
    assert_eq!(client(&[("Forwarded", "for=1.1.1.1"), ("X-Forwarded-For", "2.2.2.2")], &ten()), ip("2.2.2.2"));
}

#[test]
fn a_chain_is_followed_for_a_bounded_number_of_hops() {
    let chain = |hops: usize| format!("1.1.1.1{}", ", 10.0.0.9".repeat(hops));
    assert_eq!(client(&[("X-Forwarded-For", &chain(HOPS_MAX - 1))], &ten()), ip("1.1.1.1"));
    assert_eq!(client(&[("X-Forwarded-For", &chain(HOPS_MAX))], &ten()), ip("10.0.0.9"));
}

struct Case {
    peer: IpAddr,
    client: IpAddr,
    x_forwarded: bool,
    forwarded: bool,
}

const UNTRUSTED: Case = Case {
    peer: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9)),
    client: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9)),
    x_forwarded: true,
    forwarded: true,
};
const TRUSTED: Case = Case { peer: PEER, client: PEER, x_forwarded: true, forwarded: true };

fn applied(case: &Case, list: &[(&str, &str)]) -> Vec<String> {
    let mut head = RequestHead::default();
    head.fields = fields(list);
    let name = Name::from("web");
    let facts = Facts {
        peer: SocketAddr::new(case.peer, 5000),
        client: case.client,
        local: "127.0.0.1:443".parse().unwrap(),
        scheme: Scheme::Https,
        tls: None,
        sender: None,
        listener: &name,
        request_id: "",
        user: None,
    };
    let forwarding = Forwarding {
        trusted: ten(),
        client_address: Vec::new(),
        x_forwarded: case.x_forwarded,
        forwarded: case.forwarded,
    };
    let scheme = client_scheme(&head.fields, case.peer, &forwarding.trusted).unwrap_or(facts.scheme);
    apply_forwarding(&mut head, (&facts, scheme), &forwarding, &mut Vec::new());
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    head.fields.iter().map(|field| format!("{}: {}", text(field.name), text(field.value))).collect()
}

const SAID: [(&str, &str); 6] = [
    ("Host", "shop:8443"),
    ("X-Forwarded-For", "1.1.1.1"),
    ("x-forwarded-for", "2.2.2.2"),
    ("X-Forwarded-Proto", "http"),
    ("X-Forwarded-Host", "other"),
    ("Forwarded", "for=1.1.1.1"),
];

#[test]
fn what_an_untrusted_peer_says_is_replaced() {
    assert_eq!(
        applied(&UNTRUSTED, &SAID),
        [
            "Host: shop:8443",
            "X-Forwarded-For: 192.0.2.9",
            "X-Forwarded-Proto: https",
            "X-Forwarded-Host: shop:8443",
            "Forwarded: for=192.0.2.9;host=\"shop:8443\";proto=https",
        ]
    );
}

#[test]
fn what_an_untrusted_peer_says_is_removed_even_when_nothing_is_sent_and_in_any_spelling() {
    let off = Case { x_forwarded: false, forwarded: false, ..UNTRUSTED };
    let mut list = SAID.to_vec();
    list.extend([
        ("X_Forwarded_For", "1"),
        ("x-forwarded_proto", "1"),
        ("X-Forwarded-Prefix", "1"),
        ("X-Forwarded-Port", "1"),
        ("x-real-ip", "1"),
        ("X_REAL_IP", "1"),
        ("x.forwarded.for", "1"),
        ("X~Forwarded!Proto", "1"),
        ("x.real-ip", "1"),
        ("X-Real-IPs", "kept"),
        ("X-Forward", "kept"),
    ]);
    assert_eq!(applied(&off, &list), ["Host: shop:8443", "X-Real-IPs: kept", "X-Forward: kept"]);
}

#[test]
fn a_host_that_could_be_taken_for_more_is_left_out_of_forwarded() {
    let own = Case { x_forwarded: false, ..UNTRUSTED };
    for host in ["a;proto=http;b=c", "a,for=10.0.0.1", "a=b", "a;b"] {
        assert_eq!(applied(&own, &[("Host", host)])[1], "Forwarded: for=192.0.2.9;proto=https", "{host}");
    }
    assert_eq!(applied(&own, &[("Host", "a_b.c")])[1], "Forwarded: for=192.0.2.9;host=\"a_b.c\";proto=https");
}

#[test]
fn the_scheme_that_a_trusted_peer_has_told_in_one_field_stands_in_the_other() {
    let said = applied(&TRUSTED, &[("Forwarded", "for=1.1.1.1;proto=http")]);
    assert!(said.contains(&"X-Forwarded-Proto: http".to_owned()), "{said:?}");
    // What we add is said of our own connection.
    assert!(said.contains(&"Forwarded: for=1.1.1.1;proto=http, for=10.0.0.1;proto=https".to_owned()), "{said:?}");
}

#[test]
fn what_a_trusted_peer_says_is_extended() {
    let case = Case { client: ip("2.2.2.2"), ..TRUSTED };
    assert_eq!(
        applied(&case, &SAID),
        [
            "Host: shop:8443",
            "X-Forwarded-For: 1.1.1.1, 2.2.2.2, 10.0.0.1",
            "X-Forwarded-Proto: http",
            "X-Forwarded-Host: other",
            "Forwarded: for=1.1.1.1, for=10.0.0.1;host=\"shop:8443\";proto=https",
        ]
    );
    let off = Case { x_forwarded: false, forwarded: false, ..TRUSTED };
    assert_eq!(applied(&off, &SAID[..2]), ["Host: shop:8443", "X-Forwarded-For: 1.1.1.1"]);
}

#[test]
fn what_a_trusted_peer_passes_on_in_another_spelling_is_its_clients_word_and_removed() {
    let list = [
        ("Host", "h"),
        ("X_Forwarded_For", "127.0.0.1"),
        ("X-Forwarded-For", "1.1.1.1"),
        ("x-forwarded_for", "127.0.0.1"),
        ("X-Real-IP", "1.1.1.1"),
        ("X_Real_IP", "127.0.0.1"),
        ("X-Forwarded-Port", "443"),
        ("X_Forwarded_Port", "80"),
        ("x.forwarded.for", "127.0.0.1"),
        ("X_Other", "kept"),
    ];
    let off = Case { x_forwarded: false, forwarded: false, ..TRUSTED };
    let kept = ["Host: h", "X-Forwarded-For: 1.1.1.1", "X-Real-IP: 1.1.1.1", "X-Forwarded-Port: 443", "X_Other: kept"];
    assert_eq!(applied(&off, &list), kept);
    let said = applied(&TRUSTED, &list).join("|");
    assert!(said.contains("X-Forwarded-For: 1.1.1.1, 10.0.0.1") && !said.contains("127.0.0.1"), "{said}");
}

#[test]
fn a_trusted_peer_that_says_nothing_gets_all_fields() {
    let said = applied(&TRUSTED, &[("Host", "h")]);
    assert_eq!(said[1..4], ["X-Forwarded-For: 10.0.0.1", "X-Forwarded-Proto: https", "X-Forwarded-Host: h"]);
    let told_otherwise = Case { client: ip("3.3.3.3"), ..TRUSTED };
    let said = applied(&told_otherwise, &[("Host", "h")]);
    assert_eq!(said[1], "X-Forwarded-For: 3.3.3.3, 10.0.0.1");
}

#[test]
fn an_ipv6_address_is_bare_in_one_and_in_brackets_in_the_other() {
    let case = Case { peer: ip("2001:db8::1"), client: ip("2001:db8::1"), ..UNTRUSTED };
    assert_eq!(
        applied(&case, &[]),
        ["X-Forwarded-For: 2001:db8::1", "X-Forwarded-Proto: https", "Forwarded: for=\"[2001:db8::1]\";proto=https"]
    );
    let mapped = Case { peer: ip("::ffff:192.0.2.9"), client: ip("::ffff:192.0.2.9"), ..UNTRUSTED };
    assert_eq!(applied(&mapped, &[])[0], "X-Forwarded-For: 192.0.2.9");
}

#[test]
fn a_host_that_could_break_out_of_its_quotes_is_left_out() {
    let said = applied(&UNTRUSTED, &[("Host", "a\";for=9.9.9.9;x=\"")]);
    assert_eq!(said.last().unwrap(), "Forwarded: for=192.0.2.9;proto=https");
}

proptest! {
    #[test]
    fn no_value_makes_the_search_for_the_client_panic(value in "[ -~]{0,60}", kind: bool) {
        let name = if kind { "X-Forwarded-For" } else { "Forwarded" };
        client(&[(name, &value)], &ten());
    }

    #[test]
    fn what_is_written_for_a_client_is_read_back(bits: u128, v4: bool) {
        let address = if v4 { IpAddr::V4(Ipv4Addr::from_bits(bits as u32)) } else { IpAddr::V6(std::net::Ipv6Addr::from_bits(bits)) };
        let address = address.to_canonical();
        let mut node = Vec::new();
        push_node(&mut node, address);
        let element = [b"for=", &node[..], b";proto=http"].concat();
        prop_assert_eq!(forwarded_for(&element), Some(address));
    }
}

/// `header` from `from`.
fn rule(header: &str, from: &str) -> ClientAddress {
    ClientAddress { header: FieldName::new(header).unwrap(), from: vec![from.parse().unwrap()] }
}

#[test]
fn the_first_rule_that_believes_the_peer_and_holds_one_address_decides() {
    let rules = [rule("x-none", "0.0.0.0/0"), rule("cf-ip", "10.0.0.0/8"), rule("x-real-ip", "10.0.0.0/24")];
    let told = |list: &[(&str, &str)], peer: &str| told_address(&mut fields(list), ip(peer), &rules);
    for (value, expected) in [
        ("192.0.2.1", Some("192.0.2.1")),
        (" 192.0.2.1:80\t", Some("192.0.2.1")),
        ("2001:db8::1", Some("2001:db8::1")),
        ("[2001:db8::1]:80", Some("2001:db8::1")),
        ("::ffff:192.0.2.1", Some("192.0.2.1")),
        ("192.0.2.1, 192.0.2.2", None),
        ("192.0.2.1 192.0.2.2", None),
        ("192.0.2.256", None),
        ("unknown", None),
        ("", None),
    ] {
        assert_eq!(told(&[("CF-IP", value)], "10.0.0.1"), expected.map(ip), "{value}");
        assert_eq!(told(&[("CF-IP", value)], "11.0.0.1"), None, "{value} from a stranger");
    }
    assert_eq!(told(&[("x-real-ip", "1.1.1.1"), ("cf-ip", "2.2.2.2")], "::ffff:10.0.0.1"), Some(ip("2.2.2.2")));
    assert_eq!(told(&[("x-real-ip", "1.1.1.1"), ("cf-ip", "?")], "10.0.0.1"), Some(ip("1.1.1.1")));
    assert_eq!(told(&[("x-real-ip", "1.1.1.1"), ("cf-ip", "?")], "10.1.0.1"), None);
    assert_eq!(told(&[("cf-ip", "2.2.2.2"), ("CF-IP", "2.2.2.2")], "10.0.0.1"), None, "there twice");
    assert_eq!(told(&[("cf_ip", "2.2.2.2")], "10.0.0.1"), None, "in another spelling");
}

#[test]
fn what_says_who_the_client_is_comes_from_nobody_else() {
    let rules = [rule("cf-ip", "10.0.0.0/8"), rule("cf-ip", "11.0.0.0/8"), rule("x-b", "10.0.0.0/8")];
    let left = |peer: &str| {
        let mut fields = fields(&[("CF-IP", "?"), ("cf_ip", "1.1.1.1"), ("a", "1"), ("X-B", "2"), ("cf-ip2", "3")]);
        told_address(&mut fields, ip(peer), &rules);
        fields.iter().map(|field| String::from_utf8_lossy(field.name).into_owned()).collect::<Vec<_>>()
    };
    assert_eq!(left("10.0.0.1"), ["CF-IP", "a", "X-B", "cf-ip2"]);
    assert_eq!(left("11.0.0.1"), ["CF-IP", "a", "cf-ip2"]);
    assert_eq!(left("12.0.0.1"), ["a", "cf-ip2"]);
}
