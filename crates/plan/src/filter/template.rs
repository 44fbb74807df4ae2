//! Text with variables, compiled once and written per exchange without allocating.

use model::Issue;
use model::template::{self, Piece as Written};

use super::variables::{Stage, Values, Variable};
use crate::route::query::encode_from;

/// Pieces of text and variables in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pieces: Box<[Piece]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(Box<str>),
    Variable(Variable),
}

impl Template {
    /// Compiles `text` for use at `stage`. The syntax is that of [`model::template`].
    ///
    /// # Errors
    /// A brace out of place, an unknown variable, or one that has no value at `stage`. The path of the issue is empty.
    pub fn compile(text: &str, stage: Stage) -> Result<Self, Issue> {
        let written = template::parse(text).map_err(|message| Issue::at("", message))?;
        let compile = |piece| match piece {
            Written::Literal(text) => Ok(Piece::Literal(text.into())),
            Written::Variable { name, argument } => {
                Variable::find(&name, argument.as_deref(), stage).map(Piece::Variable)
            }
        };
        Ok(Self { pieces: written.into_iter().map(compile).collect::<Result<_, _>>()? })
    }

    /// Returns the whole text, when there is no variable in it.
    pub fn as_literal(&self) -> Option<&str> {
        match &*self.pieces {
            [] => Some(""),
            [Piece::Literal(text)] => Some(text),
            _ => None,
        }
    }

    /// Returns the pieces of plain text.
    pub fn literals(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Literal(text) => Some(&**text),
            Piece::Variable(_) => None,
        })
    }

    /// Returns the variables, in order.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Literal(_) => None,
            Piece::Variable(variable) => Some(variable),
        })
    }

    /// Returns whether it begins with this text whatever the variables stand for.
    pub fn starts_with(&self, text: &str) -> bool {
        matches!(self.pieces.first(), Some(Piece::Literal(first)) if first.starts_with(text))
    }

    /// Appends the text for one exchange. The bytes are whatever the client sent: the caller must put them where
    /// controls do no harm ([`model::Fields`] and [`model::RequestHead::rewrite_path`] see to that).
    pub fn write(&self, values: &Values<'_>, out: &mut Vec<u8>) {
        for piece in &self.pieces {
            match piece {
                Piece::Literal(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Variable(variable) => variable.write(values, out),
            }
        }
    }

    /// Appends the text for one exchange as the value of a query parameter, percent-encoded. What a variable quotes of a query is
    /// encoded already, as the client has sent it.
    pub fn write_query_value(&self, values: &Values<'_>, out: &mut Vec<u8>) {
        for piece in &self.pieces {
            let start = out.len();
            match piece {
                Piece::Literal(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Variable(variable) => variable.write(values, out),
            }
            if !matches!(piece, Piece::Variable(variable) if variable.is_encoded()) {
                encode_from(out, start);
            }
        }
    }
}
