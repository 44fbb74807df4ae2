//! `replace_body`.

mod engine;
mod replacer;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use model::fields::Fields;
use model::{Issue, RequestHead, ResponseHead};
use schemars::JsonSchema;
use serde::Deserialize;

use super::coding::Names;
use super::media_types::Types;
use super::replacement::Replacement;
use super::settings::{Settings, SizeText, one_of};
use super::template::Template;
use super::variables::{Stage as VariableStage, Values};
use super::{
    Compiling, Extent, FilterEntry, MakeStage, Rank, RequestBodyStep, ResponseBodyStep, ResponseView, Stage, Steps,
    Turn,
};
use engine::{Engine, Pattern};
use replacer::{Replacer, With};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<ReplaceBody>("replace_body", DOC);

const DOC: &str = r#"Replaces text in the bodies of responses or requests while they are streamed.

Each entry of `replace` has `with` and exactly one of these:

- `text`: these bytes, compared exactly, or with `ignore_case: true` without the case of ASCII letters.
- `regex`: an expression; classes such as `\w` mean ASCII. `with` may quote groups as `$1`, `${1}` and, by name, `$${name}`; `$$` is a
  dollar sign. Matches of up to `match_max` bytes (1KiB) are found; a longer one may be missed, or found in part.

The body is searched once for all entries: at each place the first entry of the list that matches applies, and what it inserts is not
searched again. Matches are found wherever the body is split on its way. `once: true` replaces only the first match of each entry.

`with` may hold variables. They are inserted as they are: one that clients set, such as `{query}`, can bring a script into a page. Write
`{{` and `}}` for braces.

A body is searched if its media type is one of `types` (`text/html` by default). By default bodies of responses are, also those of the
proxy itself; with `requests: true` those of requests are, too, and with `responses: false` only those. These are never changed:

- bodies with a `content-encoding`: add `decompress: { requests: false, responses: always }`, or remove `accept-encoding` from requests;
- parts of a body (206, `content-range`): remove `range` and `if-range` from requests where parts must be changed, too;
- those with `cache-control: no-transform`, `content-digest`, `repr-digest`, `digest` or `content-md5`;
- gRPC and tunnels.

`content-length` is removed, unless all entries keep the length (a `text` and a `with` of equal length, without variables). `accept-ranges`
is removed, a strong `etag` becomes weak (`W/`), and digests are removed from trailers. If `with` holds variables, `etag` and `last-modified` are
removed: the endpoint cannot know whether the values have changed.

When the sender pauses, everything is forwarded that cannot be the beginning of a match. While a body passes, the filter holds up to 32 KiB
and the longest `text`, or `match_max`.

```yaml
filters:
  - replace_body:
      replace:
        - { text: "http://internal.example:8080/", with: "https://www.example.com/" }
        - { regex: "build ([0-9]+)\\.[0-9]+", with: "build $1" }
      types: [text/html, text/css, application/json]
  - remove_request_header: [accept-encoding]
```
"#;

const PAIRS_MAX: usize = 256;
const TEXT_BYTES_MAX: usize = 4 << 10;
const WITH_BYTES_MAX: usize = 64 << 10;
/// Groups that one `with` quotes: each may be as long as what is searched at once.
const GROUPS_MAX: usize = 16;
const MATCH_BYTES: u64 = 1 << 10;
const MATCH_BYTES_MAX: u64 = 32 << 10;

/// What is replaced, and in which bodies.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReplaceBody {
    /// What is replaced by what; at most 256 entries.
    #[schemars(length(min = 1, max = 256))]
    replace: Vec<Pair>,
    /// Media types whose bodies are searched; `[text/html]` by default.
    #[schemars(length(min = 1, max = 256))]
    types: Option<Vec<String>>,
    /// Whether bodies of responses are searched; true by default.
    #[serde(default = "yes")]
    responses: bool,
    /// Whether bodies of requests are searched; false by default.
    #[serde(default)]
    requests: bool,
    /// Whether each entry replaces only its first match; false by default.
    #[serde(default)]
    once: bool,
    /// Whether ASCII letters match in either case; false by default.
    #[serde(default)]
    ignore_case: bool,
    /// Longest match of a `regex` that is always found, up to 32KiB; 1KiB by default.
    match_max: Option<SizeText>,
}

