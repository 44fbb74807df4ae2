//! `rewrite_cookie`.

use model::limits::COOKIE_ATTRIBUTE_BYTES_MAX;
use model::{FieldName, Issue, ResponseHead};
use schemars::JsonSchema;
use serde::Deserialize;

use self::pair::{Attribute, Outcome, Pair, Replaced};
use super::pattern::NamePattern;
use super::settings::Settings;
use super::template::Template;
use super::variables::Values;
use super::{Compiling, FilterEntry, ResponseStep, ResponseView, Steps, Turn};
use crate::route::query::split_at_equals;

mod pair;
#[cfg(test)]
mod tests;

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<RewriteCookie>("rewrite_cookie", DOC);

const DOC: &str = r#"Changes attributes of the cookies that endpoints set.

The filter looks at every `Set-Cookie` field. `name` selects cookies by name, case-sensitive; `*` at the beginning or the end matches any
text. Without it all cookies are changed. Name, value and all other attributes are kept byte for byte.

- `domain`, `path`: a text sets the attribute and adds it if it is missing; an empty text removes it. `{ from, to }` changes existing
  attributes only: a domain equal to `from` (case and a leading dot are ignored), or a path that begins with the segments of `from`. With
  `from: { regex: EXPRESSION }`, `to` replaces every match in the attribute, and may quote groups as `$1`, `${1}` and, by name, `$${name}`; `$$` is a dollar
  sign. The expression matches anywhere unless it holds `^` or `$`, and sees a domain without its leading dot. An empty `to` removes
  the domain.
- `secure`, `http_only`: `true` adds the flag, `false` removes it.
- `same_site`: `strict`, `lax` or `none` sets the attribute, `remove` removes it. Browsers accept `none` only with `secure`.

All these texts may hold variables, such as `{received_host}`; a domain loses the port that a variable brings. An attribute is left alone
if its new text is empty because of its variables, exceeds 1 KiB, or cannot stand in a cookie, as a path without `/` at its beginning. Sticky
sessions set their cookie after all filters, so this filter never changes it; `persistence` has settings for it. Cookies in answers of the
proxy itself are left alone.

```yaml
filters:
  - rewrite_cookie:
      name: "session*"
      domain: { from: internal.example, to: shop.example.com }
      path: { from: /app, to: / }
      secure: true
      same_site: lax
```
"#;

/// Which cookies are changed, and how. At least one change.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RewriteCookie {
    /// Name of the cookies. May begin or end with `*`.
    name: Option<String>,
    /// New domain.
    domain: Option<Change>,
    /// New path.
    path: Option<Change>,
    /// Whether they are sent over TLS alone.
    secure: Option<bool>,
    /// Whether they are kept from scripts.
    http_only: Option<bool>,
    /// Whether other sites may have them sent.
    same_site: Option<SameSite>,
}

/// A text, or what it is changed from and to.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum Change {
    Text(String),
    Pair(Pair),
}

/// What `SameSite` says.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum SameSite {
    /// They are sent from the same site alone.
    Strict,
    /// They are also sent when a link leads here.
    Lax,
    /// They are always sent.
    None,
    /// Nothing.
    Remove,
}

impl Settings for RewriteCookie {
    fn compile(self, _: &mut Compiling<'_>) -> Result<Steps, Issue> {
        let Self { name, domain, path, secure, http_only, same_site } = self;
        if domain.is_none() && path.is_none() && secure.is_none() && http_only.is_none() && same_site.is_none() {
            let issue = Issue::at("", "no attribute is changed");
            return Err(issue.suggest("add `domain`, `path`, `secure`, `http_only` or `same_site`"));
        }
        if same_site == Some(SameSite::None) && secure == Some(false) {
            let issue = Issue::at("same_site", "browsers refuse cookies with `SameSite=None` and without `Secure`");
            return Err(issue.suggest("say `secure: true`"));
        }
        let name = name.map(|name| compile_name(&name)).transpose().map_err(|issue| issue.below("name"))?;
        let compile = |change: Option<Change>, attribute, key| {
            change.map(|change| compile_change(change, attribute)).transpose().map_err(|issue: Issue| issue.below(key))
        };
        let domain = compile(domain, Attribute::Domain, "domain")?;
        let path = compile(path, Attribute::Path, "path")?;
        let flag = |flag| if flag { Rule::Always(Text::Flag) } else { Rule::Never };
        let same_site = same_site.map(|same_site| match same_site {
            SameSite::Strict => Rule::Always(Text::Fixed("Strict")),
            SameSite::Lax => Rule::Always(Text::Fixed("Lax")),
            SameSite::None => Rule::Always(Text::Fixed("None")),
            SameSite::Remove => Rule::Never,
        });
        let rules = [domain, path, secure.map(flag), http_only.map(flag), same_site];
        let set_cookie = FieldName::new("Set-Cookie").map_err(|message| Issue::at("", message))?;
        Ok(Steps::of_response(RewriteCookieStep { name, rules, set_cookie }))
    }
}

fn compile_name(text: &str) -> Result<NamePattern, Issue> {
    let pattern = NamePattern::parse(text)?;
    if pattern.is_token() { Ok(pattern) } else { Err(Issue::at("", format!("`{text}` matches no cookie name"))) }
}

