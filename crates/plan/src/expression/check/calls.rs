//! Calls of functions.

use memchr::memmem::Finder;
use model::Issue;

use super::super::attributes::{Attribute, Fact, Table};
use super::super::functions::FUNCTIONS;
use super::super::program::{Ip, Needle, Number, Parts, Real, Text, Truth};
use super::super::syntax::{Call, Kind, Term};
use super::super::trouble::{Span, Trouble};
use super::{Checker, PAGE, Typed, dotted, entry, lists, mistyped, units};
use crate::filter::settings::suggest_nearest_on;
use crate::route::expression;

/// Regular expressions of one expression.
const REGEXES_MAX: usize = 32;

impl Checker<'_> {
    pub(super) fn call(&mut self, span: Span, call: &Call) -> Result<Typed, Trouble> {
        let arguments = call.arguments.iter().collect::<Vec<_>>();
        match (&call.receiver, &*arguments) {
            (None, _) if call.name == "has" => self.has(call).map(Typed::Truth),
            (None, [argument]) => self.global(span, call, argument),
            (None, [name, key]) if call.name == "map" => self.map_call(name, key, None),
            (None, [name, key, otherwise]) if call.name == "map" => self.map_call(name, key, Some(otherwise)),
            (None, [text, pattern]) if call.name == "matches" => self.matches(text, pattern).map(Typed::Truth),
            (Some(receiver), [other]) if call.name == "orValue" => self.or_value(receiver, other),
            (Some(receiver), _) if call.name == "containsIP" => self.contains_ip(call, receiver).map(Typed::Truth),
            (Some(receiver), _) => self.method(call, receiver, &arguments),
            (None, _) => Err(misused(call)),
        }
    }

    /// A value, or another one of the same type where there is none.
    fn or_value(&mut self, value: &Term, other: &Term) -> Result<Typed, Trouble> {
        let sides = (self.typed(value)?, self.typed(other)?);
        Ok(match sides {
            (Typed::Truth(one), Typed::Truth(other)) => Typed::Truth(Truth::Otherwise(Box::new((one, other)))),
            (Typed::Text(one), Typed::Text(other)) => Typed::Text(Text::Otherwise(Box::new((one, other)))),
            (Typed::Number(one), Typed::Number(other)) => Typed::Number(Number::Otherwise(Box::new((one, other)))),
            (Typed::Duration(one), Typed::Duration(other)) => {
                Typed::Duration(Number::Otherwise(Box::new((one, other))))
            }
            (Typed::Real(one), Typed::Real(other)) => Typed::Real(Real::Otherwise(Box::new((one, other)))),
            (Typed::Ip(one), Typed::Ip(other)) => Typed::Ip(Ip::Otherwise(Box::new((one, other)))),
            (Typed::Ip(one), Typed::Text(Text::Constant(_))) => {
                let address = super::operators::literal_ip(other)?;
                Typed::Ip(Ip::Otherwise(Box::new((one, Ip::Constant(address)))))
            }
            (one, typed) => {
                let message = format!("the value is {}, the other one {}", one.kind(), typed.kind());
                return Err(Trouble::new(other.span, message).suggest("give a value of the same type"));
            }
        })
    }

    /// Functions of one argument.
    fn global(&mut self, span: Span, call: &Call, argument: &Term) -> Result<Typed, Trouble> {
        Ok(match call.name.as_str() {
            "size" => match self.typed(argument)? {
                Typed::Parts(parts) => Typed::Number(Number::Count(Box::new(parts))),
                Typed::Text(text) => Typed::Number(Number::Size(Box::new(text))),
                other => return Err(mistyped(argument.span, "string", &other)),
            },
            "int" => match self.typed(argument)? {
                Typed::Text(text) => Typed::Number(Number::OfText(Box::new(text))),
                Typed::Real(real) => Typed::Number(Number::OfReal(Box::new(real))),
                number @ Typed::Number(_) => number,
                other => return Err(mistyped(argument.span, "string", &other)),
            },
            "double" => match self.typed(argument)? {
                Typed::Text(text) => Typed::Real(Real::OfText(Box::new(text))),
                Typed::Number(number) => Typed::Real(Real::OfNumber(Box::new(number))),
                real @ Typed::Real(_) => real,
                other => return Err(mistyped(argument.span, "string", &other)),
            },
            "string" => {
                let typed = self.typed(argument)?;
                Typed::Text(self.as_text(argument.span, typed)?)
            }
            "duration" => Typed::Duration(Number::Constant(self.unit(argument, units::duration, "a duration")?)),
            "quantity" => Typed::Number(Number::Constant(self.unit(argument, units::quantity, "a size")?)),
            "ip" => match self.typed(argument)? {
                Typed::Text(Text::Constant(_)) => Typed::Ip(Ip::Constant(super::operators::literal_ip(argument)?)),
                Typed::Text(text) => Typed::Ip(Ip::OfText(Box::new(text))),
                ip @ Typed::Ip(_) => ip,
                other => return Err(mistyped(argument.span, "string", &other)),
            },
            "isIP" => Typed::Truth(Truth::IsIp(Box::new(self.text(argument)?))),
            "hash" => {
                let typed = self.typed(argument)?;
                Typed::Number(Number::Hash(Box::new(self.as_text(argument.span, typed)?)))
            }
            "cidr" => {
                let trouble = Trouble::new(span, "a network has no value of its own");
                return Err(trouble.suggest("write `cidr(\"10.0.0.0/8\").containsIP(ip)` or `ip in [\"10.0.0.0/8\"]`"));
            }
            _ => return Err(misused(call)),
        })
    }

    /// A constant that a text in quotes says.
    fn unit(&self, argument: &Term, read: fn(&str) -> Option<i64>, what: &str) -> Result<i64, Trouble> {
        let Kind::Text(text) = &argument.kind else {
            return Err(Trouble::new(argument.span, format!("{what} is a text in quotes")));
        };
        let example = if what == "a size" { "16KiB, 1MB or 100" } else { "250ms, 2s or 1m30s" };
        let wrong = || Trouble::new(argument.span, format!("`{text}` is not {what} such as {example}"));
        read(text).ok_or_else(wrong)
    }

    fn method(&mut self, call: &Call, receiver: &Term, arguments: &[&Term]) -> Result<Typed, Trouble> {
        super::body::refuse_json(call)?;
        if !FUNCTIONS.iter().any(|function| function.name == call.name) {
            return Err(misused(call));
        }
        let of = match self.typed(receiver)? {
            Typed::Text(text) => text,
            Typed::Duration(duration) if arguments.is_empty() => return in_units(call, duration),
            Typed::Parts(parts) if call.name == "size" && arguments.is_empty() => {
                return Ok(Typed::Number(Number::Count(Box::new(parts))));
            }
            other => {
                let message = format!("`{}` is not a function of the type {}", call.name, other.kind());
                return Err(Trouble::new(call.at, message));
            }
        };
        match arguments {
            [] => bare_method(call, of),
            [argument] => self.method_of_one(call, of, argument),
            [one, other] => match call.name.as_str() {
                "substring" => {
                    let (from, to) = (self.number(one)?, self.number(other)?);
                    Ok(Typed::Text(Text::Slice(Box::new((of, from, Some(to))))))
                }
                "replace" => {
                    let (needle, by) = (self.needle(one)?, self.text(other)?);
                    Ok(Typed::Text(Text::Replaced(Box::new((of, needle, by)))))
                }
                _ => Err(misused(call)),
            },
            _ => Err(misused(call)),
        }
    }

    fn method_of_one(&mut self, call: &Call, of: Text, argument: &Term) -> Result<Typed, Trouble> {
        Ok(match call.name.as_str() {
            "startsWith" => Typed::Truth(Truth::StartsWith(Box::new((of, self.text(argument)?)))),
            "endsWith" => Typed::Truth(Truth::EndsWith(Box::new((of, self.text(argument)?)))),
            "contains" => Typed::Truth(Truth::Contains(Box::new((of, self.needle(argument)?)))),
            "indexOf" => Typed::Number(Number::Position(Box::new((of, self.needle(argument)?)))),
            "matches" => Typed::Truth(Truth::Matches(Box::new((of, self.regex(argument)?)))),
            "substring" => Typed::Text(Text::Slice(Box::new((of, self.number(argument)?, None)))),
            "split" => match &argument.kind {
                Kind::Text(text) if !text.is_empty() => {
                    let separator = Box::new(Finder::new(text.as_bytes()).into_owned());
                    Typed::Parts(Parts { text: of, separator })
                }
                _ => return Err(Trouble::new(argument.span, "a separator is a text in quotes that is not empty")),
            },
            _ => return Err(misused(call)),
        })
    }

    fn needle(&mut self, argument: &Term) -> Result<Needle, Trouble> {
        Ok(match self.text(argument)? {
            Text::Constant(bytes) => Needle::Constant(Box::new(Finder::new(&bytes).into_owned())),
            text => Needle::Text(text),
        })
    }

    fn matches(&mut self, text: &Term, pattern: &Term) -> Result<Truth, Trouble> {
        Ok(Truth::Matches(Box::new((self.text(text)?, self.regex(pattern)?))))
    }

    fn regex(&mut self, argument: &Term) -> Result<regex::bytes::Regex, Trouble> {
        let Kind::Text(pattern) = &argument.kind else {
            let trouble = Trouble::new(argument.span, "a regular expression is a text in quotes");
            return Err(trouble.suggest("write `contains(…)` for texts that are computed"));
        };
        self.regexes += 1;
        if self.regexes > REGEXES_MAX {
            let message = format!("the expression has more than {REGEXES_MAX} regular expressions");
            return Err(Trouble::new(argument.span, message).suggest("join them with `|`, or put them into a map"));
        }
        expression::anywhere(pattern).map_err(|issue| Trouble::of(argument.span, issue))
    }

    fn has(&mut self, call: &Call) -> Result<Truth, Trouble> {
        let [argument] = &*call.arguments else { return Err(misused(call)) };
        if let Some(entry) = self.entry_of(argument)? {
            return Ok(Truth::HasEntry(Box::new(entry)));
        }
        if let Some(truth) = self.has_mapped(argument)? {
            return Ok(truth);
        }
        let attribute = dotted(argument).and_then(|name| Attribute::find(&name));
        let Some(attribute) = attribute else {
            // A name that is none is reported as such.
            self.typed(argument)?;
            let trouble = Trouble::new(argument.span, "`has` takes a fact or an entry");
            return Err(trouble.suggest("write `has(request.headers[\"x-a\"])`"));
        };
        self.meet(attribute, argument.span)?;
        match attribute.fact {
            Fact::Text(fact) => Ok(Truth::HasText(fact)),
            Fact::Header(name) => Ok(Truth::HasEntry(Box::new(entry(Table::RequestHeaders, name, argument.span)?))),
            Fact::Ip(fact) => Ok(Truth::HasIp(fact)),
            Fact::Table(_) => {
                let trouble = Trouble::new(argument.span, format!("`{}` is a map of strings", attribute.name));
                Err(trouble.suggest(format!("name an entry: `has({}[\"NAME\"])`", attribute.name)))
            }
            Fact::Number(_) | Fact::Truth(_) | Fact::Duration(_) => {
                Err(Trouble::new(argument.span, format!("`{}` always has a value", attribute.name)))
            }
        }
    }

    fn contains_ip(&mut self, call: &Call, receiver: &Term) -> Result<Truth, Trouble> {
        let wrong = |span| {
            let trouble = Trouble::new(span, "`containsIP` is a function of a network");
            trouble.suggest("write `cidr(\"10.0.0.0/8\").containsIP(source.address)`")
        };
        let Kind::Call(network) = &receiver.kind else { return Err(wrong(receiver.span)) };
        match (&network.receiver, network.name.as_str(), &*network.arguments, &*call.arguments) {
            (None, "cidr", [Term { kind: Kind::Text(text), span, .. }], [ip]) => {
                let network = lists::network(text).map_err(|message| Trouble::new(*span, message))?;
                lists::in_network(self, network, ip)
            }
            _ => Err(wrong(call.at)),
        }
    }
}

