//! A backup that follows the service, restored at random moments and compared with the history up to them.

use super::{
    check::{self, Findings},
    history::{self, Event, History},
    load::Operation,
    run::{Outage, Run},
};
use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};
use throng::journal::Position;

use crate::service::{Launch, program};

/// The restores of one backup at a commit, and as many at a time.
const RESTORES: usize = 3;

/// A backup that has ended.
pub(super) struct Backup {
    directory: PathBuf,
    /// The moment when it was told to end. The backup has everything from before.
    told_to_end: u64,
}

impl Run<'_> {
    /// Starts a backup that follows the service, and kills the service meanwhile.
    pub(super) fn restore(&mut self) -> anyhow::Result<Outage> {
        let directory = self.directory.join("backup");
        let mut command = program("registration")?;
        command
            .args(["journal", "backup", &self.launch.place])
            .arg(&directory)
            .args(["--follow", "--json"])
            .stdout(Stdio::null());
        let mut backup = command.spawn().context("cannot start the backup")?;
        self.until("the backup begins", |_| directory.exists())?;
        self.go_on(200..1_500);
        self.kill();
        let outage = Outage::Since(self.now());
        self.start()?;
        self.go_on(500..1_500);
        let told_to_end = self.now();
        let _ = kill_process(Pid::from_child(&backup), Signal::TERM);
        let status = backup.wait()?;
        ensure!(status.success(), "the backup ended with {status}");
        self.backup = Some(Backup { directory, told_to_end });
        Ok(outage)
    }
}

impl Backup {
    /// Restores all of it, and some moments of it.
    pub(super) fn check(
        &self,
        launch: &Launch,
        operations: &[Operation],
        histories: &[History],
        random: &mut fastrand::Rng,
    ) -> anyhow::Result<Findings> {
        let mut findings = self.check_whole(launch, operations)?;
        let mut all: Vec<&Event> = histories.iter().flat_map(|history| &history.events).collect();
        all.sort_by_key(|event| event.position);
        let is_before = |operation: &&Operation| operation.answered.is_some_and(|at| at < self.told_to_end);
        let changes = operations.iter().filter(|operation| operation.is_acknowledged_change());
        // The backup has at least this many events, and they are the first ones.
        let certain = &all[..changes.filter(is_before).count().min(all.len())];
        for _ in 0..RESTORES {
            let Some(event) = random.choice(certain) else { break };
            let (position, at) = (
                event.position.context("it has a position")?,
                event.at.context("it has a time")?,
            );
            self.check_moment(launch, &position.to_string(), histories, Some(position), &mut findings)?;
            let upto = all.iter().take_while(|other| other.at <= Some(at)).last();
            let last = upto.and_then(|other| other.position);
            self.check_moment(launch, &at.to_string(), histories, last, &mut findings)?;
        }
        Ok(findings)
    }

    /// Checks that the backup has everything acknowledged before it was told to end.
    fn check_whole(&self, launch: &Launch, operations: &[Operation]) -> anyhow::Result<Findings> {
        let restored = self.restored(launch, None)?;
        let known: Vec<Operation> = operations
            .iter()
            .map(|operation| {
                let mut known = operation.clone();
                known.answered = known.answered.filter(|at| *at < self.told_to_end);
                known
            })
            .collect();
        Ok(check::check(&known, &restored))
    }

    fn check_moment(
        &self,
        launch: &Launch,
        at: &str,
        histories: &[History],
        last: Option<Position>,
        findings: &mut Findings,
    ) -> anyhow::Result<()> {
        let restored = self.restored(launch, Some(at))?;
        for (history, found) in histories.iter().zip(&restored) {
            let expected: Vec<&Event> = history.events.iter().filter(|event| event.position <= last).collect();
            if !found.events.iter().eq(expected.iter().copied()) {
                findings.other(format!(
                    "S{} restored at {at} has {} events, and had {} then",
                    history.section,
                    found.events.len(),
                    expected.len()
                ));
            }
            if found.taken as usize != found.roster.len() {
                findings.other(format!(
                    "S{} restored at {at}: {} taken, {} on its roster",
                    found.section,
                    found.taken,
                    found.roster.len()
                ));
            }
        }
        Ok(())
    }

    /// Returns the histories of a service that is started on a restored journal.
    fn restored(&self, launch: &Launch, at: Option<&str>) -> anyhow::Result<Vec<History>> {
        let target = self.directory.with_file_name("restored");
        let restored = restore(&self.directory, &target, at).and_then(|()| {
            let launch = Launch {
                place: format!("file:{}", target.display()),
                arguments: launch.arguments.iter().cloned().chain(["--quiet".into()]).collect(),
                ..launch.clone()
            };
            let service = launch.start()?;
            let histories = history::fetch(service.address)?;
            service.kill();
            Ok(histories)
        });
        let _ = fs::remove_dir_all(&target);
        restored
    }
}

fn restore(from: &Path, to: &Path, at: Option<&str>) -> anyhow::Result<()> {
    let mut command = program("registration")?;
    command.args(["journal", "restore"]).args([from, to]);
    if let Some(at) = at {
        command.args(["--at", at]);
    }
    let output = command.output().context("cannot restore")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "restoring at {at:?} failed: {}", said.trim());
    Ok(())
}
