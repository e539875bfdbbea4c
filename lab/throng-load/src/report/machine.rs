use serde::{Deserialize, Serialize};

/// The machine and program of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// The cores that this process may use.
    pub cores: usize,
    /// The memory in bytes.
    pub memory_bytes: u64,
    /// The kernel's name and release.
    pub kernel: String,
    /// The version of this program.
    pub version: String,
}

impl Machine {
    /// Returns the machine that this program runs on.
    pub fn here() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let processor = read("/proc/cpuinfo")
            .lines()
            .find_map(|line| Some(line.strip_prefix("model name")?.split_once(':')?.1.trim().to_string()))
            .unwrap_or_else(|| std::env::consts::ARCH.to_string());
        let memory_kib = read("/proc/meminfo")
            .lines()
            .find_map(|line| {
                line.strip_prefix("MemTotal:")?
                    .split_whitespace()
                    .next()?
                    .parse::<u64>()
                    .ok()
            })
            .unwrap_or(0);
        let system = rustix::system::uname();
        Machine {
            processor,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory_kib * 1024,
            kernel: format!(
                "{} {}",
                system.sysname().to_string_lossy(),
                system.release().to_string_lossy()
            ),
            version: format!("throng-load {}", env!("CARGO_PKG_VERSION")),
        }
    }
}
