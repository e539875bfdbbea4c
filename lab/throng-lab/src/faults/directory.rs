//! Faults of a process and of its disk.

use super::{
    kind::Kind,
    run::{Outage, Run},
    shim::Rates,
};
use anyhow::Context as _;
use rustix::process::Signal;
use std::sync::atomic::Ordering;

use crate::http_client::{self, ANSWER_WAIT, Connection};

impl Run<'_> {
    pub(super) fn fault(&mut self, kind: Kind) -> anyhow::Result<Outage> {
        match kind {
            Kind::Kill | Kind::PgKill => self.kill_and_start(0),
            Kind::KillStart => {
                let starts = self.random.u32(1..=3);
                self.kill_and_start(starts)
            }
            Kind::KillEnd => {
                self.signal(Signal::TERM)?;
                self.go_on(0..60);
                self.kill_and_start(0)
            }
            Kind::Pause => {
                self.signal(Signal::STOP)?;
                self.go_on(200..3_000);
                let outage = Outage::Since(self.now());
                self.signal(Signal::CONT)?;
                Ok(outage)
            }
            Kind::ErrorsLog | Kind::ErrorsStore | Kind::ErrorsMixed | Kind::ErrorsKill => self.errors(kind),
            Kind::Full | Kind::FullKill => self.full(kind == Kind::FullKill),
            Kind::Power => self.power(),
            Kind::Restore => self.restore(),
            Kind::AttackMessages
            | Kind::AttackBodies
            | Kind::AttackStreams
            | Kind::AttackHistories
            | Kind::AttackHeads
            | Kind::AttackSubscriptions
            | Kind::AttackAnswers
            | Kind::AttackResets
            | Kind::AttackCommands
            | Kind::AttackConnections => self.attack(kind),
            Kind::Attacks => self.attack_in_each_way(),
            Kind::PgTerminate | Kind::PgRestart | Kind::PgPause | Kind::PgCrash | Kind::PgFull | Kind::PgFullWal => {
                self.database(kind)
            }
            // This fault has a run of its own, in `failover`.
            Kind::Failover => anyhow::bail!("it replaces servers that this run does not have"),
            Kind::TakeOver | Kind::TakeOverKilled | Kind::TakeOverPaused => self.take_over(kind),
            Kind::ClusterKill
            | Kind::ClusterPause
            | Kind::ClusterDrain
            | Kind::ClusterMove
            | Kind::ClusterRoll
            | Kind::ClusterTerminate
            | Kind::ClusterPgRestart
            | Kind::ClusterStorm
            | Kind::ClusterCut
            | Kind::ClusterCutProxied => self.cluster(kind),
        }
    }

    fn kill_and_start(&mut self, starts_killed: u32) -> anyhow::Result<Outage> {
        self.kill();
        let outage = Outage::Since(self.now());
        for _ in 0..starts_killed {
            let service = self.launch.spawn()?;
            self.go_on(0..150);
            service.kill();
        }
        self.start()?;
        Ok(outage)
    }

    fn errors(&mut self, kind: Kind) -> anyhow::Result<Outage> {
        let often = [5, 50, 300, 1_000];
        let mut rate = || often[self.random.usize(..often.len())];
        let (log, store) = (rate(), rate());
        let rates = match kind {
            Kind::ErrorsLog => Rates {
                log,
                ..Rates::default()
            },
            Kind::ErrorsStore => Rates {
                store,
                ..Rates::default()
            },
            _ => Rates {
                log,
                store,
                is_mixed: true,
            },
        };
        let shim = self.shim.as_ref().context("the shim is built")?;
        shim.set(rates)?;
        self.go_on(300..2_500);
        if kind == Kind::ErrorsKill {
            self.kill();
        }
        self.shim.as_ref().context("the shim is built")?.set(Rates::default())?;
        let outage = Outage::Since(self.now());
        if kind == Kind::ErrorsKill {
            self.start()?;
        }
        Ok(outage)
    }

    fn full(&mut self, is_killed: bool) -> anyhow::Result<Outage> {
        // In some runs other files take all the space. In others the log fills up the rest itself.
        let leave = [0, 1 << 20, 4 << 20, 8 << 20][self.random.usize(..4)];
        self.disk.context("there is a disk")?.fill(leave)?;
        self.until("a full disk is told", |run| {
            let shared = &run.load.shared;
            shared.refused.load(Ordering::Relaxed) + shared.refused_for_room.load(Ordering::Relaxed) > 0
        })?;
        self.go_on(300..1_500);
        if is_killed {
            self.kill();
            self.start()?;
            self.go_on(100..500);
        } else {
            self.reads_go_on("S1")?;
        }
        let outage = Outage::Since(self.now());
        self.disk.context("there is a disk")?.make_room()?;
        Ok(outage)
    }

    /// Checks that reads are answered while the disk is full.
    pub(super) fn reads_go_on(&mut self, section: &str) -> anyhow::Result<()> {
        let mut connection = Connection::open(self.service()?.address, ANSWER_WAIT)?;
        let answer = connection.ask(&http_client::get(&format!("/api/section/{section}")))?;
        if answer.status != 200 {
            self.findings
                .other(format!("a read was answered {} while the disk was full", answer.status));
        }
        Ok(())
    }

    fn power(&mut self) -> anyhow::Result<Outage> {
        let disk = self.disk.context("there is a disk")?;
        disk.lose_power()?;
        if self.random.bool() {
            self.go_on(0..500);
        }
        self.kill();
        self.disk.context("there is a disk")?.power_on()?;
        let outage = Outage::Since(self.now());
        self.start()?;
        Ok(outage)
    }
}
