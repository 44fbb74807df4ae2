//! All values of a JSON text (RFC 8259), found by one pass over it: later look-ups read no more of the text than the names beside their way.

use std::borrow::Cow;

use super::{DEPTH_MAX, Lexer, place, unescaped};

/// Values and names of one text. A text with more counts as no JSON: a text of commas would otherwise take six times its own memory.
const NODES_MAX: usize = 1 << 18;

/// Where the values of a text lie. It does not hold the text, which is given to each look-up.
#[derive(Debug)]
pub struct Index {
    /// In the order of the text: an object or array before what is in it, a name before its value.
    nodes: Box<[Node]>,
    /// Texts that are written with escapes, unescaped.
    made: Box<[u8]>,
}

/// A value, or the name of a member.
#[derive(Clone, Copy, Debug)]
struct Node {
    kind: Kind,
    /// Bytes of the text, or of those made.
    start: u32,
    end: u32,
    /// The node behind this one and all that is in it.
    next: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Object,
    Array,
    /// A text that lies as it is between its quotes.
    Plain,
    /// A text that was unescaped.
    Made,
    /// A number, `true`, `false` or `null`.
    Literal,
}

/// A value of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'d> {
    /// A text, unescaped.
    Text(&'d [u8]),
    /// A number as it is written, `true`, `false` or `null`.
    Literal(&'d [u8]),
    /// An object.
    Object,
    /// An array.
    Array(Items<'d>),
}

impl<'d> Item<'d> {
    /// Returns the bytes of a single value that is not `null`.
    pub fn bytes(self) -> Option<&'d [u8]> {
        match self {
            Self::Literal(b"null") | Self::Object | Self::Array(_) => None,
            Self::Text(bytes) | Self::Literal(bytes) => Some(bytes),
        }
    }
}

/// The items of an array.
#[derive(Clone, Copy)]
pub struct Items<'d> {
    index: &'d Index,
    text: &'d [u8],
    at: u32,
    end: u32,
}

impl std::fmt::Debug for Items<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(*self).finish()
    }
}

/// Two are equal if all their items are.
impl PartialEq for Items<'_> {
    fn eq(&self, other: &Self) -> bool {
        Iterator::eq(*self, *other)
    }
}

impl Eq for Items<'_> {}

impl<'d> Iterator for Items<'d> {
    type Item = Item<'d>;

    fn next(&mut self) -> Option<Item<'d>> {
        let at = Some(self.at).filter(|at| *at < self.end)?;
        self.at = self.index.nodes[at as usize].next;
        Some(self.index.item(self.text, at))
    }
}

/// A way to a value, compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Path {
    /// A member of the outermost object by its whole name; else the value that the dots in the name lead to.
    Name(Box<str>),
    /// Names of members and places of items, from the outermost value on.
    Steps(Box<[Box<str>]>),
}

impl Index {
    /// Reads a text. Returns `None` if it is no JSON, is nested deeper than [`DEPTH_MAX`], or has more than 262,144 values and
    /// names, or 4 GiB.
    pub fn parse(text: &[u8]) -> Option<Self> {
        u32::try_from(text.len()).ok()?;
        let mut reader = Reader { lexer: Lexer::new(text)?, nodes: Vec::new(), made: Vec::new() };
        reader.value(DEPTH_MAX)?;
        reader.lexer.is_over().then(|| Self { nodes: reader.nodes.into(), made: reader.made.into() })
    }

    /// Returns the value that a way leads to, in the text that this was made of. Of names that stand twice in an object, the last counts.
    pub fn find<'d>(&'d self, text: &'d [u8], path: &Path) -> Option<Item<'d>> {
        let found = match path {
            Path::Steps(steps) => steps.iter().try_fold(0, |at, step| self.below(text, at, step)),
            Path::Name(name) => {
                let whole = self.member(text, 0, name);
                whole.or_else(|| name.split('.').try_fold(0, |at, step| self.below(text, at, step)))
            }
        };
        found.map(|at| self.item(text, at))
    }

    fn item<'d>(&'d self, text: &'d [u8], at: u32) -> Item<'d> {
        let node = self.nodes[at as usize];
        match node.kind {
            Kind::Object => Item::Object,
            Kind::Array => Item::Array(Items { index: self, text, at: at + 1, end: node.next }),
            Kind::Plain | Kind::Made => Item::Text(self.bytes(text, node)),
            Kind::Literal => Item::Literal(self.bytes(text, node)),
        }
    }

