//! Evaluation. It allocates nothing once the scratch has its working size, and takes time in proportion to the operations and to the texts
//! that they look at.
//!
//! An operation without a value (see [`Failed`]) leaves what is above it without a value, up to a `&&` that another side makes false or a
//! `||` that another side makes true, as in CEL.

use std::io::Write;
use std::net::IpAddr;

use memchr::memmem;

use super::facts;
use super::program::{Counted, CountedKey, Entry, Ip, Looked, MapKey, Needle, Number, Parts, Real, Text, Truth};
use super::subject::Subject;
use super::value::{Bytes, Failed, Scratch, part};
use crate::hash;
use crate::map::{Hit, Key};
use crate::route::query;

/// One evaluation.
pub(super) struct Evaluation<'a, 's> {
    pub of: Subject<'a>,
    pub scratch: Scratch<'s>,
}

/// Parts of a text that are counted, at most.
const PARTS_MAX: usize = 100_000;

impl<'a> Evaluation<'a, '_> {
    /// Forgets the texts that were written for a value that holds none: each term of a condition has all the room, whatever those before
    /// it have written.
    fn released<R>(&mut self, evaluate: impl FnOnce(&mut Self) -> R) -> R {
        let end = self.scratch.end();
        let value = evaluate(self);
        self.scratch.release(end);
        value
    }

    pub(super) fn truth(&mut self, truth: &'a Truth) -> Result<bool, Failed> {
        self.released(|evaluation| evaluation.truth_of(truth))
    }

    fn truth_of(&mut self, truth: &'a Truth) -> Result<bool, Failed> {
        match truth {
            Truth::Constant(flag) => Ok(*flag),
            Truth::Fact(fact) => Ok(facts::truth(*fact, &self.of)),
            Truth::Not(inner) => Ok(!self.truth(inner)?),
            Truth::All(parts) => self.joined(parts, false),
            Truth::Any(parts) => self.joined(parts, true),
            Truth::Choice(parts) => {
                if self.truth(&parts.0)? {
                    self.truth(&parts.1)
                } else {
                    self.truth(&parts.2)
                }
            }
            Truth::Otherwise(sides) => self.truth(&sides.0).or_else(|Failed| self.truth(&sides.1)),
            Truth::Same(sides) => Ok(self.truth(&sides.0)? == self.truth(&sides.1)?),
            Truth::Texts(order, sides) => self.texts(&sides.0, &sides.1, |one, other| order.holds(one, other)),
            Truth::Numbers(order, sides) => Ok(order.holds(&self.number(&sides.0)?, &self.number(&sides.1)?)),
            Truth::Reals(order, sides) => Ok(order.holds(&self.real(&sides.0)?, &self.real(&sides.1)?)),
            Truth::Ips(sides) => Ok(self.ip(&sides.0)? == self.ip(&sides.1)?),
            Truth::StartsWith(sides) => self.texts(&sides.0, &sides.1, <[u8]>::starts_with),
            Truth::EndsWith(sides) => self.texts(&sides.0, &sides.1, <[u8]>::ends_with),
            Truth::Contains(sides) => Ok(self.find(&sides.0, &sides.1)?.is_some()),
            Truth::Matches(sides) => self.look(&sides.0, |text| sides.1.is_match(text)),
            Truth::IsIp(text) => self.look(text, |text| parsed_ip(text).is_some()),
            Truth::HasEntry(entry) => Ok(facts::has(entry, &self.of)),
            Truth::InMap(looked) => Ok(self.mapped(looked)?.is_some()),
            Truth::HasText(fact) => Ok(facts::has_text(*fact, &self.of)),
            Truth::HasIp(fact) => Ok(facts::ip(*fact, &self.of).is_some()),
            _ => self.member(truth),
        }
    }

    /// What asks whether something is among others.
    fn member(&mut self, truth: &'a Truth) -> Result<bool, Failed> {
        match truth {
            Truth::TextIn(sides) => {
                let find = |text: &[u8]| sides.1.binary_search_by(|known| (**known).cmp(text)).is_ok();
                self.look(&sides.0, find)
            }
            Truth::TextAmong(sides) => {
                let wanted = self.text(&sides.0)?;
                self.first_true(&sides.1, |evaluation, item| {
                    let item = evaluation.text(item)?;
                    Ok(evaluation.scratch.get(wanted) == evaluation.scratch.get(item))
                })
            }
            Truth::NumberIn(sides) => Ok(sides.1.binary_search(&self.number(&sides.0)?).is_ok()),
            Truth::NumberAmong(sides) => {
                let wanted = self.number(&sides.0)?;
                self.first_true(&sides.1, |evaluation, item| Ok(evaluation.number(item)? == wanted))
            }
            Truth::IpIn(sides) => Ok(sides.1.allows(self.ip(&sides.0)?)),
            Truth::ValueIn(sides) => {
                let of = self.of;
                let holds = self.look(&sides.0, |wanted| facts::holds(&sides.1, &of, wanted))?;
                if holds || facts::has(&sides.1, &of) { Ok(holds) } else { Err(Failed) }
            }
            Truth::NameIn(sides) => {
                let names = facts::names(sides.1, &self.of).ok_or(Failed)?;
                self.look(&sides.0, |wanted| names.iter().any(|name| name.as_bytes() == wanted))
            }
            Truth::PartIn(sides) => {
                let wanted = self.text(&sides.0)?;
                let text = self.text(&sides.1.text)?;
                let (wanted, text) = (self.scratch.get(wanted), self.scratch.get(text));
                Ok(parts_of(text, &sides.1).any(|(from, to)| &text[from..to] == wanted))
            }
            _ => Err(Failed),
        }
    }

    /// Whether one of several is `ends`. What has no value does not count where another one decides.
    fn joined(&mut self, parts: &'a [Truth], ends: bool) -> Result<bool, Failed> {
        let end = self.first_true(parts, |evaluation, part| Ok(evaluation.truth(part)? == ends))?;
        Ok(end == ends)
    }

    fn first_true<T>(
        &mut self,
        items: &'a [T],
        mut test: impl FnMut(&mut Self, &'a T) -> Result<bool, Failed>,
    ) -> Result<bool, Failed> {
        let mut outcome = Ok(false);
        for item in items {
            match self.released(|evaluation| test(evaluation, item)) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(failed) => outcome = Err(failed),
            }
        }
        outcome
    }

    /// Looks at a text.
    fn look<R>(&mut self, text: &'a Text, look: impl FnOnce(&[u8]) -> R) -> Result<R, Failed> {
        let text = self.text(text)?;
        Ok(look(self.scratch.get(text)))
    }

    fn texts(
        &mut self,
        one: &'a Text,
        other: &'a Text,
        test: impl FnOnce(&[u8], &[u8]) -> bool,
    ) -> Result<bool, Failed> {
        let (one, other) = (self.text(one)?, self.text(other)?);
        Ok(test(self.scratch.get(one), self.scratch.get(other)))
    }

    fn find(&mut self, text: &'a Text, needle: &'a Needle) -> Result<Option<usize>, Failed> {
        let text = self.text(text)?;
        match needle {
            Needle::Constant(finder) => Ok(finder.find(self.scratch.get(text))),
            Needle::Text(needle) => {
                let needle = self.text(needle)?;
                Ok(memmem::find(self.scratch.get(text), self.scratch.get(needle)))
            }
        }
    }

    pub(super) fn text(&mut self, text: &'a Text) -> Result<Bytes<'a>, Failed> {
        match text {
            Text::Constant(bytes) => Ok(Bytes::Borrowed(bytes)),
            Text::Fact(fact) => facts::text(*fact, &self.of, &mut self.scratch),
            Text::Entry(entry) => self.entry(entry),
            Text::Choice(parts) => {
                if self.truth(&parts.0)? {
                    self.text(&parts.1)
                } else {
                    self.text(&parts.2)
                }
            }
            Text::Otherwise(sides) => self.text(&sides.0).or_else(|Failed| self.text(&sides.1)),
            Text::Joined(parts) => self.joined_texts(parts),
            Text::Lower(inner) => self.cased(inner, u8::is_ascii_uppercase, <[u8]>::make_ascii_lowercase),
            Text::Upper(inner) => self.cased(inner, u8::is_ascii_lowercase, <[u8]>::make_ascii_uppercase),
            Text::Trimmed(inner) => {
                let text = self.text(inner)?;
                let bytes = self.scratch.get(text);
                let (from, length) = (bytes.len() - bytes.trim_ascii_start().len(), bytes.trim_ascii().len());
                Ok(part(text, from, from + length))
            }
            Text::Slice(parts) => self.slice(&parts.0, &parts.1, parts.2.as_ref()),
            Text::Replaced(parts) => self.replaced(&parts.0, &parts.1, &parts.2),
            Text::Decoded(inner) => {
                let text = self.text(inner)?;
                if query::is_plain(self.scratch.get(text)) { Ok(text) } else { self.decoded(text) }
            }
            Text::Part(parts) => self.part(&parts.0, &parts.1),
            Text::Mapped(parts) => self.map_value(&parts.0, parts.1.as_ref()),
            _ => self.converted(text),
        }
    }

    /// Texts of other values.
    fn converted(&mut self, text: &'a Text) -> Result<Bytes<'a>, Failed> {
        // Writing into memory cannot fail.
        match text {
            Text::OfTruth(truth) => Ok(Bytes::Borrowed(if self.truth(truth)? { b"true" } else { b"false" })),
            Text::OfNumber(number) => {
                let number = self.number(number)?;
                self.scratch.write(|out| drop(write!(out, "{number}")))
            }
            Text::OfReal(real) => {
                let real = self.real(real)?;
                self.scratch.write(|out| drop(write!(out, "{real}")))
            }
            Text::OfDuration(nanos) => {
                let nanos = self.number(nanos)?;
                self.scratch.write(|out| write_duration(nanos, out))
            }
            Text::OfIp(ip) => {
                let ip = self.ip(ip)?;
                self.scratch.write(|out| drop(write!(out, "{ip}")))
            }
            _ => Err(Failed),
        }
    }

    fn entry(&mut self, entry: &'a Entry) -> Result<Bytes<'a>, Failed> {
        facts::entry(entry, &self.of, &mut self.scratch)?.ok_or(Failed)
    }

    fn joined_texts(&mut self, parts: &'a [Text]) -> Result<Bytes<'a>, Failed> {
        let start = self.scratch.end();
        for text in parts {
            // What is made for a part stands where the part belongs.
            let end = self.scratch.end();
            let bytes = self.text(text)?;
            match self.scratch.forget(end, bytes) {
                Bytes::Written(from, _) if from >= end => {}
                elsewhere => self.scratch.push(elsewhere)?,
            }
        }
        self.scratch.written(start)
    }

    fn cased(&mut self, inner: &'a Text, changes: fn(&u8) -> bool, change: fn(&mut [u8])) -> Result<Bytes<'a>, Failed> {
        let text = self.text(inner)?;
        if !self.scratch.get(text).iter().any(changes) {
            return Ok(text);
        }
        let start = self.scratch.end();
        self.scratch.push(text)?;
        change(self.scratch.tail(start));
        self.scratch.written(start)
    }

    fn slice(&mut self, text: &'a Text, from: &'a Number, to: Option<&'a Number>) -> Result<Bytes<'a>, Failed> {
        let text = self.text(text)?;
        let length = self.scratch.get(text).len();
        let place = |number: i64| usize::try_from(number).ok().filter(|place| *place <= length).ok_or(Failed);
        let from = place(self.number(from)?)?;
        let to = match to {
            Some(to) => place(self.number(to)?)?,
            None => length,
        };
        if from <= to { Ok(part(text, from, to)) } else { Err(Failed) }
    }

    fn replaced(&mut self, text: &'a Text, needle: &'a Needle, by: &'a Text) -> Result<Bytes<'a>, Failed> {
        let (text, by) = (self.text(text)?, self.text(by)?);
        let made;
        let finder = match needle {
            Needle::Constant(finder) => finder,
            Needle::Text(needle) => {
                let needle = self.text(needle)?;
                // The scratch grows while the finder is used.
                made = memmem::Finder::new(self.scratch.get(needle)).into_owned();
                &made
            }
        };
        let length = finder.needle().len();
        if length == 0 {
            return Ok(text);
        }
        let start = self.scratch.end();
        let mut from = 0;
        loop {
            let rest = &self.scratch.get(text)[from..];
            let Some(found) = finder.find(rest) else { break };
            self.scratch.push(part(text, from, from + found))?;
            self.scratch.push(by)?;
            from += found + length;
        }
        if from == 0 {
            return Ok(text);
        }
        let end = self.scratch.get(text).len();
        self.scratch.push(part(text, from, end))?;
        self.scratch.written(start)
    }

    fn decoded(&mut self, text: Bytes<'a>) -> Result<Bytes<'a>, Failed> {
        let start = self.scratch.end();
        self.scratch.push(text)?;
        self.scratch.decode(start);
        self.scratch.written(start)
    }

    fn part(&mut self, parts: &'a Parts, place: &'a Number) -> Result<Bytes<'a>, Failed> {
        let text = self.text(&parts.text)?;
        let place = usize::try_from(self.number(place)?).ok().filter(|place| *place <= PARTS_MAX).ok_or(Failed)?;
        let found = parts_of(self.scratch.get(text), parts).nth(place);
        found.map(|(from, to)| part(text, from, to)).ok_or(Failed)
    }

    /// What a map has for a key.
    fn mapped(&mut self, looked: &'a Looked) -> Result<Option<Hit<'a>>, Failed> {
        match &looked.key {
            MapKey::Ip(ip) => Ok(looked.map.find(Key::Ip(self.ip(ip)?))),
            MapKey::Text(text) => self.look(text, |text| looked.map.find(Key::Text(text))),
        }
    }

    fn map_value(&mut self, looked: &'a Looked, otherwise: Option<&'a Text>) -> Result<Bytes<'a>, Failed> {
        // A key without a value has no entry.
        match (self.mapped(looked).unwrap_or(None), otherwise) {
            (Some(Hit::Configured(value)), _) => Ok(Bytes::Borrowed(value)),
            (Some(hit), _) => self.scratch.write(|out| out.extend_from_slice(hit.value())),
            (None, Some(otherwise)) => self.text(otherwise),
            (None, None) => Ok(Bytes::Borrowed(looked.map.default_value())),
        }
    }

    pub(super) fn number(&mut self, number: &'a Number) -> Result<i64, Failed> {
        self.released(|evaluation| evaluation.number_of(number))
    }

    fn number_of(&mut self, number: &'a Number) -> Result<i64, Failed> {
        match number {
            Number::Constant(number) => Ok(*number),
            Number::Fact(fact) => Ok(facts::number(*fact, &self.of)),
            Number::Time(fact) => Ok(facts::time(*fact, &self.of)),
            Number::Counted(counted) => self.counted(counted),
            Number::Choice(parts) => {
                if self.truth(&parts.0)? {
                    self.number(&parts.1)
                } else {
                    self.number(&parts.2)
                }
            }
            Number::Otherwise(sides) => self.number(&sides.0).or_else(|Failed| self.number(&sides.1)),
            Number::Plus(sides) => self.number(&sides.0)?.checked_add(self.number(&sides.1)?).ok_or(Failed),
            Number::Minus(sides) => self.number(&sides.0)?.checked_sub(self.number(&sides.1)?).ok_or(Failed),
            Number::Times(sides) => self.number(&sides.0)?.checked_mul(self.number(&sides.1)?).ok_or(Failed),
            Number::Divided(sides) => self.number(&sides.0)?.checked_div(self.number(&sides.1)?).ok_or(Failed),
            Number::Modulo(sides) => self.number(&sides.0)?.checked_rem(self.number(&sides.1)?).ok_or(Failed),
            Number::Size(text) => self.look(text, <[u8]>::len).map(signed),
            Number::Count(parts) => {
                let text = self.text(&parts.text)?;
                Ok(signed(parts_of(self.scratch.get(text), parts).take(PARTS_MAX).count()))
            }
            Number::Position(sides) => Ok(self.find(&sides.0, &sides.1)?.map_or(-1, signed)),
            Number::OfText(text) => self.look(text, facts::digits)?.ok_or(Failed),
            Number::OfReal(real) => whole(self.real(real)?),
            // Without the sign.
            Number::Hash(text) => self.look(text, |text| (hash::of_bytes(text) >> 1) as i64),
        }
    }

    /// What a table has counted. A text without a value is the empty one, as where it is counted; an address without a value has no
    /// entry.
    fn counted(&mut self, counted: &'a Counted) -> Result<i64, Failed> {
        let now = self.of.now.ok_or(Failed)?;
        let read = |key: &[u8]| counted.table.get(key, counted.reading, now);
        let count = match &counted.key {
            CountedKey::Known(key) => key.with(self.of.request.ok_or(Failed)?, self.of.facts.client, read),
            CountedKey::Address(network, ip) => self.ip(ip).map_or(0, |ip| network.with(ip, read)),
            CountedKey::Text(text) => {
                let key = self.text(text).unwrap_or(Bytes::Borrowed(b""));
                read(self.scratch.get(key))
            }
        };
        Ok(i64::try_from(count).unwrap_or(i64::MAX))
    }

    pub(super) fn real(&mut self, real: &'a Real) -> Result<f64, Failed> {
        self.released(|evaluation| evaluation.real_of(real))
    }

    fn real_of(&mut self, real: &'a Real) -> Result<f64, Failed> {
        match real {
            Real::Constant(real) => Ok(*real),
            Real::Choice(parts) => {
                if self.truth(&parts.0)? {
                    self.real(&parts.1)
                } else {
                    self.real(&parts.2)
                }
            }
            Real::Otherwise(sides) => self.real(&sides.0).or_else(|Failed| self.real(&sides.1)),
            Real::Plus(sides) => Ok(self.real(&sides.0)? + self.real(&sides.1)?),
            Real::Minus(sides) => Ok(self.real(&sides.0)? - self.real(&sides.1)?),
            Real::Times(sides) => Ok(self.real(&sides.0)? * self.real(&sides.1)?),
            Real::Divided(sides) => Ok(self.real(&sides.0)? / self.real(&sides.1)?),
            Real::OfNumber(number) => Ok(self.number(number)? as f64),
            Real::OfText(text) => self.look(text, parsed_real)?.ok_or(Failed),
        }
    }

    pub(super) fn ip(&mut self, ip: &'a Ip) -> Result<IpAddr, Failed> {
        self.released(|evaluation| evaluation.ip_of(ip))
    }

    fn ip_of(&mut self, ip: &'a Ip) -> Result<IpAddr, Failed> {
        match ip {
            Ip::Constant(ip) => Ok(*ip),
            Ip::Fact(fact) => facts::ip(*fact, &self.of).ok_or(Failed),
            Ip::Choice(parts) => {
                if self.truth(&parts.0)? {
                    self.ip(&parts.1)
                } else {
                    self.ip(&parts.2)
                }
            }
            Ip::Otherwise(sides) => self.ip(&sides.0).or_else(|Failed| self.ip(&sides.1)),
            Ip::OfText(text) => self.look(text, parsed_ip)?.ok_or(Failed),
        }
    }
}

fn signed(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn parsed_real(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok().filter(|real: &f64| real.is_finite())
}

/// Returns the whole part of a number that fits.
fn whole(real: f64) -> Result<i64, Failed> {
    // Both ends are powers of two, and so exact.
    let fits = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&real);
    if fits { Ok(real as i64) } else { Err(Failed) }
}

fn parsed_ip(text: &[u8]) -> Option<IpAddr> {
    std::str::from_utf8(text).ok()?.parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
}

/// Returns the parts of a text between separators: the first and the last byte of each.
fn parts_of<'t>(text: &'t [u8], parts: &'t Parts) -> impl Iterator<Item = (usize, usize)> + 't {
    let mut found = parts.separator.find_iter(text);
    let mut next = Some(0);
    std::iter::from_fn(move || {
        let from = next?;
        let to = found.next();
        next = to.map(|to| to + parts.separator.needle().len());
        Some((from, to.unwrap_or(text.len())))
    })
}

/// Writes a duration as CEL does: in seconds, with `s` behind.
pub(super) fn write_duration(nanos: i64, out: &mut Vec<u8>) {
    let sign = if nanos < 0 { "-" } else { "" };
    let (seconds, rest) = (nanos.unsigned_abs() / 1_000_000_000, nanos.unsigned_abs() % 1_000_000_000);
    let _ = write!(out, "{sign}{seconds}");
    if rest > 0 {
        let start = out.len() + 1;
        let _ = write!(out, ".{rest:09}");
        while out.len() > start && out.last() == Some(&b'0') {
            out.pop();
        }
    }
    out.push(b's');
}
