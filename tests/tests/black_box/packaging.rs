//! The unit for systemd: what it asks of the program is what the program takes, and the guide shows the very same.

use std::path::Path;
use std::process::Command;

use super::harness::product::{executable, folder};
use super::harness::{Origin, Product, Setup};

fn read(path: &str) -> String {
    std::fs::read_to_string(equipoise_tests::repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn unit() -> String {
    read("packaging/equipoise.service")
}

/// All values of a key.
fn all<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
    unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
}

/// The arguments of the program in a line of the unit, with another file in the place of its configuration.
fn arguments(line: &str, config: &Path) -> Vec<String> {
    let mut words = line.split_whitespace();
    assert_eq!(words.next(), Some("/usr/bin/equipoise"), "{line}");
    let put = |word: &str| word.replace("/etc/equipoise/equipoise.yaml", config.to_str().expect("a path in UTF-8"));
    let words: Vec<String> = words.map(put).collect();
    assert!(words.iter().any(|word| Path::new(word) == config), "{line}");
    words
}

#[test]
fn the_guide_shows_the_unit_that_is_packaged() {
    let guide = read("docs/guides/put-it-before-a-site.md");
    let (_, rest) = guide.split_once("```ini\n").expect("the unit in the guide");
    let (shown, _) = rest.split_once("```").expect("its end");
    assert_eq!(shown, unit());
    assert_eq!(guide.matches("[Service]").count(), 1, "there is one unit");
    for named in all(&unit(), "User") {
        assert!(guide.contains(&format!("/usr/sbin/nologin {named}\n")), "the guide makes the user {named}");
    }
}

#[test]
fn the_program_takes_what_the_unit_asks_of_it() {
    let unit = unit();
    let origin = Origin::saying("served");
    let folder = folder();
    let config = folder.path().join("site.yaml");
    std::fs::write(&config, Setup::to(&origin).text().replace("DIR", folder.path().to_str().unwrap())).unwrap();
    let [start] = all(&unit, "ExecStart")[..] else { panic!("one command starts it") };
    assert_eq!(all(&unit, "ExecReload"), ["/bin/kill -HUP $MAINPID"]);
    let start = arguments(start, &config);
    let product = Product::spawn(folder, &start.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(product.get("/").text(), "served");
    let said = product.reload_unchanged();
    assert!(said.contains("configuration is live"), "{said}");
}

#[test]
fn what_examples_write_and_keep_is_where_the_unit_lets_them() {
    let unit = unit();
    for (key, folder) in
        [("LogsDirectory", "/var/log/"), ("StateDirectory", "/var/lib/"), ("RuntimeDirectory", "/run/")]
    {
        let [name] = all(&unit, key)[..] else { panic!("{key}") };
        assert_eq!(name, "equipoise");
        let guide = read("docs/guides/put-it-before-a-site.md");
        assert!(guide.contains(&format!("{folder}{name}")), "{folder}{name}");
    }
    assert_eq!(all(&unit, "ProtectSystem"), ["strict"]);
    // systemd names the folder of logs in this variable.
    let example = read("examples/access-log.yaml");
    assert!(example.contains("\"${LOGS_DIRECTORY:-"), "{example}");
    let folder = folder();
    let ended = Command::new(executable())
        .args(["check", "examples/access-log.yaml"])
        .env("LOGS_DIRECTORY", folder.path().join("gone"))
        .current_dir(equipoise_tests::repository())
        .output()
        .expect("the product runs");
    assert_eq!(ended.status.code(), Some(1), "the log goes where the variable says");
}

#[test]
fn systemd_has_nothing_against_the_unit() {
    // Where systemd is not installed, the other tests have looked at what matters to the program.
    let Ok(version) = Command::new("systemd-analyze").arg("--version").output() else { return };
    assert!(version.status.success());
    let folder = folder();
    let path = folder.path().join("equipoise.service");
    let text = unit().replace("/usr/bin/equipoise", executable().to_str().expect("a path in UTF-8"));
    std::fs::write(&path, text).expect("our folder");
    let ended = Command::new("systemd-analyze").arg("verify").arg("--man=no").arg(&path).output().expect("it runs");
    let said = String::from_utf8_lossy(&ended.stderr);
    // What it says of other units of the machine is not ours.
    let ours: Vec<&str> = said.lines().filter(|line| line.contains("equipoise.service")).collect();
    assert!(ours.is_empty(), "{said}");
}
