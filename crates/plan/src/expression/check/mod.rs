//! The tree to a program: every name is found and every type is known, or it is said what is wrong, and where.

mod body;
mod calls;
mod lists;
mod maps;
mod operators;
mod tables;
mod units;

use super::attributes::{ATTRIBUTES, Attribute, Fact, Table};
use super::functions::FUNCTIONS;
use super::names::Names;
use super::program::{Entry, Ip, Number, Parts, Real, Text, Truth};
use super::scope::Scope;
use super::syntax::{Kind, Term};
use super::trouble::{Span, Trouble};
use crate::filter::settings::suggest_nearest_on;
use crate::map::MapPlan;
use crate::table::Table as Counters;

use std::sync::Arc;

use model::Issue;

/// The page that lists facts and functions.
pub(super) const PAGE: &str = "docs/reference/expressions.md";

/// A part whose type is known.
#[derive(Debug)]
pub(super) enum Typed {
    Truth(Truth),
    Text(Text),
    Number(Number),
    Duration(Number),
    Real(Real),
    Ip(Ip),
    /// What `split` gives.
    Parts(Parts),
}

impl Typed {
    /// Returns the type as CEL calls it.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Truth(_) => "bool",
            Self::Text(_) => "string",
            Self::Number(_) => "int",
            Self::Duration(_) => "duration",
            Self::Real(_) => "double",
            Self::Ip(_) => "ip",
            Self::Parts(_) => "list of strings",
        }
    }
}

/// Compiles one expression.
pub(super) struct Checker<'a> {
    scope: Scope,
    names: Names<'a>,
    /// The maps that it names, each once.
    pub used: Vec<Arc<MapPlan>>,
    /// The tables that it reads, each once.
    pub used_tables: Vec<Arc<Counters>>,
    /// From when on all that it names is known.
    pub needs: Scope,
    /// It reads the body of the request.
    pub reads_body: bool,
    regexes: usize,
}

impl<'a> Checker<'a> {
    /// For an expression that is evaluated at this moment, and may use what has these names.
    pub(super) fn new(scope: Scope, names: Names<'a>) -> Self {
        Self {
            scope,
            names,
            used: Vec::new(),
            used_tables: Vec::new(),
            needs: Scope::Route,
            reads_body: false,
            regexes: 0,
        }
    }

    /// Compiles a part.
    pub(super) fn typed(&mut self, term: &Term) -> Result<Typed, Trouble> {
        match &term.kind {
            Kind::Bool(flag) => Ok(Typed::Truth(Truth::Constant(*flag))),
            Kind::Int(number) => Ok(Typed::Number(Number::Constant(*number))),
            Kind::Double(real) => Ok(Typed::Real(Real::Constant(*real))),
            Kind::Text(text) => Ok(Typed::Text(Text::Constant(text.as_bytes().into()))),
            Kind::Name(_) | Kind::Member(..) => self.named(term),
            Kind::Index(of, index) => self.index(term, (of, index)),
            Kind::Call(call) => self.call(term.span, call),
            Kind::List(_) => {
                let trouble = Trouble::new(term.span, "a list stands only to the right of `in`");
                Err(trouble.suggest("write `value in [\"a\", \"b\"]`"))
            }
            Kind::Not(inner) => Ok(Typed::Truth(Truth::Not(Box::new(self.truth(inner)?)))),
            Kind::Minus(inner) => self.negated(term.span, inner),
            Kind::Binary(operator, sides) => self.binary(*operator, (&sides.0, &sides.1)),
            Kind::All(parts) => Ok(Typed::Truth(Truth::All(self.truths(parts)?))),
            Kind::Any(parts) => Ok(Typed::Truth(Truth::Any(self.truths(parts)?))),
            Kind::Choice(parts) => self.choice(parts),
        }
    }

    fn truths(&mut self, terms: &[Term]) -> Result<Box<[Truth]>, Trouble> {
        terms.iter().map(|term| self.truth(term)).collect()
    }

