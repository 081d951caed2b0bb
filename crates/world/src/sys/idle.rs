//! How deep this host's processors may sleep while there is nothing to run, by the kernel's
//! `/dev/cpu_dma_latency` (Documentation/power/pm_qos_interface.rst).

use std::fs::File;
use std::io::{self, Write};

const DEVICE: &str = "/dev/cpu_dma_latency";
const DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";

/// As long as it lives, the kernel chooses no idle state that takes longer to leave than was asked for. It
/// goes with the process, however that ends.
pub struct Limit {
    _device: File,
}

impl Limit {
    /// `latency_us`: 0 keeps idle processors polling. Errors: no such device (containers, kernels without
    /// it), not root.
    pub fn new(latency_us: i32) -> io::Result<Limit> {
        let mut device = std::fs::OpenOptions::new().write(true).open(DEVICE)?;
        device.write_all(&latency_us.to_ne_bytes())?;
        Ok(Limit { _device: device })
    }
}

/// Whether an idle processor is given away to a host, as in a virtual machine: to have it back takes tens of
/// microseconds, and nothing between that and polling can be had.
pub fn halts_to_host() -> bool {
    std::fs::read_to_string(DRIVER).is_ok_and(|d| d.trim() == "haltpoll")
}

/// Processors that this process may use.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
