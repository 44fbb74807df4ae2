//! Heads, facts and chains for the tests of filters.

use std::time::{Duration, Instant};

use model::facts::{ClientNames, TlsFacts};
use model::fields::Span;
use model::filter::FilterUse;
use model::{Facts, FieldName, Fields, Issue, LocalResponse, Name, RequestHead, ResponseHead, Scheme, Version};
use serde_json::Value;

use super::{Chain, Compiling, FILTERS, FilterEntry, Flow, Notes, ResponseSource, ResponseView, Steps, Turn};

/// What facts borrow from.
pub(super) struct World {
    listener: Name,
    cluster: Name,
    endpoint: Name,
    tls: TlsFacts,
}

impl World {
    pub(super) fn new() -> Self {
        let names = ClientNames {
            issuer: Some("CN=us".into()),
            dns: vec!["a.example".into()],
            uris: vec!["spiffe://a.example/b".into()],
            ..ClientNames::default()
        };
        let tls = TlsFacts {
            server_name: Some("shop.example.com".into()),
            version: "TLSv1.3",
            cipher: "TLS13_AES_128_GCM_SHA256",
            client_subject: Some("CN=ann".into()),
            client_names: Some(Box::new(names)),
            ..TlsFacts::default()
        };
        Self { listener: "web".into(), cluster: "api".into(), endpoint: "127.0.0.1:9001".into(), tls }
    }

    /// Over cleartext, the client being the peer.
    pub(super) fn facts(&self) -> Facts<'_> {
        Facts {
            peer: "192.0.2.7:40000".parse().unwrap(),
            client: "192.0.2.7".parse().unwrap(),
            local: "127.0.0.1:8080".parse().unwrap(),
            scheme: Scheme::Http,
            tls: None,
            sender: None,
            listener: &self.listener,
            request_id: "id-1",
            user: None,
        }
    }

    pub(super) fn tls_facts(&self) -> Facts<'_> {
        Facts { scheme: Scheme::Https, tls: Some(&self.tls), ..self.facts() }
    }

    /// What a response from an endpoint is seen with.
    pub(super) fn view<'a>(&'a self, request: &'a RequestHead) -> ResponseView<'a> {
        ResponseView {
            request,
            cluster: Some(&self.cluster),
            endpoint: Some(&self.endpoint),
            source: ResponseSource::Endpoint,
            elapsed: <_>::default(),
        }
    }
}

/// What steps have beside heads and facts.
pub(super) struct Beside {
    pub(super) notes: Notes,
    pub(super) now: Instant,
    pub(super) is_rehearsal: bool,
    pub(super) wall_clock: Box<dyn Fn() -> Duration>,
    scratch: Vec<u8>,
    chance: Box<dyn FnMut() -> u64>,
}

impl Beside {
    pub(super) fn new() -> Self {
        let (notes, scratch) = (Notes::default(), Vec::new());
        // In 2033.
        let wall_clock = Box::new(|| Duration::from_secs(2_000_000_000));
        Self { notes, now: Instant::now(), is_rehearsal: false, wall_clock, scratch, chance: Box::new(|| 7) }
    }

    pub(super) fn scratch_capacity(&self) -> usize {
        self.scratch.capacity()
    }

    pub(super) fn turn<'a>(&'a mut self, facts: &'a Facts<'a>) -> Turn<'a> {
        let Self { notes, now, is_rehearsal, wall_clock, scratch, chance } = self;
        let is_rehearsal = *is_rehearsal;
        Turn { facts, now: *now, wall_clock: &**wall_clock, chance: &mut **chance, notes, scratch, is_rehearsal }
    }
}

/// The request after a chain that lets it pass, with what its steps have noted.
pub(super) fn passed_with(chain: &Chain, mut head: RequestHead) -> (RequestHead, Beside) {
    let (world, mut beside) = (World::new(), Beside::new());
    assert_eq!(chain.on_request(&mut head, &mut beside.turn(&world.facts())), Flow::Continue);
    (head, beside)
}

/// The response after a chain whose request steps have noted this.
pub(super) fn returned_with(
    chain: &Chain,
    (request, beside): &mut (RequestHead, Beside),
    mut head: ResponseHead,
) -> ResponseHead {
    let world = World::new();
    chain.on_response(&mut head, &world.view(request), &mut beside.turn(&world.facts()));
    head
}

/// What a chain makes of a request.
pub(super) fn flow_of(chain: &Chain, head: &mut RequestHead, facts: &Facts<'_>) -> Flow {
    chain.on_request(head, &mut Beside::new().turn(facts))
}

/// A request from its method, target and fields.
pub(super) fn request(method: &str, target: &str, fields: &[(&str, &str)]) -> RequestHead {
    let mut head = RequestHead::default();
    let mut load = |text: &str| {
        let start = head.fields.load(text.as_bytes());
        Span::new(start, start + text.len())
    };
    let (method, target) = (load(method), load(target));
    head.set_line(method, target, Version::Http11);
    append_all(&mut head.fields, fields);
    head
}

pub(super) fn response(status: u16, fields: &[(&str, &str)]) -> ResponseHead {
    let mut head = ResponseHead::default();
    head.status = status;
    append_all(&mut head.fields, fields);
    head
}

fn append_all(fields: &mut Fields, list: &[(&str, &str)]) {
    for (name, value) in list {
        fields.append(&FieldName::new(name).unwrap(), value.as_bytes());
    }
}

/// `name: value` of every field, joined by `|`.
pub(super) fn listed(fields: &Fields) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    fields.iter().map(|field| format!("{}: {}", text(field.name), text(field.value))).collect::<Vec<_>>().join("|")
}

/// Filter uses from what stands under `filters:`.
pub(super) fn uses(filters: &Value) -> Vec<FilterUse> {
    let one = |filter: &Value| {
        let (name, settings) = filter.as_object().unwrap().iter().next().unwrap();
        FilterUse { name: name.clone(), settings: settings.clone(), when: None, calls: Vec::new() }
    };
    filters.as_array().unwrap().iter().map(one).collect()
}

pub(super) fn chain(filters: Value) -> Chain {
    Chain::compile(&uses(&filters), None).unwrap()
}

/// The steps of a filter with good settings.
pub(super) fn compiled(entry: &FilterEntry, settings: &Value) -> Steps {
    (entry.compile)(settings, &mut Compiling::alone()).unwrap_or_else(|issue| panic!("{issue:?}"))
}

/// The issue that settings of a filter have, as text.
pub(super) fn issue(name: &str, settings: Value) -> String {
    let entry = FILTERS.iter().find(|entry| entry.name == name).unwrap();
    match ((entry.check)(&settings), (entry.compile)(&settings, &mut Compiling::alone())) {
        (Err(checked), Err(compiled)) => {
            assert_eq!(checked, compiled);
            Issue::to_string(&checked)
        }
        _ => panic!("{settings} has no issue"),
    }
}

/// The request after a chain that lets it pass.
pub(super) fn passed(chain: &Chain, head: RequestHead) -> RequestHead {
    passed_with(chain, head).0
}

/// The answer of a chain that lets a request not pass.
pub(super) fn answered(chain: &Chain, head: &mut RequestHead) -> LocalResponse {
    match flow_of(chain, head, &World::new().facts()) {
        Flow::Respond(response) => *response,
        other => panic!("{other:?} instead of an answer"),
    }
}

/// The response after a chain.
pub(super) fn returned(chain: &Chain, request: &RequestHead, mut head: ResponseHead) -> ResponseHead {
    let world = World::new();
    chain.on_response(&mut head, &world.view(request), &mut Beside::new().turn(&world.facts()));
    head
}
