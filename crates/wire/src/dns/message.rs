//! Questions and answers (RFC 1035 section 4), with EDNS (RFC 6891).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::name::Name;

/// Bytes of an answer over UDP that we take: what fits through every network in one piece.
pub const UDP_BYTES_MAX: u16 = 1232;
/// Records of an answer that are looked at.
const RECORDS_MAX: usize = 4096;
/// Links from alias to alias that are followed.
const ALIASES_MAX: usize = 16;
/// RFC 1035 section 4.1.1.
const HEADER_BYTES: usize = 12;
const CLASS_IN: u16 = 1;
const TYPE_CNAME: u16 = 5;
const TYPE_SOA: u16 = 6;
const TYPE_OPT: u16 = 41;
/// A time to live has 31 bits; what is larger means 0 (RFC 2181 section 8).
const TTL_MAX: u32 = i32::MAX as u32;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses (RFC 3596).
    Aaaa,
    /// Where something is offered, with ports (RFC 2782).
    Srv,
}

impl Kind {
    fn code(self) -> u16 {
        match self {
            Self::A => 1,
            Self::Aaaa => 28,
            Self::Srv => 33,
        }
    }

    /// As people write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::Aaaa => "AAAA",
            Self::Srv => "SRV",
        }
    }
}

/// A place where something is offered (RFC 2782).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Srv {
    /// The least comes first.
    pub priority: u16,
    /// Share among those of the same priority.
    pub weight: u16,
    /// Its port.
    pub port: u16,
    /// Its host.
    pub target: Name,
}

/// Why a resolver has no answer for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It cannot read the question; some of those that do not know EDNS say so.
    Format,
    /// It failed itself, or those that it asks did.
    Failure,
    /// It does not want to.
    Unwilling,
    /// It says another code, RFC 6895 section 2.3.
    Code(u16),
    /// It asks us to ask others, and has no answer itself.
    Referral,
    /// Its aliases lead to what it does not tell, or in a circle.
    Aliases,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format => f.write_str("FORMERR"),
            Self::Failure => f.write_str("SERVFAIL"),
            Self::Unwilling => f.write_str("REFUSED"),
            Self::Code(code) => write!(f, "response code {code}"),
            Self::Referral => f.write_str("a referral to others"),
            Self::Aliases => f.write_str("aliases without an end"),
        }
    }
}

/// What an answer says about the question. Times to live are seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// These addresses, sorted, each once.
    Addresses(Vec<IpAddr>, u32),
    /// These places, sorted, each once.
    Places(Vec<Srv>, u32),
    /// The name is there and has nothing of this kind (RFC 2308 section 2.2). `None`: for how long is not said.
    Nothing(Option<u32>),
    /// The name is not there (RFC 2308 section 2.1).
    NoName(Option<u32>),
    /// It was cut off: ask by TCP.
    Cut,
    /// Nothing is known by this.
    Refused(Refused),
}

/// Appends a question, which is to be answered by asking others too.
pub fn question(id: u16, name: &Name, kind: Kind, edns: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    out.extend_from_slice(&id.to_be_bytes());
    // RD.
    out.extend_from_slice(&[0x01, 0x00]);
    out.extend_from_slice(&[0, 1, 0, 0, 0, 0, 0, u8::from(edns)]);
    name.write(&mut out);
    out.extend_from_slice(&kind.code().to_be_bytes());
    out.extend_from_slice(&CLASS_IN.to_be_bytes());
    if edns {
        // RFC 6891 section 6.1.2: the root, OPT, our size, no extended code, version 0, no flag, no option.
        out.push(0);
        out.extend_from_slice(&TYPE_OPT.to_be_bytes());
        out.extend_from_slice(&UDP_BYTES_MAX.to_be_bytes());
        out.extend_from_slice(&[0; 6]);
    }
    out
}

