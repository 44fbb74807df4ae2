//! The conditions of one route, compiled, as they are tested after host and path have been looked up.

use model::facts::{BodySeen, Caller};
use model::matching::{BodyMatch, Match, PathMatch, ValueMatch, ValueTest};
use model::proxy_protocol::TlvName;
use model::{Cidr, FieldName, Issue, Known, Method, RequestHead};
use regex::bytes::Regex;

use super::body::{Malformed, json, protobuf};
use super::{expression, query};
use crate::expression::{Condition, Names, Scope, Subject, Used};

/// Conditions beyond host, exact path and prefix, which tables answer.
pub(crate) struct Conditions {
    path: PathCondition,
    methods: Methods,
    headers: Box<[(FieldName, Test)]>,
    query: Box<[(Box<[u8]>, Test)]>,
    cookies: Box<[(Box<[u8]>, Test)]>,
    proxy_tlvs: Box<[(TlvName, Test)]>,
    sources: Box<[Cidr]>,
    expression: Option<Condition>,
    body: Option<Box<BodyCondition>>,
    /// There is an expression, or something is asked of the body.
    asks_more: bool,
}

/// What is asked of a body.
struct BodyCondition {
    json: Box<[(Vec<String>, Test)]>,
    form: Box<[(Box<[u8]>, Test)]>,
    grpc: Box<[(Vec<u32>, Test)]>,
    max: u32,
}

/// What is left to ask of the path.
enum PathCondition {
    /// Nothing, or nothing that the table has not answered.
    Held,
    /// The prefix `/`: every path but `*` and the empty one of CONNECT.
    Rooted,
    Regex(Regex),
    /// The whole path; only where no table is asked.
    Exact(Box<[u8]>),
    /// Whole segments, without the slash at the end; only where no table is asked.
    Prefix(Box<[u8]>),
}

/// Any of these; none means any.
#[derive(Default)]
struct Methods {
    /// One bit for each [`Method`].
    known: u16,
    others: Box<[Box<[u8]>]>,
}

enum Test {
    Present,
    Absent,
    Exact(Box<[u8]>),
    Regex(Regex),
}

/// How specific a route is where host and path are equal; the smaller comes first. The Gateway API's rules: a method,
/// then more header conditions, then more query conditions; then, beyond those rules, more cookies, more values of a PROXY header, then
/// sources, then an expression.
pub(crate) type Rank = (bool, [std::cmp::Reverse<usize>; 4], bool, bool, std::cmp::Reverse<usize>);

/// Returns a prefix as it is kept: without one slash at its end. Nothing is left of `/`, which is no condition, see
/// [`router`](super::router).
pub(crate) fn trimmed(prefix: &str) -> &str {
    prefix.strip_suffix('/').unwrap_or(prefix)
}

