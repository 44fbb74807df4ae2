//! What is wrong with a configuration, shown so that it can be mended: file, line, the line itself and a suggestion.

use std::collections::HashSet;
use std::fmt;

use serde::Serialize;

use crate::source::{Document, Documents, Span, lines};

/// Problems shown at most; what is beyond is counted.
pub const DIAGNOSTICS_MAX: usize = 500;
/// Problems for which a nearest name is looked up: comparing names costs time when there are many of them.
const SUGGESTIONS_MAX: usize = 100;
/// Characters of a line that are shown around the place.
const LINE_SHOWN_MAX: usize = 160;

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// File as it was named.
    pub file: String,
    /// From 1; 0 when it concerns the file as a whole.
    pub line: u32,
    /// From 1, in characters.
    pub column: u32,
    /// Characters that are marked, at least one.
    pub width: u32,
    /// The line, cut around the place when it is long, unprintable characters replaced.
    pub line_text: String,
    /// Where `column` lies in `line_text`, from 1; 0 where the line is not shown, since it may hold secrets.
    pub caret: u32,
    /// What is wrong, one sentence without a full stop.
    pub message: String,
    /// How to mend it, if that is known.
    pub suggestion: Option<String>,
    /// The configuration is good all the same.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_warning: bool,
    /// What it has to do with another place, if that is known. Boxed: warnings are kept as long as what they are about.
    #[serde(skip)]
    pub bond: Option<Box<Bond>>,
}

/// How much a diagnostic matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// The configuration is good all the same.
    Warning,
}

impl Severity {
    /// Returns `error` or `warning`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// What a problem has to do with another place than its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Bond {
    /// An object is referred to that is not there: `listeners` or `clusters`, and its name.
    Lacks(&'static str, String),
    /// The document of this name was first to have the name, or has the object beside which this is wrong.
    Taken(String),
}

impl Diagnostic {
    /// Returns how much it matters.
    pub fn severity(&self) -> Severity {
        if self.is_warning { Severity::Warning } else { Severity::Error }
    }

    fn new(problem: &Problem, name: &str, line_text: &str) -> Self {
        let Span { line, column, end, .. } = problem.span;
        let (line_text, caret) = excerpt(line_text, column);
        let shown = u32::try_from(line_text.chars().count()).unwrap_or(u32::MAX);
        let width = end.saturating_sub(column).clamp(1, shown.saturating_sub(caret.saturating_sub(1)).max(1));
        let (message, suggestion) = (printable(&problem.message), problem.suggestion.as_deref().map(printable));
        let (file, bond) = (name.to_owned(), problem.bond.clone().map(Box::new));
        Self { file, line, column, width, line_text, caret, message, suggestion, is_warning: false, bond }
    }

    /// Returns one in a document of which the line is at hand.
    fn within(document: &Document, problem: &Problem, line: Option<&str>) -> Self {
        let is_shown = document.shows_lines();
        let found = Self::new(problem, &document.name, line.filter(|_| is_shown).unwrap_or_default());
        if is_shown { found } else { Self { caret: 0, ..found } }
    }
}

/// Returns the part of a line around a column, and where the column is in it.
fn excerpt(line: &str, column: u32) -> (String, u32) {
    let at = (column as usize).saturating_sub(1);
    let skipped = if at > LINE_SHOWN_MAX / 2 && line.chars().nth(LINE_SHOWN_MAX).is_some() { at - 40 } else { 0 };
    let mut shown = String::new();
    if skipped > 0 {
        shown.push('…');
    }
    let mut rest = line.chars().skip(skipped);
    shown.extend(rest.by_ref().take(LINE_SHOWN_MAX));
    if rest.next().is_some() {
        shown.push('…');
    }
    let caret = at - skipped + 1 + usize::from(skipped > 0);
    (printable(&shown), u32::try_from(caret).unwrap_or(1))
}

/// Replaces what could confuse a terminal.
fn printable(text: &str) -> String {
    let shown = |c: char| match c {
        '\t' | '\n' => ' ',
        c if c.is_control() => '�',
        c => c,
    };
    let mut printed: String = text.chars().take(2_000).map(shown).collect();
    // Warnings are kept as long as what they are about, and there may be one for each of very many clusters.
    printed.shrink_to_fit();
    printed
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_warning { "warning: " } else { "" };
        if self.line == 0 {
            write!(f, "{}: {kind}{}", self.file, self.message)?;
        } else {
            let gutter = self.line.to_string().len().max(3);
            write!(f, "{}:{}:{}: {kind}{}", self.file, self.line, self.column, self.message)?;
            if self.caret > 0 {
                write!(f, "\n {:>gutter$} | {}", self.line, self.line_text.trim_end())?;
                let (indent, marks) = (self.caret.saturating_sub(1) as usize, self.width as usize);
                write!(f, "\n {:>gutter$} | {:indent$}{:^<marks$}", "", "", "")?;
            }
        }
        match &self.suggestion {
            Some(suggestion) => write!(f, "\n     help: {suggestion}"),
            None => Ok(()),
        }
    }
}