/// An answer to a question of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    question: (Name, Kind),
    code: u16,
    is_cut: bool,
    is_final: bool,
    aliases: Vec<(Name, Name, u32)>,
    addresses: Vec<(Name, IpAddr, u32)>,
    places: Vec<(Name, Srv, u32)>,
    /// Seconds that what is not there is not there.
    negative_ttl: Option<u32>,
    has_referral: bool,
}

/// Where a record stands.
#[derive(Clone, Copy, PartialEq)]
enum Section {
    Answer,
    Authority,
    Additional,
}

struct Record<'a> {
    owner: Name,
    kind: u16,
    class: u16,
    ttl: u32,
    data: (&'a [u8], usize),
}

impl Answer {
    /// Reads an answer to this question. Returns `None` if it is malformed or answers another question: then its sender is not trusted,
    /// and the wait continues (RFC 5452 section 9.1).
    pub fn read(message: &[u8], id: u16, name: &Name, kind: Kind) -> Option<Self> {
        let word = |at: usize| Some(u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]));
        let flags = word(2)?;
        let is_response = flags & 0x8000 != 0;
        let is_query = flags & 0x7800 == 0;
        if word(0)? != id || !is_response || !is_query || word(4)? != 1 {
            return None;
        }
        let (asked, at) = Name::read(message, HEADER_BYTES)?;
        if asked != *name || word(at)? != kind.code() || word(at + 2)? != CLASS_IN {
            return None;
        }
        let mut answer = Self {
            question: (asked, kind),
            code: flags & 0xf,
            is_cut: flags & 0x0200 != 0,
            // Authoritative, or it asks others for us.
            is_final: flags & 0x0480 != 0,
            aliases: Vec::new(),
            addresses: Vec::new(),
            places: Vec::new(),
            negative_ttl: None,
            has_referral: false,
        };
        // What was cut is read by TCP: nothing of it counts.
        if answer.is_cut {
            return Some(answer);
        }
        let sections = [(Section::Answer, word(6)?), (Section::Authority, word(8)?), (Section::Additional, word(10)?)];
        answer.read_records(message, at + 4, sections)?;
        Some(answer)
    }

    fn read_records(&mut self, message: &[u8], mut at: usize, sections: [(Section, u16); 3]) -> Option<()> {
        let mut seen = 0;
        for (section, count) in sections {
            for _ in 0..count {
                seen += 1;
                if seen > RECORDS_MAX {
                    return None;
                }
                let (record, next) = read_record(message, at)?;
                at = next;
                self.note(message, section, &record)?;
            }
        }
        Some(())
    }

    /// `None`: the record is not what it says it is.
    fn note(&mut self, message: &[u8], section: Section, record: &Record<'_>) -> Option<()> {
        let (data, start) = record.data;
        if record.kind == TYPE_OPT {
            // RFC 6891 section 6.1.3: the upper bits of the code.
            self.code |= ((record.ttl >> 24) as u16) << 4;
            return Some(());
        }
        if record.class != CLASS_IN {
            return Some(());
        }
        let ttl = if record.ttl > TTL_MAX { 0 } else { record.ttl };
        let owner = record.owner.clone();
        match (record.kind, section) {
            (TYPE_CNAME, Section::Answer) => {
                let (target, end) = Name::read(message, start)?;
                (end == start + data.len()).then(|| self.aliases.push((owner, target, ttl)))?;
            }
            (1, Section::Answer) => {
                let octets: [u8; 4] = data.try_into().ok()?;
                self.addresses.push((owner, Ipv4Addr::from(octets).into(), ttl));
            }
            (28, Section::Answer) => {
                let octets: [u8; 16] = data.try_into().ok()?;
                self.addresses.push((owner, Ipv6Addr::from(octets).into(), ttl));
            }
            (33, Section::Answer) => {
                let number = |at: usize| Some(u16::from_be_bytes([*data.get(at)?, *data.get(at + 1)?]));
                let (priority, weight, port) = (number(0)?, number(2)?, number(4)?);
                let (target, end) = Name::read(message, start + 6)?;
                let place = Srv { priority, weight, port, target };
                (end == start + data.len()).then(|| self.places.push((owner, place, ttl)))?;
            }
            (TYPE_SOA, Section::Authority) => {
                // The last of its numbers, and no longer than it lives itself (RFC 2308 section 5).
                let last: [u8; 4] = data.get(data.len().checked_sub(4)?..)?.try_into().ok()?;
                self.negative_ttl = Some(u32::from_be_bytes(last).min(ttl));
            }
            (2, Section::Authority) => self.has_referral = true,
            _ => {}
        }
        Some(())
    }

    /// What it says about the question.
    pub fn meaning(&self) -> Meaning {
        match self.code {
            _ if self.is_cut => return Meaning::Cut,
            // An alias of a name that is not there is not there (RFC 6604 section 3).
            3 => return Meaning::NoName(self.negative_ttl),
            0 => {}
            1 => return Meaning::Refused(Refused::Format),
            2 => return Meaning::Refused(Refused::Failure),
            5 => return Meaning::Refused(Refused::Unwilling),
            code => return Meaning::Refused(Refused::Code(code)),
        }
        let Some((name, mut ttl)) = self.follow_aliases() else { return Meaning::Refused(Refused::Aliases) };
        if self.question.1 == Kind::Srv {
            let mut found: Vec<Srv> = Vec::new();
            for (_, place, lives) in self.places.iter().filter(|(owner, ..)| owner == name) {
                ttl = ttl.min(*lives);
                found.push(place.clone());
            }
            found.sort();
            found.dedup();
            return if found.is_empty() { self.nothing(name) } else { Meaning::Places(found, ttl) };
        }
        let mut found = Vec::new();
        for (_, address, lives) in self.addresses.iter().filter(|(owner, ..)| owner == name) {
            if address.is_ipv4() == (self.question.1 == Kind::A) {
                ttl = ttl.min(*lives);
                found.push(*address);
            }
        }
        found.sort();
        found.dedup();
        if found.is_empty() { self.nothing(name) } else { Meaning::Addresses(found, ttl) }
    }

    /// There is nothing at `name`, at the end of all aliases.
    fn nothing(&self, name: &Name) -> Meaning {
        let has_proof = self.negative_ttl.is_some();
        // RFC 2308 section 2.2.1: a referral looks like nothing.
        if self.has_referral && !has_proof && !self.is_final {
            return Meaning::Refused(Refused::Referral);
        }
        // Who does not ask others for us may leave out where an alias leads (RFC 1034 section 4.3.2).
        if *name != self.question.0 && !has_proof {
            return Meaning::Refused(Refused::Aliases);
        }
        Meaning::Nothing(self.negative_ttl)
    }

    /// The name that the answer is about in the end, and how long the way there holds. `None`: there is no end.
    fn follow_aliases(&self) -> Option<(&Name, u32)> {
        let (mut name, mut ttl) = (&self.question.0, TTL_MAX);
        for _ in 0..=ALIASES_MAX {
            let Some((_, target, lives)) = self.aliases.iter().find(|(owner, ..)| owner == name) else {
                return Some((name, ttl));
            };
            (name, ttl) = (target, ttl.min(*lives));
        }
        None
    }
}

fn read_record(message: &[u8], at: usize) -> Option<(Record<'_>, usize)> {
    let (owner, at) = Name::read(message, at)?;
    let fixed: &[u8; 10] = message.get(at..at + 10)?.try_into().ok()?;
    let kind = u16::from_be_bytes([fixed[0], fixed[1]]);
    let class = u16::from_be_bytes([fixed[2], fixed[3]]);
    let ttl = u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]);
    let length = usize::from(u16::from_be_bytes([fixed[8], fixed[9]]));
    let start = at + 10;
    let data = message.get(start..start + length)?;
    Some((Record { owner, kind, class, ttl, data: (data, start) }, start + length))
}

#[cfg(test)]
mod tests;
