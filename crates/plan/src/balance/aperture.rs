//! Deterministic aperture: of many endpoints each instance of the program uses a few, and all instances together use all
//! of them evenly.
//!
//! Endpoints lie on a ring in an order that depends on nothing but their names, each as long as its weight. The ring is
//! divided into as many arcs as there are instances; each instance takes some arcs in a row, beginning with its own, and
//! an endpoint at the edge with the part of it that lies inside. So every point of the ring is taken by the same number
//! of instances, and the shares of all endpoints are those of their weights (as in Finagle's deterministic aperture).

use model::placement::Aperture;

use super::tier::Member;
use crate::random::mix;

/// Parts of a weight that can be told apart at the edges.
const PARTS: u64 = 64;

/// Leaves the members inside the aperture, in their order, with the weights that they have there, and says how many parts of
/// these are one of the weights before.
pub(super) fn narrow(aperture: &Aperture, members: Vec<(Member, u64)>) -> (Vec<(Member, u64)>, u32) {
    let weights: Vec<(u64, u32)> = members.iter().map(|(member, id)| (*id, member.weight)).collect();
    let Some(inside) = weights_inside(aperture, &weights) else { return (members, 1) };
    let narrowed = members.into_iter().zip(inside).filter(|(_, weight)| *weight > 0);
    (narrowed.map(|((member, id), weight)| (Member { weight, ..member }, id)).collect(), PARTS as u32)
}

/// The weight of each inside the aperture, times [`PARTS`]; `None` when all are inside.
fn weights_inside(aperture: &Aperture, members: &[(u64, u32)]) -> Option<Vec<u32>> {
    let instances = u64::from(aperture.instances.max(1));
    let count = members.len() as u64;
    // Whole arcs, so that everyone is taken equally often; enough of them for the endpoints that are wanted.
    let arcs = (u64::from(aperture.endpoints_min) * instances).div_ceil(count.max(1)).max(1);
    if arcs >= instances {
        return None;
    }
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_unstable_by_key(|&place| (mix(members[place].0), place));
    let total: u64 = members.iter().map(|(_, weight)| u64::from(*weight)).sum();
    // Positions in parts of a weight of which each arc has `total`.
    let begin = u64::from(aperture.instance) % instances * total;
    let end = begin + arcs * total;
    let ring = total * instances;
    let mut inside = vec![0; members.len()];
    let mut at = 0;
    for place in order {
        let next = at + u64::from(members[place].1) * instances;
        let overlap = |from: u64, to: u64| next.min(to).saturating_sub(at.max(from));
        // The aperture may reach over the end of the ring, to its beginning.
        let within = overlap(begin, end) + overlap(0, end.saturating_sub(ring));
        if within > 0 {
            inside[place] = u32::try_from((within * PARTS / instances).max(1)).unwrap_or(u32::MAX);
        }
        at = next;
    }
    Some(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(count: u64, weight: impl Fn(u64) -> u32) -> Vec<(u64, u32)> {
        (0..count).map(|name| (mix(name), weight(name))).collect()
    }

    fn inside(instance: u32, instances: u32, endpoints_min: u32, members: &[(u64, u32)]) -> Vec<u32> {
        let aperture = Aperture { instance, instances, endpoints_min };
        weights_inside(&aperture, members).unwrap_or_else(|| members.iter().map(|(_, weight)| *weight).collect())
    }

    #[test]
    fn all_instances_together_use_all_endpoints_by_weight() {
        for (count, instances, endpoints_min) in
            [(10, 3, 2), (37, 7, 5), (1_000, 10, 12), (10_000, 100, 20), (20, 50, 3)]
        {
            for weight in [(|_| 1) as fn(u64) -> u32, |name| 1 + name as u32 % 5] {
                let members = members(count, weight);
                let total: f64 = members.iter().map(|(_, weight)| f64::from(*weight)).sum();
                let mut shares = vec![0.0; members.len()];
                for instance in 0..instances {
                    let inside = inside(instance, instances, endpoints_min, &members);
                    let sum: f64 = inside.iter().map(|weight| f64::from(*weight)).sum();
                    let used = inside.iter().filter(|weight| **weight > 0).count();
                    assert!(used >= endpoints_min.min(count as u32) as usize, "{used} of {count}");
                    for (share, weight) in shares.iter_mut().zip(inside) {
                        *share += f64::from(weight) / sum / f64::from(instances);
                    }
                }
                for (share, (_, weight)) in shares.iter().zip(&members) {
                    let fair = f64::from(*weight) / total;
                    assert!((share - fair).abs() < 0.05 * fair, "{share} of {fair} by {instances} for {count}");
                }
            }
        }
    }

    #[test]
    fn an_instance_uses_few_endpoints_of_many() {
        let members = members(10_000, |_| 1);
        for instance in [0, 57, 99] {
            let used = inside(instance, 100, 20, &members).into_iter().filter(|weight| *weight > 0).count();
            assert!((20..=102).contains(&used), "{used}");
        }
        assert_eq!(inside(2, 3, 10_000, &members), vec![1; 10_000], "so many are wanted that all are used");
    }

    #[test]
    fn little_changes_when_an_endpoint_goes() {
        let all = members(1_000, |_| 1);
        let without: Vec<(u64, u32)> = all.iter().copied().filter(|(id, _)| *id != mix(500)).collect();
        for instance in 0..10 {
            let used = |members: &[(u64, u32)]| -> std::collections::BTreeSet<u64> {
                let inside = inside(instance, 10, 50, members);
                members.iter().zip(inside).filter(|(_, weight)| *weight > 0).map(|((id, _), _)| *id).collect()
            };
            let (before, after) = (used(&all), used(&without));
            assert!(before.symmetric_difference(&after).count() <= 4, "instance {instance}");
        }
    }
}
