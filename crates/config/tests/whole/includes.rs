//! Several files.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::LOADER;

/// Writes files below a folder of their own.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

/// What is reported about `main.yaml`, with the folder shown as `F`.
fn told(folder: &Path) -> Vec<String> {
    let all = LOADER.load_file(&folder.join("main.yaml")).unwrap_err();
    let place = folder.display().to_string();
    let shown = all.list.iter().map(|one| {
        let help = one.suggestion.as_ref().map_or(String::new(), |help| format!(" ({help})"));
        format!("{}:{}: {}{help}", one.file, one.line, one.message).replace(&place, "F")
    });
    shown.collect()
}

#[test]
fn included_objects_come_behind_in_the_order_of_names() {
    let folder = folder(&[
        (
            "main.yaml",
            "version: 1\ninclude: [sites, 'more/*-x.yaml', one.json]\nroutes: [{ name: own, respond: {} }]\n",
        ),
        ("sites/20-b.yaml", "routes: [{ name: b, cluster: b }]\nclusters: { b: { endpoints: ['127.0.0.1:2'] } }\n"),
        ("sites/10-a.yml", "version: 1\nroutes: [{ name: a, cluster: b }]\n"),
        ("sites/README.md", "not read"),
        ("sites/.hidden.yaml", "nonsense: ["),
        ("sites/deeper/no.yaml", "nonsense: ["),
        ("more/1-x.yaml", "include: ../nested.yaml\nroutes: [{ name: x, cluster: b }]\n"),
        ("more/2-y.yaml", "nonsense: ["),
        ("nested.yaml", "listeners: { web: { bind: '127.0.0.1:0' } }\nroutes: [{ name: nested, cluster: b }]\n"),
        ("one.json", r#"{ "access_logs": [{ "path": "a.log" }] }"#),
    ]);
    let loaded = LOADER.load_file(&folder.path().join("main.yaml")).unwrap();
    let names: Vec<&str> = loaded.snapshot.routes.iter().map(|route| route.name.as_str()).collect();
    assert_eq!(names, ["own", "a", "b", "x", "nested"]);
    assert_eq!(loaded.snapshot.listeners.len(), 1);
    let watched: Vec<PathBuf> = loaded.documents.watched();
    for part in ["main.yaml", "sites/10-a.yml", "sites/20-b.yaml", "more/1-x.yaml", "one.json", "sites", "more"] {
        assert!(watched.contains(&folder.path().join(part)), "{part} in {watched:?}");
    }
    assert_eq!(loaded.documents.iter().count(), 6);
}

#[test]
fn an_empty_folder_is_fine_and_a_missing_file_is_not() {
    let folder = folder(&[(
        "main.yaml",
        "version: 1\ninclude:\n  - sites\n  - '*.none'\n  - gone.yaml\n  - a*/b.yaml\n  - ''\n  - [x]\n",
    )]);
    fs::create_dir(folder.path().join("sites")).unwrap();
    assert_eq!(
        told(folder.path()),
        [
            "F/main.yaml:5: cannot include `F/gone.yaml`: there is no such file",
            "F/main.yaml:6: cannot include `a*/b.yaml`: `*` is allowed in file names, not in folder names",
            "F/main.yaml:7: an item of `include` must be the path of a file or folder",
            "F/main.yaml:8: an item of `include` must be the path of a file or folder",
        ]
    );
}

#[test]
fn what_two_files_define_names_both() {
    let folder = folder(&[
        ("main.yaml", "version: 1\ninclude: [a.yaml, b.yaml]\nadmin: { bind: '127.0.0.1:9900' }\n"),
        ("a.yaml", "clusters:\n  x: { endpoints: ['127.0.0.1:1'] }\nadmin: { bind: '127.0.0.1:9901' }\nversion: 2\n"),
        ("b.yaml", "clusters:\n  y: { endpoints: ['127.0.0.1:2'] }\n  x: { endpoints: ['127.0.0.1:2'] }\n"),
    ]);
    assert_eq!(
        told(folder.path()),
        [
            "F/a.yaml:3: `admin` is defined twice, first in F/main.yaml:3 (keep one of them)",
            "F/a.yaml:4: `version` is defined twice, first in F/main.yaml:1 (keep one of them)",
            "F/b.yaml:3: cluster `x` is defined twice, first in F/a.yaml:2 (keep one of them)",
        ]
    );
}

#[test]
fn mistakes_are_told_in_the_file_that_has_them() {
    let folder = folder(&[
        ("main.yaml", "version: 1\ninclude: sites\nroutes: [{ cluster: nowhere }]\n"),
        (
            "sites/a.yaml",
            "routes:\n  - clustr: x\n  - cluster: gone\nclusters: { gome: { endpoints: ['127.0.0.1:1'] } }\n",
        ),
        ("sites/b.yaml", "- a list\n"),
        ("sites/c.yaml", "routes: {}\n"),
        ("sites/d.yaml", "routes: [\n"),
    ]);
    let all = told(folder.path());
    assert!(all[0].starts_with("F/sites/a.yaml:2: unknown key `clustr` in route 2"), "{all:?}");
    assert_eq!(all[1], "F/sites/b.yaml:1: the file must be a map (write `listeners:`, `routes:` or `clusters:`)");
    assert_eq!(all[2], "F/sites/c.yaml:1: `routes` must be a list");
    assert!(all[3].starts_with("F/sites/d.yaml:1: not YAML: "), "{all:?}");
    // What was not read may define what seems to be missing.
    assert_eq!(all.len(), 4);
    fs::remove_file(folder.path().join("sites/b.yaml")).unwrap();
    fs::remove_file(folder.path().join("sites/c.yaml")).unwrap();
    fs::remove_file(folder.path().join("sites/d.yaml")).unwrap();
    let all = told(folder.path());
    assert_eq!(all[0], "F/main.yaml:3: there is no cluster `nowhere` (there is `gome`)");
    assert_eq!(all[2], "F/sites/a.yaml:3: there is no cluster `gone` (did you mean `gome`?)");
}

#[test]
fn circles_and_repeats_are_told() {
    let folder = folder(&[
        ("main.yaml", "version: 1\ninclude: [a.yaml, ./a.yaml, '*.yaml']\n"),
        ("a.yaml", "include: b.yaml\n"),
        ("b.yaml", "include: main.yaml\n"),
    ]);
    let all = told(folder.path());
    assert!(all.contains(&"F/b.yaml:1: `F/main.yaml` includes itself (break the circle)".to_owned()), "{all:?}");
    assert!(
        all.contains(&"F/main.yaml:2: `F/./a.yaml` is included twice, first by F/main.yaml:2".to_owned()),
        "{all:?}"
    );
    assert!(all.contains(&"F/main.yaml:2: `F/main.yaml` includes itself (break the circle)".to_owned()), "{all:?}");
}

#[test]
fn a_long_chain_of_includes_ends() {
    let folder = tempfile::tempdir().unwrap();
    for n in 0..40 {
        let text = format!("include: f{}.yaml\n", n + 1);
        fs::write(folder.path().join(format!("f{n}.yaml")), text).unwrap();
    }
    fs::write(folder.path().join("main.yaml"), "version: 1\ninclude: f0.yaml\n").unwrap();
    assert_eq!(told(folder.path()), ["F/f15.yaml:1: files include one another deeper than 16 levels"]);
}

#[test]
fn relative_paths_start_at_the_file_that_holds_them() {
    let folder = folder(&[
        ("main.yaml", "version: 1\ninclude: sites\naccess_logs: [{ path: here.log }]\n"),
        (
            "sites/a.yaml",
            "access_logs: [{ path: there.log }]\nlisteners:\n  s: { bind: '127.0.0.1:0', tls: { certificates: [{ chain: s.pem, key: s.key }] } }\n",
        ),
    ]);
    crate::support::write_certificates(&folder.path().join("sites"), &["s"]);
    let loaded = LOADER.load_file(&folder.path().join("main.yaml")).unwrap();
    let logs: Vec<String> = loaded.snapshot.access_logs.iter().map(|log| format!("{:?}", log.target)).collect();
    let place = folder.path().display();
    assert_eq!(logs, [format!("File(\"{place}/here.log\")"), format!("File(\"{place}/sites/there.log\")")]);
    assert_eq!(loaded.referenced_files()[0], folder.path().join("sites/s.pem"));
}

#[test]
fn a_file_that_cannot_be_read_is_told_without_a_line() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(told(folder.path()), ["F/main.yaml:0: cannot be read: there is no such file"]);
    fs::write(folder.path().join("main.yaml"), b"version: 1\na: \xff\n").unwrap();
    assert_eq!(
        told(folder.path()),
        ["F/main.yaml:0: cannot be read: it is not UTF-8: the first bad byte is in line 2"]
    );
    fs::remove_file(folder.path().join("main.yaml")).unwrap();
    fs::create_dir(folder.path().join("main.yaml")).unwrap();
    assert_eq!(told(folder.path()), ["F/main.yaml:0: cannot be read: it is not a file"]);
    let shown = LOADER.load_file(&folder.path().join("gone.yaml")).unwrap_err().to_string();
    assert!(shown.ends_with("gone.yaml: cannot be read: there is no such file\n\n1 problem"), "{shown}");
}
