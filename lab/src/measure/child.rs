//! Child processes of the lab: pinned, with their output in a file, and never left behind.

use super::syslog;
use crate::failure::Failure;
use crate::sys;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A program with its arguments and environment, not started yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Launch {
    /// The executable.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Variables added to the environment.
    pub env: Vec<(String, OsString)>,
    /// Its standard output is thrown away, not kept in the log file (products that write access logs there).
    pub discard_output: bool,
}

impl Launch {
    /// A program without arguments.
    pub(crate) fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), ..Self::default() }
    }

    /// Adds one argument.
    pub(crate) fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds several arguments.
    pub(crate) fn args<T: Into<OsString>>(mut self, args: impl IntoIterator<Item = T>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Adds a variable to the environment.
    pub(crate) fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// The command, with nothing decided about its output.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// A running child. Dropping it ends it, with all processes of its group.
pub(crate) struct Running {
    child: Child,
    name: String,
    log: PathBuf,
}

impl Running {
    /// Starts a program on the given cores; its errors (and its output, unless it is discarded) go to `log`.
    pub(crate) fn start(name: &str, launch: &Launch, cores: &[usize], log: &Path) -> Result<Self, Failure> {
        let mut command = launch.command();
        command.stdin(Stdio::null());
        let file = File::create(log).map_err(|error| Failure::io(log, &error))?;
        let output = file.try_clone().map_err(|error| Failure::io(log, &error))?;
        command.stdout(if launch.discard_output { Stdio::null() } else { Stdio::from(output) });
        command.stderr(Stdio::from(file));
        Self::spawn(name, launch, command, cores, log)
    }

    /// Starts a program that runs until its input ends, which the lab holds.
    pub(crate) fn start_held(name: &str, launch: &Launch, cores: &[usize], log: &Path) -> Result<Self, Failure> {
        let mut command = launch.command();
        let file = File::create(log).map_err(|error| Failure::io(log, &error))?;
        let output = file.try_clone().map_err(|error| Failure::io(log, &error))?;
        command.stdin(Stdio::piped()).stdout(Stdio::from(output)).stderr(Stdio::from(file));
        Self::spawn(name, launch, command, cores, log)
    }

    /// Starts a program whose output goes to an address line by line, as syslog messages; its errors go to `log`.
    pub(crate) fn start_forwarded(
        name: &str,
        launch: &Launch,
        cores: &[usize],
        log: &Path,
        to: SocketAddr,
    ) -> Result<Self, Failure> {
        let mut command = launch.command();
        let file = File::create(log).map_err(|error| Failure::io(log, &error))?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::from(file));
        let mut running = Self::spawn(name, launch, command, cores, log)?;
        if let Some(output) = running.child.stdout.take() {
            syslog::forward(output, name, to)?;
        }
        Ok(running)
    }

    fn spawn(name: &str, launch: &Launch, mut command: Command, cores: &[usize], log: &Path) -> Result<Self, Failure> {
        sys::pin(&mut command, cores);
        let child = command
            .spawn()
            .map_err(|error| Failure::new(format!("cannot start {}: {error}", launch.program.display())))?;
        Ok(Self { child, name: name.to_owned(), log: log.to_owned() })
    }

    /// The process that was started.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Fails with the end of its log when the program has ended.
    pub(crate) fn check_alive(&mut self) -> Result<(), Failure> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(Failure::new(format!("{} ended with {status}: {}", self.name, self.log_end()))),
            Err(error) => Err(Failure::new(format!("{}: {error}", self.name))),
        }
    }

    /// Waits until something accepts connections at the address.
    pub(crate) fn wait_listening(&mut self, address: SocketAddr, timeout: Duration) -> Result<(), Failure> {
        let deadline = Instant::now() + timeout;
        loop {
            self.check_alive()?;
            interruption()?;
            if TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok() {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Failure::new(format!("{} does not listen on {address}: {}", self.name, self.log_end())));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for the end; beyond the timeout, or at Ctrl-C, the program is ended and that is a failure.
    pub(crate) fn wait(&mut self, timeout: Duration) -> Result<ExitStatus, Failure> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Ok(status),
                Ok(None) => {}
                Err(error) => return Err(Failure::new(format!("{}: {error}", self.name))),
            }
            interruption()?;
            if Instant::now() > deadline {
                self.end();
                return Err(Failure::new(format!("{} did not end within {} s", self.name, timeout.as_secs())));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the program has printed the line; its end, the timeout and Ctrl-C are failures.
    pub(crate) fn wait_said(&mut self, line: &str, timeout: Duration) -> Result<(), Failure> {
        let deadline = Instant::now() + timeout;
        loop {
            let text = fs::read_to_string(&self.log).map_err(|error| Failure::io(&self.log, &error))?;
            if text.lines().any(|said| said == line) {
                return Ok(());
            }
            self.check_alive()?;
            interruption()?;
            if Instant::now() > deadline {
                return Err(Failure::new(format!("{} took longer than {} s", self.name, timeout.as_secs())));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The last lines that the program logged, in one line.
    pub(crate) fn log_end(&self) -> String {
        let text = fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        match lines.as_slice() {
            [] => "it said nothing".to_owned(),
            lines => lines[lines.len().saturating_sub(4)..].join(" | ").chars().take(600).collect(),
        }
    }

    /// Ends the program and its group: asked first, forced after a second.
    pub(crate) fn end(&mut self) {
        let pid = self.pid();
        drop(self.child.stdin.take());
        if let Ok(Some(_)) = self.child.try_wait() {
            // The leader has gone and been waited for, but the group may hold others: it cannot have been reused yet.
            sys::signal_group(pid, libc::SIGKILL);
            return;
        }
        sys::signal_group(pid, libc::SIGTERM);
        let deadline = Instant::now() + Duration::from_secs(1);
        while Instant::now() < deadline {
            if let Ok(Some(_)) = self.child.try_wait() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        sys::signal_group(pid, libc::SIGKILL);
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// Runs a program to its end and returns its output, errors included.
pub(crate) fn output_of(launch: &Launch) -> Result<String, Failure> {
    let output = launch
        .command()
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::new(format!("cannot run {}: {error}", launch.program.display())))?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Ok(text)
}

/// Runs a program to its end, which must be a good one.
pub(crate) fn done(launch: &Launch) -> Result<(), Failure> {
    let program = launch.program.display();
    let output = launch.command().stdin(Stdio::null()).output();
    let output = output.map_err(|error| Failure::new(format!("cannot run {program}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let told = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(format!("{program} ended with {}: {}", output.status, told.trim())))
}

/// A failure when Ctrl-C was pressed.
pub(crate) fn interruption() -> Result<(), Failure> {
    if sys::interrupted() { Err(Failure::interrupted()) } else { Ok(()) }
}

/// Sleeps, unless Ctrl-C is pressed.
pub(crate) fn pause(time: Duration) -> Result<(), Failure> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        interruption()?;
        std::thread::sleep(Duration::from_millis(10).min(end.saturating_duration_since(Instant::now())));
    }
    interruption()
}

/// Writes a file, naming it when that fails.
pub(crate) fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    let mut file = File::create(path).map_err(|error| Failure::io(path, &error))?;
    file.write_all(text.as_bytes()).map_err(|error| Failure::io(path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("lab-test-{}-{name}", std::process::id()))
    }

    /// Asks again until it holds; fails after a time that no machine needs.
    fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !holds() {
            assert!(Instant::now() < deadline, "waited in vain: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_dropped_child_is_gone_with_its_group() {
        let launch = Launch::new("/bin/sh").args(["-c", "sleep 60 & sleep 60"]);
        let running = Running::start("sleepers", &launch, &[0], &log("group")).unwrap();
        let pid = running.pid();
        let tree = || super::super::procfs::tree(pid).unwrap_or_default();
        eventually("the shell has both its children", || tree().len() == 3);
        let tree = tree();
        drop(running);
        for stat in tree {
            // A grandchild may stay as a zombie until init looks after it.
            eventually("every process of the group has ended", || {
                let text = fs::read_to_string(format!("/proc/{}/stat", stat.pid)).unwrap_or_default();
                text.is_empty() || text.contains(") Z ")
            });
        }
    }

    #[test]
    fn a_program_that_ends_early_is_told_with_its_log() {
        let launch = Launch::new("/bin/sh").args(["-c", "echo no such option >&2; exit 3"]);
        let mut running = Running::start("thing", &launch, &[0], &log("early")).unwrap();
        let error = running.wait_listening("127.0.0.1:1".parse().unwrap(), Duration::from_secs(30)).unwrap_err();
        assert!(error.to_string().contains("no such option"), "{error}");
    }
}
