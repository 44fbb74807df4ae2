//! What is said of a text that is not YAML: where it went wrong, and the likely mend. The parser often gives up later than the
//! place that has to change: at the end of the file for a bracket that was opened in its middle.

use crate::source::lines;

/// Longest part of a line that is put into a message.
const SHOWN_MAX: usize = 60;

/// A place in the text: the line from 1, the column from 0, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// How far the parser came.
pub(crate) struct Progress {
    /// Where the maps and lists begin that are open, outermost first.
    pub(crate) open: Vec<Spot>,
    /// Up to here the parser has understood the text.
    pub(crate) understood: Spot,
    /// Where it gave up.
    pub(crate) failed: Spot,
}

/// What is wrong, where, and the mend.
#[derive(Debug)]
pub(crate) struct Explained {
    pub(crate) spot: Spot,
    pub(crate) message: String,
    pub(crate) mend: Option<String>,
}

/// A bracket that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bracket {
    sign: char,
    spot: Spot,
}

impl Bracket {
    fn partner(self) -> char {
        if self.sign == '{' { '}' } else { ']' }
    }
}

/// Explains an error of the parser.
pub(crate) fn explain(text: &str, info: &str, progress: &Progress) -> Explained {
    let spot = progress.failed;
    let line = lines(text).nth(spot.line.saturating_sub(1)).unwrap_or_default();
    let explained = of_indicator(line, info, spot)
        .or_else(|| of_quotes(line, info, spot))
        .or_else(|| of_variable(line, info, spot))
        .or_else(|| of_brackets(text, info, progress));
    explained.unwrap_or_else(|| {
        let indent = line.len() - line.trim_start().len();
        let mend =
            line[..indent].contains('\t').then(|| "indent with spaces: YAML does not allow tabs there".to_owned());
        Explained { spot, message: format!("not YAML: {info}"), mend }
    })
}

/// Finds text that begins with a sign with a meaning in YAML.
fn of_indicator(line: &str, info: &str, spot: Spot) -> Option<Explained> {
    let rest: String = line.chars().skip(spot.column).collect();
    let sign = rest.chars().next().filter(|sign| matches!(sign, '*' | '&' | '@' | '`' | '%'))?;
    if !["anchor", "unexpected character"].iter().any(|part| info.contains(part)) {
        return None;
    }
    let token: String =
        rest.chars().take_while(|c| !c.is_whitespace() && !matches!(c, ',' | ']' | '}')).take(SHOWN_MAX).collect();
    let name = token[1..].to_owned();
    let quote = format!("put it in quotes: \"{token}\"");
    let is_word = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'));
    let (message, mend) = match sign {
        '*' if is_word => {
            (format!("no anchor `&{name}` is defined before `{token}`"), format!("define `&{name}` above, or {quote}"))
        }
        '*' => (format!("`{token}` is not text here: `*` refers to an anchor, and there is none of that name"), quote),
        _ => (format!("`{token}` is not text here: text without quotes cannot begin with `{sign}`"), quote),
    };
    Some(Explained { spot, message: format!("not YAML: {message}"), mend: Some(mend) })
}

/// Escapes that double quotes do not know, and quotes that no one closes.
fn of_quotes(line: &str, info: &str, spot: Spot) -> Option<Explained> {
    if info.contains("unknown escape") {
        let chars: Vec<char> = line.chars().collect();
        let at = unknown_escape(&chars, spot.column)?;
        let escape: String = chars[at..].iter().take(2).collect();
        let begin = chars[..at].iter().rposition(|c| *c == '"')?;
        let inner: String = chars[begin + 1..].iter().take_while(|c| **c != '"').collect();
        let mend = match inner.contains('\'') || inner.chars().count() > SHOWN_MAX {
            true => format!("write `\\{escape}`"),
            false => format!("put the text in single quotes: '{inner}'"),
        };
        let message = format!("not YAML: `{escape}` is not a valid escape in double quotes");
        return Some(Explained { spot: Spot { column: at, ..spot }, message, mend: Some(mend) });
    }
    let is_open = ["end of stream", "indentation", "document indicator"].iter().any(|part| info.contains(part));
    if info.contains("quoted scalar") && is_open {
        let quote = line.chars().nth(spot.column).filter(|c| matches!(c, '"' | '\''))?;
        let message = format!("not YAML: the text that begins with `{quote}` here is never closed");
        return Some(Explained { spot, message, mend: Some(format!("add a `{quote}` at its end")) });
    }
    None
}

/// Returns the first escape from a place on that YAML 1.2 (section 5.7) does not have.
fn unknown_escape(chars: &[char], from: usize) -> Option<usize> {
    let mut at = from;
    while at < chars.len() {
        if chars[at] == '\\' {
            match chars.get(at + 1) {
                Some(c) if !"0abtnvfre \"/\\N_LPxuU\t".contains(*c) => return Some(at),
                _ => at += 1,
            }
        }
        at += 1;
    }
    None
}

/// Returns a variable without quotes where its brace means a map.
fn of_variable(line: &str, info: &str, spot: Spot) -> Option<Explained> {
    let before: String = line.chars().take(spot.column + 1).collect();
    let mend = "inside `{ }` and `[ ]`, put text that holds `${…}` in quotes".to_owned();
    before.contains("${").then(|| Explained { spot, message: format!("not YAML: {info}"), mend: Some(mend) })
}

