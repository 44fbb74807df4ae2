//! `rewrite`.

use model::fields::is_token;
use model::filter::PATH_FORMAT;
use model::path::has_dots;
use model::{FieldName, Issue, Method, RequestHead, limits};
use regex::bytes::Regex;
use schemars::JsonSchema;
use serde::Deserialize;

use self::host::{HostRewrite, HostStep};
use self::query::{QueryRewrite, QueryStep};
use super::replacement::Replacement;
use super::settings::{Settings, one_of};
use super::template::Template;
use super::variables::Stage;
use super::{Compiling, FilterEntry, Flow, RequestStep, Steps, Turn};

mod host;
mod query;
#[cfg(test)]
mod tests;

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<Rewrite>("rewrite", DOC);

const DOC: &str = r#"Changes path, host, query and method of the request that goes to the endpoint.

The client does not see it; to send the client elsewhere, use a redirect. The path is changed first, then the host, the query and the
method. `path` keeps the query, and takes exactly one of:

- `full`: the whole new path; may hold variables.
- `prefix`: if the path begins with the segments of `from`, these are replaced by `to`: from `/a` to `/b`, `/a` becomes
  `/b` and `/a/x` becomes `/b/x`, while `/ax` stays. `to: /` removes the prefix.
- `regex`: every match of `pattern` is replaced; `$1`, `${1}` and, for a named group, `$${name}` quote its groups, `$$` is a dollar sign. The
  expression sees the [normalized](../guides/route-requests.md) path, percent-encoding kept, and matches anywhere unless it holds `^` or `$`.

`host` is the new host, which may hold variables, or `{ regex: … }`, which replaces every match in the host as it stands, with its port if there
is one; case does not count, and the replacement may hold variables. If the result is not a valid host, or is a path with a new dot segment
(`..`, `%2e`, `..%2F`), the request is answered 400; if the new path is longer than 16 KiB, 414. Characters that cannot stand in a path are percent-encoded.

`query` takes any of these, applied in this order:

- `regex`: replaces every match of `pattern` in the whole query, as in a path. A request without a query is left alone.
- `keep`: removes all parameters but these. `*` at the beginning or the end of a name matches any text.
- `remove`: removes parameters, named in the same way.
- `rename`: renames parameters and keeps their values.
- `set`: sets parameters. The first one of the name is replaced in its place, the others are removed; a missing one is appended.
- `add`: appends parameters, whether or not the name is there already.

Names and values are written as plain text; the filter percent-encodes them. Names are compared percent-decoded (`+` is a space). The
rest of the query is kept byte for byte. Values of `set` and `add` may hold variables. If a value with variables turns out empty, `set`
removes the parameter and `add` adds none. `{query_param:NAME}` is copied as sent. If path and query together exceed 16 KiB, the request
is answered 414.

`method` replaces the method and keeps the body. A client that sent `HEAD` gets no body, whatever method goes to the endpoint. If
`HEAD` replaces another method, the client gets an empty body. Retries follow the new method; the access log shows the received one.

The target `*` of `OPTIONS *` and its method are never changed.

```yaml
filters:
  - rewrite:
      host: "{query_param:tenant}.internal.example"
      path: { prefix: { from: /api/v1, to: / } }
      query: { remove: [tenant, "utm_*"], set: { client: "{client_ip}" } }
```
"#;

/// At least one of these.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Rewrite {
    /// New host, with or without port. May hold variables. Or `{ regex: … }`.
    host: Option<HostRewrite>,
    /// New path.
    path: Option<PathRewrite>,
    /// Changes of the query.
    query: Option<QueryRewrite>,
    /// New method, such as `GET`.
    method: Option<String>,
}

/// Exactly one of these.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = one_of(&["full", "prefix", "regex"])))]
struct PathRewrite {
    /// The whole new path. May hold variables.
    full: Option<String>,
    /// Replaces whole segments at the start.
    prefix: Option<PrefixRewrite>,
    /// Replaces every match of an expression.
    regex: Option<RegexRewrite>,
}

/// Replaces whole segments at the start.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PrefixRewrite {
    /// What the path must begin with.
    #[schemars(extend("format" = PATH_FORMAT))]
    from: String,
    /// What stands there instead.
    to: String,
}

