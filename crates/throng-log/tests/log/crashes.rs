//! Random epochs of a log: appends, clean ends, kills, power losses, failing calls. Acknowledged commits are always there. No commit appears that was
//! not appended. A reported end never changes.

use crate::{
    disk::{Call, Chance, Disk, Fault},
    kit::{self, count, open_writer, options},
};
use proptest::prelude::*;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use throng_journal::{Durability, Journal, ShardId, WriterId, conformance::block_on};
use throng_log::{Log, Options};

#[derive(Clone, Debug)]
enum Step {
    Append(u16),
    Sync,
    Stop,
    Kill,
    LosePower(u64),
    Fail(Call, u64, u64),
    Seal,
}

fn step() -> impl Strategy<Value = Step> {
    let call = prop::sample::select(vec![
        Call::Write,
        Call::Sync,
        Call::Sync,
        Call::Allocate,
        Call::SyncDir,
        Call::Open,
        Call::Read,
        Call::SetLength,
        Call::Remove,
    ]);
    prop_oneof![
        20 => (0u16..2500).prop_map(Step::Append),
        2 => Just(Step::Sync),
        1 => Just(Step::Stop),
        1 => Just(Step::Kill),
        2 => any::<u64>().prop_map(Step::LosePower),
        2 => (call, 0u64..6, 1u64..4).prop_map(|(call, after, times)| Step::Fail(call, after, times)),
        1 => Just(Step::Seal),
    ]
}

/// The commits that must be there, and those that may be there.
#[derive(Debug, Default)]
struct Model {
    /// The commits appended, acknowledged, and known to survive power loss, by writer.
    appended: BTreeMap<WriterId, u64>,
    acknowledged: BTreeMap<WriterId, u64>,
    synced: BTreeMap<WriterId, u64>,
    /// The ends that the journal has reported.
    sealed: BTreeMap<WriterId, u64>,
}

struct World {
    disk: Disk,
    options: Options,
    log: Option<Log>,
    writer: Option<WriterId>,
    model: Model,
}

impl World {
    fn new(durability: Durability, sync_delay: Duration) -> Self {
        let disk = Disk::new();
        Self {
            options: Options {
                durability,
                sync_delay,
                segment_bytes: 8 << 10,
                ..options(&disk)
            },
            disk,
            log: None,
            writer: None,
            model: Model::default(),
        }
    }

    /// Returns a log with a writer, and opens it if necessary. Opening may fail under faults, but not on a healed disk.
    fn up(&mut self) -> Option<(&Log, WriterId)> {
        if self.log.is_none() {
            let options = Options {
                files: Arc::new(self.disk.process()),
                ..self.options.clone()
            };
            self.log = Log::open(kit::DIR, options).ok();
        }
        let log = self.log.as_ref()?;
        if self.writer.is_none() {
            self.writer = open_writer(log).ok();
            let writer = self.writer?;
            assert!(
                !self.model.appended.contains_key(&writer),
                "writer {writer} is given twice"
            );
            self.model.appended.insert(writer, 0);
        }
        self.writer.map(|writer| (log, writer))
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Append(bytes) => {
                let Some((_, writer)) = self.up() else { return };
                let number = self.model.appended[&writer] + 1;
                let Some(log) = &self.log else { return };
                let result = kit::append(log, writer, number, usize::from(*bytes));
                self.model.appended.insert(writer, number);
                match result {
                    Ok(()) => {
                        self.model.acknowledged.insert(writer, number);
                        if self.options.durability == Durability::Fsync {
                            self.model.synced.insert(writer, number);
                        }
                    }
                    // The writer is over; the next append needs another one.
                    Err(_) => self.writer = None,
                }
            }
            Step::Sync => {
                if let Some((log, writer)) = self.up()
                    && log.sync().is_ok()
                {
                    let acknowledged = self.model.acknowledged.get(&writer).copied().unwrap_or(0);
                    self.model.synced.insert(writer, acknowledged);
                }
            }
            Step::Seal => {
                let Some((log, writer)) = self.up() else { return };
                if let Ok(last) = block_on(log.seal(writer)) {
                    self.told(writer, last.0);
                    self.writer = None;
                }
            }
            Step::Stop => {
                self.log = None;
                self.writer = None;
            }
            Step::Kill => {
                self.disk.kill_process();
                self.log = None;
                self.writer = None;
                self.check(false);
            }
            Step::LosePower(seed) => {
                self.disk.lose_power(&mut Chance::new(*seed));
                self.log = None;
                self.writer = None;
                self.check(true);
            }
            Step::Fail(call, after, times) => self.disk.fail(Fault {
                times: *times,
                ..Fault::once(*call, *after)
            }),
        }
    }

    fn told(&mut self, writer: WriterId, last: u64) {
        let known = *self.model.sealed.entry(writer).or_insert(last);
        assert_eq!(known, last, "the end of writer {writer} changed after it was told");
    }

    /// Opens the log on a healed disk, and compares it with the model.
    fn check(&mut self, power_was_lost: bool) {
        self.disk.heal();
        if self.up().is_none() {
            let log = Log::open(kit::DIR, options(&self.disk)).map(|log| open_writer(&log));
            panic!("a healed disk is not opened: {log:?}");
        }
        let (log, writer) = self.up().unwrap();
        assert_eq!(count(log, writer), 0);
        let taken = block_on(log.take(writer, &[ShardId(0)])).unwrap();
        let mut ends: BTreeMap<WriterId, u64> = BTreeMap::new();
        for stream in &taken {
            let found = count(log, stream.writer);
            assert_eq!(
                found, stream.last.0,
                "the stream of writer {} ends where it says",
                stream.writer
            );
            ends.insert(stream.writer, found);
        }
        for (writer, appended) in self.model.appended.clone() {
            if Some(writer) == self.writer {
                continue;
            }
            let found = ends.get(&writer).copied().unwrap_or(0);
            let survives = if power_was_lost && !self.model.sealed.contains_key(&writer) {
                &self.model.synced
            } else {
                &self.model.acknowledged
            };
            let least = survives.get(&writer).copied().unwrap_or(0);
            assert!(
                found >= least,
                "writer {writer}: {found} commits where {least} were acknowledged"
            );
            assert!(
                found <= appended,
                "writer {writer}: {found} commits where {appended} were appended"
            );
            if ends.contains_key(&writer) {
                self.model.acknowledged.insert(writer, found);
                self.told(writer, found);
            }
        }
    }
}

fn live(steps: &[Step], durability: Durability, sync_delay: Duration) {
    let mut world = World::new(durability, sync_delay);
    for step in steps {
        world.run(step);
    }
    world.log = None;
    world.writer = None;
    world.check(false);
}

/// Returns this many cases, or the number in `PROPTEST_CASES`.
fn cases(default: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok());
    ProptestConfig {
        cases: asked.unwrap_or(default),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn acknowledged_commits_survive_every_fault(steps in prop::collection::vec(step(), 1..80)) {
        live(&steps, Durability::Fsync, Duration::ZERO);
    }

    #[test]
    fn synced_commits_survive_where_the_system_syncs(steps in prop::collection::vec(step(), 1..80)) {
        live(&steps, Durability::Os, Duration::ZERO);
    }
}

proptest! {
    #![proptest_config(cases(10))]

    #[test]
    fn acknowledged_commits_survive_on_a_slow_disk(steps in prop::collection::vec(step(), 1..80)) {
        live(&steps, Durability::Fsync, Duration::from_micros(300));
    }
}
