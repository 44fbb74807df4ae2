//! What providers want, tried beside all else: what fits comes into force, what does not is refused by itself.

use std::fmt::Display;
use std::sync::Arc;

use config::Diagnostics;

use super::Workshop;
use crate::history::Origin;
use crate::keep::Desired;
use crate::load::{self, Candidate, Names, Next};
use crate::providers::{Board, Given, State};

/// What a provider wants that is not in force.
pub type Wanted = (String, Arc<State>);

/// What came of trying what providers want.
pub struct Fitted {
    /// With all that fits. `None`: nothing new does.
    pub candidate: Option<Candidate>,
    /// What makes the generation.
    pub origin: Origin,
    /// What is in it.
    pub taken: Vec<Wanted>,
    /// What does not fit, and why.
    pub refused: Vec<(Wanted, Diagnostics)>,
}

impl Workshop {
    /// Tries what providers want; changes nothing.
    pub fn prepare_provided(&self) -> Fitted {
        self.prepare_wanted(self.board.unsettled())
    }

    /// The same with this alone. While something is tried, that gets other endpoints too, and whole objects wait: it would be compared
    /// with something else than it was begun beside.
    pub fn prepare_wanted(&self, mut wanted: Vec<Wanted>) -> Fitted {
        let mut fitted = Fitted { candidate: None, origin: Origin::Provider, taken: Vec::new(), refused: Vec::new() };
        if self.tried.is_some() {
            wanted.retain(|(name, state)| self.desired.given.has_texts(name, state));
        }
        let Some((loaded, _)) = self.running.as_ref().filter(|_| !wanted.is_empty()) else { return fitted };
        let names = Names::of_a_change();
        let generation = self.tried.as_ref().map_or(self.generation, |tried| tried.plan.generation + 1);
        let next = || Next { generation, ..self.next() };
        self.fit(&mut fitted, wanted, |desired| match desired.given.has_texts_of(&self.desired.given) {
            true => load::prepare_wishes(loaded, desired, next()),
            false => load::prepare_provided(loaded, desired, next(), &names),
        });
        if let (Some(candidate), Some(tried)) = (&mut fitted.candidate, &self.tried) {
            let anew = tried.anew(candidate, self.inspect);
            candidate.tried = Some(anew.map(Box::new).map_err(|why| why.to_string()));
        }
        if fitted.candidate.as_ref().is_some_and(|candidate| Arc::ptr_eq(&candidate.loaded, loaded)) {
            fitted.origin = Origin::ProviderEndpoints;
        }
        fitted
    }

    /// Reads the files anew, with all that providers want, as far as it fits, if that is to come in.
    pub(super) fn read_anew(&self, names: &Names) -> Result<Candidate, Diagnostics> {
        let load = |desired: Desired| load::prepare_with(&self.source, desired, self.next(), names);
        let wanted = if self.takes_news { self.board.unsettled() } else { Vec::new() };
        let mut fitted = Fitted { candidate: None, origin: Origin::Provider, taken: Vec::new(), refused: Vec::new() };
        if !wanted.is_empty() {
            self.fit(&mut fitted, wanted, load);
        }
        let found = match fitted.candidate.take() {
            Some(candidate) => Ok(candidate),
            None => load(self.desired.clone()),
        };
        if let Err(wrong) = &found {
            // The files are to blame for what is wrong without what is new, too.
            fitted.refused.retain(|(_, why)| why != wrong);
        }
        refuse(&self.board, &fitted.refused);
        found
    }

    /// Finds what fits: all, or else one by one in the order in which they are configured.
    fn fit(&self, fitted: &mut Fitted, wanted: Vec<Wanted>, load: impl Fn(Desired) -> Result<Candidate, Diagnostics>) {
        let with = |given: &Given, (name, state): &Wanted| {
            load::without_names(|loader| given.with(loader, name, Arc::clone(state)))
        };
        let mut all = self.desired.given.clone();
        let mut readable = Vec::new();
        for one in wanted {
            match with(&all, &one) {
                Ok(next) => {
                    all = next;
                    readable.push(one);
                }
                Err(why) => fitted.refused.push((one, why)),
            }
        }
        if readable.is_empty() {
            return;
        }
        match load(Desired { given: all, ..self.desired.clone() }) {
            Ok(candidate) => {
                (fitted.candidate, fitted.taken) = (Some(candidate), readable);
                return;
            }
            Err(why) if readable.len() == 1 => {
                fitted.refused.extend(readable.pop().map(|one| (one, why)));
                return;
            }
            Err(_) => {}
        }
        let mut given = self.desired.given.clone();
        for one in readable {
            let tried = with(&given, &one).and_then(|next| {
                let candidate = load(Desired { given: next.clone(), ..self.desired.clone() })?;
                Ok((next, candidate))
            });
            match tried {
                Ok((next, candidate)) => {
                    given = next;
                    fitted.candidate = Some(candidate);
                    fitted.taken.push(one);
                }
                Err(why) => fitted.refused.push((one, why)),
            }
        }
    }
}

/// Tells what is not put into force, and why.
pub(crate) fn refuse(board: &Board, refused: &[(Wanted, impl Display)]) {
    for ((name, state), why) in refused {
        board.refuse(name, state, &why.to_string());
    }
}
