//! Kills and power losses. Each client moves cents between two accounts of its own. Afterwards the accounts are compared with the answers.

use anyhow::{Context as _, ensure};
use rustix::process::Signal;
use serde::Serialize;
use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};
use throng_load::{Next, Outcome, Shot, Source, Verdict};

use super::{CONTENDERS, Contender};
use crate::faults::{SmallDisk, disk_unavailable, signal};

/// The number of clients, each with two accounts and one transfer in flight.
pub(super) const CLIENTS: u32 = 16;
/// The transfers that are acknowledged before the fault.
const BEFORE: u64 = 1_000;
const DISK_MEGABYTES: u64 = 512;
const PAUSE: Duration = Duration::from_millis(1);

/// Returns the accounts of a client.
pub(super) fn accounts_of(client: u32) -> (u32, u32) {
    (2 * client + 1, 2 * client + 2)
}

/// The answers that the clients got. Each client writes only its own row. Meanwhile the thread that makes the fault reads the sum; it reads the rows
/// after the clients have ended.
#[derive(Debug, Default)]
pub(super) struct Tally {
    acknowledged: [AtomicU64; CLIENTS as usize],
    /// Transfers without an answer, which may have happened.
    open: [AtomicU64; CLIENTS as usize],
}

impl Tally {
    /// Counts a transfer that was acknowledged, or that has no answer.
    pub(super) fn count(&self, client: u32, is_acknowledged: bool) {
        let rows = if is_acknowledged {
            &self.acknowledged
        } else {
            &self.open
        };
        rows[client as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged.iter().map(|row| row.load(Ordering::Relaxed)).sum()
    }
}

/// The requests of a contender that uses HTTP.
pub(super) trait PairRequests: Send {
    /// Writes a transfer of one cent between the client's accounts.
    fn write(&mut self, client: u32, bytes: &mut Vec<u8>);
    fn is_acknowledged(&mut self, client: u32, outcome: &Outcome<'_>) -> bool;
}

/// The clients over HTTP, each with a connection. The first failure ends all of them.
pub(super) struct PairSource<R> {
    requests: R,
    tally: Arc<Tally>,
    free: Vec<u32>,
    bytes: Vec<u8>,
    has_failed: bool,
}

impl<R> PairSource<R> {
    pub(super) fn new(requests: R, tally: Arc<Tally>) -> Self {
        Self {
            requests,
            tally,
            free: (0..CLIENTS).collect(),
            bytes: Vec::new(),
            has_failed: false,
        }
    }
}

impl<R: PairRequests> Source for PairSource<R> {
    fn next(&mut self, _: u64) -> Next<'_> {
        if self.has_failed {
            return Next::Done;
        }
        let Some(client) = self.free.pop() else {
            return Next::WaitForAnswer;
        };
        self.bytes.clear();
        self.requests.write(client, &mut self.bytes);
        Next::Send(Shot::new(&self.bytes, client.into()))
    }

