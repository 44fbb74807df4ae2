//! The product as a child process.

use std::collections::HashMap;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::Instant;

use serde_json::Value;
use tempfile::TempDir;

use super::{Message, Peer, poll, sys};

/// A running product with its own folder. Ends with the test.
pub(crate) struct Product {
    child: Child,
    folder: TempDir,
    stderr: Arc<Mutex<String>>,
    stdout: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
    listeners: HashMap<String, SocketAddr>,
}

/// What a command that ends printed.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Where the executable is. Built once if it is not there or older than its sources; `EQUIPOISE_BIN` names another,
/// from the root of the repository on.
pub(crate) fn executable() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| match std::env::var_os("EQUIPOISE_BIN") {
        Some(path) => equipoise_tests::repository().join(path),
        None => build(),
    })
}

/// Builds with the profile that this test was built with: `target/PROFILE/deps/black_box-…`.
fn build() -> PathBuf {
    let test = std::env::current_exe().expect("our own path");
    let folder = test.ancestors().nth(2).expect("target/PROFILE").to_path_buf();
    let profile = match folder.file_name().and_then(|name| name.to_str()).expect("a name") {
        "debug" => "dev",
        other => other,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--package", "equipoise", "--bin", "equipoise", "--profile", profile])
        .current_dir(equipoise_tests::repository())
        .stdin(Stdio::null())
        .status()
        .expect("cargo runs");
    assert!(built.success(), "the product does not build");
    folder.join("equipoise")
}

/// Runs a command of the product to its end.
pub(crate) fn command(arguments: &[&str]) -> Ended {
    command_in(&equipoise_tests::repository(), arguments)
}

/// The same in another folder.
pub(crate) fn command_in(folder: &Path, arguments: &[&str]) -> Ended {
    let child = Command::new(executable())
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the product starts");
    let output = child.wait_with_output().expect("the product ends");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ended { status: output.status, stdout: text(output.stdout), stderr: text(output.stderr) }
}

impl Product {
    /// Runs this configuration with two workers.
    pub(crate) fn start(configuration: &str) -> Self {
        Self::start_in(folder(), configuration, 2)
    }

    /// Runs this configuration in a folder that holds what it names; `DIR` in the text stands for the folder.
    pub(crate) fn start_in(folder: TempDir, configuration: &str, workers: usize) -> Self {
        write_configuration(folder.path(), configuration);
        let workers = workers.to_string();
        let file = folder.path().join("equipoise.yaml");
        let file = file.to_str().expect("a path in UTF-8").to_owned();
        Self::spawn(folder, &["run", "-c", &file, "--workers", &workers])
    }

    /// Runs any command that proxies, until it says where it listens.
    pub(crate) fn spawn(folder: TempDir, arguments: &[&str]) -> Self {
        Self::spawn_program(executable(), folder, arguments)
    }

    /// The same with an executable of the test's own.
    pub(crate) fn spawn_program(program: &Path, folder: TempDir, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments);
        Self::spawn_command(&mut command, folder)
    }

    /// The same with anything else that a command may have.
    pub(crate) fn spawn_command(command: &mut Command, folder: TempDir) -> Self {
        let mut child = command
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the product starts");
        let (stderr, stdout) = (Arc::default(), Arc::default());
        let readers = vec![
            collect(child.stderr.take().expect("piped"), Arc::clone(&stderr)),
            collect(child.stdout.take().expect("piped"), Arc::clone(&stdout)),
        ];
        let mut product = Self { child, folder, stderr, stdout, readers, listeners: HashMap::new() };
        product.listeners = poll::until("the product says that it is ready", || {
            let ended = product.child.try_wait().expect("a child");
            assert!(ended.is_none(), "the product ended with {ended:?}:\n{}", product.settled_stderr());
            announced(&product.stderr())
        });
        product
    }

    /// Where a listener accepts connections.
    pub(crate) fn address(&self, listener: &str) -> SocketAddr {
        let found = self.listeners.get(listener);
        *found.unwrap_or_else(|| panic!("no listener `{listener}` in {:?}", self.listeners))
    }

    /// Where the listener `web` accepts connections.
    pub(crate) fn web(&self) -> SocketAddr {
        self.address("web")
    }

    /// Where its only listener accepts connections, whatever its name.
    pub(crate) fn only_address(&self) -> SocketAddr {
        let mut listeners = self.listeners.iter().filter(|(name, _)| *name != "admin");
        let (_, address) = listeners.next().expect("a listener");
        assert!(listeners.next().is_none(), "{:?}", self.listeners);
        *address
    }

    /// A new connection to the listener `web`.
    pub(crate) fn connect(&self) -> Peer {
        Peer::connect(self.web())
    }

    /// One request on its own connection to `web`.
    pub(crate) fn get(&self, path: &str) -> Message {
        self.connect().get(path)
    }

    /// One request to the administrator's address.
    pub(crate) fn admin(&self, path: &str) -> Message {
        let mut peer = Peer::connect(self.address("admin"));
        peer.ask(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
    }

    /// Any request to the administrator's address. `fields` are whole lines without line ends.
    pub(crate) fn call(&self, request: &str, fields: &[&str], body: &str) -> Message {
        let mut peer = Peer::connect(self.address("admin"));
        let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        let length = body.len();
        peer.ask(format!(
            "{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Equipoise: 1\r\n{fields}Content-Length: {length}\r\n\r\n{body}"
        ))
    }

    /// A page of the administrator's address as JSON.
    pub(crate) fn api(&self, path: &str) -> Value {
        let page = self.admin(path);
        assert_eq!(page.status(), 200, "{path}: {}", page.text());
        serde_json::from_slice(&page.body).unwrap_or_else(|error| panic!("{path}: {error}: {}", page.text()))
    }

    /// The sum of all series of a metric whose labels contain every one of `labels`, such as `cluster="site"`.
    pub(crate) fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let page = self.admin("/metrics").text();
        Self::sum_on(&page, name, labels).unwrap_or_else(|| panic!("no metric `{name}` in:\n{page}"))
    }

    /// [`Self::metric`] on this page; none where the page has no such metric.
    fn sum_on(page: &str, name: &str, labels: &[&str]) -> Option<f64> {
        let of = |line: &&str| {
            let (series, _) = line.rsplit_once(' ').unwrap_or((line, ""));
            let (found, listed) = series.split_once('{').unwrap_or((series, ""));
            found == name && labels.iter().all(|label| listed.contains(label))
        };
        let values: Vec<f64> = page
            .lines()
            .filter(of)
            .map(|line| line.rsplit(' ').next().unwrap_or_default().parse().expect("a number"))
            .collect();
        let is_there = page.contains(&format!("# TYPE {name} ")) || !values.is_empty();
        is_there.then(|| values.iter().sum())
    }

    /// Waits until [`Self::metric`] is there and has this value. A client sees the end of its response a moment before it is counted,
    /// and a fault has no series before its first.
    pub(crate) fn expect_metric(&self, name: &str, labels: &[&str], wanted: f64) {
        let start = Instant::now();
        loop {
            let seen = Self::sum_on(&self.admin("/metrics").text(), name, labels);
            if seen == Some(wanted) {
                return;
            }
            assert!(start.elapsed() < poll::PATIENCE, "{name}{labels:?} is {seen:?} instead of {wanted}");
            std::thread::sleep(poll::STEP);
        }
    }

    /// Waits until [`Self::metric`] has at least this value, for the same reason.
    pub(crate) fn expect_metric_at_least(&self, name: &str, labels: &[&str], wanted: f64) {
        poll::eventually(name, || self.metric(name, labels) >= wanted);
    }

    /// Its folder.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Takes its folder away, once it has ended: for another to start there.
    pub(crate) fn take_folder(&mut self) -> TempDir {
        std::mem::replace(&mut self.folder, folder())
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        sys::resident_bytes(self.pid())
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: i32) {
        sys::signal(self.pid(), signal);
    }

    /// The process that serves now: after an upgrade another one.
    pub(crate) fn serving(&self) -> u32 {
        *announced_pids(&self.stderr()).last().expect("it has said its number")
    }

    /// Lets it be followed by what its file holds now, and waits for that: the number of the new process.
    pub(crate) fn upgrade(&self) -> u32 {
        let (before, from) = (announced_pids(&self.stderr()).len(), self.stderr().len());
        let taken = self.stderr().matches("upgrade finished: the new process has taken over").count();
        sys::signal(self.serving(), libc::SIGUSR2);
        poll::eventually("a new process takes over", || {
            let said = self.stderr();
            assert!(!said[from..].contains("the upgrade failed"), "{said}");
            said.matches("upgrade finished: the new process has taken over").count() > taken
                && announced_pids(&said).len() > before
        });
        self.serving()
    }

    /// Asks for an upgrade that is to fail: what is said of it.
    pub(crate) fn upgrade_in_vain(&self) -> String {
        let before = self.stderr().len();
        sys::signal(self.serving(), libc::SIGUSR2);
        poll::until("it says why it goes on", || {
            let said = self.stderr()[before..].to_owned();
            said.lines().find(|line| line.contains("the upgrade failed")).map(str::to_owned)
        })
    }

    /// What it has written to standard error.
    pub(crate) fn stderr(&self) -> String {
        self.stderr.lock().expect("text").clone()
    }

    /// What it has written to standard output.
    pub(crate) fn stdout(&self) -> String {
        self.stdout.lock().expect("text").clone()
    }

    /// Replaces the configuration and has it read; returns what it then says on standard error.
    pub(crate) fn reload(&self, configuration: &str) -> String {
        write_configuration(self.folder(), configuration);
        self.reload_unchanged()
    }

    /// Has the configuration read again; returns what it then says on standard error.
    pub(crate) fn reload_unchanged(&self) -> String {
        let before = self.stderr().len();
        self.signal(libc::SIGHUP);
        poll::until("the product says how the reload went", || {
            let said = self.stderr()[before..].to_owned();
            reload_is_told(&said).then_some(said)
        })
    }

    /// Waits until its standard error has all of these words: another task may write them, a
    /// moment after their cause is seen elsewhere.
    pub(crate) fn expect_said(&self, words: &[&str]) {
        poll::eventually(&format!("the log says {words:?}"), || {
            let said = self.stderr();
            words.iter().all(|words| said.contains(words))
        });
    }

    /// Waits until the process ends by itself.
    pub(crate) fn wait_ended(&mut self) -> ExitStatus {
        poll::until("the product ends", || self.child.try_wait().expect("a child"))
    }

    /// Whether the process still runs.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// The records of its JSON access log so far.
    pub(crate) fn records(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder().join("access.json")).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"))).collect()
    }

    /// Waits for the first record that `fits`.
    pub(crate) fn record(&self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            let mut records = self.records();
            if let Some(at) = records.iter().position(&fits) {
                return records.swap_remove(at);
            }
            assert!(start.elapsed() < poll::PATIENCE, "no record: {what}; there are {records:#?}");
            std::thread::sleep(poll::STEP);
        }
    }

    /// Waits for a record with this fault flag.
    pub(crate) fn flagged(&self, flag: &str) -> Value {
        self.record(flag, |record| record["flag"] == flag)
    }

    fn settled_stderr(&mut self) -> String {
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        self.stderr()
    }
}

