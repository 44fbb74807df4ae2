//! The history of generations beyond the end of a process: a start, an upgrade, a kill, and a file that is no history.

use std::path::Path;

use serde_json::{Value, json};

use super::admin_api::{ANY, JSON, answer_if_any, done, folder_with_state, generation, with_state};
use super::harness::{Origin, Product, Setup, eventually};

/// Ends it in good order, and starts another in its folder.
fn again(mut product: Product, text: &str) -> Product {
    product.signal(libc::SIGTERM);
    product.wait_ended();
    let folder = product.take_folder();
    drop(product);
    Product::start_in(folder, text, 2)
}

fn history(product: &Product) -> Vec<Value> {
    product.api("/api/generations")["generations"].as_array().expect("a list").clone()
}

/// Number and origin, newest first.
fn told(history: &[Value]) -> Vec<(u64, &str)> {
    let one = |one: &'_ Value| one["generation"].as_u64().expect("a number");
    history.iter().map(|entry| (one(entry), entry["origin"].as_str().expect("a word"))).collect()
}

/// The newest generation that is kept. `None`: nothing is; otherwise the file is whole.
fn newest(place: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(place.join("state/history.json")).ok()?;
    let whole: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(whole["format"], 1);
    whole["generations"].as_array().expect("a list").last()?["generation"].as_u64()
}

#[test]
fn a_start_keeps_the_history_and_what_was_before_it_can_be_gone_back_to() {
    let (one, two) = (Origin::saying("one"), Origin::saying("two"));
    let text = with_state(&Setup::to(&one));
    let product = Product::start_in(folder_with_state(), &text, 2);
    let cluster = json!({ "endpoints": [two.address().to_string()] }).to_string();
    done(&product, "PUT /api/config/clusters/site", &[JSON, ANY], &cluster);
    let drain = format!("PUT /api/clusters/site/endpoints/{}/state", two.address());
    done(&product, &drain, &[JSON], "{ \"state\": \"drain\" }");
    let before = history(&product);
    let product = again(product, &text);
    let after = history(&product);
    assert_eq!(told(&after), [(4, "start"), (3, "endpoint"), (2, "api"), (1, "start")]);
    assert_eq!(generation(&product), 4);
    for (old, new) in before.iter().zip(&after[1..]) {
        for field in ["generation", "origin", "author", "differences", "can_be_gone_back_to"] {
            assert_eq!(old[field], new[field], "{field}");
        }
        let apart = old["at_unix_s"].as_f64().expect("a time") - new["at_unix_s"].as_f64().expect("a time");
        assert!(apart.abs() <= 0.002, "{old} {new}");
    }
    assert_eq!((&after[2]["author"], &after[2]["can_be_gone_back_to"]), (&json!("local"), &json!(true)));
    done(&product, &drain, &[JSON], "{ \"state\": \"ready\" }");
    assert_eq!(product.get("/").text(), "two");
    let back = done(&product, "POST /api/generations/1/rollback", &[], "");
    assert_eq!((back["generation"].as_u64(), product.get("/").text().as_str()), (Some(6), "one"));
    assert_eq!(product.api("/api/changes")["objects"], json!([]), "as the file says");
    let forth = done(&product, "POST /api/generations/2/rollback", &[], "");
    assert_eq!((forth["generation"].as_u64(), product.get("/").text().as_str()), (Some(7), "two"));
    // Over a second start too, and starts alone push nothing out.
    let product = again(again(product, &text), &text);
    let last = history(&product);
    assert_eq!(told(&last)[..2], [(9, "start"), (7, "rollback")]);
    assert_eq!(told(&last).last(), Some(&(1, "start")));
}

#[test]
fn what_the_file_said_before_a_start_can_be_gone_back_to() {
    let (one, two) = (Origin::saying("one"), Origin::saying("two"));
    let product = Product::start_in(folder_with_state(), &with_state(&Setup::to(&one)), 2);
    let product = again(product, &with_state(&Setup::to(&two)));
    assert_eq!(product.get("/").text(), "two");
    assert_eq!(told(&history(&product)), [(2, "start"), (1, "start")]);
    done(&product, "POST /api/generations/1/rollback", &[], "");
    assert_eq!(product.get("/").text(), "one");
}

