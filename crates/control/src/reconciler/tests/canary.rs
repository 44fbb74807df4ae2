//! Canaries beside other changes.

use super::*;
use crate::canary::Terms;

/// Tries another weight of an endpoint of a cluster.
fn weight_tried(fixture: &mut Fixture, cluster: &str, endpoint: &str) -> Result<(), Refusal> {
    let edit = config::EndpointEdit::Weight(endpoint.to_owned(), 7);
    let order = order(crate::Change::Endpoints { cluster: cluster.to_owned(), edit });
    let (candidate, origin) = fixture.reconciler.preparation().prepare_change(&order)?;
    fixture.reconciler.begin_canary(candidate, origin.into(), Terms::default())
}

fn try_weight(fixture: &mut Fixture, cluster: &str, endpoint: &str) {
    weight_tried(fixture, cluster, endpoint).unwrap();
    assert!(fixture.data.tried.lock().unwrap().is_some());
}

#[test]
fn what_is_tried_before_a_renewed_certificate_is_in_force_is_told_to_come_again() {
    let mut fixture = Fixture::new(SECURE);
    fixture.write("site.pem", &pair(1).0);
    fixture.write("site.key", key(1));
    fixture.start();
    fixture.replace("site.key", key(2));
    let refused = weight_tried(&mut fixture, "site", "127.0.0.1:9001").unwrap_err().to_string();
    assert!(refused.contains("certificates or lists of listeners have just changed"), "{refused}");
    let published = (0..4).filter_map(|_| fixture.reconciler.look_at_files().unwrap()).count();
    assert_eq!(published, 1);
    try_weight(&mut fixture, "site", "127.0.0.1:9001");
}

#[test]
fn a_change_that_fails_leaves_what_is_tried_and_one_that_comes_into_force_ends_it() {
    let mut fixture = Fixture::new(&keeping("a"));
    std::fs::create_dir(fixture.path("a")).unwrap();
    fixture.start();
    try_weight(&mut fixture, "site", "127.0.0.1:9001");
    let is_tried = |fixture: &Fixture| {
        let told = fixture.reconciler.view().canaries();
        (fixture.reconciler.has_canary(), told[0].end.is_none(), fixture.data.tried.lock().unwrap().is_some())
    };
    fixture.data.refuses.store(true, Ordering::Relaxed);
    assert_eq!(wish(&mut fixture, Some("drain")), Err("listener web: address in use".to_owned()));
    assert_eq!(is_tried(&fixture), (true, true, true));
    fixture.data.refuses.store(false, Ordering::Relaxed);
    // What is to be written first cannot be.
    fixture.remove_kept("a");
    assert!(wish(&mut fixture, Some("drain")).unwrap_err().contains("cannot save changes"));
    assert_eq!(is_tried(&fixture), (true, true, true));
    std::fs::create_dir(fixture.path("a")).unwrap();
    wish(&mut fixture, Some("drain")).unwrap();
    assert_eq!(is_tried(&fixture), (false, false, false));
}
