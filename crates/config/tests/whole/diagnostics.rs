//! What a person sees.

use crate::support::{messages, told};

#[test]
fn all_mistakes_are_shown_at_once_with_their_lines() {
    let text = r#"version: 1
listeners:
  web: { bind: "*:8080", timeot: 5s }
routes:
  - match: { host: shop.example.com, path: /api }
    cluster: apii
clusters:
  api:
    endpoints: ["127.0.0.1:9003", { address: "127.0.0.1:9004", weight: 5000 }]
    balance: least_requests
    queue: { timeout: 5 }
"#;
    let wanted = r#"site.yaml:3:16: `*:8080` is not an address with a port
   3 |   web: { bind: "*:8080", timeot: 5s }
     |                ^^^^^^^^
     help: write `0.0.0.0:8080` for all IPv4 addresses, `[::]:8080` for all IPv6 addresses

site.yaml:3:26: unknown key `timeot` in listener `web`
   3 |   web: { bind: "*:8080", timeot: 5s }
     |                          ^^^^^^
     help: did you mean `timeouts`?

site.yaml:5:44: `path` must be a map, not the text `/api`
   5 |   - match: { host: shop.example.com, path: /api }
     |                                            ^^^^
     help: write `{ exact: /api }` or `{ prefix: /api }` or `{ regex: /api }`

site.yaml:6:14: there is no cluster `apii`
   6 |     cluster: apii
     |              ^^^^
     help: did you mean `api`?

site.yaml:9:72: `weight` must be a whole number from 0 to 1000, not 5000
   9 |     endpoints: ["127.0.0.1:9003", { address: "127.0.0.1:9004", weight: 5000 }]
     |                                                                        ^^^^

site.yaml:10:14: `balance` must be `round_robin`, `random`, `least_request`, `power_of_two`, `least_time`, `peak_ewma`, `first` or `source_hash`, not the text `least_requests`
  10 |     balance: least_requests
     |              ^^^^^^^^^^^^^^
     help: did you mean `least_request`?

site.yaml:11:5: `requests_max` is missing in `queue` of cluster `api`
  11 |     queue: { timeout: 5 }
     |     ^^^^^
     help: add `requests_max`: limit on waiting requests, over all workers

site.yaml:11:23: `timeout` must be a duration such as `250ms`, `5s` or `1m30s`, not the number 5
  11 |     queue: { timeout: 5 }
     |                       ^
     help: did you mean `5s`?

8 problems"#;
    assert_eq!(told(text), wanted);
}

/// Messages about a file with these lines under `version: 1`.
fn about(lines: &str) -> Vec<String> {
    messages(&format!("version: 1\n{lines}"))
}

#[test]
fn keys_of_the_other_protocol_are_refused_with_what_to_write() {
    let told = about(
        "listeners:
  a: { bind: '127.0.0.1:1', cluster: c, idle_timeout: 5s }
  b: { bind: '127.0.0.1:2', protocol: tcp, timeouts: {}, sni: { names: { a.example: c } } }
  c: { bind: '127.0.0.1:3', protocol: tcp }
  d: { bind: '127.0.0.1:4', protocol: tcp, cluster: c, sni: { otherwise: c } }
  e: { bind: '127.0.0.1:5', protocol: tcp, sni: {} }
clusters: { c: { endpoints: ['127.0.0.1:9'] } }
",
    );
    assert_eq!(
        told,
        [
            "3: `cluster` is for `protocol: tcp`, but listener `a` speaks http (name the cluster in a route, or set `protocol: tcp`)",
            "3: `idle_timeout` is for `protocol: tcp`, but listener `a` speaks http (write `timeouts: { idle: … }`)",
            "4: `timeouts` is for `protocol: http`, but listener `b` speaks tcp (write `idle_timeout`)",
            "5: listener `c` needs one of `cluster` or `sni` (add `cluster: NAME`, where its connections go)",
            "6: `cluster` and `sni` exclude each other in listener `d` (write the cluster as `otherwise` of `sni`)",
            "7: `sni` names no cluster (add `names`, `alpn` or `otherwise`)",
        ]
    );
}

