//! What precedes the bytes of a connection, and how its socket is set up.

use std::time::Duration;

use model::proxy_protocol::{OwnTlv, SendProxy, Tlvs};
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
               custom: { '0xe0': '{client_ip}', 239: '' } }";
    let own = |key: &str, kind, value: &str| OwnTlv { key: key.into(), kind, value: value.into() };
    let custom = vec![own("0xe0", 0xe0, "{client_ip}"), own("239", 0xef, "")];
    let all_of_them = Tlvs { alpn: true, authority: true, unique_id: true, ssl: true, checksum: true, custom };
    let mut resolved = cluster(all).proxy_protocol.clone();
    if let Some(SendProxy::V2(tlvs)) = &mut resolved {
        tlvs.custom.sort_by_key(|own| own.kind);
    }
    assert_eq!(resolved, Some(SendProxy::V2(all_of_them)));
}

#[test]
fn what_endpoints_cannot_be_told_is_explained() {
    let told = |line: &str| messages(&text("", line));
    assert_eq!(
        told("proxy_protocol: { version: v1, tlvs: [ssl], custom: { '0xe0': a } }"),
        [
            "10: `tlvs` has no effect with version 1, which carries addresses only (write `version: v2`)",
            "10: `custom` has no effect with version 1, which carries addresses only (write `version: v2`)",
        ]
    );
    let long = "x".repeat(257);
    assert_eq!(
        told(&format!(
            "proxy_protocol: {{ version: v2, tlvs: [ssl, ssl], custom: {{ '0x05': a, 0xf0: b, e0: c, '0xe1': {long}, '0XE2': d, 0xe2: e }} }}"
        )),
        [
            "10: this is listed twice",
            "10: `0x05` is not a type that can be chosen (custom types are `0xe0` to `0xef`)",
            "10: `0xf0` is not a type that can be chosen (custom types are `0xe0` to `0xef`)",
            "10: `e0` is not a type that can be chosen (custom types are `0xe0` to `0xef`)",
            "10: a value has at most 256 bytes, not 257",
            "10: the type `0xe2` is listed twice",
        ]
    );
    assert_eq!(
        told("proxy_protocol: { version: v2, custom: { '0xe0': 'a {client_ip', '0xe1': '}' } }"),
        [
            "10: `{` is never closed in `a {client_ip`: write `{{` for a brace",
            "10: `}` without `{` in `}`: write `}}` for a brace",
        ]
    );
    let half = "x".repeat(150);
    assert_eq!(
        told(&format!("proxy_protocol: {{ version: v2, custom: {{ '0xe0': {half}, '0xe1': {half} }} }}")),
        ["10: these values have 306 bytes together, with 3 before each (a header has room for 300)"]
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

#[test]
fn unix_sockets_are_paths_or_names() {
    let loaded =
        load(&text("", "").replace("127.0.0.1:80'", "unix:/run/web.sock'").replace("127.0.0.1:9001", "unix:@app"));
    let snapshot = loaded.unwrap_or_else(|wrong| panic!("{wrong}")).snapshot;
    assert_eq!(snapshot.listeners[0].bind.to_string(), "unix:/run/web.sock");
    assert_eq!(snapshot.clusters[0].endpoints[0].address.to_string(), "unix:@app");
    let with = |bind: &str, endpoint: &str, cluster: &str| {
        messages(&text("", cluster).replace("127.0.0.1:80'", &format!("{bind}'")).replace("127.0.0.1:9001", endpoint))
    };
    let long = format!("unix:/{}", "x".repeat(107));
    for (bind, wanted) in [
        ("unix:", "`` is not an absolute path (write it like `unix:/run/equipoise.sock`)"),
        ("unix:@", "a Unix socket needs a name (write it like `unix:@name`)"),
        ("unix:web.sock", "`web.sock` is not an absolute path (write it like `unix:/run/equipoise.sock`)"),
        ("unix:/run/", "`/run/` is a folder (write it like `unix:/run/equipoise.sock`)"),
        ("unix:/run//a", "`/run//a` is not normalized (leave out `//`, `/./` and `/../`)"),
        ("unix:/run/../a", "`/run/../a` is not normalized (leave out `//`, `/./` and `/../`)"),
        (&long, "the path of a Unix socket has at most 107 bytes, not 108 (choose a shorter one)"),
    ] {
        assert_eq!(with(bind, "127.0.0.1:9001", ""), [format!("4: {wanted}")]);
        assert_eq!(with("127.0.0.1:80", bind, ""), [format!("9: {wanted}")]);
    }
    let told = with(
        "127.0.0.1:80",
        "unix:/run/app.sock",
        "tls: true\n    agent_check: { port: 1 }\n    health_check: { tcp: {}, port: 1 }",
    );
    assert_eq!(
        told,
        [
            "10: `unix:/run/app.sock` has no host name that a certificate could contain (write `tls: { server_name: NAME }`)",
            "11: agents need a port, and `unix:/run/app.sock` has none (leave it out)",
            "12: `unix:/run/app.sock` has no ports, so `port` has no effect for it (leave it out)",
        ]
    );
    let twice = "version: 1\nlisteners:\n  a: { bind: 'unix:/a' }\n  b: { bind: 'unix:/a' }\n";
    assert_eq!(messages(twice), ["4: `unix:/a` is already used by listener `a` (choose another path)"]);
}

#[test]
fn sockets_are_set_up_as_written() {
    use model::socket::{Keepalive, ListenerSocket, Source, StreamSocket};
    let asked = "socket: { keepalive: { idle: 30s }, user_timeout: 1m, dscp: 46 }";
    let second = Duration::from_secs(1);
    let stream = StreamSocket {
        keepalive: Some(Keepalive { idle: 30 * second, interval: 10 * second, count: 3 }),
        user_timeout: Some(60 * second),
        dscp: Some(46),
    };
    assert_eq!(listener(asked).socket, ListenerSocket { stream: stream.clone(), ..ListenerSocket::default() });
    assert_eq!(cluster(asked).socket.stream, stream);
    assert_eq!(listener("").socket, ListenerSocket::default());
    assert!(cluster("").socket.stream.is_default() && cluster("").socket.source == Source::Kernel);
    let from = |line: &str| cluster(&format!("socket: {{ source_address: {line} }}")).socket.source.clone();
    assert_eq!(from("10.0.0.1"), Source::Address(vec![[10, 0, 0, 1].into()]));
    assert_eq!(from("['::1', 10.0.0.1]"), Source::Address(vec!["::1".parse().expect("one"), [10, 0, 0, 1].into()]));
    assert_eq!(from("client"), Source::Client);
    let given = listener("socket: { backlog: 10, freebind: true }").socket;
    assert!(given.backlog == 10 && given.freebind && given.fast_open.is_none());
    assert_eq!(listener("socket: { fast_open: 256 }").socket.fast_open, Some(256));
    assert!(cluster("socket: { fast_open: true }").socket.fast_open && !cluster("").socket.fast_open);
    let file = text("socket: { mode: '0660', owner: www-data, group: '33' }", "").replace("127.0.0.1:80'", "unix:/w'");
    let file = load(&file).unwrap_or_else(|wrong| panic!("{wrong}")).snapshot.listeners[0].socket.file.clone();
    assert_eq!((file.mode, file.owner.as_deref(), file.group.as_deref()), (Some(0o660), Some("www-data"), Some("33")));
}

#[test]
fn sockets_that_cannot_be_set_up_so_are_explained() {
    assert_eq!(
        messages(&text("socket: { mode: '0660', keepalive: { idle: 1500ms, interval: 40000s } }", "")),
        [
            "5: `mode` applies to Unix sockets only (leave it out)",
            "5: `idle` must be from 1 to 32767 whole seconds",
            "5: `interval` must be from 1 to 32767 whole seconds",
        ]
    );
    let unix = |line: &str| messages(&text(line, "").replace("127.0.0.1:80'", "unix:/w'"));
    assert_eq!(
        unix("socket: { mode: '999', dscp: 1, freebind: true }"),
        [
            "5: `999` is not a file mode (write it in quotes and in octal, such as `\"0660\"`)",
            "5: `dscp` has no effect for a Unix socket (leave it out)",
            "5: `freebind` has no effect for a Unix socket (leave it out)",
        ]
    );
    assert_eq!(unix("socket: { fast_open: 5 }"), ["5: `fast_open` has no effect for a Unix socket (leave it out)"]);
    assert_eq!(
        messages(&text("socket: { fast_open: 0 }", "")),
        ["5: `fast_open` must be a whole number from 1 to 65535, not 0"]
    );
    assert_eq!(
        messages(&text("", "socket: { source_address: [10.0.0.1, 10.0.0.2, 'a:1'] }")),
        [
            "10: there is already an address of this family",
            "10: `a:1` is not an address (write an address without a port, or `client`)",
        ]
    );
    assert_eq!(
        messages(&text("", "socket: { source_address: [client, 10.0.0.2] }")),
        ["10: `client` stands alone (leave the addresses out)"]
    );
}

#[test]
fn connections_that_many_clients_share_show_none_of_them() {
    assert_eq!(
        messages(&text("", "http_versions: [h2]\n    socket: { source_address: client }")),
        [
            "11: with `h2`, requests of many clients share the connections of cluster `site` (write `http_versions: [h1]`, or another `source_address`)"
        ]
    );
}

#[test]
fn datagrams_have_a_protocol_of_their_own() {
    use model::snapshot::Protocol;
    let udp = |line: &str| {
        format!(
            "version: 1\nlisteners:\n  dns:\n    bind: '127.0.0.1:53'\n    protocol: udp\n    {line}\n\
             clusters: {{ names: {{ endpoints: ['127.0.0.1:54'] }} }}\n"
        )
    };
    let listener = |line: &str| {
        let loaded = load(&udp(line)).unwrap_or_else(|wrong| panic!("{wrong}"));
        assert!(loaded.warnings().is_empty(), "the cluster is used");
        match &loaded.snapshot.listeners[0].protocol {
            Protocol::Udp(udp) => udp.clone(),
            other => panic!("{other:?}"),
        }
    };
    let plain = listener("cluster: names");
    assert_eq!(
        (plain.cluster.as_str(), plain.idle_timeout, plain.responses_max),
        ("names", Duration::from_secs(60), None)
    );
    let given = listener("cluster: names\n    idle_timeout: 5s\n    responses_max: 1");
    assert_eq!((given.idle_timeout, given.responses_max), (Duration::from_secs(5), Some(1)));
    let told = |line: &str| messages(&udp(line));
    assert_eq!(told(""), ["3: listener `dns` needs a `cluster` (add `cluster: NAME`, where its datagrams go)"]);
    assert_eq!(
        told(
            "cluster: names\n    timeouts: {}\n    sni: {}\n    tls: { certificates: [{ chain: a, key: b }] }\n    proxy_protocol: { from: [10.0.0.1] }"
        ),
        [
            "7: `timeouts` is for `protocol: http`, but listener `dns` speaks udp (write `idle_timeout`)",
            "8: `sni` is for `protocol: tcp`, but listener `dns` speaks udp (match `host` in a route, or set `protocol: tcp`)",
            "9: `tls` is for `protocol: tcp`, but listener `dns` speaks udp (leave it out)",
            "10: `proxy_protocol` is for `protocol: tcp`, but listener `dns` speaks udp (leave it out)",
        ]
    );
    let unix = udp("cluster: names").replace("127.0.0.1:53", "unix:/dns");
    assert_eq!(
        messages(&unix),
        ["4: listener `dns` speaks udp, which does not work over Unix sockets (bind an address with a port)"]
    );
    assert_eq!(
        told("cluster: names\n    socket: { keepalive: {}, backlog: 5, fast_open: 5, dscp: 3 }"),
        [
            "7: `keepalive` has no effect for datagrams (leave it out)",
            "7: `backlog` has no effect for datagrams (leave it out)",
            "7: `fast_open` has no effect for datagrams (leave it out)",
        ]
    );
    // The ports of datagrams differ from those of connections.
    let both = udp("cluster: names")
        .replace("clusters:", "  tcp: { bind: '127.0.0.1:53', protocol: tcp, cluster: names }\nclusters:");
    assert_eq!(messages(&both), Vec::<String>::new());
    let twice = udp("cluster: names")
        .replace("clusters:", "  too: { bind: '127.0.0.1:53', protocol: udp, cluster: names }\nclusters:");
    assert_eq!(messages(&twice), ["7: `127.0.0.1:53` is already used by listener `dns` (choose another port)"]);
    assert_eq!(
        messages("version: 1\nlisteners: { web: { bind: '127.0.0.1:1', responses_max: 1 } }\n"),
        ["2: `responses_max` is for `protocol: udp`, but listener `web` speaks http (leave it out)"]
    );
}

#[test]
fn what_is_shown_of_a_listener_can_be_read_again() {
    let written = "version: 1\nlisteners:\n  web: { bind: '127.0.0.1:80', socket: { freebind: true }, proxy_protocol: { from: [10.0.0.1] } }\n  \
         unix: { bind: 'unix:/web', socket: { mode: '0600' } }\n  tcp: { bind: 'unix:/tcp', protocol: tcp, cluster: site }\n  \
         dns: { bind: '127.0.0.1:53', protocol: udp, cluster: site, responses_max: 1 }\n";
    let clusters = "clusters: { site: { endpoints: ['127.0.0.1:9'] } }\n";
    let loaded = load(&format!("{written}{clusters}")).unwrap_or_else(|wrong| panic!("{wrong}"));
    let again = format!("version: 1\nlisteners: {}\n{clusters}", loaded.effective()["listeners"]);
    let again = load(&again).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!(again.snapshot.listeners, loaded.snapshot.listeners);
}
