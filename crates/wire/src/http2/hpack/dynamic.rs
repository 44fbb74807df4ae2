//! The dynamic table (RFC 7541 section 2.3.2): what the peer told us to remember, in one block of bytes.
//!
//! ```text
//! bytes:    [ gone | oldest entry | … | newest entry |            ]
//! entries:           where each begins, counted from the first byte that there ever was
//! ```
//!
//! A new entry goes to the end, the oldest go at the front. What lies before the oldest is dropped when it is half as long as
//! what lives, so that each byte is moved twice at most on the mean, and every name and value is one piece.

use std::collections::VecDeque;

use super::FIELD_OVERHEAD_BYTES;

/// Where the name of a new entry is found.
pub(super) enum Name<'n> {
    /// Here.
    Bytes(&'n [u8]),
    /// It is that of an entry that is there; 0 is the newest.
    Own(usize),
}

/// Where an entry lies.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Counted from the first byte that there ever was.
    start: u64,
    name_len: u32,
    value_len: u32,
}

impl Entry {
    fn cost(self) -> usize {
        self.name_len as usize + self.value_len as usize + FIELD_OVERHEAD_BYTES
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Dynamic {
    bytes: Vec<u8>,
    /// Bytes that were dropped before those.
    dropped: u64,
    /// The oldest first.
    entries: VecDeque<Entry>,
    /// As section 4.1 counts.
    size: usize,
    size_max: usize,
}

impl Dynamic {
    /// An empty table for entries of so many bytes, as section 4.1 counts them.
    pub(super) fn new(size_max: usize) -> Self {
        Self { bytes: Vec::new(), dropped: 0, entries: VecDeque::new(), size: 0, size_max }
    }

    /// Name and value of an entry; 0 is the newest.
    pub(super) fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let entry = self.entry(index)?;
        let start = (entry.start - self.dropped) as usize;
        let middle = start + entry.name_len as usize;
        Some((&self.bytes[start..middle], &self.bytes[middle..middle + entry.value_len as usize]))
    }

    /// Changes how large the table may be (section 4.3).
    pub(super) fn resize(&mut self, size_max: usize) {
        self.size_max = size_max;
        self.shrink_to(size_max);
        self.compact();
    }

    /// Adds an entry. One that is larger than the table empties it, which is no error (section 4.4). A name of our own must be
    /// there.
    pub(super) fn insert(&mut self, name: &Name<'_>, value: &[u8]) {
        let own = match name {
            Name::Own(index) => self.entry(*index),
            Name::Bytes(_) => None,
        };
        let name_len = match (name, own) {
            (Name::Bytes(bytes), _) => bytes.len(),
            (Name::Own(_), Some(own)) => own.name_len as usize,
            (Name::Own(_), None) => return,
        };
        let cost = name_len + value.len() + FIELD_OVERHEAD_BYTES;
        let Some(room) = self.size_max.checked_sub(cost) else {
            self.shrink_to(0);
            self.compact();
            return;
        };
        // First, for the entry that has the name may go now (section 4.4).
        let start = self.dropped + self.bytes.len() as u64;
        match (name, own) {
            (Name::Bytes(bytes), _) => self.bytes.extend_from_slice(bytes),
            (Name::Own(_), Some(own)) => {
                let from = (own.start - self.dropped) as usize;
                self.bytes.extend_from_within(from..from + name_len);
            }
            (Name::Own(_), None) => {}
        }
        self.bytes.extend_from_slice(value);
        self.shrink_to(room);
        self.entries.push_back(Entry { start, name_len: name_len as u32, value_len: value.len() as u32 });
        self.size += cost;
        self.compact();
    }

    fn entry(&self, index: usize) -> Option<Entry> {
        let place = self.entries.len().checked_sub(index)?.checked_sub(1)?;
        self.entries.get(place).copied()
    }

    fn shrink_to(&mut self, size: usize) {
        while self.size > size {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.size -= oldest.cost();
        }
    }

    fn compact(&mut self) {
        let Some(oldest) = self.entries.front() else {
            self.dropped += self.bytes.len() as u64;
            self.bytes.clear();
            return;
        };
        let gone = (oldest.start - self.dropped) as usize;
        if gone > 0 && 2 * gone >= self.bytes.len() - gone {
            self.bytes.drain(..gone);
            self.dropped += gone as u64;
        }
    }

    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        self.size
    }

    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_when_there_is_no_room_and_the_newest_is_first() {
        let mut table = Dynamic::new(3 * 34);
        for byte in b'a'..=b'e' {
            table.insert(&Name::Bytes(&[byte]), &[byte]);
        }
        assert_eq!(table.get(0), Some((&b"e"[..], &b"e"[..])));
        assert_eq!(table.get(2), Some((&b"c"[..], &b"c"[..])));
        assert_eq!((table.get(3), table.size()), (None, 3 * 34));
        table.resize(2 * 34 + 33);
        assert_eq!((table.get(1), table.get(2)), (Some((&b"d"[..], &b"d"[..])), None));
        table.resize(0);
        assert_eq!((table.get(0), table.size(), table.held_bytes()), (None, 0, 0));
        table.insert(&Name::Bytes(b"x"), b"");
        assert_eq!(table.get(0), None);
    }

    #[test]
    fn an_entry_takes_its_name_from_one_that_goes_for_it() {
        let mut table = Dynamic::new(50);
        table.insert(&Name::Bytes(b"name"), b"one");
        table.insert(&Name::Own(0), b"another");
        assert_eq!(table.get(0), Some((&b"name"[..], &b"another"[..])));
        assert_eq!(table.get(1), None);
        // What is larger than the table empties it.
        table.insert(&Name::Own(0), b"longer than all that there may be");
        assert_eq!((table.get(0), table.size()), (None, 0));
        table.insert(&Name::Own(7), b"");
        assert_eq!(table.size(), 0);
    }

    #[test]
    fn what_is_held_has_a_bound_however_much_goes_through() {
        let mut table = Dynamic::new(4096);
        for turn in 0..10_000_usize {
            let value = vec![turn as u8; turn * 7 % 300];
            table.insert(&Name::Bytes(b"some-name"), &value);
            assert_eq!(table.get(0), Some((&b"some-name"[..], &value[..])));
            assert!(table.size() <= 4096 && table.held_bytes() <= 3 * 4096);
        }
    }
}
