//! Harmless work: it ends, and no entity is stopped.

use anyhow::{Context as _, ensure};
use serde::Serialize;
use std::{
    path::Path,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use throng::{Engine, Options, model::Timestamp};

use super::player::{self, Play, Player};
use crate::median;

const PATIENCE: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_millis(1);
/// The least rate at which accounts are made.
const ACCOUNTS_A_SECOND: u64 = if cfg!(debug_assertions) { 1_000 } else { 20_000 };
/// The number of accounts that are made together.
const AT_A_TIME: usize = 1_000;

pub(super) struct Sort {
    pub(super) name: &'static str,
    decisions: fn(u32) -> u64,
}

pub(super) const SORTS: &[Sort] = &[
    Sort {
        name: "chain",
        decisions: |_| 10_001,
    },
    Sort {
        name: "volley",
        decisions: |_| 50_001,
    },
    Sort {
        name: "fan-out",
        decisions: |_| 30_001,
    },
    Sort {
        name: "interest",
        decisions: u64::from,
    },
];

#[derive(Debug, Serialize)]
pub(super) struct WorkRow {
    pub(super) work: &'static str,
    pub(super) decisions: u64,
    pub(super) seconds: f64,
    /// The seconds with so much memory for messages that no entity comes near its credit.
    pub(super) seconds_without: f64,
    /// The median of the ratios of the rounds.
    pub(super) ratio: f64,
    pub(super) quarantined: usize,
}

impl Sort {
    pub(super) fn measure(&self, scratch: &Path, rounds: usize, accounts: u32) -> anyhow::Result<WorkRow> {
        let mut took = Vec::new();
        let mut quarantined = 0;
        for round in 0..rounds {
            let mut one = |has_credit: bool| {
                let data = scratch.join(format!("{}-{round}-{has_credit}", self.name));
                let (seconds, stopped) = self.once(&data, has_credit, accounts)?;
                std::fs::remove_dir_all(&data)?;
                quarantined += stopped;
                anyhow::Ok(seconds)
            };
            // The second measurement finds a busy disk, so the order alternates.
            took.push(match round % 2 {
                0 => {
                    let with = one(true)?;
                    [with, one(false)?]
                }
                _ => {
                    let without = one(false)?;
                    [one(true)?, without]
                }
            });
        }
        Ok(WorkRow {
            work: self.name,
            decisions: (self.decisions)(accounts),
            seconds: median(took.iter().map(|[with, _]| *with)),
            seconds_without: median(took.iter().map(|[_, without]| *without)),
            ratio: median(took.iter().map(|[with, without]| with / without)),
            quarantined,
        })
    }

    /// Returns the seconds until all is done, and the number of stopped entities.
    fn once(&self, data: &Path, has_credit: bool, accounts: u32) -> anyhow::Result<(f64, usize)> {
        let (log, store) = throng_log::open_embedded(data, throng_log::Options::default())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut options = Options {
                memory_bytes_max: 4 << 30,
                ..Options::default()
            };
            if !has_credit {
                options.outbox_max *= 64;
                options.memory_bytes_max *= 64;
            }
            let engine = player::with_players(Engine::builder())
                .options(options)
                .start_shared(log, store)
                .await?;
            let (begun, until) = self.begin(&engine, accounts).await?;
            while player::decisions() < until {
                ensure!(begun.elapsed() < PATIENCE, "{} is not done", self.name);
                tokio::time::sleep(PAUSE).await;
            }
            let seconds = begun.elapsed().as_secs_f64();
            let stopped = engine.quarantined(9).await?.len();
            engine.stop().await;
            Ok((seconds, stopped))
        })
    }

    /// Returns the beginning of the work, and the number of decisions of all players at its end.
    async fn begin(&self, engine: &Engine, accounts: u32) -> anyhow::Result<(Instant, u64)> {
        let player = engine.entity::<Player>("first");
        let (begun, before) = (Instant::now(), player::decisions());
        match self.name {
            "chain" => player.ask(Play::Pass { left: 10_000 }).await?,
            "volley" => {
                let other = "second".into();
                player.ask(Play::Volley { other, left: 50_000 }).await?
            }
            "fan-out" => player.ask(Play::FanOut { to: 30_000 }).await?,
            _ => {
                let wait = Duration::from_secs(2 + u64::from(accounts) / ACCOUNTS_A_SECOND);
                let due = SystemTime::now() + wait;
                let at = due.duration_since(UNIX_EPOCH)?.as_micros();
                save(
                    engine,
                    accounts,
                    Timestamp {
                        micros: i64::try_from(at)?,
                    },
                )
                .await?;
                let left = due
                    .duration_since(SystemTime::now())
                    .context("the accounts are made too late")?;
                let before = player::decisions();
                tokio::time::sleep(left).await;
                return Ok((Instant::now(), before + u64::from(accounts)));
            }
        };
        Ok((begun, before + (self.decisions)(accounts)))
    }
}

/// Makes accounts whose interest is due at this time.
pub(super) async fn save(engine: &Engine, accounts: u32, at: Timestamp) -> anyhow::Result<()> {
    for first in (0..accounts).step_by(AT_A_TIME) {
        let asked = (first..accounts.min(first + AT_A_TIME as u32)).map(|number| {
            let account = engine.entity::<Player>(format!("account-{number}"));
            async move { account.ask(Play::Save { at }).await }
        });
        for told in futures_util::future::join_all(asked).await {
            told.context("making an account")?;
        }
    }
    Ok(())
}
