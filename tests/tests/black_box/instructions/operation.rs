//! Single operations by a program of their own, `crates/equipoise/examples/operations`, which lists its cells.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::harness::product;

/// The function of the program in which callgrind collects, by a part of its name.
const COUNTED: &str = "*counted_operations*";

/// Where the program is: it is built with the product.
fn executable() -> PathBuf {
    product::executable().with_file_name("examples").join("operations")
}

/// What a command has printed.
fn said(command: &mut Command) -> String {
    let program = executable();
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{} failed; cargo build --release -p equipoise --example operations: {stderr}",
        program.display()
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The names of all cells.
pub(super) fn cells() -> Vec<String> {
    said(&mut Command::new(executable())).lines().map(str::to_owned).collect()
}

/// Instructions for each operation of a cell.
pub(super) fn measure(cell: &str) -> f64 {
    let folder = product::folder();
    let counts = folder.path().join("counts");
    let mut command = super::callgrind(&counts);
    command.arg("--collect-atstart=no").arg(format!("--toggle-collect={COUNTED}"));
    let operations = said(command.arg(executable()).arg(cell));
    let total = super::total(&counts);
    assert!(total > 0, "{cell}: no function is called {COUNTED}");
    total as f64 / operations.trim().parse::<f64>().expect("how many were counted")
}
