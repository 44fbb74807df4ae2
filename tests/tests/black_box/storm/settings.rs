//! Settings of every kind, as chance has them: all that may be said of a cluster, a listener and a route by which no request of
//! the clients may fail.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::changes::SECRET;
use super::dice::Dice;

/// How the endpoints of a cluster are spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tongue {
    /// HTTP/1.1 in clear, behind a header of the PROXY protocol or not.
    Plain,
    /// HTTP/1.1 by TLS.
    Tls,
    /// HTTP/2 in clear.
    Http2,
    /// HTTP/2 by TLS.
    Http2Tls,
    /// HTTP/3.
    Http3,
}

impl Tongue {
    /// For who reads.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Plain => "HTTP/1.1",
            Self::Tls => "HTTP/1.1 by TLS",
            Self::Http2 => "HTTP/2",
            Self::Http2Tls => "HTTP/2 by TLS",
            Self::Http3 => "HTTP/3",
        }
    }

    /// Whether requests share connections.
    fn is_shared(self) -> bool {
        matches!(self, Self::Http2 | Self::Http2Tls | Self::Http3)
    }
}

/// Puts settings into an object of JSON.
fn put(object: &mut Value, key: &str, value: Value) {
    if let Value::Object(map) = object {
        map.insert(key.to_owned(), value);
    }
}

/// A key with one of its values, which stand beside each other.
fn one(dice: &mut Dice, object: &mut Value, key: &str, values: &[Value]) {
    if dice.below(3) == 0 {
        let value = dice.pick(values).clone();
        put(object, key, value);
    }
}

/// A map in which each of these keys is, or is not.
fn some_of(dice: &mut Dice, all: Value) -> Value {
    let mut kept = Map::new();
    if let Value::Object(all) = all {
        kept.extend(all.into_iter().filter(|_| dice.coin()));
    }
    Value::Object(kept)
}

/// The filters of a route.
pub(super) fn filters_of(route: &Value) -> usize {
    route["filters"].as_array().map_or(0, Vec::len)
}

/// What a listener is, for who reads.
pub(super) fn speaks(listener: &Value) -> String {
    let how = if listener["tls"].is_null() { "in clear" } else { "by TLS" };
    match (listener["protocol"].as_str(), listener["http_versions"].as_array()) {
        (Some(protocol), _) => format!("listeners of {protocol}"),
        (None, Some(versions)) => {
            let versions: Vec<&str> = versions.iter().filter_map(Value::as_str).collect();
            format!("listeners of {} {how}", versions.join("+"))
        }
        (None, None) => format!("listeners of h1+h2 {how}"),
    }
}

/// Endpoints of a cluster, the first always, so that none is ever without one.
pub(super) fn endpoints(dice: &mut Dice, addresses: &[SocketAddr]) -> Vec<Value> {
    let mut list = Vec::new();
    for (index, address) in addresses.iter().enumerate() {
        if index > 0 && dice.coin() {
            continue;
        }
        let mut endpoint = json!({ "address": address.to_string(), "weight": dice.below(9) + 1 });
        if index > 0 {
            let weight = dice.below(4);
            one(dice, &mut endpoint, "weight", &[json!(weight)]);
            one(dice, &mut endpoint, "priority", &[json!(0), json!(1)]);
            one(dice, &mut endpoint, "backup", &[json!(true)]);
            one(dice, &mut endpoint, "state", &["up", "down", "drain", "maintenance"].map(Value::from));
        }
        one(dice, &mut endpoint, "zone", &["here", "there"].map(Value::from));
        if index == 0 || dice.coin() {
            put(&mut endpoint, "labels", json!({ "version": "v1", "route": format!("node{index}") }));
        }
        list.push(endpoint);
    }
    list
}

