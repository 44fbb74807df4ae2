//! The cells: what is asked of every product, one line each.

use crate::failure::Failure;
use crate::measure::loads::Requests;
use crate::measure::other_loads::{Calls, Datagrams};
use crate::policy::{MAPPED_HOST, Policy};
use crate::products::{Compression, Features};

/// One row of the study.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    /// Its name on the command line and in the results.
    pub name: &'static str,
    /// What it is, for a person.
    pub title: &'static str,
    /// The load.
    pub kind: Kind,
    /// What the configuration has to do.
    pub features: Features,
    /// Workers of the product.
    pub workers: usize,
}

/// The kinds of load.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// As many requests as the product answers.
    Closed(Requests),
    /// A new connection with a full TLS handshake for each request.
    Handshakes(Requests),
    /// HTTP/2, over TLS or in clear, with that many requests at a time on each connection.
    Multiplexed(Requests, usize),
    /// The same by HTTP/3.
    Quic(Requests, usize),
    /// gRPC in clear.
    Calls(Calls),
    /// Datagrams that come back.
    Datagrams(Datagrams),
    /// WebSockets, with one message under way on each, over TLS or not.
    Messages {
        /// How many.
        connections: usize,
        tls: bool,
    },
    /// Connections that do nothing.
    Idle {
        /// How many.
        connections: usize,
    },
    /// A constant share of what the best peer can do.
    Share(Requests, f64),
}

const PLAIN: Features = Features {
    http2: false,
    http3: false,
    grpc: false,
    websocket: false,
    udp: false,
    tls: false,
    access_log: false,
    header_steps: false,
    compress: None,
    policy: Policy::None,
    routes: 0,
};
const TLS: Features = Features { tls: true, ..PLAIN };
const GRPC: Features = Features { http2: true, grpc: true, ..PLAIN };
const SMALL: Requests = Requests {
    path: "/12",
    host: None,
    accept_encoding: None,
    policy: Policy::None,
    connections: 50,
    keep_alive: true,
    tls: false,
    tls12: false,
};

/// Routes in the cell with many, and the one in the middle that the requests match.
const ROUTES: usize = 10_000;
const ROUTED: Requests = Requests { path: "/p5000/12", host: Some("h5000.example.com"), ..SMALL };

/// The same with one route, by a request of the same length.
const ROUTED_ONE: Requests = Requests { path: "/p0000/12", host: Some("h0000.example.com"), ..SMALL };

const fn cell(name: &'static str, title: &'static str, kind: Kind, features: Features) -> Cell {
    Cell { name, title, kind, features, workers: 1 }
}

/// HTTP/2 over TLS.
const fn h2(name: &'static str, title: &'static str, size: &'static str, connections: usize, streams: usize) -> Cell {
    let asked = Requests { path: size, connections, tls: true, ..SMALL };
    cell(name, title, Kind::Multiplexed(asked, streams), Features { http2: true, ..TLS })
}

/// HTTP/2 in clear.
const fn h2c(name: &'static str, title: &'static str, size: &'static str, connections: usize, streams: usize) -> Cell {
    let asked = Requests { path: size, connections, ..SMALL };
    cell(name, title, Kind::Multiplexed(asked, streams), Features { http2: true, ..PLAIN })
}

/// HTTP/3.
const fn h3(name: &'static str, title: &'static str, size: &'static str, connections: usize, streams: usize) -> Cell {
    let asked = Requests { path: size, connections, tls: true, ..SMALL };
    cell(name, title, Kind::Quic(asked, streams), Features { http3: true, ..TLS })
}

const fn grpc(name: &'static str, title: &'static str, connections: usize, at_once: usize, streaming: bool) -> Cell {
    cell(name, title, Kind::Calls(Calls { connections, at_once, streaming }), GRPC)
}

const fn datagrams(name: &'static str, title: &'static str, ports: usize, at_once: usize) -> Cell {
    cell(name, title, Kind::Datagrams(Datagrams { ports, at_once }), Features { udp: true, ..PLAIN })
}

