//! Which media types a filter of bodies changes.

use model::Issue;
use model::fields::is_token;

const TYPES_MAX: usize = 256;
/// The length of a message of gRPC stands in front of it, and its coding is one of its own.
const GRPC: &[u8] = b"application/grpc";

/// The types of a filter, compiled.
#[derive(Debug)]
pub(super) struct Types(Box<[Type]>);

/// A type without parameters, in parts. What is matched is at least as long as all parts together.
#[derive(Debug)]
struct Type {
    start: Box<str>,
    /// Anything may stand between the parts.
    is_open: bool,
    end: Box<str>,
}

impl Types {
    /// Checks the list. Paths of issues are below it.
    pub(super) fn compile<'a>(list: impl ExactSizeIterator<Item = &'a str>) -> Result<Self, Issue> {
        if list.len() == 0 {
            return Err(Issue::at("", "the list is empty").suggest("name a type, or leave `types` out"));
        }
        if list.len() > TYPES_MAX {
            return Err(Issue::at("", format!("{} types are more than {TYPES_MAX}", list.len())));
        }
        let one = |(place, text): (usize, &str)| Type::compile(text).map_err(|issue| issue.below(&place.to_string()));
        list.enumerate().map(one).collect::<Result<_, _>>().map(Self)
    }

    /// Returns whether a body of this `content-type` is changed.
    pub(super) fn hold(&self, content_type: &[u8]) -> bool {
        let name = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        !begins_with(name, GRPC) && self.0.iter().any(|known| known.is(name))
    }
}

impl Type {
    fn compile(text: &str) -> Result<Self, Issue> {
        let wrong = || Issue::at("", format!("`{text}` is not a media type"));
        let lower = text.to_ascii_lowercase();
        if let Some((bare, _)) = lower.split_once(';') {
            return Err(wrong().suggest(format!("parameters do not count: write `{}`", bare.trim())));
        }
        let Some((kind, rest)) = lower.split_once('/') else {
            let hint = if lower == "*" { "write `*/*` for all types" } else { "write it as `text/html` or `text/*`" };
            return Err(wrong().suggest(hint));
        };
        if lower == "*/*" {
            return Ok(Self { start: "".into(), is_open: true, end: "".into() });
        }
        let suffix = rest.strip_prefix('*');
        let is_whole = |part: &str| is_token(part.as_bytes()) && !part.contains('*');
        let is_suffix = |part: &str| part.is_empty() || (part.starts_with('+') && is_whole(part));
        if !is_whole(kind) || !suffix.map_or(is_whole(rest), is_suffix) {
            return Err(wrong().suggest("`*` stands for a whole part, or before a suffix as in `application/*+json`"));
        }
        if begins_with(lower.as_bytes(), GRPC) {
            let issue = Issue::at(
                "",
                format!("bodies of `{text}` cannot be changed: gRPC frames and compresses its messages itself"),
            );
            return Err(issue.suggest("leave it out"));
        }
        Ok(match suffix {
            Some(end) => Self { start: format!("{kind}/").into(), is_open: true, end: end.into() },
            None => Self { start: lower.into(), is_open: false, end: "".into() },
        })
    }

    fn is(&self, name: &[u8]) -> bool {
        let (start, end) = (self.start.as_bytes(), self.end.as_bytes());
        if !self.is_open {
            return name.eq_ignore_ascii_case(start);
        }
        name.len() >= start.len() + end.len()
            && begins_with(name, start)
            && name[name.len() - end.len()..].eq_ignore_ascii_case(end)
    }
}

fn begins_with(text: &[u8], start: &[u8]) -> bool {
    text.get(..start.len()).is_some_and(|found| found.eq_ignore_ascii_case(start))
}