    /// Compiles a part that must be true or false.
    pub(super) fn truth(&mut self, term: &Term) -> Result<Truth, Trouble> {
        match self.typed(term)? {
            Typed::Truth(truth) => Ok(truth),
            other => {
                let trouble = mistyped(term.span, "bool", &other);
                Err(match &other {
                    Typed::Text(_) => trouble.suggest("compare it, or write `has(…)` to ask whether there is a value"),
                    Typed::Number(_) | Typed::Real(_) | Typed::Duration(_) | Typed::Ip(_) => {
                        trouble.suggest("compare it with a value")
                    }
                    _ => trouble,
                })
            }
        }
    }

    /// Compiles a part that must be a text.
    fn text(&mut self, term: &Term) -> Result<Text, Trouble> {
        match self.typed(term)? {
            Typed::Text(text) => Ok(text),
            Typed::Parts(_) => Err(Trouble::new(term.span, "this is a list of strings, but a string is needed")
                .suggest("choose one of it, such as `….split(\",\")[0]`")),
            other => Err(mistyped(term.span, "string", &other).suggest("write `string(…)`")),
        }
    }

    /// Compiles a part that must be a whole number.
    pub(super) fn number(&mut self, term: &Term) -> Result<Number, Trouble> {
        match self.typed(term)? {
            Typed::Number(number) => Ok(number),
            other @ (Typed::Text(_) | Typed::Real(_)) => {
                Err(mistyped(term.span, "int", &other).suggest("write `int(…)`"))
            }
            other => Err(mistyped(term.span, "int", &other)),
        }
    }

    /// Compiles a whole expression whose value is written as text.
    pub(super) fn written(&mut self, term: &Term) -> Result<Text, Trouble> {
        let typed = self.typed(term)?;
        self.as_text(term.span, typed)
    }

    /// Returns the text of a value of any type.
    fn as_text(&self, span: Span, typed: Typed) -> Result<Text, Trouble> {
        Ok(match typed {
            Typed::Text(text) => text,
            Typed::Truth(truth) => Text::OfTruth(Box::new(truth)),
            Typed::Number(number) => Text::OfNumber(Box::new(number)),
            Typed::Duration(number) => Text::OfDuration(Box::new(number)),
            Typed::Real(real) => Text::OfReal(Box::new(real)),
            Typed::Ip(ip) => Text::OfIp(Box::new(ip)),
            Typed::Parts(_) => {
                let trouble = Trouble::new(span, "this is a list of strings, not one value");
                return Err(trouble.suggest("choose one of it, such as `….split(\",\")[0]`"));
            }
        })
    }

    /// A fact, or an entry of a table by `.name`.
    fn named(&mut self, term: &Term) -> Result<Typed, Trouble> {
        if let Some(entry) = self.entry_of(term)? {
            return Ok(Typed::Text(Text::Entry(Box::new(entry))));
        }
        if let Some(number) = self.counted(term)? {
            return Ok(Typed::Number(number));
        }
        let attribute = self.attribute(term)?;
        self.meet(attribute, term.span)?;
        Ok(match attribute.fact {
            Fact::Text(fact) => Typed::Text(Text::Fact(fact)),
            Fact::Header(name) => Typed::Text(Text::Entry(Box::new(entry(Table::RequestHeaders, name, term.span)?))),
            Fact::Number(fact) => Typed::Number(Number::Fact(fact)),
            Fact::Truth(fact) => Typed::Truth(Truth::Fact(fact)),
            Fact::Duration(fact) => Typed::Duration(Number::Time(fact)),
            Fact::Ip(fact) => Typed::Ip(Ip::Fact(fact)),
            Fact::Table(_) => {
                let name = attribute.name;
                let trouble = Trouble::new(term.span, format!("`{name}` is a map of strings, not one value"));
                let mend = match name {
                    "request.query" => format!("write `{name}[\"NAME\"]`, or `request.query_string` for all of it"),
                    _ => format!("write `{name}[\"NAME\"]`"),
                };
                return Err(trouble.suggest(mend));
            }
        })
    }

