//! Whether an expression is complete: each of its brackets and texts is closed in it.
//!
//! It follows the lexis of CEL as the compiler of expressions does. What is wrong otherwise is found when the expression is compiled.

/// Returns whether every bracket and text of an expression is closed in it, and none that it did not open. An empty one is not.
pub(super) fn is_closed(text: &str) -> bool {
    let mut open: Vec<char> = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if rest.starts_with("//") {
            rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
            continue;
        }
        if let Some(prefix) = prefix_of_text(rest) {
            let Some(behind) = behind_text(&rest[prefix..], prefix > 0) else { return false };
            rest = behind;
            continue;
        }
        if is_of_word(first) {
            rest = rest.trim_start_matches(is_of_word);
            continue;
        }
        match first {
            '(' => open.push(')'),
            '[' => open.push(']'),
            '{' => open.push('}'),
            ')' | ']' | '}' if open.pop() != Some(first) => return false,
            _ => {}
        }
        rest = &rest[first.len_utf8()..];
    }
    open.is_empty() && !text.trim().is_empty()
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Returns the length of what precedes the quote of a text that begins here, if one does.
fn prefix_of_text(rest: &str) -> Option<usize> {
    let prefix = rest.len() - rest.trim_start_matches(['r', 'R', 'b', 'B']).len();
    (prefix <= 2 && rest[prefix..].starts_with(['"', '\''])).then_some(prefix)
}

/// Returns what follows a text that begins with its quote, if the text ends.
fn behind_text(rest: &str, is_raw: bool) -> Option<&str> {
    let quote = rest.get(..1)?;
    let triple = quote.repeat(3);
    let close = if rest.starts_with(&triple) { triple.as_str() } else { quote };
    let mut rest = &rest[close.len()..];
    loop {
        if let Some(behind) = rest.strip_prefix(close) {
            return Some(behind);
        }
        let mut letters = rest.chars();
        match letters.next()? {
            '\n' | '\r' if close.len() == 1 => return None,
            '\\' if !is_raw => drop(letters.next()?),
            _ => {}
        }
        rest = letters.as_str();
    }
}

#[cfg(test)]
mod tests {
    use super::is_closed;

    #[test]
    fn an_expression_closes_what_it_opens() {
        for whole in
            ["true", "(a[1] == {'k': 1}.k) // ) (", "'(' == \"[\"", "r'\\' == '\\''", "\"\"\"a\n\"(\"\"\" == ''", "bar"]
        {
            assert!(is_closed(whole), "{whole}");
        }
        for open in [
            "true) || (true",
            "(",
            ")",
            "(]",
            "a == '",
            "a == \"\"\"",
            "\"\"\" || true",
            "'\\'",
            "'a\nb'",
            "",
            " \n",
            "[(])",
        ] {
            assert!(!is_closed(open), "{open}");
        }
    }
}
