//! YAML (and so JSON) into the spanned tree, within budgets: a text that is small may still unfold into something
//! huge through aliases, and one that nests deep would exhaust the stack of anyone who walks it.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span as Marked, StrInput, Tag};

use crate::broken::{self, Explained, Progress, Spot};
use crate::diagnostic::Sink;
use crate::source::{FileId, Span, lines};
use crate::tree::{Key, Kind, Node, Scalar, Text};

/// Bytes of one file.
pub(crate) const FILE_BYTES_MAX: usize = 16 << 20;
/// Maps and lists inside one another.
pub(crate) const DEPTH_MAX: usize = 64;
/// Values of one configuration, aliases unfolded.
pub(crate) const NODES_MAX: usize = 1_000_000;
/// Bytes that aliases and the environment may add to one configuration.
pub(crate) const UNFOLDED_BYTES_MAX: usize = 16 << 20;

/// What is left of the bounds, shared by all files of a configuration.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(crate) nodes: usize,
    pub(crate) unfolded_bytes: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { nodes: NODES_MAX, unfolded_bytes: UNFOLDED_BYTES_MAX }
    }
}

/// Parses one document. `None` when it is not YAML (which is reported); duplicate keys, tags and the like are
/// reported and leave an invalid node behind.
pub(crate) fn parse(file: FileId, text: &str, budget: &mut Budget, sink: &mut Sink) -> Option<Node> {
    if let Some(problem) = forbidden_character(file, text) {
        sink.push(problem, "a character that YAML does not allow", Some("remove it, or write it as an escape".into()));
        return None;
    }
    let understood = Spot { line: 1, column: 0 };
    let mut builder =
        Builder { file, budget, sink, stack: Vec::new(), anchors: HashMap::new(), root: None, understood };
    for event in Parser::new(StrInput::new(text)) {
        match event {
            Ok((event, at)) => {
                builder.understood = Spot { line: at.end.line().max(1), column: at.end.col() };
                builder.event(event, at)?;
            }
            Err(error) => {
                builder.broken(text, &error);
                return None;
            }
        }
    }
    Some(builder.root.unwrap_or(Node { span: Span { file, line: 1, column: 1, end: 1 }, kind: Kind::map(Vec::new()) }))
}

/// Returns where the text holds a control character outside the printable set of YAML 1.2 (section 5.1).
fn forbidden_character(file: FileId, text: &str) -> Option<Span> {
    let bad = |c: char| {
        (c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{85}')) || matches!(c, '\u{fffe}' | '\u{ffff}')
    };
    if !text.contains(bad) {
        return None;
    }
    let (line, at) = lines(text).enumerate().find_map(|(line, text)| {
        let at = text.find(bad)?;
        Some((line, text[..at].chars().count()))
    })?;
    let column = u32::try_from(at + 1).unwrap_or(u32::MAX);
    Some(Span { file, line: u32::try_from(line + 1).unwrap_or(u32::MAX), column, end: column.saturating_add(1) })
}

/// A map or list that is not closed yet.
struct Frame {
    span: Span,
    anchor: usize,
    kind: FrameKind,
}

enum FrameKind {
    Map {
        entries: Vec<(Key, Node)>,
        /// The key whose value comes next.
        key: Option<PendingKey>,
        /// Where each key was first seen.
        seen: HashMap<Text, Span>,
    },
    List(Vec<Node>),
}

enum PendingKey {
    Good(Key),
    /// Reported; its value is dropped.
    Dropped,
}

/// What an anchor stands for, with its cost.
struct Anchored {
    node: Node,
    nodes: usize,
    bytes: usize,
    height: usize,
}

struct Builder<'a> {
    file: FileId,
    budget: &'a mut Budget,
    sink: &'a mut Sink,
    stack: Vec<Frame>,
    anchors: HashMap<usize, Anchored>,
    root: Option<Node>,
    /// The end of what came last.
    understood: Spot,
}

