//! Regular expressions as the configuration writes them: bounded in size, over bytes, in linear time.

use model::Issue;
use regex::bytes::{Regex, RegexBuilder};

/// Bound of a compiled expression, and of the states that matching may build at a time, in bytes.
const EXPRESSION_BYTES_MAX: usize = 1 << 20;

/// Compiles an expression that must match the whole text. Classes such as `\w` mean ASCII.
///
/// # Errors
/// An issue without a path.
pub(crate) fn whole(pattern: &str) -> Result<Regex, Issue> {
    // On its own first: `a)|(?:b` would otherwise close the group below and escape the anchors.
    anywhere(pattern)?;
    build(&format!(r"\A(?:{pattern})\z")).map_err(|error| issue_of(pattern, &error))
}

/// Compiles an expression that may match anywhere in the text; otherwise as [`whole`].
pub(crate) fn anywhere(pattern: &str) -> Result<Regex, Issue> {
    build(pattern).map_err(|error| issue_of(pattern, &error))
}

fn issue_of(pattern: &str, error: &regex::Error) -> Issue {
    if let regex::Error::CompiledTooBig(_) = error {
        return Issue::at("", "the expression is too large once compiled")
            .suggest("use smaller repetitions, such as {1,20} instead of {1,1000}");
    }
    let text = error.to_string();
    let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
    Issue::at("", format!("`{pattern}` is not a regular expression: {reason}"))
}

fn build(pattern: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(pattern)
        .unicode(false)
        .size_limit(EXPRESSION_BYTES_MAX)
        .dfa_size_limit(EXPRESSION_BYTES_MAX)
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_matches_only_the_whole_text() {
        let regex = whole("a|ab").unwrap();
        assert!(regex.is_match(b"a") && regex.is_match(b"ab"));
        assert!(!regex.is_match(b"abc") && !regex.is_match(b"xa") && !regex.is_match(b"a\n"));
    }

    #[test]
    fn a_bad_expression_is_an_issue_and_cannot_escape_the_anchors() {
        for bad in ["(", "a)|(?:b", "[z-a]", "x{1000}{1000}", "(?m"] {
            assert!(whole(bad).is_err(), "{bad}");
        }
        let big = whole(r"(\w{1000}){1000}").unwrap_err();
        assert!(big.suggestion.is_some(), "{big}");
    }
}
