//! The rules of the house, held by reading the sources. Every exception stands in a list with its reason.
//!
//! A failure names file, line and rule. Start reading at [`layers`], [`shape`], [`ratchets`] or [`words`]; `files` finds the
//! texts and `code` tells code from comments and literals.

mod code;
mod files;
mod graph;
mod imports;
mod layers;
mod map;
mod papers;
mod ratchets;
mod shape;
mod words;

/// Fails with all findings at once.
fn assert_none(rule: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{rule}:\n  {}", findings.join("\n  "));
}
