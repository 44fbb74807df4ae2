//! The control law by itself; the whole queue sheds in `queue/shedding_tests.rs`.

use model::queue::ShedFrom;

use super::*;
use crate::balance::tests::begin;

const MS: Duration = Duration::from_millis(1);

#[test]
fn refusals_come_sooner_and_sooner_until_a_wait_is_short_and_go_on_from_there_when_it_comes_back() {
    let rules = Shed { target: 20 * MS, interval: 100 * MS, from: ShedFrom::Oldest };
    let mut shedder = Shedder::default();
    let watch = |shedder: &mut Shedder, from: u32, until: u32, wait: u32| {
        let mut times = Vec::new();
        for now in from..until {
            let at = begin() + now * MS;
            shedder.observe(&rules, at, wait * MS);
            while shedder.is_due(&rules, at, wait * MS) {
                times.push(now);
            }
        }
        times
    };
    assert_eq!(watch(&mut shedder, 0, 400, 50), [100, 200, 271, 329, 379]);
    shedder.observe(&rules, begin() + 400 * MS, 19 * MS);
    assert_eq!(watch(&mut shedder, 410, 700, 50), [510, 568, 618, 663], "it goes on at the rate of the third");
    shedder.observe(&rules, begin() + 700 * MS, 19 * MS);
    assert_eq!(watch(&mut shedder, 9_000, 9_250, 50), [9_100, 9_200], "long after, it begins anew");
    assert!(watch(&mut shedder, 9_250, 9_750, 500).len() > 20, "it hurries while waits are far too long");
}
