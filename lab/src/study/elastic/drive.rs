//! Products in motion: each is started and changed as its users do it.

use super::super::Run;
use super::changes::{Change, State};
use crate::failure::Failure;
use crate::measure::child::{self, Launch, Running, write_file};
use crate::measure::procfs;
use crate::paths::text;
use crate::products::{self, Product, Start};
use crate::sys;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(15);

/// The certificates, which all products take turns with.
pub(super) const CERTIFICATES: [&str; 2] = ["tls", "tls-2"];

/// A product that runs and is changed.
pub(super) struct Driven<'r> {
    run: &'r Run<'r>,
    product: &'static Product,
    /// Its files.
    folder: PathBuf,
    /// How long an old process may go on after an upgrade.
    drain: Duration,
    running: Vec<Running>,
    is_upgraded: bool,
}

impl<'r> Driven<'r> {
    /// Configures and starts a product, and waits until it listens.
    pub(super) fn start(run: &'r Run<'r>, product: &'static Product, drain: Duration) -> Result<Self, Failure> {
        let folder = run.paths.out.join(product.name);
        // What an earlier run left must not be taken for this one's.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(|error| Failure::io(&folder, &error))?;
        let mut driven = Self { run, product, folder, drain, running: Vec::new(), is_upgraded: false };
        driven.write(State::default())?;
        if product.name == "haproxy" {
            driven.write_haproxy_certificate(CERTIFICATES[0])?;
        }
        let launch = driven.launch()?;
        let cores = run.bench.product_cores(1);
        driven.running.push(Running::start(product.name, &launch, &cores, &run.bench.log(product.name))?);
        driven.running[0].wait_listening(run.bench.target(true), TIMEOUT)?;
        Ok(driven)
    }

    /// The process whose tree does the work.
    pub(super) fn pid(&self) -> Result<u32, Failure> {
        match self.product.name {
            "nginx" => self.pid_file("nginx.pid"),
            _ => Ok(self.running[0].pid()),
        }
    }

    /// Fails when a process that should run has ended.
    pub(super) fn check_alive(&mut self) -> Result<(), Failure> {
        // The one that was started first may end when another has taken over from it, and only then.
        if self.is_upgraded && self.product.name == "equipoise" {
            let is_left = self.workers()?.into_iter().any(is_there);
            let gone = || Failure::new(format!("equipoise ended after its upgrade: {}", self.running[0].log_end()));
            return if is_left { Ok(()) } else { Err(gone()) };
        }
        self.running.last_mut().map_or(Ok(()), Running::check_alive)
    }

    /// Whether this executable can be replaced while it works. An Equipoise that does not catch the signal would end.
    pub(super) fn can_upgrade(&self) -> Result<bool, Failure> {
        Ok(self.product.name != "equipoise" || procfs::catches(self.pid()?, libc::SIGUSR2))
    }

    /// Makes a change known; what it leads to comes later. `state` is what holds after it.
    pub(super) fn apply(&mut self, change: Change, state: State) -> Result<(), Failure> {
        if change == Change::Upgrade {
            self.is_upgraded = true;
            return self.upgrade();
        }
        match self.product.name {
            "haproxy" => self.change_haproxy(change, state),
            "nginx" | "equipoise" => {
                self.write(state)?;
                sys::signal_process(self.pid()?, libc::SIGHUP);
                Ok(())
            }
            // They watch their files.
            _ => self.write(state),
        }
    }