    /// Returns the bytes of a node; nothing if the text is another one.
    fn bytes<'d>(&'d self, text: &'d [u8], node: Node) -> &'d [u8] {
        let of = if node.kind == Kind::Made { &self.made } else { text };
        of.get(node.start as usize..node.end as usize).unwrap_or_default()
    }

    /// Returns the member of this name, or the item at this place.
    fn below(&self, text: &[u8], at: u32, step: &str) -> Option<u32> {
        match self.nodes[at as usize].kind {
            Kind::Object => self.member(text, at, step),
            Kind::Array => self.placed(at, place(step)?),
            Kind::Plain | Kind::Made | Kind::Literal => None,
        }
    }

    fn member(&self, text: &[u8], at: u32, name: &str) -> Option<u32> {
        let object = self.nodes[at as usize];
        if object.kind != Kind::Object {
            return None;
        }
        let (mut at, mut found) = (at + 1, None);
        while at < object.next {
            let value = at + 1;
            if self.bytes(text, self.nodes[at as usize]) == name.as_bytes() {
                found = Some(value);
            }
            at = self.nodes[value as usize].next;
        }
        found
    }

    fn placed(&self, at: u32, place: usize) -> Option<u32> {
        let end = self.nodes[at as usize].next;
        let mut at = at + 1;
        for _ in 0..place {
            if at >= end {
                return None;
            }
            at = self.nodes[at as usize].next;
        }
        (at < end).then_some(at)
    }
}

struct Reader<'t> {
    lexer: Lexer<'t>,
    nodes: Vec<Node>,
    made: Vec<u8>,
}

