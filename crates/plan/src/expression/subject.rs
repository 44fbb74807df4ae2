//! What an expression is asked about: a request, perhaps its response, and at last how all of it went.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use model::persistence::SessionPick;
use model::{Address, Facts, Fault, Name, PickReason, RequestHead, ResponseHead};

use crate::filter::{Elapsed, Notes, ResponseSource, ResponseView};

/// How an exchange went, once it is over. Durations of phases that did not take place are zero.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ended<'a> {
    /// Status that was sent to the client; 0: none.
    pub status: u16,
    /// What went wrong.
    pub fault: Option<Fault>,
    /// The route that matched.
    pub route: Option<&'a Name>,
    /// The cluster that was chosen.
    pub cluster: Option<&'a Name>,
    /// The endpoint that was tried last, with its address.
    pub endpoint: Option<(&'a Name, &'a Address)>,
    /// Why it was that one.
    pub pick: Option<PickReason>,
    /// What became of its session.
    pub session: Option<SessionPick>,
    /// Attempts after the first.
    pub retries: u32,
    /// Hedged attempts.
    pub hedges: u32,
    /// Body bytes that came from the client.
    pub received_bytes: u64,
    /// Body bytes that went to the client.
    pub sent_bytes: u64,
    /// Until the request head was whole, in the queue, until the endpoint was connected to, until the head of the response, and all
    /// together.
    pub times: [Duration; 5],
}

/// What an expression is asked about. It only borrows.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// `None` where no head could be parsed.
    pub(super) request: Option<&'a RequestHead>,
    pub(super) facts: &'a Facts<'a>,
    pub(super) notes: Option<&'a Notes>,
    pub(super) response: Option<&'a ResponseHead>,
    pub(super) is_local: bool,
    /// When it is asked; `None`: no table is read.
    pub(super) now: Option<Instant>,
    pub(super) ended: Ended<'a>,
}

impl<'a> Subject<'a> {
    /// Returns a request before a route is chosen for it.
    pub fn of_request(request: &'a RequestHead, facts: &'a Facts<'a>) -> Self {
        let ended = Ended::default();
        Self { request: Some(request), facts, notes: None, response: None, is_local: false, now: None, ended }
    }

    /// Returns the same with what filters have noted.
    #[must_use]
    pub fn with_notes(self, notes: &'a Notes) -> Self {
        Self { notes: Some(notes), ..self }
    }

    /// Returns the same at a time, so that tables can be read.
    #[must_use]
    pub fn at(self, now: Instant) -> Self {
        Self { now: Some(now), ..self }
    }

    /// Returns a response on its way to the client, with the request that it is for.
    pub fn of_response(response: &'a ResponseHead, view: &ResponseView<'a>, facts: &'a Facts<'a>) -> Self {
        let is_local = matches!(view.source, ResponseSource::Local(_));
        let fault = match view.source {
            ResponseSource::Local(fault) => fault,
            ResponseSource::Endpoint => None,
        };
        let ended = Ended { status: response.status, cluster: view.cluster, fault, ..Ended::default() };
        let Elapsed { queue, connect, first_byte, total } = view.elapsed;
        let ended = Ended { times: [Duration::ZERO, queue, connect, first_byte, total], ..ended };
        let ended = Ended { endpoint: view.endpoint.map(|name| (name, &NO_ADDRESS)), ..ended };
        Self { response: Some(response), is_local, ended, ..Self::of_request(view.request, facts) }
    }

    /// Returns an exchange that is over, with the heads that there were.
    pub fn of_end(
        (request, response): (Option<&'a RequestHead>, Option<&'a ResponseHead>),
        facts: &'a Facts<'a>,
        ended: Ended<'a>,
    ) -> Self {
        let is_local = ended.endpoint.is_none() || ended.fault.is_some();
        Self { request, facts, notes: None, response, is_local, now: None, ended }
    }

    /// Returns the request, if its head could be parsed.
    pub(crate) fn request(&self) -> Option<&'a RequestHead> {
        self.request
    }

    /// Returns the address of the client.
    pub(crate) fn client(&self) -> IpAddr {
        self.facts.client
    }

    /// Returns what earlier limits did with the request.
    pub(super) fn limit_status(&self) -> Option<&'a [u8]> {
        let status = self.notes?.limit_status().as_str();
        (!status.is_empty()).then_some(status.as_bytes())
    }

    /// Returns how many redirects of endpoints were followed.
    pub(super) fn redirects(&self) -> u8 {
        self.notes.map_or(0, |notes| notes.redirects())
    }

    /// Returns what a cache did with the request.
    pub(super) fn cache_status(&self) -> Option<&'a [u8]> {
        let status = self.notes?.cache_status().as_str();
        (!status.is_empty()).then_some(status.as_bytes())
    }

    /// Returns the user that a filter has verified.
    pub(super) fn user(&self) -> Option<&'a [u8]> {
        self.notes.and_then(Notes::user).or(self.facts.user)
    }
}

/// Stands for an address that is not told.
static NO_ADDRESS: Address =
    Address::Ip(std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0));