const fn websocket(name: &'static str, title: &'static str, tls: bool) -> Cell {
    let kind = Kind::Messages { connections: 50, tls };
    cell(name, title, kind, Features { websocket: true, tls, ..PLAIN })
}

/// A policy that lets all requests through.
const fn policed(name: &'static str, title: &'static str, policy: Policy, host: Option<&'static str>) -> Cell {
    let asked = Requests { policy, host, ..SMALL };
    cell(name, title, Kind::Closed(asked), Features { policy, ..PLAIN })
}

/// The same with another body.
const fn policed_body(name: &'static str, title: &'static str, policy: Policy, path: &'static str) -> Cell {
    let asked = Requests { policy, path, ..SMALL };
    cell(name, title, Kind::Closed(asked), Features { policy, ..PLAIN })
}

/// A document, compressed for a client that accepts that coding alone.
const fn compressed(
    name: &'static str,
    title: &'static str,
    path: &'static str,
    encoding: &'static str,
    level: u8,
) -> Cell {
    let asked = Requests { path, accept_encoding: Some(encoding), ..SMALL };
    // At these levels of zlib-ng and zlib-rs the classic zlib makes bodies of the same size with the next one.
    let zlib_level = if level == 2 { 3 } else { level };
    let compress = Some(Compression { encoding, level, zlib_level });
    cell(name, title, Kind::Closed(asked), Features { compress, ..PLAIN })
}

/// The cell whose figures give the rate of the latency cell.
pub(crate) const REFERENCE: &Cell = &ALL[0];

