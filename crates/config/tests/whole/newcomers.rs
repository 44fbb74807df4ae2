//! What a new user writes first, and what is said of it: variables, words of other products, ports alone.

use model::snapshot::{Action, Protocol};

use crate::support::{load, messages, told};

/// Messages about a file with these lines under `version: 1`.
fn about(lines: &str) -> Vec<String> {
    messages(&format!("version: 1\n{lines}"))
}

#[test]
fn a_variable_has_the_type_that_its_place_asks_for_with_quotes_or_without() {
    for quote in ["", "\"", "'"] {
        let q = |variable: &str| format!("{quote}${{{variable}}}{quote}");
        let text = format!(
            "version: 1
listeners:
  a:
    bind: 127.0.0.1:0
    connections_max: {pin}
    head_bytes_max: {port}
    request_id: {no}
    timeouts:
      idle: {soon}
routes:
  - respond:
      body: {pin}
      headers:
        x-yes: {yes}
        x-port: {port}
      status: {status}
    early_data: {yes}
",
            pin = q("PIN"),
            port = q("PORT"),
            no = q("NOT_THERE:-false"),
            soon = q("SOON"),
            yes = q("YES"),
            status = q("STATUS:-204").replace("204", "201"),
        );
        let snapshot = load(&text).unwrap_or_else(|error| panic!("{error}")).snapshot;
        let (listener, route) = (&snapshot.listeners[0], &snapshot.routes[0]);
        let Protocol::Http(http) = &listener.protocol else { panic!("{listener:?}") };
        assert_eq!((listener.connections_max, http.head_bytes_max, http.request_id.as_ref()), (90_210, 8_443, None));
        assert_eq!(http.idle_timeout.as_millis(), 250);
        let Action::Respond(respond) = &route.action else { panic!("{route:?}") };
        assert_eq!((respond.status, respond.body.as_slice(), route.early_data), (201, &b"90210"[..], true));
        let fields: Vec<_> = respond.fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(fields, [("x-port", "8443"), ("x-yes", "true")]);
    }
}

#[test]
fn variables_that_do_not_hold_what_is_asked_for_are_told_without_what_they_hold() {
    let told = about(
        "listeners:
  a: { bind: '127.0.0.1:0', connections_max: '${TOKEN}', http_versions: '${TOKEN}', fields_max: '${PIN}' }
  b: { bind: '127.0.0.1:0', fields_max: '${EMPTY}', connections_max: '1${PORT}', protocol: '${PORT}' }
routes: [{ respond: {}, early_data: '${PORT}' }]
",
    );
    assert_eq!(
        told,
        [
            "3: `connections_max` must be a whole number from 1 to 4294967295, not the text `${TOKEN}` \
             (set the variable to that; the value of `${TOKEN}` is not shown)",
            "3: `http_versions` must be a list, not the text `${TOKEN}` \
             (a variable stands for one value: write it as a list: `[\"${TOKEN}\"]`)",
            "3: `fields_max` must be a whole number from 1 to 512, not ${PIN}",
            "4: `fields_max` must be a whole number from 1 to 512, not the text `${EMPTY}` \
             (set the variable to that; the value of `${EMPTY}` is not shown)",
            "4: `connections_max` must be a whole number from 1 to 4294967295, not the text `1${PORT}`",
            "4: `protocol` must be `http`, `tcp` or `udp`, not the text `${PORT}`",
            "5: `early_data` must be `true` or `false`, not the text `${PORT}` \
             (set the variable to that; the value of `${PORT}` is not shown)",
        ]
    );
}

