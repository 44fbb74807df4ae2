//! Listeners.

use std::collections::HashMap;
use std::fmt;

use model::address::HostPattern;
use model::limits;
use model::snapshot::{
    AlpnRule, ClientAddress, ClientAuth, ClientTrust, EscapedSlashes, Forwarding, HostMismatch, Http3, HttpListener,
    HttpVersions, Listener, Paths, Protocol, TcpListener, TcpTarget, TlsTermination, TlsVersion, UdpListener,
};
use model::{Address, FieldName, Name};

use super::Resolver;
use crate::file;
use crate::tree::Node;
use crate::units::Time;

/// Smallest bound on a request head.
const HEAD_BYTES_MIN: u64 = 1_024;

/// Keys that mean something for some protocols only, with what to do instead.
const HTTP_ONLY: [(&str, &str); 12] = [
    ("filters", "leave it out"),
    ("http3", "leave it out"),
    ("http_versions", "leave it out"),
    ("head_bytes_max", "leave it out"),
    ("fields_max", "leave it out"),
    ("paths", "leave it out"),
    ("host_mismatch", "leave it out"),
    ("timeouts", "write `idle_timeout`"),
    ("requests_per_connection_max", "leave it out"),
    ("no_keep_alive_for", "leave it out"),
    ("forwarding", "leave it out"),
    ("request_id", "leave it out"),
];
const NOT_HTTP: [(&str, &str); 2] = [
    ("cluster", "name the cluster in a route, or set `protocol: tcp`"),
    ("idle_timeout", "write `timeouts: { idle: … }`"),
];
const TCP_ONLY: [(&str, &str); 2] = [
    ("sni", "match `host` in a route, or set `protocol: tcp`"),
    ("bandwidth", "write the filter `bandwidth_limit` in a route, or set `protocol: tcp`"),
];
const UDP_ONLY: [(&str, &str); 1] = [("responses_max", "leave it out")];
const NOT_UDP: [(&str, &str); 4] = [
    ("tls", "leave it out"),
    ("proxy_protocol", "leave it out"),
    ("connections_per_address", "use `connections_max`"),
    ("track", "leave it out"),
];

/// Keys, each with what to do instead, and the protocols that have them. A message names the first of those.
type KeysOf = (&'static [(&'static str, &'static str)], &'static [file::Protocol]);

const KEYS: [KeysOf; 5] = [
    (&HTTP_ONLY, &[file::Protocol::Http]),
    (&NOT_HTTP, &[file::Protocol::Tcp, file::Protocol::Udp]),
    (&TCP_ONLY, &[file::Protocol::Tcp]),
    (&UDP_ONLY, &[file::Protocol::Udp]),
    (&NOT_UDP, &[file::Protocol::Tcp, file::Protocol::Http]),
];

/// What a listener that does not speak HTTP passes on.
#[derive(Clone, Copy)]
enum Carried {
    Streams,
    Datagrams,
}

