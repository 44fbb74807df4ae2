//! When a filter applies: the conditions of routes, joined by `not`, `any` and `all`, the status of the response, and expressions.

use std::time::Instant;

use model::matching::When;
use model::status::StatusRange;
use model::table::Reading;
use model::{Facts, Issue, RequestHead, ResponseHead};

use super::conditions::Conditions;
use super::hosts::{HostMap, normalise};
use crate::expression::{Condition, Scope, Subject};
use crate::filter::tables::KeyedTable;
use crate::filter::{Compiling, Note, Notes, ResponseView};

/// The number of what is asked once only.
const NONE: usize = usize::MAX;

/// A condition, compiled.
pub(crate) struct WhenPlan {
    conditions: Conditions,
    /// Where its verdict on a request is kept for the response; `NONE`: it is not.
    number: usize,
    /// `None`: any.
    hosts: Option<HostMap<()>>,
    /// None: any.
    statuses: Box<[StatusRange]>,
    /// All of them must hold.
    tables: Box<[TestPlan]>,
    expression: Option<Condition>,
    not: Option<Box<WhenPlan>>,
    /// `None`: nothing is asked. One of them must hold.
    any: Option<Box<[WhenPlan]>>,
    /// All of them must hold.
    all: Box<[WhenPlan]>,
}

/// A condition on the entry of a request in a table, compiled.
struct TestPlan {
    keyed: KeyedTable,
    above: Box<[(Reading, u64)]>,
}

/// What a condition is asked of: the request, where it is from, and when.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub head: &'a RequestHead,
    pub facts: &'a Facts<'a>,
    /// `None`: it is not known, and no table is looked at.
    pub now: Option<Instant>,
}

impl<'a> Asked<'a> {
    /// Returns what expressions are asked about.
    fn subject(self, notes: &'a Notes) -> Subject<'a> {
        self.timed(Subject::of_request(self.head, self.facts).with_notes(notes))
    }

    fn timed(self, subject: Subject<'a>) -> Subject<'a> {
        match self.now {
            Some(now) => subject.at(now),
            None => subject,
        }
    }
}

/// A response that a condition is asked about, with all that is seen beside it.
pub(crate) type Answered<'a> = Option<(&'a ResponseHead, &'a ResponseView<'a>)>;

impl WhenPlan {
    /// Compiles what was asked, for a filter that acts on requests or only on responses.
    ///
    /// # Errors
    /// The first expression or name that is wrong, with its path below `when`.
    pub(crate) fn compile(asked: &When, scope: Scope, compiling: &mut Compiling<'_>) -> Result<Self, Issue> {
        let first = |issues: Vec<Issue>| issues.into_iter().next().unwrap_or_else(|| Issue::at("", "it is wrong"));
        let mut list = |key: &str, list: &[When]| {
            let mut one = |(place, asked)| {
                Self::compile(asked, scope, compiling).map_err(|issue| issue.below(&format!("{key}/{place}")))
            };
            list.iter().enumerate().map(&mut one).collect::<Result<Box<[_]>, _>>()
        };
        let any = if asked.any.is_empty() { None } else { Some(list("any", &asked.any)?) };
        let all = list("all", &asked.all)?;
        let mut hosts = HostMap::default();
        for host in &asked.matches.hosts {
            hosts.insert(host, ());
        }
        let mut negated = |not: &When| Self::compile(not, scope, compiling).map_err(|issue| issue.below("not"));
        let not = asked.not.as_deref().map(&mut negated).transpose()?;
        let mut tables = Vec::new();
        for test in &asked.tables {
            // Where tables are not known, the settings are only checked.
            let found = KeyedTable::find(compiling, &test.table, "table/name")?;
            tables.extend(found.map(|keyed| TestPlan { keyed, above: test.above.clone().into() }));
        }
        let expression = asked.matches.expression.as_deref();
        let expression =
            expression.map(|text| compiling.condition(text, scope).map_err(|issue| issue.below("expression")));
        Ok(Self {
            conditions: Conditions::compile_alone(&asked.matches).map_err(first)?,
            number: NONE,
            hosts: (!asked.matches.hosts.is_empty()).then_some(hosts),
            statuses: asked.statuses.clone().into(),
            tables: tables.into(),
            expression: expression.transpose()?,
            not: not.map(Box::new),
            any,
            all,
        })
    }

    /// Numbers the notes that keep the verdicts of all parts.
    pub(crate) fn number(&mut self, compiling: &mut Compiling<'_>) {
        self.number = compiling.note();
        let (not, any) = (self.not.as_deref_mut(), self.any.as_deref_mut().unwrap_or_default());
        not.into_iter().chain(any).chain(self.all.iter_mut()).for_each(|part| part.number(compiling));
    }

