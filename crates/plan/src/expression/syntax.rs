//! What an expression says, as a tree, and its one written form.

use std::fmt::{self, Write};

use super::trouble::Span;

/// A part of an expression with its place.
#[derive(Clone, Debug)]
pub(super) struct Term {
    pub span: Span,
    pub kind: Kind,
    /// How many parts lie in one another, this one included.
    pub height: usize,
}

/// What a part is.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(String),
    Name(String),
    /// `a.b`, with the place of `b`.
    Member(Box<Term>, String, Span),
    /// `a[b]`.
    Index(Box<Term>, Box<Term>),
    /// `f(a)` or `a.f(b)`.
    Call(Box<Call>),
    List(Vec<Term>),
    Not(Box<Term>),
    Minus(Box<Term>),
    /// `a < b` and other operators of two sides.
    Binary(Operator, Box<(Term, Term)>),
    /// `a && b && c`: at least two.
    All(Vec<Term>),
    /// `a || b || c`: at least two.
    Any(Vec<Term>),
    /// `a ? b : c`.
    Choice(Box<[Term; 3]>),
}

/// A call of a function.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// The value in front of the dot.
    pub receiver: Option<Term>,
    pub name: String,
    /// The place of the name.
    pub at: Span,
    pub arguments: Vec<Term>,
}

/// An operator of two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    Plus,
    Minus,
    Times,
    Divided,
    Modulo,
}

impl Operator {
    /// Returns the operator as it is written.
    pub(super) fn sign(self) -> &'static str {
        match self {
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::In => "in",
            Self::Plus => "+",
            Self::Minus => "-",
            Self::Times => "*",
            Self::Divided => "/",
            Self::Modulo => "%",
        }
    }

    /// Returns how closely it binds; `?:` is 0, `||` 1 and `&&` 2.
    fn rank(self) -> u8 {
        match self {
            Self::Plus | Self::Minus => 4,
            Self::Times | Self::Divided | Self::Modulo => 5,
            _ => 3,
        }
    }
}

/// Ranks of what is no operator of two sides.
const UNARY: u8 = 6;
const MEMBER: u8 = 7;

impl Kind {
    /// Returns the parts that lie in it.
    fn parts(&self) -> Vec<&Term> {
        match self {
            Self::Bool(_) | Self::Int(_) | Self::Double(_) | Self::Text(_) | Self::Name(_) => Vec::new(),
            Self::Member(of, ..) | Self::Not(of) | Self::Minus(of) => vec![&**of],
            Self::Index(of, index) => vec![&**of, &**index],
            Self::Call(call) => call.receiver.iter().chain(&call.arguments).collect(),
            Self::List(parts) | Self::All(parts) | Self::Any(parts) => parts.iter().collect(),
            Self::Binary(_, sides) => vec![&sides.0, &sides.1],
            Self::Choice(parts) => parts.iter().collect(),
        }
    }
}

impl Term {
    pub(super) fn new(span: Span, kind: Kind) -> Self {
        let height = 1 + kind.parts().into_iter().map(|part| part.height).max().unwrap_or(0);
        Self { span, kind, height }
    }

    fn rank(&self) -> u8 {
        match &self.kind {
            Kind::Choice(_) => 0,
            Kind::Any(_) => 1,
            Kind::All(_) => 2,
            Kind::Binary(operator, _) => operator.rank(),
            Kind::Not(_) | Kind::Minus(_) => UNARY,
            Kind::Int(number) if *number < 0 => UNARY,
            Kind::Double(number) if number.is_sign_negative() => UNARY,
            _ => MEMBER,
        }
    }

    /// Writes it, in brackets if it binds less closely than what is around it.
    fn write(&self, f: &mut fmt::Formatter<'_>, around: u8) -> fmt::Result {
        if self.rank() < around { write!(f, "({self})") } else { fmt::Display::fmt(self, f) }
    }
}

impl fmt::Display for Term {
    /// Writes the text that is parsed to the same tree.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Bool(flag) => flag.fmt(f),
            Kind::Int(number) => number.fmt(f),
            // With a point or an exponent, so that it stays a double.
            Kind::Double(number) => write!(f, "{number:?}"),
            Kind::Text(text) => write_text(f, text),
            Kind::Name(name) => f.write_str(name),
            Kind::Member(of, name, _) => {
                of.write(f, MEMBER)?;
                write!(f, ".{name}")
            }
            Kind::Index(of, index) => {
                of.write(f, MEMBER)?;
                write!(f, "[{index}]")
            }
            Kind::Call(call) => {
                if let Some(receiver) = &call.receiver {
                    receiver.write(f, MEMBER)?;
                    f.write_char('.')?;
                }
                write!(f, "{}(", call.name)?;
                write_list(f, &call.arguments)?;
                f.write_char(')')
            }
            Kind::List(items) => {
                f.write_char('[')?;
                write_list(f, items)?;
                f.write_char(']')
            }
            Kind::Not(term) => write_unary(f, '!', term),
            Kind::Minus(term) => write_unary(f, '-', term),
            Kind::Binary(operator, sides) => {
                sides.0.write(f, operator.rank())?;
                write!(f, " {} ", operator.sign())?;
                sides.1.write(f, operator.rank() + 1)
            }
            Kind::All(terms) => write_joined(f, terms, " && ", 3),
            Kind::Any(terms) => write_joined(f, terms, " || ", 2),
            Kind::Choice(parts) => {
                parts[0].write(f, 1)?;
                f.write_str(" ? ")?;
                parts[1].write(f, 1)?;
                f.write_str(" : ")?;
                parts[2].fmt(f)
            }
        }
    }
}

/// Writes a sign before a term. A minus before a number would make another number of it.
fn write_unary(f: &mut fmt::Formatter<'_>, sign: char, term: &Term) -> fmt::Result {
    f.write_char(sign)?;
    let is_number = sign == '-' && begins_with_number(term);
    term.write(f, if is_number { u8::MAX } else { UNARY })
}

/// Whether the first token of a term is a number.
fn begins_with_number(term: &Term) -> bool {
    match &term.kind {
        Kind::Int(_) | Kind::Double(_) => true,
        Kind::Member(of, ..) | Kind::Index(of, _) => begins_with_number(of),
        Kind::Call(call) => call.receiver.as_ref().is_some_and(begins_with_number),
        _ => false,
    }
}

fn write_list(f: &mut fmt::Formatter<'_>, terms: &[Term]) -> fmt::Result {
    for (place, term) in terms.iter().enumerate() {
        f.write_str(if place == 0 { "" } else { ", " })?;
        fmt::Display::fmt(term, f)?;
    }
    Ok(())
}

fn write_joined(f: &mut fmt::Formatter<'_>, terms: &[Term], sign: &str, around: u8) -> fmt::Result {
    for (place, term) in terms.iter().enumerate() {
        f.write_str(if place == 0 { "" } else { sign })?;
        term.write(f, around)?;
    }
    Ok(())
}

fn write_text(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c))?,
            c => f.write_char(c)?,
        }
    }
    f.write_char('"')
}
