//! What a body passes between the sender's framing and the receiver's.

use std::task::{Context as TaskContext, Poll, ready};

use model::fields::Fields;
use plan::filter::{BadBody, Coder, Extent, Stage, Tap, Turning};

use super::fault::PumpFault;
use super::hold::Held;
use super::pace::Pacing;
use super::parts::Parts;
use crate::buffer::{Buffer, BufferPool};

/// The stages of one body. Each coder has a buffer for what it has not taken yet; nothing is fed before that is empty. What is held comes
/// before: the pump moves it from there to the stages.
///
/// ```text
/// (held) ─► feed ─► taps ─► coder ─► taps ─► coder ─► taps ─► pull
/// ```
pub(crate) struct Stages {
    /// Those before the first coder.
    taps: Vec<Box<dyn Tap>>,
    links: Vec<Link>,
    /// Without a coder: what was fed.
    passed: Option<Buffer>,
    is_over: bool,
    trailers: Option<Box<Fields>>,
    /// What was fed comes out when the sender is silent.
    flushes: bool,
    holds_back: bool,
    /// There is something to pull before anything is fed.
    has_more: bool,
    out_bytes: u64,
    /// Bytes that the head says are still to come out.
    owed: Option<u64>,
    /// What holds the body to a rate.
    paces: Vec<Pacing>,
    /// What the receiver is too slow for, before all else.
    held: Option<Box<Held>>,
    /// Where the body comes from, if it has no sender, or its sender is done.
    parts: Option<Box<Parts>>,
    /// What follows the body of the sender.
    rest: Option<Box<Parts>>,
    /// What is read next is held.
    is_holding: bool,
}

/// A coder, with the taps behind it.
struct Link {
    coder: Box<dyn Coder>,
    taps: Vec<Box<dyn Tap>>,
    input: Option<Buffer>,
    /// Nothing follows the input.
    is_last: bool,
    /// The last byte is out.
    is_done: bool,
    /// It has filled all of the room that it got, and may have more inside.
    is_full: bool,
}

/// What a pull came to.
pub(super) struct Pulled {
    pub buffer: Buffer,
    /// Everything is out.
    pub is_done: bool,
}

/// What a run over some links came to.
#[derive(Clone, Copy)]
struct Got {
    written: usize,
    is_done: bool,
}

impl Stages {
    /// `None` where there are no stages. `promised`: how long the body is behind them, as the head says. `flushes`: the receiver is to get all that the sender has sent, whenever it is silent.
    pub(crate) fn new(stages: Vec<Stage>, promised: Extent, flushes: bool) -> Option<Box<Self>> {
        (!stages.is_empty()).then(|| Box::new(Self::of(stages, promised, flushes)))
    }

    fn of(stages: Vec<Stage>, promised: Extent, flushes: bool) -> Self {
        let (mut taps, mut links): (Vec<Box<dyn Tap>>, Vec<Link>) = (Vec::new(), Vec::new());
        let (mut paces, mut held) = (Vec::new(), None);
        for stage in stages {
            let stage = match stage {
                Stage::Slices(body) => Stage::Coder(body.coder),
                other => other,
            };
            match stage {
                Stage::Slices(_) => {}
                Stage::Coder(coder) => {
                    links.push(Link {
                        coder,
                        taps: Vec::new(),
                        input: None,
                        is_last: false,
                        is_done: false,
                        is_full: false,
                    });
                }
                Stage::Pace(pace) => paces.push(Pacing::new(pace)),
                Stage::Hold(hold) => held = Some(Box::new(Held::new(hold))),
                Stage::Tap(tap) => links.last_mut().map_or(&mut taps, |link| &mut link.taps).push(tap),
            }
        }
        let (passed, trailers) = (None, None);
        let (is_over, holds_back, has_more) = (false, false, false);
        let (out_bytes, owed) = match promised {
            Extent::Known(length) => (0, Some(length)),
            Extent::Absent => (0, Some(0)),
            Extent::Unknown => (0, None),
        };
        Self {
            taps,
            links,
            passed,
            is_over,
            trailers,
            flushes,
            holds_back,
            has_more,
            out_bytes,
            owed,
            paces,
            held,
            parts: None,
            rest: None,
            is_holding: false,
        }
    }

    /// Has these parts follow the body of the sender.
    pub(crate) fn follow_by(&mut self, rest: Parts) {
        self.rest = Some(Box::new(rest));
    }

