//! Bytes of a peer: whatever comes is a frame, the beginning of one, or an error; what is read stays within its bounds and is written again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::peers::{
    Blocks, Frame, Journal, KEY_BYTES_MAX, Records, Segment, SessionRecord, Sessions, VALUES_MAX, next, write,
};

fuzz_target!(|bytes: &[u8]| {
    let Ok(Some((frame, taken))) = next(bytes) else { return };
    assert!(taken <= bytes.len());
    let mut again = Vec::new();
    write(&frame, &mut again);
    if !matches!(frame, Frame::Hello(_) | Frame::Unknown(_)) {
        assert_eq!(again, bytes[..taken]);
    }
    if let Frame::Sessions(Sessions { blocks, .. }) = frame {
        for record in Blocks::new(blocks).flatten().flat_map(|block| Records::new(block.records)).flatten() {
            let Some(session) = SessionRecord::of(&record) else { continue };
            let mut again = Vec::new();
            session.write(&mut again);
            let read = Records::new(&again).flatten().find_map(|record| SessionRecord::of(&record));
            assert_eq!(read, Some(session));
        }
    }
    if let Frame::Segment(Segment { blocks, .. }) | Frame::State(blocks) = frame {
        for block in Blocks::new(blocks).flatten() {
            for record in Records::new(block.records).flatten() {
                assert!(record.key.len() <= KEY_BYTES_MAX && record.values.len() <= VALUES_MAX);
            }
        }
        // To keep and to join them needs no more than they have.
        let mut journal = Journal::new(10_000);
        for turn in 0..8 {
            journal.push(turn, blocks.to_vec(), &[0, 5]);
        }
        assert_eq!(journal.head(), 8);
    }
});
