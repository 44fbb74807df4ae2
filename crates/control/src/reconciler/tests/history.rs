//! The history over starts and upgrades.

use super::*;

/// The generations that are remembered, newest first.
fn remembered(fixture: &Fixture) -> Vec<(u64, Origin)> {
    fixture.reconciler.view().generations().iter().map(|entry| (entry.generation, entry.origin)).collect()
}

#[test]
fn a_start_takes_the_history_up_and_any_generation_of_it_can_be_gone_back_to() {
    let mut fixture = Fixture::new(&keeping("a"));
    std::fs::create_dir(fixture.path("a")).unwrap();
    fixture.start();
    wish(&mut fixture, Some("drain")).unwrap();
    fixture.write("site.yaml", &keeping("a").replace("9001", "9002"));
    assert_eq!(fixture.reconciler.reload().unwrap(), 3);
    let before = fixture.reconciler.view().generations();
    fixture.follow();
    assert_eq!(fixture.reconciler.view().state(), State::Starting, "what was is not what is");
    fixture.start();
    let all = [(4, Origin::Start), (3, Origin::Reload), (2, Origin::Endpoint), (1, Origin::Start)];
    assert_eq!(remembered(&fixture), all);
    let after = fixture.reconciler.view().generations();
    for (one, other) in after[1..].iter().zip(&before) {
        assert_eq!((&one.author, &one.differences, &one.text), (&other.author, &other.differences, &other.text));
    }
    let order = order(crate::Change::Rollback(1));
    let (candidate, origin) = fixture.reconciler.preparation().prepare_change(&order).unwrap();
    assert_eq!(fixture.reconciler.commit(candidate, origin).unwrap(), 5);
    let plan = fixture.reconciler.view().plan().unwrap();
    assert_eq!(plan.snapshot.clusters[0].endpoints[0].name.as_str(), "127.0.0.1:9001");
    // Starts with the same are one.
    for _ in 0..3 {
        fixture.follow();
        fixture.start();
    }
    assert_eq!(remembered(&fixture)[..2], [(8, Origin::Start), (5, Origin::Rollback)]);
}

#[test]
fn a_process_that_follows_another_counts_on_from_that_whatever_the_file_says() {
    let mut fixture = Fixture::new(&keeping("a"));
    std::fs::create_dir(fixture.path("a")).unwrap();
    fixture.start();
    fixture.write("site.yaml", &keeping("a").replace("9001", "9002"));
    fixture.reconciler.reload().unwrap();
    let handed = fixture.follow();
    // One that was to follow, and that nothing came of, may have written more.
    let candidate = fixture.reconciler.prepare().unwrap();
    fixture.reconciler.commit(candidate, Origin::Upgrade).unwrap();
    fixture.follow();
    fixture.reconciler.inherit(&handed);
    let candidate = fixture.reconciler.prepare().unwrap();
    assert_eq!(fixture.reconciler.commit(candidate, Origin::Upgrade).unwrap(), 3);
    assert_eq!(remembered(&fixture), [(3, Origin::Upgrade), (2, Origin::Reload), (1, Origin::Start)]);
}

#[test]
fn a_history_that_is_none_hinders_no_start() {
    let mut fixture = Fixture::new(&keeping("a"));
    std::fs::create_dir(fixture.path("a")).unwrap();
    fixture.write("a/history.json", "{ \"format\": 1, \"generations\": [");
    fixture.follow();
    fixture.start();
    assert_eq!(remembered(&fixture), [(1, Origin::Start)]);
    fixture.reconciler.hand_over();
    assert!(std::fs::read_to_string(fixture.path("a/history.json")).unwrap().contains("\"start\""));
    assert!(fixture.path("a/history.json.unread").exists());
}

#[test]
fn no_generation_is_counted_twice_where_the_history_is_behind_the_changes() {
    let mut fixture = Fixture::new(&keeping("a"));
    std::fs::create_dir(fixture.path("a")).unwrap();
    fixture.write("a/changes.json", r#"{"format":1,"generation":43,"changes":{},"wishes":[]}"#);
    fixture.follow();
    fixture.start();
    assert_eq!(remembered(&fixture), [(44, Origin::Start)]);
    fixture.reconciler.hand_over();
    let older = std::fs::read_to_string(fixture.path("a/history.json")).unwrap();
    assert_eq!(wish(&mut fixture, Some("drain")), Ok(45));
    // As when it was killed before the history was written.
    fixture.reconciler.hand_over();
    fixture.write("a/history.json", &older);
    fixture.follow();
    fixture.start();
    assert_eq!(remembered(&fixture)[0], (46, Origin::Start));
}