    /// Stages of a body that is held whole.
    pub(crate) fn of_held(held: Held, stages: Vec<Stage>, promised: Extent) -> Option<Box<Self>> {
        let hold = Stage::Hold(held.hold().clone());
        let stages = Self::new(stages.into_iter().chain([hold]).collect(), promised, false)?;
        Some(Box::new(Self { held: Some(Box::new(held)), ..*stages }))
    }

    /// Stages of a body that comes in parts; there may be none.
    pub(crate) fn of_parts(parts: Parts, stages: Vec<Stage>, promised: Extent) -> Box<Self> {
        Box::new(Self { parts: Some(Box::new(parts)), ..Self::of(stages, promised, false) })
    }

    /// Whether any of them changes the body, which takes time.
    pub(super) fn has_coders(&self) -> bool {
        !self.links.is_empty()
    }

    /// What is held, if anything may be.
    pub(super) fn held(&mut self) -> Option<&mut Held> {
        self.held.as_deref_mut()
    }

    /// Whether the body comes in parts, of which some are left.
    pub(super) fn has_parts(&self) -> bool {
        self.parts.is_some()
    }

    /// Whether there is something to take before the sender is read, or in its place.
    pub(super) fn has_source(&self) -> bool {
        self.parts.is_some() || self.held.as_ref().is_some_and(|held| !held.is_empty())
    }

    /// Ready with how many bytes of that were copied to `room`, and whether they are the last.
    pub(super) fn poll_source(
        &mut self,
        cx: &mut TaskContext<'_>,
        room: &mut [u8],
    ) -> Poll<Result<(usize, bool), PumpFault>> {
        match (&mut self.parts, &mut self.held) {
            (Some(parts), _) => {
                let (count, is_last) = ready!(parts.poll_take(cx, room))?;
                if is_last {
                    self.parts = None;
                }
                Poll::Ready(Ok((count, is_last)))
            }
            (None, Some(held)) => held.poll_take(cx, room),
            (None, None) => Poll::Ready(Ok((0, true))),
        }
    }

    /// Whether the bytes that come now are to be held: others are before them, or the receiver takes none.
    pub(super) fn is_holding(&self) -> bool {
        self.is_holding || self.held.as_ref().is_some_and(|held| !held.is_empty())
    }

    /// Says that what is read next is held.
    pub(super) fn set_holding(&mut self, is_holding: bool) {
        self.is_holding = is_holding;
    }

    /// Ready with how many of the bytes that were pulled may be written now, at least one.
    pub(super) fn poll_pace(&mut self, cx: &mut TaskContext<'_>, wanted: usize) -> Poll<usize> {
        let mut allowed = wanted;
        for pacing in &mut self.paces {
            allowed = allowed.min(ready!(pacing.poll(cx, allowed)));
        }
        Poll::Ready(allowed)
    }

    /// So many bytes were written.
    pub(super) fn paced(&mut self, count: usize) {
        self.paces.iter_mut().for_each(|pacing| pacing.written(count));
    }

    /// Takes the next bytes of the body, unframed. To be called when nothing more can be pulled.
    pub(super) fn feed(&mut self, buffer: Buffer, is_last: bool, pool: &BufferPool) {
        debug_assert!(!self.has_more && !self.is_over, "what came before must be pulled first");
        let is_last = is_last
            && match self.rest.take() {
                Some(rest) => {
                    self.parts = Some(rest);
                    false
                }
                None => true,
            };
        self.is_over = is_last;
        if !buffer.is_empty() {
            self.taps.iter_mut().for_each(|tap| tap.see(buffer.data()));
            self.holds_back = true;
        }
        if is_last {
            let trailers = self.trailers.as_deref();
            self.taps.iter_mut().for_each(|tap| tap.end(trailers));
        }
        match self.links.first_mut() {
            None => self.passed = Some(buffer),
            Some(link) => {
                link.is_last = is_last;
                link.keep(buffer, pool);
            }
        }
    }

    /// The trailers of the body, which come with its last bytes.
    pub(super) fn trailers(&mut self, trailers: Option<Fields>) {
        self.trailers = trailers.map(Box::new);
    }

    /// The trailers that are left for the receiver, when all is pulled.
    pub(super) fn take_trailers(&mut self) -> Option<Box<Fields>> {
        self.trailers.take()
    }

