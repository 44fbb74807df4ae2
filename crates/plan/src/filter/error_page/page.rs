//! Pages: text in which variables are filled in, made harmless for what the text is.

use std::io::Write;

use model::head::reason_phrase;
use model::{Issue, ResponseHead};

use super::super::variables::{Stage, Variable};
use super::super::{ResponseSource, ResponseView, Turn};

/// Variables of one page. What is filled in comes from the client, so that their number bounds what a page grows to.
const VARIABLES_MAX: usize = 64;

/// How values are made harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Escape {
    /// For text between tags and in quoted attributes, of HTML and XML.
    Markup,
    /// For what stands between quotes.
    Json,
    /// Nothing is dangerous but what ends lines.
    Plain,
}

impl Escape {
    pub(super) fn of(content_type: &str) -> Self {
        let text = content_type.to_ascii_lowercase();
        let text = text.split(';').next().unwrap_or_default().trim();
        if text.ends_with("json") {
            Self::Json
        } else if text.ends_with("html") || text.ends_with("xml") {
            Self::Markup
        } else {
            Self::Plain
        }
    }

    fn write(self, value: &[u8], out: &mut Vec<u8>) {
        for character in String::from_utf8_lossy(value).chars() {
            match (self, character) {
                (Self::Markup, '<') => out.extend_from_slice(b"&lt;"),
                (Self::Markup, '>') => out.extend_from_slice(b"&gt;"),
                (Self::Markup, '&') => out.extend_from_slice(b"&amp;"),
                (Self::Markup, '"') => out.extend_from_slice(b"&quot;"),
                (Self::Markup, '\'') => out.extend_from_slice(b"&#39;"),
                (Self::Json, '"' | '\\') => out.extend_from_slice(&[b'\\', character as u8]),
                // Also what would end a script that the text may stand in.
                (Self::Json, '<' | '>' | '&') => drop(write!(out, "\\u{:04x}", character as u32)),
                (_, control) if control.is_control() => out.push(b' '),
                (_, other) => out.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
    }
}

/// A page, compiled.
#[derive(Debug)]
pub(super) struct Page {
    pieces: Box<[Piece]>,
    escape: Escape,
}

#[derive(Debug)]
enum Piece {
    Literal(Box<str>),
    /// What the status means.
    Reason,
    /// The label of the fault; empty when it was none.
    Fault,
    Variable(Variable),
}

impl Page {
    /// Compiles a text. Braces around anything that is no variable stand for themselves.
    ///
    /// # Errors
    /// A variable whose argument is wrong; too many variables.
    pub(super) fn compile(text: &str, escape: Escape) -> Result<Self, Issue> {
        let mut pieces = Vec::new();
        let (mut rest, mut literal, mut count) = (text, String::new(), 0);
        while let Some(at) = rest.find('{') {
            let (before, from) = rest.split_at(at);
            literal.push_str(before);
            match variable(from)? {
                Some((piece, length)) => {
                    if !literal.is_empty() {
                        pieces.push(Piece::Literal(std::mem::take(&mut literal).into()));
                    }
                    pieces.push(piece);
                    count += 1;
                    rest = &from[length..];
                }
                None => {
                    literal.push('{');
                    rest = &from[1..];
                }
            }
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal.into()));
        }
        if count > VARIABLES_MAX {
            return Err(Issue::at("", format!("the page holds {count} variables, more than {VARIABLES_MAX}")));
        }
        Ok(Self { pieces: pieces.into(), escape })
    }

    pub(super) fn write(
        &self,
        (head, view): (&ResponseHead, &ResponseView<'_>),
        turn: &mut Turn<'_>,
        out: &mut Vec<u8>,
    ) {
        let (values, scratch) = turn.response_values(head, view);
        for piece in &self.pieces {
            match (piece, view.source) {
                (Piece::Literal(text), _) => out.extend_from_slice(text.as_bytes()),
                (Piece::Reason, _) => out.extend_from_slice(reason_phrase(head.status).as_bytes()),
                (Piece::Fault, ResponseSource::Local(Some(fault))) => {
                    out.extend_from_slice(fault.consequence().label.as_bytes());
                }
                (Piece::Fault, _) => {}
                (Piece::Variable(variable), _) => {
                    scratch.clear();
                    variable.write(&values, scratch);
                    self.escape.write(scratch, out);
                }
            }
        }
    }
}

/// Returns the variable that a text begins with, and how long it is written.
fn variable(text: &str) -> Result<Option<(Piece, usize)>, Issue> {
    let Some(end) = text.find('}') else { return Ok(None) };
    let inner = &text[1..end];
    let (name, argument) = inner.split_once(':').map_or((inner, None), |(name, argument)| (name, Some(argument)));
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') {
        return Ok(None);
    }
    let piece = match (name, argument) {
        ("reason", None) => Piece::Reason,
        ("fault", None) => Piece::Fault,
        _ if !Variable::is_known(name) => return Ok(None),
        _ => Piece::Variable(Variable::find(name, argument, Stage::Response)?),
    };
    Ok(Some((piece, end + 1)))
}
