//! What a host is made of, kept with what was measured on it: product, kernel, processors, memory, disks.

use serde::Serialize;
use std::path::Path;
use world::sys::files;

/// Bytes of a sector in the kernel's accounts, whatever the disk's own are.
const SECTOR_BYTES: u64 = 512;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Disk {
    pub name: String,
    pub model: Option<String>,
    pub firmware: Option<String>,
    pub bytes: u64,
    pub rotational: bool,
}

/// What could be read; `None` where the host does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Inventory {
    pub host: String,
    pub product: Option<String>,
    pub kernel: Option<String>,
    pub cpu: Option<String>,
    pub cores: usize,
    pub memory_bytes: Option<u64>,
    pub disks: Vec<Disk>,
}

fn line(path: impl AsRef<Path>) -> Option<String> {
    let text = files::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_string())
}

/// The value of the first `key : value` of a text.
fn value(text: &str, key: &str) -> Option<String> {
    let found = text.lines().find_map(|l| l.split_once(':').filter(|(k, _)| k.trim() == key));
    found.map(|(_, v)| v.trim().to_string()).filter(|v| !v.is_empty())
}

fn memory(text: &str, key: &str) -> Option<u64> {
    value(text, key)?.strip_suffix("kB")?.trim().parse::<u64>().ok().map(|k| k << 10)
}

/// Bytes of memory that could be taken now without harm to others.
pub fn memory_available() -> Option<u64> {
    memory(&files::read_to_string("/proc/meminfo").ok()?, "MemAvailable")
}

fn disk(name: &str) -> Option<Disk> {
    let at = Path::new("/sys/block").join(name);
    let sectors: u64 = line(at.join("size"))?.parse().ok()?;
    // loop and ram devices that hold nothing are listed too
    if sectors == 0 {
        return None;
    }
    Some(Disk {
        name: name.to_string(),
        model: line(at.join("device/model")),
        firmware: line(at.join("device/firmware_rev")).or_else(|| line(at.join("device/rev"))),
        bytes: sectors.saturating_mul(SECTOR_BYTES),
        rotational: line(at.join("queue/rotational")).as_deref() == Some("1"),
    })
}

/// Of this host.
pub fn here() -> Inventory {
    let cpu = files::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mem = files::read_to_string("/proc/meminfo").unwrap_or_default();
    let vendor = line("/sys/class/dmi/id/sys_vendor");
    let product = line("/sys/class/dmi/id/product_name");
    Inventory {
        host: world::sys::hostname(),
        product: match (vendor, product) {
            (Some(v), Some(p)) => Some(format!("{v} {p}")),
            (v, p) => v.or(p),
        },
        kernel: line("/proc/sys/kernel/osrelease"),
        cpu: value(&cpu, "model name"),
        cores: world::sys::idle::processors(),
        memory_bytes: memory(&mem, "MemTotal"),
        disks: files::list("/sys/block").unwrap_or_default().iter().filter_map(|n| disk(n)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_described() {
        let i = here();
        assert!(i.kernel.is_some_and(|k| k.contains('.')));
        assert!(i.cores > 0 && i.memory_bytes.is_some_and(|m| m > 1 << 20));
        assert!(i.disks.iter().all(|d| d.bytes > 0 && !d.name.is_empty()));
        assert!(memory_available().is_some_and(|m| m > 0));
        assert_eq!(value("a\t: 1\nb : x y \nc :\n", "b"), Some("x y".into()));
        assert_eq!(value("c :\n", "c"), None);
        assert_eq!(memory("MemTotal:  2 kB\n", "MemTotal"), Some(2048));
    }
}
