//! A body of many gigabytes takes a few buffers, whatever sees and changes it on its way.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use plan::filter::{BadBody, Coded, Coder, Content, Extent, Part, Stage, Tap, Turning};

use super::{BodyWriter, Parts, Pump, Stages};
use crate::buffer::{Buffer, BufferPool};
use crate::io::{Io, MemoryIo};

/// Most that a turn writes: what was there when it began, and one buffer more.
const WAITING_BYTES_MAX: usize = 2 * model::limits::BUFFER_BYTES;

/// 10 GiB with `EQUIPOISE_LONG`.
fn length() -> u64 {
    if std::env::var_os("EQUIPOISE_LONG").is_some() { 10 << 30 } else { 4 << 20 }
}

/// Makes so many bytes.
struct Source(u64);

impl Coder for Source {
    fn code(&mut self, _: &[u8], room: &mut [u8], _: Turning) -> Result<Coded, BadBody> {
        let written = usize::try_from(self.0).map_or(room.len(), |left| left.min(room.len()));
        room[..written].fill(7);
        self.0 -= written as u64;
        Ok(Coded { read: 0, written, is_done: self.0 == 0 })
    }
}

/// Writes what it reads.
struct Copy;

impl Coder for Copy {
    fn code(&mut self, input: &[u8], room: &mut [u8], turning: Turning) -> Result<Coded, BadBody> {
        let count = input.len().min(room.len());
        room[..count].copy_from_slice(&input[..count]);
        Ok(Coded { read: count, written: count, is_done: turning != Turning::More && count == input.len() })
    }
}

/// Counts what passes.
#[derive(Clone, Default)]
struct Count {
    bytes: Rc<Cell<u64>>,
    largest: Rc<Cell<usize>>,
    has_ended: Rc<Cell<bool>>,
}

impl Tap for Count {
    fn see(&mut self, bytes: &[u8]) {
        self.bytes.set(self.bytes.get() + bytes.len() as u64);
        self.largest.set(self.largest.get().max(bytes.len()));
    }

    fn end(&mut self, _: Option<&model::fields::Fields>) {
        self.has_ended.set(true);
    }
}

/// Drains a body to a receiver that takes all it gets, and returns how many bytes that got.
fn drain(pump: &mut Pump, pool: &BufferPool) -> u64 {
    assert!(pump.begin(b"", Buffer::nothing(), pool).is_ok());
    let mut receiver = Io::Memory(Box::new(MemoryIo { bytes_max: WAITING_BYTES_MAX, ..MemoryIo::default() }));
    let (mut cx, mut received) = (Context::from_waker(Waker::noop()), 0);
    loop {
        // It fails if more is written before others of the worker get their turn.
        let polled = pump.poll_drain(&mut cx, &mut receiver, pool);
        assert!(!matches!(polled, Poll::Ready(Err(_))), "after {received} bytes");
        if let Io::Memory(memory) = &mut receiver {
            received += memory.bytes.len() as u64;
            memory.bytes.clear();
        }
        if polled.is_ready() {
            return received;
        }
    }
}

#[test]
fn a_tap_sees_all_of_a_long_body_and_holds_none_of_it() {
    let (pool, seen) = (BufferPool::default(), Count::default());
    let stages = vec![Stage::Coder(Box::new(Source(length()))), Stage::Tap(Box::new(seen.clone()))];
    let stages = Stages::new(stages, Extent::Known(length()), false).expect("there are some");
    let mut pump = Pump::made(BodyWriter::Plain, stages);
    assert_eq!(drain(&mut pump, &pool), length());
    assert_eq!((seen.bytes.get(), seen.has_ended.get()), (length(), true));
    assert!(seen.largest.get() <= model::limits::BUFFER_BYTES);
    assert!(pool.waiting() <= 1, "{} buffers were used at once", pool.waiting());
}

/// Content of as many bytes as are asked for.
struct Endless;

impl Content for Endless {
    fn read_at(&self, room: &mut [u8], _: u64) -> std::io::Result<usize> {
        room.fill(7);
        Ok(room.len())
    }
}

/// The same where the body is read by threads beside.
async fn drain_slowly(pump: &mut Pump, pool: &BufferPool) -> u64 {
    assert!(pump.begin(b"head", Buffer::nothing(), pool).is_ok());
    let mut receiver = Io::Memory(Box::new(MemoryIo { bytes_max: WAITING_BYTES_MAX, ..MemoryIo::default() }));
    let mut received = 0;
    std::future::poll_fn(|cx| {
        let polled = pump.poll_drain(cx, &mut receiver, pool);
        assert!(!matches!(polled, Poll::Ready(Err(_))), "after {received} bytes");
        if let Io::Memory(memory) = &mut receiver {
            received += memory.bytes.len() as u64;
            memory.bytes.clear();
        }
        polled.map(drop)
    })
    .await;
    received - 4
}

#[tokio::test]
async fn a_long_body_in_parts_takes_one_buffer_with_stages_and_without() {
    let pool = BufferPool::default();
    let range = || Part::Range { content: Arc::new(Endless), range: 5..5 + length() };
    let parts = || Parts::new(vec![Part::Bytes(b"first".as_slice().into()), range()]);
    let stages = Stages::of_parts(parts(), Vec::new(), Extent::Known(length() + 5));
    assert_eq!(drain_slowly(&mut Pump::made(BodyWriter::Plain, stages), &pool).await, length() + 5);
    assert!(pool.waiting() <= 1, "{} buffers were used at once", pool.waiting());
    let stages = Stages::of_parts(parts(), vec![Stage::Coder(Box::new(Copy))], Extent::Unknown);
    assert!(drain_slowly(&mut Pump::made(BodyWriter::Chunked, stages), &pool).await > length() + 5);
    assert!(pool.waiting() <= 2, "{} buffers were used at once", pool.waiting());
}

#[test]
fn taps_before_and_behind_a_coder_see_all_of_a_long_body_with_one_buffer_more() {
    let (pool, before, behind) = (BufferPool::default(), Count::default(), Count::default());
    let tap = |tap: &Count| Stage::Tap(Box::new(tap.clone()));
    let source = Stage::Coder(Box::new(Source(length())));
    let stages = vec![source, tap(&before), Stage::Coder(Box::new(Copy)), tap(&behind)];
    let stages = Stages::new(stages, Extent::Unknown, false).expect("there are some");
    let mut pump = Pump::made(BodyWriter::Chunked, stages);
    let received = drain(&mut pump, &pool);
    assert_eq!((before.bytes.get(), behind.bytes.get()), (length(), length()));
    assert!(before.has_ended.get() && behind.has_ended.get());
    assert!(received > length() && received < length() / 100 * 101, "{received} bytes with chunks");
    assert!(pool.waiting() <= 2, "{} buffers were used at once", pool.waiting());
}
