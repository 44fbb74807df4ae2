//! What a response to a health check over HTTP must be and must not be, and what is said of one that is otherwise.
//!
//! Responses come from endpoints that are not trusted. Expressions match in linear time, a body is kept up to a bound, and JSON
//! is read in place, whatever its depth. Reasons quote a bounded part of what came.

mod body;
mod json;
#[cfg(test)]
mod tests;

pub use body::Body;
pub use json::JsonPath;

use model::check::{BodyTest, HealthCheck, HealthCheckKind, HttpCheck, JsonTest, ResponseTests};
use model::fields::Fields;
use model::matching::{ValueMatch, ValueTest};
use model::{FieldName, Issue, ResponseHead};
use regex::bytes::Regex;
use serde_json::Value;

use crate::route::conditions::keep;
use crate::route::expression::{anywhere, whole};
use json::Found;

/// Characters of a value, a text or an expression that a reason quotes.
const QUOTED_CHARS_MAX: usize = 60;

/// The conditions of one check, ready to be used.
#[derive(Debug)]
pub struct Expectation {
    wanted: Conditions,
    refused: Conditions,
    response_bytes_max: usize,
}

#[derive(Debug, Default)]
struct Conditions {
    statuses: Vec<(u16, u16)>,
    fields: Vec<(FieldName, FieldTest)>,
    body: Vec<Text>,
    json: Vec<(JsonPath, ValueIs)>,
}

#[derive(Debug)]
enum FieldTest {
    Present,
    Absent,
    Exact(String),
    Regex(Regex, String),
}

/// A text or an expression that is looked for.
#[derive(Debug)]
struct Text {
    regex: Regex,
    /// As it was written.
    written: String,
    is_regex: bool,
}

#[derive(Debug)]
enum ValueIs {
    Present,
    Absent,
    Equal(Value),
    Matched(Regex, String),
}

/// Returns what is wrong with the conditions of a check, with paths below the check.
pub fn issues_of(check: &HealthCheck) -> Vec<Issue> {
    let mut issues = Vec::new();
    for (index, step) in check.steps.iter().enumerate() {
        if let HealthCheckKind::Http(http) = &step.kind
            && let Err(found) = Expectation::compile(http)
        {
            let at = if check.is_listed { format!("steps/{index}/http") } else { "http".to_owned() };
            issues.extend(found.into_iter().map(|issue| issue.below(&at)));
        }
    }
    issues
}

impl Expectation {
    /// Compiles the conditions of a check.
    ///
    /// # Errors
    /// Everything that is wrong with expressions, paths to JSON values and names of fields, with paths below the check.
    pub fn compile(check: &HttpCheck) -> Result<Self, Vec<Issue>> {
        let mut issues = Vec::new();
        let wanted = Conditions::compile(&check.wanted, ["expect_headers", "expect_body", "expect_json"], &mut issues);
        let refused = Conditions::compile(&check.refused, ["not/headers", "not/body", "not/json"], &mut issues);
        match issues.is_empty() {
            true => Ok(Self { wanted, refused, response_bytes_max: check.response_bytes_max }),
            false => Err(issues),
        }
    }

    /// Returns whether the body of a response matters.
    pub fn needs_body(&self) -> bool {
        [&self.wanted, &self.refused].iter().any(|one| !one.body.is_empty() || !one.json.is_empty())
    }

