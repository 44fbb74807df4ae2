//! Words of other products, and what to write here instead: keys and values that a person brings along.

/// The guide of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guide {
    Nginx,
    HaProxy,
    Envoy,
    Traefik,
}

use Guide::{Envoy, HaProxy, Nginx, Traefik};

impl Guide {
    fn page(self) -> &'static str {
        match self {
            Nginx => "docs/guides/coming-from-nginx.md",
            HaProxy => "docs/guides/coming-from-haproxy.md",
            Envoy => "docs/guides/coming-from-envoy.md",
            Traefik => "docs/guides/coming-from-traefik.md",
        }
    }
}

/// A key of another product: as it is written there, our keys of which the first that fits the place is meant (one with its value,
/// such as `balance: random`, or a filter), and what to write where none of them fits. Upper and lower case, `_`, `-` and spaces do not
/// count.
type Word = (&'static str, Guide, &'static [&'static str], &'static str);

const ROUTE: &str = "write a route: `routes: [{ match: { host: …, path: … }, cluster: … }]`";
const CLUSTER: &str = "write a cluster: `clusters: { NAME: { endpoints: […] } }`";
const LISTENER: &str = "write a listener: `listeners: { NAME: { bind: … } }`";
const ALL_OF_IT: &str = "write what a `server` block holds as `listeners: { NAME: { bind: … } }`, `routes: [{ match: { host: … }, cluster: … }]` and `clusters: { NAME: { endpoints: […] } }`";
const TO_CLUSTER: &str = "write `cluster: NAME` in a route";
const BALANCE: &str = "write `balance` in the cluster";
const HOST: &str = "write `match: { host: NAME }` in a route";
const OF_LISTENER: &str = "write `timeouts: { head, idle, stream }` in the listener";
const OF_CLUSTER: &str = "write `timeouts: { connect, response_head, idle, tunnel }` in the cluster";
const WORKERS: &str = "write `--workers N` on the command line";
const FROM_DNS: &str = "write `endpoints: { from: NAME }` with a `dns` provider";
const LIMITS: &str = "write the filter `rate_limit: { rate: 10/s, burst: 20 }` in `filters` of a route";
const CONNECTIONS: &str = "connection limits per client are not supported yet; `connections_max` limits a listener";
const COMPRESSION: &str = "write the filter `compress: {}` in `filters` of a route";
const PERSISTENCE: &str = "write `persistence: { cookie: { secret: … } }` in the cluster";
const CACHING: &str = "caching is not supported yet";
const ASKING: &str = "`ext_authz` over gRPC is not supported yet; over HTTP there is the filter `forward_auth`";
const FORWARD_AUTH: &str = "write the filter `forward_auth: { cluster: NAME, path: /verify }` in `filters` of a route";
const JWT: &str = "JSON Web Tokens are not supported yet";
const MIRRORING: &str = "mirroring is not supported yet";
const FAULTS: &str = "fault injection is not supported yet";
const SCRIPTS: &str = "scripts are not supported yet";
const ACME: &str = "certificates by ACME are not supported yet";
const TRACING: &str = "tracing is not supported yet";
const STATIC: &str = "static files are not supported yet";
const FASTCGI: &str = "FastCGI is not supported yet";

/// Keys, by product. What is not there yet names the key that it would have first.
const WORDS: &[Word] = &[
    // nginx
    ("upstream", Nginx, &["cluster", "clusters"], CLUSTER),
    ("upstreams", Nginx, &["clusters", "cluster"], CLUSTER),
    ("server", Nginx, &["address", "endpoints", "listeners"], ALL_OF_IT),
    ("http", Nginx, &[], "write `listeners`, `routes` and `clusters` at the top of the file"),
    ("location", Nginx, &["path", "routes"], ROUTE),
    ("locations", Nginx, &["routes"], ROUTE),
    ("server_name", Nginx, &["host", "match"], HOST),
    ("default_server", Nginx, &[], "write a route without `host`"),
    ("listen", Nginx, &["bind", "listeners"], LISTENER),
    ("proxy_pass", Nginx, &["cluster"], TO_CLUSTER),
    ("grpc_pass", Nginx, &["cluster"], TO_CLUSTER),
    ("fastcgi_pass", Nginx, &[], FASTCGI),
    ("uwsgi_pass", Nginx, &[], FASTCGI),
    ("try_files", Nginx, &[], STATIC),
    ("least_conn", Nginx, &["balance: least_request"], BALANCE),
    ("ip_hash", Nginx, &["balance: source_hash"], BALANCE),
    ("max_conns", Nginx, &["connections_max"], ""),
    (
        "max_fails",
        Nginx,
        &["consecutive_failures", "passive_health"],
        "write `passive_health: { consecutive_failures: … }` in the cluster",
    ),
    (
        "fail_timeout",
        Nginx,
        &["ejection_time", "passive_health"],
        "write `passive_health: { ejection_time: … }` in the cluster",
    ),
    ("down", Nginx, &["state: maintenance"], ""),
    ("keepalive", Nginx, &["pool"], "write `pool: { idle_max: 32 }` in the cluster"),
    ("keepalive_timeout", Nginx, &["idle", "timeouts"], OF_LISTENER),
    ("keepalive_requests", Nginx, &["requests_per_connection_max"], ""),
    ("keepalive_disable", Nginx, &["no_keep_alive_for"], ""),
    ("client_header_timeout", Nginx, &["head", "timeouts"], OF_LISTENER),
    ("client_body_timeout", Nginx, &["stream", "timeouts"], OF_LISTENER),
    ("send_timeout", Nginx, &["stream", "timeouts"], OF_LISTENER),
    ("proxy_connect_timeout", Nginx, &["connect", "timeouts"], OF_CLUSTER),
    ("proxy_read_timeout", Nginx, &["response_head", "timeouts"], OF_CLUSTER),
    ("proxy_send_timeout", Nginx, &["response_head", "timeouts"], OF_CLUSTER),
    ("proxy_next_upstream", Nginx, &["on", "retry"], "write `retry: { on: […] }` in a route or cluster"),
    ("proxy_next_upstream_tries", Nginx, &["attempts_max", "retry"], ""),
    (
        "proxy_next_upstream_timeout",
        Nginx,
        &["time_max", "retry"],
        "write `retry: { time_max: … }` in a route or cluster",
    ),
    ("proxy_redirect", Nginx, &["rewrite_location"], "write the filter `rewrite_location` in a route"),
    ("proxy_cookie_domain", Nginx, &["rewrite_cookie"], "write the filter `rewrite_cookie` in a route"),
    ("proxy_cookie_path", Nginx, &["rewrite_cookie"], "write the filter `rewrite_cookie` in a route"),
    ("proxy_cookie_flags", Nginx, &["rewrite_cookie"], "write the filter `rewrite_cookie` in a route"),
    ("proxy_method", Nginx, &["rewrite"], "write the filter `rewrite: { method: … }` in a route"),
    ("proxy_http_version", Nginx, &["http_versions"], "write `http_versions: [h2]` in the cluster"),
    ("http2", Nginx, &["http_versions"], ""),
    ("proxy_ssl_name", Nginx, &["server_name", "tls"], ""),
    ("proxy_ssl_verify", Nginx, &["verify", "tls"], ""),
    ("proxy_ssl_certificate", Nginx, &["certificate", "tls"], ""),
    ("proxy_bind", Nginx, &["source_address", "socket"], ""),
    ("proxy_set_header", Nginx, &["set_request_header"], "write the filter `set_request_header` in a route"),
    ("proxy_hide_header", Nginx, &["remove_response_header"], "write the filter `remove_response_header` in a route"),
    ("add_header", Nginx, &["set_response_header"], "write the filter `set_response_header` in a route"),
    ("client_max_body_size", Nginx, &["body_limit"], "write the filter `body_limit: { max: 10MiB }` in a route"),
    ("proxy_intercept_errors", Nginx, &["intercept", "error_page"], ""),
    ("auth_basic", Nginx, &["basic_auth"], "write the filter `basic_auth` in a route"),
    ("auth_basic_user_file", Nginx, &["file", "basic_auth"], ""),
    ("allow", Nginx, &["address_list"], ""),
    ("deny", Nginx, &["address_list"], ""),
    ("return", Nginx, &["redirect", "respond"], "write `redirect` or `respond` in a route"),
    ("split_clients", Nginx, &["clusters"], "write `clusters: [{ cluster, weight }]` in a route"),
    ("ssl", Nginx, &["tls"], ""),
    (
        "ssl_certificate",
        Nginx,
        &["chain", "certificates", "tls"],
        "write `tls: { certificates: [{ chain, key }] }` in the listener",
    ),
    (
        "ssl_certificate_key",
        Nginx,
        &["key", "certificates", "tls"],
        "write `tls: { certificates: [{ chain, key }] }` in the listener",
    ),
    ("ssl_protocols", Nginx, &["version_min", "tls"], ""),
    ("ssl_client_certificate", Nginx, &["authorities", "client", "tls"], ""),
    ("ssl_verify_client", Nginx, &["mode", "client", "tls"], ""),
    ("set_real_ip_from", Nginx, &["trusted", "forwarding"], "write `forwarding: { trusted: […] }` in the listener"),
    ("real_ip_header", Nginx, &["forwarding"], ""),
    ("large_client_header_buffers", Nginx, &["head_bytes_max"], ""),
    ("merge_slashes", Nginx, &["paths"], ""),
    ("worker_processes", Nginx, &[], WORKERS),
    ("worker_connections", Nginx, &["connections_max"], "write `connections_max` in the listener"),
    ("access_log", Nginx, &["access_logs"], ""),
    (
        "log_format",
        Nginx,
        &["log_formats", "line", "access_logs"],
        "write `log_formats: { NAME: … }` at the top of the file",
    ),
    ("error_log", Nginx, &[], "it is written to standard error; `equipoise ctl log LEVEL` sets the level"),
    (
        "resolver",
        Nginx,
        &["resolvers", "names: { resolvers: […] }"],
        "write `names: { resolvers: […] }` at the top of the file",
    ),
    ("sticky", Nginx, &["persistence"], PERSISTENCE),
    ("gzip", Nginx, &["compress"], COMPRESSION),
    (
        "gzip_types",
        Nginx,
        &["types", "compress"],
        "write the filter `compress: { types: […] }` in `filters` of a route",
    ),
    (
        "gzip_min_length",
        Nginx,
        &["size_min", "compress"],
        "write the filter `compress: { size_min: 1KiB }` in `filters` of a route",
    ),
    (
        "gzip_comp_level",
        Nginx,
        &["levels: { gzip: 5 }", "compress"],
        "write the filter `compress: { levels: { gzip: 5 } }` in `filters` of a route",
    ),
    ("brotli", Nginx, &["br", "compress"], COMPRESSION),
    ("limit_req", Nginx, &["rate_limit"], LIMITS),
    ("limit_req_zone", Nginx, &["rate_limit"], LIMITS),
    ("limit_conn", Nginx, &["connections_max"], CONNECTIONS),
    ("limit_rate", Nginx, &["bandwidth", "bandwidth_limit"], "bandwidth limits are not supported yet"),
    ("proxy_cache", Nginx, &["cache"], CACHING),
    ("auth_request", Nginx, &["forward_auth"], FORWARD_AUTH),
    ("auth_jwt", Nginx, &["jwt", "jwt_auth"], JWT),
    ("mirror", Nginx, &["mirror"], MIRRORING),
    // HAProxy
    ("frontend", HaProxy, &["listeners"], LISTENER),
    ("frontends", HaProxy, &["listeners"], LISTENER),
    ("backend", HaProxy, &["cluster", "clusters"], CLUSTER),
    ("backends", HaProxy, &["clusters", "endpoints"], CLUSTER),
    ("use_backend", HaProxy, &["cluster"], TO_CLUSTER),
    (
        "default_backend",
        HaProxy,
        &[],
        "write a route without `match`: `routes: [{ cluster: NAME }]`; a TCP listener has `cluster: NAME`",
    ),
    (
        "global",
        HaProxy,
        &[],
        "write settings of the whole process at the top of the file, such as `shutdown` and `admin`",
    ),
    ("server", HaProxy, &["response_head", "stream"], ""),
    ("metrics", Traefik, &["admin"], "use `/metrics` of the `admin` address"),
    ("acl", HaProxy, &["match"], ROUTE),
    ("mode", HaProxy, &["protocol"], ""),
    ("maxconn", HaProxy, &["connections_max"], ""),
    ("fullconn", HaProxy, &["connections_max"], ""),
    ("maxqueue", HaProxy, &["queue_max", "requests_max", "pending_max", "queue"], ""),
    ("leastconn", HaProxy, &["balance: least_request"], BALANCE),
    ("roundrobin", HaProxy, &["balance: round_robin"], BALANCE),
    ("httpchk", HaProxy, &["http", "health_check"], "write `health_check: { http: { path: … } }` in the cluster"),
    (
        "option httpchk",
        HaProxy,
        &["http", "health_check"],
        "write `health_check: { http: { path: … } }` in the cluster",
    ),
    ("check", HaProxy, &["health_check"], "write `health_check: { tcp: {} }` in the cluster"),
    ("inter", HaProxy, &["interval"], ""),
    ("fastinter", HaProxy, &["interval_changing"], ""),
    ("downinter", HaProxy, &["interval_down"], ""),
    ("slowstart", HaProxy, &["slow_start"], ""),
    ("cookie", HaProxy, &["persistence", "cookies"], ""),
    ("stick_table", HaProxy, &["persistence"], ""),
    ("stick on", HaProxy, &["persistence"], ""),
    ("retries", HaProxy, &["attempts_max", "retry"], "write `retry: { attempts_max: 3 }` in a route or cluster"),
    ("retry-on", HaProxy, &["on", "retry"], ""),
    ("option redispatch", HaProxy, &["retry"], ""),
    ("redispatch", HaProxy, &["retry"], ""),
    ("timeout connect", HaProxy, &["connect", "timeouts"], OF_CLUSTER),
    ("timeout server", HaProxy, &["response_head", "timeouts"], OF_CLUSTER),
    ("timeout tunnel", HaProxy, &["tunnel", "timeouts"], OF_CLUSTER),
    ("timeout client", HaProxy, &["stream", "timeouts"], OF_LISTENER),
    ("timeout http-request", HaProxy, &["head", "timeouts"], OF_LISTENER),
    ("timeout http-keep-alive", HaProxy, &["idle", "timeouts"], OF_LISTENER),
    ("timeout queue", HaProxy, &["queue"], "write `queue: { timeout: … }` in the cluster"),
    ("timeout check", HaProxy, &["timeout", "health_check"], ""),
    ("http-reuse", HaProxy, &["reuse", "pool"], "write `pool: { reuse: … }` in the cluster"),
    ("set-method", HaProxy, &["rewrite"], "write the filter `rewrite: { method: … }` in a route"),
    ("set-query", HaProxy, &["rewrite"], "write the filter `rewrite: { query: … }` in a route"),
    ("http-request", HaProxy, &["filters"], "write `filters` in a route"),
    ("http-response", HaProxy, &["filters"], "write `filters` in a route"),
    ("errorfile", HaProxy, &["error_page"], "write the filter `error_page` in a route"),
    ("crt", HaProxy, &["chain", "certificates", "tls"], ""),
    ("ssl-min-ver", HaProxy, &["version_min", "tls"], ""),
    ("ca-file", HaProxy, &["authorities", "client"], ""),
    ("sni", HaProxy, &["server_name", "tls"], ""),
    ("send-proxy", HaProxy, &["proxy_protocol"], ""),
    ("send-proxy-v2", HaProxy, &["proxy_protocol"], ""),
    ("accept-proxy", HaProxy, &["proxy_protocol"], ""),
    ("hash-balance-factor", HaProxy, &["load_max"], ""),
    ("hash-type", HaProxy, &["algorithm"], ""),
    ("disabled", HaProxy, &["state: maintenance"], ""),
    ("server-template", HaProxy, &["endpoints"], FROM_DNS),
    ("source", HaProxy, &["source_address", "socket"], ""),
    ("stats", HaProxy, &["admin"], ""),
    ("nbthread", HaProxy, &[], WORKERS),
    ("lua-load", HaProxy, &[], SCRIPTS),
    // Envoy
    ("static_resources", Envoy, &[], "write `listeners`, `routes` and `clusters` at the top of the file"),
    ("virtual_hosts", Envoy, &["routes"], ROUTE),
    ("route_config", Envoy, &["routes"], ROUTE),
    ("domains", Envoy, &["host", "match"], HOST),
    ("safe_regex", Envoy, &["regex"], ""),
    ("path_separated_prefix", Envoy, &["prefix"], ""),
    ("query_parameters", Envoy, &["query"], ""),
    ("weighted_clusters", Envoy, &["clusters"], ""),
    ("direct_response", Envoy, &["respond"], ""),
    ("prefix_rewrite", Envoy, &["rewrite"], "write the filter `rewrite` in a route"),
    ("regex_rewrite", Envoy, &["rewrite"], "write the filter `rewrite` in a route"),
    ("host_rewrite_literal", Envoy, &["rewrite"], "write the filter `rewrite` in a route"),
    ("request_headers_to_add", Envoy, &["set_request_header"], "write the filter `set_request_header` in a route"),
    (
        "request_headers_to_remove",
        Envoy,
        &["remove_request_header"],
        "write the filter `remove_request_header` in a route",
    ),
    ("response_headers_to_add", Envoy, &["set_response_header"], "write the filter `set_response_header` in a route"),
    (
        "response_headers_to_remove",
        Envoy,
        &["remove_response_header"],
        "write the filter `remove_response_header` in a route",
    ),
    ("http_filters", Envoy, &["filters"], "write `filters` in a route"),
    ("local_reply_config", Envoy, &["error_page"], "write the filter `error_page` in a route"),
    ("load_assignment", Envoy, &["endpoints"], ""),
    ("lb_endpoints", Envoy, &["endpoints"], ""),
    ("socket_address", Envoy, &["address", "bind"], ""),
    ("lb_policy", Envoy, &["balance"], BALANCE),
    ("hash_policy", Envoy, &["on", "balance: { hash: { on: … } }"], ""),
    ("load_balancing_weight", Envoy, &["weight"], ""),
    ("metadata_match", Envoy, &["subset"], ""),
    ("lb_subset_config", Envoy, &["subset"], "write `labels` of endpoints, and `subset` in a route"),
    ("outlier_detection", Envoy, &["passive_health"], ""),
    ("base_ejection_time", Envoy, &["ejection_time"], ""),
    ("max_ejection_time", Envoy, &["ejection_time_max"], ""),
    ("max_ejection_percent", Envoy, &["ejected_max"], ""),
    ("circuit_breakers", Envoy, &["circuit_breaker"], ""),
    ("max_connections", Envoy, &["connections_max", "requests_max"], ""),
    ("max_requests", Envoy, &["requests_max", "connections_max", "requests_per_connection_max"], ""),
    ("max_pending_requests", Envoy, &["pending_max", "requests_max"], ""),
    ("max_retries", Envoy, &["retries_max", "attempts_max"], ""),
    ("retry_policy", Envoy, &["retry"], ""),
    ("retry_on", Envoy, &["on", "retry"], ""),
    ("num_retries", Envoy, &["attempts_max", "retry"], ""),
    ("per_try_timeout", Envoy, &["timeout"], ""),
    ("retry_back_off", Envoy, &["backoff"], ""),
    ("hedge_policy", Envoy, &["hedge"], ""),
    ("connect_timeout", Envoy, &["connect", "timeouts"], OF_CLUSTER),
    ("stream_idle_timeout", Envoy, &["stream", "idle", "timeouts"], OF_LISTENER),
    ("request_headers_timeout", Envoy, &["head", "timeouts"], OF_LISTENER),
    ("max_request_headers_kb", Envoy, &["head_bytes_max"], ""),
    ("max_requests_per_connection", Envoy, &["requests_per_connection_max"], ""),
    ("health_checks", Envoy, &["health_check"], ""),
    ("http_health_check", Envoy, &["http", "health_check"], ""),
    ("tcp_health_check", Envoy, &["tcp", "health_check"], ""),
    ("grpc_health_check", Envoy, &["grpc", "health_check"], ""),
    ("unhealthy_threshold", Envoy, &["fall"], ""),
    ("healthy_threshold", Envoy, &["rise"], ""),
    ("interval_jitter_percent", Envoy, &["jitter"], ""),
    ("healthy_panic_threshold", Envoy, &["panic_threshold"], ""),
    ("slow_start_config", Envoy, &["slow_start"], ""),
    ("transport_socket", Envoy, &["tls"], ""),
    ("codec_type", Envoy, &["http_versions"], ""),
    ("http2_protocol_options", Envoy, &["http_versions"], ""),
    ("xff_num_trusted_hops", Envoy, &["trusted", "forwarding"], ""),
    ("use_remote_address", Envoy, &["forwarding"], ""),
    ("normalize_path", Envoy, &["normalize", "paths"], ""),
    ("normalize_uri", HaProxy, &["normalize", "paths"], ""),
    ("path_with_escaped_slashes_action", Envoy, &["escaped_slashes", "paths"], ""),
    ("stateful_session", Envoy, &["persistence"], ""),
    ("rate_limits", Envoy, &["rate_limit"], LIMITS),
    ("rate_limit", Envoy, &["rate_limit"], LIMITS),
    ("local_ratelimit", Envoy, &["rate_limit"], LIMITS),
    ("ext_authz", Envoy, &["external_auth", "forward_auth", "ext_authz"], ASKING),
    ("jwt_authn", Envoy, &["jwt", "jwt_auth"], JWT),
    ("request_mirror_policies", Envoy, &["mirror"], MIRRORING),
    ("fault", Envoy, &["fault"], FAULTS),
    ("lua", Envoy, &[], SCRIPTS),
    ("wasm", Envoy, &[], SCRIPTS),
    ("tracing", Envoy, &["tracing"], TRACING),
    // Traefik
    ("entryPoints", Traefik, &["listeners"], LISTENER),
    ("entryPoint", Traefik, &["listeners"], LISTENER),
    ("routers", Traefik, &["routes"], ROUTE),
    ("rule", Traefik, &["match"], ""),
    ("service", Traefik, &["cluster", "clusters"], CLUSTER),
    ("services", Traefik, &["clusters"], CLUSTER),
    ("servers", Traefik, &["endpoints", "clusters"], CLUSTER),
    ("url", Traefik, &["address"], ""),
    ("middlewares", Traefik, &["filters"], "write `filters` in a route"),
    ("loadBalancer", Traefik, &["endpoints", "clusters", "cluster"], CLUSTER),
    ("weighted", Traefik, &["clusters"], ""),
    ("failover", Traefik, &["backup"], "write `backup: true` in an endpoint"),
    (
        "passHostHeader",
        Traefik,
        &["host", "rewrite"],
        "the host of the client is forwarded; the filter `rewrite: { host: … }` changes it",
    ),
    (
        "stripPrefix",
        Traefik,
        &["rewrite"],
        "write the filter `rewrite: { path: { prefix: { from: /api, to: / } } }` in a route",
    ),
    ("addPrefix", Traefik, &["rewrite"], "write the filter `rewrite` in a route"),
    ("replacePath", Traefik, &["rewrite"], "write the filter `rewrite` in a route"),
    ("replacePathRegex", Traefik, &["rewrite"], "write the filter `rewrite` in a route"),
    ("redirectScheme", Traefik, &["redirect"], "write `redirect: { scheme: https }` in a route, instead of `cluster`"),
    ("redirectRegex", Traefik, &["redirect"], "write `redirect` in a route, instead of `cluster`"),
    ("ipAllowList", Traefik, &["address_list"], ""),
    ("ipWhiteList", Traefik, &["address_list"], ""),
    ("basicAuth", Traefik, &["basic_auth"], ""),
    ("buffering", Traefik, &["body_limit"], ""),
    ("errors", Traefik, &["error_page"], ""),
    ("circuitBreaker", Traefik, &["circuit_breaker"], "write `circuit_breaker` in the cluster"),
    ("inFlightReq", Traefik, &["circuit_breaker"], "write `circuit_breaker: { requests_max: … }` in the cluster"),
    ("healthCheck", Traefik, &["health_check"], ""),
    ("serversTransport", Traefik, &["tls"], ""),
    ("insecureSkipVerify", Traefik, &["verify: false"], "write `tls: { verify: false }` in the cluster"),
    ("rootCAs", Traefik, &["authorities"], ""),
    ("forwardedHeaders", Traefik, &["forwarding"], ""),
    ("trustedIPs", Traefik, &["trusted", "from"], ""),
    ("respondingTimeouts", Traefik, &["timeouts"], OF_LISTENER),
    ("readTimeout", Traefik, &["head", "timeouts"], OF_LISTENER),
    ("idleTimeout", Traefik, &["idle", "idle_timeout", "timeouts"], OF_LISTENER),
    ("dialTimeout", Traefik, &["connect", "timeouts"], OF_CLUSTER),
    ("responseHeaderTimeout", Traefik, &["response_head", "timeouts"], OF_CLUSTER),
    ("maxIdleConnsPerHost", Traefik, &["idle_max", "pool"], ""),
    ("minVersion", Traefik, &["version_min", "tls"], ""),
    ("clientAuth", Traefik, &["client", "tls"], ""),
    ("attempts", Traefik, &["attempts_max"], ""),
    ("accessLog", Traefik, &["access_logs"], ""),
    ("ping", Traefik, &["admin"], "use `/healthz` and `/readyz` of the `admin` address"),
    ("certResolver", Traefik, &["acme"], ACME),
    ("certificatesResolvers", Traefik, &["acme"], ACME),
    ("acme", Traefik, &["acme"], ACME),
    ("rateLimit", Traefik, &["rate_limit"], LIMITS),
    ("compress", Traefik, &["compress"], COMPRESSION),
    ("compression", Traefik, &["compress"], COMPRESSION),
    ("cache", Nginx, &["cache"], CACHING),
    ("jwt", Envoy, &["jwt", "jwt_auth"], JWT),
    ("forwardAuth", Traefik, &["forward_auth"], FORWARD_AUTH),
    ("mirroring", Traefik, &["mirror"], MIRRORING),
    ("plugin", Traefik, &[], SCRIPTS),
];

/// Words that several products have, and other ways to say ours. They name no guide.
const SAYINGS: &[(&str, &[&str])] = &[
    ("algorithm", &["balance"]),
    ("load_balancing", &["balance"]),
    ("balancer", &["balance"]),
    ("affinity", &["persistence"]),
    ("session_affinity", &["persistence"]),
    ("ttl", &["expires", "max_age"]),
    ("attempt_timeout", &["timeout"]),
    ("targets", &["endpoints"]),
    ("hosts", &["host", "endpoints"]),
    ("port", &["bind"]),
    ("address", &["bind"]),
    ("certificate", &["certificates", "tls"]),
    ("cert", &["chain", "certificates", "tls"]),
];

/// A value of another product: the key of ours that it stands under, the value, and ours.
type Foreign = (&'static str, &'static str, Guide, &'static str);

const VALUES: &[Foreign] = &[
    ("balance", "least_conn", Nginx, "least_request"),
    ("balance", "ip_hash", Nginx, "source_hash"),
    ("balance", "hash", Nginx, "{ hash: { on: … } }"),
    ("balance", "leastconn", HaProxy, "least_request"),
    ("balance", "roundrobin", HaProxy, "round_robin"),
    ("balance", "static-rr", HaProxy, "round_robin"),
    ("balance", "source", HaProxy, "source_hash"),
    ("balance", "uri", HaProxy, "{ hash: { on: uri } }"),
    ("balance", "LEAST_REQUEST", Envoy, "least_request"),
    ("balance", "ROUND_ROBIN", Envoy, "round_robin"),
    ("balance", "RANDOM", Envoy, "random"),
    ("balance", "RING_HASH", Envoy, "{ hash: { on: …, algorithm: ketama } }"),
    ("balance", "MAGLEV", Envoy, "{ hash: { on: …, algorithm: maglev } }"),
    ("balance", "wrr", Traefik, "round_robin"),
    ("balance", "p2c", Traefik, "power_of_two"),
    ("balance", "hrw", Traefik, "source_hash"),
    ("balance", "leasttime", Traefik, "least_time"),
    ("algorithm", "RING_HASH", Envoy, "ketama"),
    ("algorithm", "consistent", HaProxy, "ketama"),
    ("algorithm", "hrw", Traefik, "rendezvous"),
    ("protocol", "ssl", Nginx, "tcp"),
    ("http_versions", "HTTP/1.1", Traefik, "h1"),
    ("http_versions", "http2", Nginx, "h2"),
    ("http_versions", "h2c", Traefik, "h2"),
    ("http_versions", "http3", Nginx, "h3"),
    ("http_versions", "quic", Nginx, "h3"),
    ("version_min", "TLSv1.2", Nginx, "1.2"),
    ("version_min", "TLSv1.3", Nginx, "1.3"),
    ("version_min", "TLSv1_2", Envoy, "1.2"),
    ("version_min", "TLSv1_3", Envoy, "1.3"),
    ("version_min", "VersionTLS12", Traefik, "1.2"),
    ("version_min", "VersionTLS13", Traefik, "1.3"),
    ("mode", "RequireAndVerifyClientCert", Traefik, "required"),
    ("mode", "VerifyClientCertIfGiven", Traefik, "optional"),
    ("mode", "NoClientCert", Traefik, "off"),
    ("mode", "on", Nginx, "required"),
    ("state", "maint", HaProxy, "maintenance"),
    ("state", "disabled", HaProxy, "maintenance"),
    ("state", "ready", HaProxy, "auto"),
    ("retry", "conn-failure", HaProxy, "connect_failure"),
    ("retry", "empty-response", HaProxy, "reset"),
    ("retry", "junk-response", HaProxy, "bad_response"),
    ("retry", "response-timeout", HaProxy, "timeout"),
    ("retry", "refused-stream", Envoy, "connect_failure"),
    ("retry", "gateway-error", Envoy, "502-504"),
    ("retry", "retriable-4xx", Envoy, "409"),
    ("retry", "cancelled", Envoy, "grpc_cancelled"),
    ("retry", "deadline-exceeded", Envoy, "grpc_deadline_exceeded"),
    ("retry", "internal", Envoy, "grpc_internal"),
    ("retry", "resource-exhausted", Envoy, "grpc_resource_exhausted"),
    ("retry", "unavailable", Envoy, "grpc_unavailable"),
    ("retry", "error", Nginx, "reset"),
    ("retry", "invalid_header", Nginx, "bad_response"),
    ("retry", "http_500", Nginx, "500"),
    ("retry", "http_502", Nginx, "502"),
    ("retry", "http_503", Nginx, "503"),
    ("retry", "http_504", Nginx, "504"),
    ("retry", "http_429", Nginx, "429"),
];

/// Whether both are the same word, however it is spelt.
fn is_same(one: &str, other: &str) -> bool {
    fn bare(word: &str) -> impl Iterator<Item = char> + '_ {
        word.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).map(|c| c.to_ascii_lowercase())
    }
    bare(one).eq(bare(other))
}