impl Builder<'_> {
    /// Returns the next event, or `None` if parsing was aborted and the problem reported.
    fn event(&mut self, event: Event<'_>, at: Marked) -> Option<()> {
        let span = self.span(at);
        match event {
            Event::DocumentStart(_) if self.root.is_some() => {
                let mend = "keep one; `include:` joins several files".to_owned();
                self.sink.push(span, "a second document in the same file", Some(mend));
                None
            }
            Event::Scalar(text, style, anchor, tag) => {
                let plain = self.is_plain(style, tag.as_deref(), span);
                let scalar = Scalar { text: text.as_ref().into(), plain, written: None };
                self.add(Node { span, kind: Kind::Scalar(scalar) }, anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                self.refuse_tag(tag.as_deref(), span);
                self.open(Frame { span, anchor, kind: FrameKind::List(Vec::new()) })
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse_tag(tag.as_deref(), span);
                let kind = FrameKind::Map { entries: Vec::new(), key: None, seen: HashMap::new() };
                self.open(Frame { span, anchor, kind })
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let frame = self.stack.pop()?;
                let kind = match frame.kind {
                    FrameKind::Map { entries, .. } => Kind::map(entries),
                    FrameKind::List(items) => Kind::list(items),
                };
                self.add(Node { span: frame.span, kind }, frame.anchor)
            }
            Event::Alias(anchor) => self.alias(anchor, span),
            _ => Some(()),
        }
    }

    fn span(&self, at: Marked) -> Span {
        let short = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let (line, column) = (short(at.start.line()).max(1), short(at.start.col()).saturating_add(1));
        let end = if at.end.line() == at.start.line() { short(at.end.col()).saturating_add(1) } else { u32::MAX };
        Span { file: self.file, line, column, end: end.max(column) }
    }

    fn is_plain(&mut self, style: ScalarStyle, tag: Option<&Tag>, span: Span) -> bool {
        match tag {
            // `!` and `!!str` both say: text.
            Some(tag) if (tag.is_yaml_core_schema() && tag.suffix == "str") || tag.handle.is_empty() => false,
            _ => {
                self.refuse_tag(tag, span);
                style == ScalarStyle::Plain
            }
        }
    }

    fn refuse_tag(&mut self, tag: Option<&Tag>, span: Span) {
        if let Some(tag) = tag {
            self.sink.push(span, format!("the tag `{tag}` is not supported"), Some("remove it".into()));
        }
    }

    fn spend(&mut self, nodes: usize, span: Span) -> Option<()> {
        match self.budget.nodes.checked_sub(nodes) {
            Some(left) => self.budget.nodes = left,
            None => {
                self.sink.push(span, format!("the configuration holds more than {NODES_MAX} values"), None);
                return None;
            }
        }
        Some(())
    }

    fn open(&mut self, frame: Frame) -> Option<()> {
        if self.stack.len() >= DEPTH_MAX {
            self.sink.push(frame.span, format!("nested deeper than {DEPTH_MAX} levels"), None);
            return None;
        }
        self.stack.push(frame);
        Some(())
    }

    /// Puts a whole value where it belongs: under its key, into its list, or at the root.
    fn add(&mut self, node: Node, anchor: usize) -> Option<()> {
        self.spend(1, node.span)?;
        if anchor != 0 {
            let (nodes, bytes, height) = weigh(&node);
            self.spend(nodes, node.span)?;
            self.spend_bytes(bytes, node.span)?;
            self.anchors.insert(anchor, Anchored { node: node.clone(), nodes, bytes, height });
        }
        self.place(node);
        Some(())
    }

    fn place(&mut self, node: Node) {
        let Some(frame) = self.stack.last_mut() else {
            self.root = Some(node);
            return;
        };
        match &mut frame.kind {
            FrameKind::List(items) => items.push(node),
            FrameKind::Map { entries, key, seen } => match key.take() {
                None => *key = Some(take_key(node, seen, self.sink)),
                Some(PendingKey::Good(key)) => entries.push((key, node)),
                Some(PendingKey::Dropped) => {}
            },
        }
    }

    fn spend_bytes(&mut self, bytes: usize, span: Span) -> Option<()> {
        match self.budget.unfolded_bytes.checked_sub(bytes) {
            Some(left) => self.budget.unfolded_bytes = left,
            None => {
                let message = format!("aliases expand to more than {UNFOLDED_BYTES_MAX} bytes");
                self.sink.push(span, message, None);
                return None;
            }
        }
        Some(())
    }

    fn alias(&mut self, anchor: usize, span: Span) -> Option<()> {
        let Some(anchored) = self.anchors.get(&anchor) else {
            self.sink.push(span, "this alias is inside its own anchor", None);
            return None;
        };
        let (nodes, bytes, height) = (anchored.nodes, anchored.bytes, anchored.height);
        self.spend(nodes, span)?;
        self.spend_bytes(bytes, span)?;
        if self.stack.len() + height > DEPTH_MAX {
            self.sink.push(span, format!("nested deeper than {DEPTH_MAX} levels once this alias is expanded"), None);
            return None;
        }
        let node = self.anchors.get(&anchor)?.node.clone();
        self.place(node);
        Some(())
    }

    fn broken(&mut self, text: &str, error: &ScanError) {
        let spot = |marker: &Marker| Spot { line: marker.line().max(1), column: marker.col() };
        let column = |span: Span| Spot { line: span.line as usize, column: (span.column as usize).saturating_sub(1) };
        let open = self.stack.iter().map(|frame| column(frame.span)).collect();
        let progress = Progress { open, understood: self.understood, failed: spot(error.marker()) };
        let Explained { spot, message, mend } = broken::explain(text, error.info(), &progress);
        let short = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let at = short(spot.column).saturating_add(1);
        let span = Span { file: self.file, line: short(spot.line), column: at, end: at.saturating_add(1) };
        self.sink.push(span, message, mend);
    }
}

/// Makes a key of a value, or reports why it cannot be one.
fn take_key(node: Node, seen: &mut HashMap<Text, Span>, sink: &mut Sink) -> PendingKey {
    let Kind::Scalar(scalar) = node.kind else {
        sink.push(node.span, "a key must be text", Some("write `key: value`".into()));
        return PendingKey::Dropped;
    };
    if let Some(first) = seen.get(&scalar.text) {
        let message = format!("the key `{}` is listed twice, first in line {}", scalar.text, first.line);
        sink.push(node.span, message, Some("keep one of them".into()));
        return PendingKey::Dropped;
    }
    seen.insert(scalar.text.clone(), node.span);
    PendingKey::Good(Key { text: scalar.text, span: node.span })
}

/// Values, bytes of text, and levels of a tree. Recursion is bounded by [`DEPTH_MAX`].
fn weigh(node: &Node) -> (usize, usize, usize) {
    let join = |(nodes, bytes, height): (usize, usize, usize), (n, b, h): (usize, usize, usize)| {
        (nodes + n, bytes + b, height.max(h))
    };
    let (nodes, bytes, height) = match &node.kind {
        Kind::Scalar(scalar) => return (1, scalar.text.len(), 0),
        Kind::Invalid => return (1, 0, 0),
        Kind::List(items) => items.iter().map(weigh).fold((1, 0, 0), join),
        Kind::Map(entries) => {
            entries.iter().map(|(key, node)| join((0, key.text.len(), 0), weigh(node))).fold((1, 0, 0), join)
        }
    };
    (nodes, bytes, height + 1)
}

#[cfg(test)]
#[path = "yaml_tests.rs"]
mod tests;
