//! Tries the states that providers want: a part that fits is accepted, any other is refused by itself.

use std::fmt::Display;
use std::sync::Arc;

use config::Diagnostics;

use super::Preparation;
use crate::given::{Attempt, Beside, Given, State, settle};
use crate::history::Origin;
use crate::load::{self, Candidate, Next};
use crate::loader::without_names;
use crate::names::Names;
use crate::overrides::Desired;
use crate::providers::Inbox;

/// A state that a provider wants and that is not accepted yet.
pub type Wanted = (String, Arc<State>);

/// The outcome of trying what providers want.
pub struct ProviderOutcome {
    /// With all that fits. `None`: nothing new does.
    pub candidate: Option<Candidate>,
    /// What makes the generation.
    pub origin: Origin,
    /// What is in it.
    pub taken: Vec<Wanted>,
    /// What does not fit, and why.
    pub refused: Vec<(Wanted, Diagnostics)>,
}

impl Preparation {
    /// Tries what providers want; changes nothing.
    pub fn prepare_provided(&self) -> ProviderOutcome {
        // While something is tried, whole objects wait.
        let is_again = self.tried.is_none() && self.inbox.take_again();
        let wanted = self.inbox.take_unsettled(self.tried.is_some());
        match is_again {
            true => self.prepare_with(with_lacking(wanted, &self.desired.given), With::All),
            false => self.prepare_wanted(wanted),
        }
    }

    /// The same with this alone. While something is tried, that gets other endpoints too, and whole objects wait: it would be compared
    /// with something else than it was begun beside.
    pub fn prepare_wanted(&self, mut wanted: Vec<Wanted>) -> ProviderOutcome {
        let given = &self.desired.given;
        if self.tried.is_some() {
            wanted.retain(|(name, state)| given.has_texts(name, state));
        }
        match wanted.iter().all(|(name, state)| given.has_texts(name, state)) {
            true => self.prepare_with(wanted, With::Endpoints),
            false => self.prepare_with(with_lacking(wanted, given), With::All),
        }
    }

    fn prepare_with(&self, wanted: Vec<Wanted>, with: With) -> ProviderOutcome {
        let mut outcome =
            ProviderOutcome { candidate: None, origin: Origin::Provider, taken: Vec::new(), refused: Vec::new() };
        let Some((loaded, _)) = self.running.as_ref().filter(|_| !wanted.is_empty()) else { return outcome };
        let names = Names::of_a_change();
        let generation = self.tried.as_ref().map_or(self.generation, |tried| tried.plan.generation + 1);
        let next = || Next { generation, ..self.next() };
        self.fit(&mut outcome, wanted, with, |desired| match desired.given.has_texts_of(&self.desired.given) {
            true => load::prepare_wishes(loaded, desired, next()),
            false => load::prepare_provided(loaded, desired, next(), &names),
        });
        // What lacks something may lack it still.
        outcome.candidate.take_if(|candidate| !candidate.desired.given.has_news_beside(&self.desired.given));
        if let (Some(candidate), Some(tried)) = (&mut outcome.candidate, &self.tried) {
            let anew = tried.anew(candidate, self.inspect);
            candidate.tried = Some(anew.map(Box::new).map_err(|why| why.to_string()));
        }
        if outcome.candidate.as_ref().is_some_and(|candidate| Arc::ptr_eq(&candidate.loaded, loaded)) {
            outcome.origin = Origin::ProviderEndpoints;
        }
        outcome
    }

    /// Reads the files anew, with all that providers want, as far as it fits, if that is to come in.
    pub(super) fn read_anew(&self, names: &Names) -> Result<Candidate, Diagnostics> {
        let load = |desired: Desired| load::prepare_with(&self.source, desired, self.next(), names);
        let wanted = match self.takes_news {
            true => with_lacking(self.inbox.unsettled(), &self.desired.given),
            false => Vec::new(),
        };
        let mut outcome =
            ProviderOutcome { candidate: None, origin: Origin::Provider, taken: Vec::new(), refused: Vec::new() };
        if !wanted.is_empty() {
            self.fit(&mut outcome, wanted, With::Files, load);
        }
        let found = match outcome.candidate.take() {
            Some(candidate) => Ok(candidate),
            None => load(self.desired.clone()),
        };
        if let Err(wrong) = &found {
            // The files are to blame for what is wrong without what is new, too.
            outcome.refused.retain(|(_, why)| why != wrong);
        }
        refuse(&self.inbox, &outcome.refused);
        found
    }