/// What may be written at a place.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// Whether this is a key here, and is not set already.
    pub(crate) is_free: &'a dyn Fn(&str) -> bool,
    /// Whether this is a key here, and is set already.
    pub(crate) is_set: &'a dyn Fn(&str) -> bool,
    /// Whether what stands there may be the value of this key of ours: false where the key holds a map and there is none.
    pub(crate) takes: &'a dyn Fn(&str) -> bool,
    /// Whether this is a filter, and `filters` is a key here.
    pub(crate) is_filter: &'a dyn Fn(&str) -> bool,
}

/// The first of our keys that fits a place, as it is suggested. One that is set already is not to be written again.
fn first_fitting((ours, instead): (&[&str], &str), place: Place<'_>) -> Option<String> {
    ours.iter().find_map(|ours| {
        let key = ours.split(':').next().unwrap_or(ours);
        let tells_how = instead.contains(&format!("`{key}: "));
        if (place.is_free)(key) {
            return Some(match ours.contains(':') || (place.takes)(key) {
                true => format!("did you mean `{ours}`?"),
                false if tells_how => instead.to_owned(),
                false => format!("did you mean `{key}: {{ … }}`?"),
            });
        }
        if (place.is_set)(key) {
            let set = || match ours.contains(':') {
                true => format!("change `{key}`, which is set already, to `{ours}`"),
                false => format!("here it is `{key}`, which is already set: leave this out"),
            };
            return Some(if tells_how { instead.to_owned() } else { set() });
        }
        (place.is_filter)(key).then(|| if tells_how { instead.to_owned() } else { as_filter(key) })
    })
}

