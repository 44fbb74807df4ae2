//! Where a redirect leads: an expression that is taken apart into what the configuration says of the site, and what may come of the
//! request.

use std::fmt;

use model::Issue;

use super::Used;
use super::check::Checker;
use super::evaluate::Evaluation;
use super::names::Names;
use super::parser;
use super::program::{Text, Truth};
use super::scope::Scope;
use super::subject::Subject;
use super::trouble::Trouble;
use super::value::{Bytes, Failed, Scratch};

/// A target, compiled.
pub(crate) struct Target {
    source: Box<str>,
    node: Node,
    used: Used,
}

enum Node {
    Choice(Box<(Truth, Node, Node)>),
    Otherwise(Box<(Node, Node)>),
    Parts(Parts),
}

/// A text in two parts.
#[derive(Default)]
struct Parts {
    /// Of constants and of maps alone: it may name another site.
    configured: Option<Text>,
    /// The rest, which may come of the request.
    rest: Option<Text>,
}

impl Target {
    /// Compiles one that may use these names.
    ///
    /// # Errors
    /// What is wrong with it, and at which character; the path is empty. One is a site that only the request names.
    pub(crate) fn compile<'n>(text: &str, names: impl Into<Names<'n>>) -> Result<Self, Issue> {
        let mut checker = Checker::new(Scope::Request, names.into());
        let parsed = parser::parse(text).and_then(|term| {
            let written = checker.written(&term)?;
            node(written).map_err(|(message, mend)| Trouble::new(term.span, message).suggest(mend))
        });
        let node = parsed.map_err(Trouble::into_issue)?;
        Ok(Self { source: text.into(), node, used: Used::of(checker) })
    }

    /// Returns the maps that it uses.
    pub(crate) fn used(&self) -> &Used {
        &self.used
    }

    /// Calls with the part of the configuration and the rest. Both are empty if there is no value. `scratch` as in
    /// [`super::Condition::is_true`].
    pub(crate) fn with<R>(&self, of: Subject<'_>, scratch: &mut Vec<u8>, call: impl FnOnce(&[u8], &[u8]) -> R) -> R {
        let mut evaluation = Evaluation { of, scratch: Scratch::new(scratch) };
        match parts(&self.node, &mut evaluation) {
            Ok((configured, rest)) => call(evaluation.scratch.get(configured), evaluation.scratch.get(rest)),
            Err(Failed) => call(b"", b""),
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Target").field(&self.source).finish()
    }
}

fn parts<'a>(node: &'a Node, evaluation: &mut Evaluation<'a, '_>) -> Result<(Bytes<'a>, Bytes<'a>), Failed> {
    match node {
        Node::Choice(sides) => match evaluation.truth(&sides.0)? {
            true => parts(&sides.1, evaluation),
            false => parts(&sides.2, evaluation),
        },
        Node::Otherwise(sides) => parts(&sides.0, evaluation).or_else(|Failed| parts(&sides.1, evaluation)),
        Node::Parts(both) => {
            let mut text = |part: Option<&'a Text>| part.map_or(Ok(Bytes::Borrowed(b"")), |part| evaluation.text(part));
            Ok((text(both.configured.as_ref())?, text(both.rest.as_ref())?))
        }
    }
}

/// What is wrong with a target, and what to write instead.
type Wrong = (&'static str, &'static str);

/// Takes a text apart.
fn node(text: Text) -> Result<Node, Wrong> {
    const MIXED: Wrong = (
        "the beginning of the target comes from the configuration or from the request, by turns",
        "write both as whole targets, such as `request.path in maps.NAME ? maps.NAME[request.path] : request.path`",
    );
    Ok(match text {
        text if is_configured(&text) => Node::Parts(Parts { configured: Some(text), rest: None }),
        Text::Choice(sides) => Node::Choice(Box::new((sides.0, node(sides.1)?, node(sides.2)?))),
        Text::Otherwise(sides) => Node::Otherwise(Box::new((node(sides.0)?, node(sides.1)?))),
        Text::Joined(texts) => {
            let mut texts = texts.into_vec();
            let count = texts.iter().take_while(|text| is_configured(text)).count();
            let rest = texts.split_off(count);
            if lacks_host(&texts) {
                return Err((
                    "the request would choose the site that clients are sent to",
                    "use `scheme`, `host` and `path` of the redirect, or take the host from a map",
                ));
            }
            if texts.is_empty() && rest.first().is_some_and(may_be_configured) {
                return Err(MIXED);
            }
            let configured = (!texts.is_empty()).then(|| Text::Joined(texts.into()));
            Node::Parts(Parts { configured, rest: Some(Text::Joined(rest.into())) })
        }
        text if may_be_configured(&text) => return Err(MIXED),
        text => Node::Parts(Parts { configured: None, rest: Some(text) }),
    })
}

/// Returns whether only the request would name the site.
fn lacks_host(configured: &[Text]) -> bool {
    let [Text::Constant(bytes)] = configured else { return false };
    [&b"http://"[..], b"https://", b"//"].contains(&&**bytes)
}

/// Returns whether a text that comes of the request may begin with a value of a map, or with a URL that is written out.
fn may_be_configured(text: &Text) -> bool {
    match text {
        Text::Mapped(_) => true,
        Text::Constant(bytes) => bytes.starts_with(b"http"),
        Text::Choice(sides) => may_be_configured(&sides.1) || may_be_configured(&sides.2),
        Text::Otherwise(sides) => may_be_configured(&sides.0) || may_be_configured(&sides.1),
        Text::Joined(texts) => texts.first().is_some_and(may_be_configured),
        _ => false,
    }
}

/// Returns whether a text consists of constants and of values of maps, whatever the request is.
fn is_configured(text: &Text) -> bool {
    match text {
        Text::Constant(_) => true,
        Text::Mapped(parts) => parts.1.as_ref().is_none_or(is_configured),
        Text::Choice(sides) => is_configured(&sides.1) && is_configured(&sides.2),
        Text::Otherwise(sides) => is_configured(&sides.0) && is_configured(&sides.1),
        Text::Joined(texts) => texts.iter().all(is_configured),
        Text::Lower(inner) | Text::Upper(inner) | Text::Trimmed(inner) => is_configured(inner),
        _ => false,
    }
}