/// All problems of a configuration, in the order of files and lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Diagnostics {
    /// At most [`DIAGNOSTICS_MAX`].
    pub list: Vec<Diagnostic>,
    /// How many more there are.
    pub left_out: usize,
    /// Warnings found beside them, in the same order. None of them is counted as a problem.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Diagnostic>,
    /// What it would use and may not ([`crate::Loader::within`]). It was not looked at further: there is nothing else then.
    #[serde(skip)]
    pub beyond: Option<String>,
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for diagnostic in self.list.iter().chain(&self.warnings) {
            writeln!(f, "{diagnostic}\n")?;
        }
        f.write_str(&self.summary())
    }
}

impl Diagnostics {
    /// Counts problems, and warnings apart from them: `2 problems, 1 warning`.
    pub fn summary(&self) -> String {
        let counted = |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
        let mut summary = counted(self.list.len() + self.left_out, "problem");
        if self.left_out > 0 {
            summary.push_str(&format!(", the last {} not shown", self.left_out));
        }
        if !self.warnings.is_empty() {
            summary.push_str(&format!(", {}", counted(self.warnings.len(), "warning")));
        }
        summary
    }
}

impl std::error::Error for Diagnostics {}

impl From<Diagnostic> for Diagnostics {
    fn from(one: Diagnostic) -> Self {
        Self { list: vec![one], ..Self::default() }
    }
}

/// A problem that still needs its line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Problem {
    pub(crate) span: Span,
    pub(crate) message: String,
    pub(crate) suggestion: Option<String>,
    pub(crate) bond: Option<Bond>,
}

/// Collects problems up to the bound.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    problems: Vec<Problem>,
    seen: HashSet<Problem>,
    left_out: usize,
}

impl Sink {
    pub(crate) fn push(&mut self, span: Span, message: impl Into<String>, suggestion: Option<String>) {
        self.add(|| Problem { span, message: message.into(), suggestion, bond: None });
    }

    /// Adds a problem that is bound to another place.
    pub(crate) fn push_bound(&mut self, span: Span, (message, suggestion): (String, Option<String>), bond: Bond) {
        self.add(|| Problem { span, message, suggestion, bond: Some(bond) });
    }

    fn add(&mut self, problem: impl FnOnce() -> Problem) {
        if self.problems.len() >= DIAGNOSTICS_MAX {
            self.left_out += 1;
            return;
        }
        let problem = problem();
        // An aliased node is checked in every place where it stands, but is wrong only once.
        if self.seen.insert(problem.clone()) {
            self.problems.push(problem);
        }
    }

    /// Returns the same, with a message that is made only if it is reported. There is none like it.
    pub(crate) fn push_with(&mut self, span: Span, message: impl FnOnce() -> String) {
        self.add(|| Problem { span, message: message(), suggestion: None, bond: None });
    }

    /// Takes over what another one collected.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.left_out += other.left_out;
        for problem in other.problems {
            self.add(|| problem);
        }
    }

    /// Takes over the same, without what is at a place that has a problem already.
    pub(crate) fn absorb_elsewhere(&mut self, mut other: Self) {
        let known: HashSet<Span> = self.problems.iter().map(|problem| problem.span).collect();
        other.problems.retain(|problem| !known.contains(&problem.span));
        self.absorb(other);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    /// Returns whether looking for a similar name is still worth its time.
    pub(crate) fn wants_suggestions(&self) -> bool {
        self.problems.len() < SUGGESTIONS_MAX
    }

    /// Returns the same for what is no problem.
    pub(crate) fn finish_warnings(self, documents: &Documents) -> Vec<Diagnostic> {
        let mut warnings = self.finish(documents).list;
        warnings.iter_mut().for_each(|warning| warning.is_warning = true);
        warnings
    }

    pub(crate) fn finish(mut self, documents: &Documents) -> Diagnostics {
        self.problems.sort_by_key(|problem| problem.span);
        // They are in the order of files and lines: each text is gone through once, and no further than it takes.
        let mut reading = None;
        let list = self.problems.iter().map(|problem| {
            let Span { file, line: number, .. } = problem.span;
            let Some(document) = documents.get(file) else { return Diagnostic::new(problem, "", "") };
            if reading.as_ref().is_some_and(|(known, _)| *known != file) {
                reading = None;
            }
            let (_, lines) = reading.get_or_insert_with(|| (file, (1_u32..).zip(lines(&document.text)).peekable()));
            while lines.next_if(|(at, _)| *at < number).is_some() {}
            let line = lines.peek().filter(|(at, _)| *at == number).map(|(_, line)| *line);
            Diagnostic::within(document, problem, line)
        });
        Diagnostics { list: list.collect(), left_out: self.left_out, ..Diagnostics::default() }
    }
}

