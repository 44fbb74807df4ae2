//! Redis Cluster (<https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>): which slot a key is in, which node has a
//! slot, and where an error sends a question.

use super::Reply;

/// Slots of a cluster.
pub const SLOTS: u16 = 16_384;
/// Nodes that are kept of a map. The specification recommends at most 1000, replicas included.
pub const NODES_MAX: usize = 512;
/// Bytes of a host name.
const HOST_BYTES_MAX: usize = 253;
/// A slot that no node has.
const NOBODY: u16 = u16::MAX;

/// Where a node listens, as another node says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// An address or a host name; `None`: the host of the node that says so.
    pub host: Option<Box<str>>,
    /// Its port, never 0.
    pub port: u16,
}

/// The error of a node that does not have the slot of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// Only this question goes elsewhere, after `ASKING`: the slot is moving.
    pub is_ask: bool,
    /// The slot, less than [`SLOTS`].
    pub slot: u16,
    /// The node to ask.
    pub node: Node,
}

/// Which node has which slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotMap {
    nodes: Vec<Node>,
    /// Place of the node of each slot, or [`NOBODY`].
    owners: Box<[u16]>,
}

/// Returns the slot of a key: by what is between the first `{` and the `}` after it, if there is something, or else by the whole key.
pub fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|from| {
        let rest = &key[from + 1..];
        let length = rest.iter().position(|byte| *byte == b'}')?;
        (length > 0).then_some(&rest[..length])
    });
    crc16(tag.unwrap_or(key)) % SLOTS
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc: u16, _| crc << 1 ^ if crc & 0x8000 != 0 { 0x1021 } else { 0 })
    })
}

impl Redirect {
    /// Reads `MOVED 3999 192.0.2.1:6381` or `ASK …`. `None`: it is another error.
    pub fn read(error: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(error).ok()?.split(' ');
        let is_ask = match words.next()? {
            "MOVED" => false,
            "ASK" => true,
            _ => return None,
        };
        let slot = words.next()?.parse().ok().filter(|slot| *slot < SLOTS)?;
        // An address of IPv6 has no brackets.
        let (host, port) = words.next()?.rsplit_once(':')?;
        let node = Node::new(Some(host), port.parse().ok()?)?;
        Some(Self { is_ask, slot, node })
    }
}

impl Node {
    fn new(host: Option<&str>, port: u16) -> Option<Self> {
        // `?` and an empty text say that the node does not know its own host.
        let host = host.filter(|host| !matches!(*host, "" | "?"));
        let is_host = |host: &str| host.len() <= HOST_BYTES_MAX && host.bytes().all(|byte| byte.is_ascii_graphic());
        (port > 0 && host.is_none_or(is_host)).then(|| Self { host: host.map(Into::into), port })
    }
}

impl Default for SlotMap {
    fn default() -> Self {
        Self { nodes: Vec::new(), owners: vec![NOBODY; SLOTS.into()].into() }
    }
}

impl SlotMap {
    /// Reads the reply to `CLUSTER SLOTS`: ranges of slots with their nodes, of which the first is the master. Ranges and nodes that cannot
    /// be understood, and nodes beyond [`NODES_MAX`], are passed over. `None`: it is another reply, or names no node at all.
    pub fn read(reply: &Reply) -> Option<Self> {
        let Reply::List(Some(ranges)) = reply else { return None };
        let mut map = Self::default();
        for range in ranges {
            let Reply::List(Some(items)) = range else { continue };
            let [Reply::Number(first), Reply::Number(last), Reply::List(Some(node)), ..] = items.as_slice() else {
                continue;
            };
            let [host, Reply::Number(port), ..] = node.as_slice() else { continue };
            let host = match host {
                Reply::Text(host) => host.as_deref().map(std::str::from_utf8).transpose(),
                _ => continue,
            };
            let node = host.ok().and_then(|host| Node::new(host, u16::try_from(*port).ok()?));
            let slot = |number: &i64| u16::try_from(*number).ok().filter(|slot| *slot < SLOTS);
            let Some((node, (first, last))) = node.zip(slot(first).zip(slot(last))) else { continue };
            for slot in first..=last {
                map.set(slot, &node);
            }
        }
        (!map.nodes.is_empty()).then_some(map)
    }

    /// Returns the node that has a slot, if one is known.
    pub fn owner(&self, slot: u16) -> Option<&Node> {
        self.nodes.get(usize::from(*self.owners.get(usize::from(slot))?))
    }

    /// Returns the nodes that have slots, at most [`NODES_MAX`].
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Learns that a node has a slot.
    pub fn set(&mut self, slot: u16, node: &Node) {
        let known = self.nodes.iter().position(|known| known == node);
        let place = known.or_else(|| {
            (self.nodes.len() < NODES_MAX).then(|| self.nodes.push(node.clone()))?;
            Some(self.nodes.len() - 1)
        });
        if let Some((place, owner)) = place.zip(self.owners.get_mut(usize::from(slot))) {
            *owner = place as u16;
        }
    }
}
