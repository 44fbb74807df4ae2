//! An expression, compiled: a tree of operations whose types are known, so that nothing is asked of a value at run time but its value.

use std::sync::Arc;

use memchr::memmem::Finder;
use model::proxy_protocol::TlvName;
use model::table::Reading;
use model::{Cidr, FieldName};
use regex::bytes::Regex;

use super::attributes::{IpFact, NumberFact, Table, TextFact, TimeFact, TruthFact};
use crate::addresses::AddressTable;
use crate::json::Path;
use crate::limit::{Key, Network};
use crate::map::MapPlan;
use crate::route::body::json::pointer;
use crate::table::Table as Counters;

/// True or false.
#[derive(Debug)]
pub(super) enum Truth {
    Constant(bool),
    Fact(TruthFact),
    Not(Box<Truth>),
    All(Box<[Truth]>),
    Any(Box<[Truth]>),
    Choice(Box<(Truth, Truth, Truth)>),
    /// A value, or another one if there is none.
    Otherwise(Box<(Truth, Truth)>),
    Same(Box<(Truth, Truth)>),
    /// Texts: equal, or by order.
    Texts(Order, Box<(Text, Text)>),
    /// Numbers, and durations in nanoseconds.
    Numbers(Order, Box<(Number, Number)>),
    Reals(Order, Box<(Real, Real)>),
    Ips(Box<(Ip, Ip)>),
    /// One of these texts, which are sorted.
    TextIn(Box<(Text, Constants)>),
    /// Any of these texts, which are computed.
    TextAmong(Box<(Text, Box<[Text]>)>),
    /// One of these numbers, which are sorted.
    NumberIn(Box<(Number, Box<[i64]>)>),
    NumberAmong(Box<(Number, Box<[Number]>)>),
    /// In one of these networks.
    IpIn(Box<(Ip, AddressTable)>),
    /// One of the values of an entry.
    ValueIn(Box<(Text, Entry)>),
    /// One of the names of the client's certificate of this kind.
    NameIn(Box<(Text, TextFact)>),
    /// One of the parts of a text.
    PartIn(Box<(Text, Parts)>),
    HasEntry(Box<Entry>),
    HasText(TextFact),
    HasIp(IpFact),
    StartsWith(Box<(Text, Text)>),
    EndsWith(Box<(Text, Text)>),
    Contains(Box<(Text, Needle)>),
    Matches(Box<(Text, Regex)>),
    IsIp(Box<Text>),
    /// There is an entry of a map.
    InMap(Box<Looked>),
}

/// Texts that are known, sorted.
pub(super) type Constants = Box<[Box<[u8]>]>;

/// How two values must compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Order {
    #[inline]
    pub(super) fn holds<T: PartialOrd + ?Sized>(self, one: &T, other: &T) -> bool {
        match self {
            Self::Equal => one == other,
            Self::NotEqual => one != other,
            Self::Less => one < other,
            Self::LessOrEqual => one <= other,
            Self::Greater => one > other,
            Self::GreaterOrEqual => one >= other,
        }
    }
}

/// Any bytes.
#[derive(Debug)]
pub(super) enum Text {
    Constant(Box<[u8]>),
    Fact(TextFact),
    Entry(Box<Entry>),
    Choice(Box<(Truth, Text, Text)>),
    /// A value, or another one if there is none.
    Otherwise(Box<(Text, Text)>),
    Joined(Box<[Text]>),
    Lower(Box<Text>),
    Upper(Box<Text>),
    Trimmed(Box<Text>),
    /// From one byte up to another, or to the end.
    Slice(Box<(Text, Number, Option<Number>)>),
    /// All of one text replaced by another.
    Replaced(Box<(Text, Needle, Text)>),
    Decoded(Box<Text>),
    /// The value of a map, or another text if there is none.
    Mapped(Box<(Looked, Option<Text>)>),
    /// One of the parts of a text, counted from 0.
    Part(Box<(Parts, Number)>),
    OfTruth(Box<Truth>),
    OfNumber(Box<Number>),
    OfReal(Box<Real>),
    OfDuration(Box<Number>),
    OfIp(Box<Ip>),
}

