//! HTTP versions towards endpoints.

use std::time::Duration;

use model::snapshot::{SharedPool, SharedVersion};

use crate::support::{load, messages};

fn cluster(lines: &str) -> String {
    format!("version: 1\nclusters: {{ c: {{ endpoints: ['127.0.0.1:9'], {lines} }} }}\n")
}

fn shared(lines: &str) -> Option<SharedPool> {
    load(&cluster(lines)).unwrap().snapshot.clusters[0].pool.shared.clone()
}

#[test]
fn endpoints_speak_what_is_written_and_http_1_by_default() {
    assert_eq!(shared(""), None);
    assert_eq!(shared("http_versions: [h1]"), None);
    let only = shared("http_versions: [h2]").unwrap();
    assert_eq!((only.is_only, only.streams_max), (true, 100));
    let both = shared("http_versions: [h1, h2], tls: true").unwrap();
    assert!(!both.is_only);
    let settings = "pool: { streams_per_connection_max: 7, ping_interval: 3s, ping_timeout: 400ms }";
    let set = shared(&format!("http_versions: [h2], {settings}")).unwrap();
    let (ping_interval, ping_timeout) = (Duration::from_secs(3), Duration::from_millis(400));
    assert_eq!(
        set,
        SharedPool { version: SharedVersion::Http2, is_only: true, streams_max: 7, ping_interval, ping_timeout }
    );
    let third = shared("http_versions: [h3], tls: true").unwrap();
    assert_eq!((third.version, third.is_only), (SharedVersion::Http3, true));
}

