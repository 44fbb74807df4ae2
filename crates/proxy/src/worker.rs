//! A worker: one thread, one runtime, and everything that its connections share.
//!
//! Nothing here is shared with another worker but what the plan and the telemetry hold in atomics. State is in cells
//! because all tasks of a worker run on its thread; no borrow is held across an await.

pub(crate) mod command;
mod open;
pub(crate) mod run;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{SystemTime, UNIX_EPOCH};

use model::{Fault, FieldName, RequestHead, ResponseHead};
use plan::filter::Notes;
use telemetry::{Kind, Record, Telemetry, WorkerSeries};
use wire::http1::HeadScan;
use wire::http3::message::Memory;

use crate::access_logs::WorkerLogs;
use crate::body_steps::BodySteps;
use crate::buffer::BufferPool;
use crate::connection::ConnectionFacts;
use crate::http3::Outgoing;
use crate::random::Random;
use crate::registry::{ListenerHandle, Registry};
use crate::worker_plan::WorkerPlan;

pub(crate) use open::Open;

/// Heads kept for reuse.
const POOLED_HEADS_MAX: usize = 256;
/// A head that grew beyond this is not kept.
const POOLED_HEAD_BYTES_MAX: usize = 32 * 1024;

/// The head of a request while it is read and after, with what filters note of it, reused from one exchange to the next.
#[derive(Default)]
pub(crate) struct Incoming {
    pub head: RequestHead,
    pub scan: HeadScan,
    /// What filters note of the exchange.
    pub notes: Notes,
    /// What they make of its body.
    pub body_steps: BodySteps,
}

/// Boxes kept for reuse, last in, first out.
#[derive(Default)]
struct Boxes<T> {
    free: RefCell<Vec<Box<T>>>,
}

impl<T: Default> Boxes<T> {
    fn take(&self) -> Box<T> {
        self.free.borrow_mut().pop().unwrap_or_default()
    }

    fn give(&self, boxed: Box<T>) {
        let mut free = self.free.borrow_mut();
        if free.len() < POOLED_HEADS_MAX {
            free.push(boxed);
        }
    }
}

/// A plan that is tried beside the one in force.
pub(crate) struct Trial {
    pub plan: Rc<WorkerPlan>,
    pub share_percent: u8,
    pub counts: Arc<telemetry::trial::Trial>,
}

/// The last plan that had a listener, kept as long as that has connections.
type LastPlan = (Weak<ListenerHandle>, Rc<WorkerPlan>);

/// The field `date` of responses, made once a second.
struct DateField {
    /// The second, and the text for it.
    text: RefCell<(u64, String)>,
    name: FieldName,
}

/// See the module.
pub(crate) struct Worker {
    pub index: usize,
    pub buffers: Rc<BufferPool>,
    pub plan: RefCell<Rc<WorkerPlan>>,
    /// The last plan of each listener that no plan has any more, as long as it has connections.
    last_plans: RefCell<HashMap<*const ListenerHandle, LastPlan>>,
    /// Whether there is anything in `trial`.
    pub has_trial: Cell<bool>,
    pub trial: RefCell<Option<Trial>>,
    pub registry: Rc<Registry>,
    pub random: Random,
    pub logs: RefCell<Option<WorkerLogs>>,
    /// For code that needs a moment's memory and awaits nothing.
    pub scratch: RefCell<Vec<u8>>,
    /// The same for heads of HTTP/3.
    pub sections: RefCell<Memory>,
    requests: Boxes<Incoming>,
    responses: Boxes<ResponseHead>,
    date: DateField,
    /// For tasks that outlive what begins them.
    pub me: Weak<Self>,
    /// Where connections to endpoints over UDP begin.
    pub outgoing: Rc<Outgoing>,
    /// Of all workers, for the end of a drain.
    pub open_connections: Arc<AtomicUsize>,
}

impl Worker {
    pub(crate) fn new(index: usize, telemetry: Arc<Telemetry>, open_connections: Arc<AtomicUsize>) -> Rc<Self> {
        Rc::new_cyclic(|me| Self {
            me: me.clone(),
            index,
            buffers: Rc::default(),
            plan: RefCell::new(Rc::new(WorkerPlan::empty(telemetry))),
            has_trial: Cell::new(false),
            trial: RefCell::new(None),
            registry: Rc::default(),
            random: Random::from_system(),
            logs: RefCell::new(None),
            scratch: RefCell::default(),
            sections: RefCell::default(),
            last_plans: RefCell::default(),
            requests: Boxes::default(),
            responses: Boxes::default(),
            date: DateField {
                text: RefCell::new((0, String::new())),
                name: FieldName::new("date").unwrap_or_else(|_| unreachable!("a constant token")),
            },
            outgoing: Rc::default(),
            open_connections,
        })
    }

    /// The plan that an exchange which begins now follows to its end.
    pub(crate) fn plan(&self) -> Rc<WorkerPlan> {
        self.plan.borrow().clone()
    }

    /// The plan for the connections of a listener: the present one, or the last that had it.
    pub(crate) fn plan_of(&self, handle: &ListenerHandle) -> Rc<WorkerPlan> {
        if handle.is_gone.get()
            && let Some(last) = self.last_plan_of(handle)
        {
            return last;
        }
        self.plan()
    }

    #[cold]
    fn last_plan_of(&self, handle: &ListenerHandle) -> Option<Rc<WorkerPlan>> {
        self.last_plans.borrow().get(&std::ptr::from_ref(handle)).map(|(_, plan)| plan.clone())
    }