    /// Finds what fits: all, or else one by one in the order in which they are configured; of those whose parts stand for
    /// themselves, all but parts that are wrong.
    fn fit(&self, outcome: &mut ProviderOutcome, wanted: Vec<Wanted>, with: With, load: impl Load) {
        let mut all = self.desired.given.clone();
        let mut readable = Vec::new();
        for one in wanted {
            match with.add(&all, &one) {
                Ok(next) => {
                    all = next;
                    readable.push(one);
                }
                Err(why) => outcome.refused.push((one, why)),
            }
        }
        if readable.is_empty() {
            return;
        }
        match self.load_parts(all, &readable, with, &load) {
            Ok(candidate) => {
                (outcome.candidate, outcome.taken) = (Some(candidate), readable);
                return;
            }
            Err(why) if readable.len() == 1 => {
                outcome.refused.extend(readable.pop().map(|one| (one, why)));
                return;
            }
            Err(_) => {}
        }
        let mut given = self.desired.given.clone();
        // What one lacks may come with one behind it.
        let mut has_more = true;
        while std::mem::take(&mut has_more) {
            let mut refused = Vec::new();
            for one in std::mem::take(&mut readable) {
                let tried = with.add(&given, &one);
                match tried.and_then(|next| self.load_parts(next, std::slice::from_ref(&one), with, &load)) {
                    Ok(candidate) => {
                        given = candidate.desired.given.clone();
                        outcome.candidate = Some(candidate);
                        outcome.taken.push(one);
                        has_more |= !refused.is_empty();
                    }
                    Err(why) => refused.push((one, why)),
                }
            }
            match has_more {
                true => readable.extend(refused.into_iter().map(|(one, _)| one)),
                false => outcome.refused.extend(refused),
            }
        }
    }

    /// Tries all of this; settles on what is right of it if that is wrong.
    fn load_parts(&self, given: Given, of: &[Wanted], with: With, load: &impl Load) -> Result<Candidate, Diagnostics> {
        let of: Vec<&str> = of.iter().map(|(name, _)| name.as_str()).collect();
        let beside = match with {
            // At a start there is no active state that files could displace.
            With::Files if self.running.is_some() => Beside::NewFiles,
            With::All | With::Endpoints if of.len() > 1 => Beside::Others,
            _ => Beside::Nothing,
        };
        let attempt = Attempt { of: &of, before: &self.desired.given, beside };
        settle(given, attempt, |given| load(Desired { given: given.clone(), ..self.desired.clone() }))
    }
}

/// How what is desired becomes a candidate.
trait Load: Fn(Desired) -> Result<Candidate, Diagnostics> {}

impl<F: Fn(Desired) -> Result<Candidate, Diagnostics>> Load for F {}

/// What of a state is new.
#[derive(Clone, Copy, PartialEq)]
enum With {
    All,
    /// As above, with files that are read again.
    Files,
    /// Its texts are those that were wanted before: what did not fit then is not tried again.
    Endpoints,
}

impl With {
    fn add(self, given: &Given, (name, state): &Wanted) -> Result<Given, Diagnostics> {
        without_names(|loader| match self {
            Self::All | Self::Files => given.with(loader, name, Arc::clone(state)),
            Self::Endpoints => given.with_endpoints(loader, name, Arc::clone(state)),
        })
    }
}

/// With what is wanted, those of which parts did not fit before: what was in their way may be gone.
fn with_lacking(mut wanted: Vec<Wanted>, given: &Given) -> Vec<Wanted> {
    for (name, state) in given.lacking() {
        if !wanted.iter().any(|(known, _)| known == name) {
            wanted.push((name.to_owned(), Arc::clone(state)));
        }
    }
    wanted
}

/// Logs what is not accepted, and why.
pub(crate) fn refuse(inbox: &Inbox, refused: &[(Wanted, impl Display)]) {
    for ((name, state), why) in refused {
        inbox.refuse(name, state, &why.to_string());
    }
}
