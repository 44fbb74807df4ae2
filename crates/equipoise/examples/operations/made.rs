//! Makers of configuration and requests.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use model::fields::Span;
use model::matching::Match;
use model::snapshot::{
    Action, Balance, Cluster, ClusterSettings, Endpoint, Forwarding, HttpListener, HttpVersions, Listener, Pool,
    Protocol, Route, Snapshot, UpstreamTimeouts,
};
use model::{Facts, FieldName, Name, RequestHead, Scheme, Version};
use plan::Plan;

const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn compiled(snapshot: Snapshot) -> Plan {
    plan::compile(Arc::new(snapshot), None, 1).unwrap_or_else(|issues| panic!("{issues:?}"))
}

/// A request with the host and the target that are given.
pub(crate) fn request((host, target): &(String, String)) -> RequestHead {
    let mut head = RequestHead::default();
    let at = head.fields.load(b"GET");
    let start = head.fields.load(target.as_bytes());
    head.set_line(Span::new(at, start), Span::new(start, start + target.len()), Version::Http11);
    for (name, value) in [("User-Agent", "Mozilla/5.0 (X11; Linux x86_64)"), ("Host", host), ("Accept", "*/*")] {
        head.fields.append(&FieldName::new(name).unwrap_or_else(|error| panic!("{error}")), value.as_bytes());
    }
    head
}

pub(crate) fn facts(listener: &Name) -> Facts<'_> {
    let peer = SocketAddr::from(([203, 0, 113, 99], 43_210));
    Facts {
        peer,
        client: IpAddr::from([203, 0, 113, 99]),
        local: SocketAddr::from(([127, 0, 0, 1], 8080)),
        scheme: Scheme::Http,
        tls: None,
        sender: None,
        listener,
        request_id: "",
        user: None,
    }
}

pub(crate) fn http_listener() -> Listener {
    let forwarding =
        Forwarding { trusted: Vec::new(), client_address: Vec::new(), x_forwarded: false, forwarded: false };
    let http = HttpListener {
        versions: HttpVersions { h1: true, h2: true, h3: false },
        head_bytes_max: 8192,
        fields_max: 100,
        paths: None,
        host_mismatch: model::snapshot::HostMismatch::Replace,
        head_timeout: SECOND,
        idle_timeout: SECOND,
        stream_timeout: SECOND,
        requests_per_connection_max: None,
        no_keep_alive_for: Vec::new(),
        forwarding,
        request_id: None,
        http3: model::snapshot::Http3 { advertised_for: None, advertised_port: None, unproven_max: 1 },
    };
    Listener {
        name: "web".into(),
        bind: SocketAddr::from(([127, 0, 0, 1], 0)).into(),
        socket: model::socket::ListenerSocket::default(),
        tls: None,
        proxy_protocol: None,
        address_list: None,
        connections_max: 10,
        per_address: None,
        track: Vec::new(),
        protocol: Protocol::Http(http),
    }
}

/// A route to the one cluster.
pub(crate) fn route(place: usize, matches: Match) -> Route {
    Route {
        name: format!("r{place}").into(),
        above: Vec::new(),
        listeners: vec![],
        matches,
        priority: 0,
        filters: vec![],
        action: Action::Cluster("c".into()),
        timeout: None,
        retry: None,
        hedge: None,
        subset: None,
        precedence: model::queue::Precedence::default(),
        early_data: false,
        is_internal: false,
    }
}

/// A cluster of endpoints with the weights 1 to 3.
pub(crate) fn cluster(balance: Balance, endpoints: u16) -> Cluster {
    let endpoint = |place: u16| {
        let address = SocketAddr::from(([10, 0, (place >> 8) as u8, place as u8], 8080));
        Endpoint {
            name: address.to_string().into(),
            address: address.into(),
            weight: 1 + u32::from(place % 3),
            connections_max: None,
            queue_max: None,
            state: model::fitness::AdminState::Auto,
            placement: model::placement::Placed::default(),
            agent_port: None,
        }
    };
    Cluster {
        name: "c".into(),
        endpoints: (0..endpoints).map(endpoint).collect(),
        endpoints_from: None,
        settings: Arc::new(ClusterSettings {
            connections_max: None,
            balance,
            spread: model::placement::Spread::default(),
            health_check: None,
            fitness: model::fitness::Fitness::default(),
            queue: None,
            tls: None,
            socket: model::socket::ClusterSocket::default(),
            proxy_protocol: None,
            grpc_web: false,
            follows_names: false,
            pool: Pool { idle_max: 1, idle_timeout: SECOND, requests_per_connection_max: None, shared: None },
            timeouts: UpstreamTimeouts { connect: SECOND, response_head: SECOND, idle: SECOND, tunnel: None },
            retry: model::retry::Retry::default(),
            resilience: model::resilience::Resilience::default(),
            persistence: None,
        }),
    }
}
