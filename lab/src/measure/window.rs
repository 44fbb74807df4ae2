//! A window of time: what a product's processes used in it, and what others did.

use super::procfs;
use crate::failure::Failure;
use crate::sys;

/// An open window.
pub(crate) struct Window {
    pid: u32,
    ticks: procfs::Ticks,
    machine: procfs::Times,
}

/// What happened in a window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used {
    /// CPU time of the product, us.
    pub product_us: u64,
    /// Share of the machine that programs outside the lab used.
    pub others_share: f64,
    /// Share of the machine that its host took away.
    pub stolen_share: f64,
}

impl Window {
    /// Opens a window on the process tree that `pid` heads.
    pub(crate) fn open(pid: u32) -> Result<Self, Failure> {
        Ok(Self { pid, machine: procfs::machine()?, ticks: procfs::Ticks::read(pid)? })
    }

    /// Closes it. Programs that ran inside it must have been waited for, so that they count as the lab's.
    pub(crate) fn close(&self) -> Result<Used, Failure> {
        let ticks = procfs::Ticks::read(self.pid)?;
        let machine = procfs::machine()?;
        let total = machine.total.saturating_sub(self.machine.total).max(1) as f64;
        let product = ticks.product.saturating_sub(self.ticks.product);
        let others = ticks.others.saturating_sub(self.ticks.others);
        let stolen = machine.stolen.saturating_sub(self.machine.stolen);
        Ok(Used {
            product_us: product * 1_000_000 / sys::ticks_per_second(),
            others_share: others as f64 / total,
            stolen_share: stolen as f64 / total,
        })
    }
}
