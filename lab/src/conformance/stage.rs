//! What every suite needs: the product before something, on addresses that are free, with a certificate.

use crate::certificate;
use crate::failure::Failure;
use crate::measure::child::{Launch, Running, write_file};
use crate::paths::Paths;
use crate::sys;
use serde_json::Value;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest that anything takes to listen.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Where a suite runs.
pub(crate) struct Bench<'a> {
    pub paths: &'a Paths,
    /// The executable under test.
    pub equipoise: &'a Path,
    /// The suite's own folder, for configurations and logs.
    pub out: &'a Path,
}

/// What a program said, and how it ended.
pub(crate) struct Ended {
    pub success: bool,
    pub said: String,
}

impl Ended {
    /// Its last words, on one line.
    pub(crate) fn last_words(&self) -> String {
        let lines: Vec<&str> = self.said.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(3)..].join(" | ").chars().take(400).collect()
    }
}

/// A product with a listener in clear and one with TLS, and what is behind it.
pub(crate) struct Site {
    /// Where it speaks in clear.
    pub clear: SocketAddr,
    /// Where it speaks TLS.
    pub sealed: SocketAddr,
    _product: Running,
}

impl Bench<'_> {
    /// An address of this machine where nothing listens, neither for TCP nor for UDP.
    pub(crate) fn free_address() -> Result<SocketAddr, Failure> {
        for _ in 0..100 {
            let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
            if std::net::UdpSocket::bind(address).is_ok() {
                return Ok(address);
            }
        }
        Err(Failure::new("no port is free"))
    }

    /// Starts a program that listens at the address.
    pub(crate) fn start(&self, name: &str, launch: &Launch, address: SocketAddr) -> Result<Running, Failure> {
        let mut running = Running::start(name, launch, &sys::cores_allowed()?, &self.log(name))?;
        running.wait_listening(address, START_TIMEOUT)?;
        Ok(running)
    }

    /// Runs a program to its end.
    pub(crate) fn finish(&self, name: &str, launch: &Launch, timeout: Duration) -> Result<Ended, Failure> {
        let log = self.log(name);
        let mut running = Running::start(name, launch, &sys::cores_allowed()?, &log)?;
        let success = match running.wait(timeout) {
            Ok(status) => status.success(),
            Err(failure) if failure.is_interruption() => return Err(failure),
            Err(_) => false,
        };
        let said = fs::read(&log).map_err(|error| Failure::io(&log, &error))?;
        Ok(Ended { success, said: String::from_utf8_lossy(&said).into_owned() })
    }

    fn log(&self, name: &str) -> PathBuf {
        self.out.join(format!("{}.log", name.replace('/', "-")))
    }

    /// Makes `site.pem` and `site.key` for `localhost` and 127.0.0.1, and says where the certificate is.
    pub(crate) fn certificate(&self) -> Result<PathBuf, Failure> {
        certificate::ensure(self.out)?;
        Ok(self.out.join("site.pem"))
    }

    /// The lab's own origin: the last segment of a path is the size of the answer.
    pub(crate) fn origin(&self) -> Result<(SocketAddr, Running), Failure> {
        let address = Self::free_address()?;
        let launch = Launch::new(std::env::current_exe()?).args(["origin", "--listen", &address.to_string()]);
        Ok((address, self.start("origin", &launch, address)?))
    }

    /// go-httpbin, an origin of many tricks.
    pub(crate) fn httpbin(&self) -> Result<(SocketAddr, Running), Failure> {
        let address = Self::free_address()?;
        let launch = Launch::new(self.paths.peer_file("go-httpbin/bin/go-httpbin")?)
            .args(["-host", "127.0.0.1", "-port", &address.port().to_string()])
            .args(["-max-body-size", "20000000", "-max-duration", "60s"]);
        Ok((address, self.start("go-httpbin", &launch, address)?))
    }

    /// What the product's access log says so far.
    pub(crate) fn records(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.out.join("access.json")).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The product before one endpoint; `cluster` holds more lines for its cluster.
    pub(crate) fn site(&self, endpoint: SocketAddr, cluster: &[&str]) -> Result<Site, Failure> {
        self.start_site(endpoint, cluster, &[])
    }

    /// The same with more routes.
    pub(crate) fn site_with(&self, endpoint: SocketAddr, routes: &[&str]) -> Result<Site, Failure> {
        self.start_site(endpoint, &[], routes)
    }

    fn start_site(&self, endpoint: SocketAddr, cluster: &[&str], routes: &[&str]) -> Result<Site, Failure> {
        self.certificate()?;
        let (clear, sealed) = (Self::free_address()?, Self::free_address()?);
        let more: String = cluster.iter().map(|line| format!("    {line}\n")).collect();
        let routes: String = routes.iter().map(|route| format!("  - {route}\n")).collect();
        let text = format!(
            "version: 1\nlisteners:\n  clear: {{ bind: \"{clear}\" }}\n  sealed:\n    bind: \"{sealed}\"\n    \
             http_versions: [h1, h2, h3]\n    tls: {{ certificates: [{{ chain: site.pem, key: site.key }}] }}\nroutes:\n{routes}  - cluster: site\n\
             clusters:\n  site:\n    endpoints: [\"{endpoint}\"]\n{more}\
             access_logs: [{{ path: access.json, format: json }}]\n"
        );
        let _ = fs::remove_file(self.out.join("access.json"));
        let file = self.out.join("equipoise.yaml");
        write_file(&file, &text)?;
        let launch = Launch::new(self.equipoise).args(["run", "--workers", "2", "-c"]).arg(&file);
        let mut product = self.start("equipoise", &launch, clear)?;
        product.wait_listening(sealed, START_TIMEOUT)?;
        Ok(Site { clear, sealed, _product: product })
    }
}
