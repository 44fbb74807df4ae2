//! A real Dex: an OpenID Connect provider and OAuth 2.0 authorization server.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use super::net::free;
use super::{Peer, until};

/// The secret of its client.
pub(crate) const SECRET: &str = "the-secret-of-the-client";

/// A real one, whose only user is logged in without being asked. Its only client is `shop`.
pub(crate) struct Dex {
    pub(crate) issuer: String,
    child: Child,
}

/// Builds it, unless it is there.
fn dex() -> &'static (PathBuf, PathBuf) {
    static BUILT: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    BUILT.get_or_init(|| {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("dex");
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/dex/dex");
        let go = |arguments: &[&str]| {
            let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("go"));
            command.current_dir(&sources).args(arguments).env("CGO_ENABLED", "0").stdin(Stdio::null());
            let ended = command.output().expect("Go, which ./test installs");
            assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
            String::from_utf8(ended.stdout).expect("text").trim().to_owned()
        };
        go(&["build", "-o", program.to_str().expect("text"), "."]);
        let module = go(&["list", "-m", "-f", "{{.Dir}}", "github.com/dexidp/dex"]);
        (program, Path::new(&module).join("web"))
    })
}

impl Dex {
    pub(crate) fn start(redirect: &str) -> Self {
        let (program, web) = dex();
        let address = free();
        let issuer = format!("http://{address}/dex");
        let mut command = Command::new(program);
        command.args([&issuer, &address.to_string()]).arg(web).args(["shop", SECRET, redirect]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("Dex");
        let dex = Self { issuer, child };
        until("Dex answers", || Peer::try_connect(address));
        dex
    }

    /// Follows redirects as a browser does, until one leads away from it.
    pub(crate) fn follow(&self, url: &str) -> String {
        let host = self.issuer.trim_start_matches("http://").trim_end_matches("/dex");
        let mut url = url.to_owned();
        for _ in 0..10 {
            let path = match url.strip_prefix(&format!("http://{host}")) {
                Some(path) => path.to_owned(),
                None if url.starts_with('/') => url.clone(),
                None => return url,
            };
            let asked = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            let answer = Peer::connect(host.parse().expect("an address")).ask(asked);
            url = answer.field("location").unwrap_or_else(|| panic!("{path}: {}", answer.text())).to_owned();
        }
        panic!("it leads nowhere: {url}");
    }
}

impl Drop for Dex {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