#[test]
fn a_port_alone_is_that_port_of_all_ipv4_addresses() {
    for port in ["8080", "\"8080\"", "\":8080\"", ":8080", "\"${NOT_THERE:-8080}\"", "\":${NOT_THERE:-8080}\""] {
        let loaded = load(&format!("version: 1\nlisteners: {{ web: {{ bind: {port} }} }}\n"));
        let loaded = loaded.unwrap_or_else(|error| panic!("{port}: {error}"));
        assert_eq!(loaded.snapshot.listeners[0].bind.to_string(), "0.0.0.0:8080", "{port}");
    }
    let same = load("version: 1\nlisteners: { web: { bind: 8080 } }\n").unwrap().effective();
    assert_eq!(same["listeners"]["web"]["bind"], "0.0.0.0:8080");
    let told = about(
        "listeners:
  a: { bind: 99999 }
  b: { bind: '99999' }
  c: { bind: '*:80' }
  d: { bind: ':' }
  e: { bind: 8081 }
  f: { bind: '0.0.0.0:8081' }
admin: { bind: 9900 }
",
    );
    assert_eq!(
        told,
        [
            "3: `bind` must be a whole number from 0 to 65535, not 99999",
            "4: `99999` is not an address with a port (ports go from 0 to 65535)",
            "5: `*:80` is not an address with a port (write `0.0.0.0:80` for all IPv4 addresses, `[::]:80` for all IPv6 addresses)",
            "6: `:` is not an address with a port (write it like `127.0.0.1:8080` or `[::1]:8080`)",
            "8: `0.0.0.0:8081` is already used by listener `e` (choose another port)",
            "9: `0.0.0.0:9900` can be reached from outside, and the admin API requires no credentials: everyone who reaches it can read the configuration (bind `127.0.0.1:9900`, add `tokens`, or `tls` with `identities`, or \
             accept this with `allow_remote: true`)",
        ]
    );
}

#[test]
fn keys_of_other_products_are_known_by_the_place_where_they_stand() {
    let told = about(
        "entryPoints: {}
server: {}
static_resources: {}
routes:
  - { proxy_pass: 'http://a' }
  - { cluster: a, location: /x, add_header: {}, middlewares: [] }
  - { match: { server_name: a, location: /x }, cluster: a, basic_auth: {}, retry_policy: {}, rateLimit: {} }
  - { return: 404 }
clusters: { a: { endpoints: ['127.0.0.1:1'] } }
",
    );
    let nginx = "docs/guides/coming-from-nginx.md";
    let (envoy, traefik) = ("docs/guides/coming-from-envoy.md", "docs/guides/coming-from-traefik.md");
    let wanted = [
        format!("2: unknown key `entryPoints` in the file (did you mean `listeners`? See {traefik})"),
        format!("3: unknown key `server` in the file (did you mean `listeners`? See {nginx})"),
        format!(
            "4: unknown key `static_resources` in the file (write `listeners`, `routes` and `clusters` at the top of the \
             file; see {envoy})"
        ),
        format!("6: unknown key `proxy_pass` in route 1 (did you mean `cluster`? See {nginx})"),
        format!("7: unknown key `location` in route 2 (did you mean `routes`? See {nginx})"),
        format!(
            "7: unknown key `add_header` in route 2 (write it as a filter: `filters: [{{ set_response_header: … }}]`; see {nginx})"
        ),
        format!("7: unknown key `middlewares` in route 2 (did you mean `filters`? See {traefik})"),
        format!("8: unknown key `server_name` in `match` of route 3 (did you mean `host`? See {nginx})"),
        format!("8: unknown key `location` in `match` of route 3 (did you mean `path: {{ … }}`? See {nginx})"),
        "8: unknown key `basic_auth` in route 3 (write it as a filter: `filters: [{ basic_auth: … }]`)".to_owned(),
        format!("8: unknown key `retry_policy` in route 3 (did you mean `retry`? See {envoy})"),
        format!(
            "8: unknown key `rateLimit` in route 3 (write the filter `rate_limit: {{ rate: 10/s, burst: 20 }}` in `filters` of a route; see {traefik})"
        ),
        format!("9: unknown key `return` in route 4 (did you mean `redirect: {{ … }}`? See {nginx})"),
    ];
    assert_eq!(told, wanted);
}

