//! Which endpoints a request may go to by their labels.

use std::collections::BTreeMap;

use model::matching::Match;
use model::placement::Placement;
use model::snapshot::{Action, Balance, Cluster, Endpoint, Route};

use super::*;
use crate::balance::tests::begin;
use crate::testing::{
    Worker, anywhere, cluster, compiled, endpoint, fetched, head, health_check, http_listener, queue, route, snapshot,
};
use crate::{Ask, ClusterPlan, Outcome, Pick, Plan, Wait};

fn labels(text: &str) -> BTreeMap<String, String> {
    let pair = |pair: &str| pair.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    text.split(' ').filter_map(pair).collect()
}

/// A label whose value begins with `@` comes from that header field.
fn rule(text: &str, otherwise: Otherwise) -> SubsetRule {
    let value = |text: String| match text.strip_prefix('@') {
        Some(name) => LabelValue::Header(name.to_owned()),
        None => LabelValue::Written(text),
    };
    SubsetRule { labels: labels(text).into_iter().map(|(name, text)| (name, value(text))).collect(), otherwise }
}

fn labelled(all: &[&str]) -> Cluster {
    let place = |(place, text): (u16, &&str)| Endpoint {
        placement: Placement { labels: labels(text), ..Placement::default() }.into(),
        ..endpoint(place, 1, None)
    };
    let endpoints = (0..).zip(all).map(place).collect();
    cluster("c", Balance::RoundRobin, endpoints).with(|it| it.health_check = health_check(1, 1))
}

fn plan(cluster: Cluster, rules: &[SubsetRule], previous: Option<&Plan>) -> Plan {
    let route = |(index, rule): (usize, &SubsetRule)| Route {
        subset: Some(rule.clone()),
        ..route(&format!("r{index}"), Match::default(), "c")
    };
    compiled(
        snapshot(vec![http_listener("web")], rules.iter().enumerate().map(route).collect(), vec![cluster]),
        previous,
    )
}

/// The places that a request of a route reaches, by turns.
fn reached(plan: &Plan, route: usize, fields: &[(&str, &str)]) -> Vec<usize> {
    let cluster = &plan.clusters[0];
    let subset = plan.routes[route].subset(cluster, &head("GET", "/", fields));
    let mut worker = Worker::new(1);
    let mut reached: Vec<usize> = (0..12).filter_map(|_| place(cluster, &mut worker, subset)).collect();
    reached.sort_unstable();
    reached.dedup();
    reached
}

fn place(cluster: &ClusterPlan, worker: &mut Worker, subset: Subset) -> Option<usize> {
    match worker.pick_for(cluster, &Ask { subset, ..Ask::new(begin()) }) {
        Pick::Endpoint(lease) => Some(lease.endpoint_index()),
        Pick::None => None,
        Pick::Full => panic!("full"),
    }
}

const NOWHERE: [usize; 0] = [];

#[test]
fn a_route_reaches_the_endpoints_that_have_all_its_labels() {
    let all = labelled(&["v=1 a=x", "v=2 a=x", "v=2 a=y", "a=y", ""]);
    let rules = [
        rule("v=2", Otherwise::Nobody),
        rule("a=y v=2", Otherwise::Nobody),
        rule("v=@x-version", Otherwise::Nobody),
        rule("v=@x-version a=x", Otherwise::Anybody),
        rule("v=@x-version", Otherwise::Labels(labels("a=y"))),
    ];
    let plan = plan(all, &rules, None);
    assert_eq!(reached(&plan, 0, &[]), [1, 2]);
    assert_eq!(reached(&plan, 1, &[]), [2]);
    assert_eq!(reached(&plan, 2, &[("X-Version", "1")]), [0]);
    assert_eq!(reached(&plan, 2, &[("x-version", "2")]), [1, 2]);
    assert_eq!(reached(&plan, 2, &[("x-version", "3")]), NOWHERE);
    assert_eq!(reached(&plan, 2, &[]), NOWHERE);
    assert_eq!(reached(&plan, 3, &[("x-version", "2")]), [1]);
    assert_eq!(reached(&plan, 3, &[("x-version", "3")]), [0, 1, 2, 3, 4]);
    assert_eq!(reached(&plan, 4, &[]), [2, 3]);
}

#[test]
fn whoever_takes_over_does_so_too_while_all_of_a_subset_are_down() {
    let all = labelled(&["v=1", "v=2", ""]);
    let plan = plan(all, &[rule("v=2", Otherwise::Nobody), rule("v=2", Otherwise::Anybody)], None);
    plan.clusters[0].observe(1, Outcome::Failure);
    assert_eq!(reached(&plan, 0, &[]), NOWHERE);
    assert_eq!(reached(&plan, 1, &[]), [0, 2]);
    plan.clusters[0].observe(1, Outcome::Success);
    assert_eq!((reached(&plan, 0, &[]), reached(&plan, 1, &[])), (vec![1], vec![1]));
}