/// Returns a bracket that is never closed, or something between two that a comma should part.
fn of_brackets(text: &str, info: &str, progress: &Progress) -> Option<Explained> {
    let spot = progress.failed;
    let mut scan = Scan::new(text, progress);
    scan.go_on(text, progress.understood, spot);
    let innermost = *scan.open.last()?;
    let line = lines(text).nth(spot.line - 1).unwrap_or_default();
    let found = line.chars().nth(spot.column);
    let never = |detail: String| {
        let message = format!("not YAML: the `{}` that is opened here is never closed{detail}", innermost.sign);
        let mend = format!("add the `{}` that belongs to it", innermost.partner());
        Explained { spot: innermost.spot, message, mend: Some(mend) }
    };
    if found.is_some_and(|found| matches!(found, ']' | '}') && found != innermost.partner()) {
        let found = found.unwrap_or_default();
        return Some(never(format!(": `{found}` in line {} comes first", spot.line)));
    }
    if spot.line > innermost.spot.line && !scan.closes_later(text, spot, innermost) {
        return Some(never(String::new()));
    }
    if !info.contains("expected ','") {
        return None;
    }
    let before = spot.column.checked_sub(1).and_then(|at| line.chars().nth(at));
    let mend = match before.is_some_and(|before| !before.is_whitespace()) {
        true => "inside `{ }` and `[ ]`, put text that holds brackets or commas in quotes".to_owned(),
        false => format!(
            "a comma is missing before this, or the `{}` of line {} is not closed",
            innermost.sign, innermost.spot.line
        ),
    };
    Some(Explained { spot, message: format!("not YAML: {info}"), mend: Some(mend) })
}

/// Follows brackets through a part of the text that the parser gave up on: past quotes and comments, by no finer rule.
struct Scan {
    open: Vec<Bracket>,
    quote: Option<char>,
}

impl Scan {
    fn new(text: &str, progress: &Progress) -> Self {
        let mut open = Vec::new();
        let mut wanted = progress.open.iter().filter(|spot| **spot < progress.understood).peekable();
        for (number, line) in (1..).zip(lines(text)) {
            while let Some(spot) = wanted.next_if(|spot| spot.line == number) {
                let sign = line.chars().nth(spot.column).filter(|c| matches!(c, '{' | '['));
                open.extend(sign.map(|sign| Bracket { sign, spot: *spot }));
            }
            if wanted.peek().is_none() {
                break;
            }
        }
        Self { open, quote: None }
    }

    fn go_on(&mut self, text: &str, from: Spot, to: Spot) {
        let numbered = (1..).zip(lines(text)).skip(from.line.saturating_sub(1));
        for (number, line) in numbered.take_while(|(number, _)| *number <= to.line) {
            let chars: Vec<char> = line.chars().collect();
            let start = if number == from.line { from.column } else { 0 };
            let end = if number == to.line { to.column.min(chars.len()) } else { chars.len() };
            self.line(number, &chars, (start, end));
        }
    }

    fn line(&mut self, number: usize, chars: &[char], (start, end): (usize, usize)) {
        let mut at = start;
        while at < end {
            let sign = chars[at];
            match self.quote {
                Some('"') if sign == '\\' => at += 1,
                Some(quote) if sign == quote => self.quote = None,
                Some(_) => {}
                None => match sign {
                    '#' if at == 0 || chars[at - 1].is_whitespace() => return,
                    '"' | '\'' if is_beginning(chars, at) => self.quote = Some(sign),
                    '{' | '[' if is_beginning(chars, at) => {
                        self.open.push(Bracket { sign, spot: Spot { line: number, column: at } });
                    }
                    '}' | ']' if self.open.last().is_some_and(|open| open.partner() == sign) => drop(self.open.pop()),
                    _ => {}
                },
            }
            at += 1;
        }
    }

    /// Returns whether a bracket is closed after all, before the text goes on where it stood before the bracket.
    fn closes_later(mut self, text: &str, from: Spot, bracket: Bracket) -> bool {
        let indent = |line: &str| line.chars().take_while(|c| *c == ' ').count();
        let own = lines(text).nth(bracket.spot.line - 1).map_or(0, indent);
        let depth = self.open.len();
        for (number, line) in (1..).zip(lines(text)).skip(from.line - 1) {
            if !line.trim().is_empty() && indent(line) <= own && !line.trim_start().starts_with(['}', ']']) {
                return false;
            }
            let chars: Vec<char> = line.chars().collect();
            let start = if number == from.line { from.column.min(chars.len()) } else { 0 };
            // What one line opens it closes in general; one after the other is enough.
            for end in start..chars.len() {
                self.line(number, &chars, (end, end + 1));
                if self.open.len() < depth {
                    return true;
                }
            }
        }
        false
    }
}

/// Returns whether a value may begin there.
fn is_beginning(chars: &[char], at: usize) -> bool {
    let before = chars[..at].iter().rev().find(|c| !c.is_whitespace());
    let is_apart = at == 0 || chars[at - 1].is_whitespace() || matches!(chars[at - 1], '{' | '[' | ',');
    is_apart && before.is_none_or(|before| matches!(before, ':' | ',' | '{' | '[' | '-' | '?'))
}
