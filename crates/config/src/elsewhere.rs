//! Words of other products, and what to write here instead: keys and values that a person brings along.

mod blocks;
mod guide;
mod values;
mod words;

use crate::tree::Step;
use blocks::is_same;
use guide::Guide;
use values::VALUES;
use words::{SAYINGS, WORDS, Word};

/// What may be written at a place.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// Whether this is a key here, and is not set already.
    pub(crate) is_free: &'a dyn Fn(&str) -> bool,
    /// Whether this is a key here, and is set already.
    pub(crate) is_set: &'a dyn Fn(&str) -> bool,
    /// Whether what stands there may be the value of this key of ours: false where the key holds a map and there is none.
    pub(crate) takes: &'a dyn Fn(&str) -> bool,
    /// Whether this is a filter, and `filters` is a key here.
    pub(crate) is_filter: &'a dyn Fn(&str) -> bool,
}

/// The first of our keys that fits a place, as it is suggested. One that is set already is not to be written again.
fn first_fitting((ours, instead): (&[&str], &str), place: Place<'_>) -> Option<String> {
    ours.iter().find_map(|ours| {
        let key = ours.split(':').next().unwrap_or(ours);
        let tells_how = instead.contains(&format!("`{key}: "));
        if (place.is_free)(key) {
            return Some(match ours.contains(':') || (place.takes)(key) {
                true => format!("did you mean `{ours}`?"),
                false if tells_how => instead.to_owned(),
                false => format!("did you mean `{key}: {{ … }}`?"),
            });
        }
        if (place.is_set)(key) {
            let set = || match ours.contains(':') {
                true => format!("change `{key}`, which is set already, to `{ours}`"),
                false => format!("here it is `{key}`, which is already set: leave this out"),
            };
            return Some(if tells_how { instead.to_owned() } else { set() });
        }
        (place.is_filter)(key).then(|| if tells_how { instead.to_owned() } else { as_filter(key) })
    })
}

fn as_filter(name: &str) -> String {
    format!("write it as a filter: `filters: [{{ {name}: … }}]`")
}

/// A suggestion with the page that tells more.
fn guided(told: &str, guide: Guide) -> String {
    let then = if told.ends_with('?') { " See" } else { "; see" };
    format!("{told}{then} {}", guide.page())
}

/// What to write for a key that another product has, or that has another name here. `max_x` is `x_max` here.
pub(crate) fn key(word: &str, place: Place<'_>) -> Option<String> {
    if word.len() > 64 {
        return None;
    }
    if (place.is_filter)(word) {
        return Some(as_filter(word));
    }
    // Of what comes under the same name in two products, the one that is spelt so, then the one that fits.
    let alike = |is_exact: bool| {
        WORDS.iter().filter(move |(theirs, ..)| is_same(theirs, word) && (*theirs == word) == is_exact)
    };
    let known: Vec<&Word> = alike(true).chain(alike(false)).collect();
    let fitting = |(_, guide, ours, instead): &&Word| Some(guided(&first_fitting((ours, instead), place)?, *guide));
    if let Some(told) = known.iter().find_map(fitting) {
        return Some(told);
    }
    if let Some((_, guide, _, instead)) = known.iter().find(|(.., instead)| !instead.is_empty()) {
        return Some(guided(instead, *guide));
    }
    let said =
        SAYINGS.iter().find(|(theirs, _)| is_same(theirs, word)).and_then(|(_, ours)| first_fitting((ours, ""), place));
    said.or_else(|| turned(word, place))
}

fn turned(word: &str, place: Place<'_>) -> Option<String> {
    let plain = word.to_ascii_lowercase().replace('-', "_");
    let (bound, rest) = plain.split_once('_')?;
    let name = format!("{rest}_{bound}");
    (matches!(bound, "max" | "min") && (place.is_free)(&name)).then(|| format!("did you mean `{name}`?"))
}

/// What to write for a key that this block does not have, but that people write there.
pub(crate) fn key_of_block(path: &[Step<'_>], word: &str) -> Option<String> {
    blocks::key(block(path)?, word).map(str::to_owned)
}

/// What to write for one value at a path where a map must stand.
pub(crate) fn value_alone(path: &[Step<'_>], value: &str) -> Option<String> {
    let (Step::Key(key), above) = path.split_last()? else { return None };
    blocks::alone(block(above)?, &key.text, value)
}

/// Returns the name of the block at a path: of the filter, or of the map at the top that it is a member of; empty for the file.
fn block<'a>(path: &[Step<'a>]) -> Option<&'a str> {
    match path {
        [] => Some(""),
        [Step::Key(all), Step::Key(_)] if matches!(all.text.as_str(), "caches" | "tables") => Some(&all.text),
        [.., Step::Key(filters), Step::Index(_), Step::Key(filter)] if filters.text == "filters" => Some(&filter.text),
        _ => None,
    }
}

/// What to write for a value that another product has under what we call `key`.
pub(crate) fn value(key: &str, word: &str) -> Option<String> {
    if key == "protocol" && matches!(word.to_ascii_lowercase().as_str(), "https" | "tls") {
        return Some("write `protocol: http` with `tls: { certificates: [{ chain: …, key: … }] }`".to_owned());
    }
    let known = VALUES.iter().filter(|(at, theirs, ..)| *at == key && is_same(theirs, word));
    // The spelling tells between products that have the same word.
    let best = known.clone().find(|(_, theirs, ..)| *theirs == word).or_else(|| known.clone().next());
    best.map(|(_, _, guide, ours)| guided(&format!("did you mean `{ours}`?"), *guide))
}

#[cfg(test)]
mod tests {
    use super::guide::Guide::{Envoy, HaProxy, Nginx, Traefik};
    use super::*;

    #[test]
    fn every_guide_is_there_and_no_word_stands_twice_for_one() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for guide in [Nginx, HaProxy, Envoy, Traefik] {
            assert!(root.join(guide.page()).is_file(), "{guide:?}");
        }
        for (index, (word, guide, ..)) in WORDS.iter().enumerate() {
            let again = WORDS[..index].iter().any(|(other, of, ..)| is_same(word, other) && of == guide);
            assert!(!again, "{word} stands there twice");
        }
        assert!(WORDS.len() + VALUES.len() > 80);
    }

    #[test]
    fn all_of_our_names_are_keys_of_the_file() {
        let schema = crate::schema::schema(&[]).to_string();
        // Of other crates: filters, and what is not there yet.
        let others = [
            "set_request_header",
            "remove_request_header",
            "set_response_header",
            "remove_response_header",
            "rewrite",
            "rewrite_location",
            "rewrite_cookie",
            "body_limit",
            "basic_auth",
            "error_page",
            "intercept",
            "compress",
            "types",
            "size_min",
            "levels",
            "br",
            "rate_limit",
            "rate_limit_service",
            "concurrency_limit",
            "bandwidth",
            "bandwidth_limit",
            "cache",
            "external_auth",
            "forward_auth",
            "ext_authz",
            "jwt",
            "signed_url",
            "mirror",
            "fault",
            "replace_body",
            "tracing",
            "acme",
        ];
        let of_words = WORDS.iter().flat_map(|(_, _, ours, _)| ours.iter());
        for ours in of_words.chain(SAYINGS.iter().flat_map(|(_, ours)| ours.iter())) {
            let key = ours.split(':').next().unwrap_or(ours);
            assert!(others.contains(&key) || schema.contains(&format!("\"{key}\":")), "{key} is no key of ours");
        }
    }
}