#[test]
fn versions_that_cannot_be_are_refused_with_what_to_write() {
    let about = |lines| {
        let told = messages(&cluster(lines)).into_iter();
        told.map(|message| message.trim_start_matches("2: ").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        about("http_versions: [h1, h2]"),
        ["without TLS, the HTTP version of cluster `c` cannot be negotiated \
          (write `[h1]` or `[h2]`, whichever they speak, or add `tls: true`)"]
    );
    assert_eq!(
        about("http_versions: [h2, h3], tls: true"),
        ["versions are negotiated on a TCP connection, and `h3` uses UDP (write `[h3]` alone, or leave \
          `h3` out)"]
    );
    assert_eq!(
        about("http_versions: [h3]"),
        ["HTTP/3 is always encrypted, and cluster `c` has no `tls` (add `tls: true`)"]
    );
    assert_eq!(
        about("http_versions: [h3], tls: true, socket: { fast_open: true, user_timeout: 1s }"),
        [
            "`fast_open` is for TCP, and cluster `c` speaks HTTP/3 over UDP (leave it out)",
            "`user_timeout` is for TCP, and cluster `c` speaks HTTP/3 over UDP (leave it out)"
        ]
    );
    assert_eq!(
        about("http_versions: [h2], proxy_protocol: v2"),
        [
            "`proxy_protocol` names the client of a connection, but with `h2`, requests of many clients share the connections \
          of cluster `c` (write `http_versions: [h1]`, or leave `proxy_protocol` out)"
        ]
    );
    assert_eq!(
        about("grpc_web: true"),
        ["gRPC needs HTTP/2 or HTTP/3, and cluster `c` speaks neither (add `http_versions: [h2]` to the cluster)"]
    );
    assert_eq!(about("http_versions: [h2, h2]"), ["this version is listed twice"]);
    let for_shared = |key: &str| {
        format!(
            "`{key}` is for HTTP/2 and HTTP/3, and cluster `c` speaks neither \
             (add `http_versions: [h2]` to the cluster, or leave it out)"
        )
    };
    assert_eq!(
        about("pool: { streams_per_connection_max: 7, ping_interval: 3s, ping_timeout: 400ms }"),
        [for_shared("streams_per_connection_max"), for_shared("ping_interval"), for_shared("ping_timeout")]
    );
}

#[test]
fn endpoints_that_speak_http_3_alone_are_asked_over_it_or_at_a_port_of_tcp() {
    let about = |check: &str| {
        let text = cluster(&format!("http_versions: [h3], tls: {{ verify: false }}, health_check: {check}"));
        load(&text).map_or_else(|_| messages(&text), |_| Vec::new())
    };
    let over_tcp = |kind: &str| {
        format!(
            "2: a check over `{kind}` goes over TCP, and cluster `c` speaks HTTP/3 over UDP \
             (use an `http` or `grpc` check, which goes over HTTP/3 there, or set a TCP `port`)"
        )
    };
    for (kind, check) in [("tcp", "tcp: {}"), ("tls", "tls: {}"), ("script", "script: [{ send: PING }]")] {
        assert_eq!(about(&format!("{{ {check} }}")), [over_tcp(kind)], "{check}");
        assert_eq!(about(&format!("{{ {check}, port: 80 }}")), [""; 0], "{check}");
    }
    assert_eq!(about("{ http: { path: /h } }"), [""; 0]);
    assert_eq!(about("{ grpc: { service: shop } }"), [""; 0]);
    assert_eq!(about("{ grpc: {}, port: 80 }"), [""; 0]);
    assert_eq!(
        about("{ grpc: {}, reuse_connection: true }"),
        ["2: only `http` checks can reuse a connection (leave it out)"]
    );
    assert_eq!(about("{ http: { path: /h }, port: 80, reuse_connection: true }"), [""; 0]);
    assert_eq!(
        about("{ http: { headers: { Keep-Alive: '5', x-a: b } }, reuse_connection: true }"),
        [
            "2: `Keep-Alive` belongs to the framing, which the check sets itself (leave it out)",
            "2: cluster `c` speaks only HTTP/3, and each check opens a new connection \
             (leave it out, or check at a `port` that speaks HTTP/1.1)",
        ]
    );
    // Of several steps, those count that ask at no other port.
    assert_eq!(
        about("{ steps: [{ tcp: {}, port: 80 }, { http: {} }, { script: [{ send: PING }] }] }"),
        [over_tcp("script")]
    );
    assert_eq!(about("{ steps: [{ tcp: {} }, { http: {} }], port: 80 }"), [""; 0]);
}

#[test]
fn what_does_not_speak_http_leads_to_no_cluster_that_speaks_http_3_alone() {
    let about = |listener: &str, versions: &str| {
        let text = format!(
            "version: 1\nlisteners:\n  line: {{ bind: '127.0.0.1:5000', {listener} }}\nclusters:\n  \
             far: {{ endpoints: ['127.0.0.1:9'], tls: {{ verify: false }}, http_versions: {versions} }}\n  \
             near: {{ endpoints: ['127.0.0.1:8'] }}\n"
        );
        load(&text).map_or_else(|_| messages(&text), |_| Vec::new())
    };
    let streams = "3: cluster `far` speaks only HTTP/3, over UDP: TCP streams cannot be forwarded to it \
                   (name a cluster whose endpoints listen on TCP, without `http_versions: [h3]`)";
    for listener in [
        "protocol: tcp, cluster: far",
        "protocol: tcp, sni: { names: { '*.example.com': far, example.com: near } }",
        "protocol: tcp, sni: { names: { example.com: near }, otherwise: far }",
    ] {
        assert_eq!(about(listener, "[h3]"), [streams], "{listener}");
        assert_eq!(about(listener, "[h1, h2]"), [""; 0], "{listener}");
    }
    assert_eq!(
        about("protocol: udp, cluster: far", "[h3]"),
        ["3: cluster `far` speaks HTTP/3, but datagrams are forwarded unchanged \
          (name a cluster with the same endpoints and neither `http_versions` nor `tls`)"]
    );
    assert_eq!(about("protocol: udp, cluster: far", "[h2]"), [""; 0]);
}

#[test]
fn statuses_of_grpc_after_which_a_call_is_tried_again_have_names() {
    let on = "[grpc_cancelled, grpc_deadline_exceeded, grpc_resource_exhausted, grpc_internal, grpc_unavailable]";
    let loaded = load(&cluster(&format!("retry: {{ on: {on}, methods: any }}"))).unwrap();
    let conditions = &loaded.snapshot.clusters[0].retry.on;
    assert_eq!(conditions.grpc_statuses, [1, 4, 8, 13, 14]);
    assert!(conditions.hold_after_answer() && !conditions.connect_failure);
    let web = load(&cluster("http_versions: [h2], grpc_web: true")).unwrap();
    assert!(web.snapshot.clusters[0].grpc_web);
}

#[test]
fn without_reuse_a_connection_carries_one_request_and_settings_for_more_are_refused() {
    let pool = |lines: &str| load(&cluster(lines)).unwrap().snapshot.clusters[0].pool.clone();
    let never = pool("pool: { reuse: false }");
    assert_eq!((never.idle_max, never.requests_per_connection_max, never.shared), (0, Some(1), None));
    for versions in ["http_versions: [h2]", "http_versions: [h3], tls: true"] {
        let never = pool(&format!("{versions}, pool: {{ reuse: false, ping_interval: 3s }}"));
        let shared = never.shared.unwrap();
        assert_eq!((never.idle_max, never.requests_per_connection_max, shared.streams_max), (0, Some(1), 1));
        assert_eq!(shared.ping_interval, Duration::from_secs(3));
    }
    let more = "idle_max: 3, idle_timeout: 1s, requests_per_connection_max: 2, streams_per_connection_max: 5";
    let keys = ["idle_max", "idle_timeout", "requests_per_connection_max", "streams_per_connection_max"];
    let told =
        |key| format!("2: `{key}` needs reused connections, and `reuse` is `false` (leave `{key}` or `reuse` out)");
    assert_eq!(messages(&cluster(&format!("http_versions: [h2], pool: {{ reuse: false, {more} }}"))), keys.map(told));
    // What is as it is by default asks for nothing.
    assert!(load(&cluster("pool: { reuse: false, idle_max: 0, requests_per_connection_max: 1 }")).is_ok());
}