    /// The next bytes of the body as it is behind the stages, as much as fits into a buffer.
    pub(super) fn pull(&mut self, pool: &BufferPool) -> Result<Pulled, BadBody> {
        self.pull_by(Turning::More, pool)
    }

    /// The same when the sender is silent. `None`: nothing is held back.
    pub(super) fn flush(&mut self, pool: &BufferPool) -> Result<Option<Buffer>, BadBody> {
        if !self.flushes || !self.holds_back {
            return Ok(None);
        }
        let pulled = self.pull_by(Turning::Flush, pool)?;
        self.holds_back = self.has_more;
        Ok(Some(pulled.buffer))
    }

    /// Whether there is something to pull before anything is fed.
    pub(super) fn has_more(&self) -> bool {
        self.has_more
    }

    /// Bytes pulled so far.
    pub(super) fn out_bytes(&self) -> u64 {
        self.out_bytes
    }

    /// So many bytes that were pulled have never reached the receiver.
    pub(super) fn lose(&mut self, count: u64) {
        self.out_bytes = self.out_bytes.saturating_sub(count);
    }

    /// Gives all memory back.
    pub(super) fn stop(&mut self, pool: &BufferPool) {
        let inputs = self.links.iter_mut().filter_map(|link| link.input.take());
        inputs.chain(self.passed.take()).for_each(|buffer| pool.give(buffer));
        self.held = None;
        (self.parts, self.rest) = (None, None);
        self.has_more = false;
    }

    fn pull_by(&mut self, turning: Turning, pool: &BufferPool) -> Result<Pulled, BadBody> {
        let pulled = if self.links.is_empty() {
            let buffer = self.passed.take().unwrap_or_else(|| pool.take());
            Pulled { buffer, is_done: self.is_over }
        } else {
            let mut buffer = pool.take();
            let room = buffer.room();
            let got = match run(&mut self.links, room, turning, (&mut self.trailers, pool)) {
                Ok(got) => got,
                Err(bad) => {
                    pool.give(buffer);
                    return Err(bad);
                }
            };
            // Once the sender is done, all that is to come is inside.
            let holds = |link: &Link| link.input.is_some() || link.is_full;
            self.has_more = !got.is_done && (self.is_over || self.links.iter().any(holds));
            buffer.filled(got.written);
            Pulled { buffer, is_done: got.is_done }
        };
        if let Err(bad) = self.keep_promise(pulled.buffer.len() as u64, pulled.is_done) {
            pool.give(pulled.buffer);
            return Err(bad);
        }
        self.out_bytes += pulled.buffer.len() as u64;
        Ok(pulled)
    }

    /// A body that is longer or shorter than its head says would let the receiver take a part of it for another message.
    fn keep_promise(&mut self, count: u64, is_done: bool) -> Result<(), BadBody> {
        let Some(owed) = &mut self.owed else { return Ok(()) };
        *owed = owed.checked_sub(count).ok_or(BadBody::Malformed)?;
        if is_done && *owed > 0 { Err(BadBody::Malformed) } else { Ok(()) }
    }
}

impl Link {
    /// Keeps what is to be coded next.
    fn keep(&mut self, buffer: Buffer, pool: &BufferPool) {
        if buffer.is_empty() { pool.give(buffer) } else { self.input = Some(buffer) }
    }

    /// Has the coder work once.
    fn code(&mut self, room: &mut [u8], turning: Turning, pool: &BufferPool) -> Result<(usize, bool), BadBody> {
        let input = self.input.as_ref().map_or(&[][..], Buffer::data);
        let coded = self.coder.code(input, room, turning)?;
        if coded.read == 0 && coded.written == 0 && !coded.is_done && (turning != Turning::More || !input.is_empty()) {
            // It would stay so.
            return Err(BadBody::Malformed);
        }
        if let Some(buffer) = &mut self.input {
            buffer.advance(coded.read);
        }
        if let Some(empty) = self.input.take_if(|buffer| buffer.is_empty()) {
            pool.give(empty);
        }
        self.taps.iter_mut().for_each(|tap| tap.see(&room[..coded.written]));
        Ok((coded.written, coded.is_done))
    }
}

