//! Memory of idle connections: a holder opens them, makes one request on each, and keeps them.

use super::bench::Bench;
use super::child::{self, Launch, Running};
use super::window::Window;
use super::{Sample, procfs};
use crate::failure::Failure;
use std::time::Duration;

const HOLD_TIMEOUT: Duration = Duration::from_secs(60);
const SETTLE: Duration = Duration::from_millis(1200);

impl Bench {
    /// Holds connections idle and divides what the product's memory grew by their number.
    pub(crate) fn idle(&self, product: &mut Running, connections: usize, tls: bool) -> Result<Sample, Failure> {
        // First a few, which are closed again, so that what the product allocates once is not counted.
        drop(self.hold(50, tls)?);
        child::pause(SETTLE)?;
        let window = Window::open(Some(product.pid()))?;
        let before = procfs::memory_bytes(product.pid())?;
        let holder = self.hold(connections, tls)?;
        child::pause(SETTLE)?;
        let after = procfs::memory_bytes(product.pid())?;
        product.check_alive()?;
        drop(holder);
        let used = window.close()?;
        Ok(Sample {
            connection_bytes: Some((after as f64 - before as f64) / connections as f64),
            requests: connections as u64,
            others_share: used.others_share,
            stolen_share: used.stolen_share,
            ..Sample::default()
        })
    }

    fn hold(&self, connections: usize, tls: bool) -> Result<Running, Failure> {
        let mut launch = Launch::new(std::env::current_exe()?).arg("hold").arg("--to");
        launch = launch.arg(self.target(tls).to_string()).arg("--connections").arg(connections.to_string());
        if tls {
            launch = launch.arg("--trust").arg(self.paths.out.join("tls/site.pem"));
        }
        let mut holder = Running::start_held("hold", &launch, &self.load_cores(1), &self.log("hold"))?;
        holder.wait_said(&format!("held {connections}"), HOLD_TIMEOUT)?;
        Ok(holder)
    }
}
