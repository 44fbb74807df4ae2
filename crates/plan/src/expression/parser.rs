//! Tokens to a tree (CEL's language definition, "Syntax").

use super::lexer::{Token, TokenKind, tokens};
use super::syntax::{Call, Kind, Operator, Term};
use super::trouble::{Span, Trouble};

/// Bytes of an expression.
pub(super) const TEXT_BYTES_MAX: usize = 16 * 1024;
/// Parts of an expression that lie in one another.
pub(super) const DEPTH_MAX: usize = 48;
/// Parts of an expression.
pub(super) const TERMS_MAX: usize = 2_000;

/// Parses a whole text.
pub(super) fn parse(text: &str) -> Result<Term, Trouble> {
    if text.len() > TEXT_BYTES_MAX {
        let message = format!("the expression is longer than {} KiB", TEXT_BYTES_MAX / 1024);
        return Err(Trouble::new(Span::new(0, 1), message).suggest("put lists of values into a map"));
    }
    let tokens = tokens(text)?;
    let mut parser = Parser { tokens, at: 0, depth: 0, terms: 0 };
    let term = parser.choice()?;
    match &parser.peek().kind {
        TokenKind::End => Ok(term),
        _ => Err(parser.unexpected("an operator or the end")),
    }
}

struct Parser {
    /// The last is the end.
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
    terms: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        // The end is never stepped over.
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn span(&self) -> Span {
        self.peek().span
    }

    fn is(&self, sign: &str) -> bool {
        matches!(&self.peek().kind, TokenKind::Sign(found) if *found == sign)
    }

    fn take(&mut self, sign: &str) -> bool {
        let is_here = self.is(sign);
        self.at += usize::from(is_here);
        is_here
    }

    fn expect(&mut self, sign: &str) -> Result<Span, Trouble> {
        let span = self.span();
        if self.take(sign) { Ok(span) } else { Err(self.unexpected(&format!("`{sign}`"))) }
    }

    fn unexpected(&self, wanted: &str) -> Trouble {
        let token = self.peek();
        let found = match &token.kind {
            TokenKind::End => {
                let span = Span::new(token.span.start, token.span.start + 1);
                return Trouble::new(span, format!("the expression ends where {wanted} must follow"));
            }
            TokenKind::Name(name) => format!("`{name}`"),
            TokenKind::Text(_) => "a text".to_owned(),
            TokenKind::Int(_) | TokenKind::Double(_) => "a number".to_owned(),
            TokenKind::Sign(sign) => format!("`{sign}`"),
        };
        let trouble = Trouble::new(token.span, format!("{found} stands where {wanted} must follow"));
        match &token.kind {
            TokenKind::Name(name) if name == "and" => trouble.suggest("write `&&`"),
            TokenKind::Name(name) if name == "or" => trouble.suggest("write `||`"),
            TokenKind::Name(name) if name == "not" => trouble.suggest("write `!`"),
            _ => trouble,
        }
    }

    fn term(&mut self, span: Span, kind: Kind) -> Result<Term, Trouble> {
        self.terms += 1;
        if self.terms > TERMS_MAX {
            let trouble = Trouble::new(span, format!("the expression has more than {TERMS_MAX} parts"));
            return Err(trouble.suggest("put lists of values into a map"));
        }
        let term = Term::new(span, kind);
        if term.height > DEPTH_MAX {
            let message =
                format!("the expression nests deeper than {DEPTH_MAX} levels, or has longer chains of operators");
            return Err(Trouble::new(span, message));
        }
        Ok(term)
    }

