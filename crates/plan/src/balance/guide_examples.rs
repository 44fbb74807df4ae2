//! The balancer of the guide, compiled so that it stays true: its file, its line in the registry, and its lines in the model.

#[path = "guide_examples/most_room.rs"]
mod most_room;
#[path = "guide_examples/snapshot.rs"]
mod snapshot;

// Where the file says `super`, it means the folder of balancers, in which it would lie.
use super::*;

use crate::testing::{bounded, cluster, plan_of};

/// The registry, if the example were all of it.
#[allow(unreachable_pub, reason = "the list of the registry is public")]
mod registered {
    use super::super::registry::balancers;
    use super::snapshot::Balance;
    use super::{Ask, Balancer, BalancerSpec, Chance, Configured, Lease, Seed, Tier, Waiting, most_room};

    balancers! {
        MostRoom => most_room::{MostRoom, SPEC};
    }

    /// What the program does with the example.
    pub(super) struct Registered(Choice);

    impl Registered {
        pub(super) fn new(seeds: &[Seed]) -> Self {
            Self(Choice::new(&Balance::MostRoom, seeds, Configured::default()))
        }

        pub(super) fn take(&self, tier: &Tier, ask: &Ask<'_>) -> Option<Lease> {
            self.0.take(tier, &mut || 0, ask)
        }

        pub(super) fn take_for_waiting(&self, tier: &Tier, tried: &[u32]) -> Option<Lease> {
            self.0.take_for_waiting(tier, &mut || 0, &Waiting { key: None, tried })
        }

        pub(super) fn is_plain(&self) -> bool {
            !self.0.counts() && !self.0.is_ordered()
        }
    }
}

/// The code of the guide, block by block.
fn blocks() -> Vec<&'static str> {
    let guide = include_str!("../../../../docs/guides/write-a-balancer.md");
    guide.split("````rust\n").skip(1).filter_map(|rest| rest.split("````\n").next()).collect()
}

/// The lines that are not blank, without their indentation.
fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

#[test]
fn the_guide_shows_the_example_as_it_is_compiled() {
    let [file, registry, model] = blocks()[..] else { panic!("the guide has three blocks") };
    assert_eq!(file, include_str!("guide_examples/most_room.rs"), "copy guide_examples/most_room.rs into the guide");
    let has = |text: &str, line: &str| lines(text).contains(&line);
    let compiled = include_str!("guide_examples.rs");
    let module = lines(registry)[0];
    assert!(module == "mod most_room;" && has(compiled, module));
    assert!(lines(registry)[1..].iter().all(|line| has(compiled, line)), "{registry}");
    // A comment says which item of the model a line belongs to: it must be there, and have the line where it is compiled.
    let (real, compiled) =
        (include_str!("../../../model/src/snapshot/balance.rs"), include_str!("guide_examples/snapshot.rs"));
    for line in lines(model) {
        match line.strip_prefix("// In ") {
            Some(item) => assert!(real.contains(item.trim_matches(['`', ':'])), "the model has no {item}"),
            None => assert!(has(compiled, line), "{line} is not compiled"),
        }
    }
    assert!(BALANCERS.iter().all(|spec| spec.name != "most_room"), "`most_room` exists by now: choose another example");
}

#[test]
fn a_balancer_is_a_file_a_line_and_its_name_in_the_model() {
    let [named] = snapshot::Balance::NAMED else { panic!("the example alone") };
    let [spec] = registered::BALANCERS else { panic!("the example alone") };
    assert_eq!(((named.make)().name(), spec.needs_settings), (spec.name, false));
    assert!(named.summary.ends_with('.') && spec.doc.starts_with("The endpoint with the most free places.\n\n"));
    let ask = Ask::new(tests::begin());
    assert_eq!(registered::reason(&snapshot::Balance::MostRoom, &ask), "it has the most free places");
}

#[test]
fn the_example_fills_endpoints_evenly_from_the_one_with_the_most_room() {
    let plan = plan_of(cluster("c", Balance::First, bounded(&[2, 5, 3])));
    let view = plan.latest_view().view;
    let [tier] = view.tiers(Subset::ALL) else { panic!("one tier") };
    let seeds = [0, 1, 2].map(|id| Seed { id, weight: 1 });
    let (balancer, ask) = (registered::Registered::new(&seeds), Ask::new(tests::begin()));
    assert!(balancer.is_plain());
    let held: Vec<Lease> = (0..10).map_while(|_| balancer.take(tier, &ask)).collect();
    let places: Vec<usize> = held.iter().map(Lease::endpoint_index).collect();
    assert_eq!(places[..2], [1, 1], "five places, then four");
    assert_eq!([0, 1, 2].map(|place| places.iter().filter(|&&taken| taken == place).count()), [2, 5, 3]);
    assert!(balancer.take(tier, &ask).is_none() && balancer.take_for_waiting(tier, &[]).is_none(), "all are full");
    drop(held);
    assert_eq!(balancer.take_for_waiting(tier, &[]).map(|lease| lease.endpoint_index()), Some(1));
}
