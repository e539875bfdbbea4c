//! Loops in this process, each with its clients on its own thread.

use anyhow::Context as _;
use registration::section::{Section, SectionCommand};
use std::{
    path::Path,
    sync::{
        Arc, Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use throng::{Engine, Options};
use tokio::{runtime, task::LocalSet};

use super::{Commits, Round, Subject};
use crate::{cpu::cpu_time, requests::SECTIONS};

/// An engine on a log with delayed syncs.
pub(super) struct InProcess {
    engine: Engine,
    runtime: runtime::Runtime,
    duration: Duration,
    students: Arc<AtomicU64>,
}

impl InProcess {
    pub(super) fn start(data: &Path, sync_delay: Duration, duration: Duration) -> anyhow::Result<Self> {
        let options = throng_log::Options {
            sync_delay,
            ..throng_log::Options::default()
        };
        let (log, store) = throng_log::open_embedded(data, options)?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let engine = runtime.block_on(async {
            // Checkpoints are off, because only some rounds would have one.
            let builder = registration::kinds(Engine::builder()).options(Options {
                checkpoint_every: Duration::from_secs(86_400),
                checkpoint_bytes: u64::MAX,
                memory_bytes_max: 4 << 30,
                ..Options::default()
            });
            let engine = builder.start_shared(log, store).await?;
            let opens = (0..SECTIONS).map(|section| {
                let section = engine.entity::<Section>(section_id(section as u64));
                async move { section.ask(SectionCommand::Open { capacity: u32::MAX }).await }
            });
            for opened in futures_util::future::join_all(opens).await {
                opened.context("opening a section")?;
            }
            anyhow::Ok(engine)
        })?;
        Ok(Self {
            engine,
            runtime,
            duration,
            students: Arc::default(),
        })
    }

    fn commits(&self) -> anyhow::Result<Commits> {
        let mut text = String::new();
        self.engine.metrics().encode(&mut text)?;
        Ok(Commits::read(&text))
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.runtime.block_on(self.engine.stop());
    }
}

fn section_id(number: u64) -> String {
    format!("S{}", number % SECTIONS as u64)
}

impl Subject for InProcess {
    fn round(&mut self, loops: u16, clients: u32) -> anyhow::Result<Round> {
        let (before, cpu) = (self.commits()?, cpu_time());
        let start = Arc::new(Barrier::new(usize::from(loops)));
        let threads: Vec<_> = (0..loops)
            .map(|own| {
                let of_loop = Loop {
                    engine: self.engine.clone(),
                    clients: (clients / u32::from(loops) + u32::from(clients % u32::from(loops) > u32::from(own)))
                        as usize,
                    duration: self.duration,
                    students: self.students.clone(),
                };
                let start = start.clone();
                thread::spawn(move || of_loop.run(&start))
            })
            .collect();
        let mut waits = Vec::new();
        let mut by_loop = Vec::new();
        for thread in threads {
            let of_loop = thread.join().map_err(|_| anyhow::anyhow!("a loop panicked"))??;
            by_loop.push(of_loop.len() as f64 / self.duration.as_secs_f64());
            waits.extend(of_loop);
        }
        let cpu = cpu_time().saturating_sub(cpu);
        let (commits_per_s, commit_us) = self.commits()?.since(before, self.duration.as_secs_f64());
        waits.sort_unstable();
        let at = |percent: usize| {
            let rank = (waits.len() * percent).div_ceil(100).max(1);
            waits.get(rank - 1).map_or(f64::NAN, |nanos| *nanos as f64 / 1e3)
        };
        Ok(Round {
            answered_per_s: by_loop.iter().sum(),
            by_loop,
            p50_us: at(50),
            p99_us: at(99),
            worst_us: at(100),
            cpu_us: cpu.as_secs_f64() * 1e6 / waits.len() as f64,
            commits_per_s,
            commit_us,
        })
    }
}

struct Loop {
    engine: Engine,
    clients: usize,
    duration: Duration,
    students: Arc<AtomicU64>,
}

impl Loop {
    /// Runs the clients and returns the nanoseconds that each command waited for its answer.
    fn run(self, start: &Barrier) -> anyhow::Result<Vec<u64>> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let local = LocalSet::new();
        local.block_on(&runtime, async {
            let committer = tokio::task::spawn_local(self.engine.driver().committer());
            tokio::task::yield_now().await;
            start.wait();
            let until = Instant::now() + self.duration;
            let clients: Vec<_> = (0..self.clients)
                .map(|_| tokio::task::spawn_local(client(self.engine.clone(), self.students.clone(), until)))
                .collect();
            let mut waits = Vec::new();
            for client in clients {
                waits.extend(client.await.context("a client panicked")??);
            }
            committer.abort();
            Ok(waits)
        })
    }
}

/// Sends the next command as soon as the last one is answered.
async fn client(engine: Engine, students: Arc<AtomicU64>, until: Instant) -> anyhow::Result<Vec<u64>> {
    let mut waits = Vec::new();
    loop {
        let begun = Instant::now();
        if begun >= until {
            return Ok(waits);
        }
        let student = students.fetch_add(1, Ordering::Relaxed);
        let add = SectionCommand::Add {
            student: format!("{student:08}"),
        };
        let section = engine.entity::<Section>(section_id(student));
        section.ask(add).await.context("adding a student")?;
        waits.push(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
}
