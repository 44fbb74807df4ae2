//! What became of the requests, seen from both sides: how long each took, who began it when, and who was overtaken.

use super::measure::{Cell, Taken};
use crate::generators::vegeta::Row;
use crate::measure::stats::{median, percentile};
use crate::net::crowd::Sent;
use crate::net::mongrel::{SEEN_FIELD, Seen};
use serde::{Deserialize, Serialize};

/// One request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Answer {
    /// When the generator began it, with its connection, us since the first.
    pub asked_us: u64,
    /// When its last byte was out, us since the first was begun: then it had come. `None`: it never was, or that is not known.
    pub came_us: Option<u64>,
    /// Until the answer was there.
    pub latency_us: u64,
    /// It was answered with 2xx.
    pub is_good: bool,
    /// Why not, or with what status.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub problem: String,
    /// When an origin began to work on it, us since the first request; `None`: none did.
    pub began_us: Option<u64>,
    /// It met another one at the origin.
    pub overlapped: bool,
    /// How long the origin had been idle when it began, us.
    pub idle_us: Option<u64>,
}

/// What `vegeta` tells of requests, in the order in which they were made.
pub(super) fn of_rows(mut rows: Vec<Row>) -> Vec<Answer> {
    rows.sort_by_key(|row| row.number);
    let one = |row: &Row| Sent {
        began_ns: row.began_ns,
        out_ns: None,
        latency_ns: row.latency_ns,
        status: row.status,
        error: row.error.clone(),
        seen: row.field(SEEN_FIELD).and_then(Seen::parse),
    };
    of_sent(&rows.iter().map(one).collect::<Vec<_>>())
}

/// What is known of requests, in the order in which they were made.
pub(super) fn of_sent(all: &[Sent]) -> Vec<Answer> {
    let start_ns = all.iter().map(|sent| sent.began_ns).min().unwrap_or(0);
    let since_start = |ns: u64| ns.saturating_sub(start_ns) / 1000;
    let answer = |sent: &Sent| Answer {
        asked_us: since_start(sent.began_ns),
        came_us: sent.out_ns.map(since_start),
        latency_us: sent.latency_ns / 1000,
        is_good: problem(sent).is_empty(),
        problem: problem(sent),
        began_us: sent.seen.map(|seen| since_start(seen.began_ns)),
        overlapped: sent.seen.is_some_and(|seen| seen.overlapped),
        idle_us: sent.seen.map(|seen| seen.idle_ns / 1000),
    };
    all.iter().map(answer).collect()
}

fn problem(sent: &Sent) -> String {
    match sent.status {
        0 | 200..300 => sent.error.clone(),
        status => format!("status {status}"),
    }
}

/// How well the order of arrival was kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Order {
    /// Requests looked at.
    pub compared: usize,
    /// Those that an origin began later than one that had come clearly after them.
    pub overtaken: usize,
    /// The most that went before one which was there first.
    pub worst_by: usize,
    /// The longest that one waited after the first later one was begun, us.
    pub longest_us: u64,
}

/// Compares the order in which requests came with that in which origins began them. What lies closer together than
/// `together_us` on either side has no order that anyone could keep or see.
pub(super) fn order(answers: &[Answer], together_us: u64) -> Order {
    let mut begun: Vec<(u64, u64)> = answers.iter().filter_map(|answer| answer.began_us.zip(answer.came_us)).collect();
    begun.sort_unstable();
    let mut order = Order::default();
    for answer in answers {
        let Some((began, own)) = answer.began_us.zip(answer.came_us) else { continue };
        order.compared += 1;
        let clearly_before = begun.iter().take_while(|(other, _)| other + together_us < began);
        let mut overtaking = clearly_before.filter(|(_, came)| *came > own + together_us).peekable();
        let Some((first, _)) = overtaking.peek().copied() else { continue };
        order.overtaken += 1;
        order.longest_us = order.longest_us.max(began - first);
        order.worst_by = order.worst_by.max(overtaking.count());
    }
    order
}

/// The figures of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figures {
    pub requests: usize,
    pub errors: usize,
    /// A problem, when there is one.
    pub problem: String,
    pub rps: f64,
    pub p50_us: f64,
    pub p95_us: f64,
    pub p99_us: f64,
    pub longest_us: u64,
    pub overlapped: usize,
    pub order: Order,
    /// From an origin's answer to the next request there, of those that were waiting already, median; 0: there was none.
    pub handover_us: f64,
}

