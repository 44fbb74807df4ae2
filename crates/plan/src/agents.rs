//! Clients of a listener whose connections are not kept, by what they call themselves.

use std::sync::LazyLock;

use model::{FieldName, Issue, RequestHead};
use regex::bytes::Regex;

use crate::route::conditions::keep;
use crate::route::expression;

static USER_AGENT: LazyLock<FieldName> =
    LazyLock::new(|| FieldName::new("user-agent").unwrap_or_else(|_| unreachable!("a constant token")));

/// See the module.
pub struct AgentList(Box<[Regex]>);

impl AgentList {
    /// Compiles the expressions of a listener, if it has any.
    ///
    /// # Errors
    /// Every expression that is wrong, with its place in the list.
    pub(crate) fn compile(patterns: &[String]) -> Result<Option<Self>, Vec<Issue>> {
        let mut issues = Vec::new();
        let one = |(place, pattern): (usize, &String)| {
            keep(expression::anywhere(pattern).map_err(|issue| issue.below(&place.to_string())), &mut issues)
        };
        let agents: Box<[Regex]> = patterns.iter().enumerate().filter_map(one).collect();
        if issues.is_empty() { Ok((!agents.is_empty()).then_some(Self(agents))) } else { Err(issues) }
    }

    /// Returns whether the client that has sent this request is among them.
    pub fn holds(&self, head: &RequestHead) -> bool {
        let mut agents = head.fields.all(&USER_AGENT);
        agents.any(|agent| self.0.iter().any(|pattern| pattern.is_match(agent)))
    }
}
