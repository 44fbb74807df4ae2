//! The route of a request, among one and among many.

use std::hint::black_box;
use std::net::IpAddr;

use model::matching::{Match, PathMatch};
use model::snapshot::{Balance, Snapshot};
use plan::ListenerTarget;

use crate::made;
use crate::{Cell, count};

/// Requests that take turns. They go to routes that are spread over all.
const REQUESTS: usize = 16;
/// Prime to the numbers of routes.
const STEP: usize = 617;

pub(crate) fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for routes in [1, 10_000] {
        cells.push(Cell::new(format!("route/prefixes={routes}"), move || {
            find(routes, by_path, |place| ("shop.example.com".to_owned(), format!("/api/v{place}/things/1234?x=1")))
        }));
        cells.push(Cell::new(format!("route/hosts={routes}"), move || {
            find(routes, by_host, |place| (format!("shop-{place}.example.com:8080"), "/api/things/1234?x=1".to_owned()))
        }));
    }
    cells
}

fn by_path(place: usize) -> Match {
    Match { path: Some(PathMatch::Prefix(format!("/api/v{place}/things"))), ..Match::default() }
}

fn by_host(place: usize) -> Match {
    let hosts = format!("shop-{place}.example.com").parse().into_iter().collect();
    Match { hosts, path: Some(PathMatch::Prefix("/api".into())), ..Match::default() }
}

/// `asked` is the host and the target of a request that takes the route of a place.
fn find(routes: usize, of: fn(usize) -> Match, asked: fn(usize) -> (String, String)) {
    let snapshot = Snapshot {
        listeners: vec![made::http_listener().into()],
        routes: (0..routes).map(|place| made::route(place, of(place)).into()).collect(),
        clusters: vec![made::cluster(Balance::RoundRobin, 1).into()],
        ..Snapshot::default()
    };
    let plan = made::compiled(snapshot);
    let Some(ListenerTarget::Http(router)) = plan.listeners.first().map(|listener| &listener.target) else {
        panic!("the listener has no routes");
    };
    let places = (0..REQUESTS).map(|request| request * STEP % routes);
    let requests: Vec<_> = places.map(|place| (place, made::request(&asked(place)))).collect();
    let (client, mut scratch, mut next) = (IpAddr::from([192, 0, 2, 1]), Vec::new(), requests.iter().cycle());
    count(&mut || {
        let Some((place, head)) = next.next() else { return };
        let found = router.find(black_box(head), client, &mut scratch);
        assert_eq!(found.map(|route| route.index), Some(*place));
    });
}
