//! Operators: which types they take on their two sides.

use std::net::IpAddr;

use super::super::attributes::{Attribute, Fact};
use super::super::program::{Ip, Number, Order, Real, Text, Truth};
use super::super::syntax::{Kind, Operator, Term};
use super::super::trouble::{Span, Trouble};
use super::{Checker, Typed, dotted, units};

impl Checker<'_> {
    pub(super) fn binary(&mut self, operator: Operator, sides: (&Term, &Term)) -> Result<Typed, Trouble> {
        let order = match operator {
            Operator::In => return self.membership(sides.0, sides.1).map(Typed::Truth),
            Operator::Equal => Order::Equal,
            Operator::NotEqual => Order::NotEqual,
            Operator::Less => Order::Less,
            Operator::LessOrEqual => Order::LessOrEqual,
            Operator::Greater => Order::Greater,
            Operator::GreaterOrEqual => Order::GreaterOrEqual,
            _ => return self.computed(operator, sides),
        };
        let typed = (self.typed(sides.0)?, self.typed(sides.1)?);
        self.compared(order, typed, sides).map(Typed::Truth)
    }

    fn compared(&self, order: Order, typed: (Typed, Typed), terms: (&Term, &Term)) -> Result<Truth, Trouble> {
        Ok(match typed {
            (Typed::Text(one), Typed::Text(other)) => Truth::Texts(order, Box::new((one, other))),
            (Typed::Number(one), Typed::Number(other)) | (Typed::Duration(one), Typed::Duration(other)) => {
                Truth::Numbers(order, Box::new((one, other)))
            }
            (Typed::Real(one), Typed::Real(other)) => Truth::Reals(order, Box::new((one, other))),
            (Typed::Number(one), Typed::Real(other)) => {
                Truth::Reals(order, Box::new((Real::OfNumber(Box::new(one)), other)))
            }
            (Typed::Real(one), Typed::Number(other)) => {
                Truth::Reals(order, Box::new((one, Real::OfNumber(Box::new(other)))))
            }
            (Typed::Truth(one), Typed::Truth(other)) => {
                equal_only(order, Truth::Same(Box::new((one, other))), ("bool", terms))?
            }
            (Typed::Ip(one), Typed::Ip(other)) => equal_only(order, Truth::Ips(Box::new((one, other))), ("ip", terms))?,
            (Typed::Ip(one), Typed::Text(_)) => self.compared_with_ip(order, one, (terms.1, terms))?,
            (Typed::Text(_), Typed::Ip(other)) => self.compared_with_ip(order, other, (terms.0, terms))?,
            (one, other) => return Err(incomparable(&one, &other, terms)),
        })
    }

    /// An address beside a text, which must be one.
    fn compared_with_ip(&self, order: Order, ip: Ip, (text, terms): (&Term, (&Term, &Term))) -> Result<Truth, Trouble> {
        let address = literal_ip(text)?;
        equal_only(order, Truth::Ips(Box::new((ip, Ip::Constant(address)))), ("ip", terms))
    }

    /// Says how to write a name with hyphens behind a dot: in `request.headers.x-a`, the hyphen is a minus.
    fn refuse_hyphens(&self, one: &Term, other: &Term) -> Result<(), Trouble> {
        let Some((table, name)) =
            hyphenated(one).zip(hyphen_end(one, other)).map(|((table, name), end)| (table, format!("{name}-{end}")))
        else {
            return Ok(());
        };
        if !Attribute::find(&table).is_some_and(|attribute| matches!(attribute.fact, Fact::Table(_))) {
            return Ok(());
        }
        let trouble = Trouble::new(one.span.to(other.span), "a hyphen between names is a minus");
        Err(trouble.suggest(format!("write `{table}[\"{name}\"]`")))
    }

    fn computed(&mut self, operator: Operator, (one, other): (&Term, &Term)) -> Result<Typed, Trouble> {
        if operator == Operator::Minus {
            self.refuse_hyphens(one, other)?;
        }
        let typed = (self.typed(one)?, self.typed(other)?);
        let number = |operator, sides| match operator {
            Operator::Plus => Number::Plus(sides),
            Operator::Minus => Number::Minus(sides),
            Operator::Times => Number::Times(sides),
            Operator::Divided => Number::Divided(sides),
            _ => Number::Modulo(sides),
        };
        let is_sum = matches!(operator, Operator::Plus | Operator::Minus);
        Ok(match typed {
            (Typed::Text(one), Typed::Text(other)) if operator == Operator::Plus => Typed::Text(joined(one, other)),
            (Typed::Number(one), Typed::Number(other)) => Typed::Number(number(operator, Box::new((one, other)))),
            (Typed::Duration(one), Typed::Duration(other)) if is_sum => {
                Typed::Duration(number(operator, Box::new((one, other))))
            }
            (Typed::Real(one), Typed::Real(other)) if operator != Operator::Modulo => {
                Typed::Real(real(operator, one, other))
            }
            (one_typed, other_typed) => {
                let (one_kind, other_kind) = (one_typed.kind(), other_typed.kind());
                let message = format!("`{}` does not take {one_kind} and {other_kind}", operator.sign());
                let trouble = Trouble::new(one.span.to(other.span), message);
                let mend = match (&one_typed, &other_typed) {
                    (Typed::Text(_), _) | (_, Typed::Text(_)) if operator == Operator::Plus => {
                        "write `string(…)` around the side that is no string"
                    }
                    (Typed::Real(_), Typed::Number(_)) | (Typed::Number(_), Typed::Real(_)) => {
                        "write `double(…)` around the whole number"
                    }
                    _ => return Err(trouble),
                };
                return Err(trouble.suggest(mend));
            }
        })
    }

    pub(super) fn negated(&mut self, span: Span, inner: &Term) -> Result<Typed, Trouble> {
        match self.typed(inner)? {
            Typed::Number(number) => Ok(Typed::Number(Number::Minus(Box::new((Number::Constant(0), number))))),
            Typed::Duration(number) => Ok(Typed::Duration(Number::Minus(Box::new((Number::Constant(0), number))))),
            Typed::Real(real) => Ok(Typed::Real(Real::Minus(Box::new((Real::Constant(0.0), real))))),
            other => Err(Trouble::new(span, format!("`-` does not take {}", other.kind()))),
        }
    }
}

