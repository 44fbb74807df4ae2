use std::future::poll_fn;
use std::task::Waker;

use super::*;
use crate::spool::tests::{hold_in, somewhere};

/// The byte at this place of a body.
fn byte(place: usize) -> u8 {
    (place % 251) as u8
}

fn body(from: usize, count: usize) -> Vec<u8> {
    (from..from + count).map(byte).collect()
}

fn has_room(held: &mut Held) -> bool {
    let ready = held.poll_room(&mut TaskContext::from_waker(Waker::noop()));
    matches!(ready, Poll::Ready(Ok(())))
}

async fn push(held: &mut Held, bytes: &[u8], is_last: bool) {
    poll_fn(|cx| held.poll_room(cx)).await.expect("it can be written");
    held.push(bytes, is_last);
}

async fn take(held: &mut Held, count: usize) -> (Vec<u8>, bool) {
    let mut room = vec![0; count];
    let (count, is_last) = poll_fn(|cx| held.poll_take(cx, &mut room)).await.expect("it can be read");
    room.truncate(count);
    (room, is_last)
}

/// Takes all until the end.
async fn rest(held: &mut Held, count: usize) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let (bytes, is_last) = take(held, count).await;
        assert!(is_last || !bytes.is_empty(), "it goes on");
        all.extend(bytes);
        if is_last {
            assert!(held.is_empty());
            return all;
        }
    }
}

fn used(hold: &Hold) -> bool {
    !hold.take_memory(hold.memory - 1, 1) || {
        hold.give_memory(1);
        format!("{:?}", hold.usage) != "Usage { memory: 0, disk: 0 }"
    }
}

#[tokio::test]
async fn memory_holds_what_it_has_room_for_and_gives_it_back() {
    let hold = Arc::new(Hold { spool: None, ..hold_in(&somewhere(), 3 * PUSH, 1 << 20) });
    let mut held = Held::new(hold.clone());
    assert!(held.is_empty());
    let mut pushed = 0;
    while has_room(&mut held) {
        held.push(&body(pushed, 50_000), false);
        pushed += 50_000;
    }
    assert_eq!(pushed, 150_000, "another push could bring more than there is room for");
    let (first, is_last) = take(&mut held, 70_000).await;
    assert_eq!((first, is_last), (body(0, 70_000), false));
    push(&mut held, &body(pushed, 10), true).await;
    assert_eq!(rest(&mut held, 9_999).await, body(70_000, 80_010));
    drop(held);
    assert!(!used(&hold));
}

#[tokio::test]
async fn room_for_what_is_not_pushed_is_given_back() {
    let hold = Arc::new(Hold { spool: None, ..hold_in(&somewhere(), 3 * PUSH, 1 << 20) });
    let mut held = Held::new(hold.clone());
    assert!(has_room(&mut held) && used(&hold));
    held.give_room();
    assert!(!used(&hold), "the receiver has caught up");
    push(&mut held, &body(0, 10), true).await;
    assert_eq!(rest(&mut held, 100).await, body(0, 10));
    assert!(!used(&hold));
}

#[tokio::test]
async fn a_body_of_one_route_cannot_take_the_memory_of_all() {
    let hold = Arc::new(Hold { spool: None, ..hold_in(&somewhere(), 4 * PUSH, 1 << 20) });
    let mut all: Vec<_> = (0..4).map(|_| Held::new(hold.clone())).collect();
    let mut pushes = 0;
    for held in &mut all {
        while has_room(held) {
            held.push(&[7; PUSH as usize], false);
            pushes += 1;
        }
    }
    assert_eq!(pushes, 8, "twice as much as one may take");
    all.truncate(1);
    let mut next = Held::new(hold);
    assert!(has_room(&mut next));
}

