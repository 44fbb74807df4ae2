//! What a store of keys and values says, as a state.
//!
//! ```text
//! PREFIX endpoints/KEY/ANYTHING = ip:port, or settings of an endpoint in JSON
//! PREFIX config/NAME            = a text in YAML or JSON with listeners, routes, clusters, endpoints
//! ```
//! Keys of other shapes are not ours, and not looked at. Each pair stands for itself: who may write one must not hold up all others
//! with it. One that is wrong is as it was while it was right, also before the program was started, or left out if it never was, and
//! is told by its key.

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;

use config::file::EndpointSettings;

use crate::given::{State, Text};
use crate::loader::without_names;

/// Keys that are looked at.
pub(super) const PAIRS_MAX: usize = 10_000;

/// Makes states of pairs, and remembers each as it was while it was right.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// By keys behind the prefix.
    good: BTreeMap<String, Good>,
}

/// A pair that was understood.
#[derive(Debug)]
struct Good {
    /// `None`: it is known from before the start.
    value: Option<Vec<u8>>,
    piece: Piece,
}

/// What it says.
#[derive(Debug)]
enum Piece {
    Text(String),
    Endpoint(SocketAddr, EndpointSettings),
}

/// What a key is for.
enum Shape<'a> {
    /// A text.
    Text,
    /// An endpoint of this list.
    Endpoint(&'a str),
}

impl Shape<'_> {
    fn of(key: &str) -> Option<Shape<'_>> {
        if let Some(name) = key.strip_prefix("config/") {
            return (!name.is_empty()).then_some(Shape::Text);
        }
        let (list, name) = key.strip_prefix("endpoints/")?.rsplit_once('/')?;
        (!list.is_empty() && !name.is_empty()).then_some(Shape::Endpoint(list))
    }

    /// Understands a value.
    fn read(&self, key: &str, value: &[u8]) -> Result<Piece, String> {
        let text = std::str::from_utf8(value).map_err(|_| format!("the value of `{key}` is not text"))?;
        match self {
            Self::Text => Ok(Piece::Text(text.to_owned())),
            Self::Endpoint(list) => {
                let found = endpoint(list, text.trim()).map_err(|why| format!("the value of `{key}`: {why}"))?;
                Ok(Piece::Endpoint(found.0, found.1))
            }
        }
    }
}

impl Reader {
    /// With what a state says that was made before.
    pub(super) fn after(state: &State) -> Self {
        let good = |piece| Good { value: None, piece };
        let texts = state.texts.iter().map(|text| (text.name.clone(), good(Piece::Text(text.text.clone()))));
        let named = state.names.iter().filter_map(|(list, names)| Some((list, names, state.endpoints.get(list)?)));
        let named = named.filter(|(_, names, endpoints)| names.len() == endpoints.len());
        let endpoints = named.flat_map(|(list, names, endpoints)| {
            names.iter().zip(endpoints).filter_map(move |(name, endpoint)| {
                let address = endpoint.address.parse().ok()?;
                Some((format!("endpoints/{list}/{name}"), good(Piece::Endpoint(address, endpoint.clone()))))
            })
        });
        Self { good: texts.chain(endpoints).collect() }
    }

    /// The state that these pairs make, by keys behind the prefix, and what is wrong with some of them: sentences.
    pub(super) fn state(&mut self, pairs: &BTreeMap<String, Vec<u8>>) -> (State, Vec<String>) {
        let mut before = std::mem::take(&mut self.good);
        let mut problems = Vec::new();
        for (key, value) in pairs {
            let Some(shape) = Shape::of(key) else { continue };
            let known = before.remove(key);
            let good = match known {
                Some(known) if known.value.as_ref() == Some(value) => Some(known),
                known => match shape.read(key, value) {
                    Ok(piece) => Some(Good { value: Some(value.clone()), piece }),
                    Err(why) => {
                        problems.push(why);
                        known
                    }
                },
            };
            self.good.extend(good.map(|good| (key.clone(), good)));
        }
        (self.joined(&mut problems), problems)
    }

