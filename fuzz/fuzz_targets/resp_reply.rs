//! Replies of Redis: whatever comes is a reply, the beginning of one, or an error; what a reply says of a cluster stays within its slots.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::resp::cluster::{Redirect, SLOTS, SlotMap, slot_of};
use wire::resp::{Reply, read_reply};

fuzz_target!(|bytes: &[u8]| {
    assert!(slot_of(bytes) < SLOTS);
    if let Ok(Some((reply, count))) = read_reply(bytes) {
        assert!(count <= bytes.len());
        if let Reply::Error(error) = &reply
            && let Some(redirect) = Redirect::read(error)
        {
            assert!(redirect.slot < SLOTS && redirect.node.port > 0);
        }
        if let Some(map) = SlotMap::read(&reply) {
            assert!((0..SLOTS).any(|slot| map.owner(slot).is_some()) && map.owner(SLOTS).is_none());
        }
        assert_eq!(read_reply(&bytes[..count]), Ok(Some((reply, count))));
    }
});
