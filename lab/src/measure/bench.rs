//! The bench: cores, ports, certificate and origin that all measurements of a run share, and the starting of products.

use super::child::{self, Launch, Running};
use crate::certificate;
use crate::failure::Failure;
use crate::net::hold;
use crate::paths::Paths;
use crate::policy;
use crate::products::{Ports, Product, Setup, Start, Version};
use crate::sys;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What `equipoise-alb.yaml` of the study `out-of-the-box` takes for its user.
const TOKEN: &str = "only-the-lab-knows-it";

const START_TIMEOUT: Duration = Duration::from_secs(15);

/// Where Equipoise's executables are and how long to measure.
#[derive(Clone, Debug)]
pub(crate) struct BenchOptions {
    /// Equipoise.
    pub equipoise: PathBuf,
    /// Another Equipoise.
    pub baseline: Option<PathBuf>,
    /// The lowest of the ports used.
    pub port_base: u16,
    /// How long a measurement takes.
    pub measured: Duration,
    /// How long the same load runs before it.
    pub warm_up: Duration,
}

/// The bench.
pub(crate) struct Bench {
    pub(super) paths: Paths,
    pub(crate) ports: Ports,
    pub(super) options: BenchOptions,
    templates: PathBuf,
    files: u64,
    cores: Vec<usize>,
}

impl Bench {
    /// Checks the ports, makes the certificate, and moves the lab itself off the product's core. Products are configured
    /// by the templates of the study.
    pub(crate) fn new(paths: &Paths, study: &str, options: BenchOptions) -> Result<Self, Failure> {
        let files = sys::raise_open_files()?;
        let cores = sys::cores_allowed()?;
        if cores.len() < 2 {
            return Err(Failure::new("the lab needs two cores: one for the product, one for load and origin"));
        }
        let ports = Ports::from_base(options.port_base);
        let own = [ports.web, ports.secure, ports.admin];
        for port in ports.origin.into_iter().chain(ports.other_origin).chain(own) {
            TcpListener::bind(loopback(port))
                .map_err(|error| Failure::new(format!("port {port} is not free ({error}); choose --port-base")))?;
        }
        certificate::ensure(&paths.out.join("tls"))?;
        policy::ensure(&paths.policy())?;
        sys::pin_self(&load_cores(&cores, 1))?;
        Ok(Self { paths: paths.clone(), ports, options, templates: paths.studies(study), files, cores })
    }

    /// Starts the lab's origin on its four addresses.
    pub(crate) fn start_origin(&self) -> Result<Running, Failure> {
        let mut launch = Launch::new(std::env::current_exe()?).arg("origin");
        for port in self.ports.origin {
            launch = launch.arg("--listen").arg(loopback(port).to_string());
        }
        let mut origin = Running::start("origin", &launch, &self.load_cores(1), &self.log("origin"))?;
        for port in self.ports.origin {
            origin.wait_listening(loopback(port), START_TIMEOUT)?;
        }
        Ok(origin)
    }

    /// How many cores the lab can use.
    pub(crate) fn core_count(&self) -> usize {
        self.cores.len()
    }

    /// The cores of generators.
    pub(crate) fn load_cores(&self, workers: usize) -> Vec<usize> {
        load_cores(&self.cores, workers)
    }

    /// The cores of a product.
    pub(crate) fn product_cores(&self, workers: usize) -> Vec<usize> {
        product_cores(&self.cores, workers)
    }

    /// The address of the product's plain or TLS listener.
    pub(crate) fn target(&self, tls: bool) -> SocketAddr {
        loopback(if tls { self.ports.secure } else { self.ports.web })
    }

