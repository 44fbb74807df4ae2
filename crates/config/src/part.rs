//! Where a part of a text stands in the document that says the text.

use model::Issue;

use crate::source::{Documents, Span, lines};
use crate::tree::Node;

/// Lines of a text in a block, and around them, that are looked through.
const LINES_MAX: usize = 1_000;

/// Returns the place of an issue: that of the part that it is about, where the document says that part as it is, or that of the whole value.
pub(crate) fn place_of(documents: &Documents, tree: &Node, issue: &Issue) -> Span {
    let whole = tree.locate(&issue.path);
    let Some((start, end)) = issue.part else { return whole };
    // What came from the environment does not stand in the document.
    let Some(scalar) = tree.scalar(&issue.path).filter(|scalar| scalar.written.is_none()) else { return whole };
    let (text, document) = (scalar.text.as_str(), documents.get(whole.file));
    let (Some(document), true) = (document, text.is_char_boundary(start.min(text.len()))) else { return whole };
    let (start, end) = (start.min(text.len()), end.min(text.len()));
    find(&document.text, (text, start, end), whole).unwrap_or(whole)
}

fn find(document: &str, (text, start, end): (&str, usize, usize), whole: Span) -> Option<Span> {
    let begin = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let line = text[begin..].lines().next().unwrap_or_default();
    let within = &text[begin..start];
    // The mark ends with the line.
    let marked = text.get(start..end)?.lines().next().unwrap_or_default().chars().count().max(1);
    let first = (whole.line as usize).checked_sub(1)?;
    let at = |line: usize, column: usize| {
        let (line, column) = (u32::try_from(line + 1).ok()?, u32::try_from(column + 1).ok()?);
        Some(Span { line, column, end: column.saturating_add(u32::try_from(marked).ok()?), ..whole })
    };
    let opening = lines(document).nth(first)?;
    let skipped = (whole.column as usize).checked_sub(1)?;
    let rest = opening.char_indices().nth(skipped).map_or("", |(at, _)| &opening[at..]);
    if begin == 0
        && let Some(column) = in_quotes(rest, within)
    {
        return at(first, skipped + column);
    }
    if begin == 0
        && let Some(found) = rest.find(line)
    {
        return at(first, skipped + rest[..found].chars().count() + within.chars().count());
    }
    let line = line.trim_end();
    if line.is_empty() {
        return None;
    }
    // A block: its lines follow more or less space, and begin where the value does or a line later.
    let wanted = text[..begin].matches('\n').count();
    lines(document).enumerate().skip(first + wanted).take(LINES_MAX).find_map(|(number, found)| {
        let indent = found.len() - found.trim_start_matches(' ').len();
        let shift = found.find(line)?;
        (shift <= indent).then(|| at(number, found[..shift].chars().count() + within.chars().count()))?
    })
}

/// Returns how far behind the opening quote, which is counted, that part of a quoted text ends that stands for `within`.
fn in_quotes(source: &str, within: &str) -> Option<usize> {
    let quote = source.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    let mut source = source.chars().skip(1);
    let mut column = 1;
    for wanted in within.chars() {
        let found = source.next()?;
        column += 1;
        let meant = match found {
            '\\' if quote == '"' => {
                column += 1;
                source.next().filter(|escaped| matches!(escaped, '"' | '\\' | '/'))?
            }
            '\'' if quote == '\'' => {
                column += 1;
                source.next().filter(|second| *second == '\'')?
            }
            found => found,
        };
        if meant != wanted {
            return None;
        }
    }
    Some(column)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Document, FileId};

    fn marked(yaml: &str, path: &str, (start, end): (usize, usize)) -> String {
        let mut documents = Documents::default();
        let document = Document { name: "a.yaml".into(), folder: "".into(), text: yaml.into(), on_disk: false };
        let file: FileId = documents.add(document);
        let (mut budget, mut sink) = (<_>::default(), <_>::default());
        let tree = crate::yaml::parse(file, yaml, &mut budget, &mut sink).unwrap();
        let span = place_of(&documents, &tree, &Issue::at(path, "wrong").within(start, end));
        let line = lines(yaml).nth(span.line as usize - 1).unwrap();
        let (from, to) = (span.column as usize - 1, span.end as usize - 1);
        line.chars().skip(from).take(to.saturating_sub(from)).collect()
    }

    #[test]
    fn a_part_of_a_text_is_marked_however_the_text_is_written() {
        for (yaml, start, end, wanted) in [
            ("a: one two\n", 4, 7, "two"),
            ("a:   one two # three\n", 4, 7, "two"),
            ("a: \"one two\"\n", 4, 7, "two"),
            ("a: \"o\\\"e two\"\n", 4, 7, "two"),
            ("a: 'o''e two'\n", 4, 7, "two"),
            ("a: 'é\" two'\n", 4, 7, "two"),
            ("{ b: x, a: 'one two' }\n", 4, 7, "two"),
            ("a: |\n  one\n  two two\n", 8, 11, "two"),
            ("a: >\n  one\n  two\n", 4, 7, "one\n"),
            ("a: >-\n  one two\n", 4, 7, "two"),
        ] {
            let found = marked(yaml, "a", (start, end));
            assert!(found == wanted || wanted.ends_with('\n'), "{yaml}: {found}");
        }
    }

    #[test]
    fn a_part_that_is_not_found_is_the_whole_value() {
        assert_eq!(marked("a: \"\\u006fne\"\n", "a", (1, 2)), "\"\\u006fne\"");
        assert_eq!(marked("a: one\n", "a", (3, 4)), " ".trim_end());
        assert_eq!(marked("a: one\n", "a", (99, 100)), "");
    }
}