    fn joined(&self, problems: &mut Vec<String>) -> State {
        let mut state = State { by_parts: true, ..State::default() };
        let mut seen = HashSet::new();
        for (key, good) in &self.good {
            match (Shape::of(key), &good.piece) {
                (Some(Shape::Text), Piece::Text(text)) => {
                    state.texts.push(Text { name: key.clone(), text: text.clone(), ..Text::default() });
                }
                (Some(Shape::Endpoint(list)), Piece::Endpoint(address, endpoint)) => {
                    if seen.insert((list, *address)) {
                        state.endpoints.entry(list.to_owned()).or_default().push(endpoint.clone());
                        let name = key.rsplit_once('/').map_or("", |(_, name)| name);
                        state.names.entry(list.to_owned()).or_default().push(name.to_owned());
                    } else {
                        problems.push(format!("the value of `{key}`: the endpoint `{address}` is listed twice"));
                    }
                }
                _ => {}
            }
        }
        state
    }
}

/// An address, or settings in JSON.
fn endpoint(list: &str, text: &str) -> Result<(SocketAddr, EndpointSettings), String> {
    let settings = match text.starts_with('{') {
        true => serde_json::from_str(text).map_err(|error| error.to_string())?,
        false => EndpointSettings::at(text),
    };
    let address = settings.address.parse::<SocketAddr>().map_err(|_| {
        format!("`{}` is not an address with a port", settings.address.chars().take(100).collect::<String>())
    })?;
    // By the code that reads whole lists. That all of one have no weight is nothing that one of them is told of.
    let alone = [EndpointSettings { weight: settings.weight.max(1), ..settings.clone() }];
    let wrong = without_names(|loader| loader.endpoints("", list, &alone)).err();
    match wrong.and_then(|wrong| wrong.list.into_iter().next()) {
        Some(first) => Err(first.message),
        None => Ok((address, settings)),
    }
}

