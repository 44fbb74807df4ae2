//! Which coding a client gets (RFC 9110 section 12.5.3).

use model::{FieldName, Fields};

use super::super::quality::{FULL, weight};
use super::engine::Algorithm;

/// What a client says of each coding, in thousandths.
#[derive(Default)]
struct Said {
    codings: [Option<u16>; Algorithm::ALL.len()],
    identity: Option<u16>,
    others: Option<u16>,
}

/// Returns the offered algorithm that the client weighs highest; among equals the first. `None` if it accepts none of them, or weighs an
/// uncoded body higher.
pub(super) fn choose(fields: &Fields, accept_encoding: &FieldName, offers: &[Algorithm]) -> Option<Algorithm> {
    let said = read(fields, accept_encoding);
    let mut best: Option<(Algorithm, u16)> = None;
    for offer in offers {
        let weight = said.codings[*offer as usize].or(said.others).unwrap_or(0);
        if weight > best.map_or(0, |(_, before)| before) {
            best = Some((*offer, weight));
        }
    }
    best.filter(|(_, weight)| said.identity.is_none_or(|identity| identity <= *weight)).map(|(algorithm, _)| algorithm)
}

fn read(fields: &Fields, accept_encoding: &FieldName) -> Said {
    let mut said = Said::default();
    for member in fields.all(accept_encoding).flat_map(|value| value.split(|byte| *byte == b',')) {
        let mut parts = member.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let name = parts.next().unwrap_or_default();
        let weight = match (parts.next(), parts.next()) {
            (None, _) => Some(FULL),
            (Some(parameter), None) => weight(parameter),
            (Some(_), Some(_)) => None,
        };
        // A member that is malformed says nothing.
        let (Some(weight), Some(slot)) = (weight, said.slot(name)) else { continue };
        // The first word on a coding counts: a client that contradicts itself may mean either.
        slot.get_or_insert(weight);
    }
    said
}

impl Said {
    fn slot(&mut self, name: &[u8]) -> Option<&mut Option<u16>> {
        if name == b"*" {
            return Some(&mut self.others);
        }
        if name.eq_ignore_ascii_case(b"identity") {
            return Some(&mut self.identity);
        }
        // RFC 9110 section 8.4.1.3: `x-gzip` is `gzip`.
        let name = if name.eq_ignore_ascii_case(b"x-gzip") { b"gzip" } else { name };
        let found = Algorithm::ALL.iter().find(|algorithm| name.eq_ignore_ascii_case(algorithm.token().as_bytes()))?;
        Some(&mut self.codings[*found as usize])
    }
}