/// Shows one problem.
pub(crate) fn show(documents: &Documents, span: Span, message: &str, suggestion: Option<String>) -> Diagnostic {
    let problem = Problem { span, message: message.to_owned(), suggestion, bond: None };
    let Some(document) = documents.get(span.file) else { return Diagnostic::new(&problem, "", "") };
    let line = (span.line as usize).checked_sub(1).and_then(|at| lines(&document.text).nth(at));
    Diagnostic::within(document, &problem, line)
}

/// Names longer than this are not compared: that would cost the product of their lengths.
const COMPARED_MAX: usize = 64;
/// Letters that may differ in names that are near, however long these are.
const EDITS_MAX: usize = 3;
/// Choices that are listed whole.
const CHOICES_MAX: usize = 8;
/// Of more choices, how many are named.
const CHOICES_NAMED: usize = 3;

/// Returns the candidate most like `word`, if any is near enough to be meant: one letter of three may differ, or one of both goes on where
/// the other ends.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > COMPARED_MAX {
        return None;
    }
    let lower = word.to_lowercase();
    let near = candidates.into_iter().filter(|name| name.len() <= COMPARED_MAX).filter_map(|name| {
        let low = name.to_lowercase();
        let edits = strsim::osa_distance(&lower, &low);
        let (shorter, longer) = if lower.len() < low.len() { (&lower, &low) } else { (&low, &lower) };
        let goes_on = shorter.len() >= 4 && shorter.len() * 2 >= longer.len() && longer.starts_with(shorter.as_str());
        let is_near = edits <= (longer.chars().count() / 3).min(EDITS_MAX) || goes_on;
        is_near.then(|| (strsim::jaro_winkler(&lower, &low), name))
    });
    near.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}

/// Returns `did you mean …?`, or a list of the choices.
pub fn did_you_mean<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str> + Clone) -> Option<String> {
    choose(word, candidates, "")
}

/// Returns the same, which says where all choices are when there are too many to list: `all are in …`.
pub(crate) fn choose<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str> + Clone,
    all: &str,
) -> Option<String> {
    if let Some(name) = nearest(word, candidates.clone()) {
        return Some(format!("did you mean `{name}`?"));
    }
    let count = candidates.clone().into_iter().count();
    let quoted = |names: Vec<&str>| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    match count {
        0 => None,
        1..=CHOICES_MAX => Some(format!("there is {}", quoted(candidates.into_iter().collect()))),
        _ => {
            let all = if all.is_empty() { String::new() } else { format!("; {all}") };
            Some(format!("there are {count}, such as {}{all}", quoted(nearest_few(word, candidates))))
        }
    }
}

/// Returns the candidates that are most like `word`, the nearest first, however far they are.
pub(crate) fn nearest_few<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let lower: String = word.to_lowercase().chars().take(COMPARED_MAX).collect();
    let likeness = |name: &str| match name.len() {
        0..=COMPARED_MAX => strsim::jaro_winkler(&lower, &name.to_lowercase()),
        _ => 0.0,
    };
    let mut scored: Vec<(f64, &str)> = candidates.into_iter().map(|name| (likeness(name), name)).collect();
    // Of equal ones, as of a word that is empty, the first.
    scored.sort_by(|one, other| other.0.total_cmp(&one.0));
    scored.into_iter().take(CHOICES_NAMED).map(|(_, name)| name).collect()
}

