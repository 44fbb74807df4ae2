//! What `rewrite` does to the query.

use model::{Issue, RequestHead, limits};
use regex::bytes::Regex;
use schemars::JsonSchema;
use serde::Deserialize;

use super::RegexRewrite;
use crate::filter::Turn;
use crate::filter::pattern::NamePattern;
use crate::filter::replacement::Replacement;
use crate::filter::settings::Ordered;
use crate::filter::template::Template;
use crate::filter::variables::{Stage, Values};
use crate::route::query::{decoded, encode_from, equals_decoded, is_plain, split_at_equals};

/// Bound of the parameters that one filter sets: which of them a query has is a bit each.
const SET_MAX: usize = 64;

/// At least one of these.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct QueryRewrite {
    /// Replaces every match of an expression in the whole query.
    regex: Option<RegexRewrite>,
    /// Names of parameters to keep; all others are removed. May begin or end with `*`.
    #[schemars(length(min = 1))]
    keep: Option<Vec<String>>,
    /// Names of parameters to remove. May begin or end with `*`.
    #[schemars(length(min = 1))]
    remove: Option<Vec<String>>,
    /// New names of parameters by their old ones.
    rename: Option<Ordered<String>>,
    /// Values of parameters by their names, set once each. May hold variables.
    set: Option<Ordered<String>>,
    /// Values of parameters to append, by their names. May hold variables.
    add: Option<Ordered<String>>,
}

impl QueryRewrite {
    /// Checks the settings and compiles them.
    pub(super) fn compile(self) -> Result<QueryStep, Issue> {
        let names = self.keep.is_some() || self.remove.is_some();
        let has_edits = names || self.rename.is_some() || self.set.is_some() || self.add.is_some();
        if self.regex.is_none() && !has_edits {
            return Err(Issue::at("", "one of `regex`, `keep`, `remove`, `rename`, `set` and `add` is needed"));
        }
        let regex = self.regex.map(|settings| compile_regex(&settings)).transpose();
        let regex = regex.map_err(|issue| issue.below("regex"))?;
        let keep = self.keep.map(|names| compile_names(&names, "keep")).transpose()?;
        let remove = self.remove.map(|names| compile_names(&names, "remove")).transpose()?.unwrap_or_default();
        let set = compile_values(self.set).map_err(|issue| issue.below("set"))?;
        if set.len() > SET_MAX {
            let issue = Issue::at("set", format!("{} parameters are set, at most {SET_MAX} may be", set.len()));
            return Err(issue.suggest("list the filter twice"));
        }
        let add = compile_values(self.add).map_err(|issue| issue.below("add"))?;
        let rename = compile_rename(self.rename, &set).map_err(|issue| issue.below("rename"))?;
        Ok(QueryStep { regex, edits: has_edits.then_some(Edits { keep, remove, rename, set, add }) })
    }
}

fn compile_regex(settings: &RegexRewrite) -> Result<(Regex, Replacement<Box<str>>), Issue> {
    let pattern = crate::route::expression::anywhere(&settings.pattern).map_err(|issue| issue.below("pattern"))?;
    let replacement = Replacement::compile(&settings.replacement, &pattern, |text| {
        if text.bytes().all(|byte| byte > b' ' && byte < 0x7f && byte != b'#') {
            return Ok(text.into());
        }
        let issue = Issue::at("", "a query holds only visible ASCII characters and no `#`");
        Err(issue.suggest("percent-encode the others, such as %20"))
    });
    Ok((pattern, replacement.map_err(|issue| issue.below("replacement"))?))
}

fn compile_names(names: &[String], key: &str) -> Result<Box<[NamePattern]>, Issue> {
    if names.is_empty() {
        let issue = Issue::at(key, "the list is empty");
        return Err(issue.suggest(format!("name the parameters to {key}, or leave `{key}` out")));
    }
    let parse = |(place, name): (usize, &String)| {
        NamePattern::parse(name).map_err(|issue| issue.below(&place.to_string()).below(key))
    };
    names.iter().enumerate().map(parse).collect()
}

fn compile_values(written: Option<Ordered<String>>) -> Result<Box<[Parameter]>, Issue> {
    let compile = |(name, value): (String, String)| {
        let value = Template::compile(&value, Stage::Request).map_err(|issue| issue.below(&name))?;
        Ok(Parameter { encoded: encoded_name(&name)?, name: name.into(), value })
    };
    pairs(written)?.into_iter().map(compile).collect()
}

fn compile_rename(written: Option<Ordered<String>>, set: &[Parameter]) -> Result<Box<[Rename]>, Issue> {
    let compile = |(old, new): (String, String)| {
        let encoded = encoded_name(&new).map_err(|issue| issue.below(&old))?;
        let set = set.iter().position(|parameter| *parameter.name == *new);
        encoded_name(&old)?;
        Ok(Rename { old: old.into(), encoded, set })
    };
    pairs(written)?.into_iter().map(compile).collect()
}

fn pairs(written: Option<Ordered<String>>) -> Result<Vec<(String, String)>, Issue> {
    match written {
        Some(Ordered(pairs)) if pairs.is_empty() => {
            Err(Issue::at("", "no parameter is named").suggest("write NAME: TEXT, or leave it out"))
        }
        written => Ok(written.map(|ordered| ordered.0).unwrap_or_default()),
    }
}