impl Resolver<'_> {
    pub(super) fn listener(&mut self, name: &str, written: &mut file::Listener) -> Option<Listener> {
        let at = format!("listeners/{name}");
        let bind = self.bind_anywhere(&format!("{at}/bind"), &written.bind.0);
        if let Some(bind) = &bind {
            self.take_bind(&format!("{at}/bind"), (bind, written.protocol.is_udp()), format!("listener `{name}`"));
        }
        let terminated = written.tls.as_ref().filter(|_| written.protocol.carries_tls());
        let tls = terminated.map(|tls| self.termination(&format!("{at}/tls"), tls));
        let spoken = self.tree.get("listeners").and_then(|all| all.get(name)?.get("protocol")?.text());
        if spoken.is_some_and(|spoken| !file::Protocol::ALL.iter().any(|one| one.name() == spoken)) {
            // Which keys fit is not known; the wrong protocol has its own diagnostic.
            return None;
        }
        self.refuse_keys(&at, name, written.protocol);
        let protocol = match written.protocol {
            file::Protocol::Http => {
                let versions = self.http_versions(&at, written);
                if written.paths.normalize {
                    written.paths.merge_slashes.get_or_insert(true);
                    written.paths.escaped_slashes.get_or_insert(file::EscapedSlashes::Refuse);
                }
                self.check_http3(&at, name, written, bind.as_ref());
                let http = self.http_listener(&at, written, versions);
                self.objects.paths.push((name.to_owned(), http.paths));
                Some(Protocol::Http(http))
            }
            file::Protocol::Tcp => {
                written.idle_timeout.get_or_insert(Time(limits::STREAM_IDLE));
                self.tcp_listener(&at, name, written).map(Protocol::Tcp)
            }
            file::Protocol::Udp => {
                written.idle_timeout.get_or_insert(Time(limits::FLOW_IDLE));
                self.udp_listener(&at, name, written, bind.as_ref()).map(Protocol::Udp)
            }
        };
        let list = written.address_list.as_ref().map(|list| self.address_list(name, list));
        let tls = match tls {
            Some(None) if !self.loader.is_offline => return None,
            // Offline, a listener whose certificate is not here is checked without it.
            tls => tls.flatten(),
        };
        let accepted = written.proxy_protocol.as_ref();
        let per_address = written.connections_per_address.as_ref();
        let per_address = per_address.map(|limits| self.per_address(&at, limits, (bind.as_ref(), accepted.is_some())));
        Some(Listener {
            name: name.into(),
            socket: self.listener_socket(
                &format!("{at}/socket"),
                &written.socket,
                (bind.as_ref(), written.protocol.is_udp()),
            ),
            bind: bind?,
            tls,
            proxy_protocol: accepted.map(|accepted| self.accept_proxy(&format!("{at}/proxy_protocol"), accepted)),
            address_list: list,
            connections_max: written.connections_max,
            per_address,
            track: written.track.as_slice().iter().map(|name| name.as_str().into()).collect(),
            protocol: protocol?,
        })
    }

    fn refuse_keys(&mut self, at: &str, name: &str, protocol: file::Protocol) {
        let foreign = KEYS.iter().filter(|(_, fitting)| !fitting.contains(&protocol));
        for ((key, mend), other) in foreign.flat_map(|(keys, fitting)| keys.iter().map(|key| (key, fitting[0].name())))
        {
            if self.has(at, key) {
                let span = self.key_span(at, key);
                let speaks = protocol.name();
                let message = format!("`{key}` is for `protocol: {other}`, but listener `{name}` speaks {speaks}");
                self.sink.push(span, message, Some((*mend).to_owned()));
            }
        }
    }

    fn http_versions(&mut self, at: &str, written: &file::Listener) -> HttpVersions {
        let mut seen = Vec::new();
        for (index, version) in written.http_versions.iter().enumerate() {
            let path = format!("{at}/http_versions/{index}");
            if seen.contains(version) {
                self.report(&path, "this version is listed twice", None);
            }
            seen.push(*version);
        }
        let speaks = |version| seen.contains(&version);
        HttpVersions {
            h1: speaks(file::HttpVersion::H1),
            h2: speaks(file::HttpVersion::H2),
            h3: speaks(file::HttpVersion::H3),
        }
    }

    fn http_listener(&mut self, at: &str, written: &file::Listener, versions: HttpVersions) -> HttpListener {
        let most = (limits::BUFFER_BYTES / 2) as u64;
        let head_bytes = written.head_bytes_max.0;
        if !(HEAD_BYTES_MIN..=most).contains(&head_bytes) {
            let message = format!("`head_bytes_max` must be from {HEAD_BYTES_MIN} to {most} bytes, not {head_bytes}");
            self.report(&format!("{at}/head_bytes_max"), message, None);
        }
        let request_id = match &written.request_id {
            file::RequestId::Off(_) => None,
            file::RequestId::Field(name) => self.field_name(&format!("{at}/request_id"), name),
        };
        if !versions.h1 && self.has(at, "no_keep_alive_for") {
            let mend = Some("leave it out".to_owned());
            self.warn_at_key(at, "no_keep_alive_for", "this has no effect without `h1`", mend);
        }
        let forwarding = &written.forwarding;
        HttpListener {
            versions,
            head_bytes_max: head_bytes.min(most) as usize,
            fields_max: written.fields_max,
            paths: self.paths(&format!("{at}/paths"), &written.paths),
            host_mismatch: match written.host_mismatch {
                file::HostMismatch::Replace => HostMismatch::Replace,
                file::HostMismatch::Refuse => HostMismatch::Refuse,
            },
            head_timeout: written.timeouts.head.0,
            idle_timeout: written.timeouts.idle.0,
            stream_timeout: written.timeouts.stream.0,
            requests_per_connection_max: written.requests_per_connection_max,
            no_keep_alive_for: written.no_keep_alive_for.clone(),
            forwarding: Forwarding {
                trusted: self.parsed(&format!("{at}/forwarding/trusted"), &forwarding.trusted, false),
                client_address: self.client_address(&format!("{at}/forwarding/client_address"), forwarding),
                x_forwarded: forwarding.x_forwarded,
                forwarded: forwarding.forwarded,
            },
            request_id,
            http3: Self::http3(written),
        }
    }

    fn client_address(&mut self, at: &str, written: &file::Forwarding) -> Vec<ClientAddress> {
        let mut rules = Vec::new();
        for (place, rule) in written.client_address.iter().enumerate() {
            let path = format!("{at}/{place}/header");
            let name = self.field_name(&path, &rule.header);
            let from = self.parsed(&format!("{at}/{place}/from"), &rule.from, false);
            let Some(name) = name else { continue };
            if matches!(name.as_str(), "x-forwarded-for" | "forwarded") {
                let message = format!("`{}` lists a chain of proxies, not one address", rule.header);
                self.report(&path, message, Some("name the proxies in `trusted`".to_owned()));
                continue;
            }
            // It was checked to be a name.
            rules.extend(FieldName::new(&name).map(|header| ClientAddress { header, from }));
        }
        rules
    }

    fn paths(&mut self, at: &str, written: &file::Paths) -> Option<Paths> {
        if !written.normalize {
            for key in ["merge_slashes", "escaped_slashes"] {
                if self.has(at, key) {
                    let span = self.key_span(at, key);
                    let message = format!("`{key}` has no effect with `normalize: false`");
                    self.sink.push(span, message, Some("leave it out, or leave `normalize: false` out".to_owned()));
                }
            }
            return None;
        }
        let escaped_slashes = match written.escaped_slashes {
            None | Some(file::EscapedSlashes::Refuse) => EscapedSlashes::Refuse,
            Some(file::EscapedSlashes::Keep) => EscapedSlashes::Keep,
            Some(file::EscapedSlashes::Decode) => EscapedSlashes::Decode,
        };
        Some(Paths { merge_slashes: written.merge_slashes.unwrap_or(true), escaped_slashes })
    }

    fn http3(written: &file::Listener) -> Http3 {
        let settings = written.http3.clone().unwrap_or_default();
        Http3 {
            advertised_for: settings.advertise.then_some(settings.max_age.0),
            advertised_port: settings.port,
            unproven_max: settings.unproven_max,
        }
    }

    /// Checks the requirements of HTTP/3 and the settings that it excludes.
    fn check_http3(&mut self, at: &str, name: &str, written: &file::Listener, bind: Option<&Address>) {
        let Some(index) = written.http_versions.iter().position(|version| *version == file::HttpVersion::H3) else {
            if self.has(at, "http3") {
                let span = self.key_span(at, "http3");
                let message = format!("`http3` has no effect: listener `{name}` does not speak HTTP/3");
                self.sink.push(span, message, Some("add `h3` to `http_versions`".to_owned()));
            }
            return;
        };
        let path = format!("{at}/http_versions/{index}");
        let leave_out = |other: &str| Some(format!("{other}, or leave `h3` out"));
        if written.tls.is_none() && !self.has(at, "tls") {
            let message = format!("`h3` needs TLS, and listener `{name}` has none");
            self.report(&path, message, leave_out("add `tls` with a certificate"));
        }
        if written.proxy_protocol.is_some() {
            let message =
                format!("`h3` and `proxy_protocol` exclude each other in listener `{name}`: QUIC has no such header");
            self.report(&path, message, leave_out("use a separate listener for HTTP/3"));
        }
        match bind {
            Some(Address::Unix(_)) => {
                let message = format!("listener `{name}` speaks `h3`, which does not work over Unix sockets");
                self.report(&path, message, leave_out("bind an address with a port"));
            }
            Some(bind) => self.take_bind(&format!("{at}/bind"), (bind, true), format!("listener `{name}`, for HTTP/3")),
            None => {}
        }
    }

    fn tcp_listener(&mut self, at: &str, name: &str, written: &file::Listener) -> Option<TcpListener> {
        let target = match (&written.cluster, &written.sni) {
            (Some(cluster), None) => {
                self.takes(&format!("{at}/cluster"), cluster, Carried::Streams);
                TcpTarget::Cluster(cluster.as_str().into())
            }
            (None, Some(sni)) => self.sni(&format!("{at}/sni"), sni),
            (Some(_), Some(_)) => {
                let message = format!("`cluster` and `sni` exclude each other in listener `{name}`");
                let span = self.key_span(at, "sni");
                self.sink.push(span, message, Some("write the cluster as `otherwise` of `sni`".to_owned()));
                return None;
            }
            (None, None) if self.has(at, "cluster") || self.has(at, "sni") => return None,
            (None, None) => {
                let message = format!("listener `{name}` needs one of `cluster` or `sni`");
                self.report(at, message, Some("add `cluster: NAME`, where its connections go".to_owned()));
                return None;
            }
        };
        if written.tls.is_some() && written.sni.is_some() {
            let message =
                format!("`tls` and `sni` exclude each other in listener `{name}`: `sni` forwards TLS unchanged");
            let span = self.key_span(at, "tls");
            self.sink.push(span, message, Some("keep one of them".to_owned()));
        }
        let idle_timeout = written.idle_timeout.map_or(limits::STREAM_IDLE, |time| time.0);
        let bandwidth = self.bandwidth(at, written.bandwidth.as_ref());
        Some(TcpListener { target, idle_timeout, bandwidth })
    }

    fn udp_listener(
        &mut self,
        at: &str,
        name: &str,
        written: &file::Listener,
        bind: Option<&Address>,
    ) -> Option<UdpListener> {
        if let Some(Address::Unix(_)) = bind {
            let message = format!("listener `{name}` speaks udp, which does not work over Unix sockets");
            self.report(&format!("{at}/bind"), message, Some("bind an address with a port".to_owned()));
        }
        let Some(cluster) = &written.cluster else {
            if !self.has(at, "cluster") {
                let message = format!("listener `{name}` needs a `cluster`");
                self.report(at, message, Some("add `cluster: NAME`, where its datagrams go".to_owned()));
            }
            return None;
        };
        self.takes(&format!("{at}/cluster"), cluster, Carried::Datagrams);
        Some(UdpListener {
            cluster: cluster.as_str().into(),
            idle_timeout: written.idle_timeout.map_or(limits::FLOW_IDLE, |time| time.0),
            responses_max: written.responses_max,
        })
    }

    /// Checks that a cluster exists, and that its endpoints are spoken to in a way that what comes can be passed on.
    fn takes(&mut self, path: &str, cluster: &str, what: Carried) {
        self.cluster_exists(path, cluster);
        let written = self.objects.clusters.as_ref().and_then(|all| all.get(cluster)?.get("http_versions"));
        let versions = written.map_or(&[][..], Node::items);
        // One with others beside it is reported where it stands.
        if !matches!(versions, [only] if only.text() == Some("h3")) {
            return;
        }
        let (message, mend) = match what {
            Carried::Streams => (
                format!("cluster `{cluster}` speaks only HTTP/3, over UDP: TCP streams cannot be forwarded to it"),
                "name a cluster whose endpoints listen on TCP, without `http_versions: [h3]`",
            ),
            Carried::Datagrams => (
                format!("cluster `{cluster}` speaks HTTP/3, but datagrams are forwarded unchanged"),
                "name a cluster with the same endpoints and neither `http_versions` nor `tls`",
            ),
        };
        self.report(path, message, Some(mend.to_owned()));
    }

    fn sni(&mut self, at: &str, written: &file::Sni) -> TcpTarget {
        let mut names: Vec<(HostPattern, Name)> = Vec::new();
        let mut seen = HashMap::new();
        for (host, cluster) in &written.names {
            let path = format!("{at}/names/{host}");
            self.takes(&path, cluster, Carried::Streams);
            match host.parse::<HostPattern>() {
                Ok(pattern) if seen.contains_key(&pattern) => {
                    self.report(&path, format!("`{host}` is listed twice"), None);
                }
                Ok(pattern) => {
                    seen.insert(pattern.clone(), ());
                    names.push((pattern, cluster.as_str().into()));
                }
                Err(message) => {
                    let span = self.key_span(&format!("{at}/names"), host);
                    self.sink.push(span, message, None);
                }
            }
        }
        let alpn: Vec<AlpnRule> = written
            .alpn
            .iter()
            .enumerate()
            .map(|(index, rule)| self.alpn(&format!("{at}/alpn/{index}"), rule))
            .collect();
        if let Some(cluster) = &written.otherwise {
            self.takes(&format!("{at}/otherwise"), cluster, Carried::Streams);
        } else if !["alpn", "names", "otherwise"].iter().any(|key| self.has(at, key)) {
            self.report(at, "`sni` names no cluster", Some("add `names`, `alpn` or `otherwise`".to_owned()));
        }
        let otherwise = written.otherwise.as_deref().map(Name::from);
        TcpTarget::Sni { alpn, names, otherwise, hello_timeout: written.hello_timeout.0 }
    }

    fn alpn(&mut self, at: &str, written: &file::SniAlpn) -> AlpnRule {
        self.takes(&format!("{at}/cluster"), &written.cluster, Carried::Streams);
        let protocols = written.protocols.as_slice();
        if protocols.is_empty() {
            self.report(at, "`protocols` is empty", Some("name one, such as `h2`".to_owned()));
        }
        for (index, protocol) in protocols.iter().enumerate().filter(|(_, name)| !(1..=255).contains(&name.len())) {
            let message =
                format!("an application protocol has 1 to 255 bytes (RFC 7301), and this one {}", protocol.len());
            self.report(&written.protocols.path(&format!("{at}/protocols"), index), message, None);
        }
        let mut names = Vec::new();
        for (index, name) in written.names.as_slice().iter().enumerate() {
            match name.parse::<HostPattern>() {
                Ok(pattern) => names.push(pattern),
                Err(message) => self.report(&written.names.path(&format!("{at}/names"), index), message, None),
            }
        }
        AlpnRule { protocols: protocols.to_vec(), names, cluster: written.cluster.as_str().into() }
    }

    pub(super) fn termination(&mut self, at: &str, written: &file::Tls) -> Option<TlsTermination> {
        let mut certificates = Vec::new();
        for (index, certificate) in written.certificates.iter().enumerate() {
            certificates.push(self.certificate(&format!("{at}/certificates/{index}"), certificate));
        }
        let client = self.client_auth(&format!("{at}/client"), &written.client);
        Some(TlsTermination {
            certificates: certificates.into_iter().collect::<Option<_>>()?,
            version_min: match written.version_min {
                file::TlsVersion::Tls12 => TlsVersion::Tls12,
                file::TlsVersion::Tls13 => TlsVersion::Tls13,
            },
            client: client?,
            handshake_timeout: written.handshake_timeout.0,
        })
    }

    fn client_auth(&mut self, at: &str, written: &file::ClientAuth) -> Option<ClientAuth> {
        if written.mode == file::ClientAuthMode::Off {
            for key in ["authorities", "identity_header"] {
                if self.has(at, key) {
                    let span = self.key_span(at, key);
                    let mend = "add `mode: required` or `mode: optional`".to_owned();
                    self.sink.push(
                        span,
                        format!("`{key}` has no effect: client certificates are not requested"),
                        Some(mend),
                    );
                }
            }
            return Some(ClientAuth::Off);
        }
        let header = written.identity_header.as_ref();
        let header = header.map(|name| self.field_name(&format!("{at}/identity_header"), name));
        let Some(path) = &written.authorities else {
            if self.has(at, "authorities") {
                return None;
            }
            let mend = "add the file with the CA certificates that clients are verified with".to_owned();
            self.report(at, "`authorities` is missing in `client`", Some(mend));
            return None;
        };
        let authorities = self.authorities(&format!("{at}/authorities"), path)?;
        let trust = ClientTrust { authorities, identity_header: header.flatten() };
        Some(match written.mode {
            file::ClientAuthMode::Required => ClientAuth::Required(trust),
            _ => ClientAuth::Optional(trust),
        })
    }
}

impl fmt::Display for file::HttpVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::H1 => "h1",
            Self::H2 => "h2",
            Self::H3 => "h3",
        })
    }
}