#[test]
fn rates_of_a_tcp_listener_are_bytes_per_second() {
    let told = about(
        "listeners:
  a: { bind: '127.0.0.1:1', protocol: tcp, cluster: c, bandwidth: { download: 1MB } }
  b: { bind: '127.0.0.1:2', protocol: tcp, cluster: c, bandwidth: { upload: fast } }
  c: { bind: '127.0.0.1:3', protocol: tcp, cluster: c, bandwidth: { upload: 0B/s } }
  d: { bind: '127.0.0.1:4', protocol: tcp, cluster: c, bandwidth: { upload: 2000GB/s } }
  e: { bind: '127.0.0.1:5', protocol: tcp, cluster: c, bandwidth: {} }
  f: { bind: '127.0.0.1:6', bandwidth: { download: 1MB/s } }
  g: { bind: '127.0.0.1:7', protocol: tcp, cluster: c, bandwidth: { download: 64KiB/s, upload: 1 MB/s } }
clusters: { c: { endpoints: ['127.0.0.1:9'] } }
",
    );
    assert_eq!(
        told,
        [
            "3: `1MB` is not a rate (did you mean `1MB/s`?)",
            "4: `fast` is not a rate (write bytes per second, such as `1MB/s` or `64KiB/s`)",
            "5: `0B/s` lets no byte pass (leave it out for no limit, or write `1B/s` or more)",
            "6: `2000GB/s` is more than 1000GB/s (leave it out for no limit)",
            "7: no rate is given (add `download`, `upload` or both, such as `{ download: 1MB/s }`)",
            "8: `bandwidth` is for `protocol: tcp`, but listener `f` speaks http (write the filter `bandwidth_limit` in a route, or set `protocol: tcp`)",
        ]
    );
}

#[test]
fn mistakes_in_application_protocols_of_a_listener_are_named() {
    let told = about(&format!(
        "listeners:
  a:
    bind: '127.0.0.1:1'
    protocol: tcp
    sni:
      alpn:
        - {{ protocols: [], cluster: c }}
        - {{ protocols: [h2, ''], cluster: c }}
        - {{ protocols: '{}', cluster: c }}
        - {{ protocols: h2, names: '*.*.b', cluster: c }}
        - {{ protocols: h2, cluster: d }}
clusters: {{ c: {{ endpoints: ['127.0.0.1:9'] }} }}
",
        "x".repeat(256)
    ));
    let said = |line: u32, words: &str| {
        assert!(told.iter().any(|one| one.starts_with(&format!("{line}: ")) && one.contains(words)), "{line} {told:?}");
    };
    said(8, "`protocols` is empty");
    said(9, "and this one 0");
    said(10, "and this one 256");
    said(11, "*.*.b");
    said(12, "`d`");
    assert_eq!(told.len(), 5, "{told:?}");
}

#[test]
fn two_cannot_listen_at_the_same_address() {
    let told = about(
        "listeners:
  a: { bind: '127.0.0.1:1' }
  b: { bind: '127.0.0.1:1' }
  c: { bind: '127.0.0.1:0' }
  d: { bind: '127.0.0.1:0' }
admin: { bind: '127.0.0.1:1' }
",
    );
    assert_eq!(
        told,
        [
            "4: `127.0.0.1:1` is already used by listener `a` (choose another port)",
            "7: `127.0.0.1:1` is already used by listener `a` (choose another port)",
        ]
    );
}

#[test]
fn the_admin_page_stays_inside_unless_that_is_said() {
    assert_eq!(
        about("admin: { bind: '0.0.0.0:9900' }"),
        [
            "2: `0.0.0.0:9900` can be reached from outside, and the admin API requires no credentials: everyone who reaches it can read the configuration (bind `127.0.0.1:9900`, add `tokens`, or `tls` with `identities`, or accept \
          this with `allow_remote: true`)"
        ]
    );
    let token = "tokens: [{ name: a, role: admin, token: 0123456789abcdef }]";
    assert_eq!(about(&format!("admin: {{ bind: '0.0.0.0:9900', {token} }}")), [""; 0]);
    assert_eq!(about(&format!("admin: {{ bind: 'unix:/run/a.sock', mode: '0660', {token} }}")), [""; 0]);
    for fine in ["127.0.0.1:1", "[::1]:1", "127.8.8.8:1", "[::ffff:127.0.0.1]:1"] {
        assert_eq!(about(&format!("admin: {{ bind: '{fine}' }}")), [""; 0], "{fine}");
    }
}

#[test]
fn endpoints_are_checked_one_by_one() {
    let told = about(
        "clusters:
  a:
    endpoints:
      - http://x.example/
      - 1.2.3.4
      - nope.example:80
      - empty.example:80
      - localhost:0
      - app.internal:80
      - 10.0.0.1:80
      - 10.0.0.1:80
  b: { endpoints: [] }
  c: { endpoints: '127.0.0.1:1' }
  d: { endpoints: [{ address: '127.0.0.1:1', weight: 0 }] }
",
    );
    assert_eq!(
        told,
        [
            "5: `http://x.example/` is a URL (write `x.example:80`)",
            "6: `1.2.3.4` has no port (write `1.2.3.4:80`)",
            "7: the name `nope.example` cannot be looked up: no such name",
            "8: the name `empty.example` has no address",
            "9: `localhost:0` has port 0",
            "11: `10.0.0.1:80` and `app.internal:80` are the same endpoint, 10.0.0.1:80 (use `weight` to give an endpoint more work)",
            "12: the endpoint `10.0.0.1:80` is listed twice (use `weight` to give an endpoint more work)",
            "14: `endpoints` must be a list or a map, not the text `127.0.0.1:1` (write it as a list: `[127.0.0.1:1]`)",
            "15: all weights are 0 (give at least one endpoint a weight)",
        ]
    );
}

