//! Finding the objects of one list in another by name.

use std::cell::{Cell, OnceCell};
use std::collections::HashMap;
use std::sync::Arc;

use model::Name;

/// So many are looked for one by one before a table of all is made: of very many objects a change may ask for two or three.
const STRAYS_MAX: u32 = 8;

/// Finds objects by name in a list that mostly has them in the order in which they are asked for: then each costs a comparison,
/// and nothing is hashed. Of two lists of very many objects nearly all are the same.
pub struct ByName<'a, T> {
    list: &'a [Arc<T>],
    name: fn(&T) -> &Name,
    next: Cell<usize>,
    /// How many were looked for out of order.
    strays: Cell<u32>,
    by_name: OnceCell<HashMap<&'a str, usize>>,
}

impl<'a, T> ByName<'a, T> {
    /// Of objects whose names are unique.
    pub fn of(list: &'a [Arc<T>], name: fn(&T) -> &Name) -> Self {
        Self { list, name, next: Cell::new(0), strays: Cell::new(0), by_name: OnceCell::new() }
    }

    /// The object of this name.
    pub fn find(&self, name: &Name) -> Option<&'a Arc<T>> {
        self.list.get(self.place(name)?)
    }

    /// Where it is in the list.
    pub fn place(&self, name: &Name) -> Option<usize> {
        let is_it = |place: &usize| self.list.get(*place).is_some_and(|object| (self.name)(object) == name);
        let place = Some(self.next.get()).filter(is_it).or_else(|| self.search(name))?;
        self.next.set(place + 1);
        Some(place)
    }

    fn search(&self, name: &Name) -> Option<usize> {
        self.strays.set(self.strays.get() + 1);
        if self.strays.get() <= STRAYS_MAX {
            return self.list.iter().position(|object| (self.name)(object) == name);
        }
        let named = || self.list.iter().enumerate().map(|(place, object)| ((self.name)(object).as_str(), place));
        self.by_name.get_or_init(|| named().collect()).get(name.as_str()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_found_in_order_and_out_of_it() {
        let list: Vec<Arc<Name>> = ["a", "b", "c", "d"].map(|name| Arc::new(Name::from(name))).into();
        let table = ByName::of(&list, |name| name);
        for name in ["a", "b", "d", "x", "a", "c", "d", "y"].repeat(5) {
            let found = table.find(&Name::from(name)).map(|found| found.as_str());
            assert_eq!(found, Some(name).filter(|name| "abcd".contains(name)), "{name}");
        }
    }
}
