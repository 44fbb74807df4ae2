//! Text to tokens, as CEL defines them (language definition, "Lexis").

use super::trouble::{Span, Trouble};

/// A token with its place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub span: Span,
    pub kind: TokenKind,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum TokenKind {
    Name(String),
    Int(u64),
    Double(f64),
    Text(String),
    /// An operator or a bracket.
    Sign(&'static str),
    End,
}

/// Signs, the longer of those that begin alike first.
const SIGNS: [&str; 24] = [
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "!", "+", "-", "*", "/", "%", "?", ":", "(", ")", "[", "]", "{", "}",
    ".", ",",
];

/// Words that CEL reserves beside `true`, `false`, `null` and `in`.
const RESERVED: [&str; 16] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "while",
];

/// Splits a text into tokens, of which the last is [`TokenKind::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, Trouble> {
    let mut lexer = Lexer { text, at: 0 };
    let mut all = Vec::new();
    loop {
        let token = lexer.next()?;
        let is_end = token.kind == TokenKind::End;
        all.push(token);
        if is_end {
            return Ok(all);
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn next(&mut self) -> Result<Token, Trouble> {
        self.skip_space();
        let start = self.at;
        let Some(first) = self.rest().chars().next() else {
            return Ok(Token { span: Span::new(start, start), kind: TokenKind::End });
        };
        let quoted = self.quoted();
        let kind = if let Some((is_raw, prefix)) = quoted {
            self.at += prefix;
            TokenKind::Text(self.string(start, is_raw)?)
        } else if first.is_ascii_digit() || (first == '.' && self.rest()[1..].starts_with(|c: char| c.is_ascii_digit()))
        {
            self.number(start)?
        } else if first.is_ascii_alphabetic() || first == '_' {
            self.name(start)?
        } else {
            self.sign(start, first)?
        };
        Ok(Token { span: Span::new(start, self.at), kind })
    }

    /// Skips white space and comments.
    fn skip_space(&mut self) {
        loop {
            let trimmed = self.rest().trim_start_matches([' ', '\t', '\n', '\r', '\u{c}']);
            self.at = self.text.len() - trimmed.len();
            if !trimmed.starts_with("//") {
                return;
            }
            self.at += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }

    /// Returns whether a string begins here, whether it is raw, and the length of its prefix.
    fn quoted(&self) -> Option<(bool, usize)> {
        let rest = self.rest();
        let prefix = rest.len() - rest.trim_start_matches(['r', 'R', 'b', 'B']).len();
        (prefix <= 2 && rest[prefix..].starts_with(['"', '\''])).then_some((prefix > 0, prefix))
    }

    fn string(&mut self, start: usize, is_raw: bool) -> Result<String, Trouble> {
        if self.text[start..self.at].contains(['b', 'B']) {
            let trouble = Trouble::new(Span::new(start, self.at + 1), "there are no literals of bytes");
            return Err(trouble.suggest("leave the `b` out: a text may hold any bytes"));
        }
        let quote = &self.rest()[..1];
        let triple = quote.repeat(3);
        let close = if self.rest().starts_with(&triple) { triple } else { quote.to_owned() };
        self.at += close.len();
        let mut out = String::new();
        loop {
            let rest = self.rest();
            if rest.starts_with(&close) {
                self.at += close.len();
                return Ok(out);
            }
            match rest.chars().next() {
                Some('\n' | '\r') if close.len() == 1 => break,
                None => break,
                Some('\\') if !is_raw => self.escape(&mut out)?,
                Some(other) => {
                    out.push(other);
                    self.at += other.len_utf8();
                }
            }
        }
        Err(Trouble::new(Span::new(start, self.at), "the text is never closed")
            .suggest(format!("add `{close}` at its end")))
    }

    fn escape(&mut self, out: &mut String) -> Result<(), Trouble> {
        let start = self.at;
        let mut rest = self.rest()[1..].chars();
        let wrong = |end: usize| {
            let trouble = Trouble::new(Span::new(start, end), "there is no such escape in texts");
            Err(trouble.suggest(r#"write `\\` for a backslash, or put `r` before the quotes: r"\d+""#))
        };
        let Some(kind) = rest.next() else { return wrong(start + 1) };
        let (digits, radix) = match kind {
            'x' | 'X' => (2, 16),
            'u' => (4, 16),
            'U' => (8, 16),
            '0'..='3' => (3, 8),
            _ => (0, 0),
        };
        if digits == 0 {
            let Some(plain) = plain_escape(kind) else { return wrong(start + 1 + kind.len_utf8()) };
            out.push(plain);
            self.at += 2;
            return Ok(());
        }
        let from = if radix == 8 { start + 1 } else { start + 2 };
        let code = self.text.get(from..from + digits).filter(|code| code.chars().all(|c| c.is_digit(radix)));
        let code = code.and_then(|code| u32::from_str_radix(code, radix).ok()).and_then(char::from_u32);
        let Some(code) = code else { return wrong((start + 2).min(self.text.len())) };
        out.push(code);
        self.at = from + digits;
        Ok(())
    }

    fn number(&mut self, start: usize) -> Result<TokenKind, Trouble> {
        let rest = self.rest();
        let is_hex = rest.starts_with("0x") || rest.starts_with("0X");
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let mut length =
            if is_hex { 2 + rest[2..].bytes().take_while(u8::is_ascii_hexdigit).count() } else { digits(rest) };
        let mut is_double = false;
        if !is_hex {
            if rest[length..].starts_with('.') && digits(&rest[length + 1..]) > 0 {
                length += 1 + digits(&rest[length + 1..]);
                is_double = true;
            }
            let exponent = &rest[length..];
            let sign = usize::from(exponent.get(1..).is_some_and(|sign| sign.starts_with(['+', '-'])));
            if exponent.starts_with(['e', 'E']) && digits(&exponent[1 + sign..]) > 0 {
                length += 1 + sign + digits(&exponent[1 + sign..]);
                is_double = true;
            }
        }
        let (text, tail) = rest.split_at(length);
        let letters = tail.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
        let span = Span::new(start, start + length + letters);
        if letters > 0 {
            return Err(wrong_suffix(span, text, &tail[..letters]));
        }
        let number = match is_double {
            true => text.parse().ok().filter(|number: &f64| number.is_finite()).map(TokenKind::Double),
            false if is_hex => u64::from_str_radix(&text[2..], 16).ok().map(TokenKind::Int),
            false => text.parse().ok().map(TokenKind::Int),
        };
        self.at += length;
        number.ok_or_else(|| Trouble::new(span, format!("`{text}` does not fit a number of 64 bits")))
    }

    fn name(&mut self, start: usize) -> Result<TokenKind, Trouble> {
        let length = self.rest().bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
        self.at += length;
        let name = &self.text[start..self.at];
        if RESERVED.contains(&name) {
            return Err(Trouble::new(Span::new(start, self.at), format!("`{name}` is a reserved word of CEL")));
        }
        Ok(TokenKind::Name(name.to_owned()))
    }

    fn sign(&mut self, start: usize, first: char) -> Result<TokenKind, Trouble> {
        if let Some(sign) = SIGNS.iter().find(|sign| self.rest().starts_with(**sign)) {
            self.at += sign.len();
            return Ok(TokenKind::Sign(sign));
        }
        let shown = if first.is_control() { format!("{:?}", first) } else { format!("`{first}`") };
        let trouble =
            Trouble::new(Span::new(start, start + first.len_utf8()), format!("{shown} is not a CEL operator"));
        Err(match first {
            '&' => trouble.suggest("write `&&`"),
            '|' => trouble.suggest("write `||`"),
            '=' => trouble.suggest("write `==`"),
            '~' => trouble.suggest("write `.matches(\"…\")`"),
            '$' => trouble.suggest("write the fact without `$`, such as `request.host`"),
            '`' => trouble.suggest("write the text in quotes"),
            '\u{201c}' | '\u{201d}' | '\u{201e}' | '\u{2018}' | '\u{2019}' => trouble.suggest("write straight quotes"),
            _ => trouble,
        })
    }
}

fn plain_escape(kind: char) -> Option<char> {
    Some(match kind {
        '\\' | '\'' | '"' | '`' | '?' => kind,
        'a' => '\u{7}',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        _ => return None,
    })
}

fn wrong_suffix(span: Span, number: &str, letters: &str) -> Trouble {
    let trouble = Trouble::new(span, format!("`{number}{letters}` is no number"));
    match letters {
        "u" | "U" => trouble.suggest(format!("write `{number}`: all whole numbers have a sign here")),
        "ms" | "s" | "m" | "h" => trouble.suggest(format!("write `duration(\"{number}{letters}\")`")),
        "B" | "kB" | "KB" | "MB" | "GB" | "KiB" | "MiB" | "GiB" => {
            trouble.suggest(format!("write `quantity(\"{number}{letters}\")`"))
        }
        _ => trouble,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<TokenKind> {
        let mut all: Vec<_> = tokens(text).unwrap().into_iter().map(|token| token.kind).collect();
        assert_eq!(all.pop(), Some(TokenKind::End));
        all
    }

    #[test]
    fn literals_are_read_as_cel_defines_them() {
        let text = |text: &str| TokenKind::Text(text.to_owned());
        assert_eq!(kinds(r#" "a\"b" 'c"d' "\n\x41\u00e9\101" "#), [text("a\"b"), text("c\"d"), text("\nA\u{e9}A")]);
        assert_eq!(
            kinds(
                r#"r"\d" R'\' """a"b
c""""#
            ),
            [text(r"\d"), text("\\"), text("a\"b\nc")]
        );
        assert_eq!(
            kinds("12 0x1F 1.5 .5 1e3 2.5e-1"),
            [
                TokenKind::Int(12),
                TokenKind::Int(31),
                TokenKind::Double(1.5),
                TokenKind::Double(0.5),
                TokenKind::Double(1000.0),
                TokenKind::Double(0.25),
            ]
        );
        assert_eq!(
            kinds("a.b // no\n&&"),
            [TokenKind::Name("a".into()), TokenKind::Sign("."), TokenKind::Name("b".into()), TokenKind::Sign("&&"),]
        );
    }

    #[test]
    fn what_is_no_token_is_reported_at_its_place() {
        for (text, start, end) in [
            ("a & b", 2, 3),
            ("a = b", 2, 3),
            ("\"abc", 0, 4),
            (r#""a\d""#, 2, 4),
            ("1u", 0, 2),
            ("99999999999999999999", 0, 20),
            ("if", 0, 2),
            ("x == “a”", 5, 8),
            ("b\"x\"", 0, 2),
            ("5s", 0, 2),
        ] {
            let trouble = tokens(text).unwrap_err();
            assert_eq!((trouble.span.start, trouble.span.end), (start, end), "{text}: {}", trouble.message);
        }
    }
}
