//! The places of a tree that have something wrong in them.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

/// The places with something wrong in them, by the object (such as `routes/3`, `clusters/api` or `admin`) that they are
/// in, as paths below it.
#[derive(Debug, Default)]
pub(crate) struct Faulty(HashMap<String, Vec<Vec<Part>>>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Key(String),
    Index(usize),
}

impl Faulty {
    /// Adds a place: the object, and the path below it.
    pub(crate) fn add(&mut self, object: String, path: Vec<Part>) {
        self.0.entry(object).or_default().push(path);
    }

    /// Returns whether something is wrong with a filter of a route, or in it.
    pub(crate) fn has_filter(&self, route: usize, (place, name): (usize, &str)) -> bool {
        let way = [Part::Key("filters".to_owned()), Part::Index(place), Part::Key(name.to_owned())];
        self.0.get(&format!("routes/{route}")).into_iter().flatten().any(|path| path.starts_with(&way))
    }

    /// Returns the keys with something wrong in them, in an object that holds defaults.
    pub(crate) fn keys_in(&self, object: &str) -> FaultyKeys<'_> {
        fn key(part: Option<&Part>) -> Option<&str> {
            part.and_then(|part| if let Part::Key(key) = part { Some(key.as_str()) } else { None })
        }
        let places = self.0.get(object).into_iter().flatten();
        places.filter_map(|place| Some((key(place.first())?, key(place.get(1))))).collect()
    }

    /// Takes everything faulty out of an object, so that the rest can be looked at. `false`: nothing is left of it.
    pub(crate) fn prune(&self, object: &str, value: &mut Value) -> bool {
        self.0.get(object).into_iter().flatten().all(|path| take_out(value, path))
    }
}

/// Takes out the key that a path ends in. An item of a list goes with its list: others would change their places.
fn take_out(mut value: &mut Value, path: &[Part]) -> bool {
    let Some(last) = path.iter().rposition(|part| matches!(part, Part::Key(_))) else { return false };
    for part in &path[..last] {
        let inner = match part {
            Part::Key(key) => value.get_mut(key.as_str()),
            Part::Index(index) => value.get_mut(*index),
        };
        match inner {
            Some(inner) => value = inner,
            // Something above it was taken out before.
            None => return true,
        }
    }
    if let (Some(map), Part::Key(key)) = (value.as_object_mut(), &path[last]) {
        map.shift_remove(key);
    }
    true
}

/// Keys of defaults with something wrong in them: the kind, and the key below it unless all of that kind is wrong.
pub(crate) type FaultyKeys<'a> = HashSet<(&'a str, Option<&'a str>)>;