/// A cluster that serves the requests of all clients.
pub(super) fn site(dice: &mut Dice, tongue: Tongue, addresses: &[SocketAddr], agent: SocketAddr) -> Value {
    let mut cluster = json!({ "endpoints": endpoints(dice, addresses), "timeouts": { "connect": "20s" } });
    match tongue {
        Tongue::Plain => {
            one(
                dice,
                &mut cluster,
                "proxy_protocol",
                &[json!("v1"), json!("v2"), json!({ "version": "v2", "tlvs": ["ssl", "alpn", "crc32c"] })],
            );
            one(
                dice,
                &mut cluster,
                "health_check",
                &[json!({ "script": [{ "send": "GET / HTTP/1.0\r\n\r\n" }, { "expect": "200" }] })],
            );
        }
        Tongue::Tls => {
            put(&mut cluster, "tls", tls_of_endpoints(dice));
            one(dice, &mut cluster, "http_versions", &[json!(["h1"]), json!(["h1", "h2"])]);
            one(dice, &mut cluster, "health_check", &[json!({ "tcp": {} }), json!({ "http": {} })]);
        }
        Tongue::Http2 => put(&mut cluster, "http_versions", json!(["h2"])),
        Tongue::Http2Tls => {
            put(&mut cluster, "tls", tls_of_endpoints(dice));
            let versions = dice.pick(&[json!(["h2"]), json!(["h1", "h2"])]).clone();
            put(&mut cluster, "http_versions", versions);
        }
        Tongue::Http3 => {
            put(&mut cluster, "tls", tls_of_endpoints(dice));
            put(&mut cluster, "http_versions", json!(["h3"]));
        }
    }
    if tongue == Tongue::Http3 {
        one(dice, &mut cluster, "health_check", &[json!({ "http": {} })]);
    }
    one(dice, &mut cluster, "balance", &balances());
    bounds(dice, &mut cluster);
    health(dice, &mut cluster, agent);
    connections(dice, &mut cluster, tongue);
    attempts(dice, &mut cluster);
    one(dice, &mut cluster, "persistence", &persistences());
    cluster
}

fn tls_of_endpoints(dice: &mut Dice) -> Value {
    let mut tls = json!({ "verify": false });
    one(dice, &mut tls, "server_name", &[json!("shop.example"), json!("b.example")]);
    tls
}

fn balances() -> Vec<Value> {
    let named =
        ["round_robin", "random", "least_request", "power_of_two", "least_time", "peak_ewma", "first", "source_hash"];
    let mut all: Vec<Value> = named.map(Value::from).into();
    for algorithm in ["ketama", "maglev", "rendezvous"] {
        for on in
            [json!("source"), json!("uri"), json!([{ "header": "x-number" }, "path"]), json!({ "cookie": "stay" })]
        {
            all.push(json!({ "hash": { "on": on, "algorithm": algorithm } }));
        }
        all.push(json!({ "hash": { "on": { "header": "x-number" }, "algorithm": algorithm, "load_max": "125%" } }));
    }
    all.extend(["least_time", "peak_ewma"].map(|name| json!({ name: { "half_life": "300ms" } })));
    all
}

fn persistences() -> Vec<Value> {
    let kinds = [
        json!({ "cookie": { "name": "stay", "secret": SECRET } }),
        json!({ "cookie": { "name": "stay", "secret": [SECRET, "another-secret-of-ours"], "idle_max": "1s", "same_site": "strict" } }),
        json!({ "learn": { "cookie": "JSESSIONID", "entries_max": 10 } }),
        json!({ "header": { "name": "x-number", "expires": "1s", "entries_max": 50 } }),
        json!({ "source": {} }),
        json!({ "source": { "ipv4_prefix": 8, "expires": "1s" } }),
        json!({ "route": { "query": "node" } }),
    ];
    let mut all = kinds.to_vec();
    all.extend(kinds.map(|mut kind| {
        put(&mut kind, "when_full", json!("away"));
        kind
    }));
    all
}

/// What waits, how much may be there at once, and who is told to go. Nobody waits for long, and nobody is refused.
fn bounds(dice: &mut Dice, cluster: &mut Value) {
    if dice.coin() {
        let mut queue = json!({ "requests_max": 1000, "timeout": "60s" });
        one(dice, &mut queue, "fair_by", &[json!("source"), json!({ "header": "x-number" })]);
        one(dice, &mut queue, "shed", &[json!({ "target": "30s", "interval": "60s", "from": "newest" })]);
        one(dice, &mut queue, "retry_after", &[json!("3s")]);
        one(dice, &mut queue, "page", &[json!({ "body": "wait", "status": 503 })]);
        put(cluster, "queue", queue);
        let few = dice.below(20) + 4;
        one(dice, cluster, "requests_max", &[json!(few)]);
        one(dice, cluster, "connections_max", &[json!(few + 3)]);
        one(
            dice,
            cluster,
            "adaptive_concurrency",
            &[json!({}), json!({ "min": 5, "interval": "20ms", "tolerance": "80%" })],
        );
    }
    let breaker = json!({
        "connections_max": 1000, "retries_max": 50,
        "error_ratio": { "window": "200ms" }, "page": { "body": "broken" },
    });
    let mut breaker = some_of(dice, breaker);
    put(&mut breaker, "requests_max", json!(1000));
    if cluster.get("queue").is_some() {
        put(&mut breaker, "pending_max", json!(1000));
    }
    one(dice, cluster, "circuit_breaker", &[breaker]);
}

