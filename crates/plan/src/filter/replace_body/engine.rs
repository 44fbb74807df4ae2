//! Finds the matches of all pairs at once.

use aho_corasick::{AhoCorasick, MatchKind};
use model::Issue;
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::meta::Regex;
use regex_automata::util::captures::Captures;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input, PatternID};

/// Bound of compiled expressions, and of the states that matching may build at a time, in bytes.
const EXPRESSION_BYTES_MAX: usize = 1 << 20;
/// Bytes before a match that an expression may look at: `^` and `\b` look at one.
pub(super) const LOOK_BEHIND: usize = 4;

/// What a pair looks for.
#[derive(Debug)]
pub(super) enum Pattern {
    /// These very bytes.
    Text(String),
    /// Matches of an expression.
    Expression(String),
}

/// A match: the number of its pair, and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub pair: usize,
    pub start: usize,
    pub end: usize,
}

/// Finds matches of several pairs: the leftmost, and among those that begin at one place the one whose pair is listed first.
pub(super) struct Engine {
    kind: Kind,
    /// Bytes from the beginning of a match that must be there to be sure of it.
    window: usize,
}

enum Kind {
    Texts { automaton: AhoCorasick, texts: Box<[Box<[u8]>]>, ignores_case: bool },
    Expressions { regex: Regex, dfa: Box<DFA> },
}

/// What the search of one body keeps.
#[derive(Default)]
pub(super) struct Memory {
    cache: Option<Box<Cache>>,
    captures: Option<Box<Captures>>,
}

impl Engine {
    /// Compiles the pairs. Matches of expressions of up to `match_max` bytes are found.
    ///
    /// # Errors
    /// All together they are too large.
    pub(super) fn compile(patterns: &[Pattern], ignores_case: bool, match_max: usize) -> Result<Self, Issue> {
        let texts = patterns.iter().map(|pattern| match pattern {
            Pattern::Text(text) => Some(text.as_bytes()),
            Pattern::Expression(_) => None,
        });
        let longest = texts.clone().flatten().map(<[u8]>::len).max().unwrap_or_default();
        match texts.map(|text| text.map(Box::from)).collect::<Option<Box<[Box<[u8]>]>>>() {
            Some(texts) => Self::of_texts(texts, ignores_case, longest),
            None => Self::of_expressions(patterns, ignores_case, longest.max(match_max) + LOOK_BEHIND),
        }
    }

    fn of_texts(texts: Box<[Box<[u8]>]>, ignores_case: bool, window: usize) -> Result<Self, Issue> {
        let mut builder = AhoCorasick::builder();
        builder.match_kind(MatchKind::LeftmostFirst).ascii_case_insensitive(ignores_case);
        let automaton =
            builder.build(texts.iter()).map_err(|error| Issue::at("", format!("too many texts: {error}")))?;
        Ok(Self { kind: Kind::Texts { automaton, texts, ignores_case }, window })
    }

    fn of_expressions(patterns: &[Pattern], ignores_case: bool, window: usize) -> Result<Self, Issue> {
        let expressions: Vec<String> = patterns.iter().map(Pattern::as_expression).collect();
        let syntax = syntax::Config::new().unicode(false).utf8(false).case_insensitive(ignores_case);
        let too_large = || {
            Issue::at("", "the expressions are too large once compiled")
                .suggest("use smaller repetitions, or fewer pairs")
        };
        let bounds = Regex::config()
            .utf8_empty(false)
            .nfa_size_limit(Some(EXPRESSION_BYTES_MAX))
            .hybrid_cache_capacity(EXPRESSION_BYTES_MAX);
        let regex = Regex::builder().syntax(syntax).configure(bounds).build_many(&expressions);
        let bounds = DFA::config().cache_capacity(EXPRESSION_BYTES_MAX).skip_cache_capacity_check(true);
        let dfa = DFA::builder().syntax(syntax).configure(bounds).build_many(&expressions);
        match (regex, dfa) {
            (Ok(regex), Ok(dfa)) => Ok(Self { kind: Kind::Expressions { regex, dfa: Box::new(dfa) }, window }),
            _ => Err(too_large()),
        }
    }

    /// Bytes from the beginning of a match that must be there to be sure of it.
    pub(super) fn window(&self) -> usize {
        self.window
    }

    /// Finds the first match at or after `from`.
    pub(super) fn find(&self, text: &[u8], from: usize) -> Option<Found> {
        match &self.kind {
            Kind::Texts { automaton, .. } => {
                let found = automaton.find(aho_corasick::Input::new(text).range(from..))?;
                Some(Found { pair: found.pattern().as_usize(), start: found.start(), end: found.end() })
            }
            Kind::Expressions { regex, .. } => {
                let found = regex.find(Input::new(text).range(from..))?;
                Some(Found { pair: found.pattern().as_usize(), start: found.start(), end: found.end() })
            }
        }
    }

    /// Calls with the groups of a match that was found in `text`.
    pub(super) fn with_groups(&self, text: &[u8], found: Found, memory: &mut Memory, call: impl FnOnce(&Captures)) {
        let Kind::Expressions { regex, .. } = &self.kind else { return };
        let captures = memory.captures.get_or_insert_with(|| Box::new(regex.create_captures()));
        let Ok(pair) = PatternID::new(found.pair) else { return };
        let input = Input::new(text).range(found.start..found.end).anchored(Anchored::Pattern(pair));
        regex.search_captures(&input, captures);
        call(captures);
    }

    /// Where a match may begin, at or after `from`, that more bytes would make or change; the length of the text if none may.
    pub(super) fn open_from(&self, text: &[u8], from: usize, memory: &mut Memory) -> usize {
        let from = from.max(text.len().saturating_sub(self.window));
        let is_open = |at: usize, memory: &mut Memory| match &self.kind {
            Kind::Texts { texts, ignores_case, .. } => {
                let rest = &text[at..];
                texts.iter().any(|text| match text.get(..rest.len()) {
                    Some(begin) if *ignores_case => text.len() > rest.len() && begin.eq_ignore_ascii_case(rest),
                    Some(begin) => text.len() > rest.len() && begin == rest,
                    None => false,
                })
            }
            Kind::Expressions { dfa, .. } => {
                is_alive(dfa, memory.cache.get_or_insert_with(|| Box::new(dfa.create_cache())), text, at)
            }
        };
        (from..text.len()).find(|at| is_open(*at, memory)).unwrap_or(text.len())
    }
}

impl Pattern {
    /// The expression that matches what the pattern does.
    fn as_expression(&self) -> String {
        match self {
            Self::Expression(text) => text.clone(),
            // By bytes: without Unicode an expression takes no others.
            Self::Text(text) => text.bytes().map(|byte| format!("\\x{byte:02x}")).collect(),
        }
    }
}

/// Whether a match that begins at `at` is still possible, or not over, when all of the text is read.
fn is_alive(dfa: &DFA, cache: &mut Cache, text: &[u8], at: usize) -> bool {
    let input = Input::new(text).range(at..).anchored(Anchored::Yes);
    let Ok(mut state) = dfa.start_state_forward(cache, &input) else { return true };
    for byte in &text[at..] {
        match dfa.next_state(cache, state, *byte) {
            Ok(next) if next.is_dead() => return false,
            Ok(next) if !next.is_quit() => state = next,
            // It is unknown.
            _ => return true,
        }
    }
    true
}
