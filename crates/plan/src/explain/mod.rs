//! What would happen to a request, and why: the very tables, filters and balancers that carry requests, asked without
//! carrying one. Nothing of the plan changes by it: no place is taken, no turn is used up.
//!
//! [`explain`] is where it begins. The answer is plain text and numbers, for people and for programs.

mod asked;
mod cluster;
mod filters;
mod question;
mod routes;
mod rules;

use std::net::SocketAddr;

use model::facts::{BodySeen, Seen, TlsFacts};
use model::{Facts, Fault, Method, RequestHead, Scheme};
use serde::{Deserialize, Serialize};

use asked::Asked;
pub use cluster::{ClusterExplanation, EndpointExplanation};
pub use filters::FilterExplanation;
pub use question::Question;
pub use routes::RouteExplanation;

use crate::Moment;
use crate::filter::{Noted, Notes, Turn};
use crate::plan::{ActionPlan, ListenerPlan, ListenerTarget, Plan, RoutePlan};

/// What would become of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The generation of the plan that was asked.
    pub generation: u64,
    /// The request as it was understood.
    pub request: String,
    /// The listener that it arrives at, with its address.
    pub listener: String,
    /// The port of the request, if no listener has it; then it is taken to arrive at the first listener that fits otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port_unheard: Option<u16>,
    /// Routes whose host and path fit, in the order in which they are asked. The first that holds is taken.
    pub routes: Vec<RouteExplanation>,
    /// Routes of the listener that do not fit by host or path.
    pub routes_unfit: usize,
    /// The route's filters, in order, and what they do to the request.
    pub filters: Vec<FilterExplanation>,
    /// What happens in the end.
    pub outcome: Outcome,
}

/// What happens in the end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is forwarded to one of these clusters; several only where a route splits its requests.
    Forward(Vec<ClusterExplanation>),
    /// It is answered here.
    Answer {
        /// The status.
        status: u16,
        /// Who answers, and what.
        why: String,
    },
    /// The connection is closed.
    Close {
        /// Why.
        why: String,
    },
}

/// What the data plane does to a request before it is routed: forwarding fields, request id, identities, the form of its path; or
/// why it goes no further.
pub type Admit<'a> = dyn FnMut(&ListenerPlan, &mut RequestHead, &Facts<'_>) -> Result<(), Fault> + 'a;

/// Says what would become of a request `at` a moment, after `admit`. `chance` stands for all that is drawn.
///
/// # Errors
/// The question cannot be understood, or no listener takes such a request; says which there are.
pub fn explain(
    plan: &Plan,
    question: &Question,
    at: Moment,
    chance: &mut dyn FnMut() -> u64,
    admit: &mut Admit<'_>,
) -> Result<Explanation, String> {
    let asked = question.parse()?;
    let listener = asked.listener(plan)?;
    let subject = Subject { plan, listener, question, at, port_unheard: asked.port_unheard(listener) };
    if subject.is_kept_out() {
        let outcome = Outcome::Close { why: "the listener's `address_list` rejects this address".into() };
        return Ok(subject.explanation(asked.shown(), (Vec::new(), 0), Vec::new(), outcome));
    }
    match &listener.target {
        ListenerTarget::Http(router) => {
            let mut head = asked.head()?;
            head.keep_received();
            let mut scratch = Vec::new();
            let name = asked.host().unwrap_or_default().to_owned();
            let tls =
                (asked.scheme == Scheme::Https).then(|| TlsFacts { server_name: Some(name), ..TlsFacts::default() });
            let facts = subject.facts(asked.scheme, tls.as_ref());
            if let Err(fault) = admit(listener, &mut head, &facts) {
                let none = (Vec::new(), router.routes().len());
                return Ok(subject.explanation(asked.shown(), none, Vec::new(), refused(fault)));
            }
            let seen = Seen { facts, now: subject.at.now, body: BodySeen::Unknown };
            let routes = routes::ask(router, (&head, &seen), question, &mut scratch);
            let routes_unfit = router.routes().len() - routes.len();
            let taken = routes.iter().find(|route| route.holds).and_then(|told| route_named(plan, &told.name));
            let (filters, outcome) = match taken {
                None => (Vec::new(), no_route()),
                Some(route) => subject.follow(route, (&mut head, &facts), &mut scratch, chance)?,
            };
            Ok(subject.explanation(asked.shown(), (routes, routes_unfit), filters, outcome))
        }
        ListenerTarget::Tcp(cluster) => {
            let outcome = Outcome::Forward(vec![subject.connection(cluster, chance)]);
            Ok(subject.explanation(asked.shown(), (Vec::new(), 0), Vec::new(), outcome))
        }
        ListenerTarget::Sni(table) => {
            let outcome = match table.find(asked.host(), asked.alpn()) {
                Some(cluster) => Outcome::Forward(vec![subject.connection(cluster, chance)]),
                None => Outcome::Close {
                    why: "no cluster is configured for this name, nor `otherwise` for other names".into(),
                },
            };
            Ok(subject.explanation(asked.shown(), (Vec::new(), 0), Vec::new(), outcome))
        }
    }
}

/// The subject of an explanation.
struct Subject<'a> {
    plan: &'a Plan,
    listener: &'a ListenerPlan,
    question: &'a Question,
    at: Moment,
    port_unheard: Option<u16>,
}

