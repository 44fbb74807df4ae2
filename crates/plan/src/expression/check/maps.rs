//! Maps by name, and looks into them.

use std::sync::Arc;

use model::Issue;
use model::map::MapKind;

use super::super::program::{Looked, MapKey, Text, Truth};
use super::super::syntax::{Call, Kind, Term};
use super::super::trouble::{Span, Trouble};
use super::{Checker, Typed, mistyped};
use crate::filter::settings::suggest_nearest;
use crate::map::MapPlan;

impl Checker<'_> {
    /// The map that a part names, as `maps.NAME` or `maps["NAME"]`, if it names one.
    pub(super) fn map_named(&mut self, term: &Term) -> Result<Option<Arc<MapPlan>>, Trouble> {
        let is_group = |of: &Term| matches!(&of.kind, Kind::Name(name) if name == "maps");
        match &term.kind {
            Kind::Member(of, name, at) if is_group(of) => self.map(name, *at).map(Some),
            Kind::Index(of, index) if is_group(of) => match &index.kind {
                Kind::Text(name) => self.map(name, index.span).map(Some),
                _ => Err(Trouble::new(index.span, "the name of a map is a text in quotes")),
            },
            _ => Ok(None),
        }
    }

    fn map(&mut self, name: &str, at: Span) -> Result<Arc<MapPlan>, Trouble> {
        let Some(map) = self.names.maps.find(name) else {
            let issue = Issue::at("", format!("there is no map `{name}`"));
            return Err(match self.names.maps.names().next() {
                None => Trouble::of(at, issue).suggest("define it under `maps`"),
                Some(_) => Trouble::of(at, suggest_nearest(issue, name, self.names.maps.names())),
            });
        };
        if !self.used.iter().any(|used| Arc::ptr_eq(used, &map)) {
            self.used.push(Arc::clone(&map));
        }
        Ok(map)
    }

    /// A look into a map. Addresses are looked up as such in networks, and as texts elsewhere.
    pub(super) fn looked(&mut self, map: Arc<MapPlan>, key: &Term) -> Result<Looked, Trouble> {
        let kind = map.map().kind;
        let key = match self.typed(key)? {
            Typed::Ip(ip) => MapKey::Ip(ip),
            Typed::Text(text) => MapKey::Text(text),
            Typed::Number(number) if kind != MapKind::Cidr => MapKey::Text(Text::OfNumber(Box::new(number))),
            other => return Err(mistyped(key.span, "string", &other)),
        };
        Ok(Looked { map, key })
    }

    /// `map("NAME", key)` or `map("NAME", key, "otherwise")`.
    pub(super) fn map_call(&mut self, name: &Term, key: &Term, otherwise: Option<&Term>) -> Result<Typed, Trouble> {
        let Kind::Text(text) = &name.kind else {
            return Err(Trouble::new(name.span, "the name of a map is a text in quotes"));
        };
        let map = self.map(text, name.span)?;
        let looked = self.looked(map, key)?;
        let otherwise = otherwise.map(|otherwise| self.text(otherwise)).transpose()?;
        Ok(Typed::Text(Text::Mapped(Box::new((looked, otherwise)))))
    }

    /// Whether a map has an entry: `has(maps.NAME[key])` or `has(map("NAME", key))`. `None`: the part is no look into a map.
    pub(super) fn has_mapped(&mut self, term: &Term) -> Result<Option<Truth>, Trouble> {
        let looked = match &term.kind {
            Kind::Index(of, key) => match self.map_named(of)? {
                Some(map) => self.looked(map, key)?,
                None => return Ok(None),
            },
            Kind::Call(call) => match call_of_map(call) {
                Some((name, at, key)) => {
                    let map = self.map(name, at)?;
                    self.looked(map, key)?
                }
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        Ok(Some(Truth::InMap(Box::new(looked))))
    }
}

/// Name, its place and key of a call `map("NAME", key)`.
fn call_of_map(call: &Call) -> Option<(&str, Span, &Term)> {
    match (&call.receiver, call.name.as_str(), &*call.arguments) {
        (None, "map", [Term { kind: Kind::Text(name), span, .. }, key]) => Some((name, *span, key)),
        _ => None,
    }
}
