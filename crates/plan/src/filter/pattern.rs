//! Names by what they begin or end with, as filters for header fields, query parameters and cookies take them.

use model::Issue;
use model::fields::{is_token, reads_as};

/// A name, of which any part at the beginning, at the end or at both ends may be left open by `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern {
    /// Never empty.
    text: Box<str>,
    opens: bool,
    stays_open: bool,
}

impl NamePattern {
    /// Reads a pattern such as `utm_*`, `*_id` or `*debug*`, or a plain name.
    ///
    /// # Errors
    /// Nothing beside `*`, or a `*` elsewhere than at the ends. The path of the issue is empty.
    pub(super) fn parse(text: &str) -> Result<Self, Issue> {
        let (opens, rest) = text.strip_prefix('*').map_or((false, text), |rest| (true, rest));
        let (stays_open, rest) = rest.strip_suffix('*').map_or((false, rest), |rest| (true, rest));
        if rest.is_empty() {
            let message =
                if text.is_empty() { "the name is empty".to_owned() } else { format!("`{text}` matches every name") };
            return Err(
                Issue::at("", message).suggest("write a name, or a part of one with `*`, such as `x-internal-*`")
            );
        }
        if rest.contains('*') {
            let issue = Issue::at("", format!("`{text}` has a `*` in the middle"));
            return Err(issue.suggest("write `*` at the beginning, at the end, or both"));
        }
        Ok(Self { text: rest.into(), opens, stays_open })
    }

    /// Returns whether its text can be part of a field name.
    pub(super) fn is_token(&self) -> bool {
        is_token(self.text.as_bytes())
    }

    /// Returns whether it holds for these very bytes.
    pub(super) fn is(&self, name: &[u8]) -> bool {
        self.holds(name, |part, text| part == text.as_bytes())
    }

    /// Returns whether it holds for a field name, of which case does not count.
    pub(super) fn is_field(&self, name: &[u8]) -> bool {
        self.holds(name, |part, text| part.eq_ignore_ascii_case(text.as_bytes()))
    }

    /// Returns whether it holds for a field name as endpoints may read it, see [`reads_as`].
    pub(super) fn reads_as_field(&self, name: &[u8]) -> bool {
        self.holds(name, reads_as)
    }

    fn holds(&self, name: &[u8], same: impl Fn(&[u8], &str) -> bool) -> bool {
        let Some(more) = name.len().checked_sub(self.text.len()) else { return false };
        match (self.opens, self.stays_open) {
            (false, false) => same(name, &self.text),
            (false, true) => same(&name[..self.text.len()], &self.text),
            (true, false) => same(&name[more..], &self.text),
            (true, true) => name.windows(self.text.len()).any(|part| same(part, &self.text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_leaves_the_beginning_or_the_end_open() {
        for (pattern, held, others) in [
            ("utm", "utm", "utm_,autm,ut,,UTM"),
            ("utm_*", "utm_,utm_source,utm_*", "utm,xutm_a,UTM_a"),
            ("*_id", "_id,session_id", "id,_id2,_ID"),
            ("*bug*", "bug,debug,bugs,a-bug-b", "bu,,BUG"),
        ] {
            let pattern = NamePattern::parse(pattern).unwrap();
            assert!(held.split(',').all(|name| pattern.is(name.as_bytes())), "{pattern:?}");
            assert!(!others.split(',').any(|name| pattern.is(name.as_bytes())), "{pattern:?}");
        }
    }

    #[test]
    fn field_names_are_compared_as_fields_are() {
        let pattern = NamePattern::parse("x-int-*").unwrap();
        assert!(pattern.is_field(b"X-Int-User") && !pattern.is_field(b"x_int_user"));
        assert!(pattern.reads_as_field(b"X_Int.User") && !pattern.reads_as_field(b"x-integer"));
    }

    #[test]
    fn what_names_everything_or_has_a_star_inside_is_refused() {
        let told = |text| NamePattern::parse(text).unwrap_err().to_string();
        for text in ["*", "**"] {
            assert!(told(text).contains("matches every name"), "{text}");
        }
        assert!(told("").contains("the name is empty"));
        for text in ["a*b", "***", "a**", "*a*b"] {
            assert!(told(text).contains("has a `*` in the middle"), "{text}");
        }
    }
}
