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

/// RFC 4648 section 4.
pub(super) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let word = three.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let symbol = ALPHABET[(word >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= three.len() { char::from(symbol) } else { '=' });
        }
    }
    text
}

/// The other way. `None`: it is none.
pub(super) fn from_base64(text: &str) -> Option<Vec<u8>> {
    let bare = text.trim_end_matches('=');
    if !text.len().is_multiple_of(4) || text.len() - bare.len() > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(bare.len() * 3 / 4);
    let (mut word, mut bits) = (0_u32, 0);
    for symbol in bare.bytes() {
        let value = match symbol {
            b'A'..=b'Z' => symbol - b'A',
            b'a'..=b'z' => symbol - b'a' + 26,
            b'0'..=b'9' => symbol - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        word = word << 6 | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((word >> bits) as u8);
            word &= (1 << bits) - 1;
        }
    }
    Some(bytes)
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
    fn base64_goes_both_ways_and_nothing_else_does() {
        for (plain, coded) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(plain.as_bytes()), coded);
            assert_eq!(from_base64(coded).unwrap(), plain.as_bytes());
        }
        for bad in ["Z", "Zg", "Zg=", "Z===", "====", "Zg=a", "Zm9\n", "Zm-v"] {
            assert_eq!(from_base64(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_range_of_a_prefix_ends_behind_it() {
        assert_eq!(end_of_prefix(b"ab/"), b"ab0");
        assert_eq!(end_of_prefix(b"a\xff"), b"b");
        assert_eq!(end_of_prefix(b"\xff"), [0]);
        assert_eq!(end_of_prefix(b""), [0]);
    }
}