impl Drop for Product {
    fn drop(&mut self) {
        let _ = self.child.kill();
        for pid in announced_pids(&self.stderr()).into_iter().filter(|pid| *pid != self.child.id()) {
            sys::kill_ours(pid, self.folder.path());
        }
        let status = self.child.wait();
        let said = self.settled_stderr();
        if std::thread::panicking() {
            eprintln!("--- the product ({status:?}) said:\n{said}---");
        }
        assert!(std::thread::panicking() || !said.contains("panicked at"), "the product panicked:\n{said}");
    }
}

/// A new folder for one product.
pub(crate) fn folder() -> TempDir {
    tempfile::Builder::new().prefix("equipoise-test-").tempdir().expect("a folder")
}

fn write_configuration(folder: &Path, configuration: &str) {
    let text = configuration.replace("DIR", folder.to_str().expect("a path in UTF-8"));
    std::fs::write(folder.join("equipoise.yaml"), text).expect("the folder is ours");
}

/// Whole pieces, as they were written: what the product says in one go is never seen in part.
fn collect(mut pipe: impl Read + Send + 'static, into: Arc<Mutex<String>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut buffer = [0; 16 * 1024];
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            into.lock().expect("text").push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    })
}

/// The listeners by name, the administrator's under `admin`, once they have been announced:
/// `  listener web on http://127.0.0.1:8080`.
fn announced(stderr: &str) -> Option<HashMap<String, SocketAddr>> {
    let place = |line: &str| {
        let (name, url) = line.strip_prefix("  ")?.split_once(" on ")?;
        let address = url.split_once("://")?.1.parse().ok()?;
        Some((name.strip_prefix("listener ").unwrap_or(name).to_owned(), address))
    };
    let found: HashMap<_, _> = stderr.lines().filter_map(place).collect();
    // The log is written by a thread of its own: its first line may come after the listeners.
    (!found.is_empty() && stderr.contains("configuration is live")).then_some(found)
}

/// The processes that have said that they serve, oldest first.
fn announced_pids(stderr: &str) -> Vec<u32> {
    let of = |line: &str| line.strip_prefix("equipoise ")?.split_once(", pid ")?.1.split(',').next()?.parse().ok();
    stderr.lines().filter_map(of).collect()
}

fn reload_is_told(said: &str) -> bool {
    said.contains("configuration is live") || said.contains("stays active")
}