#[test]
fn conditions_are_checked_one_by_one() {
    let told = about(
        "routes:
  - respond: {}
    match:
      host: ['*', a.example:80]
      path: { prefix: api }
      method: [get, 'A B']
      headers: { 'a b': x, Host: x, x-a: { exact: a, regex: b }, x-b: {}, x-c: 5, X-D: '1', x-d: '2' }
      cookies: { 'a=b': x }
      source: 10.0.0.0/33
  - respond: {}
    match: { path: { exact: '/a?b' } }
  - respond: {}
    match: { path: { exact: '/a*' } }
  - respond: {}
    match: { path: { prefix: '/a b' } }
",
    );
    assert_eq!(
        told,
        [
            "5: `*` is not a host name, nor `*.` followed by one",
            "5: `a.example:80` must not have a port",
            "6: the path `api` does not begin with `/` (write `/api`)",
            "7: `get` is not a method that clients send (write `GET`: methods are case-sensitive)",
            "7: `A B` is not a method (write a list: `[A, B]`)",
            "8: `a b` is not the name of a header field",
            "8: the host is matched by `host`",
            "8: `exact` and `regex` exclude each other in `match.headers.x-a` of route 1 (keep one of them)",
            "8: `match.headers.x-b` of route 1 needs one of `exact`, `regex`, `present` or `absent`",
            "8: `x-c` must be text or a map, not the number 5 (put it in quotes: \"5\")",
            "8: `x-d` is listed twice",
            "9: `a=b` is not the name of a cookie",
            "10: the prefix length of `10.0.0.0/33` is longer than 32",
            "12: the path `/a?b` contains a query or fragment (match the query with `query`)",
            "14: `*` is not a wildcard in the path `/a*` (write `prefix: /a`, or `regex`)",
            "16: the path `/a b` contains a character that no request may have (write such characters percent-encoded, as clients send them)",
        ]
    );
}