/// What is replaced by what.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = one_of(&["text", "regex"])))]
struct Pair {
    /// The text that is replaced, up to 4 KiB.
    #[schemars(length(min = 1, max = 4096))]
    text: Option<String>,
    /// An expression whose matches are replaced.
    regex: Option<String>,
    /// What stands there instead; up to 64 KiB. May hold variables.
    with: String,
}

fn yes() -> bool {
    true
}

impl Settings for ReplaceBody {
    fn compile(self, _: &mut Compiling<'_>) -> Result<Steps, Issue> {
        if !self.responses && !self.requests {
            let issue = Issue::at("responses", "neither bodies of requests nor those of responses are changed");
            return Err(issue.suggest("set `requests: true`, or leave the filter out"));
        }
        let types = match &self.types {
            Some(list) => Types::compile(list.iter().map(String::as_str)),
            None => Types::compile(["text/html"].into_iter()),
        };
        let types = Arc::new(types.map_err(|issue| issue.below("types"))?);
        let match_max = self.match_max.map_or(MATCH_BYTES, |size| size.0);
        if !(1..=MATCH_BYTES_MAX).contains(&match_max) {
            return Err(Issue::at("match_max", "it is not from 1 to 32KiB").suggest("use `1KiB`"));
        }
        if self.replace.is_empty() || self.replace.len() > PAIRS_MAX {
            let message = format!("{} entries are not from 1 to {PAIRS_MAX}", self.replace.len());
            return Err(Issue::at("replace", message));
        }
        // A variable of the response has no value in a request.
        let stage = if self.requests { VariableStage::Request } else { VariableStage::Response };
        let below = |place: usize, issue: Issue| issue.below(&place.to_string()).below("replace");
        let pair = |(place, pair): (usize, &Pair)| pair.compile(stage).map_err(|issue| below(place, issue));
        let pairs = self.replace.iter().enumerate().map(pair).collect::<Result<Vec<_>, _>>()?;
        let (patterns, with): (Vec<Pattern>, Vec<_>) = pairs.into_iter().unzip();
        let keeps_length = patterns.iter().zip(&with).all(|(pattern, with)| keeps_length(pattern, with));
        let engine = Engine::compile(&patterns, self.ignore_case, match_max as usize);
        let engine = Arc::new(engine.map_err(|issue| issue.below("replace"))?);
        let with = Replacements::new(with);
        let rules = Arc::new(Rules { engine, with, once: self.once, keeps_length, types, names: Names::new()? });
        let (request, response) = (ReplaceInRequest(Arc::clone(&rules)), ReplaceInResponse(rules));
        Ok(Steps {
            request_body: self.requests.then(|| Box::new(request) as Box<_>),
            response_body: self.responses.then(|| Box::new(response) as Box<_>),
            ..Steps::default()
        })
    }
}

impl Pair {
    fn compile(&self, stage: VariableStage) -> Result<(Pattern, Replacement<Template>), Issue> {
        let template = |text: &str| Template::compile(text, stage);
        if self.with.len() > WITH_BYTES_MAX {
            return Err(Issue::at("with", format!("{} bytes are more than {WITH_BYTES_MAX}", self.with.len())));
        }
        match (&self.text, &self.regex) {
            (Some(text), None) => {
                if text.is_empty() || text.len() > TEXT_BYTES_MAX {
                    let message = format!("{} bytes are not from 1 to {TEXT_BYTES_MAX}", text.len());
                    return Err(Issue::at("text", message));
                }
                let with = template(&self.with).map_err(|issue| issue.below("with"))?;
                Ok((Pattern::Text(text.clone()), Replacement::of_text(with)))
            }
            (None, Some(text)) => {
                let regex = crate::route::expression::anywhere(text).map_err(|issue| issue.below("regex"))?;
                if regex.is_match(b"") {
                    let issue = Issue::at("regex", format!("`{text}` matches an empty text, and so everywhere"));
                    return Err(issue.suggest("write `+` instead of `*`"));
                }
                let with = Replacement::compile(&self.with, &regex, template).map_err(|issue| issue.below("with"))?;
                if with.groups() > GROUPS_MAX {
                    return Err(Issue::at("with", format!("it quotes more than {GROUPS_MAX} groups")));
                }
                Ok((Pattern::Expression(text.clone()), with))
            }
            _ => Err(Issue::at("", "exactly one of `text` and `regex` is needed")),
        }
    }
}

