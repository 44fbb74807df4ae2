//! Settings of filters that are expressions.

use model::Issue;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Amount, Condition, Scope, Value};
use crate::filter::Compiling;

/// `{ expression: … }` that is true or false.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct ConditionText {
    /// An expression that is true or false, such as `request.path.startsWith("/api/")`.
    pub expression: String,
}

impl ConditionText {
    /// Compiles it for this moment.
    ///
    /// # Errors
    /// What is wrong with it, at `expression`.
    pub fn compile(&self, scope: Scope, compiling: &mut Compiling<'_>) -> Result<Condition, Issue> {
        compiling.condition(&self.expression, scope).map_err(|issue| issue.below("expression"))
    }
}

/// `{ expression: … }` that gives a text, such as a key.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct ValueText {
    /// An expression that gives a value, such as `request.headers["x-api-key"]`.
    pub expression: String,
}

impl ValueText {
    /// Compiles it for this moment.
    ///
    /// # Errors
    /// What is wrong with it, at `expression`.
    pub fn compile(&self, scope: Scope, compiling: &mut Compiling<'_>) -> Result<Value, Issue> {
        compiling.value(&self.expression, scope).map_err(|issue| issue.below("expression"))
    }
}

/// `{ expression: … }` that gives a whole number, such as a cost.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct AmountText {
    /// An expression that gives a whole number, such as `int(request.headers["x-units"])`.
    pub expression: String,
}

impl AmountText {
    /// Compiles it for this moment.
    ///
    /// # Errors
    /// What is wrong with it, at `expression`.
    pub fn compile(&self, scope: Scope, compiling: &mut Compiling<'_>) -> Result<Amount, Issue> {
        compiling.amount(&self.expression, scope).map_err(|issue| issue.below("expression"))
    }
}