#[test]
fn keys_of_other_products_are_known_in_clusters() {
    let told = about(
        "clusters:
  a:
    endpoints: [{ url: 'http://a' , address: '127.0.0.1:1', down: true }]
    lb_policy: ROUND_ROBIN
    ip_hash: true
    proxy_read_timeout: 5s
    timeout connect: 5s
    httpchk: GET /
    outlier_detection: {}
    circuitBreaker: {}
  b: { endpoints: ['127.0.0.1:1'], timeouts: { timeout server: 5s }, health_check: { httpchk: / } }
  c: { endpoints: ['127.0.0.1:1'], balance: random, least_conn: true, timeouts: {}, connect_timeout: 1s }
",
    );
    let (nginx, haproxy) = ("docs/guides/coming-from-nginx.md", "docs/guides/coming-from-haproxy.md");
    let (envoy, traefik) = ("docs/guides/coming-from-envoy.md", "docs/guides/coming-from-traefik.md");
    let wanted = [
        format!(
            "4: unknown key `url` in `endpoints` of cluster `a` (here it is `address`, which is already set: leave this out; see {traefik})"
        ),
        format!("4: unknown key `down` in `endpoints` of cluster `a` (did you mean `state: maintenance`? See {nginx})"),
        format!("5: unknown key `lb_policy` in cluster `a` (did you mean `balance`? See {envoy})"),
        format!("6: unknown key `ip_hash` in cluster `a` (did you mean `balance: source_hash`? See {nginx})"),
        format!(
            "7: unknown key `proxy_read_timeout` in cluster `a` (write `timeouts: {{ connect, response_head, idle, tunnel }}` in the cluster; see {nginx})"
        ),
        format!(
            "8: unknown key `timeout connect` in cluster `a` (write `timeouts: {{ connect, response_head, idle, tunnel }}` in the cluster; see {haproxy})"
        ),
        format!(
            "9: unknown key `httpchk` in cluster `a` (write `health_check: {{ http: {{ path: … }} }}` in the cluster; see {haproxy})"
        ),
        format!("10: unknown key `outlier_detection` in cluster `a` (did you mean `passive_health`? See {envoy})"),
        format!("11: unknown key `circuitBreaker` in cluster `a` (did you mean `circuit_breaker`? See {traefik})"),
        format!(
            "12: unknown key `timeout server` in `timeouts` of cluster `b` (did you mean `response_head`? See {haproxy})"
        ),
        format!(
            "12: unknown key `httpchk` in `health_check` of cluster `b` (did you mean `http: {{ … }}`? See {haproxy})"
        ),
        format!(
            "13: unknown key `least_conn` in cluster `c` (change `balance`, which is set already, to `balance: least_request`; \
             see {nginx})"
        ),
        format!(
            "13: unknown key `connect_timeout` in cluster `c` (write `timeouts: {{ connect, response_head, idle, tunnel }}` in \
             the cluster; see {envoy})"
        ),
    ];
    assert_eq!(told, wanted);
}

#[test]
fn values_of_other_products_are_known_by_their_key() {
    let told = about(
        "clusters:
  a: { endpoints: ['127.0.0.1:1'], balance: leastconn }
  b: { endpoints: ['127.0.0.1:1'], balance: least_conn }
  c: { endpoints: ['127.0.0.1:1'], balance: LEAST_REQUEST }
  d: { endpoints: ['127.0.0.1:1'], balance: RING_HASH }
  e: { endpoints: ['127.0.0.1:1'], http_versions: [h2c], retry: { on: [gateway-error, http_503] } }
",
    );
    let balance = "`balance` must be `round_robin`, `random`, `least_request`, `power_of_two`, `least_time`, `peak_ewma`, \
                   `first` or `source_hash`, not the text";
    assert_eq!(
        told,
        [
            format!("3: {balance} `leastconn` (did you mean `least_request`? See docs/guides/coming-from-haproxy.md)"),
            format!("4: {balance} `least_conn` (did you mean `least_request`? See docs/guides/coming-from-nginx.md)"),
            format!("5: {balance} `LEAST_REQUEST` (did you mean `least_request`? See docs/guides/coming-from-envoy.md)"),
            format!(
                "6: {balance} `RING_HASH` (did you mean `{{ hash: {{ on: …, algorithm: ketama }} }}`? \
                 See docs/guides/coming-from-envoy.md)"
            ),
            "7: an item of `http_versions` must be `h1`, `h2` or `h3`, not the text `h2c` (did you mean `h2`? \
             See docs/guides/coming-from-traefik.md)"
                .to_owned(),
            "7: `gateway-error` is not a reason to retry (did you mean `502-504`? See docs/guides/coming-from-envoy.md)"
                .to_owned(),
            "7: `http_503` is not a reason to retry (did you mean `503`? See docs/guides/coming-from-nginx.md)".to_owned(),
        ]
    );
}