    fn template_more(&self) -> &'static [&'static str] {
        match self.product.name {
            "envoy" => &["envoy-routes.yaml", "envoy-endpoints.yaml", "envoy-secrets.yaml"],
            _ => &[],
        }
    }

    /// Renders all files aside and renames those that differ into their places: nobody ever reads half a file.
    fn write(&self, state: State) -> Result<(), Failure> {
        let tls = self.run.paths.out.join(CERTIFICATES[usize::from(state.second_certificate)]);
        let values =
            [("dir", text(&self.folder)), ("chain", text(&tls.join("site.pem"))), ("key", text(&tls.join("site.key")))];
        let flags = state.flags();
        let more = self.template_more();
        let start = Start { values: &values, flags: &flags, more, variant: "next", ..Start::new(self.product) };
        self.run.bench.configure(&start)?;
        for new in products::rendered(&self.folder.join("next")) {
            let old = self.folder.join(new.file_name().unwrap_or_default());
            if fs::read(&old).ok() != fs::read(&new).ok() {
                fs::rename(&new, &old).map_err(|error| Failure::io(&old, &error))?;
            }
        }
        fs::remove_dir_all(self.folder.join("next")).map_err(|error| Failure::io(&self.folder, &error))
    }

    fn launch(&self) -> Result<Launch, Failure> {
        let file = |name: &str| self.folder.join(name);
        let paths = self.run.paths;
        match self.product.name {
            "nginx" => self.launch_nginx(),
            "haproxy" => {
                let program = self.script("haproxy", &paths.unpacked("haproxy-root", "usr/sbin/haproxy")?)?;
                Ok(Launch::new(program).arg("-W").arg("-f").arg(file("haproxy.cfg")))
            }
            "envoy" => self.launch_envoy(0),
            "traefik" => {
                let launch = Launch::new(paths.peer_file("python-traefik/bin/traefik")?).env("GOMAXPROCS", "1");
                Ok(launch.arg(format!("--configFile={}", text(&file("traefik.yaml")))))
            }
            _ => {
                let launch = Launch::new(self.run.bench.equipoise()).args(["run", "--workers", "1", "-c"]);
                Ok(launch.arg(file("equipoise.yaml")))
            }
        }
    }

    /// A script that runs an unpacked program with its own loader, and under the script's name: a program that starts
    /// itself anew starts the script.
    fn script(&self, name: &str, launch: &Launch) -> Result<PathBuf, Failure> {
        let script = self.folder.join(format!("{name}.sh"));
        let args: Vec<String> = launch.args.iter().map(|arg| format!("'{}'", arg.to_string_lossy())).collect();
        let line = format!("exec '{}' --argv0 \"$0\" {} \"$@\"", launch.program.display(), args.join(" "));
        write_file(&script, &format!("#!/bin/sh\n{line}\n"))?;
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&script, executable).map_err(|error| Failure::io(&script, &error))?;
        Ok(script)
    }

    fn pid_file(&self, name: &str) -> Result<u32, Failure> {
        let path = self.folder.join(name);
        let text = fs::read_to_string(&path).map_err(|error| Failure::io(&path, &error))?;
        text.trim().parse().map_err(|_| Failure::new(format!("{} holds no process", path.display())))
    }

    /// nginx replaces its program only when its parent is no longer the one that it was started by (it takes itself for
    /// the new one otherwise). So the shell that starts it ends, and one above it stays for the process group.
    fn launch_nginx(&self) -> Result<Launch, Failure> {
        let program = self.script("nginx", &self.run.paths.unpacked("debian-root", "usr/sbin/nginx")?)?;
        let nginx = format!("'{}' -p '{}' -c nginx.conf -e stderr", program.display(), self.folder.display());
        let started = format!("while [ ! -s '{}/nginx.pid' ]; do sleep 0.02; done", self.folder.display());
        let quoted = format!("{nginx} & {started}").replace('\'', "'\\''");
        Ok(Launch::new("/bin/sh").arg("-c").arg(format!("/bin/sh -c '{quoted}'; exec sleep 1000000")))
    }

    fn launch_envoy(&self, epoch: usize) -> Result<Launch, Failure> {
        let program = self.run.paths.peer_file("python-envoy/envoy/_bin/envoy")?;
        let launch = Launch::new(program).arg("-c").arg(self.folder.join("envoy.yaml"));
        let launch = launch.args(["--concurrency", "1", "--log-level", "error"]);
        let launch = launch.args(["--restart-epoch", &epoch.to_string()]);
        // A number of its own, so that Envoys of others on this machine are not met.
        let launch = launch.args(["--base-id", &self.run.bench.ports.secure.to_string()]);
        let drain = self.drain.as_secs().max(1);
        let launch = launch.args(["--drain-time-s", &drain.to_string()]);
        Ok(launch.args(["--parent-shutdown-time-s", &(drain * 2).to_string()]))
    }

    fn change_haproxy(&self, change: Change, state: State) -> Result<(), Failure> {
        let port = self.run.bench.ports.origin[3];
        match change {
            Change::Fourth => {
                self.tell_haproxy(&format!("set server site/spare1 addr 127.0.0.1 port {port}"))?;
                self.tell_haproxy("set server site/spare1 state ready").map(drop)
            }
            Change::Three => self.tell_haproxy("set server site/spare1 state maint").map(drop),
            Change::Certificate => {
                // Also to the file, which the next reload reads.
                let (file, pem) = self.write_haproxy_certificate(CERTIFICATES[1])?;
                self.tell_haproxy(&format!("set ssl cert {} <<\n{}\n", text(&file), pem.trim_end()))?;
                let said = self.tell_haproxy(&format!("commit ssl cert {}", text(&file)))?;
                if said.contains("Success") { Ok(()) } else { Err(Failure::new(format!("haproxy: {}", said.trim()))) }
            }
            _ => {
                self.write(state)?;
                sys::signal_process(self.pid()?, libc::SIGUSR2);
                Ok(())
            }
        }
    }

    fn write_haproxy_certificate(&self, from: &str) -> Result<(PathBuf, String), Failure> {
        let from = self.run.paths.out.join(from).join("site-both.pem");
        let pem = fs::read_to_string(&from).map_err(|error| Failure::io(&from, &error))?;
        let file = self.folder.join("site.pem");
        write_file(&file, &pem)?;
        Ok((file, pem))
    }

    /// A command of HAProxy's runtime API.
    fn tell_haproxy(&self, command: &str) -> Result<String, Failure> {
        let path = self.folder.join("admin.sock");
        let problem = |error: std::io::Error| Failure::io(&path, &error);
        let mut socket = UnixStream::connect(&path).map_err(problem)?;
        socket.set_read_timeout(Some(TIMEOUT)).map_err(problem)?;
        socket.write_all(format!("{command}\n").as_bytes()).map_err(problem)?;
        let mut said = String::new();
        socket.read_to_string(&mut said).map_err(problem)?;
        Ok(said)
    }

    fn upgrade(&mut self) -> Result<(), Failure> {
        match self.product.name {
            // Equipoise starts its executable anew, hands the sockets over, and ends when its clients have been served.
            "haproxy" | "equipoise" => {
                sys::signal_process(self.pid()?, libc::SIGUSR2);
                Ok(())
            }
            "envoy" => {
                let launch = self.launch_envoy(1)?;
                let cores = self.run.bench.product_cores(1);
                let log = self.run.bench.log("envoy-1");
                self.running.push(Running::start("envoy", &launch, &cores, &log)?);
                Ok(())
            }
            "nginx" => {
                let old = self.pid()?;
                sys::signal_process(old, libc::SIGUSR2);
                self.wait(|driven| driven.pid().is_ok_and(|new| new != old && is_there(new)))?;
                sys::signal_process(old, libc::SIGWINCH);
                sys::signal_process(old, libc::SIGQUIT);
                Ok(())
            }
            name => Err(Failure::new(format!("{name} cannot be upgraded while it works"))),
        }
    }

    /// The processes that do the work now, the first of them first.
    pub(super) fn workers(&self) -> Result<Vec<u32>, Failure> {
        let mut pids: Vec<u32> = match self.product.name {
            // Those that the shells started, wherever they hang now.
            "nginx" => procfs::tree(self.pid()?)?.iter().map(|stat| stat.pid).collect(),
            // The new one is nobody's child that the lab started when the old one has ended; the group is the same.
            "equipoise" => procfs::group(self.running[0].pid())?.iter().map(|stat| stat.pid).collect(),
            _ => {
                let trees = self.running.iter().map(|running| procfs::tree(running.pid()));
                trees.collect::<Result<Vec<_>, _>>()?.concat().iter().map(|stat| stat.pid).collect()
            }
        };
        pids.sort_unstable();
        Ok(pids)
    }

    /// Whether the processes that did the work before an upgrade have ended. The master of HAProxy stays: it starts the new
    /// program in its own place.
    pub(super) fn have_ended(&self, before: &[u32]) -> Result<bool, Failure> {
        let stays = if self.product.name == "haproxy" { Some(self.pid()?) } else { None };
        Ok(!before.iter().any(|pid| Some(*pid) != stays && is_there(*pid)))
    }

    /// How long that may take.
    pub(super) fn time_to_end(&self) -> Duration {
        self.drain * 3 + Duration::from_secs(2)
    }

    fn wait(&self, holds: impl Fn(&Self) -> bool) -> Result<(), Failure> {
        let deadline = Instant::now() + TIMEOUT;
        while !holds(self) {
            if Instant::now() > deadline {
                return Err(Failure::new(format!("{}: no new process came", self.product.name)));
            }
            child::pause(Duration::from_millis(5))?;
        }
        Ok(())
    }
}

/// A process that has ended may not have been waited for yet.
fn is_there(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}