/// Returns whether so many choices are listed whole.
pub(crate) fn are_listed(count: usize) -> bool {
    count <= CHOICES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::FileId;

    fn documents(text: &str) -> (Documents, FileId) {
        let mut documents = Documents::default();
        let document = Document { name: "a.yaml".into(), folder: "".into(), text: text.into(), on_disk: false };
        let id = documents.add(document);
        (documents, id)
    }

    #[test]
    fn a_problem_shows_its_line_a_mark_and_the_mend() {
        let (documents, file) = documents("version: 1\nadmn: { bind: x }\n");
        let span = Span { file, line: 2, column: 1, end: 5 };
        let shown = show(&documents, span, "unknown key `admn`", Some("did you mean `admin`?".into())).to_string();
        let wanted =
            "a.yaml:2:1: unknown key `admn`\n   2 | admn: { bind: x }\n     | ^^^^\n     help: did you mean `admin`?";
        assert_eq!(shown, wanted);
    }

    #[test]
    fn lines_of_what_providers_give_are_not_shown() {
        let mut documents = Documents::default();
        let text = "basic_auth: { users: { ann: s3cret }, relm: x }\n".into();
        let name = "provider:fleet:http://a/b.yaml".to_owned();
        let file = documents.add(Document { name, folder: "".into(), text, on_disk: false });
        let span = Span { file, line: 1, column: 39, end: 43 };
        let told = show(&documents, span, "unknown key `relm`", Some("did you mean `realm`?".into()));
        let wanted = "provider:fleet:http://a/b.yaml:1:39: unknown key `relm`\n     help: did you mean `realm`?";
        assert_eq!((told.to_string().as_str(), told.line_text.as_str(), told.caret), (wanted, "", 0));
        let mut sink = Sink::default();
        sink.push(span, "unknown key `relm`", None);
        assert!(!sink.finish(&documents).to_string().contains("s3cret"));
    }

    #[test]
    fn a_long_line_is_cut_around_the_place_and_unprintable_characters_are_replaced() {
        let text = format!("{}\u{1b}[31mX{}", "a".repeat(500), "b".repeat(500));
        let (documents, file) = documents(&text);
        let shown = show(&documents, Span { file, line: 1, column: 506, end: 507 }, "m\u{7}", None);
        assert_eq!(shown.line_text.chars().nth(shown.caret as usize - 1), Some('X'));
        assert!(shown.line_text.chars().count() <= LINE_SHOWN_MAX + 2);
        assert!(!shown.to_string().contains('\u{1b}'));
        assert_eq!(shown.message, "m�");
    }

    #[test]
    fn problems_beyond_the_bound_are_counted() {
        let (documents, file) = documents("a\n");
        let mut sink = Sink::default();
        for n in 0..DIAGNOSTICS_MAX + 7 {
            sink.push(Span { file, line: 1, column: 1, end: 2 }, format!("problem {n}"), None);
        }
        let all = sink.finish(&documents);
        assert_eq!((all.list.len(), all.left_out), (DIAGNOSTICS_MAX, 7));
        assert!(all.to_string().ends_with("507 problems, the last 7 not shown"));
    }

    #[test]
    fn warnings_are_shown_behind_problems_and_counted_apart() {
        let (documents, file) = documents("a\nb\n");
        let sink = |line| {
            let mut sink = Sink::default();
            sink.push(Span { file, line, column: 1, end: 2 }, format!("line {line}"), None);
            sink
        };
        let mut all = sink(2).finish(&documents);
        all.warnings = sink(1).finish_warnings(&documents);
        let wanted = "a.yaml:2:1: line 2\n   2 | b\n     | ^\n\na.yaml:1:1: warning: line 1\n   1 | a\n     | ^\n\n\
                      1 problem, 1 warning";
        assert_eq!(all.to_string(), wanted);
        let severities = [all.list[0].severity(), all.warnings[0].severity()].map(Severity::as_str);
        assert_eq!(severities, ["error", "warning"]);
    }

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let names = ["listeners", "routes", "clusters", "admin", "timeouts"];
        assert_eq!(nearest("timeot", names), Some("timeouts"));
        assert_eq!(nearest("route", names), Some("routes"));
        assert_eq!(nearest("Clusters", names), Some("clusters"));
        assert_eq!(nearest("zzz", names), None);
        assert_eq!(did_you_mean("zzz", ["a", "b"]).unwrap(), "there is `a`, `b`");
        assert_eq!(nearest("compress", ["cors", "rewrite"]), None, "one letter of three may differ");
        assert_eq!(nearest("warn", ["warning", "err"]), Some("warning"), "the beginning of a word");
        assert_eq!(nearest("a", ["b", "ab"]), None);
        let many = ["red", "green", "teal", "grey", "pink", "white", "black", "brown", "violet"];
        assert_eq!(did_you_mean("vanilla", many).unwrap(), "there are 9, such as `violet`, `teal`, `green`");
        assert_eq!(
            choose("", many, "all are there").unwrap(),
            "there are 9, such as `red`, `green`, `teal`; all are there"
        );
    }
}
