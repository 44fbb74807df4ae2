//! Just enough of Rust's grammar to tell code from comments and literals, and to find functions.

/// A text in which everything but one kind of content is blank; places and lines stay.
pub(crate) struct Split {
    /// Without comments and without what is inside literals.
    pub(crate) code: String,
    /// Comments alone.
    pub(crate) comments: String,
    /// Literals alone, in their quotes.
    pub(crate) literals: String,
}

/// Splits a source.
pub(crate) fn split(text: &str) -> Split {
    let bytes = text.as_bytes();
    let blank: Vec<u8> = bytes.iter().map(|byte| if *byte == b'\n' { b'\n' } else { b' ' }).collect();
    let (mut code, mut comments, mut literals) = (blank.clone(), blank.clone(), blank);
    let mut at = 0;
    while at < bytes.len() {
        let end = token_end(bytes, at);
        let into = if is_comment(&bytes[at..]) { &mut comments } else { &mut code };
        let token = &bytes[at..end];
        // A word may begin with `r`, `b` or `c` too.
        let literal = token.len() > 1
            && matches!(token[0], b'"' | b'r' | b'b' | b'\'' | b'c')
            && !token.iter().all(|byte| is_word(*byte));
        let shown = if literal { at..at + 1 } else { at..end };
        into[shown.clone()].copy_from_slice(&bytes[shown]);
        if literal {
            literals[at..end].copy_from_slice(token);
        }
        at = end;
    }
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Split { code: text(code), comments: text(comments), literals: text(literals) }
}

fn is_comment(rest: &[u8]) -> bool {
    rest.starts_with(b"//") || rest.starts_with(b"/*")
}

/// The end of the comment, literal, word or single byte that begins at `at`.
fn token_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let find = |needle: &[u8], from: usize| {
        let found = rest[from..].windows(needle.len()).position(|window| window == needle);
        found.map_or(rest.len(), |place| from + place + needle.len())
    };
    let length = match rest {
        [b'/', b'/', ..] => find(b"\n", 0) - usize::from(rest[..find(b"\n", 0)].ends_with(b"\n")),
        [b'/', b'*', ..] => find(b"*/", 2),
        [b'"', ..] => quoted(rest, 1, b'"'),
        [b'b' | b'c', b'"', ..] => quoted(rest, 2, b'"'),
        [b'b', b'\'', ..] => quoted(rest, 2, b'\''),
        [b'\'', ..] => char_or_lifetime(rest),
        _ => match raw_prefix(rest) {
            Some((start, hashes)) => find(&[b"\"".as_slice(), &vec![b'#'; hashes]].concat(), start),
            None => word(rest),
        },
    };
    at + length.max(1)
}

/// `r"`, `r#"`, `br##"`: where the text begins, and how many hashes end it.
fn raw_prefix(rest: &[u8]) -> Option<(usize, usize)> {
    let start = match rest {
        [b'r', ..] => 1,
        [b'b' | b'c', b'r', ..] => 2,
        _ => return None,
    };
    let hashes = rest[start..].iter().take_while(|byte| **byte == b'#').count();
    (rest.get(start + hashes) == Some(&b'"')).then_some((start + hashes + 1, hashes))
}

fn quoted(rest: &[u8], from: usize, end: u8) -> usize {
    let mut at = from;
    while at < rest.len() && rest[at] != end {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// `'a'` and `'\n'` are literals, `'a` is a lifetime.
fn char_or_lifetime(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        return quoted(rest, 1, b'\'');
    }
    let width = match rest.get(1) {
        Some(0xf0..) => 4,
        Some(0xe0..) => 3,
        Some(0xc0..) => 2,
        _ => 1,
    };
    if rest.get(1 + width) == Some(&b'\'') { width + 2 } else { 1 }
}

fn word(rest: &[u8]) -> usize {
    rest.iter().take_while(|byte| is_word(**byte)).count()
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The words of a text with their places.
pub(crate) fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() && !is_word(bytes[at]) {
            at += 1;
        }
        let start = at;
        at += word(&bytes[at..]);
        (start < at).then(|| (start, &text[start..at]))
    })
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// Where `fn` stands.
    pub(crate) at: usize,
    /// Lines from `fn` to the closing brace.
    pub(crate) lines: usize,
    /// Parameters beside `self`.
    pub(crate) parameters: usize,
    /// The same, with a tuple counted as its members.
    pub(crate) members: usize,
}