/// What is looked for in a text.
#[derive(Debug)]
pub(super) enum Needle {
    Constant(Box<Finder<'static>>),
    Text(Text),
}

/// The parts of a text between separators.
#[derive(Debug)]
pub(super) struct Parts {
    pub text: Text,
    /// Not empty.
    pub separator: Box<Finder<'static>>,
}

/// A whole number, or a duration in nanoseconds.
#[derive(Debug)]
pub(super) enum Number {
    Constant(i64),
    Fact(NumberFact),
    Time(TimeFact),
    /// What a table has counted.
    Counted(Box<Counted>),
    Choice(Box<(Truth, Number, Number)>),
    /// A value, or another one if there is none.
    Otherwise(Box<(Number, Number)>),
    Plus(Box<(Number, Number)>),
    Minus(Box<(Number, Number)>),
    Times(Box<(Number, Number)>),
    Divided(Box<(Number, Number)>),
    Modulo(Box<(Number, Number)>),
    Size(Box<Text>),
    Count(Box<Parts>),
    /// Where a text is found in another; -1 if it is not.
    Position(Box<(Text, Needle)>),
    OfText(Box<Text>),
    OfReal(Box<Real>),
    Hash(Box<Text>),
}

/// A number with a fraction.
#[derive(Debug)]
pub(super) enum Real {
    Constant(f64),
    Choice(Box<(Truth, Real, Real)>),
    /// A value, or another one if there is none.
    Otherwise(Box<(Real, Real)>),
    Plus(Box<(Real, Real)>),
    Minus(Box<(Real, Real)>),
    Times(Box<(Real, Real)>),
    Divided(Box<(Real, Real)>),
    OfNumber(Box<Number>),
    OfText(Box<Text>),
}

/// An address.
#[derive(Debug)]
pub(super) enum Ip {
    Constant(std::net::IpAddr),
    Fact(IpFact),
    Choice(Box<(Truth, Ip, Ip)>),
    /// A value, or another one if there is none.
    Otherwise(Box<(Ip, Ip)>),
    OfText(Box<Text>),
}

/// One entry of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    RequestHeader(FieldName),
    ResponseHeader(FieldName),
    Query(Box<[u8]>),
    Cookie(Box<[u8]>),
    ProxyTlv(TlvName),
    Claim(Box<str>),
    /// What an authorization service has said.
    Metadata(Box<str>),
    /// A value in the body of the request.
    Json(Path),
}

impl Entry {
    /// Returns the entry of a map of strings with this name.
    ///
    /// # Errors
    /// The name is none for this map.
    pub(super) fn named(table: Table, name: &str) -> Result<Self, String> {
        if name.is_empty() {
            return Err("the name is empty".to_owned());
        }
        Ok(match table {
            Table::RequestHeaders => Self::RequestHeader(FieldName::new(name)?),
            Table::ResponseHeaders => Self::ResponseHeader(FieldName::new(name)?),
            Table::Query => Self::Query(name.as_bytes().into()),
            Table::Cookies => Self::Cookie(name.as_bytes().into()),
            Table::ProxyTlvs => Self::ProxyTlv(TlvName::parse(name)?),
            Table::Claims => Self::Claim(name.into()),
            Table::Metadata => Self::Metadata(name.into()),
            Table::Json if name.starts_with('/') => {
                Self::Json(Path::Steps(pointer(name)?.into_iter().map(String::into_boxed_str).collect()))
            }
            Table::Json => Self::Json(Path::Name(name.into())),
        })
    }
}

/// A look into a map.
#[derive(Debug)]
pub(super) struct Looked {
    pub map: Arc<MapPlan>,
    pub key: MapKey,
}

/// What is looked up in a map.
#[derive(Debug)]
pub(super) enum MapKey {
    Text(Text),
    Ip(Ip),
}

/// A reading of an entry in a table.
pub(super) struct Counted {
    pub table: Arc<Counters>,
    pub reading: Reading,
    pub key: CountedKey,
}

/// The key of an entry in a table.
#[derive(Debug)]
pub(super) enum CountedKey {
    /// What every request has.
    Known(Key),
    /// The network of an address.
    Address(Network, Ip),
    Text(Text),
}

impl std::fmt::Debug for Counted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Counted({}, {}, {:?})", self.table.name(), self.reading, self.key)
    }
}

/// Returns the table of addresses in these networks.
pub(super) fn table_of(networks: impl Iterator<Item = Cidr>) -> AddressTable {
    let entries = networks.map(|network| crate::addresses::Entry { network, is_allowed: true });
    AddressTable::new(entries.collect(), false)
}