/// Replaces every match of an expression.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RegexRewrite {
    /// The expression.
    pattern: String,
    /// What stands in place of a match.
    replacement: String,
}

impl Settings for Rewrite {
    fn compile(self, _: &mut Compiling<'_>) -> Result<Steps, Issue> {
        let path = self.path.map(compile_path).transpose().map_err(|issue| issue.below("path"))?;
        let host = self.host.map(HostRewrite::compile).transpose().map_err(|issue| issue.below("host"))?;
        let query = self.query.map(QueryRewrite::compile).transpose().map_err(|issue| issue.below("query"))?;
        let method = self.method.map(compile_method).transpose().map_err(|issue| issue.below("method"))?;
        if path.is_none() && host.is_none() && query.is_none() && method.is_none() {
            return Err(Issue::at("", "one of `host`, `path`, `query` and `method` is needed"));
        }
        let host_field = FieldName::new("Host").map_err(|message| Issue::at("host", message))?;
        Ok(Steps::of_request(RewriteStep { path, host, host_field, query: query.map(Box::new), method }))
    }
}

fn compile_method(text: String) -> Result<Box<str>, Issue> {
    if !is_token(text.as_bytes()) {
        return Err(Issue::at("", format!("`{text}` is not a method")));
    }
    if text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        let mend = format!("write `{}`: methods are case-sensitive", text.to_ascii_uppercase());
        return Err(Issue::at("", format!("`{text}` is not a method that endpoints know")).suggest(mend));
    }
    if Method::of(text.as_bytes()) == Method::Connect {
        let issue = Issue::at("", "`CONNECT` opens a tunnel and cannot replace another method");
        return Err(issue.suggest("use another method"));
    }
    Ok(text.into())
}

fn compile_path(path: PathRewrite) -> Result<PathStep, Issue> {
    match (path.full, path.prefix, path.regex) {
        (Some(text), None, None) => compile_full(&text).map_err(|issue| issue.below("full")),
        (None, Some(settings), None) => compile_prefix(&settings).map_err(|issue| issue.below("prefix")),
        (None, None, Some(settings)) => compile_regex(&settings).map_err(|issue| issue.below("regex")),
        _ => Err(Issue::at("", "exactly one of full, prefix and regex is needed")),
    }
}

fn compile_full(text: &str) -> Result<PathStep, Issue> {
    let template = Template::compile(text, Stage::Request)?;
    if text.is_empty() || !(template.starts_with("/") || text.starts_with("{path}")) {
        return Err(Issue::at("", "a path begins with `/`").suggest(format!("write `/{text}`")));
    }
    template.literals().try_for_each(plain_path)?;
    Ok(PathStep::Full(template))
}

fn compile_prefix(settings: &PrefixRewrite) -> Result<PathStep, Issue> {
    let trimmed = |key: &str, text: &str| {
        plain_path(text).map_err(|issue| issue.below(key))?;
        if key == "to" && has_dots(text.as_bytes()) {
            return Err(Issue::at(key, "the path holds a dot segment").suggest("write the path that is meant"));
        }
        if text.starts_with('/') || (key == "to" && text.is_empty()) {
            return Ok(text.trim_end_matches('/').into());
        }
        Err(Issue::at(key, "a path begins with `/`").suggest(format!("write `/{text}`")))
    };
    Ok(PathStep::Prefix { from: trimmed("from", &settings.from)?, to: trimmed("to", &settings.to)? })
}

fn compile_regex(settings: &RegexRewrite) -> Result<PathStep, Issue> {
    let pattern = crate::route::expression::anywhere(&settings.pattern).map_err(|issue| issue.below("pattern"))?;
    let text = |text: &str| plain_path(text).map(|()| text.into());
    let replacement =
        Replacement::compile(&settings.replacement, &pattern, text).map_err(|issue| issue.below("replacement"))?;
    Ok(PathStep::Regex { pattern, replacement })
}

fn plain_path(text: &str) -> Result<(), Issue> {
    if text.contains(['?', '#']) {
        return Err(Issue::at("", "a path holds no `?` or `#`; the query is kept as it is"));
    }
    if text.bytes().all(|b| b > b' ' && b < 0x7f) {
        return Ok(());
    }
    Err(Issue::at("", "a path holds only visible ASCII characters").suggest("percent-encode the others, such as %20"))
}