/// A struct with its fields.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Struct {
    pub(crate) name: String,
    pub(crate) fields: usize,
}

/// The functions of a source, given its code alone.
pub(crate) fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    let mut all = words(code).peekable();
    while let Some((at, word)) = all.next() {
        if word != "fn" {
            continue;
        }
        let Some((place, name)) = all.peek().copied() else { break };
        // `fn(…)` is a type.
        if code[at + 2..place].trim().is_empty()
            && let Some((list, body)) = signature(&code[place + name.len()..])
        {
            let start = place + name.len() + body;
            let end = closing(code.as_bytes(), start);
            let lines = code[at..end].matches('\n').count() + 1;
            let list: Vec<&str> = parts(list).into_iter().filter(|part| !is_self(part)).collect();
            let members = list.iter().map(|part| members(after_pattern(part))).sum();
            found.push(Function { name: name.to_owned(), at, lines, parameters: list.len(), members });
        }
    }
    found
}

/// The structs of a source, given its code alone.
pub(crate) fn structs(code: &str) -> Vec<Struct> {
    let mut found = Vec::new();
    let mut all = words(code).peekable();
    while let Some((_, word)) = all.next() {
        if word == "struct"
            && let Some((place, name)) = all.peek().copied()
            && let rest = &code[place + name.len()..]
            && let after = after_generics(rest)
            && let Some(open) = rest[after..].find(['{', '(', ';'])
        {
            let open = after + open;
            let end = closing(rest.as_bytes(), open);
            let fields = if rest[open..].starts_with(';') { 0 } else { parts(&rest[open + 1..end - 1]).len() };
            found.push(Struct { name: name.to_owned(), fields });
        }
    }
    found
}

/// The list of parameters, and where the body begins; `None` for a declaration.
fn signature(rest: &str) -> Option<(&str, usize)> {
    let open = after_generics(rest) + rest[after_generics(rest)..].find('(')?;
    let end = closing(rest.as_bytes(), open);
    let parameters = &rest[open + 1..end - 1];
    let after = &rest[end..];
    let mut depth = 0_i32;
    for (at, byte) in after.bytes().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => return Some((parameters, end + at)),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// Where the parameters may begin: behind `<T: Fn(u8) -> u8>`.
fn after_generics(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    if !rest.trim_start().starts_with('<') {
        return 0;
    }
    let mut depth = 0_i32;
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'<' => depth += 1,
            b'>' if at > 0 && bytes[at - 1] == b'-' => {}
            b'>' => depth -= 1,
            _ => continue,
        }
        if depth == 0 {
            return at + 1;
        }
    }
    0
}