#[test]
fn each_subset_has_turns_of_its_own() {
    let all = labelled(&["v=1", "v=2", "v=1", "v=2"]);
    let plan = plan(all, &[rule("v=@v", Otherwise::Nobody)], None);
    let cluster = &plan.clusters[0];
    let of = |version| plan.routes[0].subset(cluster, &head("GET", "/", &[("v", version)]));
    let (one, two, mut worker) = (of("1"), of("2"), Worker::new(1));
    let turns: Vec<_> = (0..8).map(|turn| place(cluster, &mut worker, [one, two][turn % 2]).unwrap()).collect();
    assert_eq!(turns, [0, 1, 2, 3, 0, 1, 2, 3]);
}

#[test]
fn a_cluster_stays_as_it_is_unless_routes_go_by_other_labels() {
    let all = labelled(&["v=1 a=x", "v=2 a=x"]);
    let before = plan(all.clone(), &[rule("v=1", Otherwise::Nobody)], None);
    let same = plan(all.clone(), &[rule("v=2", Otherwise::Anybody)], Some(&before));
    assert!(std::sync::Arc::ptr_eq(&before.clusters[0], &same.clusters[0]));
    let other = plan(all, &[rule("a=x", Otherwise::Nobody)], Some(&before));
    assert!(!std::sync::Arc::ptr_eq(&before.clusters[0], &other.clusters[0]));
    assert!(std::sync::Arc::ptr_eq(&before.clusters[0].state, &other.clusters[0].state));
    assert_eq!(reached(&other, 0, &[]), [0, 1]);
}

#[test]
fn those_who_wait_for_a_subset_get_its_places_and_do_not_hold_up_others() {
    let mut config = labelled(&["v=1", "v=2"]);
    config.queue = queue(10);
    for endpoint in &mut config.endpoints {
        endpoint.connections_max = Some(1);
    }
    let plan = plan(config, &[rule("v=@v", Otherwise::Nobody)], None);
    let cluster = &plan.clusters[0];
    let of = |version| plan.routes[0].subset(cluster, &head("GET", "/", &[("v", version)]));
    let mut worker = Worker::new(1);
    let mut lease = |subset| match worker.pick_for(cluster, &Ask { subset, ..Ask::new(begin()) }) {
        Pick::Endpoint(lease) => Some(lease),
        _ => None,
    };
    let (first, second) = (lease(of("1")).unwrap(), lease(of("2")).unwrap());
    assert!(lease(of("1")).is_none());
    let (bell, waker) = crate::testing::Bell::new();
    let waits = cluster.enqueue(Wait { subset: of("1"), ..anywhere() }, &waker).unwrap();
    drop(second);
    assert_eq!(bell.rung(), 0, "the place that came free is of the other subset");
    let other = cluster.enqueue(Wait { subset: of("2"), ..anywhere() }, std::task::Waker::noop()).unwrap();
    assert_eq!(fetched(&other).map(|lease| lease.endpoint_index()), Some(1));
    drop(first);
    assert_eq!(fetched(&waits).map(|lease| lease.endpoint_index()), Some(0));
}

#[test]
fn weighted_clusters_have_subsets_too() {
    let mut one = labelled(&["v=1", "v=2"]);
    one.name = "one".into();
    let action = Action::Weighted(vec![("one".into(), 1)]);
    let rule = rule("v=2", Otherwise::Nobody);
    let route = Route { action, subset: Some(rule), ..route("r", Match::default(), "one") };
    let plan = compiled(snapshot(vec![http_listener("web")], vec![route], vec![one]), None);
    assert_eq!(reached(&plan, 0, &[]), [1]);
}

/// Otherwise a session would go to and fro between the endpoints of two routes, and find what it left at neither.
#[test]
fn a_session_does_not_move_to_where_only_one_of_its_routes_leads() {
    let config = labelled(&["v=1", "v=2"]).with(|it| it.persistence = crate::testing::sessions());
    let plan = plan(config, &[rule("v=1", Otherwise::Nobody), rule("v=2", Otherwise::Nobody)], None);
    let (cluster, request) = (&plan.clusters[0], head("GET", "/", &[("x-user", "anna")]));
    let persistence = cluster.persistence.as_ref().unwrap();
    let (client, moment) = ([192, 0, 2, 1].into(), crate::Moment { now: begin(), unix: std::time::Duration::ZERO });
    let (mut cache, mut worker) = (crate::PickCache::default(), Worker::new(1));
    let mut send = |route: usize| {
        let mut session = persistence.find(Some(&request), client, moment, &mut || 7);
        let subset = plan.routes[route].subset(cluster, &request);
        let ask = Ask { subset, pinned: session.pinned(), ..Ask::new(begin()) };
        let Pick::Endpoint(lease) = worker.pick_for(cluster, &ask) else { panic!("it is up") };
        session.lend(cluster.lends(&mut cache, session.pinned(), subset));
        persistence.keep(&session, lease.endpoint_index(), None, (moment, &mut || 7));
        let home = persistence.find(Some(&request), client, moment, &mut || 7).pinned();
        (lease.endpoint_index(), home)
    };
    assert_eq!([0, 1, 0, 1].map(&mut send), [(0, Some(0)), (1, Some(0)), (0, Some(0)), (1, Some(0))]);
    cluster.observe(0, Outcome::Failure);
    assert_eq!(send(1), (1, Some(1)), "one whose endpoint is away moves");
}
