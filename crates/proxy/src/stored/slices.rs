//! The slices of a response, one after the other, as the source of its body. What is stored is sent at once; what is not is fetched while the
//! client reads, by an exchange beside this one, of which at most a buffer is held.

use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, ready};
use std::time::Instant;

use plan::cache::{DiskRead, Entry};
use plan::filter::{Asking, NextSlice, Part, Slices};

use super::pipe::{Pipe, PipeReader};
use super::refresh::Fetcher;
use crate::exchange::Exchange;
use crate::needs;
use crate::persistence::since_1970;
use crate::relay::{Parts, PumpFault};

/// Fetches of other exchanges that are waited for, for one slice.
const WAITS_MAX: u32 = 2;
/// Files that are looked into, for one slice.
const READS_MAX: u32 = 4;

/// See the module.
pub(crate) struct SliceReader {
    /// Taken while the next slice is looked for.
    slices: Option<Box<Slices>>,
    /// `None`: what is not stored cannot be fetched, as the plan of the exchange has gone out of force.
    fetcher: Option<Rc<Fetcher>>,
    now: Now,
}

/// Where the next bytes come from.
enum Now {
    Nothing,
    Looking(Looking),
    Stored { entry: Arc<Entry>, range: Range<u64> },
    InFile(Box<Parts>),
    Piped(Piped),
}

type Looking = Pin<Box<dyn Future<Output = (Box<Slices>, Option<Got>)>>>;

/// A slice that was found.
enum Got {
    Stored(Arc<Entry>),
    Fetched(Rc<Pipe>, Option<Arc<Entry>>),
}

/// A slice that comes from an endpoint.
struct Piped {
    reader: PipeReader,
    /// Bytes before those that are sent.
    skip: u64,
    /// Bytes that are still to be sent.
    left: u64,
    /// What may be sent in its place, as long as nothing has come.
    in_place: Option<Arc<Entry>>,
}

impl Exchange<'_> {
    /// Reads these slices. `first`: a stored one may be at hand, with its body.
    #[cold]
    pub(crate) fn read_slices(&self, slices: Box<Slices>, first: Option<&Arc<Entry>>) -> Box<SliceReader> {
        let fetcher = self.fetcher_by(slices.number()).map(Rc::new);
        let mut reader = SliceReader { slices: None, fetcher, now: Now::Nothing };
        if let Some(entry) = first.filter(|entry| slices.begin_with(entry)) {
            reader.begin(Arc::clone(entry), slices.piece());
        }
        reader.slices = Some(slices);
        Box::new(reader)
    }
}

impl SliceReader {
    /// Ready with how many of the next bytes were copied to `room`, and whether those are the last.
    ///
    /// # Errors
    /// [`PumpFault::Source`]: a slice cannot be had, or is not of the representation of those before.
    pub(crate) fn poll_take(
        &mut self,
        cx: &mut TaskContext<'_>,
        room: &mut [u8],
    ) -> Poll<Result<(usize, bool), PumpFault>> {
        loop {
            let (count, is_over) = match &mut self.now {
                Now::Nothing => {
                    let Some(slices) = self.slices.take() else { return Poll::Ready(Err(PumpFault::Source)) };
                    if slices.is_over() {
                        self.slices = Some(slices);
                        return Poll::Ready(Ok((0, true)));
                    }
                    let fetcher = self.fetcher.clone();
                    self.now = Now::Looking(Box::pin(look(slices, fetcher)));
                    continue;
                }
                Now::Looking(looking) => {
                    let (slices, got) = ready!(looking.as_mut().poll(cx));
                    let range = slices.piece();
                    self.slices = Some(slices);
                    match got {
                        Some(Got::Stored(entry)) => self.begin(entry, range),
                        Some(Got::Fetched(pipe, in_place)) => {
                            let (skip, left) = (range.start, range.end - range.start);
                            self.now = Now::Piped(Piped { reader: PipeReader(pipe), skip, left, in_place });
                        }
                        None => {
                            self.now = Now::Nothing;
                            return Poll::Ready(Err(PumpFault::Source));
                        }
                    }
                    continue;
                }
                Now::Stored { entry, range } => {
                    let piece = entry.body.piece(range.start);
                    let left = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
                    let count = piece.len().min(room.len()).min(left);
                    if count == 0 {
                        return Poll::Ready(Err(PumpFault::Source));
                    }
                    room[..count].copy_from_slice(&piece[..count]);
                    range.start += count as u64;
                    (count, range.is_empty())
                }
                Now::InFile(parts) => ready!(parts.poll_take(cx, room))?,
                Now::Piped(piped) => match ready!(piped.poll_take(cx, room)) {
                    Some(taken) => taken,
                    None => match piped.in_place.take() {
                        Some(entry) => {
                            let range = self.slices.as_ref().map_or(0..0, |slices| slices.piece());
                            self.begin(entry, range);
                            continue;
                        }
                        None => return Poll::Ready(Err(PumpFault::Source)),
                    },
                },
            };
            let Some(slices) = &mut self.slices else { return Poll::Ready(Err(PumpFault::Source)) };
            slices.advance(count as u64);
            if is_over {
                self.now = Now::Nothing;
            }
            return Poll::Ready(Ok((count, slices.is_over())));
        }
    }