    /// Looks at the final head of a response.
    ///
    /// # Errors
    /// The first condition that it fails.
    pub fn check_head(&self, head: &ResponseHead) -> Result<(), String> {
        let status = head.status;
        let is_in = |ranges: &[(u16, u16)]| ranges.iter().any(|(low, high)| (*low..=*high).contains(&status));
        if !is_in(&self.wanted.statuses) || is_in(&self.refused.statuses) {
            return Err(format!("answered {status}"));
        }
        let fields = &head.fields;
        let unmet = |(name, test): &(FieldName, FieldTest)| test.unmet(name.as_str(), &values_of(fields, name));
        let met = |(name, test): &(FieldName, FieldTest)| test.met(name.as_str(), &values_of(fields, name));
        let fault = self.wanted.fields.iter().find_map(unmet).or_else(|| self.refused.fields.iter().find_map(met));
        if let Some(fault) = fault {
            return Err(fault);
        }
        let coding = FieldName::new("content-encoding").ok().and_then(|name| head.fields.get(&name));
        match coding
            .filter(|coding| self.needs_body() && !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"))
        {
            Some(coding) => Err(format!("the body is compressed ({}), so it cannot be checked", quoted(coding))),
            None => Ok(()),
        }
    }

    /// Returns whether the body that has come so far decides for the endpoint, whatever follows.
    fn is_met_early(&self, body: &[u8]) -> bool {
        let decides_late =
            !self.wanted.json.is_empty() || !self.refused.json.is_empty() || !self.refused.body.is_empty();
        self.needs_body() && !decides_late && self.wanted.body.iter().all(|text| text.regex.is_match(body))
    }

    /// Looks at what was read of a body, and whether that is all of it.
    fn check_body(&self, body: &[u8], is_whole: bool) -> Result<(), String> {
        if let Some(text) = self.wanted.body.iter().find(|text| !text.regex.is_match(body)) {
            return Err(text.missing(body, is_whole));
        }
        if let Some(text) = self.refused.body.iter().find(|text| text.regex.is_match(body)) {
            let verb = if text.is_regex { "matches" } else { "contains" };
            return Err(format!("the body {verb} {}, which `not` refuses", text.shown()));
        }
        if self.wanted.json.is_empty() && self.refused.json.is_empty() {
            return Ok(());
        }
        if body.is_empty() {
            return Err("the body is empty, expected JSON".to_owned());
        }
        if !is_whole {
            let bound = self.response_bytes_max;
            return Err(format!(
                "the body is longer than {bound} bytes (`response_bytes_max`), too long to read as JSON"
            ));
        }
        self.wanted.json.iter().try_for_each(|(path, test)| test.check(path, body, true))?;
        self.refused.json.iter().try_for_each(|(path, test)| test.check(path, body, false))
    }
}

impl Conditions {
    fn compile(written: &ResponseTests, [fields, body, json]: [&str; 3], issues: &mut Vec<Issue>) -> Self {
        let mut all = Self { statuses: written.statuses.clone(), ..Self::default() };
        for test in &written.fields {
            let test = field_test(test).map_err(|issue| issue.below(&format!("{fields}/{}", test.name)));
            all.fields.extend(keep(test, issues));
        }
        for (index, test) in written.body.iter().enumerate() {
            // Where one stands alone, its path ends at the key.
            let at = format!("{body}{}", place(index, written.body.len()));
            all.body.extend(keep(text(test).map_err(|issue| issue.below(&at)), issues));
        }
        for (index, one) in written.json.iter().enumerate() {
            let at = format!("{json}{}", place(index, written.json.len()));
            let path = keep(JsonPath::parse(&one.path).map_err(|issue| issue.below("path").below(&at)), issues);
            let test = keep(value_is(&one.test).map_err(|issue| issue.below(&at)), issues);
            all.json.extend(path.zip(test));
        }
        all
    }
}

/// Returns the place of an item in a path. One that stands alone may not be in a list.
fn place(index: usize, count: usize) -> String {
    if count == 1 { String::new() } else { format!("/{index}") }
}

fn values_of<'f>(fields: &'f Fields, name: &'f FieldName) -> Vec<&'f [u8]> {
    fields.all(name).collect()
}

fn field_test(written: &ValueMatch) -> Result<(FieldName, FieldTest), Issue> {
    let name = FieldName::new(&written.name).map_err(|message| Issue::at("", message))?;
    let test = match &written.test {
        ValueTest::Present => FieldTest::Present,
        ValueTest::Absent => FieldTest::Absent,
        ValueTest::Exact(text) => FieldTest::Exact(text.clone()),
        ValueTest::Regex(pattern) => {
            FieldTest::Regex(whole(pattern).map_err(|issue| issue.below("regex"))?, pattern.clone())
        }
    };
    Ok((name, test))
}

fn text(written: &BodyTest) -> Result<Text, Issue> {
    match written {
        BodyTest::Contains(text) => {
            let literal = anywhere(&escaped(text)).map_err(|issue| issue.below("contains"))?;
            Ok(Text { regex: literal, written: text.clone(), is_regex: false })
        }
        BodyTest::Regex(pattern) => {
            let regex = anywhere(pattern).map_err(|issue| issue.below("regex"))?;
            Ok(Text { regex, written: pattern.clone(), is_regex: true })
        }
    }
}

/// Returns an expression for these very bytes. Without Unicode an expression has no characters beyond ASCII but by their bytes.
fn escaped(text: &str) -> String {
    text.bytes()
        .map(|byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!(r"\x{byte:02x}") })
        .collect()
}

fn value_is(written: &JsonTest) -> Result<ValueIs, Issue> {
    Ok(match written {
        JsonTest::Present => ValueIs::Present,
        JsonTest::Absent => ValueIs::Absent,
        JsonTest::Equals(value) => ValueIs::Equal(value.clone()),
        JsonTest::Regex(pattern) => {
            ValueIs::Matched(whole(pattern).map_err(|issue| issue.below("regex"))?, pattern.clone())
        }
    })
}

