//! What stands before the bytes of a connection, and how its socket is set up.

use std::time::Duration;

use model::proxy_protocol::{SendProxy, Tlvs};
use model::snapshot::{Cluster, Listener};

use crate::support::{load, messages};

/// A listener and a cluster with these lines.
fn text(listener: &str, cluster: &str) -> String {
    format!(
        "version: 1\nlisteners:\n  web:\n    bind: '127.0.0.1:80'\n    {listener}\nroutes: [{{ cluster: site }}]\n\
         clusters:\n  site:\n    endpoints: ['127.0.0.1:9001']\n    {cluster}\n"
    )
}

fn listener(line: &str) -> Listener {
    let loaded = load(&text(line, "")).unwrap_or_else(|wrong| panic!("{wrong}"));
    loaded.snapshot.listeners[0].as_ref().clone()
}

fn cluster(line: &str) -> Cluster {
    let loaded = load(&text("", line)).unwrap_or_else(|wrong| panic!("{wrong}"));
    loaded.snapshot.clusters[0].as_ref().clone()
}

#[test]
fn whose_headers_are_believed_is_said_by_network() {
    let accepted = listener("proxy_protocol: { from: [10.0.0.0/8, '2001:db8::1'] }").proxy_protocol.expect("some");
    assert!(accepted.is_required && accepted.timeout == Duration::from_secs(5));
    assert!(accepted.trusts([10, 1, 2, 3].into()) && !accepted.trusts([11, 1, 2, 3].into()));
    let accepted = listener("proxy_protocol: { from: [10.0.0.1], required: false, timeout: 1s }").proxy_protocol;
    let accepted = accepted.expect("some");
    assert!(!accepted.is_required && accepted.timeout == Duration::from_secs(1));
    assert_eq!(listener("").proxy_protocol, None);
    assert_eq!(
        messages(&text("proxy_protocol: { from: [10.0.0.0/33, everybody] }", "")),
        [
            "5: the prefix length of `10.0.0.0/33` is longer than 32",
            "5: `everybody` is not an address or a network such as 10.0.0.0/8",
        ]
    );
    for (line, wanted) in [
        ("proxy_protocol: { from: [] }", "5: `from` is empty (it needs at least one item)"),
        ("proxy_protocol: {}", "5: `from` is missing in `proxy_protocol` of listener `web`"),
        ("proxy_protocol: true", "5: `proxy_protocol` must be a map"),
    ] {
        let told = messages(&text(line, ""));
        assert!(told.len() == 1 && told[0].starts_with(wanted), "{told:?}");
    }
}

#[test]
fn what_endpoints_are_told_is_a_version_or_more() {
    assert_eq!(cluster("").proxy_protocol, None);
    assert_eq!(cluster("proxy_protocol: v1").proxy_protocol, Some(SendProxy::V1));
    assert_eq!(cluster("proxy_protocol: { version: v1 }").proxy_protocol, Some(SendProxy::V1));
    assert_eq!(cluster("proxy_protocol: v2").proxy_protocol, Some(SendProxy::V2(Tlvs::default())));
    let all = "proxy_protocol: { version: v2, tlvs: [alpn, authority, crc32c, ssl, unique_id], \
               custom: { '0xe0': a, 239: '' } }";
    let custom = vec![(0xe0, b"a".to_vec()), (0xef, Vec::new())];
    let all_of_them = Tlvs { alpn: true, authority: true, unique_id: true, ssl: true, checksum: true, custom };
    let mut resolved = cluster(all).proxy_protocol;
    if let Some(SendProxy::V2(tlvs)) = &mut resolved {
        tlvs.custom.sort();
    }
    assert_eq!(resolved, Some(SendProxy::V2(all_of_them)));
}

#[test]
fn what_endpoints_cannot_be_told_is_explained() {
    let told = |line: &str| messages(&text("", line));
    assert_eq!(
        told("proxy_protocol: { version: v1, tlvs: [ssl], custom: { '0xe0': a } }"),
        [
            "10: `tlvs` has no meaning with version 1, which tells addresses only (write `version: v2`)",
            "10: `custom` has no meaning with version 1, which tells addresses only (write `version: v2`)",
        ]
    );
    let long = "x".repeat(257);
    assert_eq!(
        told(&format!(
            "proxy_protocol: {{ version: v2, tlvs: [ssl, ssl], custom: {{ '0x05': a, 0xf0: b, e0: c, '0xe1': {long}, '0XE2': d, 0xe2: e }} }}"
        )),
        [
            "10: this stands here twice",
            "10: `0x05` is not a type that can be chosen (types of your own are `0xe0` to `0xef`)",
            "10: `0xf0` is not a type that can be chosen (types of your own are `0xe0` to `0xef`)",
            "10: `e0` is not a type that can be chosen (types of your own are `0xe0` to `0xef`)",
            "10: a value has at most 256 bytes, not 257",
            "10: the type `0xe2` stands here twice",
        ]
    );
    for (line, wanted) in [
        ("proxy_protocol: v3", "10: `proxy_protocol` must be"),
        ("proxy_protocol: { version: v2, tlvs: [sni] }", "10: "),
        ("proxy_protocol: { tlvs: [ssl] }", "10: `version` is missing"),
    ] {
        let told = told(line);
        assert!(told.len() == 1 && told[0].starts_with(wanted), "{told:?}");
    }
}