/// What follows the last of all keys that begin with this: the end of the range of a prefix.
pub(super) fn end_of_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end;
        }
    }
    // To the end of all keys.
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(all: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
        all.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect()
    }

    #[test]
    fn endpoints_are_gathered_by_key_and_texts_by_name() {
        let (state, problems) = Reader::default().state(&pairs(&[
            ("endpoints/web/b", "{ \"address\": \"10.0.0.2:80\", \"weight\": 3 }"),
            ("endpoints/web/a", " 10.0.0.1:80\n"),
            ("endpoints/a/b/c", "10.0.0.3:80"),
            ("config/shop", "routes: []"),
            ("other", "x"),
            ("endpoints/", "x"),
            ("endpoints/web", "x"),
            ("endpoints/web/", "x"),
            ("config/", "x"),
        ]));
        assert!(problems.is_empty(), "{problems:?}");
        let web: Vec<_> = state.endpoints["web"].iter().map(|one| (one.address.as_str(), one.weight)).collect();
        assert_eq!(web, [("10.0.0.1:80", 1), ("10.0.0.2:80", 3)]);
        assert_eq!(state.endpoints["a/b"][0].address, "10.0.0.3:80");
        assert_eq!(state.endpoints.len(), 2);
        assert_eq!((state.texts.len(), state.texts[0].name.as_str()), (1, "config/shop"));
    }

    #[test]
    fn a_value_that_is_none_is_told_by_its_key() {
        for (value, why) in [
            ("name:80", "the value of `endpoints/web/a`: `name:80` is not an address with a port"),
            ("{}", "missing field `address`"),
            ("{ \"address\": \"1.1.1.1:1\", \"wieght\": 1 }", "unknown field `wieght`"),
            ("{ \"address\": \"name:80\" }", "the value of `endpoints/web/a`: `name:80` is not an address with a port"),
            ("{ \"address\": \"1.1.1.1:1\", \"weight\": 1001 }", "the value of `endpoints/web/a`: "),
        ] {
            let all = pairs(&[("endpoints/web/a", value), ("endpoints/web/b", "1.1.1.2:1")]);
            let (state, told) = Reader::default().state(&all);
            assert!(told.len() == 1 && told[0].contains(why), "{told:?}");
            assert_eq!(state.endpoints["web"].len(), 1, "the others count");
        }
        let bytes = BTreeMap::from([("config/x".to_owned(), vec![0xff])]);
        assert_eq!(Reader::default().state(&bytes).1, ["the value of `config/x` is not text"]);
    }

    #[test]
    fn a_value_that_was_right_stays_until_it_is_right_again_or_gone() {
        let mut reader = Reader::default();
        let mut read = |all: &[(&str, &str)]| {
            let (state, problems) = reader.state(&pairs(all));
            let web = state.endpoints.get("web").into_iter().flatten();
            let texts = state.texts.iter().map(|text| text.text.clone());
            (web.map(|one| one.address.clone()).chain(texts).collect::<Vec<_>>().join(" "), problems.len())
        };
        let of = |text: &str, count: usize| (text.to_owned(), count);
        let (right, wrong) = (("endpoints/web/a", "1.1.1.1:1"), ("endpoints/web/a", "nowhere"));
        assert_eq!(read(&[wrong, ("config/x", "t")]), of("t", 1));
        assert_eq!(read(&[right]), of("1.1.1.1:1", 0));
        for _ in 0..2 {
            assert_eq!(read(&[wrong, ("endpoints/web/b", "1.1.1.2:1")]), of("1.1.1.1:1 1.1.1.2:1", 1));
        }
        assert_eq!(read(&[("endpoints/web/a", "1.1.1.3:1")]), of("1.1.1.3:1", 0));
        assert_eq!(read(&[]), of("", 0));
        assert_eq!(read(&[wrong]), of("", 1), "it was gone");
        // One place is one endpoint; without a weight it is one all the same.
        let twice = ("endpoints/web/b", "{ \"address\": \"1.1.1.1:1\", \"weight\": 0 }");
        assert_eq!(read(&[right, twice]), of("1.1.1.1:1", 1));
        assert_eq!(read(&[twice]), of("1.1.1.1:1", 0));
    }

    #[test]
    fn a_value_that_was_right_before_the_start_stays_too() {
        let all = [("endpoints/a/b/x", "1.1.1.1:1"), ("endpoints/a/b/y", "1.1.1.2:1"), ("config/z", "routes: []")];
        let (before, _) = Reader::default().state(&pairs(&all));
        // As another process or another start has it.
        let kept = serde_json::to_string(&before).unwrap();
        let before: State = serde_json::from_str(&kept).unwrap();
        let mut reader = Reader::after(&before);
        let wrong = [("endpoints/a/b/x", "nowhere"), ("endpoints/a/b/y", "1.1.1.3:1"), ("endpoints/a/b/z", "nowhere")];
        let mut wrong = pairs(&wrong);
        wrong.insert("config/z".to_owned(), vec![0xff]);
        let (state, problems) = reader.state(&wrong);
        let addresses: Vec<_> = state.endpoints["a/b"].iter().map(|one| one.address.as_str()).collect();
        assert_eq!((addresses, problems.len()), (vec!["1.1.1.1:1", "1.1.1.3:1"], 3));
        assert_eq!(state.texts[0].text, "routes: []");
        // What is gone is gone.
        let (state, _) = Reader::after(&before).state(&pairs(&all[1..2]));
        assert_eq!((state.endpoints["a/b"].len(), state.texts.len()), (1, 0));
        // Names that do not fit are of no use.
        let strange = State { names: [("a/b".to_owned(), vec!["x".to_owned()])].into(), ..before };
        assert!(
            !Reader::after(&strange).state(&wrong).0.endpoints.values().flatten().any(|one| one.address == "1.1.1.1:1")
        );
    }

    #[test]
    fn the_range_of_a_prefix_ends_behind_it() {
        assert_eq!(end_of_prefix(b"ab/"), b"ab0");
        assert_eq!(end_of_prefix(b"a\xff"), b"b");
        assert_eq!(end_of_prefix(b"\xff"), [0]);
        assert_eq!(end_of_prefix(b""), [0]);
    }
}
