//! Regular expressions of conditions: whether they can be read, so that a bad one is told with all else that is wrong with a route, and
//! whether one for a path can hold at all. How large one becomes is found when it is compiled.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind};

use super::Resolver;

impl Resolver<'_> {
    /// Checks an expression for a value.
    pub(super) fn expression(&mut self, at: &str, pattern: &str) -> Option<Hir> {
        match parse(pattern) {
            Ok(parsed) => Some(parsed),
            Err(reason) => {
                self.report(at, format!("`{pattern}` is not a regular expression: {reason}"), None);
                None
            }
        }
    }

    /// Checks an expression for a path, which must match the whole of it.
    pub(super) fn path_expression(&mut self, at: &str, pattern: &str) {
        let Some(parsed) = self.expression(at, pattern) else { return };
        // An OPTIONS request may have `*` in the place of a path.
        if begins(&parsed, b'/').0 || begins(&parsed, b'*').0 {
            return;
        }
        let mend = format!("write `{}`", mend(pattern));
        let message = format!("no path matches `{pattern}`: it must match the whole path, which begins with `/`");
        self.warn(at, message, Some(mend));
    }
}

/// As the program compiles it: over bytes, with classes that mean ASCII.
fn parse(pattern: &str) -> Result<Hir, String> {
    ParserBuilder::new().unicode(false).utf8(false).build().parse(pattern).map_err(|error| {
        let text = error.to_string();
        text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
    })
}

/// Whether a match may begin with a byte, and whether it may be empty. What stands between characters, such as `^` and `\b`, is taken to
/// hold: the answer `false` is certain. The parser bounds how deep an expression nests.
fn begins(part: &Hir, byte: u8) -> (bool, bool) {
    match part.kind() {
        HirKind::Empty | HirKind::Look(_) => (false, true),
        HirKind::Literal(literal) => (literal.0.first() == Some(&byte), literal.0.is_empty()),
        HirKind::Class(Class::Bytes(class)) => {
            (class.iter().any(|range| (range.start()..=range.end()).contains(&byte)), false)
        }
        HirKind::Class(Class::Unicode(class)) => {
            (class.iter().any(|range| (range.start()..=range.end()).contains(&char::from(byte))), false)
        }
        HirKind::Repetition(repeated) if repeated.max == Some(0) => (false, true),
        HirKind::Repetition(repeated) => {
            let (may_begin, may_be_empty) = begins(&repeated.sub, byte);
            (may_begin, may_be_empty || repeated.min == 0)
        }
        HirKind::Capture(group) => begins(&group.sub, byte),
        HirKind::Concat(parts) => {
            let mut may_begin = false;
            for part in parts {
                let (here, may_be_empty) = begins(part, byte);
                may_begin |= here;
                if !may_be_empty {
                    return (may_begin, false);
                }
            }
            (may_begin, true)
        }
        HirKind::Alternation(branches) => branches
            .iter()
            .map(|branch| begins(branch, byte))
            .fold((false, false), |(may_begin, may_be_empty), (here, empty)| {
                (may_begin || here, may_be_empty || empty)
            }),
    }
}

/// The expression as it may have been meant: anywhere in the path, or at its beginning.
fn mend(pattern: &str) -> String {
    let (core, is_anchored) = match pattern.strip_prefix('^') {
        Some(rest) => (rest, true),
        None => (pattern, false),
    };
    let ends = |text: &str| text.len() - text.trim_end_matches('\\').len();
    let bare = core.strip_suffix('$').filter(|rest| ends(rest).is_multiple_of(2));
    let rest = if bare.is_some() { "" } else { ".*" };
    let core = bare.unwrap_or(core);
    let core = if core.contains('|') { format!("(?:{core})") } else { core.to_owned() };
    let begin = if is_anchored { "/" } else { ".*" };
    // What had no `$` was to match anything behind.
    let whole = if is_anchored || bare.is_some() { format!("{begin}{core}{rest}") } else { format!("{begin}{core}.*") };
    if parse(&whole).is_ok_and(|parsed| begins(&parsed, b'/').0) { whole } else { "/.*".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_that_no_path_can_match_is_known_and_no_other() {
        let may = |pattern: &str| begins(&parse(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}")), b'/').0;
        for none in [
            r"\.php$", r"^\.php$", "api/.*", "^api", "", "$", "(a|b)/.*", "[a-z]+/", r"\w+", "a?", "(?:)b", "/{0}a",
            "[^/*]+", r"\bapi",
        ] {
            assert!(!may(none), "{none}");
        }
        for some in [
            "/",
            "/.*",
            r".*\.php$",
            "^/api",
            "^(/a|b)",
            "a?/x",
            "[^a]*",
            "(?i)/API",
            r"\W.*",
            ".",
            "x*/",
            "(a|/)b",
            r"\A/a\z",
            "(?s).+",
            r"\b/x",
            r"\x2fapi",
            "[/x]",
            "(?-u:[^a])",
            "^.*$",
        ] {
            assert!(may(some), "{some}");
        }
    }

    #[test]
    fn the_mend_of_an_expression_matches_paths() {
        assert_eq!(mend(r"\.php$"), r".*\.php");
        assert_eq!(mend("^api"), "/api.*");
        assert_eq!(mend("^api$"), "/api");
        assert_eq!(mend("api/v1"), ".*api/v1.*");
        assert_eq!(mend(r"\.(gif|png)$"), r".*(?:\.(gif|png))");
        assert_eq!(mend(r"x\$"), r".*x\$.*");
        assert_eq!(mend("$"), ".*");
    }

    #[test]
    fn a_bad_expression_is_told_as_where_it_is_compiled() {
        assert_eq!(parse("(").unwrap_err(), "unclosed group");
        assert_eq!(parse("[z-a]").unwrap_err(), "invalid character class range, the start must be <= the end");
        assert!(parse("a)|(?:b").is_err());
    }
}