#[test]
fn only_what_is_near_and_not_there_yet_is_suggested() {
    let told = about(
        "routes:
  - { respond: {}, filters: [{ mirroring: {} }, { ext_authz: {} }, { respond: {} }, { basic_auht: {} }] }
  - { respond: {}, retry: { attempts_max: 2, attempt_timeout: 1s } }
  - { respond: {}, retry: { timeout: 2s, attempt_timeout: 1s, attempts_mx: 3 } }
clusters: { a: { endpoints: ['127.0.0.1:1'], persistence: { cookie: { secret: 0123456789abcdef, wibble: 1 } } } }
",
    );
    assert_eq!(
        told,
        [
            "3: unknown filter `mirroring` in `filters` of route 1 (write the filter `mirror: { cluster: NAME }` in `filters` \
             of a route; see docs/guides/coming-from-traefik.md)",
            "3: unknown filter `ext_authz` in `filters` of route 1 (write the filter `ext_authz: { cluster: NAME }` in `filters` of a route, or `forward_auth` if the service speaks HTTP; see docs/guides/coming-from-envoy.md)",
            "3: unknown filter `respond` in `filters` of route 1 (there is `set_request_header`, `set_response_header`, \
             `remove_response_header`, `rewrite`, `basic_auth`, `deny`)",
            "3: unknown filter `basic_auht` in `filters` of route 1 (did you mean `basic_auth`?)",
            "4: unknown key `attempt_timeout` in `retry` of route 2 (did you mean `timeout`?)",
            "5: unknown key `attempt_timeout` in `retry` of route 3 (here it is `timeout`, which is already set: leave this out)",
            "5: unknown key `attempts_mx` in `retry` of route 3 (did you mean `attempts_max`?)",
            "6: unknown key `wibble` in `persistence.cookie` of cluster `a` (there are 11, such as `idle_max`, `life_max`, `name`; all are in \
             docs/reference/configuration.md and in `equipoise schema`)",
        ]
    );
}

#[test]
fn all_that_is_wrong_with_a_route_is_told_together() {
    let told = about(
        "routes:
  - match: { host: '*', path: { regex: '(' }, headers: { x: { regex: '[' } }, query: { q: { regex: a } } }
    respond: {}
    filters: [{ rewrite: {}, when: { path: { regex: 'x{' } } }]
",
    );
    assert_eq!(
        told,
        [
            "3: `*` is not a host name, nor `*.` followed by one",
            "3: `(` is not a regular expression: unclosed group",
            "3: `[` is not a regular expression: unclosed character class",
            "5: `x{` is not a regular expression: unclosed counted repetition",
        ]
    );
}

#[test]
fn statuses_are_written_alike_everywhere() {
    let text = "version: 1
listeners: { a: { bind: '127.0.0.1:0' } }
routes: [{ cluster: a }]
clusters:
  a:
    endpoints: ['127.0.0.1:1']
    retry: { on: [5xx, 429, '502 - 504', 400-403] }
    health_check: { http: { statuses: [2xx, 301] } }
";
    let snapshot = load(text).unwrap_or_else(|error| panic!("{error}")).snapshot;
    let retry = &snapshot.clusters[0].retry;
    assert_eq!(retry.on.statuses, [(500, 599), (429, 429), (502, 504), (400, 403)]);
    let told = about("clusters: { a: { endpoints: ['127.0.0.1:1'], retry: { on: [6xx, 503-502] } } }\n");
    assert_eq!(
        told,
        [
            "2: `6xx` is not a reason to retry (there is `connect_failure`, `reset`, `timeout`, `bad_response`, a status \
             such as `503`, `5xx` or `502-504`, and for gRPC `grpc_unavailable` and its like)",
            "2: `503-502` is not a reason to retry (write the smaller status first: `502-503`)",
        ]
    );
}

