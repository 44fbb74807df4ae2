//! Records for tests.

use std::net::SocketAddr;
use std::time::{Duration, UNIX_EPOCH};

use model::facts::TlsFacts;
use model::fields::Span;
use model::{Address, Facts, Name, RequestHead, ResponseHead, Scheme, Version};

use crate::record::{Kind, Phases, Record};

/// Everything that a record borrows.
pub(crate) struct Draft {
    pub(crate) listener: Name,
    pub(crate) route: Name,
    pub(crate) cluster: Name,
    pub(crate) endpoint: Name,
    pub(crate) tls: TlsFacts,
    pub(crate) request_id: String,
    pub(crate) request: RequestHead,
    pub(crate) response: ResponseHead,
    pub(crate) peer: SocketAddr,
    pub(crate) endpoint_address: Address,
}

pub(crate) fn request(method: &[u8], target: &[u8], fields: &[(&[u8], &[u8])]) -> RequestHead {
    let mut head = RequestHead::default();
    let mut load = |bytes: &[u8]| {
        let start = head.fields.load(bytes);
        Span::new(start, start + bytes.len())
    };
    let (method, target) = (load(method), load(target));
    head.set_line(method, target, Version::Http11);
    for (name, value) in fields {
        let mut load = |bytes: &[u8]| {
            let start = head.fields.load(bytes);
            Span::new(start, start + bytes.len())
        };
        let (name, value) = (load(name), load(value));
        head.fields.push_span(name, value);
    }
    head
}

impl Default for Draft {
    fn default() -> Self {
        Self {
            listener: "web".into(),
            route: "shop".into(),
            cluster: "api".into(),
            endpoint: "a.example:9001".into(),
            tls: TlsFacts {
                server_name: Some("shop.example".to_owned()),
                version: "TLSv1.3",
                cipher: "TLS13_AES_128_GCM_SHA256",
                ..TlsFacts::default()
            },
            request_id: "r-1".to_owned(),
            request: request(
                b"GET",
                b"/cart?id=7",
                &[(b"Host", b"shop.example:443"), (b"User-Agent", b"curl/8 \"x\"")],
            ),
            response: ResponseHead::default(),
            peer: "192.0.2.7:40000".parse().unwrap(),
            endpoint_address: Address::Ip("127.0.0.1:9001".parse().unwrap()),
        }
    }
}

impl Draft {
    pub(crate) fn facts(&self) -> Facts<'_> {
        Facts {
            peer: self.peer,
            client: self.peer.ip(),
            local: "127.0.0.1:443".parse().unwrap(),
            scheme: Scheme::Https,
            tls: Some(&self.tls),
            sender: None,
            listener: &self.listener,
            request_id: &self.request_id,
            user: None,
        }
    }

    /// A request answered with 200 by an endpoint after 12.345 ms.
    pub(crate) fn record<'a>(&'a self, facts: &'a Facts<'a>) -> Record<'a> {
        Record {
            facts,
            request: Some(&self.request),
            response_status: 200,
            response: Some(&self.response),
            fault: None,
            route: Some(&self.route),
            cluster: Some(&self.cluster),
            endpoint: Some(&self.endpoint),
            endpoint_address: Some(&self.endpoint_address),
            pick: Some(model::PickReason::Balance),
            retries: 0,
            hedges: 0,
            session: None,
            cache: "",
            received_bytes: 10,
            sent_bytes: 2_000,
            phases: Phases {
                receive: Duration::from_micros(20),
                queue: Duration::ZERO,
                connect: Duration::ZERO,
                first_byte: Duration::from_micros(11_001),
                total: Duration::from_micros(12_345),
            },
            at: UNIX_EPOCH + Duration::from_millis(971_211_336_789),
            kind: Kind::Exchange,
        }
    }
}