    /// A file for the output of something that the lab starts.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.paths.out.join(format!("{name}.log"))
    }

    /// What a product is told.
    fn setup<'a>(&'a self, product: &'a Product, dir: &'a Path, workers: usize) -> Setup<'a> {
        Setup {
            product,
            paths: &self.paths,
            templates: &self.templates,
            dir,
            ports: self.ports,
            workers,
            files: self.files,
            equipoise: &self.options.equipoise,
            baseline: self.options.baseline.as_deref(),
        }
    }

    /// The folder of a product's files.
    pub(crate) fn folder(&self, start: &Start<'_>) -> PathBuf {
        self.paths.out.join(start.product.name).join(start.variant)
    }

    /// Equipoise's executable.
    pub(crate) fn equipoise(&self) -> &Path {
        &self.options.equipoise
    }

    /// A product's version and TLS library.
    pub(crate) fn version(&self, product: &Product) -> Result<Version, Failure> {
        (product.version)(&self.setup(product, &self.paths.out, 1))
    }

    /// Writes a product's configuration, anew if it is there, and returns the file that it is started with.
    pub(crate) fn configure(&self, start: &Start<'_>) -> Result<PathBuf, Failure> {
        self.setup(start.product, &self.folder(start), start.workers).configure(start)
    }

    /// Configures and starts a product on its own cores, and waits until it proxies.
    pub(crate) fn start(&self, start: &Start<'_>) -> Result<Running, Failure> {
        let Start { product, workers, .. } = *start;
        let dir = self.folder(start);
        let setup = self.setup(product, &dir, workers);
        let launch = (product.launch)(&setup, &setup.configure(start)?)?;
        let (cores, log) = (self.product_cores(workers), self.log(product.name));
        let mut running = match start.syslog {
            Some(to) => Running::start_forwarded(product.name, &launch, &cores, &log, to)?,
            None => Running::start(product.name, &launch, &cores, &log)?,
        };
        if let Some(file) = start.told {
            self.tell(&mut running, &dir.join(file))?;
        }
        self.wait_ready(&mut running, start)?;
        Ok(running)
    }

    /// Tells Equipoise its configuration by its API, as its user does.
    fn tell(&self, running: &mut Running, file: &Path) -> Result<(), Failure> {
        let admin = loopback(self.ports.admin);
        running.wait_listening(admin, START_TIMEOUT)?;
        let put = Launch::new(self.equipoise()).args(["ctl", "--admin", &admin.to_string(), "config", "put"]).arg(file);
        child::done(&put.env("EQUIPOISE_TOKEN", TOKEN))
    }

    /// Starts a product as an origin, on the cores of the load, and waits until it listens on the ports.
    pub(crate) fn start_as_origin(&self, start: &Start<'_>, ports: &[u16]) -> Result<Running, Failure> {
        let dir = self.folder(start);
        let setup = self.setup(start.product, &dir, start.workers);
        let launch = (start.product.launch)(&setup, &setup.configure(start)?)?;
        let mut running = Running::start("origin", &launch, &self.load_cores(1), &self.log("origin"))?;
        for &port in ports {
            running.wait_listening(loopback(port), START_TIMEOUT)?;
        }
        Ok(running)
    }

    /// Waits until a product listens and, if it is to be probed, answers 200.
    pub(crate) fn wait_ready(&self, running: &mut Running, start: &Start<'_>) -> Result<(), Failure> {
        running.wait_listening(self.target(start.features.tls), START_TIMEOUT)?;
        let Some(path) = start.probe else { return Ok(()) };
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let problem = match self.ask_once(path) {
                Ok(200) => return Ok(()),
                Ok(status) => format!("it answers {status}"),
                Err(error) => error.to_string(),
            };
            running.check_alive()?;
            if Instant::now() > deadline {
                let name = start.product.name;
                return Err(Failure::new(format!("{name} does not proxy: {problem}; {}", running.log_end())));
            }
            child::pause(Duration::from_millis(50))?;
        }
    }

    fn ask_once(&self, path: &str) -> std::io::Result<u16> {
        let address = self.target(false);
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        hold::exchange(&mut stream, address, path)
    }
}

/// An address that only this machine reaches.
pub(crate) fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// The product gets the first cores, as many as it has workers.
fn product_cores(cores: &[usize], workers: usize) -> Vec<usize> {
    cores[..workers.clamp(1, cores.len())].to_vec()
}

/// Load and origin get the rest, and at least the last core (which they then share with the product).
fn load_cores(cores: &[usize], workers: usize) -> Vec<usize> {
    cores[workers.clamp(1, cores.len() - 1)..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_product_has_its_cores_to_itself_while_there_are_enough() {
        assert_eq!((product_cores(&[0, 1], 1), load_cores(&[0, 1], 1)), (vec![0], vec![1]));
        assert_eq!((product_cores(&[0, 1], 2), load_cores(&[0, 1], 2)), (vec![0, 1], vec![1]));
        assert_eq!((product_cores(&[2, 3, 5, 7], 2), load_cores(&[2, 3, 5, 7], 2)), (vec![2, 3], vec![5, 7]));
    }
}
