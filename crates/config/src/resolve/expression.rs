//! Regular expressions of conditions: whether they can be read, so that a bad one is reported with all else that is wrong with a route, and
//! whether one for a path can hold at all. How large one becomes is found when it is compiled.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind, Look};

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
        if shapes(&parsed) & NOT_EMPTY == 0 && begins(&parsed, b'/').0 {
            let message = format!(
                "no path matches `{pattern}`: `^` stands only at the beginning of a whole path, and `$` at its end"
            );
            let mend = "take it out, or write `\\^` or `\\$` for the character".to_owned();
            self.warn(at, message, Some(mend));
            return;
        }
        // An OPTIONS request may have `*` in the place of a path.
        if begins(&parsed, b'/').0 || begins(&parsed, b'*').0 {
            return;
        }
        let mend = format!("write `{}`", mend(pattern));
        let message = format!("no path matches `{pattern}`: it must match the whole path, which begins with `/`");
        self.warn(at, message, Some(mend));
    }
}

/// Parses an expression as the program compiles it: over bytes, with ASCII classes.
fn parse(pattern: &str) -> Result<Hir, String> {
    ParserBuilder::new().unicode(false).utf8(false).build().parse(pattern).map_err(|error| {
        let text = error.to_string();
        text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
    })
}

/// Returns whether a match may begin with a byte, and whether it may be empty. What stands between characters, such as `^` and `\b`, is
/// taken to hold: the answer `false` is certain. The parser bounds how deep an expression nests.
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

/// Ways in which a part of an expression can match, as bits of a set: by whether it takes any byte, whether nothing may stand before
/// it, and whether nothing may stand behind it.
type Shapes = u8;

/// The ways that take a byte: those with odd numbers.
const NOT_EMPTY: Shapes = 0b1010_1010;
/// More repetitions than there are ways match in no other ways.
const REPEATED_MAX: u32 = 8;

fn shape(takes: bool, is_first: bool, is_last: bool) -> Shapes {
    1 << (u8::from(takes) | u8::from(is_first) << 1 | u8::from(is_last) << 2)
}

/// Returns the ways in which a part can match. What stands between characters, but for `^` and `$`, is taken to hold: that there is none is
/// certain.
fn shapes(part: &Hir) -> Shapes {
    match part.kind() {
        HirKind::Look(Look::Start) => shape(false, true, false),
        HirKind::Look(Look::End) => shape(false, false, true),
        HirKind::Empty | HirKind::Look(_) => shape(false, false, false),
        HirKind::Literal(literal) => shape(!literal.0.is_empty(), false, false),
        HirKind::Class(Class::Bytes(class)) if class.ranges().is_empty() => 0,
        HirKind::Class(Class::Unicode(class)) if class.ranges().is_empty() => 0,
        HirKind::Class(_) => shape(true, false, false),
        HirKind::Capture(group) => shapes(&group.sub),
        HirKind::Concat(parts) => parts.iter().map(shapes).fold(shape(false, false, false), joined),
        HirKind::Alternation(branches) => branches.iter().map(shapes).fold(0, |one, other| one | other),
        HirKind::Repetition(repeated) => {
            let (one, fewest) = (shapes(&repeated.sub), repeated.min.min(REPEATED_MAX));
            let most = repeated.max.unwrap_or(REPEATED_MAX).min(REPEATED_MAX);
            let (mut all, mut so_far) = (0, shape(false, false, false));
            for count in 0..=most {
                all |= if count >= fewest { so_far } else { 0 };
                so_far = joined(so_far, one);
            }
            all
        }
    }
}

/// Returns the ways in which two parts match one behind the other.
fn joined(before: Shapes, behind: Shapes) -> Shapes {
    let has = |set: Shapes, way: u8| set & (1 << way) != 0;
    let (takes, is_first, is_last) = (1, 2, 4);
    let ways = |set: Shapes| (0..8).filter(move |way| has(set, *way));
    let clash = |(one, other): &(u8, u8)| {
        (one & is_last != 0 && other & takes != 0) || (other & is_first != 0 && one & takes != 0)
    };
    let pairs = ways(before).flat_map(|one| ways(behind).map(move |other| (one, other)));
    pairs.filter(|pair| !clash(pair)).fold(0, |all, (one, other)| all | 1 << (one | other))
}

/// Returns the expression as it may have been meant: anywhere in the path, or at its beginning.
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
    fn an_expression_that_asks_for_an_end_in_the_middle_matches_nothing_and_no_other_does() {
        let may = |pattern: &str| {
            shapes(&parse(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"))) & NOT_EMPTY != 0
        };
        for none in
            ["/a$b", "/x^y", "$/", "/(^a|$b)", "(?:/a$){2}", "/(?:$x)+", "/[^\\x00-\\xff]", "^$", "/a$.+", r"/\A"]
        {
            assert!(!may(none), "{none}");
        }
        for some in [
            "/",
            "^/a$",
            "^^/$$",
            "/a$b?",
            "/(a$|b)c",
            "(^/|x)y",
            "/(?:$x)*",
            "(?:^/?)+",
            "(?:/a$?){9}",
            "/a$()",
            "(?m)/a$b",
            r"/\ba",
            "(?:^/a$)",
            "(?:$|/)+",
            "/[$]b",
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
