//! Sessions as records of a table.

use super::record::Record;

/// A session, and the endpoint where it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionRecord {
    /// The hash of its key.
    pub key: u64,
    /// The hash of the name of its endpoint.
    pub endpoint: u64,
    /// When it began or moved, in tenths of a second since 1970, modulo 2³².
    pub stamp: u32,
    /// How long ago it was used, in tenths of a second.
    pub age: u32,
}

impl SessionRecord {
    /// Appends it to the records of a block.
    pub fn write(&self, to: &mut Vec<u8>) {
        let values = vec![self.endpoint as i64, i64::from(self.stamp)];
        Record { key: &self.key.to_be_bytes(), idle: u64::from(self.age), values, ..Record::default() }.write(to);
    }

    /// Returns what a record says; `None`: it is of no session.
    pub fn of(record: &Record<'_>) -> Option<Self> {
        let key = u64::from_be_bytes(record.key.try_into().ok()?);
        let [endpoint, stamp] = record.values[..] else { return None };
        let age = u32::try_from(record.idle).unwrap_or(u32::MAX);
        let is_plain = !record.is_reset && !record.is_all;
        is_plain.then_some(Self { key, endpoint: endpoint as u64, stamp: u32::try_from(stamp).ok()?, age })
    }
}