/// Functions of a text without arguments.
fn bare_method(call: &Call, of: Text) -> Result<Typed, Trouble> {
    let of = Box::new(of);
    Ok(match call.name.as_str() {
        "size" => Typed::Number(Number::Size(of)),
        "lowerAscii" => Typed::Text(Text::Lower(of)),
        "upperAscii" => Typed::Text(Text::Upper(of)),
        "trim" => Typed::Text(Text::Trimmed(of)),
        "urlDecode" => Typed::Text(Text::Decoded(of)),
        _ => return Err(misused(call)),
    })
}

/// A duration in whole units.
fn in_units(call: &Call, duration: Number) -> Result<Typed, Trouble> {
    let nanos = match call.name.as_str() {
        "getHours" => 3_600_000_000_000,
        "getMinutes" => 60_000_000_000,
        "getSeconds" => 1_000_000_000,
        "getMilliseconds" => 1_000_000,
        _ => return Err(misused(call)),
    };
    Ok(Typed::Number(Number::Divided(Box::new((duration, Number::Constant(nanos))))))
}

/// Says what is wrong with a call of a function: there is none of its name, or it is called in another way.
fn misused(call: &Call) -> Trouble {
    match FUNCTIONS.iter().find(|function| function.name == call.name) {
        Some(function) => {
            let forms: Vec<_> = function.forms.iter().map(|form| format!("`{form}`")).collect();
            Trouble::new(call.at, format!("`{}` is not called like this", call.name))
                .suggest(format!("write {}", forms.join(" or ")))
        }
        None => {
            let trouble = Trouble::new(call.at, format!("there is no function `{}`", call.name));
            let other = match call.name.as_str() {
                "lower" | "toLower" | "lowerCase" | "toLowerCase" => Some("lowerAscii"),
                "upper" | "toUpper" | "upperCase" | "toUpperCase" => Some("upperAscii"),
                "len" | "length" | "count" => Some("size"),
                "match" | "regex" | "regexp" | "path_regexp" => Some("matches"),
                "starts_with" | "hasPrefix" | "beginsWith" => Some("startsWith"),
                "ends_with" | "hasSuffix" => Some("endsWith"),
                "includes" => Some("contains"),
                _ => None,
            };
            if let Some(other) = other {
                return trouble.suggest(format!("did you mean `{other}`?"));
            }
            let names = FUNCTIONS.iter().map(|function| function.name);
            Trouble::of(call.at, suggest_nearest_on(PAGE, Issue::at("", trouble.message), &call.name, names))
        }
    }
}
