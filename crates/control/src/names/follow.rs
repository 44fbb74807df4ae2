//! The thread that resolves host names: one task for each name of the active configuration.

use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use model::limits::{NAME_LOOKUPS_MAX, NAME_THREADS_MAX};
use model::provider::NameLookup;
use model::{Name, Snapshot};
use tokio::sync::{Semaphore, watch};

use super::book::{Book, Inbox, Present};
use super::look_up::{Host, look_up_again};
use crate::providers::backoff::{backoff, chance};
use crate::providers::dns::Answers;

/// Names of a new configuration were resolved just before it became active. Within this time they are asked again for their TTL.
const FIRST_WITHIN: Duration = Duration::from_secs(1);

/// What the thread is to do.
#[derive(Clone, Debug, Default)]
struct Wanted {
    lookup: NameLookup,
    names: Vec<Name>,
}

/// The owner of the thread.
#[derive(Debug, Default)]
pub(crate) struct Follower {
    book: Arc<Book>,
    /// There is none before the first name.
    thread: Option<(watch::Sender<Wanted>, JoinHandle<()>)>,
    lookup: NameLookup,
}

impl Follower {
    /// Tells when endpoints have other addresses.
    pub(crate) fn inbox(&self) -> Inbox {
        Inbox(Arc::clone(&self.book))
    }

    pub(crate) fn book(&self) -> &Arc<Book> {
        &self.book
    }

    /// Looks up the names of this configuration from now on.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn follow(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        let mut present = Present::new();
        for cluster in snapshot.clusters.iter().filter(|cluster| cluster.follows_names) {
            for endpoint in &cluster.endpoints {
                if let Some(address) = endpoint.address.ip().filter(|_| Host::of(&endpoint.name).is_some()) {
                    present.entry(endpoint.name.clone()).or_default().insert(address);
                }
            }
        }
        let names: Vec<Name> = present.keys().cloned().collect();
        let is_other = self.book.set_present(present) | (self.lookup != snapshot.names);
        if !is_other || (names.is_empty() && self.thread.is_none()) {
            return Ok(());
        }
        self.lookup.clone_from(&snapshot.names);
        let wanted = Wanted { lookup: self.lookup.clone(), names };
        match &self.thread {
            Some((sender, _)) => _ = sender.send_replace(wanted),
            None => self.thread = Some(start(wanted, &self.book)?),
        }
        Ok(())
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.thread.take() {
            // Without a sender the thread ends, and its tasks end where they wait.
            drop(sender);
            // A panic of the thread was reported by the thread.
            let _ = thread.join();
        }
    }
}

fn start(wanted: Wanted, book: &Arc<Book>) -> io::Result<(watch::Sender<Wanted>, JoinHandle<()>)> {
    let (sender, receiver) = watch::channel(wanted);
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().max_blocking_threads(NAME_THREADS_MAX).thread_name("names").build()?;
    let book = Arc::clone(book);
    let work = move || {
        tokio::task::LocalSet::new().block_on(&runtime, run(receiver, book));
        // A system that does not answer holds its thread, and must not hold up the end of the program.
        runtime.shutdown_background();
    };
    Ok((sender, std::thread::Builder::new().name("names".to_owned()).spawn(work)?))
}

/// What all tasks share.
struct Shared {
    lookup: NameLookup,
    book: Arc<Book>,
    /// Lookups at once.
    turns: Semaphore,
    /// Threads that ask the system.
    threads: Arc<Semaphore>,
}

/// A task, which ends with this.
struct Task(tokio::task::JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn run(mut wanted: watch::Receiver<Wanted>, book: Arc<Book>) {
    let threads = Arc::new(Semaphore::new(NAME_THREADS_MAX));
    let mut shared: Option<Rc<Shared>> = None;
    let mut tasks: HashMap<Name, Task> = HashMap::new();
    loop {
        let Wanted { lookup, names } = wanted.borrow_and_update().clone();
        let now = match shared.take().filter(|shared| shared.lookup == lookup) {
            Some(shared) => shared,
            None => {
                // All begin again, with other resolvers or times.
                tasks.clear();
                let (book, threads) = (Arc::clone(&book), Arc::clone(&threads));
                Rc::new(Shared { lookup, book, turns: Semaphore::new(NAME_LOOKUPS_MAX), threads })
            }
        };
        let mut before = std::mem::take(&mut tasks);
        for name in names {
            let begin = || Task(tokio::task::spawn_local(keep_up(name.clone(), Rc::clone(&now))));
            let task = before.remove(&name).unwrap_or_else(begin);
            tasks.insert(name, task);
        }
        drop(before);
        shared = Some(now);
        if wanted.changed().await.is_err() {
            return;
        }
    }
}

/// Looks one name up again and again.
async fn keep_up(name: Name, shared: Rc<Shared>) {
    let Some(host) = Host::of(&name) else { return };
    let Shared { lookup, book, turns, threads } = &*shared;
    let mut answers = Answers::default();
    for address in book.present(&name) {
        // Until there is an answer for its family.
        answers.addresses_of(&host.name)[usize::from(address.is_ipv6())].push(address.ip());
    }
    let mut failures = 0;
    tokio::time::sleep(chance(FIRST_WITHIN.min(lookup.dns.ttl_min), &name)).await;
    loop {
        let outcome = {
            let _turn = turns.acquire().await;
            look_up_again(&host, (lookup, threads), &mut answers, &book.present(&name)).await
        };
        let pause = match outcome {
            Ok((found, lives)) => {
                failures = 0;
                book.found(&name, found);
                let whole = lives.clamp(lookup.dns.ttl_min, lookup.dns.ttl_max);
                // Not all names at the same moment for ever.
                whole.saturating_sub(chance(whole / 4, &name))
            }
            Err(why) => {
                failures += 1;
                book.failed(&name, &why);
                backoff(failures, &name).min(lookup.dns.ttl_max.max(Duration::from_secs(1)))
            }
        };
        tokio::time::sleep(pause).await;
    }
}
