use std::sync::Arc;

use model::snapshot::{Balance, Cluster};

use crate::testing::{Worker, bounded, cluster, health_check, sessions, weighted};
use crate::{ClusterPlan, Pick};

fn plan(cluster: Cluster, previous: Option<&ClusterPlan>) -> Arc<ClusterPlan> {
    Arc::new(ClusterPlan::compile(Arc::new(cluster), previous))
}

fn plain(bounds: &[u32]) -> Cluster {
    cluster("c", Balance::RoundRobin, bounded(bounds))
}

#[test]
fn endpoints_are_made_by_the_first_pick_and_not_by_who_only_looks() {
    let plan = plan(plain(&[1, 1]), None);
    assert_eq!(
        (plan.roll().fit, plan.endpoints.peek().len(), plan.hand_over(crate::balance::tests::begin()).len()),
        (2, 2, 0)
    );
    assert!(!plan.endpoints.are_made());
    let lease = Worker::new(1).lease(&plan);
    assert!(plan.endpoints.are_made());
    let in_flight: u32 = plan.endpoints.peek().iter().map(|endpoint| endpoint.state.in_flight()).sum();
    assert_eq!(in_flight, 1, "what is seen is what there is");
    drop(lease);
}

#[test]
fn a_cluster_that_something_watches_over_has_its_endpoints_from_the_start() {
    let checked = plain(&[1]).with(|it| it.health_check = health_check(1, 1));
    let sticky = plain(&[1]).with(|it| it.persistence = sessions());
    let slow = plain(&[1]).with(|it| it.fitness.slow_start = Some(std::time::Duration::from_secs(1)));
    let large = cluster("c", Balance::RoundRobin, weighted(&[1; 101]));
    let hashed = cluster("c", Balance::Hash(model::snapshot::Hash::of_source()), weighted(&[1]));
    for config in [checked, sticky, slow, large, hashed] {
        assert!(plan(config, None).endpoints.are_made());
    }
}

#[test]
fn plans_of_one_cluster_bound_together_whichever_is_used_first() {
    for new_first in [false, true] {
        let old = plan(plain(&[1]), None);
        let new = plan(plain(&[1, 1]), Some(&old));
        assert!(!new.endpoints.are_made());
        let (first, second) = if new_first { (&new, &old) } else { (&old, &new) };
        let mut worker = Worker::new(1);
        let held = worker.lease(first);
        let more = worker.pick(second);
        let place = |plan: &ClusterPlan| Arc::clone(&plan.endpoints[0].state);
        assert!(Arc::ptr_eq(&place(&old), &place(&new)));
        assert!(old.endpoints[0].state.in_flight() <= 1);
        // What follows one that is used has what that has.
        let third = plan(plain(&[1, 1, 1]), Some(&new));
        assert!(third.endpoints.are_made() && Arc::ptr_eq(&place(&third), &place(&new)));
        drop((held, more));
    }
}

#[test]
fn what_was_used_by_an_earlier_plan_alone_is_new_again() {
    let old = plan(plain(&[1]), None);
    let gone = Arc::downgrade(&old.endpoints[0].state);
    let without = plan(cluster("c", Balance::RoundRobin, vec![crate::testing::endpoint(7, 1, None)]), Some(&old));
    drop(old);
    assert!(gone.upgrade().is_none());
    let again = plan(plain(&[1]), Some(&without));
    let mut worker = Worker::new(1);
    let _lease = worker.lease(&again);
    assert!(matches!(worker.pick(&again), Pick::Full));
}

#[test]
fn what_every_cluster_has_stays_small() {
    let sizes = (size_of::<ClusterPlan>(), size_of::<crate::ClusterState>(), size_of::<Cluster>());
    assert!(sizes.0 <= 240 && sizes.1 <= 80 && sizes.2 <= 80, "{sizes:?}");
    let endpoint = size_of::<model::snapshot::Endpoint>();
    assert!(endpoint <= 80, "{endpoint}");
}