#[test]
fn a_route_does_one_thing() {
    let told = about(
        "routes:
  - {}
  - { cluster: a, redirect: { scheme: https } }
  - { clustr: a }
  - { clusters: [{ cluster: a, weight: 0 }, { cluster: a, weight: 0 }] }
  - { redirect: { status: 302 } }
  - { redirect: { status: 303, host: 'a:80', path: 'x{', scheme: ftp } }
  - { name: route-1, respond: { status: 204, body: x, headers: { date: x, 'a b': c, d: \"\\n\" } } }
  - { name: 'a b', listeners: [x], respond: { status: 99 } }
clusters: { a: { endpoints: ['127.0.0.1:1'] } }
",
    );
    assert_eq!(
        told,
        [
            "3: route 1 needs one of `cluster`, `clusters`, `redirect` or `respond`",
            "4: `cluster` and `redirect` exclude each other in route 2 (keep one of them)",
            "5: unknown key `clustr` in route 3 (did you mean `cluster`?)",
            "6: all weights are 0 (give at least one cluster a weight)",
            "6: cluster `a` is listed twice",
            "7: the redirect leads back to the same address (add `scheme`, `host`, `port`, `path` or `to`)",
            "8: `a:80` is not a host name, nor an address, without a port",
            "8: `{` is never closed in `x{`: write `{{` for a brace",
            "8: `scheme` must be `http` or `https`, not the text `ftp`",
            "9: a response with status 204 has no body",
            "9: `date` is set by the protocol and cannot be chosen",
            "9: `a b` is not the name of a header field",
            "9: the value of a header field cannot contain control characters",
            "10: `name`: `a b` cannot be a name (names start with a letter, a digit or `_`, contain only these, `-` and `.`, and have at most 64 characters)",
            "10: there is no listener `x`",
            "10: `status` must be a whole number from 200 to 599, not 99",
        ]
    );
}

#[test]
fn names_of_routes_are_unique_even_those_that_are_counted() {
    let told = about(
        "routes:\n  - respond: {}\n  - { name: route-1, respond: {} }\n  - { name: x, respond: {} }\n  - { name: x, respond: {} }\n",
    );
    assert_eq!(
        told,
        [
            "4: the name `route-1` is already used by the route in line 3 (give one of them another name)",
            "6: the name `x` is already used by the route in line 5 (give one of them another name)",
        ]
    );
}

#[test]
fn filters_are_checked_by_the_schema_and_by_themselves() {
    let told = about(
        "routes:
  - respond: {}
    filters:
      - set_request_heder: { a: b }
      - set_request_header: { x-a: 1 }
      - set_request_header: { X-A: '1' }
      - rewrite: { path: { prefx: /x } }
      - rewrite: { path: { replace: 5, all: yes } }
      - rewrite: {}
        basic_auth: {}
      - {}
      - rewrite:
",
    );
    assert_eq!(
        told,
        [
            "5: unknown filter `set_request_heder` in `filters` of route 1 (did you mean `set_request_header`?)",
            "6: `x-a` must be text, not the number 1 (put it in quotes: \"1\")",
            "7: not in lower case (write it small)",
            "8: `prefix` is missing in `filters.rewrite.path` of route 1",
            "8: unknown key `prefx` in `filters.rewrite.path` of route 1 (did you mean `prefix`?)",
            "9: `replace` must be text, not the number 5 (put it in quotes: \"5\")",
            "9: `all` must be `true` or `false`, not the text `yes` (write `true`)",
            "10: an item of `filters` holds 2 keys where one is allowed (begin each with its own `- `)",
            "11: `users` is missing in `filters.basic_auth` of route 1",
            "12: an item of `filters` is empty (there is `set_request_header`, `set_response_header`, \
             `remove_response_header`, `rewrite`, `basic_auth`, `deny`)",
            "13: `rewrite` is empty, but must be a map (write `{}` for the defaults, or leave the key out)",
        ]
    );
}

#[test]
fn a_receiver_of_syslog_says_how_it_is_reached_and_who_speaks() {
    let told = about(
        "access_logs:
  - { syslog: { to: '127.0.0.1:514' } }
  - { syslog: { to: /dev/log } }
  - { syslog: { to: 'https://logs.example' } }
  - { syslog: { to: 'udp:unix:/dev/log' } }
  - { syslog: { to: 'tcp:127.0.0.1' } }
  - { syslog: { to: 'unix:dev/log' } }
  - { syslog: { to: 'udp:127.0.0.1:514', facility: local8, tag: 'a b' } }
  - { syslog: { to: 'udp:127.0.0.1:514', severity: warn } }
",
    );
    let like = "write it like `udp:192.0.2.1:514`, `tcp:192.0.2.1:514` or `unix:/dev/log`";
    assert_eq!(
        told,
        [
            "3: `127.0.0.1:514` has no protocol (write `udp:127.0.0.1:514` or `tcp:127.0.0.1:514`)",
            "4: `/dev/log` has no protocol (write `unix:/dev/log`)",
            &format!("5: `https://logs.example` has no protocol ({like})"),
            &format!("6: `udp:unix:/dev/log` has no protocol ({like})"),
            "7: `127.0.0.1` has no port (write `127.0.0.1:80`)",
            "8: `dev/log` is not an absolute path (write it like `unix:/run/equipoise.sock`)",
            "9: `facility` must be one of 20 values such as `local0`, `local1` or `local2`, not the text `local8` \
             (did you mean `local7`?)",
            "9: `a b` cannot be the name of a program in a syslog message (use letters, digits and `_-./`, 32 at most)",
            "10: `severity` must be `emerg`, `alert`, `crit`, `err`, `warning`, `notice`, `info` or `debug`, not the text \
             `warn` (did you mean `warning`?)",
        ]
    );
}

#[test]
fn logs_checks_and_client_certificates_are_checked() {
    let told = about(
        "access_logs:
  - { path: a, stdout: true }
  - { format: xml }
  - { stdout: true, line: '{' }
  - { stdout: true, line: '{status}', format: json }
  - { stdout: false }
clusters:
  a: { endpoints: ['127.0.0.1:1'], health_check: { tcp: {}, http: {}, interval: 0s, rise: 0 } }
  b: { endpoints: ['127.0.0.1:1'], health_check: { http: { path: x, host: 'a b', statuses: [300-200, x, '200'] } } }
  c: { endpoints: ['127.0.0.1:1'], health_check: {}, tls: { server_name: 'a:b', verify: no } }
listeners:
  d: { bind: '127.0.0.1:0', head_bytes_max: 64KiB, request_id: host, forwarding: { trusted: [x] } }
  e: { bind: '127.0.0.1:0', forwarding: { client_address: [{ header: a b, from: [x] }, { header: Forwarded, from: [10.0.0.0/8] }, { header: Host, from: ['::1'] }] } }
shutdown: 5s
",
    );
    assert_eq!(
        told,
        [
            "3: `path` and `stdout` exclude each other in access log 1 (keep one of them)",
            "4: access log 2 needs one of `path`, `stdout` or `syslog`",
            "4: there is no log format `xml` (there is `line`, `json`, `common`, `combined`)",
            "5: `{` is never closed in `{`: write `{{` for a brace",
            "6: `line` has no effect with `format: json` (leave one of them out)",
            "7: `stdout` must be `true`, not `false`",
            "9: `tcp` and `http` exclude each other in `health_check` of cluster `a` (keep one of them)",
            "9: `interval`: `0s` is zero (it must be greater than zero)",
            "9: `rise` must be a whole number from 1 to 1000, not 0",
            "10: the path `x` does not begin with `/` (write `/x`)",
            "10: `a b` is not a host name, nor an address, without a port",
            "10: `300-200` is not a status, nor a range of them (write a status such as 200, a class such as 2xx, or a range such as 200-299, from 100 to 599)",
            "10: `x` is not a status, nor a range of them (write a status such as 200, a class such as 2xx, or a range such as 200-299, from 100 to 599)",
            "11: `health_check` of cluster `c` needs one of `tcp`, `tls`, `http`, `grpc`, `script` or `steps`",
            "11: `a:b` is not a host name, nor an address, without a port",
            "11: `verify` must be `true` or `false`, not the text `no` (write `false`)",
            "13: `head_bytes_max` must be from 1024 to 32768 bytes, not 65536",
            "13: `host` is set by the protocol and cannot be chosen",
            "13: `x` is not an address or a network such as 10.0.0.0/8",
            "14: `a b` is not the name of a header field",
            "14: `x` is not an address or a network such as 10.0.0.0/8",
            "14: `Forwarded` lists a chain of proxies, not one address (name the proxies in `trusted`)",
            "14: `Host` is set by the protocol and cannot be chosen",
            "15: `shutdown` must be a map, not the text `5s`",
        ]
    );
}

#[test]
fn variables_that_are_missing_are_told_with_everything_else() {
    let told = about(
        "listeners: { a: { bind: '${NOWHERE}' } }\nroutes: [{ cluster: x, timeout: '${NOWHERE}' }]\nadmin: { bind: \"${\" }\n",
    );
    assert_eq!(
        told,
        [
            "2: the environment variable `NOWHERE` is not set (set it, or give a default: `${NOWHERE:-…}`)",
            "3: there is no cluster `x` (define it under `clusters`)",
            "3: the environment variable `NOWHERE` is not set (set it, or give a default: `${NOWHERE:-…}`)",
            "4: `${` is never closed (write `${NAME}`, or `$${` for the characters themselves)",
        ]
    );
}

#[test]
fn a_secret_from_the_environment_is_never_shown() {
    let text = "version: 1
listeners:
  a: { bind: '127.0.0.1:0', tls: '${TOKEN}', protocol: '${TOKEN}', request_id: '${TOKEN}' }
  c:
    bind: 127.0.0.1:0
    fields_max: ${PIN}
  b: { bind: '${TOKEN}', timeouts: { head: '${TOKEN}' }, head_bytes_max: '${TOKEN}' }
routes:
  - { cluster: '${TOKEN}', name: '${TOKEN} ', listeners: ['${TOKEN}'] }
  - { redirect: { host: '${TOKEN}{', status: '${TOKEN}', path: '${TOKEN}' }, match: { method: '${TOKEN}' } }
clusters: { a: { endpoints: ['${TOKEN}'], balance: '${TOKEN}' } }
";
    let told = told(text);
    assert!(!told.contains("s3cret") && !told.contains("90210") && !told.contains("S3CRET"), "{told}");
    assert!(told.ends_with("15 problems"), "{told}");
}

#[test]
fn mistakes_in_passive_health_are_told() {
    let told = about(
        "clusters:
  a: { endpoints: ['127.0.0.1:1'], passive_health: { consecutive_failures: 0 } }
  b: { endpoints: ['127.0.0.1:1'], passive_health: { ejected_max: 0% } }
  c: { endpoints: ['127.0.0.1:1'], passive_health: { ejected_max: 50 } }
  d: { endpoints: ['127.0.0.1:1'], passive_health: { ejected_max: 150% } }
  e: { endpoints: ['127.0.0.1:1'], passive_health: { ejection_time: 1m, ejection_time_max: 30s } }
  f: { endpoints: ['127.0.0.1:1'], passive_health: { consecutive_5xx: 0, success_rate: { deviations: 0.1 } } }
  g: { endpoints: ['127.0.0.1:1'], passive_health: { max_fails: 3 } }
",
    );
    assert_eq!(
        told,
        [
            "3: this never ejects an endpoint (leave `passive_health` out to switch it off)",
            "4: this never ejects an endpoint (leave `passive_health` out to switch it off)",
            "5: `ejected_max` must be a share such as `50%`, not the number 50 (did you mean `50%`?)",
            "6: `ejected_max`: `150%` is not a share (write it like `50%`, from 0% to 100%)",
            "7: the longest ejection, 30s, is shorter than the first, 1m (write 1m or more)",
            "8: `consecutive_5xx` must be a whole number from 1 to 1000000, not 0",
            "8: `deviations` must be a number from 0.5 to 10, not 0.1",
            "9: unknown key `max_fails` in `passive_health` of cluster `g` \
             (did you mean `consecutive_failures`? See docs/guides/coming-from-nginx.md)",
        ]
    );
}

#[test]
fn rules_for_retries_are_checked_one_by_one() {
    let told = about(
        "clusters:
  a:
    endpoints: ['127.0.0.1:1']
    retry:
      on: [conect_failure, '504-502', 503, later]
      attempts_max: 11
      body_max: 1MiB
      backoff: { base: 2s, max: 1s }
      methods: get
",
    );
    assert_eq!(
        told,
        [
            "6: `conect_failure` is not a reason to retry (did you mean `connect_failure`?)",
            "6: `504-502` is not a reason to retry (write the smaller status first: `502-504`)",
            "6: `later` is not a reason to retry (there is `connect_failure`, `reset`, `timeout`, `bad_response`, \
             a status such as `503`, `5xx` or `502-504`, and for gRPC `grpc_unavailable` and its like)",
            "7: `attempts_max` must be a whole number from 1 to 10, not 11",
            "8: `body_max` is too large (at most 48 KiB can be buffered)",
            "9: `base` is longer than `max` (make `max` at least as long as `base`)",
            "10: `methods` must be `idempotent` or `any`, not the text `get`",
        ]
    );
}

#[test]
fn mistakes_in_circuit_breakers_are_told() {
    let told = about(
        "clusters:
  a:
    endpoints: ['127.0.0.1:1']
    circuit_breaker:
      pending_max: 5
      request_max: 3
      error_ratio: { share: 0%, window: 99ms, trial_requests: 0 }
  b:
    endpoints: ['127.0.0.1:1']
    circuit_breaker: {}
    adaptive_concurrency: { min: 5, max: 4, tolerance: 20 }
",
    );
    assert_eq!(
        told,
        [
            "6: nothing waits in this cluster: it has no queue (give the cluster a `queue`, or leave `pending_max` out)",
            "7: unknown key `request_max` in `circuit_breaker` of cluster `a` (did you mean `requests_max`?)",
            "8: this circuit would open without any failure (write it like `50%`, from 1% to 100%)",
            "8: this window is too short (make it at least `100ms`)",
            "8: `trial_requests` must be a whole number from 1 to 4294967295, not 0",
            "11: this circuit breaker never rejects anything (set at least one of its limits, such as `requests_max: 1000`)",
            "12: `min` is greater than `max` (make `max` at least as high as `min`)",
            "12: `tolerance` must be a share such as `50%`, not the number 20 (did you mean `20%`?)",
        ]
    );
}

#[test]
fn mistakes_in_hedges_are_told() {
    let told = about(
        "clusters:
  a:
    endpoints: ['127.0.0.1:1']
    hedge: { after: p100, budget: 0%, attempts_max: 1 }
  b:
    endpoints: ['127.0.0.1:1']
    hedge: { after: soon, methods: all }
",
    );
    assert_eq!(
        told,
        [
            "5: `p100` is neither a time nor a percentile (write it like `50ms` or `p95`)",
            "5: no request may be hedged with this budget (write it like `10%`, from 1% to 100%)",
            "5: `attempts_max` must be a whole number from 2 to 10, not 1",
            "8: `soon` is neither a time nor a percentile (write it like `50ms` or `p95`)",
            "8: `methods` must be `idempotent` or `any`, not the text `all`",
        ]
    );
}

#[test]
fn mistakes_in_checks_are_told() {
    let told = about(
        "clusters:
  a: { endpoints: ['127.0.0.1:1'], health_check: { tcp: {}, reuse_connection: true } }
  b: { endpoints: ['127.0.0.1:1'], health_check: { http: { method: HEAD, expect_body: ok } } }
  c: { endpoints: ['127.0.0.1:1'], health_check: { http: { headers: { host: 'a b', 'a b': c, d: \"\\n\" } } } }
  d: { endpoints: ['127.0.0.1:1'], health_check: { script: [{}, { send: a, expect: b }] } }
  e: { endpoints: ['127.0.0.1:1'], health_check: { script: [] } }
  f: { endpoints: ['127.0.0.1:1'], health_check: { http: { method: connect }, start: up, port: 0 } }
  g: { endpoints: [{ address: '127.0.0.1:1', state: drained }] }
  h: { endpoints: ['127.0.0.1:1'], health_check: { script: [{ send_hex: 0x }, { expect_hex: abc }] } }
  i: { endpoints: ['127.0.0.1:1'], agent_check: {} }
  j: { endpoints: ['127.0.0.1:1'], health_check: { grpc: { host: 'a b', headers: { te: x } }, reuse_connection: true } }
  k: { endpoints: ['127.0.0.1:1'], health_check: { grpc: { servce: x }, http: {} } }
",
    );
    assert_eq!(
        told,
        [
            "3: only `http` checks can reuse a connection (leave it out)",
            "4: a response to HEAD has no body (leave out `method: HEAD`)",
            "5: `a b` is not a host name, nor an address, without a port",
            "5: `a b` is not the name of a header field",
            "5: the value of `d` contains a character that no header field may have",
            "6: `health_check.script` of cluster `d` needs one of `send`, `send_hex`, `expect` or `expect_hex`",
            "6: `send` and `expect` exclude each other in `health_check.script` of cluster `d` (keep one of them)",
            "7: `script` is empty (it needs at least one item)",
            "8: `CONNECT` opens a tunnel, which says nothing about health (write another method, such as `GET`)",
            "8: `start` must be `serving` or `held_out`, not the text `up`",
            "8: `port` must be a whole number from 1 to 65535, not 0",
            "9: `state` must be `auto`, `up`, `down`, `drain` or `maintenance`, not the text `drained` (did you mean `drain`?)",
            "10: `0x` is not hexadecimal (write two digits for each byte, as in `0d0a`)",
            "10: `abc` is not hexadecimal (write two digits for each byte, as in `0d0a`)",
            "11: no endpoint has an agent (give it a `port`, or endpoints an `agent_port`)",
            "12: `a b` is not a host name, nor an address, without a port",
            "12: `te` belongs to the framing, which the check sets itself (leave it out)",
            "12: only `http` checks can reuse a connection (leave it out)",
            "13: unknown key `servce` in `health_check.grpc` of cluster `k` (did you mean `service`?)",
            "13: `grpc` and `http` exclude each other in `health_check` of cluster `k` (keep one of them)",
        ]
    );
}

#[test]
fn mistakes_in_requests_of_checks_are_told() {
    let told = about(
        "clusters:
  a: { endpoints: ['127.0.0.1:1'], health_check: { http: { method: post } } }
  b: { endpoints: ['127.0.0.1:1'], health_check: { http: { method: 'GET /' } } }
  c: { endpoints: ['127.0.0.1:1'], health_check: { http: { headers: { Content-Length: '3', transfer-encoding: chunked } } } }
  d: { endpoints: ['127.0.0.1:1'], health_check: { http: { host: a.example, headers: { host: b.example, x-a: '1', X-A: '2' } } } }
  e: { endpoints: ['127.0.0.1:1'], health_check: { http: { method: TRACE, body: x } } }
  f: { endpoints: ['127.0.0.1:1'], health_check: { http: { method: HEAD, expect_json: { path: .a, present: true }, not: { body: x } } } }
  g: { endpoints: ['127.0.0.1:1'], health_check: { http: { response_bytes_max: 2MiB } } }
",
    );
    assert_eq!(
        told,
        [
            "3: `post` is not a method that endpoints know (write `POST`: methods are case-sensitive)",
            "4: `GET /` is not a method (write one such as `POST`)",
            "5: `Content-Length` belongs to the framing, which the check sets itself (leave it out: it follows from the body)",
            "5: `transfer-encoding` belongs to the framing, which the check sets itself (leave it out)",
            "6: the host is set twice: as `host`, and among `headers` (keep one of them)",
            "6: `x-a` is listed twice",
            "7: a request with `TRACE` has no body (leave it out)",
            "8: a response to HEAD has no body (leave out `method: HEAD`)",
            "8: a response to HEAD has no body (leave out `method: HEAD`)",
            "9: `response_bytes_max` must be from 1 to 1048576 bytes, not 2097152",
        ]
    );
    let long = format!(
        "clusters: {{ a: {{ endpoints: ['127.0.0.1:1'], health_check: {{ http: {{ body: {} }} }} }} }}\n",
        "x".repeat(16_385)
    );
    assert_eq!(about(&long), ["2: the body has 16385 bytes, and a check sends at most 16384 (send a shorter one)"]);
}

#[test]
fn mistakes_in_conditions_of_checks_are_told() {
    let told = about(
        "clusters:
  a: { endpoints: ['127.0.0.1:1'], health_check: { http: { not: {} } } }
  b: { endpoints: ['127.0.0.1:1'], health_check: { http: { not: { statuses: [600] } } } }
  c: { endpoints: ['127.0.0.1:1'], health_check: { http: { expect_json: { path: .a } } } }
  d: { endpoints: ['127.0.0.1:1'], health_check: { http: { expect_json: { path: .a, equals: b, regex: c } } } }
  e: { endpoints: ['127.0.0.1:1'], health_check: { http: { expect_json: { equals: b } } } }
  f: { endpoints: ['127.0.0.1:1'], health_check: { http: { expect_body: { contains: a, regex: b } } } }
  g: { endpoints: ['127.0.0.1:1'], health_check: { http: { expect_body: 5 } } }
  h: { endpoints: ['127.0.0.1:1'], health_check: { http: { expect_headers: { 'a b': c, d: { exakt: e } } } } }
",
    );
    assert_eq!(
        told,
        [
            "3: `not` refuses nothing (add `statuses`, `headers`, `body` or `json`, or leave `not` out)",
            "4: an item of `statuses` must be a whole number from 100 to 599, not 600",
            "5: `health_check.http.expect_json` of cluster `c` needs one of `equals`, `regex`, `present` or `absent`",
            "6: `equals` and `regex` exclude each other in `health_check.http.expect_json` of cluster `d` (keep one of them)",
            "7: `path` is missing in `health_check.http.expect_json` of cluster `e` (add `path`: path of the value from the top of the document)",
            "8: `contains` and `regex` exclude each other in `health_check.http.expect_body` of cluster `f` (keep one of them)",
            "9: `expect_body` must be text or a map or a list, not the number 5 (put it in quotes: \"5\")",
            "10: `a b` is not the name of a header field",
            "10: unknown key `exakt` in `health_check.http.expect_headers.d` of cluster `h` (did you mean `exact`?)",
        ]
    );
    let many = vec!["x"; 17].join(", ");
    let many = format!(
        "clusters: {{ a: {{ endpoints: ['127.0.0.1:1'], health_check: {{ http: {{ expect_body: [{many}] }} }} }} }}\n"
    );
    assert_eq!(
        about(&many),
        [
            "2: these are 17 conditions; a check may have 16 of each kind (join some of them, for instance in one `regex`)"
        ]
    );
}

#[test]
fn mistakes_in_steps_of_checks_are_told() {
    let told = about(
        "clusters:
  a: { endpoints: ['127.0.0.1:1'], health_check: { http: {}, steps: [{ tcp: {} }] } }
  b: { endpoints: ['127.0.0.1:1'], health_check: { steps: [] } }
  c: { endpoints: ['127.0.0.1:1'], health_check: { steps: [{ port: 5 }, { tcp: {}, http: {} }] } }
  d: { endpoints: ['127.0.0.1:1'], health_check: { steps: [{ tcp: {}, timeout: 5s }], timeout: 2s } }
  e: { endpoints: ['127.0.0.1:1'], health_check: { steps: [{ http: {} }, { http: {} }], reuse_connection: true } }
  f: { endpoints: ['unix:/a'], health_check: { steps: [{ http: {}, port: 5 }], port: 6 } }
  g: { endpoints: ['127.0.0.1:1'], health_check: { steps: [{ tcp: {}, interval: 5s }, { http: { path: x } }] } }
",
    );
    assert_eq!(
        told,
        [
            "3: `http` and `steps` exclude each other in `health_check` of cluster `a` (keep one of them)",
            "4: `steps` is empty (it needs at least one item)",
            "5: `health_check.steps` of cluster `c` needs one of `tcp`, `tls`, `http`, `grpc` or `script`",
            "5: `tcp` and `http` exclude each other in `health_check.steps` of cluster `c` (keep one of them)",
            "6: this step may take 5s, but the whole check ends after 2s (write 2s or less, or raise `timeout` of the check)",
            "7: a check of several steps opens a connection for each of them (leave it out)",
            "8: `unix:/a` has no ports, so `port` has no effect for it (leave it out)",
            "8: `unix:/a` has no ports, so `port` has no effect for it (leave it out)",
            "9: unknown key `interval` in `health_check.steps` of cluster `g` (there is `tls`, `http`, `grpc`, `script`, `port`, `timeout`)",
            "9: the path `x` does not begin with `/` (write `/x`)",
        ]
    );
    let many = vec!["{ tcp: {} }"; 17].join(", ");
    let many = format!("clusters: {{ a: {{ endpoints: ['127.0.0.1:1'], health_check: {{ steps: [{many}] }} }} }}\n");
    assert_eq!(about(&many), ["2: `steps` holds 17 items, more than 16"]);
}

#[test]
fn what_is_wrong_with_the_admin_listener_is_told_without_its_secrets() {
    let told = about(
        "admin:
  bind: '127.0.0.1:1'
  mode: '0999'
  state: /nowhere/at/all
  tokens:
    - { name: a, role: admin, token: short }
    - { name: a, role: read, token: 'with spaces in it, long' }
",
    );
    assert_eq!(
        told,
        [
            "4: `mode` applies to Unix sockets only (leave it out)",
            "4: `0999` is not a file mode (write it in quotes and in octal, such as `\"0660\"`)",
            "5: the folder `/nowhere/at/all` does not exist (create it, or choose another folder)",
            "7: the secret has 5 bytes, which can be guessed: use at least 16 (`openssl rand -hex 32` makes a good one)",
            "8: there is already a token `a` (give one of them another name)",
            "8: a token has letters, digits and `-._~+/=` only (`openssl rand -hex 32` makes a good one)",
        ]
    );
    assert_eq!(
        about("admin: { bind: '127.0.0.1:1', tokens: [{ name: b, role: root, token: 0123456789abcdef }] }"),
        ["2: `role` must be `read` or `admin`, not the text `root`"]
    );
}
