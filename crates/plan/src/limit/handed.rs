//! What is known of the keys of a limit, for the process that follows.

/// Entries of a limit. Keys are known by their hashes, so the key of the hash goes with them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Handed {
    /// The key of the hash.
    pub hash_key: [u64; 2],
    /// Hash of a key, and how many nanoseconds it is ahead or how many places it holds.
    pub entries: Vec<[u64; 2]>,
}
