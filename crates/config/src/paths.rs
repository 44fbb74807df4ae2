//! Paths of files as the main file would write them.
//!
//! A relative path starts at the folder of the file that names it. What one file says may be written again elsewhere (a change
//! by the API, a configuration that is rolled back to), so paths of included files are relative to the folder of the main
//! file as soon as they are read: then they mean the same wherever they are written.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use crate::file::PATH_FORMAT;
use crate::source::{Documents, Span};
use crate::tree::{Kind, Node, Scalar};

/// `$ref`s followed in a row, and branches inside one another.
const DEPTH_MAX: usize = 64;

/// Tells every path in the tree, as the schema marks them, from the folder of the main file.
pub(crate) fn settle(schema: &Value, tree: &mut Node, documents: &Documents) {
    let Some(main) = documents.main() else { return };
    // Mostly there is one folder.
    if documents.iter().all(|document| document.folder == main.folder) {
        return;
    }
    let mut moved = |scalar: &mut Scalar, span: Span, _: &[&str]| {
        if let Some(document) = documents.get(span.file) {
            move_to(scalar, &main.folder, &document.folder);
        }
    };
    walk((schema, schema), tree, &mut Way::default(), &mut moved);
}

/// Returns what a configuration reaches with the rights of the program: files, Unix sockets, variables of the environment. Each by a
/// phrase, for people and to be compared. Files and variables with what they are used for: a key that is used as a key is not to be sent as
/// a page.
pub(crate) fn reach(schema: &Value, tree: &Node) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    walk((schema, schema), &mut tree.clone(), &mut Way::default(), &mut |scalar: &mut Scalar, _, keys: &[&str]| {
        found.insert(format!("the file `{}` in `{}`", scalar.shown(), keys.join("/")));
    });
    other_reach(tree, &mut Vec::new(), &mut found);
    found
}

fn other_reach<'a>(node: &'a Node, keys: &mut Vec<&'a str>, found: &mut BTreeSet<String>) {
    match &node.kind {
        Kind::Map(entries) => {
            for (key, node) in entries.iter() {
                keys.push(&key.text);
                other_reach(node, keys, found);
                keys.pop();
            }
        }
        Kind::List(items) => items.iter().for_each(|node| other_reach(node, keys, found)),
        Kind::Scalar(scalar) => {
            if let Some(written) = &scalar.written {
                found.insert(format!("a variable of the environment by `{written}` in `{}`", keys.join("/")));
            }
            if scalar.text.starts_with("unix:") {
                // A provider may ask at sockets where no request is to arrive.
                let section = keys.first().copied().unwrap_or_default();
                found.insert(format!("the socket `{}` in `{section}`", scalar.shown()));
            }
        }
        Kind::Invalid => {}
    }
}

/// The way into a schema.
#[derive(Default)]
struct Way<'a> {
    depth: usize,
    /// Keys that the schema names. Those that people choose are left out.
    keys: Vec<&'a str>,
}

/// Calls `each` with every path, and the keys on the way to it. All branches of a schema are looked into: what is a path in one
/// of them is nothing else in another.
fn walk<'a>(schema: (&'a Value, &'a Value), node: &mut Node, way: &mut Way<'a>, each: &mut Each<'_>) {
    if way.depth < DEPTH_MAX {
        way.depth += 1;
        walk_into(schema, node, way, each);
        way.depth -= 1;
    }
}

/// What is done with a path: the scalar, where it stands, and the keys on the way to it.
type Each<'e> = dyn FnMut(&mut Scalar, Span, &[&str]) + 'e;

fn walk_into<'a>((root, schema): (&'a Value, &'a Value), node: &mut Node, way: &mut Way<'a>, each: &mut Each<'_>) {
    if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
        if let Some(target) = target.strip_prefix('#').and_then(|pointer| root.pointer(pointer)) {
            walk((root, target), node, way, each);
        }
        return;
    }
    match &mut node.kind {
        Kind::Map(entries) => {
            for (key, node) in Arc::make_mut(entries) {
                let named = schema.get("properties").and_then(Value::as_object);
                if let Some((name, below)) = named.and_then(|all| all.get_key_value(key.text.as_str())) {
                    way.keys.push(name);
                    walk((root, below), node, way, each);
                    way.keys.pop();
                } else if let Some(below) = schema.get("additionalProperties") {
                    walk((root, below), node, way, each);
                }
            }
        }
        Kind::List(items) => {
            if let Some(below) = schema.get("items") {
                Arc::make_mut(items).iter_mut().for_each(|node| walk((root, below), node, way, each));
            }
        }
        Kind::Scalar(scalar) if schema.get("format").and_then(Value::as_str) == Some(PATH_FORMAT) => {
            each(scalar, node.span, &way.keys);
            return;
        }
        Kind::Scalar(_) | Kind::Invalid => {}
    }
    for branches in ["anyOf", "oneOf", "allOf"] {
        for branch in schema.get(branches).and_then(Value::as_array).into_iter().flatten() {
            walk((root, branch), node, way, each);
        }
    }
}

/// Returns a path relative to `main` that was relative to `from`.
fn move_to(scalar: &mut Scalar, main: &Path, from: &Path) {
    if from == main || scalar.text.is_empty() || Path::new(scalar.text.as_str()).is_absolute() {
        return;
    }
    let between = from.strip_prefix(main).unwrap_or(from);
    let under = |text: &str, between: &str| PathBuf::from(between).join(text).to_string_lossy().into_owned();
    let shown = between.to_string_lossy();
    scalar.text = under(&scalar.text, &shown).into();
    if let Some(written) = &mut scalar.written {
        **written = under(written, &shown.replace("${", "$${")).into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_told_from_the_folder_of_the_main_file() {
        let moved = |text: &str, main: &str, from: &str| {
            let mut scalar = Scalar { text: text.into(), plain: false, written: None };
            move_to(&mut scalar, Path::new(main), Path::new(from));
            scalar.text.to_string()
        };
        for (text, main, from, wanted) in [
            ("ca.pem", "/etc/eq", "/etc/eq/conf.d", "conf.d/ca.pem"),
            ("ca.pem", "", "conf.d", "conf.d/ca.pem"),
            ("../ca.pem", "conf", "conf/../more", "../more/../ca.pem"),
            ("ca.pem", "conf", "/srv/x", "/srv/x/ca.pem"),
            ("/abs/ca.pem", "/etc/eq", "/etc/eq/conf.d", "/abs/ca.pem"),
            ("ca.pem", "/etc/eq", "/etc/eq", "ca.pem"),
            ("", "/etc/eq", "/etc/eq/conf.d", ""),
        ] {
            assert_eq!(moved(text, main, from), wanted, "{text} of {from}");
        }
        let mut scalar =
            Scalar { text: "dir/ca.pem".into(), plain: true, written: Some(Box::new("${DIR}/ca.pem".into())) };
        move_to(&mut scalar, Path::new("/etc"), Path::new("/etc/a${b"));
        assert_eq!((scalar.text.as_str(), scalar.shown()), ("a${b/dir/ca.pem", "a$${b/${DIR}/ca.pem"));
    }
}
