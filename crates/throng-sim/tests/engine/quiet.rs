//! A quiet engine reads, and initiates nothing. Restarted normally, it does everything that was due.

use crate::undone::{Clock, ClockEvent, Command, Look};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};
use throng::{
    Builder, Options,
    journal::Later,
    model::Error,
    projection::{DurableEvent, Sink, SinkError},
};
use throng_sim::{Faults, Sim, Simulation, for_each_seed};

/// Counts the pokes that were reported.
#[derive(Clone, Default)]
struct Pokes(Arc<AtomicU64>);

impl Sink for Pokes {
    const NAME: &'static str = "pokes";
    type Of = Clock;

    fn deliver(&self, batch: Vec<DurableEvent<Clock>>) -> Later<'_, Result<(), SinkError>> {
        let pokes = batch.iter().filter(|seen| matches!(seen.event, ClockEvent::Poked));
        self.0.fetch_add(pokes.count() as u64, SeqCst);
        Box::pin(async { Ok(()) })
    }
}

fn clocks(builder: Builder, pokes: Pokes, quiet: bool) -> Builder {
    let options = Options {
        quiet,
        ..Options::default()
    };
    builder
        .options(options)
        .with::<Clock>()
        .query::<Clock, Look>()
        .sink(pokes)
}

async fn look(sim: &Sim, id: u64) -> (u64, u64) {
    sim.read_until_known::<Clock, _>(id, || Look).await.unwrap()
}

#[test]
fn quiet_engine_reads_and_acts_on_nothing() {
    for_each_seed(
        "throng-sim",
        "quiet_engine_reads_and_acts_on_nothing",
        20,
        |seed, keep_trace| {
            let told = Pokes::default();
            let world = Simulation::new(seed)
                .faults(Faults::random(seed))
                .keep_trace(keep_trace);
            let outcome = world.try_run(|sim| async move {
                let program = |quiet: bool| {
                    let told = told.clone();
                    sim.upgrade(move |builder| clocks(builder, told.clone(), quiet));
                };
                let command = async |id: u64, key: &str, command: Command| {
                    sim.ask_until_known::<Clock>(id, key, command).await.unwrap();
                };
                program(false);
                sim.restart().await;
                command(2, "mend", Command::Mend).await;
                command(1, "set", Command::Set { millis: 5_000 }).await;
                for poke in 0..10 {
                    command(1, &format!("send {poke}"), Command::Send { to: 2 }).await;
                }
                // Some of the messages are in flight.
                program(true);
                sim.restart().await;
                let (events, pokes) = (sim.history().entities(), told.0.load(SeqCst));
                sim.sleep(Duration::from_mins(10)).await;
                assert_eq!(look(&sim, 1).await.0, 0, "the timer is overdue and has not fired");
                loop {
                    // The journal sometimes fails, which is a different error.
                    let ring = sim.call(|engine| async move { engine.entity::<Clock>(1_u64).ask(Command::Ring).await });
                    match ring.await {
                        Ok(Err(Error::Unavailable { reason })) if reason.contains("quiet") => break,
                        Ok(Ok(())) => panic!("it was done"),
                        _ => sim.sleep(Duration::from_millis(100)).await,
                    }
                }
                assert_eq!(sim.history().entities(), events, "nothing was recorded");
                assert_eq!(told.0.load(SeqCst), pokes, "the sink was told nothing");
                program(false);
                sim.restart().await;
                while look(&sim, 1).await.0 < 1 || look(&sim, 2).await.1 < 10 || told.0.load(SeqCst) < 10 {
                    sim.sleep(Duration::from_secs(1)).await;
                }
            });
            outcome.map(drop).map_err(|failure| failure.to_string())
        },
    );
}