/// Fills the room from the last of the links, which gets what it codes from the one before it.
fn run(
    links: &mut [Link],
    room: &mut [u8],
    asked: Turning,
    (trailers, pool): (&mut Option<Box<Fields>>, &BufferPool),
) -> Result<Got, BadBody> {
    let Some((link, before)) = links.split_last_mut() else { return Ok(Got { written: 0, is_done: false }) };
    let (mut written, mut refills) = (0, 0);
    while !link.is_done && written < room.len() {
        if link.input.is_none() && !link.is_last && !before.is_empty() {
            // One buffer of input for each pull: others of the worker wait meanwhile.
            if asked == Turning::More && refills == 1 {
                break;
            }
            refills += 1;
            let mut buffer = pool.take();
            let got = run(before, buffer.room(), asked, (&mut *trailers, pool))?;
            buffer.filled(got.written);
            link.is_last = got.is_done;
            link.keep(buffer, pool);
        }
        let is_dry = link.input.is_none() && !link.is_last;
        let turning = match asked {
            _ if link.is_last => Turning::End,
            Turning::Flush if is_dry => Turning::Flush,
            _ if is_dry => break,
            _ => Turning::More,
        };
        if turning == Turning::End
            && let Some(trailers) = trailers
        {
            link.coder.trailers(trailers);
        }
        let (count, is_done) = link.code(&mut room[written..], turning, pool)?;
        written += count;
        if is_done && turning == Turning::End {
            link.is_done = true;
            link.taps.iter_mut().for_each(|tap| tap.end(trailers.as_deref()));
        } else if is_done && turning == Turning::Flush {
            break;
        }
    }
    link.is_full = !link.is_done && written == room.len();
    Ok(Got { written, is_done: link.is_done })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use plan::filter::Coded;

    use super::*;

    /// Writes each byte several times, and holds the last one back until it is flushed or the body ends.
    struct Repeat {
        times: usize,
        held: Option<u8>,
        left: usize,
    }

    impl Repeat {
        fn stage(times: usize) -> Stage {
            Stage::Coder(Box::new(Self { times, held: None, left: 0 }))
        }
    }

    impl Coder for Repeat {
        fn code(&mut self, input: &[u8], room: &mut [u8], turning: Turning) -> Result<Coded, BadBody> {
            let mut coded = Coded::default();
            loop {
                if let Some(byte) = self.held
                    && (self.left < self.times || coded.read < input.len() || turning != Turning::More)
                {
                    while self.left > 0 && coded.written < room.len() {
                        room[coded.written] = byte;
                        (coded.written, self.left) = (coded.written + 1, self.left - 1);
                    }
                    if self.left > 0 {
                        return Ok(coded);
                    }
                    self.held = None;
                }
                match input.get(coded.read) {
                    Some(b'!') => return Err(BadBody::Malformed),
                    Some(byte) if self.held.is_none() => {
                        (self.held, self.left) = (Some(*byte), self.times);
                        coded.read += 1;
                    }
                    _ => {
                        coded.is_done = self.held.is_none() && turning != Turning::More;
                        return Ok(coded);
                    }
                }
            }
        }
    }

    #[derive(Default)]
    struct Seen(Rc<RefCell<(Vec<u8>, bool)>>);

    impl Tap for Seen {
        fn see(&mut self, bytes: &[u8]) {
            self.0.borrow_mut().0.extend_from_slice(bytes);
        }

        fn end(&mut self, _: Option<&Fields>) {
            self.0.borrow_mut().1 = true;
        }
    }

    fn buffer(bytes: &[u8], pool: &BufferPool) -> Buffer {
        let mut buffer = pool.take();
        assert!(buffer.append(bytes));
        buffer
    }

    /// All that can be pulled.
    fn pulled(stages: &mut Stages, pool: &BufferPool) -> (Vec<u8>, bool) {
        let mut all = Vec::new();
        loop {
            let pulled = stages.pull(pool).expect("it is good");
            all.extend_from_slice(pulled.buffer.data());
            pool.give(pulled.buffer);
            if !stages.has_more() {
                return (all, pulled.is_done);
            }
        }
    }

    #[test]
    fn bytes_pass_coders_and_taps_in_their_order() {
        let pool = BufferPool::default();
        let (before, between, behind) = (Seen::default(), Seen::default(), Seen::default());
        let seen = [&before, &between, &behind].map(|tap| Rc::clone(&tap.0));
        let tap = |tap: Seen| Stage::Tap(Box::new(tap));
        let list = vec![tap(before), Repeat::stage(2), tap(between), Repeat::stage(3), tap(behind)];
        let mut stages = Stages::new(list, Extent::Unknown, true).expect("there are some");
        stages.feed(buffer(b"ab", &pool), false, &pool);
        let (first, is_done) = pulled(&mut stages, &pool);
        assert!(!is_done);
        stages.feed(buffer(b"c", &pool), true, &pool);
        let (rest, is_done) = pulled(&mut stages, &pool);
        assert!(is_done);
        assert_eq!([first, rest].concat(), b"aaaaaabbbbbbcccccc");
        assert_eq!(stages.out_bytes(), 18);
        let told = seen.map(|seen| seen.borrow().clone());
        assert_eq!(told, [&b"abc"[..], b"aabbcc", b"aaaaaabbbbbbcccccc"].map(|bytes| (bytes.to_vec(), true)));
    }

    #[test]
    fn what_is_held_back_comes_out_when_the_sender_is_silent_and_only_once() {
        let pool = BufferPool::default();
        let mut stages =
            Stages::new(vec![Repeat::stage(1), Repeat::stage(1)], Extent::Unknown, true).expect("there are some");
        assert!(stages.flush(&pool).expect("it is good").is_none(), "nothing is there");
        stages.feed(buffer(b"xyz", &pool), false, &pool);
        let (first, _) = pulled(&mut stages, &pool);
        let flushed = stages.flush(&pool).expect("it is good").expect("some was held back");
        assert_eq!([&first, flushed.data()].concat(), b"xyz");
        assert!(stages.flush(&pool).expect("it is good").is_none());
        let mut patient = Stages::new(vec![Repeat::stage(1)], Extent::Unknown, false).expect("there is one");
        patient.feed(buffer(b"xyz", &pool), false, &pool);
        assert_eq!(pulled(&mut patient, &pool).0, b"xy");
        assert!(patient.flush(&pool).expect("it is good").is_none(), "its receiver waits for all of it");
    }

    #[test]
    fn a_body_that_grows_leaves_in_buffers_and_a_bad_one_is_an_error() {
        let pool = BufferPool::default();
        let mut stages =
            Stages::new(vec![Repeat::stage(1000), Repeat::stage(100)], Extent::Unknown, true).expect("there are some");
        stages.feed(buffer(b"0123456789", &pool), true, &pool);
        let (all, is_done) = pulled(&mut stages, &pool);
        assert!(is_done && all.len() == 1_000_000 && all.is_sorted());
        let mut stages = Stages::new(vec![Repeat::stage(1)], Extent::Unknown, true).expect("there is one");
        stages.feed(buffer(b"a!", &pool), false, &pool);
        assert!(stages.pull(&pool).is_err());
        stages.stop(&pool);
    }

    #[test]
    fn a_body_that_is_longer_or_shorter_than_was_promised_is_an_error() {
        let pool = BufferPool::default();
        let all = |promised: Extent, times: usize| {
            let mut stages = Stages::new(vec![Repeat::stage(times)], promised, true).expect("there is one");
            stages.feed(buffer(b"ab", &pool), true, &pool);
            let pulled = stages.pull(&pool).map(|pulled| pulled.buffer.len());
            stages.stop(&pool);
            pulled
        };
        assert_eq!(all(Extent::Known(4), 2), Ok(4));
        assert_eq!(all(Extent::Unknown, 2), Ok(4));
        for promised in [Extent::Known(3), Extent::Known(5), Extent::Absent] {
            assert_eq!(all(promised, 2), Err(BadBody::Malformed), "{promised:?}");
        }
    }

    #[test]
    fn without_a_coder_bytes_stay_in_their_buffer() {
        let (pool, seen) = (BufferPool::default(), Seen::default());
        let told = Rc::clone(&seen.0);
        let mut stages = Stages::new(vec![Stage::Tap(Box::new(seen))], Extent::Unknown, true).expect("there is one");
        let given = buffer(b"body", &pool);
        let place = given.data().as_ptr();
        stages.feed(given, true, &pool);
        let pulled = stages.pull(&pool).expect("it is good");
        assert_eq!((pulled.buffer.data().as_ptr(), pulled.is_done), (place, true));
        assert_eq!(*told.borrow(), (b"body".to_vec(), true));
        assert!(Stages::new(Vec::new(), Extent::Unknown, true).is_none());
    }
}
