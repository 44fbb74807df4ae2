//! What a suite found, and what is expected of it: one case a line, in a file of the tree.
//!
//! ```text
//! # What the suite is.
//! passed  name of a case
//! failed  name of another  # why that is meant
//! ```

use std::fmt::Write;

/// What became of one case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Its name, on one line.
    pub case: String,
    /// One word: `passed`, `failed`, or what else the suite knows.
    pub verdict: String,
    /// What the suite said of it, for a person.
    pub why: String,
}

impl Verdict {
    /// Passed, or failed for this reason.
    pub(crate) fn of(case: impl Into<String>, result: Result<(), String>) -> Self {
        let (verdict, why) = match result {
            Ok(()) => ("passed", String::new()),
            Err(why) => ("failed", why),
        };
        Self { case: case.into(), verdict: verdict.to_owned(), why }
    }

    /// As our own scripts print it: verdict, name and reason, with tabs between them. `None`: it is another line.
    pub(crate) fn of_line(line: &str) -> Option<Self> {
        let mut columns = line.splitn(3, '\t');
        let (verdict, case, why) = (columns.next()?, columns.next()?, columns.next()?);
        Some(Self { case: case.to_owned(), verdict: verdict.to_owned(), why: why.to_owned() })
    }
}

/// A file of expected verdicts.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    /// The remarks at its head.
    head: String,
    lines: Vec<Line>,
}

#[derive(Debug)]
struct Line {
    case: String,
    verdict: String,
    remark: Option<String>,
}

impl Expected {
    /// Reads a file's text.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut expected = Self::default();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            if line.starts_with('#') {
                let _ = writeln!(expected.head, "{line}");
                continue;
            }
            let (line, remark) = match line.split_once("  # ") {
                Some((line, remark)) => (line, Some(remark.to_owned())),
                None => (line, None),
            };
            let (verdict, case) = line.split_once("  ").ok_or_else(|| format!("no verdict and case: {line:?}"))?;
            expected.lines.push(Line { case: case.trim().to_owned(), verdict: verdict.to_owned(), remark });
        }
        Ok(expected)
    }

    /// What differs, a line each; nothing: all is as expected.
    pub(crate) fn differences(&self, found: &[Verdict]) -> Vec<String> {
        let mut out = Vec::new();
        for verdict in found {
            match self.lines.iter().find(|line| line.case == verdict.case) {
                None => out.push(format!("{} (new): {}{}", verdict.case, verdict.verdict, because(verdict))),
                Some(line) if line.verdict == verdict.verdict => {}
                Some(line) => {
                    let (wanted, got) = (&line.verdict, &verdict.verdict);
                    out.push(format!("{}: {got} instead of {wanted}{}", verdict.case, because(verdict)));
                }
            }
        }
        let gone = self.lines.iter().filter(|line| !found.iter().any(|verdict| verdict.case == line.case));
        out.extend(gone.map(|line| format!("{}: was not run, {} was expected", line.case, line.verdict)));
        out
    }

    /// Cases that do not pass, with the reason why that is meant.
    pub(crate) fn exceptions(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        let exceptional = self.lines.iter().filter(|line| line.verdict == "failed");
        exceptional.map(|line| (line.case.as_str(), line.remark.as_deref()))
    }

    /// The text of a file that expects what was found; remarks on what has not changed stay.
    pub(crate) fn accept(&self, what: &str, found: &[Verdict]) -> String {
        let mut text = self.head.clone();
        if text.is_empty() {
            let _ = writeln!(text, "# {what}");
        }
        for verdict in found {
            let _ = write!(text, "{}  {}", verdict.verdict, verdict.case);
            let same = |line: &&Line| line.case == verdict.case && line.verdict == verdict.verdict;
            if let Some(remark) = self.lines.iter().find(same).and_then(|line| line.remark.as_ref()) {
                let _ = write!(text, "  # {remark}");
            }
            text.push('\n');
        }
        text
    }
}

fn because(verdict: &Verdict) -> String {
    if verdict.why.is_empty() { String::new() } else { format!("\n      {}", verdict.why.replace('\n', "\n      ")) }
}

/// How many of each verdict there are: `144 passed, 1 failed`.
pub(crate) fn tally(found: &[Verdict]) -> String {
    let mut kinds: Vec<(&str, usize)> = Vec::new();
    for verdict in found {
        match kinds.iter_mut().find(|(kind, _)| *kind == verdict.verdict) {
            Some((_, count)) => *count += 1,
            None => kinds.push((&verdict.verdict, 1)),
        }
    }
    kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let words: Vec<String> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    if words.is_empty() { "no case was run".to_owned() } else { words.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# A suite.\npassed  one\nfailed  two  # RFC 1 section 2\npassed  three\n";

    fn verdict(case: &str, verdict: &str) -> Verdict {
        Verdict { case: case.to_owned(), verdict: verdict.to_owned(), why: "so it is".to_owned() }
    }

    #[test]
    fn only_lines_of_three_columns_are_verdicts() {
        let found = Verdict::of_line("failed\ta frame\tno such thing").unwrap();
        assert_eq!((found.case.as_str(), found.why.as_str()), ("a frame", "no such thing"));
        assert_eq!(Verdict::of_line("a warning of the library"), None);
    }

    #[test]
    fn what_is_as_expected_differs_in_nothing() {
        let expected = Expected::parse(FILE).unwrap();
        let found = [verdict("three", "passed"), verdict("one", "passed"), verdict("two", "failed")];
        assert_eq!(expected.differences(&found), [""; 0]);
        assert_eq!(expected.exceptions().collect::<Vec<_>>(), [("two", Some("RFC 1 section 2"))]);
    }

    #[test]
    fn what_changed_came_or_went_is_told() {
        let expected = Expected::parse(FILE).unwrap();
        let found = [verdict("one", "failed"), verdict("two", "failed"), verdict("four", "passed")];
        assert_eq!(
            expected.differences(&found),
            [
                "one: failed instead of passed\n      so it is",
                "four (new): passed\n      so it is",
                "three: was not run, passed was expected"
            ]
        );
    }

    #[test]
    fn accepting_keeps_the_reasons_that_still_hold() {
        let expected = Expected::parse(FILE).unwrap();
        let found = [verdict("one", "failed"), verdict("two", "failed")];
        assert_eq!(expected.accept("unused", &found), "# A suite.\nfailed  one\nfailed  two  # RFC 1 section 2\n");
        let fresh = Expected::default().accept("A suite.", &[verdict("two", "passed")]);
        assert_eq!(fresh, "# A suite.\npassed  two\n");
        assert_eq!(tally(&found), "2 failed");
    }

    #[test]
    fn a_line_without_a_verdict_is_refused() {
        assert!(Expected::parse("passed\n").unwrap_err().contains("passed"));
    }
}
