//! The expressions of access logs.

use std::sync::Arc;

use model::Issue;
use model::snapshot::AccessLog;

use crate::expression::{Condition, Names, Scope, Value};

/// The condition of each log.
type Conditions = Arc<[Option<Condition>]>;
/// The values of each log.
type Values = Arc<[Box<[Value]>]>;

/// Compiles the condition and the values of each log; nothing where no log has any.
pub(super) fn compile(logs: &[AccessLog], names: Names<'_>, issues: &mut Vec<Issue>) -> (Conditions, Values) {
    (conditions(logs, names, issues), values(logs, names, issues))
}

fn conditions(logs: &[AccessLog], names: Names<'_>, issues: &mut Vec<Issue>) -> Conditions {
    if logs.iter().all(|log| log.when.is_none()) {
        return Arc::default();
    }
    let mut condition = |(place, log): (usize, &AccessLog)| {
        let compiled = Condition::compile_with(log.when.as_deref()?, Scope::Log, names);
        let told = |issue: Issue| issues.push(issue.below(&format!("access_logs/{place}/when/expression")));
        compiled.map_err(told).ok()
    };
    logs.iter().enumerate().map(&mut condition).collect()
}

fn values(logs: &[AccessLog], names: Names<'_>, issues: &mut Vec<Issue>) -> Values {
    if logs.iter().all(|log| log.values.is_empty()) {
        return Arc::default();
    }
    let mut of_log = |(place, log): (usize, &AccessLog)| {
        let mut all = Vec::with_capacity(log.values.len());
        for (name, text) in &log.values {
            match Value::compile_with(text, Scope::Log, names) {
                Ok(value) => all.push(value),
                Err(issue) => issues.push(issue.below(&format!("access_logs/{place}/values/{name}"))),
            }
        }
        all.into()
    };
    logs.iter().enumerate().map(&mut of_log).collect()
}
