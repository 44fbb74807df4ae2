//! The client's address from a field of the operator's choice, such as `CF-Connecting-IP`.

use std::net::IpAddr;

use model::fields::reads_as;
use model::snapshot::ClientAddress;
use model::{Cidr, Fields};

use super::{address, is_trusted};

/// The client as `peer` tells it: by the first rule that believes the peer and whose field is there once, with one address in
/// it, with or without a port. `None`: no rule decides.
///
/// Endpoints may believe these fields too. So they are removed where no rule believes the peer, and other spellings of them
/// always: no proxy writes those, but its client may.
pub fn told_address(fields: &mut Fields, peer: IpAddr, rules: &[ClientAddress]) -> Option<IpAddr> {
    let peer = peer.to_canonical();
    let believes = |from: &[Cidr]| is_trusted(peer, from);
    let told = rules.iter().filter(|rule| believes(&rule.from)).find_map(|rule| {
        let mut values = fields.all(&rule.header);
        let value = values.next()?;
        if values.next().is_none() { address(value) } else { None }
    });
    fields.retain(|field| {
        let mut named = rules.iter().filter(|rule| reads_as(field.name, rule.header.as_str())).peekable();
        let is_spelt = |rule: &ClientAddress| field.name.eq_ignore_ascii_case(rule.header.as_str().as_bytes());
        named.peek().is_none() || named.any(|rule| believes(&rule.from) && is_spelt(rule))
    });
    told
}