/// All cells, in the order of the table.
pub(crate) const ALL: &[Cell] = &[
    cell("12b-c50", "12 B, 50 connections, keep-alive", Kind::Closed(SMALL), PLAIN),
    cell("12b-c500", "12 B, 500 connections, keep-alive", Kind::Closed(Requests { connections: 500, ..SMALL }), PLAIN),
    cell("10k-c50", "10 kB, 50 connections, keep-alive", Kind::Closed(Requests { path: "/10k", ..SMALL }), PLAIN),
    cell("100k-c50", "100 kB, 50 connections, keep-alive", Kind::Closed(Requests { path: "/100k", ..SMALL }), PLAIN),
    cell(
        "no-keepalive",
        "12 B, a new connection for each request, 50 at a time",
        Kind::Closed(Requests { keep_alive: false, ..SMALL }),
        PLAIN,
    ),
    cell("https", "HTTPS, 12 B, 50 connections, keep-alive", Kind::Closed(Requests { tls: true, ..SMALL }), TLS),
    cell(
        "https-100k",
        "HTTPS, 100 kB, 50 connections, keep-alive",
        Kind::Closed(Requests { tls: true, path: "/100k", ..SMALL }),
        TLS,
    ),
    cell(
        "https-handshake",
        "HTTPS, a full handshake for each request, 50 at a time",
        Kind::Handshakes(Requests { tls: true, keep_alive: false, ..SMALL }),
        TLS,
    ),
    h2("h2", "HTTP/2 over TLS, 12 B, 16 connections with 32 streams each", "/12", 16, 32),
    h2("h2-c1", "HTTP/2 over TLS, 12 B, 1 connection with 32 streams", "/12", 1, 32),
    h2("h2-c50", "HTTP/2 over TLS, 12 B, 50 connections with one stream each", "/12", 50, 1),
    h2("h2-c500", "HTTP/2 over TLS, 12 B, 500 connections with one stream each", "/12", 500, 1),
    h2("h2-100k", "HTTP/2 over TLS, 100 kB, 16 connections with 4 streams each", "/100k", 16, 4),
    h2c("h2c", "HTTP/2 in clear, 12 B, 16 connections with 32 streams each", "/12", 16, 32),
    h2c("h2c-c1", "HTTP/2 in clear, 12 B, 1 connection with 32 streams", "/12", 1, 32),
    h2c("h2c-c50", "HTTP/2 in clear, 12 B, 50 connections with one stream each", "/12", 50, 1),
    h2c("h2c-c500", "HTTP/2 in clear, 12 B, 500 connections with one stream each", "/12", 500, 1),
    h2c("h2c-100k", "HTTP/2 in clear, 100 kB, 16 connections with 4 streams each", "/100k", 16, 4),
    h3("h3", "HTTP/3, 12 B, 16 connections with 32 streams each", "/12", 16, 32),
    h3("h3-c1", "HTTP/3, 12 B, 1 connection with 32 streams", "/12", 1, 32),
    h3("h3-c50", "HTTP/3, 12 B, 50 connections with one stream each", "/12", 50, 1),
    h3("h3-c500", "HTTP/3, 12 B, 500 connections with one stream each", "/12", 500, 1),
    h3("h3-100k", "HTTP/3, 100 kB, 16 connections with 4 streams each", "/100k", 16, 4),
    grpc("grpc-unary", "gRPC in clear, calls of 100 B, 16 connections with 32 at a time each", 16, 32, false),
    grpc("grpc-c1", "gRPC in clear, calls of 100 B, 1 connection with 32 at a time", 1, 32, false),
    grpc("grpc-stream", "gRPC in clear, 100 B there and back on streams, 16 connections with 32 each", 16, 32, true),
    websocket("websocket", "WebSocket, messages there and back on 50 connections", false),
    websocket("websocket-tls", "WebSocket over TLS, messages there and back on 50 connections", true),
    datagrams("udp", "UDP, small datagrams there and back, 50 flows with 100 under way", 50, 100),
    datagrams("udp-c1", "UDP, small datagrams there and back, 1 flow with 32 under way", 1, 32),
    cell(
        "access-log",
        "12 B, 50 connections, access log on",
        Kind::Closed(SMALL),
        Features { access_log: true, ..PLAIN },
    ),
    cell(
        "headers-5",
        "12 B, 50 connections, 3 request and 2 response headers set",
        Kind::Closed(SMALL),
        Features { header_steps: true, ..PLAIN },
    ),
    cell(
        "routes-1",
        "12 B, 50 connections, by host and path of 1 route",
        Kind::Closed(ROUTED_ONE),
        Features { routes: 1, ..PLAIN },
    ),
    cell(
        "routes-10k",
        "12 B, 50 connections, by host and path of 10,000 routes",
        Kind::Closed(ROUTED),
        Features { routes: ROUTES, ..PLAIN },
    ),
    compressed("gzip1-json-10k", "10 kB of JSON, gzip at level 1, 50 connections", "/json/10k", "gzip", 1),
    compressed("gzip1-html-10k", "10 kB of HTML, gzip at level 1, 50 connections", "/html/10k", "gzip", 1),
    compressed("gzip1-json-100k", "100 kB of JSON, gzip at level 1, 50 connections", "/json/100k", "gzip", 1),
    compressed("gzip1-html-100k", "100 kB of HTML, gzip at level 1, 50 connections", "/html/100k", "gzip", 1),
    compressed("gzip2-json-10k", "10 kB of JSON, gzip at level 2 (nginx 3), 50 connections", "/json/10k", "gzip", 2),
    compressed("gzip2-html-10k", "10 kB of HTML, gzip at level 2 (nginx 3), 50 connections", "/html/10k", "gzip", 2),
    compressed("gzip2-json-100k", "100 kB of JSON, gzip at level 2 (nginx 3), 50 connections", "/json/100k", "gzip", 2),
    compressed("gzip2-html-100k", "100 kB of HTML, gzip at level 2 (nginx 3), 50 connections", "/html/100k", "gzip", 2),
    compressed(
        "gzip3-json-100k",
        "100 kB of JSON, gzip at level 3: 3 % above Traefik's size, 50 connections",
        "/json/100k",
        "gzip",
        3,
    ),
    compressed(
        "gzip3-html-100k",
        "100 kB of HTML, gzip at level 3: 3 % above Traefik's size, 50 connections",
        "/html/100k",
        "gzip",
        3,
    ),
    compressed(
        "gzip4-json-100k",
        "100 kB of JSON, gzip at level 4: Traefik's size, 50 connections",
        "/json/100k",
        "gzip",
        4,
    ),
    compressed(
        "gzip4-html-100k",
        "100 kB of HTML, gzip at level 4: Traefik's size, 50 connections",
        "/html/100k",
        "gzip",
        4,
    ),
    compressed("gzip6-json-10k", "10 kB of JSON, gzip at level 6, 50 connections", "/json/10k", "gzip", 6),
    compressed("gzip6-html-10k", "10 kB of HTML, gzip at level 6, 50 connections", "/html/10k", "gzip", 6),
    compressed("gzip6-json-100k", "100 kB of JSON, gzip at level 6, 50 connections", "/json/100k", "gzip", 6),
    compressed("gzip6-html-100k", "100 kB of HTML, gzip at level 6, 50 connections", "/html/100k", "gzip", 6),
    compressed("br4-json-10k", "10 kB of JSON, brotli at level 4, 50 connections", "/json/10k", "br", 4),
    compressed("br4-html-10k", "10 kB of HTML, brotli at level 4, 50 connections", "/html/10k", "br", 4),
    compressed("br4-json-100k", "100 kB of JSON, brotli at level 4, 50 connections", "/json/100k", "br", 4),
    compressed("br4-html-100k", "100 kB of HTML, brotli at level 4, 50 connections", "/html/100k", "br", 4),
    compressed("zstd3-json-10k", "10 kB of JSON, zstd at level 3, 50 connections", "/json/10k", "zstd", 3),
    compressed("zstd3-html-100k", "100 kB of HTML, zstd at level 3, 50 connections", "/html/100k", "zstd", 3),
    policed("rate-limit", "12 B, 50 connections, the rate of each client address limited", Policy::RateLimit, None),
    Cell {
        workers: 2,
        ..policed(
            "rate-limit-2w",
            "12 B, 50 connections, the rate of each client address limited, 2 workers",
            Policy::RateLimit,
            None,
        )
    },
    policed("rate-limit-1m", "12 B, 50 connections, the rates of a million keys limited", Policy::RateLimitKeys, None),
    policed("jwt-es256", "12 B, 50 connections, a JWT signed with ES256 verified", Policy::JwtEs256, None),
    policed("jwt-rs256", "12 B, 50 connections, a JWT signed with RS256 verified", Policy::JwtRs256, None),
    policed("forward-auth", "12 B, 50 connections, another program asked over HTTP", Policy::ForwardAuth, None),
    policed("map-1m", "12 B, 50 connections, a header from a map of a million hosts", Policy::Map, Some(MAPPED_HOST)),
    policed("mirror", "12 B, 50 connections, all requests mirrored", Policy::Mirror, None),
    policed(
        "expression",
        "12 B, 50 connections, a condition on method, path and host",
        Policy::Expression,
        Some(MAPPED_HOST),
    ),
    policed("cache", "12 B, 50 connections, from the cache", Policy::Cache, None),
    policed_body("cache-100k", "100 kB, 50 connections, from the cache", Policy::Cache, "/100k"),
    policed("files", "a file of 12 B, 50 connections", Policy::Files, None),
    policed_body("files-100k", "a file of 100 kB, 50 connections", Policy::Files, "/100k"),
    cell("latency-70", "12 B, 70 % of what the best peer can do, constant rate", Kind::Share(SMALL, 0.7), PLAIN),
    Cell { workers: 2, ..cell("12b-c50-2w", "12 B, 50 connections, 2 workers", Kind::Closed(SMALL), PLAIN) },
    Cell {
        workers: 2,
        ..cell("https-2w", "HTTPS, 12 B, 50 connections, 2 workers", Kind::Closed(Requests { tls: true, ..SMALL }), TLS)
    },
    cell("idle-1k", "1,000 idle connections", Kind::Idle { connections: 1000 }, PLAIN),
    cell("idle-5k", "5,000 idle connections", Kind::Idle { connections: 5000 }, PLAIN),
    cell("idle-1k-tls", "1,000 idle TLS connections", Kind::Idle { connections: 1000 }, TLS),
    cell("idle-5k-tls", "5,000 idle TLS connections", Kind::Idle { connections: 5000 }, TLS),
];