fn as_filter(name: &str) -> String {
    format!("write it as a filter: `filters: [{{ {name}: … }}]`")
}

/// A suggestion with the page that tells more.
fn guided(told: &str, guide: Guide) -> String {
    let then = if told.ends_with('?') { " See" } else { "; see" };
    format!("{told}{then} {}", guide.page())
}

/// What to write for a key that another product has, or that has another name here. `max_x` is `x_max` here.
pub(crate) fn key(word: &str, place: Place<'_>) -> Option<String> {
    if word.len() > 64 {
        return None;
    }
    if (place.is_filter)(word) {
        return Some(as_filter(word));
    }
    // Of what comes under the same name in two products, the one that is spelt so, then the one that fits.
    let alike = |is_exact: bool| {
        WORDS.iter().filter(move |(theirs, ..)| is_same(theirs, word) && (*theirs == word) == is_exact)
    };
    let known: Vec<&Word> = alike(true).chain(alike(false)).collect();
    let fitting = |(_, guide, ours, instead): &&Word| Some(guided(&first_fitting((ours, instead), place)?, *guide));
    if let Some(told) = known.iter().find_map(fitting) {
        return Some(told);
    }
    if let Some((_, guide, _, instead)) = known.iter().find(|(.., instead)| !instead.is_empty()) {
        return Some(guided(instead, *guide));
    }
    let said =
        SAYINGS.iter().find(|(theirs, _)| is_same(theirs, word)).and_then(|(_, ours)| first_fitting((ours, ""), place));
    said.or_else(|| turned(word, place))
}

