use std::future::poll_fn;
use std::io;
use std::sync::Arc;

use plan::filter::Content;

use super::*;

/// Content of so many bytes, of which each tells its place.
struct Counted(u64);

impl Content for Counted {
    fn read_at(&self, room: &mut [u8], at: u64) -> io::Result<usize> {
        let left = usize::try_from(self.0.saturating_sub(at)).map_or(room.len(), |left| left.min(room.len()));
        // Less than is wanted, as a disk may give.
        let count = left.min(1_000);
        room[..count].iter_mut().zip(at..).for_each(|(byte, place)| *byte = (place % 251) as u8);
        Ok(count)
    }
}

async fn taken(parts: Vec<Part>, room: usize) -> Result<Vec<Vec<u8>>, PumpFault> {
    let (mut parts, mut all) = (Parts::new(parts), Vec::new());
    loop {
        let mut buffer = vec![0; room];
        let (count, is_last) = poll_fn(|cx| parts.poll_take(cx, &mut buffer)).await?;
        buffer.truncate(count);
        all.push(buffer);
        if is_last {
            return Ok(all);
        }
    }
}

fn range(length: u64, range: std::ops::Range<u64>) -> Part {
    Part::Range { content: Arc::new(Counted(length)), range }
}

#[tokio::test]
async fn parts_come_one_after_the_other_a_buffer_at_a_time() {
    let bytes = |text: &[u8]| Part::Bytes(text.into());
    let parts = vec![bytes(b"head:"), bytes(b""), range(9_000, 10..5_010), bytes(b":tail"), range(9_000, 0..1)];
    let all = taken(parts, 2_000).await.expect("all is there");
    assert!(all.iter().all(|piece| piece.len() <= 2_000));
    let middle = (10..5_010_u64).map(|place| (place % 251) as u8);
    let wanted: Vec<u8> = b"head:".iter().copied().chain(middle).chain(*b":tail\0").collect();
    assert_eq!(all.concat(), wanted);
}

#[tokio::test]
async fn no_parts_are_an_empty_body() {
    assert_eq!(taken(Vec::new(), 10).await.expect("it is there"), [Vec::<u8>::new()]);
    assert_eq!(taken(vec![range(5, 3..3)], 10).await.expect("it is there"), [Vec::<u8>::new()]);
}

#[tokio::test]
async fn content_that_is_shorter_than_its_range_is_a_fault() {
    assert!(matches!(taken(vec![range(100, 50..101)], 10).await, Err(PumpFault::Source)));
    assert!(matches!(taken(vec![range(100, 200..u64::MAX)], 10).await, Err(PumpFault::Source)));
}