    /// Parses something that lies in another part.
    fn inner<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T, Trouble>) -> Result<T, Trouble> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(Trouble::new(self.span(), format!("the expression nests deeper than {DEPTH_MAX} levels")));
        }
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    fn choice(&mut self) -> Result<Term, Trouble> {
        let condition = self.any()?;
        if !self.take("?") {
            return Ok(condition);
        }
        let then = self.inner(Self::any)?;
        self.expect(":")?;
        let otherwise = self.inner(Self::choice)?;
        let span = condition.span.to(otherwise.span);
        self.term(span, Kind::Choice(Box::new([condition, then, otherwise])))
    }

    fn any(&mut self) -> Result<Term, Trouble> {
        self.joined("||", Self::all, Kind::Any)
    }

    fn all(&mut self) -> Result<Term, Trouble> {
        self.joined("&&", Self::relation, Kind::All)
    }

    /// One term, or several that a sign joins: they lie side by side, however many there are.
    fn joined(
        &mut self,
        sign: &str,
        part: fn(&mut Self) -> Result<Term, Trouble>,
        kind: fn(Vec<Term>) -> Kind,
    ) -> Result<Term, Trouble> {
        let first = part(self)?;
        if !self.is(sign) {
            return Ok(first);
        }
        let mut parts = vec![first];
        while self.take(sign) {
            parts.push(self.inner(part)?);
        }
        let span = parts[0].span.to(parts[parts.len() - 1].span);
        self.term(span, kind(parts))
    }

    fn relation(&mut self) -> Result<Term, Trouble> {
        const SIGNS: [Operator; 6] = [
            Operator::Equal,
            Operator::NotEqual,
            Operator::LessOrEqual,
            Operator::GreaterOrEqual,
            Operator::Less,
            Operator::Greater,
        ];
        self.chain(Self::sum, |parser| {
            let is_in = matches!(&parser.peek().kind, TokenKind::Name(name) if name == "in");
            if is_in {
                parser.at += 1;
                return Some(Operator::In);
            }
            SIGNS.into_iter().find(|operator| parser.take(operator.sign()))
        })
    }

    fn sum(&mut self) -> Result<Term, Trouble> {
        self.chain(Self::product, |parser| {
            [Operator::Plus, Operator::Minus].into_iter().find(|operator| parser.take(operator.sign()))
        })
    }

    fn product(&mut self) -> Result<Term, Trouble> {
        self.chain(Self::unary, |parser| {
            let signs = [Operator::Times, Operator::Divided, Operator::Modulo];
            signs.into_iter().find(|operator| parser.take(operator.sign()))
        })
    }

    /// Operators of one rank, which bind to the left.
    fn chain(
        &mut self,
        part: fn(&mut Self) -> Result<Term, Trouble>,
        take: impl Fn(&mut Self) -> Option<Operator>,
    ) -> Result<Term, Trouble> {
        let mut term = part(self)?;
        while let Some(operator) = take(self) {
            let other = self.inner(part)?;
            let span = term.span.to(other.span);
            term = self.term(span, Kind::Binary(operator, Box::new((term, other))))?;
        }
        Ok(term)
    }

    fn unary(&mut self) -> Result<Term, Trouble> {
        let span = self.span();
        if self.take("!") {
            let term = self.inner(Self::unary)?;
            return self.term(span.to(term.span), Kind::Not(Box::new(term)));
        }
        if !self.take("-") {
            return self.member();
        }
        // A sign before a number belongs to it: the least number has no positive counterpart.
        let number = match self.peek().kind {
            TokenKind::Int(number) => {
                let too_small = || Trouble::new(span.to(self.span()), format!("`-{number}` does not fit 64 bits"));
                Some(Kind::Int(0_i64.checked_sub_unsigned(number).ok_or_else(too_small)?))
            }
            TokenKind::Double(number) => Some(Kind::Double(-number)),
            _ => None,
        };
        if let Some(number) = number {
            let span = span.to(self.span());
            self.at += 1;
            let term = self.term(span, number)?;
            return self.members(term);
        }
        let term = self.inner(Self::unary)?;
        self.term(span.to(term.span), Kind::Minus(Box::new(term)))
    }

    fn member(&mut self) -> Result<Term, Trouble> {
        let term = self.primary()?;
        self.members(term)
    }

    /// What follows a value: `.name`, `.name(…)` and `[…]`.
    fn members(&mut self, mut term: Term) -> Result<Term, Trouble> {
        loop {
            if self.take(".") {
                // CEL's optional values: they end in `orValue` here too.
                self.take("?");
                let at = self.span();
                let TokenKind::Name(name) = self.peek().kind.clone() else { return Err(self.unexpected("a name")) };
                self.at += 1;
                if self.take("(") {
                    let (arguments, end) = self.list(")")?;
                    let span = term.span.to(end);
                    let call = Call { receiver: Some(term), name, at, arguments };
                    term = self.term(span, Kind::Call(Box::new(call)))?;
                } else {
                    let span = term.span.to(at);
                    term = self.term(span, Kind::Member(Box::new(term), name, at))?;
                }
            } else if self.take("[") {
                self.take("?");
                let index = self.inner(Self::choice)?;
                let end = self.expect("]")?;
                let span = term.span.to(end);
                term = self.term(span, Kind::Index(Box::new(term), Box::new(index)))?;
            } else {
                return Ok(term);
            }
        }
    }

    fn primary(&mut self) -> Result<Term, Trouble> {
        let Token { span, kind } = self.peek().clone();
        match kind {
            TokenKind::Name(name) => self.named(span, name),
            TokenKind::Int(number) => {
                let large = || Trouble::new(span, format!("`{number}` does not fit 63 bits"));
                let number = i64::try_from(number).map_err(|_| large())?;
                self.literal(span, Kind::Int(number))
            }
            TokenKind::Double(number) => self.literal(span, Kind::Double(number)),
            TokenKind::Text(text) => self.literal(span, Kind::Text(text)),
            TokenKind::Sign("(") => {
                self.at += 1;
                let inner = self.inner(Self::choice)?;
                let end = self.expect(")")?;
                Ok(Term { span: span.to(end), ..inner })
            }
            TokenKind::Sign("[") => {
                self.at += 1;
                let (items, end) = self.list("]")?;
                self.term(span.to(end), Kind::List(items))
            }
            TokenKind::Sign("{") => {
                let trouble = Trouble::new(span, "maps cannot be written in an expression");
                Err(trouble.suggest("define it under `maps`, and write `map(\"NAME\", key)`"))
            }
            TokenKind::Sign(_) | TokenKind::End => Err(self.unexpected("a value")),
        }
    }

    fn literal(&mut self, span: Span, kind: Kind) -> Result<Term, Trouble> {
        self.at += 1;
        self.term(span, kind)
    }

    fn named(&mut self, span: Span, name: String) -> Result<Term, Trouble> {
        match name.as_str() {
            "true" | "false" => return self.literal(span, Kind::Bool(name == "true")),
            "in" => return Err(self.unexpected("a value")),
            "null" => {
                let trouble = Trouble::new(span, "there is no `null`: what is missing has no value");
                return Err(trouble.suggest("write `has(…)` to ask whether there is a value"));
            }
            _ => {}
        }
        self.at += 1;
        if self.take("(") {
            let (arguments, end) = self.list(")")?;
            let call = Call { receiver: None, name, at: span, arguments };
            return self.term(span.to(end), Kind::Call(Box::new(call)));
        }
        self.term(span, Kind::Name(name))
    }

    /// Values between brackets, of which the first has been taken. A comma may stand behind the last.
    fn list(&mut self, close: &str) -> Result<(Vec<Term>, Span), Trouble> {
        let mut items = Vec::new();
        loop {
            let end = self.span();
            if self.take(close) {
                return Ok((items, end));
            }
            items.push(self.inner(Self::choice)?);
            let end = self.span();
            if self.take(close) {
                return Ok((items, end));
            }
            if !self.take(",") {
                return Err(self.unexpected(&format!("`,` or `{close}`")));
            }
        }
    }
}