    /// Keeps with a request what its parts say of it as it is now, if that is to be kept: filters after this one may change it
    /// before there is a response. Statuses, and expressions about the response, are asked for when there is one.
    pub(crate) fn judge(&self, of: Asked<'_>, notes: &mut Notes, scratch: &mut Vec<u8>) {
        if self.number == NONE {
            return;
        }
        let holds = self.own_holds(of, notes, scratch);
        notes.set(self.number, Note::Flag(holds));
        let (not, any) = (self.not.as_deref(), self.any.as_deref().unwrap_or_default());
        not.into_iter().chain(any).chain(&*self.all).for_each(|part| part.judge(of, notes, scratch));
    }

    /// Returns where it asks for the status, if it does: the path below `when`.
    pub(crate) fn asks_status(&self) -> Option<String> {
        if !self.statuses.is_empty() {
            return Some("status".to_owned());
        }
        let below = |key: &str, list: &[Self]| {
            let mut found = list.iter().enumerate();
            found.find_map(|(place, one)| one.asks_status().map(|path| format!("{key}/{place}/{path}")))
        };
        let not = self.not.as_ref().and_then(|not| not.asks_status()).map(|path| format!("not/{path}"));
        not.or_else(|| below("any", self.any.as_deref().unwrap_or_default())).or_else(|| below("all", &self.all))
    }

    /// Returns whether it holds, for a response if there is one; what [`Self::judge`] has kept counts, not what the request is now. `scratch`
    /// as in [`Conditions::hold`].
    pub(crate) fn holds(&self, of: Asked<'_>, noted: (&Notes, Answered<'_>), scratch: &mut Vec<u8>) -> bool {
        let (notes, answered) = noted;
        let status = answered.map(|(head, _)| head.status);
        (self.statuses.is_empty()
            || status.is_some_and(|status| self.statuses.iter().any(|range| range.contains(status))))
            && notes.flag(self.number).unwrap_or_else(|| self.own_holds(of, notes, scratch))
            && (!self.asks_response() || self.response_holds(of, noted, scratch))
            && self.not.as_ref().is_none_or(|not| !not.holds(of, noted, scratch))
            && self.any.as_ref().is_none_or(|any| any.iter().any(|one| one.holds(of, noted, scratch)))
            && self.all.iter().all(|one| one.holds(of, noted, scratch))
    }

    /// Returns whether it cannot be answered before there is a response.
    pub(crate) fn waits_for_response(&self) -> bool {
        !self.statuses.is_empty() || self.asks_response() || self.parts().any(Self::waits_for_response)
    }

    /// Returns whether the body of the request, of which nothing is known, decides on it: also later, when there is a response.
    pub(crate) fn wants_body(&self, of: Asked<'_>, notes: &Notes, scratch: &mut Vec<u8>) -> bool {
        // Parts that are decided now may hold back a part that reads the body until they are joined with the response's.
        if self.waits_for_response() && self.reads_body() {
            return true;
        }
        notes.body.is_unread() && {
            self.holds(of, (notes, None), scratch);
            notes.body.is_wanted()
        }
    }

    /// Returns whether an expression of it reads the body of the request.
    fn reads_body(&self) -> bool {
        self.expression.as_ref().is_some_and(Condition::reads_body) || self.parts().any(Self::reads_body)
    }

    fn parts(&self) -> impl Iterator<Item = &Self> {
        self.not.as_deref().into_iter().chain(self.any.as_deref().unwrap_or_default()).chain(&*self.all)
    }

    /// Returns what it asks itself of the request, without its parts.
    fn own_holds(&self, of: Asked<'_>, notes: &Notes, scratch: &mut Vec<u8>) -> bool {
        self.host_holds(of.head, scratch)
            && self.conditions.hold(of.head, of.facts.caller(), scratch)
            && self.tables.iter().all(|test| test.holds(of, notes, scratch))
            && self
                .expression
                .as_ref()
                .is_none_or(|condition| self.asks_response() || condition.is_true(of.subject(notes), scratch))
    }

    /// Returns whether its expression asks for facts of the response.
    fn asks_response(&self) -> bool {
        self.expression.as_ref().is_some_and(|condition| condition.needs() >= Scope::Response)
    }

    fn response_holds(&self, of: Asked<'_>, (notes, answered): (&Notes, Answered<'_>), scratch: &mut Vec<u8>) -> bool {
        let (Some(condition), Some((head, view))) = (&self.expression, answered) else { return false };
        let subject = Subject::of_response(head, view, of.facts).with_notes(notes);
        condition.is_true(of.timed(subject), scratch)
    }

    fn host_holds(&self, head: &RequestHead, scratch: &mut Vec<u8>) -> bool {
        let Some(hosts) = &self.hosts else { return true };
        normalise(head.host(), scratch);
        hosts.find(scratch).is_some()
    }
}

impl TestPlan {
    fn holds(&self, of: Asked<'_>, notes: &Notes, scratch: &mut Vec<u8>) -> bool {
        let Some(now) = of.now else { return false };
        self.keyed.with_key_of(of.subject(notes), scratch, |key| {
            self.above.iter().all(|(reading, bound)| self.keyed.table.get(key, *reading, now) > *bound)
        })
    }
}
