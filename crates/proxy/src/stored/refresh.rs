//! A stale response that is fetched again, beside the exchange that was answered by it.
//!
//! It is an exchange of its own, as a copy of a request is: its client is a piece of memory that drops what it gets, while the filter `cache`
//! stores the response. It runs the filters behind that one, and it goes on when the client of the first exchange has gone.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::{Fault, Version};
use plan::RoutePlan;
use plan::filter::{Carried, Flow, Refresh};

use crate::connection::{Connection, ConnectionFacts};
use crate::exchange::Exchange;
use crate::finish::finish_call;
use crate::io::MemoryIo;
use crate::needs::mirror::OwnSite;
use crate::registry::{Registered, Registration};
use crate::stored::pipe::{Pipe, PipeWriter};
use crate::watch::Watch;

/// Bound on all of it where the route has none.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The same for a slice, which is fetched as its reader takes it.
const PIPED_TIMEOUT: Duration = Duration::from_secs(600);

/// What sends requests beside an exchange.
#[derive(Clone)]
pub(super) struct Fetcher {
    site: OwnSite,
    route: Arc<RoutePlan>,
    /// The first filter that is still to be run.
    place: usize,
    carried: Carried,
    facts: Rc<ConnectionFacts>,
    /// That of the exchange.
    registration: Rc<Registration>,
}

/// A request that is sent beside an exchange.
struct Fetched {
    by: Fetcher,
    registered: Registered,
    /// Where the body of its response goes. `None`: only to the store.
    pipe: Option<PipeWriter>,
}

impl Fetcher {
    /// Fetches a response for the store alone.
    pub(super) fn fetch(&self, refresh: Refresh) {
        let registered = self.site.worker.registry.register_carried(&self.registration);
        self.spawn(refresh, registered, None);
    }

    /// Fetches a slice, whose body can be read.
    pub(super) fn fetch_piped(&self, refresh: Refresh) -> Rc<Pipe> {
        let registered = self.site.worker.registry.register_carried(&self.registration);
        let pipe = Pipe::new(registered.registration.clone());
        self.spawn(refresh, registered, Some(PipeWriter(pipe.clone())));
        pipe
    }

    fn spawn(&self, refresh: Refresh, registered: Registered, pipe: Option<PipeWriter>) {
        let fetched = Fetched { by: self.clone(), registered, pipe };
        // Not a type of its own: an exchange may have this beside it, and this is an exchange.
        let carried: Pin<Box<dyn Future<Output = ()>>> = Box::pin(carry(fetched, refresh));
        tokio::task::spawn_local(carried);
    }
}

impl Exchange<'_> {
    pub(super) fn begin_refresh(&mut self, route: &RoutePlan, place: usize, refresh: Refresh) {
        if let Some(fetcher) = self.fetcher(route, place) {
            fetcher.fetch(refresh);
        }
    }

    /// What sends requests for the filter with this note.
    pub(super) fn fetcher_by(&self, number: usize) -> Option<Fetcher> {
        let route = self.progress.route?;
        self.fetcher(route, route.chain.place_of_cache(number)?)
    }

    fn fetcher(&self, route: &RoutePlan, place: usize) -> Option<Fetcher> {
        let site = self.own_site()?;
        let route = site.plan.plan.routes.get(route.index).cloned()?;
        let carried = self.incoming.notes.carried();
        let (facts, registration) = (self.connection.facts.clone(), self.connection.registration.clone());
        Some(Fetcher { site, route, place: place + 1, carried, facts, registration })
    }
}

async fn carry(fetched: Fetched, refresh: Refresh) {
    let mut is_known = false;
    let mut work = pin!(fetch(&fetched, refresh));
    poll_fn(|cx| {
        if !std::mem::replace(&mut is_known, true) {
            fetched.registered.registration.set_waker(cx.waker());
        }
        if let Some(pipe) = &fetched.pipe {
            pipe.0.look();
        }
        work.as_mut().poll(cx)
    })
    .await;
}

async fn fetch(fetched: &Fetched, refresh: Refresh) {
    let Fetched { by: Fetcher { site, route, place, carried, facts, .. }, registered, pipe } = fetched;
    let registration = &registered.registration;
    let Some(site) = site.lend(registration) else { return };
    let worker = site.worker;
    let usual = if pipe.is_some() { PIPED_TIMEOUT } else { TIMEOUT };
    let (now, timeout) = (Instant::now(), route.timeout.unwrap_or(usual));
    let mut watch = Watch::new(now, timeout, registration.clone());
    watch.set_bound(Some(now + timeout));
    let pipe = pipe.as_ref().map(|pipe| pipe.0.clone());
    let memory = MemoryIo { is_sink: true, pipe, ..MemoryIo::default() };
    let mut connection = Connection::in_memory(memory, watch, (facts, registration));
    let mut incoming = worker.take_request();
    incoming.head = incoming.notes.begin_refresh(refresh, carried.clone());
    // To this version a response has no interim ones, no chunks, and no trailers.
    incoming.head.version = Version::Http10;
    let mut exchange = Exchange::of_call(site, &mut connection, incoming);
    exchange.progress.route = Some(route);
    let fault = proceed(&mut exchange, route, *place).await.err();
    // The route counts requests of clients.
    exchange.progress.route = None;
    finish_call(exchange, fault);
}

/// Runs the filters that are left, and forwards the request.
async fn proceed<'p>(exchange: &mut Exchange<'p>, route: &'p RoutePlan, place: usize) -> Result<(), Fault> {
    let mut place = place;
    let mut flow = exchange.filter_request(route, &mut place);
    if let Flow::Need(need) = flow {
        flow = exchange.meet_needs(route, &mut place, need).await?;
    }
    // An answer of a filter is nothing to store.
    if flow != Flow::Continue {
        return Ok(());
    }
    let cluster = exchange.cluster_of(route).ok_or(Fault::UnknownCluster)?;
    let local = exchange.plan.cluster(cluster).ok_or(Fault::NoEndpoint)?;
    exchange.progress.cluster = Some(local);
    exchange.begin_request_body(route);
    exchange.forward(local).await.map(drop)
}