/// What is known of endpoints, and what follows from it. The first is well at all times.
fn health(dice: &mut Dice, cluster: &mut Value, agent: SocketAddr) {
    if let Some(check) = cluster.get_mut("health_check") {
        let spare = json!({
            "interval_down": "50ms", "interval_changing": "30ms", "jitter": "20%", "rise": 1, "fall": 50, "timeout": "20s",
        });
        put(check, "interval", json!(format!("{}ms", dice.below(100) + 30)));
        if let (Value::Object(check), Value::Object(spare)) = (check, some_of(dice, spare)) {
            check.extend(spare);
        }
    }
    let passive = json!({
        "consecutive_failures": 3, "consecutive_5xx": 5, "failure_rate": {}, "success_rate": {}, "latency": {},
        "interval": "200ms", "ejection_time": "100ms", "ejected_max": "30%",
    });
    let passive = some_of(dice, passive);
    one(dice, cluster, "passive_health", &[passive]);
    one(dice, cluster, "agent_check", &[json!({ "port": agent.port(), "interval": "50ms", "send": "state\n" })]);
    one(dice, cluster, "panic_threshold", &[json!("50%"), json!("100%")]);
    one(dice, cluster, "slow_start", &[json!("300ms")]);
    one(dice, cluster, "overprovisioning", &[json!("100%"), json!("200%")]);
    one(dice, cluster, "prefer_own_zone", &[json!(true)]);
    let is_hashed = cluster["balance"] == "source_hash" || cluster["balance"].get("hash").is_some();
    if !is_hashed {
        one(dice, cluster, "aperture", &[json!({ "instance": 0, "instances": 2, "endpoints_min": 2 })]);
    }
}

/// How connections to endpoints are made and kept.
fn connections(dice: &mut Dice, cluster: &mut Value, tongue: Tongue) {
    let pool = json!({ "idle_max": dice.below(4), "idle_timeout": "200ms", "requests_per_connection_max": dice.below(20) + 1 });
    let mut pool = some_of(dice, pool);
    if tongue.is_shared() {
        one(dice, &mut pool, "streams_per_connection_max", &[json!(1), json!(4)]);
        one(dice, &mut pool, "ping_interval", &[json!("100ms")]);
        one(dice, &mut pool, "ping_timeout", &[json!("20s")]);
    }
    put(cluster, "pool", pool);
    let timeouts = json!({ "connect": "21s", "response_head": "40s", "idle": format!("{}s", dice.below(30) + 40) });
    put(cluster, "timeouts", some_of(dice, timeouts));
    let of_all = json!({ "source_address": "127.0.0.1", "dscp": dice.below(64) });
    let mut socket = some_of(dice, of_all);
    if tongue != Tongue::Http3 {
        one(dice, &mut socket, "keepalive", &[json!({ "idle": "3s" })]);
        one(dice, &mut socket, "user_timeout", &[json!("50s")]);
        one(dice, &mut socket, "fast_open", &[json!(true)]);
    }
    put(cluster, "socket", socket);
}

/// How often a request is sent.
fn attempts(dice: &mut Dice, object: &mut Value) {
    let retry = json!({
        "attempts_max": dice.below(3) + 2, "methods": "any", "timeout": "30s", "backoff": { "base": "1ms" }, "body_max": "4KiB",
        "on": ["connect_failure", "reset", "502-504"], "budget": { "share": "50%" },
        "same_endpoint": true, "time_max": "60s",
    });
    let retry = some_of(dice, retry);
    one(dice, object, "retry", &[retry]);
    // Few: of many streams that are given up at once, the endpoints of these tests would tire.
    let hedge = json!({ "after": *dice.pick(&["p95", "50ms"]), "attempts_max": 3, "methods": "any", "budget": "5%" });
    one(dice, object, "hedge", &[hedge]);
}

