//! Who answers behind the products. What is not HTTP/1.1 has programs of its own, which run only in the cells that need them.

use super::bench::{Bench, loopback};
use super::child::{Launch, Running};
use crate::failure::Failure;
use crate::products::Features;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

const START_TIMEOUT: Duration = Duration::from_secs(15);

impl Bench {
    /// The ports of the endpoints in a cell.
    pub(crate) fn endpoints(&self, features: &Features) -> [u16; 4] {
        if features.grpc || features.websocket || features.udp { self.ports.other_origin } else { self.ports.origin }
    }

    /// Starts the endpoints of a cell, unless they are those that are always there.
    pub(crate) fn start_endpoints(&self, features: &Features) -> Result<Vec<Running>, Failure> {
        let ports = self.endpoints(features);
        match features {
            Features { grpc: true, .. } => self.start_each(&ports, |port| {
                let launch = Launch::new(self.paths.peer_file("go-grpc-benchmark/bin/server")?);
                Ok(launch.arg(format!("-port={port}")).arg(format!("-test_name=lab-origin-{port}")))
            }),
            Features { websocket: true, .. } => self.start_each(&ports, |port| {
                let launch = Launch::new(self.paths.peer_file("go-httpbin/bin/go-httpbin")?);
                Ok(launch.args(["-host=127.0.0.1", "-max-duration=10m", "-log-level=OFF", &format!("-port={port}")]))
            }),
            Features { udp: true, .. } => self.start_echo(&ports).map(|echo| vec![echo]),
            _ => Ok(Vec::new()),
        }
    }

    /// A process for each port.
    fn start_each(
        &self,
        ports: &[u16],
        launch: impl Fn(u16) -> Result<Launch, Failure>,
    ) -> Result<Vec<Running>, Failure> {
        let mut all = Vec::new();
        for &port in ports {
            let log = self.log(&format!("origin-{port}"));
            all.push(Running::start("origin", &launch(port)?.env("GOMAXPROCS", "1"), &self.load_cores(1), &log)?);
        }
        for (running, &port) in all.iter_mut().zip(ports) {
            running.wait_listening(loopback(port), START_TIMEOUT)?;
        }
        Ok(all)
    }

    /// One process that sends datagrams back.
    fn start_echo(&self, ports: &[u16]) -> Result<Running, Failure> {
        let mut launch = Launch::new(std::env::current_exe()?).arg("echo");
        for &port in ports {
            launch = launch.arg("--listen").arg(loopback(port).to_string());
        }
        let mut echo = Running::start("origin", &launch, &self.load_cores(1), &self.log("origin-echo"))?;
        let deadline = Instant::now() + START_TIMEOUT;
        let socket = UdpSocket::bind(loopback(0))?;
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        for &port in ports {
            // A port where nobody listens yet refuses; the next look finds somebody.
            while socket.send_to(b"ready?", loopback(port)).is_err() || socket.recv(&mut [0; 16]).is_err() {
                echo.check_alive()?;
                if Instant::now() > deadline {
                    return Err(Failure::new(format!("the origin for datagrams does not answer at {port}")));
                }
            }
        }
        Ok(echo)
    }
}
