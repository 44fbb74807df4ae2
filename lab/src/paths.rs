//! Where things are: the lab's folder, its peers, its output, and the programs in them.

use crate::failure::Failure;
use crate::measure::child::Launch;
use std::fs;
use std::path::{Path, PathBuf};

/// The folders of the lab.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    /// The lab's own folder.
    pub lab: PathBuf,
    /// What was installed.
    pub peers: PathBuf,
    /// Results, rendered configurations, logs.
    pub out: PathBuf,
}

impl Paths {
    /// The folders of the source tree that the lab was built from.
    pub(crate) fn new() -> Result<Self, Failure> {
        let lab = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let paths = Self { peers: lab.join(".peers"), out: lab.join("out"), lab };
        for folder in [&paths.peers, &paths.out] {
            fs::create_dir_all(folder).map_err(|error| Failure::io(folder, &error))?;
        }
        Ok(paths)
    }

    /// The folder of a study's configurations.
    pub(crate) fn studies(&self, name: &str) -> PathBuf {
        self.lab.join("studies").join(name)
    }

    /// The folder of keys, tokens and maps that configurations name.
    pub(crate) fn policy(&self) -> PathBuf {
        self.out.join("policy")
    }

    /// A program out of an unpacked tree of packages, run by the tree's own loader and libraries.
    pub(crate) fn unpacked(&self, tree: &str, program: &str) -> Result<Launch, Failure> {
        let root = self.peers.join(tree);
        let program = installed(root.join(program))?;
        let loader = installed(root.join("usr/lib64/ld-linux-x86-64.so.2"))?;
        Ok(Launch::new(loader).arg("--library-path").arg(root.join("usr/lib/x86_64-linux-gnu")).arg(program))
    }

    /// A generator, reading the lab's OpenSSL settings.
    pub(crate) fn generator(&self, name: &str) -> Result<Launch, Failure> {
        let launch = match name {
            "vegeta" => Launch::new(self.peer_file("go-vegeta/bin/vegeta")?),
            "k6" => Launch::new(self.peer_file("python-k6/bin/k6")?),
            "grpc-benchmark" => Launch::new(self.peer_file("go-grpc-benchmark/bin/client")?),
            "dnsperf" => self.unpacked("dns-root", "usr/bin/dnsperf")?,
            "curl" => self.unpacked("curl-root", "usr/bin/curl")?,
            "oha" => Launch::new(self.peer_file("cargo-oha/bin/oha")?),
            _ => self.unpacked("debian-root", &format!("usr/bin/{name}"))?,
        };
        Ok(launch.env("OPENSSL_CONF", self.lab.join("configs/openssl.cnf")))
    }

    /// The version of a package in an unpacked tree.
    pub(crate) fn package_version(&self, tree: &str, package: &str) -> Option<String> {
        let text = fs::read_to_string(self.peers.join(format!("{tree}.state/versions"))).ok()?;
        text.lines().find(|line| line.split(' ').next() == Some(package)).map(str::to_owned)
    }

    /// The folder of an unpacked or installed peer's file, when it is there.
    pub(crate) fn peer_file(&self, name: &str) -> Result<PathBuf, Failure> {
        installed(self.peers.join(name))
    }
}

fn installed(path: PathBuf) -> Result<PathBuf, Failure> {
    if path.exists() {
        return Ok(path);
    }
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    Err(Failure::new(format!("{name} is not installed (lab peers install)")))
}

/// A path as text for a configuration.
pub(crate) fn text(path: &Path) -> String {
    path.display().to_string()
}