#[tokio::test]
async fn what_memory_has_no_room_for_comes_back_from_the_file_in_its_order() {
    let hold = Arc::new(hold_in(&somewhere(), PUSH, 1 << 20));
    let mut held = Held::new(hold.clone());
    let (mut pushed, mut taken) = (0, 0);
    // As fast as it comes and as slowly as it leaves, by turns.
    for round in 0..200_usize {
        let count = 1 + (round * 7_919) % (PUSH as usize);
        if round % 40 < 25 && poll_fn(|cx| Poll::Ready(held.poll_room(cx))).await.is_ready() {
            held.push(&body(pushed, count), false);
            pushed += count;
        } else if !held.is_empty() {
            let (bytes, _) = take(&mut held, count).await;
            assert_eq!(bytes, body(taken, bytes.len()));
            taken += bytes.len();
        }
        tokio::task::yield_now().await;
    }
    push(&mut held, b"", true).await;
    assert_eq!(rest(&mut held, PUSH as usize).await, body(taken, pushed - taken));
    drop(held);
    assert!(!used(&hold));
}

#[tokio::test]
async fn a_full_file_takes_nothing_more_until_all_was_taken() {
    let hold = Arc::new(hold_in(&somewhere(), PUSH, 3 * PUSH));
    let mut held = Held::new(hold.clone());
    let mut pushed = 0;
    while pushed < 4 * PUSH as usize {
        push(&mut held, &body(pushed, PUSH as usize), false).await;
        pushed += PUSH as usize;
    }
    let is_full = |held: &mut Held, cx: &mut TaskContext<'_>| match held.poll_room(cx) {
        Poll::Pending => held.file.as_ref().is_some_and(|file| file.writing.is_none()),
        Poll::Ready(_) => panic!("it is full"),
    };
    while !poll_fn(|cx| Poll::Ready(is_full(&mut held, cx))).await {
        tokio::task::yield_now().await;
    }
    for place in 0..4 {
        assert!(!has_room(&mut held) || place == 3);
        let (bytes, _) = take(&mut held, PUSH as usize).await;
        assert_eq!(bytes, body(place * PUSH as usize, PUSH as usize));
    }
    assert!(held.is_empty() && has_room(&mut held), "and in memory at first");
    held.push(b"end", true);
    assert_eq!(rest(&mut held, 10).await, b"end");
}

#[tokio::test]
async fn nothing_is_lost_when_the_file_cannot_be_written() {
    let hold = Arc::new(hold_in("/nonexistent/spool", PUSH, 1 << 20));
    let mut held = Held::new(hold.clone());
    push(&mut held, &body(0, 60_000), false).await;
    push(&mut held, &body(60_000, 60_000), false).await;
    // Whenever there is room again, and no sooner.
    let mut taken = Vec::new();
    for from in [120_000, 180_000] {
        while !poll_fn(|cx| Poll::Ready(held.poll_room(cx))).await.is_ready() {
            taken.extend(take(&mut held, 7_000).await.0);
        }
        held.push(&body(from, 60_000), from == 180_000);
    }
    taken.extend(rest(&mut held, 7_000).await);
    assert_eq!(taken, body(0, 240_000));
}

#[tokio::test]
async fn an_exchange_can_end_when_the_file_cannot_be_written() {
    let mut hold = hold_in("/nonexistent/spool", PUSH, 1 << 20);
    if let Some(spool) = &mut hold.spool {
        spool.ends_on_failure = true;
    }
    let mut held = Held::new(Arc::new(hold));
    push(&mut held, &body(0, 60_000), false).await;
    push(&mut held, &body(0, 60_000), false).await;
    let ended = poll_fn(|cx| held.poll_room(cx)).await;
    assert!(matches!(ended, Err(PumpFault::Spool)));
}

#[tokio::test]
async fn a_body_that_is_whole_in_a_file_can_be_read_as_often_as_it_is_needed() {
    let hold = Arc::new(hold_in(&somewhere(), 1, 1 << 20));
    let file = SpoolFile::new(hold.clone());
    assert!(file.reserve(200_000));
    let mut writing = file.write(body(0, 200_000), 0);
    assert!(poll_fn(|cx| writing.poll(cx)).await.is_ok());
    let mut both = [0, 1].map(|_| Held::whole(hold.clone(), file.clone(), 200_000));
    assert_eq!(take(&mut both[0], 1_000).await, (body(0, 1_000), false));
    for held in &mut both {
        let (all, is_first) = (rest(held, 60_000).await, held.is_empty());
        assert!(is_first && body(0, 200_000).ends_with(&all));
    }
}