/// A filter of each kind, some of them with conditions; none keeps the clients out or changes what they ask for.
pub(super) fn filters(dice: &mut Dice, place: &Path, number: u32) -> Vec<Value> {
    let numbered = number.to_string();
    let all = [
        json!({ "set_response_header": { "x-generation": numbered } }),
        json!({ "set_request_header": { "x-storm": "{client_ip}" } }),
        json!({ "add_request_header": { "x-tag": "{listener}", "via": "1.1 storm" } }),
        json!({ "remove_request_header": ["x-debug"] }),
        json!({ "add_response_header": { "vary": "accept-language" } }),
        json!({ "remove_response_header": ["server"] }),
        json!({ "rewrite": { "path": { "prefix": { "from": "/", "to": format!("/{numbered}") } } } }),
        json!({ "rewrite": { "host": "b.example", "path": { "regex": { "pattern": "[ab]$", "replacement": "c" } } } }),
        json!({ "cors": { "allow_origins": ["https://shop.example"], "max_age": "10m" } }),
        json!({ "body_limit": { "max": dice.below(9000) + 100 } }),
        json!({ "address_list": { "allow": ["127.0.0.0/8"], "deny": ["10.0.0.0/8"] } }),
        json!({ "address_list": { "allow_files": [place.join("friends")], "close": true } }),
        json!({ "error_page": { "status": "5xx", "body": "<p>{status} {request_id}" } }),
        json!({ "error_page": { "file": place.join("page"), "content_type": "text/plain" } }),
    ];
    let conditions = [
        json!({ "path": { "prefix": "/" } }),
        json!({ "method": ["POST", "PUT"], "not": { "source": "10.0.0.0/8" } }),
        json!({ "any": [{ "headers": { "x-number": { "regex": ".*7" } } }, { "cookies": { "stay": { "present": true } } }] }),
    ];
    let mut chosen: Vec<Value> = all.into_iter().filter(|_| dice.below(4) == 0).collect();
    for filter in &mut chosen {
        one(dice, filter, "when", &conditions);
    }
    // Clients without a password are none of these.
    let guarded = json!({
        "basic_auth": { "realm": "storm", "file": place.join("users") }, "when": { "headers": { "x-office": { "present": true } } },
    });
    chosen.extend(Some(guarded).filter(|_| dice.coin()));
    chosen
}

/// A route by which requests get through: what it asks of the cluster beside.
pub(super) fn forwarding(dice: &mut Dice, name: &str, place: &Path, number: u32) -> Value {
    let mut route = json!({ "name": name, "filters": filters(dice, place, number) });
    match dice.below(3) {
        0 => put(&mut route, "clusters", json!([{ "cluster": "site", "weight": dice.below(9) + 1 }])),
        _ => put(&mut route, "cluster", json!("site")),
    }
    let timeout = format!("{}s", dice.below(20) + 40);
    one(dice, &mut route, "timeout", &[json!(timeout)]);
    one(dice, &mut route, "subset", &[json!({ "labels": { "version": "v1" }, "otherwise": "any" })]);
    one(dice, &mut route, "queue", &[json!({ "class": -3 }), json!({ "offset": "-20ms" })]);
    one(dice, &mut route, "early_data", &[json!(true)]);
    attempts(dice, &mut route);
    route
}

/// Routes that come and go before the one that takes all: some take requests of the clients, some none.
pub(super) fn others(dice: &mut Dice, place: &Path, number: u32) -> Vec<Value> {
    let conditions = [
        json!({ "path": { "prefix": "/extra" } }),
        json!({ "path": { "regex": "/x[0-9]+" }, "method": "GET" }),
        json!({ "headers": { "x-number": { "regex": ".*3" } } }),
        json!({ "source": ["127.0.0.0/8"], "method": ["POST"] }),
        json!({ "host": ["shop.example", "*.example"], "path": { "exact": "/a" } }),
        json!({ "query": { "q": "1" }, "cookies": { "stay": { "absent": true } } }),
    ];
    let mut routes = Vec::new();
    for index in 0..dice.below(5) {
        let name = format!("extra-{index}");
        let mut route = forwarding(dice, &name, place, number);
        let condition = dice.pick(&conditions).clone();
        put(&mut route, "match", condition);
        one(dice, &mut route, "priority", &[json!(5), json!(-5)]);
        one(dice, &mut route, "listeners", &[json!(["web"]), json!(["secure", "web"])]);
        routes.push(route);
    }
    let (redirect, respond) = (json!({ "path": "/elsewhere", "status": 308 }), json!({ "status": 404, "body": "no" }));
    for (name, action) in [("redirect", redirect), ("respond", respond)] {
        if dice.coin() {
            routes.push(json!({ "name": name, "match": { "path": { "prefix": format!("/{name}") } }, name: action }));
        }
    }
    routes
}