    /// Keeps the last plan that had a listener, for connections that outlive it.
    pub(crate) fn keep_last_plan(&self, handle: &Rc<ListenerHandle>, plan: Rc<WorkerPlan>) {
        handle.is_gone.set(true);
        // The weak reference holds the address, so that no other listener can have it meanwhile.
        self.last_plans.borrow_mut().insert(Rc::as_ptr(handle), (Rc::downgrade(handle), plan));
    }

    /// A plan for a task that outlives its exchange; `None`: it is neither active, nor tried, nor the last of a listener.
    pub(crate) fn own_plan(&self, plan: &WorkerPlan) -> Option<Rc<WorkerPlan>> {
        let is_it = |known: &Rc<WorkerPlan>| std::ptr::eq(&**known, plan);
        let present = self.plan();
        if is_it(&present) {
            return Some(present);
        }
        let tried = self.trial.borrow().as_ref().map(|trial| trial.plan.clone()).filter(is_it);
        tried.or_else(|| self.last_plans.borrow().values().map(|(_, plan)| plan).find(|known| is_it(known)).cloned())
    }

    /// Forgets the plans that were kept for listeners whose last connection has ended.
    pub(crate) fn forget_last_plans(&self) {
        self.last_plans.borrow_mut().retain(|_, (handle, _)| handle.strong_count() > 0);
    }

    /// The plan for an exchange, a stream of bytes, that begins now: as [`Self::plan_of`], or the one that is tried. Both
    /// have the same listeners.
    #[inline]
    pub(crate) fn plan_to_carry(&self, handle: &ListenerHandle) -> Rc<WorkerPlan> {
        if self.has_trial.get()
            && let Some(tried) = self.draw(handle)
        {
            return tried;
        }
        self.plan_of(handle)
    }

    #[cold]
    fn draw(&self, handle: &ListenerHandle) -> Option<Rc<WorkerPlan>> {
        let trial = self.trial.borrow();
        let trial = trial.as_ref().filter(|_| !handle.is_gone.get())?;
        (self.random.next() % 100 < u64::from(trial.share_percent)).then(|| trial.plan.clone())
    }

    pub(crate) fn take_request(&self) -> Box<Incoming> {
        self.requests.take()
    }

    pub(crate) fn give_request(&self, mut request: Box<Incoming>) {
        if request.head.fields.capacity_bytes() <= POOLED_HEAD_BYTES_MAX {
            request.head.clear();
            request.scan.reset();
            request.notes.clear();
            request.body_steps.clear();
            self.requests.give(request);
        }
    }

    /// A head for a response. It is taken when the response arrives, not when the request does: what lay in the pool
    /// is still in the cache then.
    pub(crate) fn take_response(&self) -> Box<ResponseHead> {
        self.responses.take()
    }

    pub(crate) fn give_response(&self, mut head: Box<ResponseHead>) {
        if head.fields.capacity_bytes() <= POOLED_HEAD_BYTES_MAX {
            head.clear();
            self.responses.give(head);
        }
    }

    /// Counts a record, of what went by the plan of this generation, and logs it, with what filters have noted.
    pub(crate) fn tell(
        &self,
        record: &Record<'_>,
        series: &WorkerSeries<'_>,
        (generation, notes): (u64, Option<&Notes>),
    ) {
        telemetry::count(record, series);
        if self.has_trial.get() {
            self.weigh(record, generation);
        }
        if let Some(log) = &mut *self.logs.borrow_mut() {
            log.write(record, notes);
        }
    }

    /// Logs a connection that came to nothing. Its listener's counters include it already.
    pub(crate) fn log_failure(&self, facts: &ConnectionFacts, fault: Fault) {
        let Some(log) = &mut *self.logs.borrow_mut() else { return };
        let facts = facts.facts(facts.peer.ip(), "");
        let (fault, at) = (Some(fault), SystemTime::now());
        log.write(&Record { fault, at, ..Record::empty(&facts, Kind::Stream) }, None);
    }

    #[cold]
    fn weigh(&self, record: &Record<'_>, generation: u64) {
        if let Some(trial) = &*self.trial.borrow() {
            trial.counts.count(self.index, generation, record);
        }
    }

    /// The name of the field `date`.
    pub(crate) fn date_name(&self) -> &FieldName {
        &self.date.name
    }

    /// Calls `use_date` with the time as a `date` field has it (RFC 9110 section 5.6.7), made once a second.
    pub(crate) fn with_date<T>(&self, use_date: impl FnOnce(&str) -> T) -> T {
        let second = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut date = self.date.text.borrow_mut();
        if date.0 != second {
            *date = (second, imf_fixdate(second));
        }
        use_date(&date.1)
    }
}

/// Civil time from days since 1970 (Howard Hinnant, "chrono-compatible low-level date algorithms").
fn imf_fixdate(second: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let days = second / 86_400;
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12;
    let year = year_of_era + era * 400 + u64::from(month < 2);
    let (hour, minute, rest) = (second / 3600 % 24, second / 60 % 60, second % 60);
    let (weekday, month) = (DAYS[(days % 7) as usize], MONTHS[month as usize]);
    format!("{weekday}, {day:02} {month} {year} {hour:02}:{minute:02}:{rest:02} GMT")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_field_is_written_as_the_standard_shows() {
        assert_eq!(imf_fixdate(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(imf_fixdate(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(imf_fixdate(1_709_164_800), "Thu, 29 Feb 2024 00:00:00 GMT");
    }
}