#[derive(Debug)]
struct RewriteStep {
    path: Option<PathStep>,
    host: Option<HostStep>,
    host_field: FieldName,
    query: Option<Box<QueryStep>>,
    method: Option<Box<str>>,
}

#[derive(Debug)]
enum PathStep {
    Full(Template),
    /// Both without slash at the end; the root is empty text.
    Prefix {
        from: Box<str>,
        to: Box<str>,
    },
    Regex {
        pattern: Regex,
        replacement: Replacement<Box<str>>,
    },
}

impl RequestStep for RewriteStep {
    fn apply(&self, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        // `*` and the empty path of CONNECT are no paths.
        if let Some(path) = &self.path
            && head.path().starts_with(b"/")
        {
            // What variables quote, or what a match leaves, could lead out of the path that is meant.
            let may_lead_out = !matches!(path, PathStep::Prefix { .. }) && !has_dots(head.path());
            path.apply(head, turn);
            if may_lead_out && has_dots(head.path()) {
                return Flow::refuse(400, "the rewritten path holds a dot segment");
            }
            if head.path().len() > limits::TARGET_BYTES_MAX {
                return Flow::refuse(414, "the rewritten path is too long");
            }
        }
        if let Some(host) = &self.host {
            let (values, scratch) = turn.values(head);
            scratch.clear();
            if host.write(head, &values, scratch) {
                if !host::is_host(scratch) {
                    return Flow::refuse(400, "the request does not lead to a valid host");
                }
                head.set_authority(&self.host_field, scratch);
            }
        }
        if let Some(query) = &self.query
            && head.path().starts_with(b"/")
        {
            query.apply(head, turn);
            let query_bytes = head.query().map_or(0, |query| query.len() + 1);
            if head.path().len() + query_bytes > limits::TARGET_BYTES_MAX {
                return Flow::refuse(414, "the rewritten query is too long");
            }
        }
        if let Some(method) = &self.method
            && head.path().starts_with(b"/")
        {
            head.set_method(method.as_bytes());
        }
        Flow::Continue
    }
}

impl PathStep {
    fn apply(&self, head: &mut RequestHead, turn: &mut Turn<'_>) {
        match self {
            Self::Full(template) => {
                let (values, scratch) = turn.values(head);
                scratch.clear();
                template.write(&values, scratch);
                // The text quotes the head, so it is whole before the head changes; both buffers keep their memory.
                let mut text = std::mem::take(scratch);
                head.rewrite_path(|_, out| std::mem::swap(out, &mut text), scratch);
            }
            Self::Prefix { from, to } => {
                let Some(length) = prefix_length(head.path(), from.as_bytes()) else { return };
                head.rewrite_path(|old, out| replace_prefix(&old[length..], to.as_bytes(), out), turn.scratch);
            }
            Self::Regex { pattern, replacement } => {
                if pattern.is_match(head.path()) {
                    let replace = |old: &[u8], out: &mut Vec<u8>| {
                        replacement.replace_all(pattern, (old, limits::TARGET_BYTES_MAX), out, |text, out| {
                            out.extend_from_slice(text.as_bytes());
                        });
                    };
                    head.rewrite_path(replace, turn.scratch);
                }
            }
        }
    }
}

/// Returns the length of `from`, if `path` begins with its segments.
pub(super) fn prefix_length(path: &[u8], from: &[u8]) -> Option<usize> {
    let rest = path.strip_prefix(from)?;
    (rest.is_empty() || rest[0] == b'/').then_some(from.len())
}

/// Slashes never double where the new prefix meets the rest: `//x` in place of `/x` could be read as a host.
pub(super) fn replace_prefix(rest: &[u8], to: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(to);
    push_rest(rest, to.is_empty(), out);
}

/// Appends the rest after the new prefix, which has no slash at its end; `is_root` if nothing is left of the prefix.
pub(super) fn push_rest(rest: &[u8], is_root: bool, out: &mut Vec<u8>) {
    let slashes = rest.iter().take_while(|&&b| b == b'/').count();
    if slashes > 0 || is_root {
        out.push(b'/');
    }
    out.extend_from_slice(&rest[slashes..]);
}