/// What every listener of connections has.
fn listener(dice: &mut Dice, place: &Path) -> Value {
    let mut listener = json!({ "bind": "127.0.0.1:0" });
    one(dice, &mut listener, "connections_max", &[json!(1000), json!(2000)]);
    let lists = [
        json!({ "deny": ["10.0.0.0/8"] }),
        json!({ "allow": ["127.0.0.1"] }),
        json!({ "allow_files": [place.join("friends")] }),
    ];
    one(dice, &mut listener, "address_list", &lists);
    let socket = json!({
        "backlog": dice.below(900) + 100, "keepalive": { "idle": "5s", "count": 9 }, "user_timeout": "90s", "dscp": dice.below(64),
        "fast_open": dice.below(9) + 1, "freebind": true,
    });
    put(&mut listener, "socket", some_of(dice, socket));
    listener
}

fn http(dice: &mut Dice, place: &Path) -> Value {
    let mut listener = listener(dice, place);
    let timeouts = json!({
        "head": "30s", "idle": format!("{}s", dice.below(30) + 60), "stream": format!("{}s", dice.below(30) + 60),
    });
    put(&mut listener, "timeouts", some_of(dice, timeouts));
    let bytes = format!("{}KiB", dice.below(16) + 16);
    one(dice, &mut listener, "head_bytes_max", &[json!(bytes)]);
    one(dice, &mut listener, "fields_max", &[json!(40), json!(400)]);
    one(dice, &mut listener, "requests_per_connection_max", &[json!(1_000_000_000)]);
    one(dice, &mut listener, "request_id", &[json!(false), json!("x-trace")]);
    let trusted = json!({ "trusted": ["127.0.0.0/8"], "x_forwarded": false, "forwarded": true });
    put(&mut listener, "forwarding", some_of(dice, trusted));
    let paths = [
        json!({ "normalize": false }),
        json!({ "escaped_slashes": "keep" }),
        json!({ "merge_slashes": false, "escaped_slashes": "decode" }),
    ];
    one(dice, &mut listener, "paths", &paths);
    one(dice, &mut listener, "host_mismatch", &[json!("refuse")]);
    listener
}

/// Those who come without a header may, and those who do not are believed.
fn proxy_protocol(dice: &mut Dice, listener: &mut Value) {
    let peers =
        [json!({ "from": ["10.0.0.0/8"] }), json!({ "from": ["127.0.0.1"], "required": false, "timeout": "40s" })];
    one(dice, listener, "proxy_protocol", &peers);
}

pub(super) fn web(dice: &mut Dice, place: &Path) -> Value {
    let mut listener = http(dice, place);
    proxy_protocol(dice, &mut listener);
    one(dice, &mut listener, "http_versions", &[json!(["h1"]), json!(["h2", "h1"])]);
    listener
}

/// Another certificate, or the old one; either is one that clients trust.
pub(super) fn secure(dice: &mut Dice, place: &Path) -> Value {
    let mut listener = http(dice, place);
    put(&mut listener, "http_versions", json!(["h1", "h2", "h3"]));
    let http3 = json!({ "advertise": false, "max_age": "1h", "port": 443, "unproven_max": dice.below(3) });
    put(&mut listener, "http3", some_of(dice, http3));
    let tls = tls(dice, place, &["optional"]);
    put(&mut listener, "tls", tls);
    listener
}

