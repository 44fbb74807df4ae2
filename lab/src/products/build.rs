//! Equipoise's executable: the one that was named, or built now.

use crate::failure::Failure;
use crate::measure::child::interruption;
use crate::paths::Paths;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The executable to measure. Without a name it is built first: an older build must not pass for this one.
pub(crate) fn executable(named: Option<&Path>, is_needed: bool, paths: &Paths) -> Result<PathBuf, Failure> {
    if let Some(path) = named {
        return absolute(path);
    }
    if is_needed {
        build(paths, &["--release"])?;
    }
    Ok(workspace_target(paths).join("release/equipoise"))
}

/// The executable to test, for which a build without optimisation does.
pub(crate) fn executable_to_test(named: Option<&Path>, paths: &Paths) -> Result<PathBuf, Failure> {
    if let Some(path) = named {
        return absolute(path);
    }
    build(paths, &[])?;
    Ok(workspace_target(paths).join("debug/equipoise"))
}

/// A path that stays true when the folder changes.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    path.canonicalize().map_err(|error| Failure::io(path, &error))
}

/// The folder that cargo builds into.
fn workspace_target(paths: &Paths) -> PathBuf {
    let named = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    named.unwrap_or_else(|| paths.lab.parent().unwrap_or(&paths.lab).join("target"))
}

/// Cargo knows whether there is anything to do.
fn build(paths: &Paths, profile: &[&str]) -> Result<(), Failure> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "-p", "equipoise"])
        .args(profile)
        .current_dir(&paths.lab)
        .status()
        .map_err(|error| Failure::new(format!("cannot run cargo: {error}")))?;
    if !status.success() {
        return Err(Failure::new("equipoise could not be built; `--equipoise PATH` takes another executable"));
    }
    interruption()
}
