//! What a store of keys and values says, as a state.
//!
//! ```text
//! PREFIX endpoints/KEY/ANYTHING = ip:port, or settings of an endpoint in JSON
//! PREFIX config/NAME            = a text in YAML or JSON with listeners, routes, clusters, endpoints
//! ```
//! Keys of other shapes are not ours, and not looked at.

use std::collections::BTreeMap;

use config::file::EndpointSettings;

use super::{State, Text};

/// Keys that are looked at.
pub(super) const PAIRS_MAX: usize = 10_000;

/// The state that these pairs make, by keys behind the prefix.
///
/// # Errors
/// A value is not what its key wants: a sentence.
pub(super) fn state(pairs: &BTreeMap<String, Vec<u8>>) -> Result<State, String> {
    let mut state = State::default();
    for (key, value) in pairs {
        let text = || String::from_utf8(value.clone()).map_err(|_| format!("the value of `{key}` is no text"));
        if let Some(name) = key.strip_prefix("config/").filter(|name| !name.is_empty()) {
            state.texts.push(Text { name: name.to_owned(), text: text()?, ..Text::default() });
        } else if let Some((list, name)) = key.strip_prefix("endpoints/").and_then(|rest| rest.rsplit_once('/')) {
            if list.is_empty() || name.is_empty() {
                continue;
            }
            let endpoint = endpoint(text()?.trim()).map_err(|why| format!("the value of `{key}`: {why}"))?;
            state.endpoints.entry(list.to_owned()).or_default().push(endpoint);
        }
    }
    Ok(state)
}

/// An address, or settings in JSON.
fn endpoint(text: &str) -> Result<EndpointSettings, String> {
    if text.starts_with('{') {
        return serde_json::from_str(text).map_err(|error| error.to_string());
    }
    match text.parse::<std::net::SocketAddr>() {
        Ok(_) => Ok(EndpointSettings::at(text)),
        Err(_) => Err(format!("`{}` is not an address with a port", text.chars().take(100).collect::<String>())),
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
        let state = state(&pairs(&[
            ("endpoints/web/b", "{ \"address\": \"10.0.0.2:80\", \"weight\": 3 }"),
            ("endpoints/web/a", " 10.0.0.1:80\n"),
            ("endpoints/a/b/c", "10.0.0.3:80"),
            ("config/shop", "routes: []"),
            ("other", "x"),
            ("endpoints/", "x"),
            ("endpoints/web", "x"),
            ("endpoints/web/", "x"),
            ("config/", "x"),
        ]))
        .unwrap();
        let web: Vec<_> = state.endpoints["web"].iter().map(|one| (one.address.as_str(), one.weight)).collect();
        assert_eq!(web, [("10.0.0.1:80", 1), ("10.0.0.2:80", 3)]);
        assert_eq!(state.endpoints["a/b"][0].address, "10.0.0.3:80");
        assert_eq!(state.endpoints.len(), 2);
        assert_eq!((state.texts.len(), state.texts[0].name.as_str()), (1, "shop"));
    }

    #[test]
    fn a_value_that_is_none_is_told_by_its_key() {
        for (value, why) in [
            ("name:80", "the value of `endpoints/web/a`: `name:80` is not an address with a port"),
            ("{}", "missing field `address`"),
            ("{ \"address\": \"1.1.1.1:1\", \"wieght\": 1 }", "unknown field `wieght`"),
        ] {
            let told = state(&pairs(&[("endpoints/web/a", value)])).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
        let bytes = BTreeMap::from([("config/x".to_owned(), vec![0xff])]);
        assert_eq!(state(&bytes).unwrap_err(), "the value of `config/x` is no text");
    }

    #[test]
    fn the_range_of_a_prefix_ends_behind_it() {
        assert_eq!(end_of_prefix(b"ab/"), b"ab0");
        assert_eq!(end_of_prefix(b"a\xff"), b"b");
        assert_eq!(end_of_prefix(b"\xff"), [0]);
        assert_eq!(end_of_prefix(b""), [0]);
    }
}