fn keeps_length(pattern: &Pattern, with: &Replacement<Template>) -> bool {
    let Pattern::Text(text) = pattern else { return false };
    let lengths = with.texts().map(|with| with.as_literal().map(str::len));
    lengths.sum::<Option<usize>>() == Some(text.len())
}

/// What stands in place of matches.
enum Replacements {
    /// The same in each body.
    Constant(With),
    /// With variables.
    Variable(Box<[Replacement<Template>]>),
}

impl Replacements {
    fn new(list: Vec<Replacement<Template>>) -> Self {
        let constant = |with: &Replacement<Template>| with.texts().all(|text| text.as_literal().is_some());
        if !list.iter().all(constant) {
            return Self::Variable(list.into());
        }
        let text = |text: &Template| text.as_literal().unwrap_or_default().as_bytes().into();
        Self::Constant(list.iter().map(|with| with.map(text)).collect())
    }

    /// For one body.
    fn of(&self, values: &Values<'_>, scratch: &mut Vec<u8>) -> With {
        match self {
            Self::Constant(with) => Arc::clone(with),
            Self::Variable(list) => {
                let mut text = |text: &Template| {
                    scratch.clear();
                    text.write(values, scratch);
                    scratch.truncate(WITH_BYTES_MAX);
                    scratch.as_slice().into()
                };
                list.iter().map(|with| with.map(&mut text)).collect()
            }
        }
    }
}

struct Rules {
    engine: Arc<Engine>,
    with: Replacements,
    once: bool,
    keeps_length: bool,
    types: Arc<Types>,
    names: Names,
}

impl Rules {
    /// Makes the fields of a response those of the body that the client gets.
    fn rewrite(&self, fields: &mut Fields, scratch: &mut Vec<u8>) {
        self.names.rewritten(fields, self.keeps_length, scratch);
        if matches!(self.with, Replacements::Variable(_)) {
            self.names.drop_validators(fields);
        }
    }

    fn behind(&self, extent: Extent) -> Extent {
        if self.keeps_length { extent } else { Extent::Unknown }
    }
}

struct ReplaceInRequest(Arc<Rules>);

impl RequestBodyStep for ReplaceInRequest {
    fn rank(&self) -> Rank {
        Rank::Rewrite
    }

    fn begin(&self, head: &mut RequestHead, extent: Extent, turn: &mut Turn<'_>) -> Option<(MakeStage, Extent)> {
        let (rules, names) = (&self.0, &self.0.names);
        let is_of_type = names.content_type(&head.fields).is_some_and(|is| rules.types.hold(is));
        if !is_of_type || !names.may_change_body(&head.fields) || !names.is_plain(&head.fields) {
            return None;
        }
        let (values, scratch) = turn.values(head);
        let with = rules.with.of(&values, scratch);
        if !rules.keeps_length {
            head.fields.remove_known(model::Known::ContentLength);
        }
        let (engine, once, digests) = (rules.engine.clone(), rules.once, names.digests.clone());
        let make = move || Stage::Coder(Box::new(Replacer::new(&engine, with.clone(), once, &digests)));
        Some((Box::new(make), rules.behind(extent)))
    }
}

struct ReplaceInResponse(Arc<Rules>);

impl ResponseBodyStep for ReplaceInResponse {
    fn rank(&self) -> Rank {
        Rank::Rewrite
    }

    fn begin(
        &self,
        head: &mut ResponseHead,
        view: &ResponseView<'_>,
        extent: Extent,
        turn: &mut Turn<'_>,
    ) -> Option<(Stage, Extent)> {
        let (rules, names) = (&self.0, &self.0.names);
        if !names.may_code(head, view.request) || !names.is_of(|is| rules.types.hold(is), head, view.request) {
            return None;
        }
        if extent == Extent::Absent {
            rules.rewrite(&mut head.fields, turn.scratch);
            return None;
        }
        let (values, scratch) = turn.response_values(head, view);
        let with = rules.with.of(&values, scratch);
        rules.rewrite(&mut head.fields, turn.scratch);
        let replacer = Replacer::new(&rules.engine, with, rules.once, &names.digests);
        Some((Stage::Coder(Box::new(replacer)), rules.behind(extent)))
    }
}