impl Conditions {
    /// Compiles what a route asks. Its expression may use these maps and tables.
    ///
    /// # Errors
    /// Every expression or name that is wrong, with its path below `match`.
    pub(crate) fn compile<'n>(asked: &Match, names: impl Into<Names<'n>>) -> Result<Self, Vec<Issue>> {
        let mut conditions = Self::compile_fixed(asked)?;
        if let Some(text) = &asked.expression {
            let compiled = Condition::compile_with(text, Scope::Route, names);
            conditions.expression = Some(compiled.map_err(|issue| vec![issue.below("expression")])?);
            conditions.asks_more = true;
        }
        Ok(conditions)
    }

    /// Compiles all but the expression.
    fn compile_fixed(asked: &Match) -> Result<Self, Vec<Issue>> {
        let mut issues = Vec::new();
        let path = keep(path(asked.path.as_ref()), &mut issues).unwrap_or(PathCondition::Held);
        let field = |name: &str| FieldName::new(name).map_err(|message| Issue::at("", message));
        let bytes = |name: &str| Ok(name.as_bytes().into());
        let tlv = |name: &str| TlvName::parse(name).map_err(|message| Issue::at("", message));
        let conditions = Self {
            path,
            methods: Methods::compile(&asked.methods),
            headers: tests("headers", &asked.headers, field, &mut issues),
            query: tests("query", &asked.query, bytes, &mut issues),
            cookies: tests("cookies", &asked.cookies, bytes, &mut issues),
            proxy_tlvs: tests("proxy_tlvs", &asked.proxy_tlvs, tlv, &mut issues),
            sources: asked.sources.clone().into(),
            expression: None,
            body: asked.body.as_deref().map(|body| Box::new(BodyCondition::compile(body, &mut issues))),
            asks_more: asked.body.is_some(),
        };
        if issues.is_empty() { Ok(conditions) } else { Err(issues) }
    }

    /// Returns the same for use without a router's tables: exact paths and prefixes are asked for here too. Hosts and the expression are
    /// not.
    ///
    /// # Errors
    /// As [`Self::compile`].
    pub(crate) fn compile_alone(asked: &Match) -> Result<Self, Vec<Issue>> {
        let mut conditions = Self::compile_fixed(asked)?;
        match &asked.path {
            Some(PathMatch::Exact(path)) => conditions.path = PathCondition::Exact(path.as_bytes().into()),
            Some(PathMatch::Prefix(prefix)) if !trimmed(prefix).is_empty() => {
                conditions.path = PathCondition::Prefix(trimmed(prefix).as_bytes().into());
            }
            _ => {}
        }
        Ok(conditions)
    }

    /// Returns where the route stands among those of equal host and path.
    pub(crate) fn rank(&self) -> Rank {
        let more = |count: usize| std::cmp::Reverse(count);
        (
            self.methods.is_any(),
            [self.headers.len(), self.query.len(), self.cookies.len(), self.proxy_tlvs.len()].map(more),
            self.sources.is_empty(),
            self.expression.is_none(),
            more(self.body.as_ref().map_or(0, |body| body.len())),
        )
    }

    /// Returns whether all of them hold. `scratch` may be written beyond what it holds, which stays.
    #[inline]
    pub(crate) fn hold(&self, head: &RequestHead, caller: Caller<'_>, scratch: &mut Vec<u8>) -> bool {
        self.methods.hold(head)
            && self.path.holds(head.path())
            && (self.sources.is_empty() || self.sources.iter().any(|source| source.contains(caller.client)))
            && self.headers.iter().all(|(name, test)| test.holds_for_any(head.fields.all(name)))
            && (self.query.is_empty() || self.query_holds(head.query().unwrap_or_default(), scratch))
            && self.cookies.iter().all(|(name, test)| {
                let mut fields = head.fields.all_known(Known::Cookie);
                test.holds(fields.find_map(|field| query::cookie(field, name)))
            })
            && self.proxy_tlvs.iter().all(|(name, test)| test.holds(sent(caller, *name)))
            && (!self.asks_more || self.more_holds(head, caller, scratch))
    }

    /// Returns the maps and tables that its expression uses.
    pub(crate) fn used(&self) -> Option<&Used> {
        self.expression.as_ref().map(Condition::used)
    }

    /// Returns whether there is an expression, or a condition on the body, for which all facts are needed.
    pub(crate) fn asks_more(&self) -> bool {
        self.asks_more
    }

    fn more_holds(&self, head: &RequestHead, caller: Caller<'_>, scratch: &mut Vec<u8>) -> bool {
        (self.expression.is_none() || self.expression_holds(head, caller, scratch))
            && (self.body.is_none() || self.body_holds(head, caller, scratch))
    }

    fn body_holds(&self, head: &RequestHead, caller: Caller<'_>, scratch: &mut Vec<u8>) -> bool {
        let (Some(condition), Some(seen)) = (&self.body, caller.seen) else { return false };
        condition.holds(head, seen.body, scratch)
    }

    fn expression_holds(&self, head: &RequestHead, caller: Caller<'_>, scratch: &mut Vec<u8>) -> bool {
        let (Some(condition), Some(seen)) = (&self.expression, caller.seen) else { return false };
        condition.is_true(Subject::of_request(head, &seen.facts).at(seen.now), scratch)
    }

    /// Returns the first condition that does not hold, in words. `asked` is what they were compiled from, `unmet` says what is wrong with a
    /// value.
    pub(crate) fn unmet(
        &self,
        (asked, unmet): (&Match, &dyn Fn(&ValueTest) -> String),
        (head, caller): (&RequestHead, Caller<'_>),
        scratch: &mut Vec<u8>,
    ) -> Option<String> {
        if !self.methods.hold(head) {
            return Some(format!("the method is not {}", asked.methods.join(" or ")));
        }
        if !self.path.holds(head.path()) {
            return Some("the path does not match".to_owned());
        }
        let client = caller.client;
        if !self.sources.is_empty() && !self.sources.iter().any(|source| source.contains(client)) {
            return Some(format!("the client {client} is in none of the networks of `source`"));
        }
        let told = |what: &str, asked: &ValueMatch| Some(format!("the {what} `{}` {}", asked.name, unmet(&asked.test)));
        for ((name, test), asked) in self.headers.iter().zip(&asked.headers) {
            if !test.holds_for_any(head.fields.all(name)) {
                return told("header field", asked);
            }
        }
        for ((name, test), asked) in self.query.iter().zip(&asked.query) {
            if !test.holds_decoded(query::parameter(head.query().unwrap_or_default(), name), scratch) {
                return told("query parameter", asked);
            }
        }
        for ((name, test), asked) in self.cookies.iter().zip(&asked.cookies) {
            let mut fields = head.fields.all_known(Known::Cookie);
            if !test.holds(fields.find_map(|field| query::cookie(field, name))) {
                return told("cookie", asked);
            }
        }
        for ((name, test), asked) in self.proxy_tlvs.iter().zip(&asked.proxy_tlvs) {
            if !test.holds(sent(caller, *name)) {
                return told("value of a PROXY header", asked);
            }
        }
        if self.expression.is_some() && !self.expression_holds(head, caller, scratch) {
            return Some("the expression is not true".to_owned());
        }
        if self.body.is_some() && !self.body_holds(head, caller, scratch) {
            return Some("the body is not known here".to_owned());
        }
        None
    }

    fn query_holds(&self, text: &[u8], scratch: &mut Vec<u8>) -> bool {
        self.query.iter().all(|(name, test)| test.holds_decoded(query::parameter(text, name), scratch))
    }
}