#[test]
fn an_upgrade_keeps_the_history_too() {
    let (one, two) = (Origin::saying("one"), Origin::saying("two"));
    let product = Product::start_in(folder_with_state(), &with_state(&Setup::to(&one)), 2);
    let cluster = json!({ "endpoints": [two.address().to_string()] }).to_string();
    done(&product, "PUT /api/config/clusters/site", &[JSON, ANY], &cluster);
    product.upgrade();
    eventually("the new process answers", || generation(&product) == 3);
    assert_eq!(told(&history(&product)), [(3, "upgrade"), (2, "api"), (1, "start")]);
    assert_eq!(product.get("/").text(), "two");
    done(&product, "POST /api/generations/1/rollback", &[], "");
    assert_eq!(product.get("/").text(), "one");
    eventually("it is written by the new process", || newest(product.folder()) == Some(4));
}

#[test]
fn killed_at_any_moment_it_leaves_a_history_that_is_whole() {
    const SEED: u64 = 20_261_122;
    let origin = Origin::saying("fine");
    let text = with_state(&Setup::to(&origin));
    let path = format!("/api/clusters/site/endpoints/{}/weight", origin.address());
    let (mut folder, mut last) = (folder_with_state(), 0);
    for round in 0..8_u64 {
        let place = folder.path().to_owned();
        let mut product = Product::start_in(folder, &text, 1);
        assert!(!product.stderr().contains("cannot be read"), "seed {SEED}, round {round}: {}", product.stderr());
        let now = generation(&product);
        assert!(now > last, "seed {SEED}, round {round}: {now} after {last}");
        eventually("the start is written", || newest(&place).is_some_and(|newest| newest >= now));
        let (admin, path) = (product.address("admin"), path.clone());
        let storm = std::thread::spawn(move || {
            for weight in 2..=50_u64 {
                let body = format!("{{\"weight\":{weight}}}");
                let fields = format!("Host: localhost\r\nConnection: close\r\n{JSON}");
                let head = format!("PUT {path} HTTP/1.1\r\n{fields}\r\nContent-Length: {}", body.len());
                if answer_if_any(admin, &format!("{head}\r\n\r\n{body}")) != Some(200) {
                    break;
                }
            }
        });
        // The moment: from before the first is read until after many are answered.
        let mixed = (SEED + round).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        std::thread::sleep(std::time::Duration::from_micros(mixed % 100_000));
        product.signal(libc::SIGKILL);
        product.wait_ended();
        storm.join().expect("it ends");
        last = newest(&place).expect("the start was written");
        assert!(last >= now, "seed {SEED}, round {round}: {last} after {now}");
        folder = product.take_folder();
    }
}

#[test]
fn a_file_that_is_no_history_is_put_aside_and_hinders_no_start() {
    let origin = Origin::saying("fine");
    let text = with_state(&Setup::to(&origin));
    for bad in [
        "",
        "{ \"format\": 1, \"generations\": [{ \"generation\": 7,",
        "{ \"format\": 99, \"generations\": [] }",
        "{ \"format\": 1, \"changes\": {}, \"wishes\": [] }",
        "#!/bin/sh\nexit 1\n",
    ] {
        let folder = folder_with_state();
        let place = folder.path().to_owned();
        std::fs::write(place.join("state/history.json"), bad).expect("the folder is ours");
        let product = Product::start_in(folder, &text, 1);
        let told = "warn the history of generations cannot be read and starts empty file=";
        product.expect_said(&[told, "history.json why="]);
        assert_eq!((generation(&product), product.get("/").text().as_str()), (1, "fine"), "{bad}");
        assert_eq!(history(&product).len(), 1);
        let aside = std::fs::read_to_string(place.join("state/history.json.unread")).expect("it is not lost");
        assert_eq!(aside, bad);
        eventually("another is written", || newest(&place) == Some(1));
    }
}
