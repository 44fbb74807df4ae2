//! The connections of clients, as an administrator asks for them: over all workers, in pages.

use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use model::connections::{OpenConnection, Page};

use crate::worker::Worker;

/// Longest wait for a worker to tell. A worker is never busy with one thing for long.
const PATIENCE: Duration = Duration::from_secs(2);
/// Workers at most, for numbers: a connection is known by its number within its worker, and that.
const WORKERS_MAX: u64 = 1 << 12;
/// Connections of one page at most.
pub const PAGE_MAX: usize = 1_000;

/// A question to a worker.
pub(crate) enum Question {
    List(Page, Sender<Vec<OpenConnection>>),
    /// The number within the worker.
    End(u64, Sender<bool>),
}

/// Asks workers about their connections. Cheap to clone.
#[derive(Clone)]
pub struct Connections(pub(crate) std::sync::Arc<dyn Fn(usize, Question) -> bool + Send + Sync>);

impl Connections {
    /// Returns one page, by number, over all workers. Waits for the workers, and returns `None` if one of them did not answer in time.
    pub fn list(&self, page: &Page) -> Option<Vec<OpenConnection>> {
        let max = page.max.min(PAGE_MAX);
        let mut told: Vec<Receiver<Vec<OpenConnection>>> = Vec::new();
        for worker in 0.. {
            let (sender, receiver) = channel();
            if !(self.0)(worker, Question::List(Page { max, ..page.clone() }, sender)) {
                break;
            }
            told.push(receiver);
        }
        let mut all = Vec::new();
        for told in told {
            all.extend(told.recv_timeout(PATIENCE).ok()?);
        }
        all.sort_unstable_by_key(|connection| connection.id);
        all.truncate(max);
        Some(all)
    }

    /// Ends a connection at once, whatever is in flight. `false`: it is not there.
    pub fn end(&self, id: u64) -> bool {
        let (sender, told) = channel();
        let worker = usize::try_from(id % WORKERS_MAX).unwrap_or(usize::MAX);
        (self.0)(worker, Question::End(id / WORKERS_MAX, sender)) && told.recv_timeout(PATIENCE).unwrap_or(false)
    }
}

/// Returns the number of a connection in the process.
fn id(number: u64, worker: usize) -> u64 {
    number * WORKERS_MAX + worker as u64 % WORKERS_MAX
}

/// Answers on the worker. Who asked may have gone.
pub(crate) fn answer(worker: &Rc<Worker>, question: Question) {
    match question {
        Question::End(number, told) => drop(told.send(worker.registry.cut_client(number))),
        Question::List(page, told) => drop(told.send(list(worker, &page))),
    }
}

fn list(worker: &Rc<Worker>, page: &Page) -> Vec<OpenConnection> {
    let name = |handle: &crate::registry::ListenerHandle| {
        let plan = worker.plan_of(handle);
        plan.listeners.get(handle.index.get()).map(|listener| listener.plan.listener.name.clone())
    };
    // The first number whose id comes after: those of other workers lie in between.
    let before = page.after / WORKERS_MAX;
    let after = if id(before, worker.index) > page.after { before.saturating_sub(1) } else { before };
    let wanted = |handle: &crate::registry::ListenerHandle| {
        page.listener.as_ref().is_none_or(|wanted| name(handle).is_some_and(|name| name.as_str() == wanted))
    };
    let now = Instant::now();
    let told = worker.registry.clients(after, page.max, wanted).into_iter().filter_map(|(client, handle)| {
        Some(OpenConnection {
            id: id(client.number, worker.index),
            listener: name(&handle)?,
            peer: client.peer,
            open_for: now.saturating_duration_since(client.since),
            worker: worker.index,
            is_ending: handle.closing.get(),
        })
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_connections_tell_the_worker_and_order_pages() {
        assert_eq!((id(1, 0), id(1, 3), id(2, 0)), (WORKERS_MAX, WORKERS_MAX + 3, 2 * WORKERS_MAX));
        assert!(id(7, 5) / WORKERS_MAX == 7 && id(7, 5) % WORKERS_MAX == 5);
        let silent = Connections(std::sync::Arc::new(|_, _| false));
        assert!(silent.list(&Page { max: 5, ..Page::default() }).unwrap().is_empty() && !silent.end(9));
        let late = Connections(std::sync::Arc::new(|worker, _| worker == 0));
        assert_eq!(late.list(&Page { max: 5, ..Page::default() }), None, "a page without some is none");
    }

    #[test]
    fn a_page_is_put_together_of_what_all_workers_tell() {
        let told = |worker: usize, page: &Page| -> Vec<OpenConnection> {
            let all = (1..=3).map(|number| OpenConnection {
                id: id(number, worker),
                listener: "web".into(),
                peer: ([127, 0, 0, 1], 1).into(),
                open_for: Duration::ZERO,
                worker,
                is_ending: false,
            });
            all.filter(|connection| connection.id > page.after).take(page.max).collect()
        };
        let two = Connections(std::sync::Arc::new(move |worker, question| match question {
            Question::List(page, sender) if worker < 2 => sender.send(told(worker, &page)).is_ok(),
            _ => false,
        }));
        let (mut after, mut seen) = (0, Vec::new());
        loop {
            let page = two.list(&Page { after, max: 4, listener: None }).unwrap();
            let Some(last) = page.last() else { break };
            after = last.id;
            seen.extend(page.into_iter().map(|connection| connection.id));
        }
        assert_eq!(seen.len(), 6);
        assert!(seen.windows(2).all(|two| two[0] < two[1]));
    }
}