fn compile_change(change: Change, attribute: Attribute) -> Result<Rule, Issue> {
    let text = match change {
        Change::Pair(pair) => return Replaced::compile(pair, attribute).map(Rule::Replaced),
        Change::Text(text) => text,
    };
    if text.is_empty() {
        return Ok(Rule::Never);
    }
    if attribute == Attribute::Path {
        pair::check_path(&text)?;
    }
    Ok(Rule::Always(Text::Template(attribute, pair::template(&text)?)))
}

fn check_text(text: &str) -> Result<(), Issue> {
    if stands_in(text.as_bytes()) {
        return Ok(());
    }
    let message = format!("{text:?} cannot stand in a cookie: it holds a `;`, a control character, or over 1 KiB");
    Err(Issue::at("", message))
}

/// Returns whether a text may be a part of a cookie (RFC 6265 section 4.1.1).
fn stands_in(text: &[u8]) -> bool {
    text.len() <= COOKIE_ATTRIBUTE_BYTES_MAX && text.iter().all(|&byte| byte >= b' ' && byte != 0x7f && byte != b';')
}

/// Names of the attributes that may be changed.
const NAMES: [&str; 5] = ["Domain", "Path", "Secure", "HttpOnly", "SameSite"];

struct RewriteCookieStep {
    name: Option<NamePattern>,
    /// In the order of [`NAMES`].
    rules: [Option<Rule>; NAMES.len()],
    set_cookie: FieldName,
}

/// What becomes of an attribute.
enum Rule {
    /// It is there, with this.
    Always(Text),
    /// It is not there.
    Never,
    /// It becomes another where it is there.
    Replaced(Replaced),
}

/// What stands behind the name of an attribute.
enum Text {
    /// Not even `=`.
    Flag,
    Fixed(&'static str),
    Template(Attribute, Template),
}

impl ResponseStep for RewriteCookieStep {
    fn apply(&self, head: &mut ResponseHead, view: &ResponseView<'_>, turn: &mut Turn<'_>) {
        if view.endpoint.is_none() {
            return;
        }
        let mut from = 0;
        while let Some(place) = head.fields.find_from(&self.set_cookie, from) {
            from = place + 1;
            let (values, scratch) = turn.response_values(head, view);
            scratch.clear();
            if self.write(head.fields.value_at(place), &values, scratch) {
                head.fields.set_at(place, scratch);
            }
        }
    }
}

impl RewriteCookieStep {
    /// Writes the new value of a field. False: it is about another cookie.
    fn write(&self, value: &[u8], values: &Values<'_>, out: &mut Vec<u8>) -> bool {
        let mut parts = value.split(|&byte| byte == b';');
        let pair = parts.next().unwrap_or_default();
        let (name, _) = split_at_equals(pair);
        if self.name.as_ref().is_some_and(|pattern| !pattern.is(name.trim_ascii())) {
            return false;
        }
        out.extend_from_slice(pair);
        let mut seen = [false; NAMES.len()];
        for part in parts {
            let (name, _) = split_at_equals(part);
            let place = NAMES.iter().position(|known| name.trim_ascii().eq_ignore_ascii_case(known.as_bytes()));
            match place.and_then(|place| Some((self.rules[place].as_ref()?, &mut seen[place]))) {
                Some((rule, seen)) => rule.change(part, seen, values, out),
                None => push_part(part, out),
            }
        }
        for ((rule, seen), name) in self.rules.iter().zip(seen).zip(NAMES) {
            if let (Some(Rule::Always(text)), false) = (rule, seen) {
                out.extend_from_slice(b"; ");
                let start = out.len();
                out.extend_from_slice(name.as_bytes());
                if !text.write(values, out) {
                    out.truncate(start - 2);
                }
            }
        }
        true
    }
}

fn push_part(part: &[u8], out: &mut Vec<u8>) {
    out.push(b';');
    out.extend_from_slice(part);
}

impl Rule {
    /// Writes what becomes of an attribute, which is `part` with its name. Only the last of several counts to browsers: where one
    /// stands for all, the first is changed, and others go.
    fn change(&self, part: &[u8], seen: &mut bool, values: &Values<'_>, out: &mut Vec<u8>) {
        let was_seen = std::mem::replace(seen, true);
        let (name, value) = split_at_equals(part);
        let value = value.trim_ascii();
        match self {
            Self::Never => {}
            Self::Always(_) if was_seen => {}
            Self::Always(Text::Flag) => push_part(part, out),
            Self::Always(text) => {
                let start = out.len();
                push_part(name, out);
                if !text.write(values, out) {
                    out.truncate(start);
                    push_part(part, out);
                }
            }
            Self::Replaced(replaced) => {
                let start = out.len();
                push_part(name, out);
                out.push(b'=');
                match replaced.write(value, values, out) {
                    Outcome::Changed => {}
                    Outcome::Removed => out.truncate(start),
                    Outcome::Kept => {
                        out.truncate(start);
                        push_part(part, out);
                    }
                }
            }
        }
    }
}

impl Text {
    /// Writes `=` and the text. False: it cannot stand there, or is nothing; what was written is the caller's to take back.
    fn write(&self, values: &Values<'_>, out: &mut Vec<u8>) -> bool {
        match self {
            Self::Flag => true,
            Self::Fixed(text) => {
                out.push(b'=');
                out.extend_from_slice(text.as_bytes());
                true
            }
            Self::Template(attribute, template) => {
                out.push(b'=');
                let start = out.len();
                template.write(values, out);
                attribute.settle(start, out)
            }
        }
    }
}
