use super::Reading;

/// The usage of a process so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// The CPU time of all its threads, including ended ones, to a clock tick (usually 10 ms).
    ticked_nanos: u64,
    /// The CPU time of its present threads, to the nanosecond.
    scheduled_nanos: u64,
    /// The resident memory, in bytes.
    pub resident_bytes: u64,
}

impl Usage {
    /// Returns the usage of a process on this machine, or the reason why it is not known.
    pub fn of(pid: u32) -> Result<Self, String> {
        let stat =
            std::fs::read_to_string(format!("/proc/{pid}/stat")).map_err(|_| format!("there is no process {pid}"))?;
        // The name in parentheses may contain anything, so fields are counted after it.
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .map_or("", |(_, rest)| rest)
            .split_whitespace()
            .collect();
        let number = |index: usize| fields.get(index).and_then(|text| text.parse::<u64>().ok());
        let (Some(user), Some(system), Some(pages)) = (number(11), number(12), number(21)) else {
            return Err(format!("/proc/{pid}/stat has an unknown form"));
        };
        Ok(Usage {
            ticked_nanos: (user + system) * 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1),
            scheduled_nanos: scheduled_nanos(pid).unwrap_or(0),
            resident_bytes: pages * rustix::param::page_size() as u64,
        })
    }

    /// Returns the CPU time since an earlier look, in nanoseconds. It is exact unless threads have ended in between.
    pub fn cpu_nanos_since(&self, earlier: &Self) -> u64 {
        const TICK_NANOS: u64 = 10_000_000;
        let ticked = self.ticked_nanos.saturating_sub(earlier.ticked_nanos);
        let scheduled = self.scheduled_nanos.saturating_sub(earlier.scheduled_nanos);
        if ticked > scheduled + 2 * TICK_NANOS {
            ticked
        } else {
            scheduled
        }
    }
}

fn scheduled_nanos(pid: u32) -> Option<u64> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let of_thread = |thread: std::fs::DirEntry| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    Some(threads.flatten().filter_map(of_thread).sum())
}

/// Reads the CPU time (all threads, as a counter of percent-seconds) and the resident memory of a process.
pub(super) fn read(pid: u32) -> Result<Vec<Reading>, String> {
    let usage = Usage::of(pid)?;
    Ok(vec![
        Reading {
            name: format!("CPU of {pid}"),
            unit: "% of a core",
            value: usage.ticked_nanos as f64 / 1e7,
            counter: true,
        },
        Reading {
            name: format!("memory of {pid}"),
            unit: "MB",
            value: usage.resident_bytes as f64 / 1e6,
            counter: false,
        },
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_shows_in_the_cpu_time() {
        let before = Usage::of(std::process::id()).unwrap();
        let mut sum = 0_u64;
        let after = loop {
            sum = std::hint::black_box(sum.wrapping_add(1));
            let after = Usage::of(std::process::id()).unwrap();
            if after.cpu_nanos_since(&before) > 0 {
                break after;
            }
        };
        assert!(after.resident_bytes > 0);
    }
}