fn tls(dice: &mut Dice, place: &Path, modes: &[&str]) -> Value {
    let file = |name: &str, end: &str| place.join(format!("{name}.{end}"));
    let mut certificates = Vec::new();
    for name in dice.pick(&[&["a"][..], &["b"], &["a", "b"], &["b", "a"]]).iter() {
        certificates.push(json!({ "chain": file(name, "pem"), "key": file(name, "key") }));
    }
    let mut tls = json!({ "certificates": certificates });
    one(dice, &mut tls, "version_min", &[json!("1.3"), json!("1.2")]);
    one(dice, &mut tls, "handshake_timeout", &[json!("50s")]);
    if dice.coin() {
        let mut client = json!({ "mode": *dice.pick(modes), "authorities": place.join("clients.pem") });
        one(dice, &mut client, "identity_header", &[json!("x-client")]);
        put(&mut tls, "client", client);
    }
    tls
}

pub(super) fn stream(dice: &mut Dice, place: &Path) -> Value {
    let mut listener = listener(dice, place);
    put(&mut listener, "protocol", json!("tcp"));
    let idle = format!("{}s", dice.below(30) + 60);
    one(dice, &mut listener, "idle_timeout", &[json!(idle)]);
    proxy_protocol(dice, &mut listener);
    match dice.below(3) {
        0 => put(
            &mut listener,
            "sni",
            json!({ "alpn": [{ "protocols": "dot", "cluster": "echo" }], "names": { "shop.example": "echo" }, "otherwise": "echo", "hello_timeout": "40s" }),
        ),
        _ => put(&mut listener, "cluster", json!("echo")),
    }
    listener
}

pub(super) fn dns(dice: &mut Dice) -> Value {
    let mut listener = json!({ "bind": "127.0.0.1:0", "protocol": "udp", "cluster": "datagrams" });
    one(dice, &mut listener, "idle_timeout", &[json!("1s"), json!("70s")]);
    one(dice, &mut listener, "responses_max", &[json!(1), json!(3)]);
    one(dice, &mut listener, "connections_max", &[json!(2000)]);
    one(dice, &mut listener, "address_list", &[json!({ "allow": ["127.0.0.0/8"] })]);
    let dscp = dice.below(64);
    one(dice, &mut listener, "socket", &[json!({ "dscp": dscp })]);
    listener
}

/// A cluster of TCP or UDP.
pub(super) fn of_bytes(dice: &mut Dice, addresses: &[SocketAddr], is_udp: bool) -> Value {
    let mut cluster = json!({ "endpoints": endpoints(dice, addresses) });
    one(
        dice,
        &mut cluster,
        "balance",
        &["round_robin", "random", "least_request", "source_hash", "first"].map(Value::from),
    );
    one(dice, &mut cluster, "persistence", &[json!({ "source": {} })]);
    if !is_udp {
        one(dice, &mut cluster, "timeouts", &[json!({ "connect": "22s" })]);
        one(dice, &mut cluster, "health_check", &[json!({ "tcp": {}, "interval": "60ms", "timeout": "20s" })]);
        one(
            dice,
            &mut cluster,
            "socket",
            &[json!({ "keepalive": {}, "dscp": 10 }), json!({ "source_address": "127.0.0.1" })],
        );
        one(dice, &mut cluster, "passive_health", &[json!({ "ejection_time": "100ms" })]);
    }
    cluster
}

/// A listener at an address that stays, of any kind, for clients that take what they get.
pub(super) fn spare(dice: &mut Dice, place: &Path, port: u16) -> Value {
    let mut spare = match dice.below(8) {
        0 => stream(dice, place),
        1 => dns(dice),
        2 | 3 => http(dice, place),
        _ => {
            let mut listener = http(dice, place);
            let versions =
                [json!(["h1", "h2"]), json!(["h2"]), json!(["h1", "h2", "h3"]), json!(["h3"]), json!(["h1", "h3"])];
            let versions = dice.pick(&versions).clone();
            put(&mut listener, "http_versions", versions);
            let tls = tls(dice, place, &["optional", "required"]);
            put(&mut listener, "tls", tls);
            listener
        }
    };
    let speaks_quic = spare["http_versions"].to_string().contains("h3");
    if !speaks_quic && spare["protocol"] != "udp" {
        one(dice, &mut spare, "proxy_protocol", &[json!({ "from": ["127.0.0.0/8"] })]);
    }
    let address = *dice.pick(&["127.0.0.1", "127.0.0.1", "0.0.0.0"]);
    put(&mut spare, "bind", json!(format!("{address}:{port}")));
    spare
}