fn turned(word: &str, place: Place<'_>) -> Option<String> {
    let plain = word.to_ascii_lowercase().replace('-', "_");
    let (bound, rest) = plain.split_once('_')?;
    let name = format!("{rest}_{bound}");
    (matches!(bound, "max" | "min") && (place.is_free)(&name)).then(|| format!("did you mean `{name}`?"))
}

/// What to write for a value that another product has under what we call `key`.
pub(crate) fn value(key: &str, word: &str) -> Option<String> {
    if key == "protocol" && matches!(word.to_ascii_lowercase().as_str(), "https" | "tls") {
        return Some("write `protocol: http` with `tls: { certificates: [{ chain: …, key: … }] }`".to_owned());
    }
    let known = VALUES.iter().filter(|(at, theirs, ..)| *at == key && is_same(theirs, word));
    // The spelling tells between products that have the same word.
    let best = known.clone().find(|(_, theirs, ..)| *theirs == word).or_else(|| known.clone().next());
    best.map(|(_, _, guide, ours)| guided(&format!("did you mean `{ours}`?"), *guide))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_guide_is_there_and_no_word_stands_twice_for_one() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for guide in [Nginx, HaProxy, Envoy, Traefik] {
            assert!(root.join(guide.page()).is_file(), "{guide:?}");
        }
        for (index, (word, guide, ..)) in WORDS.iter().enumerate() {
            let again = WORDS[..index].iter().any(|(other, of, ..)| is_same(word, other) && of == guide);
            assert!(!again, "{word} stands there twice");
        }
        assert!(WORDS.len() + VALUES.len() > 80);
    }

    #[test]
    fn all_of_our_names_are_keys_of_the_file() {
        let schema = crate::schema::schema(&[]).to_string();
        // Of other crates: filters, and what is not there yet.
        let others = [
            "set_request_header",
            "remove_request_header",
            "set_response_header",
            "remove_response_header",
            "rewrite",
            "rewrite_location",
            "rewrite_cookie",
            "body_limit",
            "basic_auth",
            "error_page",
            "intercept",
            "compress",
            "types",
            "size_min",
            "levels",
            "br",
            "rate_limit",
            "bandwidth",
            "bandwidth_limit",
            "cache",
            "external_auth",
            "forward_auth",
            "ext_authz",
            "jwt",
            "jwt_auth",
            "mirror",
            "fault",
            "tracing",
            "acme",
        ];
        let of_words = WORDS.iter().flat_map(|(_, _, ours, _)| ours.iter());
        for ours in of_words.chain(SAYINGS.iter().flat_map(|(_, ours)| ours.iter())) {
            let key = ours.split(':').next().unwrap_or(ours);
            assert!(others.contains(&key) || schema.contains(&format!("\"{key}\":")), "{key} is no key of ours");
        }
    }
}
