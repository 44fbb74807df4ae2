//! How many connections there may be at the port of peers: those that are greeted, and those that wait for it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;

/// Peers that are greeted.
const GREETED_MAX: usize = 128;
/// Connections that wait to be greeted, from addresses of which none is known to be a member's.
const STRANGERS_MAX: usize = 64;
/// The same from one address, a member's included.
const FROM_ONE_MAX: usize = 16;

#[derive(Default)]
struct Counts {
    greeted: usize,
    strangers: usize,
    waiting: HashMap<IpAddr, usize>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Doors(Rc<RefCell<Counts>>);

/// A connection that waits to be greeted.
pub(super) struct Waiting {
    counts: Rc<RefCell<Counts>>,
    from: IpAddr,
    is_member: bool,
}

/// The place of a peer that is greeted.
pub(super) struct Greeted(Rc<RefCell<Counts>>);

impl Doors {
    /// Lets a connection wait, if there is room. Those of members do not take the room of strangers.
    pub(super) fn knock(&self, from: IpAddr, is_member: bool) -> Option<Waiting> {
        let from = from.to_canonical();
        let mut counts = self.0.borrow_mut();
        let from_one = counts.waiting.get(&from).copied().unwrap_or(0);
        if from_one >= FROM_ONE_MAX || !is_member && counts.strangers >= STRANGERS_MAX {
            return None;
        }
        counts.waiting.insert(from, from_one + 1);
        counts.strangers += usize::from(!is_member);
        Some(Waiting { counts: Rc::clone(&self.0), from, is_member })
    }
}

impl Waiting {
    /// It is greeted.
    pub(super) fn enter(self) -> Option<Greeted> {
        let mut counts = self.counts.borrow_mut();
        if counts.greeted >= GREETED_MAX {
            return None;
        }
        counts.greeted += 1;
        Some(Greeted(Rc::clone(&self.counts)))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut counts = self.counts.borrow_mut();
        counts.strangers -= usize::from(!self.is_member);
        if let Some(count) = counts.waiting.get_mut(&self.from) {
            *count -= 1;
            if *count == 0 {
                counts.waiting.remove(&self.from);
            }
        }
    }
}

impl Drop for Greeted {
    fn drop(&mut self) {
        self.0.borrow_mut().greeted -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from(number).into()
    }

    #[test]
    fn strangers_take_neither_the_places_of_members_nor_of_those_that_are_greeted() {
        let doors = Doors::default();
        let one: Vec<_> = (0..100).map_while(|_| doors.knock(address(1), false)).collect();
        assert_eq!(one.len(), FROM_ONE_MAX);
        let others: Vec<_> = (2..500).map_while(|number| doors.knock(address(number), false)).collect();
        assert_eq!(one.len() + others.len(), STRANGERS_MAX);
        let greeted: Vec<_> =
            (0..200).map_while(|number| doors.knock(address(1_000 + number), true)?.enter()).collect();
        assert_eq!(greeted.len(), GREETED_MAX);
        drop((one, others, greeted));
        assert!(doors.knock(address(1), false).and_then(Waiting::enter).is_some());
        let counts = doors.0.borrow();
        assert_eq!((counts.greeted, counts.strangers, counts.waiting.len()), (0, 0, 0));
    }
}
