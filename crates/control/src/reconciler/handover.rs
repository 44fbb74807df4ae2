//! What a process hands its successor of its configuration in an upgrade, and how that goes on from it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Reconciler;
use crate::given::{Given, State};
use crate::loader::without_names;
use crate::overrides::Desired;

/// Longest wait for the history to be written, before another process reads it.
const HISTORY_PATIENCE: Duration = Duration::from_secs(2);
/// Largest number of a generation that another process is believed to have had: there are always some left.
const GENERATION_MAX: u64 = u64::MAX >> 1;

/// What a process hands its successor of its configuration.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfigurationHandover {
    /// Its last generation.
    pub generation: u64,
    /// Configurations that were refused.
    pub refused: u64,
    /// What is desired beside the files.
    pub desired: Option<Desired>,
    /// What of each provider is in force: a [`State`], which another version may write otherwise.
    pub given: BTreeMap<String, Value>,
}

impl Reconciler {
    /// Goes on from where the predecessor ended: with what was desired beside the files, and with the generation after its last. To be
    /// called before anything runs.
    pub fn inherit(&mut self, handed: &ConfigurationHandover) {
        self.generation_before = handed.generation.min(GENERATION_MAX);
        self.view.forget_after(self.generation_before);
        self.view.add_refused(handed.refused);
        if let Some(desired) = &handed.desired {
            self.desired = desired.clone();
            self.persistence.follow(desired);
        }
        for (name, state) in &handed.given {
            match self.with_given(name, state) {
                Ok(given) => self.desired.given = given,
                Err(why) => {
                    let pairs: telemetry::log::Pairs<'_> = &[("provider", name), ("reason", &why)];
                    telemetry::log::warn("provider state from the previous process cannot be read", pairs);
                }
            }
        }
    }

    /// Returns what is in force of providers, with what the predecessor had of one of them.
    fn with_given(&self, name: &str, state: &Value) -> Result<Given, String> {
        let state: State = serde_json::from_value(state.clone()).map_err(|error| error.to_string())?;
        let given = without_names(|loader| self.desired.given.with(loader, name, Arc::new(state)));
        given.map_err(|why| why.to_string())
    }

    /// Returns what the successor of this process has to know. What it reads from files is written by then.
    pub fn hand_over(&self) -> ConfigurationHandover {
        self.persistence.flush_history(HISTORY_PATIENCE);
        let generation = self.generation();
        // A provider may be away when the successor asks it, which must lack nothing of what this process has.
        let written =
            |(name, state): (&str, &Arc<State>)| Some((name.to_owned(), serde_json::to_value(&**state).ok()?));
        let given = self.desired.given.states().filter_map(written).collect();
        ConfigurationHandover { generation, refused: self.view.refused(), desired: Some(self.desired.clone()), given }
    }
}