    fn answered(&mut self, tag: u64, outcome: &Outcome<'_>) -> Verdict {
        let client = tag as u32;
        let is_acknowledged = self.requests.is_acknowledged(client, outcome);
        self.tally.count(client, is_acknowledged);
        self.has_failed |= !is_acknowledged;
        self.free.push(client);
        Verdict::ByStatus
    }
}

/// The outcome of a fault.
#[derive(Debug, Serialize)]
pub(super) struct Loss {
    pub(super) contender: &'static str,
    pub(super) fault: &'static str,
    pub(super) acknowledged: u64,
    /// Acknowledged transfers that are missing.
    pub(super) lost: u64,
    /// Transfers that were never requested, or that only one account has.
    pub(super) other: u64,
}

/// Makes the faults of each wanted contender, on a small disk of its own if this machine can have one.
pub(super) fn find(
    place: &Path,
    is_wanted: impl Fn(&str) -> bool,
    notes: &mut Vec<String>,
) -> anyhow::Result<Vec<Loss>> {
    let why = disk_unavailable();
    if let Some(why) = &why {
        notes.push(format!("no disk lost its power: it {why}"));
    }
    let mut losses = Vec::new();
    for (name, start) in CONTENDERS {
        if !is_wanted(name) {
            continue;
        }
        let disk = match &why {
            None => Some(SmallDisk::create(place, DISK_MEGABYTES)?),
            Some(_) => None,
        };
        let within = disk.as_ref().map_or(place, |disk| &disk.root);
        // Dropped before the disk it stands on.
        let mut contender = start(within).context(name)?;
        contender.open(2 * CLIENTS).context(name)?;
        if let Some(disk) = &disk {
            // Syncs the files of the setup, such as settings.
            rustix::fs::syncfs(fs::File::open(&disk.root)?)?;
        }
        let tally = Arc::new(Tally::default());
        losses.push(fail(&mut *contender, &tally, None).context(name)?);
        if let Some(disk) = &disk {
            losses.push(fail(&mut *contender, &tally, Some(disk)).context(name)?);
        }
    }
    Ok(losses)
}

/// Makes one fault. The tally continues from the fault before, because earlier acknowledged transfers must still be there.
fn fail(contender: &mut dyn Contender, tally: &Arc<Tally>, disk: Option<&SmallDisk>) -> anyhow::Result<Loss> {
    let wanted = tally.acknowledged() + BEFORE;
    let clients = thread::spawn(contender.clients(Arc::clone(tally))?);
    while tally.acknowledged() < wanted && !clients.is_finished() {
        thread::sleep(PAUSE);
    }
    // Their ids stand in files on the disk, so they are read first.
    let processes = contender.processes();
    if let Some(disk) = disk {
        disk.lose_power()?;
    }
    signal(&processes, Signal::KILL);
    contender.wait_for_end()?;
    clients
        .join()
        .map_err(|_| anyhow::anyhow!("the clients of {} panicked", contender.name()))??;
    ensure!(
        tally.acknowledged() >= wanted,
        "it refused a transfer before the fault: {} were acknowledged",
        tally.acknowledged()
    );
    if let Some(disk) = disk {
        disk.power_on()?;
    }
    contender.resume()?;
    let mut loss = Loss {
        contender: contender.name(),
        fault: if disk.is_some() { "power loss" } else { "kill -9" },
        acknowledged: tally.acknowledged(),
        lost: 0,
        other: 0,
    };
    for client in 0..CLIENTS {
        let (from, to) = accounts_of(client);
        let acknowledged = tally.acknowledged[client as usize].load(Ordering::Relaxed);
        let open = tally.open[client as usize].load(Ordering::Relaxed);
        let there = contender.moved(from, to)?;
        let (lost, other) = compare(acknowledged, open, there);
        loss.lost += lost;
        loss.other += other;
    }
    Ok(loss)
}

/// Returns the number of lost transfers, and that of transfers that were never requested or that only one account has.
fn compare(acknowledged: u64, open: u64, [left, came]: [u64; 2]) -> (u64, u64) {
    let whole = left.min(came);
    let lost = acknowledged.saturating_sub(whole);
    let other = left.abs_diff(came) + whole.saturating_sub(acknowledged + open);
    (lost, other)
}

#[cfg(test)]
mod tests {
    use super::compare;

    #[test]
    fn lost_unasked_and_halved_transfers_are_found() {
        assert_eq!(compare(5, 0, [5, 5]), (0, 0));
        assert_eq!(compare(5, 1, [6, 6]), (0, 0), "one without an answer has happened");
        assert_eq!(compare(5, 1, [4, 4]), (1, 0));
        assert_eq!(compare(5, 1, [7, 7]), (0, 1));
        assert_eq!(compare(5, 0, [5, 4]), (1, 1), "the money has left and never came");
    }
}
