//! Escapes foreign text for a terminal, which control characters could drive.

/// Returns a text of one line: line ends are shown too.
pub(crate) fn line(text: &str) -> String {
    escaped(text, &[])
}

/// Returns a text of lines, which may have tabs.
pub(crate) fn lines(text: &str) -> String {
    escaped(text, &['\n', '\t'])
}

fn escaped(text: &str, kept: &[char]) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && !kept.contains(&c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_drive_a_terminal_is_shown() {
        let text = "down \u{1b}]0;x\u{7}\u{9b}2J\r\té\nnext";
        assert_eq!(line(text), "down \\u{1b}]0;x\\u{7}\\u{9b}2J\\r\\té\\nnext");
        assert_eq!(lines(text), "down \\u{1b}]0;x\\u{7}\\u{9b}2J\\r\té\nnext");
    }
}