impl Reader<'_> {
    /// Reads a value. `None`: it is wrong.
    fn value(&mut self, depth: usize) -> Option<()> {
        self.lexer.space();
        match self.lexer.peek()? {
            b'{' => self.nested(Kind::Object, depth.checked_sub(1)?),
            b'[' => self.nested(Kind::Array, depth.checked_sub(1)?),
            b'"' => self.text(),
            _ => {
                let start = self.lexer.at;
                self.lexer.literal()?;
                self.push(Kind::Literal, (start, self.lexer.at))
            }
        }
    }

    fn nested(&mut self, kind: Kind, depth: usize) -> Option<()> {
        let (own, end) = (self.nodes.len(), if kind == Kind::Object { b'}' } else { b']' });
        self.push(kind, (self.lexer.at, self.lexer.at))?;
        let mut has_more = self.lexer.enter(end);
        while has_more {
            if kind == Kind::Object {
                self.lexer.space();
                self.text()?;
                self.lexer.colon()?;
            }
            self.value(depth)?;
            has_more = self.lexer.next(end)?;
        }
        self.nodes[own].next = u32::try_from(self.nodes.len()).ok()?;
        Some(())
    }

    fn text(&mut self) -> Option<()> {
        // Behind the quote.
        let start = self.lexer.at + 1;
        match unescaped(self.lexer.raw_text()?)? {
            Cow::Borrowed(raw) => self.push(Kind::Plain, (start, start + raw.len())),
            Cow::Owned(text) => {
                let start = self.made.len();
                self.made.extend_from_slice(&text);
                self.push(Kind::Made, (start, self.made.len()))
            }
        }
    }

    fn push(&mut self, kind: Kind, (start, end): (usize, usize)) -> Option<()> {
        let next = self.nodes.len() + 1;
        if next > NODES_MAX {
            return None;
        }
        let of = |place: usize| u32::try_from(place).ok();
        self.nodes.push(Node { kind, start: of(start)?, end: of(end)?, next: of(next)? });
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn steps(steps: &[&str]) -> Path {
        Path::Steps(steps.iter().map(|step| (*step).into()).collect())
    }

    fn at(text: &str, path: &Path) -> Option<String> {
        let index = Index::parse(text.as_bytes())?;
        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        index.find(text.as_bytes(), path).map(|item| match item {
            Item::Text(text) | Item::Literal(text) => shown(text),
            Item::Object => "{}".to_owned(),
            Item::Array(items) => format!("{:?}", items.map(|item| item.bytes().map(shown)).collect::<Vec<_>>()),
        })
    }

    #[test]
    fn a_value_is_found_by_name_by_dots_and_by_steps() {
        let text = r#" {"a.b":1,"a":{"b":2,"c":["x","\u0079",{"d":true}]},"e":null,"":{"":3}} "#;
        for (path, wanted) in [
            (Path::Name("a.b".into()), Some("1")),
            (Path::Name("a.c.1".into()), Some("y")),
            (Path::Name("a.c.2.d".into()), Some("true")),
            (Path::Name("e".into()), Some("null")),
            (Path::Name("a".into()), Some("{}")),
            (Path::Name("a.c".into()), Some(r#"[Some("x"), Some("y"), None]"#)),
            (Path::Name("a.c.3".into()), None),
            (Path::Name("a.c.01".into()), None),
            (Path::Name("none".into()), None),
            (Path::Name("a.b.c".into()), None),
            (steps(&["a", "b"]), Some("2")),
            (steps(&["", ""]), Some("3")),
            (steps(&["a", "c", "0"]), Some("x")),
            (steps(&["a", "c", "x"]), None),
            (steps(&[]), Some("{}")),
        ] {
            assert_eq!(at(text, &path).as_deref(), wanted, "{path:?}");
        }
    }

    #[test]
    fn the_last_of_equal_names_counts_at_every_level() {
        assert_eq!(at(r#"{"a":1,"a":2}"#, &steps(&["a"])).as_deref(), Some("2"));
        assert_eq!(at(r#"{"a":{"b":1},"a":{}}"#, &steps(&["a", "b"])), None);
        assert_eq!(at(r#"{"a":{"b":1},"\u0061":{"b":3}}"#, &steps(&["a", "b"])).as_deref(), Some("3"));
    }

    #[test]
    fn depth_and_number_of_values_are_bounded() {
        let deep = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        assert!(Index::parse(deep(DEPTH_MAX).as_bytes()).is_some());
        assert!(Index::parse(deep(DEPTH_MAX + 1).as_bytes()).is_none());
        assert!(Index::parse(deep(1_000_000).as_bytes()).is_none());
        let many = |count: usize| format!("[{}1]", "1,".repeat(count - 1));
        assert!(Index::parse(many(NODES_MAX - 1).as_bytes()).is_some());
        assert!(Index::parse(many(NODES_MAX).as_bytes()).is_none());
        assert_eq!(size_of::<Node>(), 16);
    }

    #[test]
    fn what_is_no_json_has_no_index() {
        for text in [
            "",
            " ",
            "{",
            "{\"a\"",
            "{\"a\":}",
            "[1,]",
            "[1 2]",
            "{\"a\":1,}",
            "1 1",
            "\"\\u12\"",
            "\"\\ud800\"",
            "tru",
        ] {
            assert!(Index::parse(text.as_bytes()).is_none(), "{text}");
        }
        assert!(Index::parse(b"\"\xff\"").is_none());
        let index = Index::parse(br#"{"abc":"defg"}"#).unwrap();
        assert_eq!(index.find(b"{}", &steps(&["abc"])), None, "another text than its own");
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::vec(("[ab/~\"]{0,2}", inner), 0..4)
                    .prop_map(|all| Value::Object(all.into_iter().collect())),
            ]
        })
    }

    fn is_same(item: Item<'_>, value: &Value) -> bool {
        match (item, value) {
            (Item::Text(text), Value::String(wanted)) => text == wanted.as_bytes(),
            (Item::Literal(text), value) => text == value.to_string().as_bytes(),
            (Item::Object, Value::Object(_)) => true,
            (Item::Array(items), Value::Array(list)) => {
                items.count() == list.len() && items.zip(list).all(|(item, value)| is_same(item, value))
            }
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn it_finds_what_serde_json_finds(value in json(), way in "(/([ab0-3]|~0|~1|\"){0,2}){0,4}", is_pretty: bool) {
            let text = if is_pretty { format!("{value:#}") } else { value.to_string() };
            let index = Index::parse(text.as_bytes()).unwrap();
            let names = crate::route::body::json::pointer(&way).unwrap();
            let found = index.find(text.as_bytes(), &Path::Steps(names.iter().map(|name| (**name).into()).collect()));
            let wanted = value.pointer(&way);
            prop_assert_eq!(found.is_some(), wanted.is_some());
            if let (Some(found), Some(wanted)) = (found, wanted) {
                prop_assert!(is_same(found, wanted), "{found:?} {wanted}");
            }
        }

        #[test]
        fn it_reads_what_a_search_by_pointer_reads(text in r#"[\[\]{}",:0-9.eE+\-truefalsn\\ ]{0,24}"#) {
            let is_json = crate::route::body::json::find(text.as_bytes(), &[]).is_ok();
            prop_assert_eq!(Index::parse(text.as_bytes()).is_some(), is_json, "{}", text);
        }
    }
}