    /// The fact that a name means.
    fn attribute(&self, term: &Term) -> Result<&'static Attribute, Trouble> {
        let Some(name) = dotted(term) else {
            let at = match &term.kind {
                Kind::Member(of, _, at) => {
                    self.refuse_call_of_json(of)?;
                    *at
                }
                _ => term.span,
            };
            return Err(Trouble::new(at, "only facts and maps have members"));
        };
        Attribute::find(&name).ok_or_else(|| self.unknown(&name, term.span))
    }

    /// Says that there is no such fact, and which may be meant.
    fn unknown(&self, name: &str, span: Span) -> Trouble {
        if name == "maps" || name.starts_with("maps.") {
            let trouble = Trouble::new(span, "a map is not a value");
            return trouble.suggest("write `map(\"NAME\", key)`, or `key in maps.NAME`");
        }
        if name == "tables" || name.starts_with("tables.") {
            let trouble = Trouble::new(span, "a table is not a value");
            return trouble.suggest("write `tables.NAME.requests_rate`");
        }
        if Attribute::is_group(name) {
            let trouble = Trouble::new(span, format!("`{name}` is a group of facts, not a value"));
            let within = ATTRIBUTES.iter().filter(|one| one.name.starts_with(&format!("{name}.")));
            let some: Vec<_> = within.take(3).map(|one| format!("`{}`", one.name)).collect();
            return trouble.suggest(format!("name one of it, such as {}", some.join(", ")));
        }
        let trouble = Trouble::new(span, format!("there is no fact `{name}`"));
        if FUNCTIONS.iter().any(|function| function.name == name) {
            return trouble.suggest(format!("`{name}` is a function: write `{name}(…)`"));
        }
        if let Some(meant) = Attribute::by_variable(name) {
            let entry = if meant.is_map() { "[\"NAME\"]" } else { "" };
            return trouble.suggest(format!("write `{}{entry}`", meant.name));
        }
        if let Some((_, meant)) = SYNONYMS.iter().find(|(other, _)| *other == name) {
            return trouble.suggest(format!("write `{meant}`"));
        }
        let last = |name: &str| name.rsplit('.').next().map(str::to_owned);
        let of_last = |one: &&Attribute| last(one.name) == last(name);
        if let Some(meant) = ATTRIBUTES.iter().find(of_last) {
            let when = if meant.since > self.scope {
                format!(", which is known only {}", meant.since.moment())
            } else {
                String::new()
            };
            return trouble.suggest(format!("write `{}`{when}", meant.name));
        }
        let known = ATTRIBUTES.iter().filter(|one| one.since <= self.scope).map(|one| one.name);
        Trouble::of(span, suggest_nearest_on(PAGE, Issue::at("", trouble.message), name, known))
    }

    /// Notes that a fact is used, if it is known in time.
    fn meet(&mut self, attribute: &Attribute, span: Span) -> Result<(), Trouble> {
        if attribute.is_of_body() {
            self.meet_body(attribute.name, span)?;
        }
        if attribute.since > self.scope {
            let (name, moment) = (attribute.name, attribute.since.moment());
            let trouble = Trouble::new(span, format!("`{name}` has no value yet: it is known only {moment}"));
            return Err(trouble.suggest(match attribute.since {
                Scope::Route | Scope::Request => "use it in `when`, or in a setting of a filter",
                Scope::Response => {
                    "use it in a filter that acts only on responses, such as `set_response_header`, or in an access log"
                }
                Scope::Log => "use it in `when` of an access log",
            }));
        }
        self.needs = self.needs.max(attribute.since);
        Ok(())
    }

    /// The table that a part names, if it names one.
    fn table(&mut self, term: &Term) -> Result<Option<Table>, Trouble> {
        let attribute = dotted(term).and_then(|name| Attribute::find(&name));
        match attribute.map(|attribute| (attribute, attribute.fact)) {
            Some((attribute, Fact::Table(table))) => {
                self.meet(attribute, term.span)?;
                Ok(Some(table))
            }
            _ => Ok(None),
        }
    }

    fn index(&mut self, term: &Term, (of, index): (&Term, &Term)) -> Result<Typed, Trouble> {
        if let Some(entry) = self.entry_of(term)? {
            return Ok(Typed::Text(Text::Entry(Box::new(entry))));
        }
        if let Some(map) = self.map_named(of)? {
            let looked = self.looked(map, index)?;
            return Ok(Typed::Text(Text::Mapped(Box::new((looked, None)))));
        }
        match self.typed(of)? {
            Typed::Parts(parts) => {
                let place = self.number(index)?;
                Ok(Typed::Text(Text::Part(Box::new((parts, place)))))
            }
            other => Err(Trouble::new(of.span, format!("a value of the type {} has no entries", other.kind()))),
        }
    }

    /// The entry of a table that `of[index]` means, if `of` is one.
    fn entry(&mut self, of: &Term, index: &Term) -> Result<Option<Entry>, Trouble> {
        let Some(table) = self.table(of)? else { return Ok(None) };
        let Kind::Text(name) = &index.kind else {
            let trouble = Trouble::new(index.span, "the name of an entry is a text in quotes");
            return Err(trouble.suggest("for names that are computed, define a map under `maps`"));
        };
        entry(table, name, index.span).map(Some)
    }

    /// The entry of a table that a part means, as `of[index]` or `of.name`.
    fn entry_of(&mut self, term: &Term) -> Result<Option<Entry>, Trouble> {
        if let Some(entry) = self.entry_of_body(term)? {
            return Ok(Some(entry));
        }
        match &term.kind {
            Kind::Index(of, index) => self.entry(of, index),
            Kind::Member(of, name, at) => {
                let table = self.table(of)?;
                table.map(|table| entry(table, name, *at)).transpose()
            }
            _ => Ok(None),
        }
    }

    fn choice(&mut self, parts: &[Term; 3]) -> Result<Typed, Trouble> {
        let condition = self.truth(&parts[0])?;
        let sides = (self.typed(&parts[1])?, self.typed(&parts[2])?);
        Ok(match sides {
            (Typed::Truth(one), Typed::Truth(other)) => Typed::Truth(Truth::Choice(Box::new((condition, one, other)))),
            (Typed::Text(one), Typed::Text(other)) => Typed::Text(Text::Choice(Box::new((condition, one, other)))),
            (Typed::Number(one), Typed::Number(other)) => {
                Typed::Number(Number::Choice(Box::new((condition, one, other))))
            }
            (Typed::Duration(one), Typed::Duration(other)) => {
                Typed::Duration(Number::Choice(Box::new((condition, one, other))))
            }
            (Typed::Real(one), Typed::Real(other)) => Typed::Real(Real::Choice(Box::new((condition, one, other)))),
            (Typed::Ip(one), Typed::Ip(other)) => Typed::Ip(Ip::Choice(Box::new((condition, one, other)))),
            (one, other) => {
                let span = parts[1].span.to(parts[2].span);
                let message = format!("one side of `:` is {}, the other {}", one.kind(), other.kind());
                return Err(Trouble::new(span, message).suggest("write `string(…)` around the side that is no string"));
            }
        })
    }
}

/// The name that a chain of members spells.
fn dotted(term: &Term) -> Option<String> {
    match &term.kind {
        Kind::Name(name) => Some(name.clone()),
        Kind::Member(of, name, _) => dotted(of).map(|of| format!("{of}.{name}")),
        _ => None,
    }
}

/// The entry of a table with this name.
fn entry(table: Table, name: &str, span: Span) -> Result<Entry, Trouble> {
    Entry::named(table, name).map_err(|message| Trouble::new(span, message))
}

fn mistyped(span: Span, wanted: &str, found: &Typed) -> Trouble {
    Trouble::new(span, format!("this is of the type {}, but {wanted} is needed", found.kind()))
}

/// Names of other products, and the facts that they are.
const SYNONYMS: [(&str, &str); 12] = [
    ("source.ip", "source.address"),
    ("client.ip", "source.address"),
    ("client.address", "source.address"),
    ("remote_addr", "source.address"),
    ("remote_ip", "source.address"),
    ("destination.ip", "destination.address"),
    ("request.url", "request.uri"),
    ("request.version", "request.protocol"),
    ("request.status", "response.code"),
    ("response.status", "response.code"),
    ("response.status_code", "response.code"),
    ("jwt.sub", "jwt.claims[\"sub\"]"),
];
