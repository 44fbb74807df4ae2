//! Services that filters call over gRPC, built by `tests/services/build` from Go modules.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

use super::net::free;
use super::{Peer, eventually};

/// A process that ends with the test.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Self(child.unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// Kills it, without any goodbye.
    pub(crate) fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The folder with the programs, which are built if they are not there.
fn programs() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("services/build");
        let built = Command::new(script).stderr(Stdio::inherit()).output().expect("tests/services/build");
        assert!(built.status.success(), "the services could not be built; they need Go 1.21 or newer");
        PathBuf::from(String::from_utf8(built.stdout).expect("a path in UTF-8").trim())
    })
}

/// The authorization service in `tests/services/ext_authz`, of Envoy's own messages.
pub(crate) struct Authorization {
    pub(crate) address: SocketAddr,
    process: Running,
}

impl Authorization {
    pub(crate) fn start() -> Self {
        Self::start_at(free())
    }

    pub(crate) fn start_at(address: SocketAddr) -> Self {
        let process = Running::start(Command::new(programs().join("ext_authz")).arg(address.to_string()));
        eventually("the authorization service listens", || Peer::try_connect(address).is_some());
        Self { address, process }
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }
}

/// The firewall in `examples/waf`: Coraza with the Core Rule Set.
pub(crate) struct Firewall {
    pub(crate) address: SocketAddr,
    process: Running,
}

impl Firewall {
    pub(crate) fn start(more: &[&str]) -> Self {
        let address = free();
        let mut command = Command::new(programs().join("waf"));
        let process = Running::start(command.args(["-listen", &address.to_string()]).args(more));
        eventually("the firewall listens", || Peer::try_connect(address).is_some());
        Self { address, process }
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }
}

/// Envoy's rate limit service, which counts in a Redis of its own.
pub(crate) struct RateLimits {
    pub(crate) address: SocketAddr,
    service: Running,
    _redis: Running,
    _folder: TempDir,
}

impl RateLimits {
    /// With this configuration.
    pub(crate) fn start(configuration: &str) -> Self {
        let folder = TempDir::new().expect("a folder");
        let config = folder.path().join("config");
        std::fs::create_dir(&config).expect("our folder");
        std::fs::write(config.join("limits.yaml"), configuration).expect("our folder");
        let (redis_at, address, http, debug) = (free(), free(), free(), free());
        let mut redis = Command::new("redis-server");
        redis.args(["--port", &redis_at.port().to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        let redis = Running::start(&mut redis);
        eventually("redis listens", || Peer::try_connect(redis_at).is_some());
        let mut service = Command::new(programs().join("ratelimit"));
        for (name, at) in [("", http), ("GRPC_", address), ("DEBUG_", debug)] {
            service.env(format!("{name}HOST"), at.ip().to_string()).env(format!("{name}PORT"), at.port().to_string());
        }
        service.env("DISABLE_STATS", "true").env("LOG_LEVEL", "error").env("LIMIT_RESPONSE_HEADERS_ENABLED", "true");
        service.env("BACKEND_TYPE", "redis").env("REDIS_SOCKET_TYPE", "tcp").env("REDIS_URL", redis_at.to_string());
        service.env("RUNTIME_ROOT", folder.path()).env("RUNTIME_SUBDIRECTORY", "").env("RUNTIME_WATCH_ROOT", "false");
        let service = Running::start(&mut service);
        eventually("the rate limit service listens", || Peer::try_connect(address).is_some());
        Self { address, service, _redis: redis, _folder: folder }
    }

    pub(crate) fn kill(&mut self) {
        self.service.kill();
    }
}