#[test]
fn an_unclosed_bracket_is_shown_where_it_is_opened() {
    let wanted = "site.yaml:3:8: not YAML: the `{` that is opened here is never closed
   3 |   web: { bind: 8080
     |        ^
     help: add the `}` that belongs to it

1 problem";
    assert_eq!(told("version: 1\nlisteners:\n  web: { bind: 8080\nroutes:\n  - respond: {}\n"), wanted);
}

#[test]
fn no_mend_is_suggested_that_is_wrong_itself() {
    let told = about(
        "listeners:
  a: { bind: 127.0.0.1:0, default_backend: a, protocol: https, http_versions: on }
routes:
  - { redirect: { path: 'https://x.example{path}' } }
  - { redirect: { path: 'https://{host}{path}' } }
  - { redirect: { path: 'http://x.example:81/a' } }
  - { redirect: { path: a } }
  - { cluster: a, retries: 3, timeout: 0, filters: [{ deny: all }, { deny: { rate: 10 } }, { deny: { rate: 0.5 } }] }
clusters:
  a: { endpoints: ['::1:80', '::1'], keepalive: 32, sticky: true, retry: { on: error timeout } }
",
    );
    let (nginx, haproxy) = ("docs/guides/coming-from-nginx.md", "docs/guides/coming-from-haproxy.md");
    let rate = "`rate` must be a rate such as `10/s`, not the number";
    let wanted = [
        format!(
            "3: unknown key `default_backend` in listener `a` (write a route without `match`: `routes: [{{ cluster: NAME }}]`; \
             a TCP listener has `cluster: NAME`; see {haproxy})"
        ),
        "3: `protocol` must be `http`, `tcp` or `udp`, not the text `https` \
         (write `protocol: http` with `tls: { certificates: [{ chain: …, key: … }] }`)"
            .to_owned(),
        "3: `http_versions` must be a list, not the text `on`".to_owned(),
        "5: the path `https://x.example{path}` does not begin with `/` \
         (write `redirect: { scheme: https, host: x.example }`)"
            .to_owned(),
        "6: the path `https://{host}{path}` does not begin with `/` \
         (write `redirect: { scheme: https }`: host and path are kept)"
            .to_owned(),
        "7: the path `http://x.example:81/a` does not begin with `/` \
         (write `redirect: { scheme: http, host: x.example, port: 81, path: \"/a\" }`)"
            .to_owned(),
        "8: the path `a` does not begin with `/` (write `/a`)".to_owned(),
        format!(
            "9: unknown key `retries` in route 5 (write `retry: {{ attempts_max: 3 }}` in a route or cluster; see {haproxy})"
        ),
        "9: `timeout` must be a duration such as `250ms`, `5s` or `1m30s`, not the number 0".to_owned(),
        "9: `deny` must be a map, not the text `all` (write `deny: {}` for the defaults)".to_owned(),
        format!("9: {rate} 10 (write `10/s` for a rate per second)"),
        format!("9: {rate} 0.5"),
        "11: `::1:80` has no port (write `\"[::1]:80\"` if 80 is the port)".to_owned(),
        "11: `::1` has no port (write `\"[::1]:80\"`)".to_owned(),
        format!(
            "11: unknown key `keepalive` in cluster `a` (write `pool: {{ idle_max: 32 }}` in the cluster; see {nginx})"
        ),
        format!(
            "11: unknown key `sticky` in cluster `a` (write `persistence: {{ cookie: {{ secret: … }} }}` in the cluster; see {nginx})"
        ),
        "11: `on` must be a list, not the text `error timeout`".to_owned(),
    ];
    assert_eq!(told, wanted);
}

#[test]
fn other_names_of_the_client_address_are_no_header_fields() {
    let told = about(
        "routes:
  - { cluster: a, filters: [{ deny: { key: $binary_remote_addr } }, { deny: { key: src } }] }
clusters: { a: { endpoints: ['127.0.0.1:1'] } }
",
    );
    let wanted = ["$binary_remote_addr", "src"].map(|name| {
        format!("3: `key` must be `client`, not the text `{name}` (write `client` for the address of the client)")
    });
    assert_eq!(told, wanted);
}

#[test]
fn conditions_and_settings_in_the_wrong_place_are_shown_the_right_one() {
    let told = about(
        "http: {}
global: {}
metrics: {}
routes:
  - { cluster: a, host: a.example, path: /x, prefix: /y, method: GET, when: {}, limit_req_zone: x, gzip_types: [a] }
  - { cluster: a, filters: [{ deny: { when: {}, key: x-api-key } }], match: { method: GET|POST } }
clusters:
  a: { endpoints: [{ server: '127.0.0.1:1' }], timeouts: { server: 3s } }
",
    );
    let (nginx, haproxy) = ("docs/guides/coming-from-nginx.md", "docs/guides/coming-from-haproxy.md");
    let wanted = [
        format!("2: unknown key `http` in the file (write `listeners`, `routes` and `clusters` at the top of the file; see {nginx})"),
        format!(
            "3: unknown key `global` in the file (write settings of the whole process at the top of the file, such as `shutdown` and `admin`; see {haproxy})"
        ),
        "4: unknown key `metrics` in the file (did you mean `admin`? See docs/guides/coming-from-traefik.md)".to_owned(),
        "6: unknown key `host` in route 1 (write it in `match`: `match: { host: a.example }`)".to_owned(),
        "6: unknown key `path` in route 1 (write it in `match`: `match: { path: { prefix: /x } }`)".to_owned(),
        "6: unknown key `prefix` in route 1 (write it in `match`: `match: { path: { prefix: /y } }`)".to_owned(),
        "6: unknown key `method` in route 1 (write it in `match`: `match: { method: … }`)".to_owned(),
        "6: unknown key `when` in route 1 (conditions of a route belong in `match`; those of a filter, in `when` beside its name)"
            .to_owned(),
        format!(
            "6: unknown key `limit_req_zone` in route 1 (write the filter `rate_limit: {{ rate: 10/s, burst: 20 }}` in \
             `filters` of a route; see {nginx})"
        ),
        format!(
            "6: unknown key `gzip_types` in route 1 (write the filter `compress: {{ types: […] }}` in `filters` of a route; \
             see {nginx})"
        ),
        "7: unknown key `when` in `filters.deny` of route 2 (write it beside the name of the filter: \
         `{ deny: …, when: { … } }`)"
            .to_owned(),
        "7: `key` must be `client`, not the text `x-api-key` (write `{ header: x-api-key }`)".to_owned(),
        "7: `GET|POST` is not a method (write a list: `[GET, POST]`)".to_owned(),
        "9: `address` is missing in `endpoints` of cluster `a` (add `address`: `ip:port`, `[ipv6]:port`, `name:port`, or a Unix \
         socket such as `unix:/run/app.sock`)"
            .to_owned(),
        format!("9: unknown key `server` in `endpoints` of cluster `a` (did you mean `address`? See {nginx})"),
        format!("9: unknown key `server` in `timeouts` of cluster `a` (did you mean `response_head`? See {haproxy})"),
    ];
    assert_eq!(told, wanted);
}

/// The suggestions about what this block is given.
fn mends(text: &str) -> Vec<String> {
    about(&format!("listeners: {{ a: {{ bind: '127.0.0.1:0' }} }}\n{text}"))
}

#[test]
fn keys_of_other_products_in_a_block_name_what_the_block_has() {
    for (block, wanted) in [
        ("caches: { pages: { path: /tmp } }", "write `disk: { path: /var/cache/pages, max: 10GiB }`"),
        ("caches: { pages: { max_size: 1GiB } }", "write `disk: { path: /var/cache/pages, max: 10GiB }`"),
        ("caches: { pages: { disk: /tmp } }", "write `disk: { path: /tmp, max: 10GiB }`"),
        ("stick_table: { type: ip }", "write `tables: { NAME: { key: client, rates: { requests: 10s } } }`"),
        ("stick_tables: { a: {} }", "write `tables: { NAME: { key: client, rates: { requests: 10s } } }`"),
        ("tables: { a: { type: ip } }", "`key: client`"),
        ("tables: { a: { size: 1m } }", "write `keys_max: 100000`"),
        (
            "tables: { a: { store: http_req_rate } }",
            "write `counters: [requests, errors]` and `rates: { requests: 10s }`",
        ),
        ("tables: { a: { ttl: 1m } }", "write `expire: 10m`"),
    ] {
        let told = mends(block);
        assert!(told.iter().any(|told| told.contains(wanted)), "{block}: {told:?}");
    }
}
