//! What a provider wants.

use std::collections::BTreeMap;
use std::path::PathBuf;

use config::file::EndpointSettings;
use serde::{Deserialize, Serialize};

use crate::loader::without_names;

/// Everything that a provider wants, whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Whole objects: texts in YAML or JSON with `listeners`, `routes`, `clusters` and `endpoints`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub texts: Vec<Text>,
    /// Endpoints by key: addresses with a port, no names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub endpoints: BTreeMap<String, Vec<EndpointSettings>>,
    /// Of lists whose endpoints each have a key of their own in a store: the names of these keys, in the order of the endpoints. So a
    /// key that is wrong by the time of another start is as it was while it was right.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<String, Vec<String>>,
    /// Each text and each list of endpoints stands for itself: one that is wrong is left out, or is as it was while it was right. Otherwise
    /// they come into force together or not at all.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_parts: bool,
}

/// A text of a provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Text {
    /// Where it is from, as diagnostics show it.
    pub name: String,
    /// Where relative paths in it start; by default at the folder of the main file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// YAML or JSON.
    pub text: String,
}

impl State {
    /// Makes a state of texts. If they hold nothing but endpoints without a fault, it is one of endpoints, which are applied faster.
    pub(crate) fn of_texts(texts: Vec<Text>, has_environment: bool) -> Self {
        let mut endpoints = BTreeMap::new();
        for text in &texts {
            let found = without_names(|loader| loader.endpoints_alone(&text.text, has_environment));
            let Some(found) = found else { return Self { texts, ..Self::default() } };
            for (key, list) in found {
                if endpoints.insert(key, list).is_some() {
                    return Self { texts, ..Self::default() };
                }
            }
        }
        Self { endpoints, ..Self::default() }
    }
}
