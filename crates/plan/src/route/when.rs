//! When a filter applies: the conditions of routes, joined by `not`, `any` and `all`, and the status of the response.

use model::facts::Caller;
use model::matching::When;
use model::status::StatusRange;
use model::{Issue, RequestHead};

use super::conditions::Conditions;
use super::hosts::{HostMap, normalise};
use crate::filter::{Compiling, Note, Notes};

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
    not: Option<Box<WhenPlan>>,
    /// `None`: nothing is asked. One of them must hold.
    any: Option<Box<[WhenPlan]>>,
    /// All of them must hold.
    all: Box<[WhenPlan]>,
}

impl WhenPlan {
    /// Compiles what was asked.
    ///
    /// # Errors
    /// The first expression or name that is wrong, with its path below `when`.
    pub(crate) fn compile(asked: &When) -> Result<Self, Issue> {
        let first = |issues: Vec<Issue>| issues.into_iter().next().unwrap_or_else(|| Issue::at("", "it is wrong"));
        let list = |key: &str, list: &[When]| {
            let one = |(place, asked)| Self::compile(asked).map_err(|issue| issue.below(&format!("{key}/{place}")));
            list.iter().enumerate().map(one).collect::<Result<Box<[_]>, _>>()
        };
        let mut hosts = HostMap::default();
        for host in &asked.matches.hosts {
            hosts.insert(host, ());
        }
        let not = asked.not.as_ref().map(|not| Self::compile(not).map_err(|issue| issue.below("not"))).transpose()?;
        Ok(Self {
            conditions: Conditions::compile_alone(&asked.matches).map_err(first)?,
            number: NONE,
            hosts: (!asked.matches.hosts.is_empty()).then_some(hosts),
            statuses: asked.statuses.clone().into(),
            not: not.map(Box::new),
            any: if asked.any.is_empty() { None } else { Some(list("any", &asked.any)?) },
            all: list("all", &asked.all)?,
        })
    }

    /// Numbers the notes that keep the verdicts of all parts.
    pub(crate) fn number(&mut self, compiling: &mut Compiling<'_>) {
        self.number = compiling.note();
        let (not, any) = (self.not.as_deref_mut(), self.any.as_deref_mut().unwrap_or_default());
        not.into_iter().chain(any).chain(self.all.iter_mut()).for_each(|part| part.number(compiling));
    }

    /// Keeps with a request what its parts say of it as it is now, if that is to be kept: filters after this one may change it
    /// before there is a response. Statuses are asked for when there is one.
    pub(crate) fn judge(&self, of: (&RequestHead, Caller<'_>), notes: &mut Notes, scratch: &mut Vec<u8>) {
        if self.number == NONE {
            return;
        }
        notes.set(self.number, Note::Flag(self.own_holds(of, scratch)));
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

    /// Returns whether it holds, for a response of this `status` if there is one; what [`Self::judge`] has kept counts, not what the
    /// request is now. `scratch` as in [`Conditions::hold`].
    pub(crate) fn holds(
        &self,
        of: (&RequestHead, Caller<'_>),
        noted: (&Notes, Option<u16>),
        scratch: &mut Vec<u8>,
    ) -> bool {
        let (notes, status) = noted;
        (self.statuses.is_empty()
            || status.is_some_and(|status| self.statuses.iter().any(|range| range.contains(status))))
            && notes.flag(self.number).unwrap_or_else(|| self.own_holds(of, scratch))
            && self.not.as_ref().is_none_or(|not| !not.holds(of, noted, scratch))
            && self.any.as_ref().is_none_or(|any| any.iter().any(|one| one.holds(of, noted, scratch)))
            && self.all.iter().all(|one| one.holds(of, noted, scratch))
    }

    /// Returns what it asks itself, without its parts and the status.
    fn own_holds(&self, (head, caller): (&RequestHead, Caller<'_>), scratch: &mut Vec<u8>) -> bool {
        self.host_holds(head, scratch) && self.conditions.hold(head, caller, scratch)
    }

    fn host_holds(&self, head: &RequestHead, scratch: &mut Vec<u8>) -> bool {
        let Some(hosts) = &self.hosts else { return true };
        normalise(head.host(), scratch);
        hosts.find(scratch).is_some()
    }
}
