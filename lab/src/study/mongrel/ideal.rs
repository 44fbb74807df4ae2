//! The queue that no product can surpass: one line for all origins, in strict order of arrival, and no time lost between
//! an answer and the next request. Computed from the times that the origins take, which follow from the seed.

use super::measure::{Cell, SEED, Taken, WORK_MS};
use super::order::Answer;
use crate::net::mongrel::{Work, time_for};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// How it is called in the report.
pub(super) const NAME: &str = "ideal queue";

/// What a run would have been.
pub(super) fn taken(cell: &Cell) -> Taken {
    let answers = answers(cell);
    Taken { queue: answers.clone(), answers, cpu_us: 0.0, others_share: 0.0 }
}

fn answers(cell: &Cell) -> Vec<Answer> {
    let work = Work { seed: SEED, usual: Duration::from_millis(WORK_MS) };
    // When an origin is free again, which one it is, and how many it has done; when a request comes.
    let mut origins: BinaryHeap<Reverse<(u64, usize, u64)>> = (0..cell.origins).map(|n| Reverse((0, n, 0))).collect();
    let mut coming: BinaryHeap<Reverse<u64>> = (0..cell.concurrency).map(|_| Reverse(0)).collect();
    let mut answers = Vec::with_capacity(cell.requests);
    while answers.len() < cell.requests
        && let (Some(Reverse(asked_us)), Some(Reverse((free_us, number, done)))) = (coming.pop(), origins.pop())
    {
        let began_us = asked_us.max(free_us);
        let ended_us = began_us + time_for(work, number, done).as_micros() as u64;
        origins.push(Reverse((ended_us, number, done + 1)));
        coming.push(Reverse(ended_us));
        answers.push(Answer {
            asked_us,
            came_us: Some(asked_us),
            latency_us: ended_us - asked_us,
            is_good: true,
            problem: String::new(),
            began_us: Some(began_us),
            overlapped: false,
            idle_us: None,
        });
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::super::order::figures;
    use super::*;

    fn cell(origins: usize, concurrency: usize) -> Cell {
        Cell { name: "c", origins, concurrency, requests: 1000, together_us: 0 }
    }

    #[test]
    fn nobody_is_overtaken_and_no_origin_rests_while_somebody_waits() {
        for (origins, concurrency) in [(3, 3), (3, 30), (100, 900)] {
            let cell = cell(origins, concurrency);
            let answers = answers(&cell);
            assert_eq!(answers.len(), 1000);
            assert!(answers.windows(2).all(|pair| pair[0].began_us <= pair[1].began_us));
            assert_eq!(figures(&taken(&cell), &cell).order.overtaken, 0);
        }
        // With one origin every request begins when the one before it ends.
        let answers = answers(&cell(1, 5));
        for pair in answers.windows(2) {
            assert_eq!(pair[1].began_us, Some(pair[0].asked_us + pair[0].latency_us));
        }
    }

    #[test]
    fn it_gives_what_the_origins_can() {
        let cell = cell(3, 30);
        let most = 1000.0 / cell.least_seconds();
        let found = figures(&taken(&cell), &cell).rps;
        assert!((0.9..1.1).contains(&(found / most)), "{found} of {most}");
    }
}