    fn begin(&mut self, entry: Arc<Entry>, range: Range<u64>) {
        self.now = match entry.body.file() {
            None => Now::Stored { entry, range },
            Some(file) => Now::InFile(Box::new(Parts::new(vec![Part::Range { content: Arc::clone(file), range }]))),
        };
    }
}

impl Piped {
    /// Ready with how many bytes were copied, and whether those are the last. `None`: no more come.
    fn poll_take(&mut self, cx: &mut TaskContext<'_>, room: &mut [u8]) -> Poll<Option<(usize, bool)>> {
        while self.skip > 0 {
            let wanted = room.len().min(usize::try_from(self.skip).unwrap_or(usize::MAX));
            let count = ready!(self.reader.0.poll_read(cx, &mut room[..wanted]));
            if count == 0 {
                return Poll::Ready(None);
            }
            self.in_place = None;
            self.skip -= count as u64;
        }
        let wanted = room.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let count = ready!(self.reader.0.poll_read(cx, &mut room[..wanted]));
        if count == 0 {
            return Poll::Ready(None);
        }
        self.in_place = None;
        self.left -= count as u64;
        if self.left == 0 {
            self.reader.leave();
        }
        Poll::Ready(Some((count, self.left == 0)))
    }
}

/// Looks for the next slice: in the store, on disk, at another exchange that fetches it, and at last at an endpoint.
async fn look(slices: Box<Slices>, fetcher: Option<Rc<Fetcher>>) -> (Box<Slices>, Option<Got>) {
    let until = Instant::now() + slices.lock();
    let (mut waits, mut reads, mut read) = (0, 0, None);
    loop {
        let may_wait = waits < WAITS_MAX && Instant::now() < until;
        let now = since_1970().as_secs();
        let next = slices.next(Asking { now, may_wait, may_read: reads < READS_MAX, read: read.take() });
        let got = match next {
            NextSlice::Stored(entry, refresh) => {
                if let (Some(refresh), Some(fetcher)) = (refresh, &fetcher) {
                    fetcher.fetch(*refresh);
                }
                Some(Got::Stored(entry))
            }
            NextSlice::Read(ask) => {
                reads += 1;
                match needs::read_cached(*ask).await {
                    DiskRead::Found(entry) => read = Some(entry),
                    DiskRead::Gone => {}
                    DiskRead::Failed => reads = READS_MAX,
                }
                continue;
            }
            NextSlice::Wait(waiter) => {
                waits += 1;
                let over = poll_fn(|cx| waiter.poll_over(cx));
                let _in_time = tokio::time::timeout_at(until.into(), over).await;
                continue;
            }
            NextSlice::Fetch(refresh, in_place) => match &fetcher {
                Some(fetcher) => Some(Got::Fetched(fetcher.fetch_piped(*refresh), in_place)),
                None => in_place.map(Got::Stored),
            },
        };
        return (slices, got);
    }
}