/// Adds up one run of a cell. Errors have no part in the times.
pub(super) fn figures(taken: &Taken, cell: &Cell) -> Figures {
    let Taken { answers, queue, .. } = taken;
    let good: Vec<&Answer> = answers.iter().filter(|answer| answer.is_good).collect();
    let mut times: Vec<f64> = good.iter().map(|answer| answer.latency_us as f64).collect();
    times.sort_by(f64::total_cmp);
    let end_us = answers.iter().map(|answer| answer.asked_us + answer.latency_us).max().unwrap_or(0);
    let at = |percent| percentile(&times, percent).unwrap_or(0.0);
    Figures {
        requests: answers.len(),
        errors: answers.len() - good.len(),
        problem: answers.iter().find(|answer| !answer.is_good).map(|one| one.problem.clone()).unwrap_or_default(),
        rps: good.len() as f64 * 1e6 / end_us.max(1) as f64,
        p50_us: at(50.0),
        p95_us: at(95.0),
        p99_us: at(99.0),
        longest_us: good.iter().map(|answer| answer.latency_us).max().unwrap_or(0),
        overlapped: answers.iter().filter(|answer| answer.overlapped).count(),
        order: order(queue, cell.together_us),
        handover_us: median(&handovers(queue)).unwrap_or(0.0),
    }
}

/// How long origins were idle before those requests that had come before the origin was free, and waited elsewhere.
fn handovers(answers: &[Answer]) -> Vec<f64> {
    let handover = |answer: &Answer| {
        let (idle, began) = (answer.idle_us.filter(|idle| *idle > 0)?, answer.began_us?);
        let has_waited = answer.came_us? < began.saturating_sub(idle) && !answer.overlapped;
        has_waited.then_some(idle as f64)
    };
    answers.iter().filter_map(handover).collect()
}

/// The share of all requests that were answered within a time.
pub(super) fn share_within(answers: &[Answer], within_us: f64) -> f64 {
    let count = answers.iter().filter(|answer| answer.is_good && answer.latency_us as f64 <= within_us).count();
    count as f64 / answers.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request asked and begun at these milliseconds.
    fn request(asked_ms: u64, began_ms: u64) -> Answer {
        Answer {
            asked_us: asked_ms * 1000,
            came_us: Some(asked_ms * 1000),
            latency_us: (began_ms - asked_ms + 20) * 1000,
            is_good: true,
            problem: String::new(),
            began_us: Some(began_ms * 1000),
            overlapped: false,
            idle_us: Some(300),
        }
    }

    #[test]
    fn a_queue_that_keeps_the_order_overtakes_nobody() {
        let answers: Vec<Answer> = (0..50).map(|n| request(n * 20, n * 20 + 60)).collect();
        assert_eq!(order(&answers, 5000), Order { compared: 50, ..Order::default() });
    }

    #[test]
    fn one_that_waits_while_later_ones_go_first_is_told_with_their_number_and_the_time() {
        let mut answers: Vec<Answer> = (0..50).map(|n| request(n * 20, n * 20 + 60)).collect();
        answers[10] = request(200, 500);
        // The eleventh came at 200; those asked from 220 on and begun from 280 to 480 went before it.
        let expected = Order { compared: 50, overtaken: 1, worst_by: 11, longest_us: 220_000 };
        assert_eq!(order(&answers, 5000), expected);
        // It was begun at 200 and was on its way until 420, so nobody who came before that went ahead of it.
        answers[10].came_us = Some(420_000);
        assert_eq!(order(&answers, 5000).worst_by, 0);
        answers[10].came_us = None;
        assert_eq!(order(&answers, 5000), Order { compared: 49, ..Order::default() });
    }

    #[test]
    fn what_comes_together_has_no_order() {
        let answers = [request(100, 210), request(104, 200), request(300, 304), request(320, 324)];
        assert_eq!(order(&answers, 5000).overtaken, 0);
    }

    #[test]
    fn what_is_lost_between_two_requests_is_told_of_those_that_waited_alone() {
        let idle = |answer: Answer, idle_us| Answer { idle_us, ..answer };
        let came_late = idle(request(100, 101), Some(50_000));
        let met = Answer { overlapped: true, ..idle(request(0, 100), Some(1)) };
        let first = idle(request(0, 100), Some(0));
        let waited = [200, 300, 900].map(|us| idle(request(0, 100), Some(us)));
        assert_eq!(handovers(&[came_late, met, first]), Vec::<f64>::new());
        assert_eq!(handovers(&waited), [200.0, 300.0, 900.0]);
    }

    #[test]
    fn errors_count_as_such_and_not_in_the_times() {
        let failed = Answer {
            is_good: false,
            problem: "status 502".to_owned(),
            began_us: None,
            idle_us: None,
            ..request(0, 5000)
        };
        let cell = Cell { name: "c1", origins: 1, concurrency: 1, requests: 3, together_us: 5000 };
        let answers = vec![request(0, 0), request(20, 20), failed];
        let figures = figures(&Taken { answers, queue: Vec::new(), cpu_us: 1.0, others_share: 0.0 }, &cell);
        assert_eq!((figures.requests, figures.errors, figures.longest_us), (3, 1, 20_000));
        assert_eq!(figures.problem, "status 502");
        assert!((figures.rps - 2.0 / 5.02).abs() < 1e-9);
    }

    #[test]
    fn a_share_is_of_all_requests() {
        let answers = [request(0, 0), request(0, 40), request(0, 400), request(0, 4000)];
        assert!((share_within(&answers, 60_000.0) - 0.5).abs() < 1e-9);
        assert!(share_within(&[], 1.0).abs() < 1e-9);
    }
}
