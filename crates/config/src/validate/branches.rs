//! Which of several branches of a schema was meant (`anyOf`, `oneOf`).

use serde_json::{Map, Value};

use super::{Found, Validator};
use crate::diagnostic::nearest;
use crate::elsewhere::{self, Place};
use crate::expectation::{Shape, expectation, is_a, shape};
use crate::tree::{Key, Kind, Node, Step};
use crate::wording::{mend_named, mismatch, quoted, single_key};

/// Keys of one map that are compared with those that are missing.
const ENTRIES_COMPARED_MAX: usize = 100;

impl<'a> Validator<'a> {
    /// Checks by one of several branches: the one whose kind of value fits; if several fit, the one with the fewest problems.
    pub(super) fn check_branches(&mut self, whole: &'a Map<String, Value>, branches: &'a [Value], node: &'a Node) {
        let fitting: Vec<_> = branches
            .iter()
            .filter(|branch| self.follow(branch).as_object().is_none_or(|map| is_a(map, self.root, node)))
            .collect();
        if fitting.is_empty() {
            let wanted = expectation(whole, self.root);
            let of = |wanted| leaves(branches).into_iter().find(|branch| shape(branch) == wanted);
            let likely = of(Shape::Text).or_else(|| of(Shape::List));
            let mend = self.mend_type(likely.unwrap_or(whole), node);
            self.report(self.focus(node), mismatch(&self.subject(), &wanted, node), mend);
            return;
        }
        if let [only] = fitting.as_slice() {
            let before = self.found.len();
            self.check(only, node);
            if let Some(last) = self.found[before..].last_mut().filter(|last| last.suggestion.is_none()) {
                last.suggestion = mend_named(branches, self.root, node);
            }
            return;
        }
        if self.tells_single_keys(&fitting, node) {
            return;
        }
        let mut best: Option<(Vec<Found>, Vec<_>)> = None;
        for branch in fitting {
            let (found, marks) = (self.found.len(), self.marks.len());
            self.check(branch, node);
            // A branch that was not meant must leave no trace.
            let tried = (self.found.split_off(found), self.marks.split_off(marks));
            if best.as_ref().is_none_or(|(best, _)| tried.0.len() < best.len()) {
                best = Some(tried);
            }
        }
        let (found, marks) = best.unwrap_or_default();
        self.found.extend(found);
        self.marks.extend(marks);
    }

    /// Reports what is wrong with a map whose only key may be one of several, each of which is a branch: none of them, or more than one.
    /// Returns whether it did.
    fn tells_single_keys(&mut self, branches: &[&'a Value], node: &'a Node) -> bool {
        let keys: Option<Vec<&str>> = branches.iter().map(|branch| single_key(branch, self.root)).collect();
        let Some(keys) = keys.filter(|_| matches!(node.kind, Kind::Map(_))) else { return false };
        let present = node.entries().iter().filter(|(key, _)| keys.contains(&key.text.as_str())).count();
        match (present, node.entries()) {
            (0, [(key, _)]) => {
                let message = format!("unknown key `{}` in {}", key.text, self.place(self.path.len()));
                let mend = nearest(&key.text, keys.iter().copied()).map(|name| format!("did you mean `{name}`?"));
                self.report(key.span, message, mend.or_else(|| Some(format!("write {}", quoted(&keys)))));
            }
            (1, [_]) => return false,
            _ => self.check_one_of_keys(&keys, node),
        }
        true
    }

    /// Checks that exactly one of some keys is there.
    pub(super) fn check_one_of_keys(&mut self, keys: &[&str], node: &'a Node) {
        if !matches!(node.kind, Kind::Map(_)) {
            return;
        }
        let present: Vec<&'a Key> =
            node.entries().iter().map(|(key, _)| key).filter(|key| keys.contains(&key.text.as_str())).collect();
        match present.as_slice() {
            [_] => {}
            [] => {
                // A misspelt key is reported as such; reporting it as missing too would repeat that.
                let is_free = |name: &str| keys.contains(&name);
                let place = Place { is_free: &is_free, is_set: &|_| false, takes: &|_| true, is_filter: &|_| false };
                let is_meant = |key: &str| {
                    nearest(key, keys.iter().copied()).is_some()
                        || elsewhere::key(key, place).is_some_and(|told| told.starts_with("did you mean"))
                };
                let misspelt = node.entries().iter().take(ENTRIES_COMPARED_MAX).any(|(key, _)| is_meant(&key.text));
                if self.path.len() > 2 {
                    self.mark();
                }
                if !misspelt {
                    let message = format!("{} needs one of {}", self.place(self.path.len()), quoted(keys));
                    self.tell(self.focus(node), message, None);
                }
            }
            [first, others @ ..] => {
                for other in others {
                    let place = self.place(self.path.len());
                    let message = format!("`{}` and `{}` exclude each other in {place}", first.text, other.text);
                    self.path.push(Step::Key(other));
                    self.report(other.span, message, Some("keep one of them".to_owned()));
                    self.path.pop();
                }
            }
        }
    }
}

/// Returns the branches of a schema, and in the place of those that only have branches themselves, theirs.
fn leaves(branches: &[Value]) -> Vec<&Map<String, Value>> {
    fn below(branch: &Value) -> &[Value] {
        match branch.get("anyOf").and_then(Value::as_array) {
            Some(inner) if branch.get("type").is_none() => inner,
            _ => std::slice::from_ref(branch),
        }
    }
    branches.iter().flat_map(below).filter_map(Value::as_object).collect()
}
