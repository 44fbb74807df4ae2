//! Copies of a request that filters send to other clusters, beside the original and without waiting for it.
//!
//! A copy is an exchange of its own, as a call of a filter is: its client is a piece of memory, which gives the body out as it comes in
//! ([`crate::feed`]) and drops the response. It is a task of the worker, and lives no longer than its filter allows.

use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use model::{RequestHead, Scheme, Version};
use plan::filter::{Extent, Mirror, MirrorEnd, MirrorPlace, Stage};
use plan::{ClusterPlan, RoutePlan};
use wire::http1::Framing;

use crate::connection::{Connection, ConnectionFacts};
use crate::exchange::{CallSite, Exchange};
use crate::feed::{Feed, FeedTap, Source};
use crate::finish::finish_call;
use crate::io::MemoryIo;
use crate::random::RequestId;
use crate::registry::{Registered, Registration};
use crate::watch::Watch;
use crate::worker::Worker;
use crate::worker_plan::WorkerPlan;

/// A copy, apart from the exchange that it is of.
struct Copied {
    site: OwnSite,
    place: MirrorPlace,
    cluster: Arc<ClusterPlan>,
    framing: Framing,
    feed: Option<Rc<Feed>>,
    facts: Rc<ConnectionFacts>,
    registered: Registered,
}

/// Where it is sent from, as [`CallSite`] has it.
#[derive(Clone)]
pub(crate) struct OwnSite {
    pub worker: Rc<Worker>,
    pub plan: Rc<WorkerPlan>,
    scheme: Scheme,
    client: IpAddr,
    request_id: RequestId,
}

impl OwnSite {
    /// `None`: the listener is no longer in the plan.
    pub(crate) fn lend(&self, registration: &Registration) -> Option<CallSite<'_>> {
        let Self { worker, plan, scheme, client, request_id } = self;
        let (listener, http) = plan.http_listener(registration)?;
        let (scheme, client, request_id) = (*scheme, *client, *request_id);
        Some(CallSite { worker, plan, listener, http, scheme, client, request_id })
    }
}

impl Exchange<'_> {
    /// Begins the copies that filters have asked for. To be called when the request is admitted: its head is final, and its body not begun.
    #[cold]
    pub(crate) fn begin_mirrors(&mut self) {
        let mirrors = std::mem::take(&mut self.incoming.notes.mirrors);
        let Some(route) = self.progress.route.filter(|_| !self.wants_upgrade()) else { return };
        for mirror in &mirrors {
            self.begin_mirror(route, mirror);
        }
    }

    /// `None`: the plan has gone out of force since the exchange began.
    pub(crate) fn own_site(&self) -> Option<OwnSite> {
        let worker = self.worker.me.upgrade()?;
        let plan = worker.own_plan(self.plan)?;
        Some(OwnSite { worker, plan, scheme: self.scheme, client: self.client, request_id: self.request_id })
    }

    fn begin_mirror(&mut self, route: &RoutePlan, mirror: &Arc<Mirror>) {
        let framing = self.framing_for_endpoint();
        let length = match framing {
            Framing::None => Some(0),
            Framing::Length(length) => Some(length),
            Framing::Chunked | Framing::UntilClose => None,
        };
        let Some(place) = mirror.begin(length) else { return };
        let cluster = route.called.get(mirror.cluster.place());
        let (Some(cluster), Some(site)) = (cluster, self.own_site()) else { return place.end(MirrorEnd::Dropped) };
        let mut head = Box::new(self.incoming.head.clone());
        self.in_turn(|_, _, turn| mirror.fit(&mut head, turn));
        let registered = self.worker.registry.register_carried(&self.connection.registration);
        let feed = (length != Some(0)).then(|| Feed::new(mirror.clone(), registered.registration.clone()));
        if let Some(feed) = &feed {
            let source = Rc::new(Source(feed.clone()));
            self.tap_request_body(Box::new(move || Stage::Tap(Box::new(FeedTap::new(&source)))));
        }
        let facts = self.connection.facts.clone();
        let copied = Copied { site, place, cluster: cluster.clone(), framing, feed, facts, registered };
        // Not a type of its own: an exchange may have a copy, and a copy is an exchange.
        let carried: Pin<Box<dyn Future<Output = ()>>> = Box::pin(carry(copied, head));
        tokio::task::spawn_local(carried);
    }
}

async fn carry(copied: Copied, head: Box<RequestHead>) {
    let mut is_known = false;
    let is_answered = {
        let mut work = pin!(send(&copied, head));
        poll_fn(|cx| {
            if !std::mem::replace(&mut is_known, true) {
                copied.registered.registration.set_waker(cx.waker());
            }
            work.as_mut().poll(cx)
        })
        .await
    };
    copied.place.end(match is_answered {
        true => MirrorEnd::Answered,
        false if copied.feed.is_some_and(|feed| feed.is_cut()) => MirrorEnd::Dropped,
        false => MirrorEnd::Failed,
    });
}

/// Sends it, and reads the response to its end. Says whether there was one.
async fn send(copied: &Copied, head: Box<RequestHead>) -> bool {
    let Copied { site, place, cluster, framing, feed, facts, registered } = copied;
    let registration = &registered.registration;
    let Some(site) = site.lend(registration) else { return false };
    let worker = site.worker;
    let Some(local) = site.plan.cluster(cluster) else { return false };
    let (now, timeout) = (Instant::now(), place.mirror().timeout);
    let mut watch = Watch::new(now, timeout, registration.clone());
    watch.set_bound(Some(now + timeout));
    let memory = MemoryIo { feed: feed.clone(), is_sink: true, ..MemoryIo::default() };
    let mut connection = Connection::in_memory(memory, watch, (facts, registration));
    let mut incoming = worker.take_request();
    incoming.head = *head;
    // To this version a response has no interim ones, no chunks, and no trailers.
    incoming.head.version = Version::Http10;
    let mut exchange = Exchange::of_call(site, &mut connection, incoming);
    exchange.is_read = feed.is_none();
    match *framing {
        Framing::Chunked | Framing::UntilClose => {
            exchange.request.framing = Framing::UntilClose;
            exchange.incoming.body_steps.extent = Some(Extent::Unknown);
        }
        framing => exchange.request.framing = framing,
    }
    exchange.progress.cluster = Some(local);
    let fault = exchange.forward(local).await.err();
    let is_answered = exchange.progress.status != 0;
    finish_call(exchange, fault);
    is_answered
}
