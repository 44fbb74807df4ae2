//! Regular expressions as filters take them: bounded in size, over bytes, in linear time.

use model::Issue;
use regex::bytes::{Regex, RegexBuilder};

/// Bound of a compiled expression, and of the states that matching may build at a time.
const EXPRESSION_BYTES_MAX: usize = 1 << 20;

/// Compiles an expression that matches anywhere. Classes such as `\w` mean ASCII.
pub(super) fn compile(pattern: &str) -> Result<Regex, Issue> {
    let built = RegexBuilder::new(pattern)
        .unicode(false)
        .size_limit(EXPRESSION_BYTES_MAX)
        .dfa_size_limit(EXPRESSION_BYTES_MAX)
        .build();
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => Issue::at("", "the expression is too large once compiled")
            .suggest("use smaller repetitions, such as {1,20} instead of {1,1000}"),
        error => {
            let text = error.to_string();
            let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
            Issue::at("", format!("`{pattern}` is not a regular expression: {reason}"))
        }
    })
}

/// Compiles an expression that must match the whole text.
pub(super) fn compile_whole(pattern: &str) -> Result<Regex, Issue> {
    // On its own first: `a)|(?:b` would otherwise close the group below and escape the anchors.
    compile(pattern)?;
    compile(&format!(r"\A(?:{pattern})\z"))
}