/// The parts of a list that commas part, without those inside brackets.
pub(crate) fn parts(list: &str) -> Vec<&str> {
    let (mut depth, mut parts, mut start) = (0_i32, Vec::new(), 0);
    let mut before = b' ';
    for (at, byte) in list.bytes().enumerate() {
        match byte {
            b'(' | b'[' | b'{' | b'<' => depth += 1,
            b'>' if before == b'-' => {}
            b')' | b']' | b'}' | b'>' => depth -= 1,
            b',' if depth == 0 => parts.push(&list[std::mem::replace(&mut start, at + 1)..at]),
            _ => {}
        }
        before = byte;
    }
    parts.push(&list[start..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

fn is_self(parameter: &str) -> bool {
    words(parameter).any(|(_, word)| word == "self") && !parameter.contains("self::")
}

/// The type of a parameter: what follows the first `:` outside brackets.
fn after_pattern(parameter: &str) -> &str {
    let mut depth = 0_i32;
    for (at, byte) in parameter.bytes().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            b':' if depth == 0 => return &parameter[at + 1..],
            _ => {}
        }
    }
    parameter
}

/// How many values a type has side by side: the members of a tuple, also behind a reference, and 1 for anything else.
fn members(kind: &str) -> usize {
    let kind = kind.trim();
    if let Some(behind) = kind.strip_prefix('&') {
        let behind = behind.trim_start();
        let lifetime = behind.strip_prefix('\'').map_or(0, |name| 1 + word(name.as_bytes()));
        let behind = behind[lifetime..].trim_start();
        return members(behind.strip_prefix("mut ").unwrap_or(behind));
    }
    match kind.strip_prefix('(').and_then(|inside| inside.strip_suffix(')')) {
        Some(inside) => parts(inside).into_iter().map(members).sum::<usize>().max(1),
        None => 1,
    }
}

/// One after the bracket that closes the one at `open`.
pub(crate) fn closing(bytes: &[u8], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in bytes.iter().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    bytes.len()
}

/// Where `#[cfg(test)]` modules begin, the rest of such a file being tests.
pub(crate) fn before_tests(code: &str) -> &str {
    let inline = code.match_indices("#[cfg(test)]").find(|(at, mark)| {
        let after = code[at + mark.len()..].trim_start();
        after.starts_with("mod ") && after.find('{').is_some_and(|open| after.find(';').is_none_or(|end| open < end))
    });
    inline.map_or(code, |(at, _)| &code[..at])
}

#[test]
fn code_comments_and_literals_are_told_apart() {
    let text =
        "let a = \"fn x() { // no\"; // fn y() {\nlet b = r#\"\"fn\"#; /* fn */ 'x'; '{'; b'}'; fn<'a>(&'a str) 'é'";
    let split = split(text);
    assert_eq!(split.code.len(), text.len());
    assert!(!split.code.contains('x') && !split.code.contains('{') && !split.code.contains('}'), "{}", split.code);
    assert!(split.comments.contains("fn y() {") && split.comments.contains("/* fn */"));
    assert!(split.code.contains("fn<'a>(&'a str)"));
    assert!(split.literals.contains("fn x() { // no") && !split.literals.contains("let"));
    assert_eq!(self::split("ready back cost").code, "ready back cost", "words are no literals");
    let shown = |text| self::split(text).code;
    assert_eq!(shown("crate::rest b\"x\" break r#\"y\"#"), "crate::rest b    break r     ");
}

#[test]
fn functions_are_found_with_their_length_and_parameters() {
    let code = split("trait T { fn none(&self); }\nfn f<T: Fn(u8) -> (u8, u8)>(&self, a: (u8, u8), b: &dyn Fn(u8, u8) -> Vec<(u8, u8)>) -> [u8; 2] {\n  {\n  }\n}\ntype P = fn(u8);").code;
    let found = functions(&code);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].name.as_str(), found[0].lines, found[0].parameters), ("f", 4, 2));
}

#[test]
fn members_of_a_tuple_are_parameters() {
    let code =
        "fn f(&mut self, (a, b): &'a mut (u8, (u16, Vec<(u8, u8)>)), c: [(u8, u8); 2], d: impl Fn((u8, u8)), e: ()) {}";
    let found = functions(code);
    assert_eq!((found[0].parameters, found[0].members), (4, 6));
}

#[test]
fn fields_of_a_struct_are_counted() {
    let code = "#[derive(A, B)] pub struct S<'a, T: Fn(u8) -> u8> where T: X<u8, u8> { #[a(b, c)] pub(crate) a: (u8, u8),\n \
                b: HashMap<u8, Box<dyn Fn(u8) -> u8>>, c: &'a T }\nstruct T(u8, Vec<(u8, u8)>);\nstruct U;\nenum E { A { b: u8 } }";
    let found: Vec<(String, usize)> = structs(&split(code).code).into_iter().map(|s| (s.name, s.fields)).collect();
    assert_eq!(found, [("S".to_owned(), 3), ("T".to_owned(), 2), ("U".to_owned(), 0)]);
}
