//! `in`: what may stand to its right.

use model::Cidr;

use super::super::attributes::{Attribute, Fact, TextFact};
use super::super::program::{Ip, Number, Text, Truth, table_of};
use super::super::syntax::{Kind, Term};
use super::super::trouble::{Span, Trouble};
use super::{Checker, Typed, dotted, entry, mistyped};

impl Checker<'_> {
    pub(super) fn membership(&mut self, value: &Term, among: &Term) -> Result<Truth, Trouble> {
        if let Kind::List(items) = &among.kind {
            return self.listed(value, items);
        }
        if let Some(table) = self.table(among)? {
            let Kind::Text(name) = &value.kind else {
                let trouble = Trouble::new(value.span, "the name of an entry is a text in quotes");
                return Err(trouble.suggest("for names that are computed, define a map under `maps`"));
            };
            return Ok(Truth::HasEntry(Box::new(entry(table, name, value.span)?)));
        }
        if let Some(found) = self.entry_of(among)? {
            let wanted = self.text(value)?;
            return Ok(Truth::ValueIn(Box::new((wanted, found))));
        }
        if let Some(fact) = self.names_of(among)? {
            return Ok(Truth::NameIn(Box::new((self.text(value)?, fact))));
        }
        if let Some(map) = self.map_named(among)? {
            let looked = self.looked(map, value)?;
            return Ok(Truth::InMap(Box::new(looked)));
        }
        match self.typed(among)? {
            Typed::Parts(parts) => {
                let wanted = self.text(value)?;
                Ok(Truth::PartIn(Box::new((wanted, parts))))
            }
            other => {
                let trouble = Trouble::new(among.span, format!("`in` does not look into a {}", other.kind()));
                Err(match other {
                    Typed::Text(_) => trouble.suggest("write `text.contains(value)`, or a list in `[…]`"),
                    _ => trouble.suggest("write a list in `[…]`"),
                })
            }
        }
    }

    /// The names of the client's certificate that a part means, if it does.
    fn names_of(&mut self, term: &Term) -> Result<Option<TextFact>, Trouble> {
        let attribute = dotted(term).and_then(|name| Attribute::find(&name));
        let Some(Fact::Text(fact @ (TextFact::PeerDns | TextFact::PeerUri | TextFact::PeerEmail))) =
            attribute.map(|attribute| attribute.fact)
        else {
            return Ok(None);
        };
        Ok(Some(fact))
    }

    fn listed(&mut self, value: &Term, items: &[Term]) -> Result<Truth, Trouble> {
        match self.typed(value)? {
            Typed::Text(text) => self.text_listed(text, items),
            Typed::Number(number) => self.number_listed(number, items),
            Typed::Ip(ip) => ip_listed(ip, items),
            other => {
                let kind = other.kind();
                Err(Trouble::new(value.span, format!("`in` does not look for a {kind} in a list"))
                    .suggest("compare with each value"))
            }
        }
    }

    fn text_listed(&mut self, text: Text, items: &[Term]) -> Result<Truth, Trouble> {
        let mut constants: Vec<Box<[u8]>> = Vec::new();
        let mut all = Vec::with_capacity(items.len());
        for item in items {
            let span = item.span;
            let item = self.text(item)?;
            if let Text::Constant(bytes) = &item {
                refuse_network(bytes, span)?;
                constants.push(bytes.clone());
            }
            all.push(item);
        }
        if constants.len() < all.len() {
            return Ok(Truth::TextAmong(Box::new((text, all.into()))));
        }
        constants.sort_unstable();
        constants.dedup();
        Ok(Truth::TextIn(Box::new((text, constants.into()))))
    }

    fn number_listed(&mut self, number: Number, items: &[Term]) -> Result<Truth, Trouble> {
        let mut constants = Vec::new();
        let mut all = Vec::with_capacity(items.len());
        for item in items {
            let item = self.number(item)?;
            if let Number::Constant(number) = item {
                constants.push(number);
            }
            all.push(item);
        }
        if constants.len() < all.len() {
            return Ok(Truth::NumberAmong(Box::new((number, all.into()))));
        }
        constants.sort_unstable();
        Ok(Truth::NumberIn(Box::new((number, constants.into()))))
    }
}

/// Addresses and networks in quotes.
fn ip_listed(ip: Ip, items: &[Term]) -> Result<Truth, Trouble> {
    let network = |item: &Term| match &item.kind {
        Kind::Text(text) => network(text).map_err(|message| Trouble::new(item.span, message)),
        Kind::Call(call) if call.name == "cidr" && call.arguments.len() == 1 => match &call.arguments[0].kind {
            Kind::Text(text) => network(text).map_err(|message| Trouble::new(item.span, message)),
            _ => Err(Trouble::new(item.span, "a network is a text in quotes, such as `\"10.0.0.0/8\"`")),
        },
        _ => Err(Trouble::new(item.span, "a network is a text in quotes, such as `\"10.0.0.0/8\"`")
            .suggest("for networks from a file, define a map under `maps`")),
    };
    let networks: Vec<Cidr> = items.iter().map(network).collect::<Result<_, _>>()?;
    Ok(Truth::IpIn(Box::new((ip, table_of(networks.into_iter())))))
}

/// The network that a text means.
pub(super) fn network(text: &str) -> Result<Cidr, String> {
    text.parse()
}

/// Whether an address is in one network.
pub(super) fn in_network(checker: &mut Checker<'_>, network: Cidr, term: &Term) -> Result<Truth, Trouble> {
    let ip = match checker.typed(term)? {
        Typed::Ip(ip) => ip,
        Typed::Text(text) => Ip::OfText(Box::new(text)),
        other => return Err(mistyped(term.span, "ip", &other)),
    };
    Ok(Truth::IpIn(Box::new((ip, table_of(std::iter::once(network))))))
}

/// A text that is compared with a network would never be equal.
fn refuse_network(constant: &[u8], span: Span) -> Result<(), Trouble> {
    let network = std::str::from_utf8(constant).ok().filter(|text| text.contains('/') && text.parse::<Cidr>().is_ok());
    let Some(network) = network else { return Ok(()) };
    let message = format!("`{network}` is a network, but `in` looks for a string here");
    Err(Trouble::new(span, message).suggest("make it an address: `ip(…) in […]`"))
}
