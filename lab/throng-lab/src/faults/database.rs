//! Faults of a PostgreSQL server, and standbys that take over.

use super::{
    kind::Kind,
    run::{IDLE, Outage, Run},
};
use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use servers::{Postgres, Stop};
use std::sync::atomic::Ordering;

impl Run<'_> {
    pub(super) fn server(&mut self) -> anyhow::Result<&mut Postgres> {
        self.postgres.as_deref_mut().context("there is a server")
    }

    pub(super) fn database(&mut self, kind: Kind) -> anyhow::Result<Outage> {
        match kind {
            Kind::PgTerminate => {
                let outage = Outage::Since(self.now());
                let url = self.server()?.url("postgres");
                terminate(&url)?;
                return Ok(outage);
            }
            Kind::PgPause => {
                let processes = self.server()?.processes();
                signal(&processes, Signal::STOP);
                self.go_on(200..3_000);
                let outage = Outage::Since(self.now());
                signal(&processes, Signal::CONT);
                return Ok(outage);
            }
            Kind::PgFull => return self.database_full(true),
            Kind::PgFullWal => return self.database_full(false),
            Kind::PgCrash => {
                let processes = self.server()?.processes();
                signal(&processes, Signal::KILL);
                // All its processes are dead already. This waits for their end.
                self.server()?.stop(Stop::Immediate);
            }
            _ => self.server()?.stop(Stop::Immediate),
        }
        self.go_on(0..500);
        self.server()?.resume()?;
        Ok(Outage::Since(self.now()))
    }

    fn database_full(&mut self, do_reads_go_on: bool) -> anyhow::Result<Outage> {
        let leave = [0, 2 << 20, 8 << 20, 20 << 20][self.random.usize(..4)];
        self.disk.context("there is a disk")?.fill(leave)?;
        self.until("a full disk is told", |run| {
            let shared = &run.load.shared;
            shared.refused.load(Ordering::Relaxed) + shared.refused_for_room.load(Ordering::Relaxed) > 0
        })?;
        self.go_on(300..1_500);
        if do_reads_go_on {
            // Reads of changed sections wait for the commit that there is no room for. Reads of the idle section do not.
            self.reads_go_on(IDLE)?;
        }
        self.disk.context("there is a disk")?.make_room()?;
        let moment = self.now();
        // A server that could not recover has ended. It is started again here, as a supervisor would do.
        self.until("the server is back", |run| {
            if let Some(server) = run.postgres.as_deref_mut()
                && server.has_ended()
            {
                server.stop(Stop::Immediate);
                let _ = server.resume();
            }
            run.load.shared.serves_since(moment)
        })?;
        Ok(Outage::Since(moment))
    }

    pub(super) fn take_over(&mut self, kind: Kind) -> anyhow::Result<Outage> {
        let first = self.service.take().context("the first one runs")?;
        let begun = self.now();
        let outage = match kind {
            Kind::TakeOver => Outage::Within(begun),
            Kind::TakeOverPaused => {
                first.signal(Signal::STOP);
                Outage::Since(begun)
            }
            _ => {
                first.signal(Signal::KILL);
                Outage::Since(begun)
            }
        };
        let second = self.launch.start()?;
        self.load.shared.set_addresses(&[first.address, second.address]);
        let address = second.address;
        self.service = Some(second);
        if kind == Kind::TakeOverPaused {
            self.go_on(200..2_000);
            first.signal(Signal::CONT);
        }
        // The second node must serve first. Afterwards reads go to both nodes for a while.
        let moment = self.now();
        self.until("the stand-by serves", |run| run.load.shared.serves_since(moment))?;
        self.go_on(300..1_500);
        self.load.shared.set_addresses(&[address]);
        first.kill();
        Ok(outage)
    }
}

pub(crate) fn signal(processes: &[u32], signal: Signal) {
    for id in processes {
        let id = i32::try_from(*id).ok().and_then(Pid::from_raw);
        // A process that has just ended is no error.
        let _ = id.map(|id| kill_process(id, signal));
    }
}

/// Ends all sessions other than its own.
pub(super) fn terminate(url: &str) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
        let driver = tokio::spawn(connection);
        let ended = client
            .batch_execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'")
            .await;
        driver.abort();
        ended.context("ending the sessions failed")
    })
}
