use super::Reading;

/// CPU (all threads, as a counter of percent-seconds) and resident memory of a process.
pub(super) fn read(pid: u32) -> Result<Vec<Reading>, String> {
    let stat =
        std::fs::read_to_string(format!("/proc/{pid}/stat")).map_err(|_| format!("there is no process {pid}"))?;
    // The name in parentheses may hold anything; fields are counted after it.
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .map_or("", |(_, rest)| rest)
        .split_whitespace()
        .collect();
    let number = |index: usize| fields.get(index).and_then(|text| text.parse::<f64>().ok());
    let (Some(user), Some(system), Some(pages)) = (number(11), number(12), number(21)) else {
        return Err(format!("/proc/{pid}/stat has an unknown form"));
    };
    let ticks_per_second = rustix::param::clock_ticks_per_second() as f64;
    let page_bytes = rustix::param::page_size() as f64;
    let percent_seconds = (user + system) / ticks_per_second * 100.0;
    Ok(vec![
        Reading {
            name: format!("CPU of {pid}"),
            unit: "% of a core",
            value: percent_seconds,
            counter: true,
        },
        Reading {
            name: format!("memory of {pid}"),
            unit: "MB",
            value: pages * page_bytes / 1e6,
            counter: false,
        },
    ])
}