impl Cell {
    /// What generators and tools it needs beside those that are always there, as `lab peers` calls them.
    pub(crate) fn needs(&self) -> &'static [&'static str] {
        match self.features {
            Features { grpc: true, .. } => &["grpc-benchmark", "curl"],
            Features { websocket: true, .. } => &["k6", "go-httpbin"],
            Features { udp: true, .. } => &["dnsperf"],
            Features { http3: true, .. } => &["oha", "curl"],
            Features { http2: true, .. } => &["curl"],
            _ => &[],
        }
    }

    /// What is asked of a product before it is measured, to see that it answers rightly.
    pub(crate) fn asks(&self) -> Requests {
        match &self.kind {
            Kind::Closed(asked) | Kind::Handshakes(asked) | Kind::Share(asked, _) => *asked,
            Kind::Multiplexed(asked, _) | Kind::Quic(asked, _) => *asked,
            Kind::Idle { .. } | Kind::Calls(_) | Kind::Datagrams(_) | Kind::Messages { .. } => {
                Requests { tls: self.features.tls, ..SMALL }
            }
        }
    }

    /// What is asked on the product's plain listener until it answers, if that speaks HTTP/1.1 to the end and lets everyone through.
    pub(crate) fn probe(&self) -> Option<&'static str> {
        match self.features {
            Features { policy, .. } if !policy.refusals().is_empty() => None,
            Features { grpc: true, .. } | Features { udp: true, .. } => None,
            Features { websocket: true, .. } => Some("/get"),
            _ => Some("/12"),
        }
    }
}