impl BodyCondition {
    fn compile(asked: &BodyMatch, issues: &mut Vec<Issue>) -> Self {
        let issue = |message| Issue::at("", message);
        Self {
            json: tests("body/json", &asked.json, |name| json::pointer(name).map_err(issue), issues),
            form: tests("body/form", &asked.form, |name| Ok(name.as_bytes().into()), issues),
            grpc: tests("body/grpc", &asked.grpc, |name| protobuf::path(name).map_err(issue), issues),
            max: asked.max,
        }
    }

    fn len(&self) -> usize {
        self.json.len() + self.form.len() + self.grpc.len()
    }

    /// Returns whether it holds. Of a body that is not read it says that it wants it, and holds.
    fn holds(&self, head: &RequestHead, body: BodySeen<'_>, scratch: &mut Vec<u8>) -> bool {
        let is_coded = head.fields.iter().any(|field| field.name.eq_ignore_ascii_case(b"content-encoding"));
        match body {
            _ if is_coded => false,
            BodySeen::Unread { length, .. } if length.is_some_and(|length| length > self.max.into()) => false,
            BodySeen::Unread { wanted, .. } => {
                wanted.set(self.max);
                true
            }
            BodySeen::Whole(body) => body.len() <= self.max as usize && self.holds_of(body, scratch),
            BodySeen::Unknown => false,
        }
    }

    fn holds_of(&self, body: &[u8], scratch: &mut Vec<u8>) -> bool {
        let message = protobuf::first_message(body);
        self.json.iter().all(|(pointer, test)| match json::find(body, pointer) {
            Ok(Some(json::Found::Nested)) => matches!(test, Test::Present),
            Ok(found) => test.holds(found.as_ref().and_then(json::Found::bytes)),
            Err(Malformed) => false,
        }) && self.form.iter().all(|(name, test)| test.holds_decoded(query::parameter(body, name), scratch))
            && self.grpc.iter().all(|(path, test)| match message.map(|message| protobuf::find(message, path)) {
                Some(Ok(Some(protobuf::Found::Number(number)))) => test.holds(Some(number.to_string().as_bytes())),
                Some(Ok(Some(protobuf::Found::Bytes(bytes)))) => test.holds(Some(bytes)),
                Some(Ok(None)) => test.holds(None),
                Some(Err(Malformed)) | None => false,
            })
    }
}

