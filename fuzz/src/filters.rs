//! What targets share that call filters: facts of an exchange, what a step has beside them, chains and heads.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use model::fields::Span;
use model::filter::FilterUse;
use model::{Facts, FieldName, Name, RequestHead, Scheme, Version};
use plan::filter::{Chain, Notes, ResponseSource, ResponseView, Turn};
use serde_json::Value;

/// What facts borrow from.
pub struct World {
    listener: Name,
    peer: SocketAddr,
    /// The scheme of the client.
    pub scheme: Scheme,
}

impl Default for World {
    fn default() -> Self {
        let peer = "192.0.2.7:40000".parse().expect("an address");
        Self { listener: Name::from("web"), peer, scheme: Scheme::Http }
    }
}

impl World {
    /// The facts of an exchange of no known user.
    pub fn facts(&self) -> Facts<'_> {
        Facts {
            peer: self.peer,
            client: self.peer.ip(),
            local: self.peer,
            scheme: self.scheme,
            tls: None,
            sender: None,
            listener: &self.listener,
            request_id: "",
            user: None,
        }
    }
}

/// What steps have beside heads and facts. Chance and the wall clock say the same each time.
pub struct Beside {
    /// What steps have noted.
    pub notes: Notes,
    now: Instant,
    scratch: Vec<u8>,
    chance: fn() -> u64,
}

impl Default for Beside {
    fn default() -> Self {
        Self { notes: Notes::default(), now: Instant::now(), scratch: Vec::new(), chance: || 7 }
    }
}

impl Beside {
    /// A turn of one or more steps.
    pub fn turn<'a>(&'a mut self, facts: &'a Facts<'a>) -> Turn<'a> {
        let Self { notes, now, scratch, chance } = self;
        let wall_clock: &dyn Fn() -> Duration = &|| Duration::from_secs(2_000_000_000);
        Turn { facts, now: *now, wall_clock, chance, notes, scratch, is_rehearsal: false }
    }
}

/// A chain of one filter.
pub fn chain(name: &str, settings: Value) -> Chain {
    chain_of([(name, settings)])
}

/// Several filters.
pub fn chain_of<const N: usize>(filters: [(&str, Value); N]) -> Chain {
    let used = filters.map(|(name, settings)| FilterUse { name: name.into(), settings, when: None, calls: Vec::new() });
    Chain::compile(&used, None).expect("good settings")
}

/// The head of a request of HTTP/1.1. Names are good.
pub fn request(method: &str, target: &[u8], fields: &[(&str, &[u8])]) -> RequestHead {
    let mut head = RequestHead::default();
    let start = head.fields.load(method.as_bytes());
    let method = Span::new(start, start + method.len());
    let start = head.fields.load(target);
    head.set_line(method, Span::new(start, start + target.len()), Version::Http11);
    for (name, value) in fields {
        head.fields.append(&FieldName::new(name).expect("a name"), value);
    }
    head
}

/// What a step looks at beside a response to this request.
pub fn view(request: &RequestHead, source: ResponseSource) -> ResponseView<'_> {
    ResponseView { request, cluster: None, endpoint: None, source, elapsed: <_>::default() }
}