fn encoded_name(name: &str) -> Result<Box<[u8]>, Issue> {
    if name.is_empty() {
        return Err(Issue::at("", "the name of a parameter is empty"));
    }
    let mut encoded = name.as_bytes().to_vec();
    encode_from(&mut encoded, 0);
    Ok(encoded.into())
}

/// What is done to the query.
#[derive(Debug)]
pub(super) struct QueryStep {
    regex: Option<(Regex, Replacement<Box<str>>)>,
    edits: Option<Edits>,
}

/// What is done to its parameters.
#[derive(Debug)]
struct Edits {
    /// `None`: all.
    keep: Option<Box<[NamePattern]>>,
    remove: Box<[NamePattern]>,
    rename: Box<[Rename]>,
    set: Box<[Parameter]>,
    add: Box<[Parameter]>,
}

#[derive(Debug)]
struct Rename {
    old: Box<str>,
    /// The new name as it is written.
    encoded: Box<[u8]>,
    /// The place among those that are set, if the new name is one of them.
    set: Option<usize>,
}

#[derive(Debug)]
struct Parameter {
    name: Box<str>,
    /// The name as it is written.
    encoded: Box<[u8]>,
    value: Template,
}

impl QueryStep {
    /// Changes the query of a target in origin form. The caller looks at its length, which this bounds to little more than a
    /// target may have.
    pub(super) fn apply(&self, head: &mut RequestHead, turn: &mut Turn<'_>) {
        if let Some((pattern, replacement)) = &self.regex
            && let Some(query) = head.query().filter(|query| pattern.is_match(query))
        {
            let scratch = &mut *turn.scratch;
            scratch.clear();
            replacement.replace_all(pattern, (query, limits::TARGET_BYTES_MAX), scratch, |text, out| {
                out.extend_from_slice(text.as_bytes());
            });
            head.set_query(scratch);
        }
        if let Some(edits) = &self.edits {
            let (values, scratch) = turn.values(head);
            scratch.clear();
            if edits.write(head, &values, scratch) {
                head.set_query(scratch);
            }
        }
    }
}

impl Edits {
    /// Writes the new query. False: it is the old one.
    fn write(&self, head: &RequestHead, values: &Values<'_>, out: &mut Vec<u8>) -> bool {
        let (mut has_changed, mut seen) = (false, 0_u64);
        for pair in
            head.query().filter(|query| !query.is_empty()).into_iter().flat_map(|query| query.split(is_ampersand))
        {
            has_changed |= self.write_pair(pair, values, &mut seen, out);
            if out.len() > limits::TARGET_BYTES_MAX {
                return true;
            }
        }
        let unseen = self.set.iter().enumerate().filter(|(place, _)| seen & 1 << place == 0).map(|(_, set)| set);
        for parameter in unseen.chain(&self.add) {
            has_changed |= parameter.write(&parameter.encoded, values, out);
            if out.len() > limits::TARGET_BYTES_MAX {
                return true;
            }
        }
        out.pop();
        has_changed
    }

    /// Writes what becomes of a parameter, and `&`. Says whether that is something else. `seen` are those that are set and written.
    fn write_pair(&self, pair: &[u8], values: &Values<'_>, seen: &mut u64, out: &mut Vec<u8>) -> bool {
        let (name, _) = split_at_equals(pair);
        if (!name.is_empty() || self.keep.is_some()) && self.removes(name, out) {
            return true;
        }
        let rename = self.rename.iter().find(|rename| equals_decoded(name, rename.old.as_bytes()));
        let set = match rename {
            Some(rename) => rename.set,
            None => self.set.iter().position(|parameter| equals_decoded(name, parameter.name.as_bytes())),
        };
        let new = rename.map_or(name, |rename| &rename.encoded);
        if let Some(place) = set {
            if *seen & 1 << place == 0 {
                *seen |= 1 << place;
                self.set[place].write(new, values, out);
            }
            return true;
        }
        out.extend_from_slice(new);
        out.extend_from_slice(&pair[name.len()..]);
        out.push(b'&');
        rename.is_some()
    }

    /// Returns whether a parameter goes. The end of `out` is where an encoded name takes the form that is compared.
    fn removes(&self, name: &[u8], out: &mut Vec<u8>) -> bool {
        if self.keep.is_none() && self.remove.is_empty() {
            return false;
        }
        if is_plain(name) {
            return self.removes_plain(name);
        }
        let start = out.len();
        out.extend(decoded(name));
        let goes = self.removes_plain(&out[start..]);
        out.truncate(start);
        goes
    }

    fn removes_plain(&self, name: &[u8]) -> bool {
        let is_kept = self.keep.as_ref().is_none_or(|keep| keep.iter().any(|pattern| pattern.is(name)));
        !is_kept || self.remove.iter().any(|pattern| pattern.is(name))
    }
}

impl Parameter {
    /// Writes the parameter and `&`, unless variables have left it without a value. Says whether it has.
    fn write(&self, name: &[u8], values: &Values<'_>, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        out.extend_from_slice(name);
        out.push(b'=');
        let begin = out.len();
        self.value.write_query_value(values, out);
        if out.len() == begin && self.value.as_literal().is_none() {
            out.truncate(start);
            return false;
        }
        out.push(b'&');
        true
    }
}

fn is_ampersand(byte: &u8) -> bool {
    *byte == b'&'
}