impl PathCondition {
    #[inline]
    fn holds(&self, path: &[u8]) -> bool {
        match self {
            Self::Held => true,
            Self::Rooted => path.first() == Some(&b'/'),
            Self::Regex(regex) => regex.is_match(path),
            Self::Exact(whole) => **whole == *path,
            Self::Prefix(prefix) => path.strip_prefix(&**prefix).is_some_and(|rest| rest.is_empty() || rest[0] == b'/'),
        }
    }
}

impl Methods {
    fn compile(asked: &[String]) -> Self {
        let (mut known, mut others) = (0, Vec::new());
        for method in asked {
            match Method::of(method.as_bytes()) {
                Method::Other => others.push(method.as_bytes().into()),
                method => known |= 1 << method as u16,
            }
        }
        Self { known, others: others.into() }
    }

    fn is_any(&self) -> bool {
        self.known == 0 && self.others.is_empty()
    }

    #[inline]
    fn hold(&self, head: &RequestHead) -> bool {
        self.is_any()
            || self.known & 1 << head.method as u16 != 0
            || (head.method == Method::Other && self.others.iter().any(|other| **other == *head.method_bytes()))
    }
}

impl Test {
    fn holds(&self, value: Option<&[u8]>) -> bool {
        match (self, value) {
            (Self::Absent, value) => value.is_none(),
            (_, None) => false,
            (Self::Present, Some(_)) => true,
            (Self::Exact(text), Some(value)) => **text == *value,
            (Self::Regex(regex), Some(value)) => regex.is_match(value),
        }
    }

    /// Returns whether one of several values passes; for `Absent`, whether there is none.
    fn holds_for_any<'a>(&self, mut values: impl Iterator<Item = &'a [u8]>) -> bool {
        match self {
            Self::Absent => values.next().is_none(),
            _ => values.any(|value| self.holds(Some(value))),
        }
    }

    /// Returns whether a percent-encoded value passes.
    fn holds_decoded(&self, raw: Option<&[u8]>, scratch: &mut Vec<u8>) -> bool {
        match (self, raw) {
            (Self::Exact(text), Some(raw)) => query::equals_decoded(raw, text),
            (Self::Regex(regex), Some(raw)) if !query::is_plain(raw) => {
                let before = scratch.len();
                scratch.extend(query::decoded(raw));
                let matches = regex.is_match(&scratch[before..]);
                scratch.truncate(before);
                matches
            }
            _ => self.holds(raw),
        }
    }
}

/// Returns what the PROXY header of a connection said under this name.
fn sent<'a>(caller: Caller<'a>, name: TlvName) -> Option<&'a [u8]> {
    caller.sender?.tlvs.find(name)
}

fn path(asked: Option<&PathMatch>) -> Result<PathCondition, Issue> {
    match asked {
        Some(PathMatch::Prefix(prefix)) if trimmed(prefix).is_empty() => Ok(PathCondition::Rooted),
        Some(PathMatch::Regex(pattern)) => {
            expression::whole(pattern).map(PathCondition::Regex).map_err(|issue| issue.below("path/regex"))
        }
        Some(PathMatch::Exact(_) | PathMatch::Prefix(_)) | None => Ok(PathCondition::Held),
    }
}

fn tests<N>(
    what: &str,
    asked: &[ValueMatch],
    name: impl Fn(&str) -> Result<N, Issue>,
    issues: &mut Vec<Issue>,
) -> Box<[(N, Test)]> {
    let mut tests = Vec::with_capacity(asked.len());
    for condition in asked {
        let place = format!("{what}/{}", condition.name);
        let name = keep(name(&condition.name).map_err(|issue| issue.below(&place)), issues);
        let test = keep(test(&condition.test).map_err(|issue| issue.below(&place)), issues);
        tests.extend(name.zip(test));
    }
    tests.into()
}

fn test(asked: &ValueTest) -> Result<Test, Issue> {
    Ok(match asked {
        ValueTest::Present => Test::Present,
        ValueTest::Absent => Test::Absent,
        ValueTest::Exact(text) => Test::Exact(text.as_bytes().into()),
        ValueTest::Regex(pattern) => Test::Regex(expression::whole(pattern).map_err(|issue| issue.below("regex"))?),
    })
}

/// Puts an error among the others and goes on, so that all are reported at once.
pub(crate) fn keep<T>(result: Result<T, Issue>, issues: &mut Vec<Issue>) -> Option<T> {
    result.map_err(|issue| issues.push(issue)).ok()
}