/// The map of strings and the name that `map.a` or `map.a-b` spells.
fn hyphenated(term: &Term) -> Option<(String, String)> {
    match &term.kind {
        Kind::Member(of, name, _) => dotted(of).map(|table| (table, name.clone())),
        Kind::Binary(Operator::Minus, sides) => {
            let (table, name) = hyphenated(&sides.0)?;
            Some((table, format!("{name}-{}", hyphen_end(&sides.0, &sides.1)?)))
        }
        _ => None,
    }
}

/// The name or number that a minus leads to, without white space.
fn hyphen_end(one: &Term, other: &Term) -> Option<String> {
    if other.span.start != one.span.end + 1 {
        return None;
    }
    match &other.kind {
        Kind::Name(name) => Some(name.clone()),
        Kind::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Texts one behind the other. Many in a row lie side by side.
fn joined(one: Text, other: Text) -> Text {
    let mut parts = match one {
        Text::Joined(parts) => parts.into_vec(),
        one => vec![one],
    };
    match other {
        Text::Joined(more) => parts.extend(more),
        other => parts.push(other),
    }
    Text::Joined(parts.into())
}

fn real(operator: Operator, one: Real, other: Real) -> Real {
    let sides = Box::new((one, other));
    match operator {
        Operator::Plus => Real::Plus(sides),
        Operator::Minus => Real::Minus(sides),
        Operator::Times => Real::Times(sides),
        _ => Real::Divided(sides),
    }
}

/// Types without an order can only be equal or not.
fn equal_only(order: Order, same: Truth, (kind, terms): (&str, (&Term, &Term))) -> Result<Truth, Trouble> {
    match order {
        Order::Equal => Ok(same),
        Order::NotEqual => Ok(Truth::Not(Box::new(same))),
        _ => {
            let span = terms.0.span.to(terms.1.span);
            let trouble = Trouble::new(span, format!("values of the type {kind} have no order"));
            Err(if kind == "ip" { trouble.suggest("write `… in [\"10.0.0.0/8\"]` for networks") } else { trouble })
        }
    }
}

/// The address that a literal is.
pub(super) fn literal_ip(term: &Term) -> Result<IpAddr, Trouble> {
    let Kind::Text(text) = &term.kind else {
        let trouble = Trouble::new(term.span, "an address is compared with an address");
        return Err(trouble.suggest("write `ip(…)` around the text"));
    };
    match text.parse::<IpAddr>() {
        Ok(address) => Ok(address.to_canonical()),
        Err(_) => {
            let trouble = Trouble::new(term.span, format!("`{text}` is not an IP address"));
            Err(if text.contains('/') { trouble.suggest(format!("write `in [\"{text}\"]`")) } else { trouble })
        }
    }
}

fn incomparable(one: &Typed, other: &Typed, (first, second): (&Term, &Term)) -> Trouble {
    let message = format!("{} and {} cannot be compared", one.kind(), other.kind());
    let trouble = Trouble::new(first.span.to(second.span), message);
    let text = if let Kind::Text(text) = &second.kind { text.as_str() } else { "…" };
    match (one, other) {
        (Typed::Number(_), Typed::Text(_)) if text.parse::<i64>().is_ok() => {
            trouble.suggest(format!("write `{text}` without quotes"))
        }
        (Typed::Number(_), Typed::Text(_)) if units::quantity(text).is_some() => {
            trouble.suggest(format!("write `quantity(\"{text}\")`"))
        }
        (Typed::Text(_), Typed::Number(_)) | (Typed::Number(_), Typed::Text(_)) => {
            trouble.suggest("write `int(…)` around the string, or put the number in quotes")
        }
        (Typed::Text(_), Typed::Real(_)) | (Typed::Real(_), Typed::Text(_)) => {
            trouble.suggest("write `double(…)` around the string")
        }
        (Typed::Duration(_), Typed::Text(_)) => trouble.suggest(format!("write `duration(\"{text}\")`")),
        (Typed::Duration(_), Typed::Number(_)) => trouble.suggest("write a duration, such as `duration(\"2s\")`"),
        (Typed::Truth(_), Typed::Text(_)) if text == "true" || text == "false" => {
            trouble.suggest(format!("write `{text}` without quotes"))
        }
        (Typed::Text(_), Typed::Truth(_)) | (Typed::Truth(_), Typed::Text(_)) => {
            trouble.suggest("the string may be compared with `\"true\"` or `\"false\"` in quotes")
        }
        (Typed::Parts(_), _) | (_, Typed::Parts(_)) => trouble.suggest("write `value in list`"),
        _ => trouble,
    }
}