impl Subject<'_> {
    /// Whether the client cannot even connect. Where proxies before this one are trusted it is they who do, of whom nothing is asked.
    fn is_kept_out(&self) -> bool {
        let forwarding = self.listener.listener.protocol.http().map(|http| &http.forwarding);
        let connects = forwarding.is_none_or(|told| told.trusted.is_empty() && told.client_address.is_empty());
        connects && !self.listener.admits(self.question.client)
    }

    fn facts<'f>(&'f self, scheme: Scheme, tls: Option<&'f TlsFacts>) -> Facts<'f> {
        Facts {
            peer: SocketAddr::new(self.question.client, 0),
            client: self.question.client,
            local: self.listener.listener.bind.or_local(),
            scheme,
            tls,
            sender: None,
            listener: &self.listener.listener.name,
            request_id: "",
            user: None,
        }
    }

    /// What a route does to a request.
    fn follow(
        &self,
        route: &RoutePlan,
        (head, facts): (&mut RequestHead, &Facts<'_>),
        scratch: &mut Vec<u8>,
        chance: &mut dyn FnMut() -> u64,
    ) -> Result<(Vec<FilterExplanation>, Outcome), String> {
        let mut notes = Notes::default();
        let wall_clock = &|| self.at.unix;
        let now = self.at.now;
        let mut turn = Turn { facts, now, wall_clock, chance, notes: &mut notes, scratch, is_rehearsal: true };
        let filters =
            filters::apply((&route.route.filters, &route.chain), head, self.question.hides_values, &mut turn)?;
        let noted = Noted { facts: &Facts { user: notes.user(), ..*facts }, notes: &notes, now };
        if let Some((name, status)) = filters.iter().find_map(|told| Some((&told.name, told.answers?))) {
            let why = format!("the filter `{name}` answers");
            return Ok((filters, Outcome::Answer { status, why }));
        }
        if let Some(name) = filters.iter().find_map(|told| told.closes.then_some(&told.name)) {
            let why = format!("the filter `{name}` closes the connection");
            return Ok((filters, Outcome::Close { why }));
        }
        let outcome = match &route.action {
            ActionPlan::Respond(local) => {
                Outcome::Answer { status: local.status, why: "the route sends a fixed response".into() }
            }
            ActionPlan::Redirect(redirect) => {
                let local = redirect.respond(head, noted, scratch);
                let why = match local.fields.first() {
                    Some((_, to)) => format!("the route redirects to {to}"),
                    None => "the expression of the redirect gives no target".to_owned(),
                };
                Outcome::Answer { status: local.status, why }
            }
            ActionPlan::Choice(choice) => match choice.choose(head, noted, scratch) {
                None => refused(Fault::UnknownCluster),
                Some(cluster) => {
                    let ask = self.asked(route, head);
                    let mut told = cluster::tell(cluster, 100.0, &ask, chance);
                    let is_named = scratch.as_slice() == cluster.cluster.name.as_str().as_bytes();
                    told.notes.push(match is_named {
                        true => "the request names this cluster".to_owned(),
                        false => "the request names no cluster that its route allows".to_owned(),
                    });
                    Outcome::Forward(vec![told])
                }
            },
            ActionPlan::Cluster(_) | ActionPlan::Weighted(_) => {
                let ask = self.asked(route, head);
                let shares = route.action.shares().into_iter();
                Outcome::Forward(shares.map(|(cluster, share)| cluster::tell(cluster, share, &ask, chance)).collect())
            }
        };
        Ok((filters, outcome))
    }

    fn asked<'a>(&self, route: &'a RoutePlan, head: &'a RequestHead) -> Asked<'a> {
        Asked { head: Some(head), route: Some(route), client: self.question.client, at: self.at }
    }

    /// Where a connection goes that is not looked into.
    fn connection(&self, cluster: &crate::ClusterPlan, chance: &mut dyn FnMut() -> u64) -> ClusterExplanation {
        let ask = Asked { head: None, route: None, client: self.question.client, at: self.at };
        cluster::tell(cluster, 100.0, &ask, chance)
    }

    fn explanation(
        &self,
        request: String,
        (routes, routes_unfit): (Vec<RouteExplanation>, usize),
        filters: Vec<FilterExplanation>,
        outcome: Outcome,
    ) -> Explanation {
        let listener = &self.listener.listener;
        let listener = format!("{} ({}, {})", listener.name, listener.scheme(), listener.bind);
        let (generation, port_unheard) = (self.plan.generation, self.port_unheard);
        Explanation { generation, request, listener, port_unheard, routes, routes_unfit, filters, outcome }
    }
}

fn route_named<'a>(plan: &'a Plan, name: &str) -> Option<&'a RoutePlan> {
    plan.routes.iter().find(|route| route.name().as_str() == name).map(|route| &**route)
}

fn no_route() -> Outcome {
    let status = Fault::NoRoute.consequence().status;
    Outcome::Answer { status, why: "no route holds".into() }
}

fn refused(fault: Fault) -> Outcome {
    let why = fault.meaning().trim().trim_end_matches('.').to_owned();
    Outcome::Answer { status: fault.consequence().status, why }
}

/// A method as it is written.
fn method_text(head: &RequestHead) -> String {
    debug_assert!(head.method != Method::Other || !head.method_bytes().is_empty());
    String::from_utf8_lossy(head.method_bytes()).into_owned()
}

#[cfg(test)]
mod tests;