impl Cell {
    /// Whether a name of the command line is this one's: `gzip*` is that of all that begin so.
    fn is_called(&self, name: &str) -> bool {
        name.strip_suffix('*').map_or(name == self.name, |beginning| self.name.starts_with(beginning))
    }
}

/// The cells of the given names, all without any.
pub(crate) fn choose(names: &[String]) -> Result<Vec<&'static Cell>, Failure> {
    for name in names {
        if !ALL.iter().any(|cell| cell.is_called(name)) {
            let known: Vec<&str> = ALL.iter().map(|cell| cell.name).collect();
            return Err(Failure::new(format!("no cell is called {name:?}; there are {}", known.join(", "))));
        }
    }
    Ok(ALL.iter().filter(|cell| names.is_empty() || names.iter().any(|name| cell.is_called(name))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_chosen_in_the_order_of_the_table() {
        let mut names: Vec<&str> = ALL.iter().map(|cell| cell.name).collect();
        let chosen = choose(&["https".to_owned(), "12b-c50".to_owned()]).unwrap();
        assert_eq!(chosen.iter().map(|cell| cell.name).collect::<Vec<_>>(), ["12b-c50", "https"]);
        assert!(choose(&["nonsense".to_owned()]).is_err() && choose(&["nonsense*".to_owned()]).is_err());
        assert_eq!(choose(&["gzip1-*".to_owned()]).unwrap().len(), 4);
        assert_eq!(choose(&[]).unwrap().len(), ALL.len());
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }

    #[test]
    fn the_reference_is_the_plain_small_cell() {
        assert_eq!(REFERENCE.name, "12b-c50");
    }
}