impl FieldTest {
    /// Returns why the values of a field fail.
    fn unmet(&self, name: &str, values: &[&[u8]]) -> Option<String> {
        let first = values.first().map(|value| quoted(value));
        let reason = match (self, first) {
            (Self::Absent, None) => return None,
            (Self::Absent, Some(first)) => format!("is {first}, expected none"),
            (Self::Present, Some(_)) => return None,
            (Self::Present, None) => "is missing".to_owned(),
            (Self::Exact(text), None) => format!("is missing, expected {}", quoted(text.as_bytes())),
            (Self::Regex(_, pattern), None) => {
                format!("is missing, expected one that matches {}", pattern_shown(pattern))
            }
            _ if self.fits_any(values) => return None,
            (Self::Exact(text), Some(first)) => format!("is {first}, expected {}", quoted(text.as_bytes())),
            (Self::Regex(_, pattern), Some(first)) => {
                format!("is {first}, which does not match {}", pattern_shown(pattern))
            }
        };
        Some(format!("the header `{name}` {reason}"))
    }

    /// Returns why the values of a field are excluded.
    fn met(&self, name: &str, values: &[&[u8]]) -> Option<String> {
        let is = match self {
            Self::Absent if values.is_empty() => "missing".to_owned(),
            Self::Absent => return None,
            _ => quoted(values.iter().find(|value| self.fits_any(&[value]))?),
        };
        Some(format!("the header `{name}` is {is}, which `not` refuses"))
    }

    /// Returns whether one of the values passes, of those that are there.
    fn fits_any(&self, values: &[&[u8]]) -> bool {
        values.iter().any(|value| match self {
            Self::Present => true,
            Self::Absent => false,
            Self::Exact(text) => text.as_bytes() == *value,
            Self::Regex(regex, _) => regex.is_match(value),
        })
    }
}

impl Text {
    fn shown(&self) -> String {
        if self.is_regex { pattern_shown(&self.written) } else { quoted(self.written.as_bytes()) }
    }

    fn missing(&self, body: &[u8], is_whole: bool) -> String {
        let subject = match is_whole {
            true => "the body".to_owned(),
            false => format!("within its first {} bytes the body", body.len()),
        };
        let verb = if self.is_regex { "match" } else { "contain" };
        format!("{subject} does not {verb} {}", self.shown())
    }
}

impl ValueIs {
    /// Looks at the value at a path: whether it passes, or with `wanted` off, whether it does not.
    fn check(&self, path: &JsonPath, body: &[u8], wanted: bool) -> Result<(), String> {
        let found = path.find(body).map_err(|why| format!("the body is not JSON: {why}"))?;
        if self.holds(found.as_ref()) == wanted {
            return Ok(());
        }
        let is = found.as_ref().map_or_else(|| "missing".to_owned(), Found::shown);
        let why = match self {
            _ if !wanted => ", which `not` refuses".to_owned(),
            Self::Present => String::new(),
            Self::Absent => ", expected none".to_owned(),
            Self::Equal(value) => format!(", expected {}", Found::of(value).shown()),
            Self::Matched(_, pattern) if found.is_none() => {
                format!(", expected one that matches {}", pattern_shown(pattern))
            }
            Self::Matched(_, pattern) => format!(", which does not match {}", pattern_shown(pattern)),
        };
        Err(format!("JSON at `{path}` is {is}{why}"))
    }

    fn holds(&self, found: Option<&Found>) -> bool {
        match (self, found) {
            (Self::Absent, found) => found.is_none(),
            (_, None) => false,
            (Self::Present, Some(_)) => true,
            (Self::Equal(value), Some(found)) => found.equals(value),
            (Self::Matched(regex, _), Some(found)) => found.text().is_some_and(|text| regex.is_match(text.as_bytes())),
        }
    }
}

/// Returns a value in quotes, cut where it is long. What is no text, or moves a cursor, is escaped.
fn quoted(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(&value[..value.len().min(4 * QUOTED_CHARS_MAX)]);
    let mut shown: String = text.chars().take(QUOTED_CHARS_MAX).collect();
    if text.chars().nth(QUOTED_CHARS_MAX).is_some() {
        shown.push('…');
    }
    format!("{shown:?}")
}

fn pattern_shown(pattern: &str) -> String {
    let cut = if pattern.chars().nth(QUOTED_CHARS_MAX).is_some() { "…" } else { "" };
    let shown: String = pattern.chars().take(QUOTED_CHARS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("`{shown}{cut}`")
}
