//! What diagnostics say of documents: which are to blame, and which objects are missing.

use std::collections::{BTreeMap, HashMap, HashSet};

use config::{Bond, Diagnostic, Diagnostics};

/// Objects that are referred to and missing, by kind and name, with where they are referred to.
pub(super) type Needed<'a> = BTreeMap<(&'a str, &'a str), String>;

/// Which documents are to blame for what is wrong, and why.
pub(super) type Blame = HashMap<String, String>;

/// Returns the documents to blame. `news` are the documents that are not in force, and whether another version of the document is. If one
/// of them defines a name that a document in force has, it is to blame, whichever of both the diagnostic names.
pub(super) fn blame(wrong: &Diagnostics, news: &HashMap<String, bool>) -> Blame {
    let is_in_force = |document: &String| news.get(document).copied().unwrap_or(true);
    let mut blame = Blame::new();
    for one in wrong.list.iter().filter(|one| !one.is_warning) {
        let (place, message) = (format!("{}:{}", one.line, one.column), &one.message);
        match one.bond.as_deref() {
            Some(Bond::Taken(first))
                if news.contains_key(first)
                    && (!news.contains_key(&one.file) || (!is_in_force(first) && is_in_force(&one.file))) =>
            {
                blame.entry(first.clone()).or_insert_with(|| format!(" {}:{place}: {message}", one.file));
            }
            _ => {
                let mend = one.suggestion.as_ref().map(|mend| format!(" ({mend})")).unwrap_or_default();
                blame.entry(one.file.clone()).or_insert_with(|| format!("{place}: {message}{mend}"));
            }
        }
    }
    blame
}

/// Returns the objects that are missing. A document with other faults does not come into force, and needs nothing.
pub(super) fn needed(wrong: &Diagnostics) -> Needed<'_> {
    let mut needed = Needed::new();
    let is_other = |one: &&Diagnostic| !one.is_warning && !matches!(one.bond.as_deref(), Some(Bond::Lacks(..)));
    let faulty: HashSet<&str> = wrong.list.iter().filter(is_other).map(|one| &*one.file).collect();
    for one in wrong.list.iter().filter(|one| !faulty.contains(&*one.file)) {
        if let Some(Bond::Lacks(kind, name)) = one.bond.as_deref() {
            let place = || format!("{}:{}:{}", one.file, one.line, one.column);
            needed.entry((kind, name)).or_insert_with(place);
        }
    }
    needed
}
