//! A record that undoes older ones is removed after them, by every pass. So no timer fires twice and no dead message returns, even if the store is
//! lost.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};
use throng::{
    Options, Retried,
    journal::{RecordKind, ShardId},
    model::*,
};
use throng_sim::{Sim, Simulation};
use throng_testing::fixtures::Never;

const KEPT: Duration = Duration::from_secs(2);
const SECOND: Duration = Duration::from_secs(1);
/// The entity with a long timer. `BUSY` repeatedly sets a short timer, and sends messages. `BROKEN` accepts nothing until it is mended.
const LONG: u64 = 1;
const BUSY: u64 = 2;
const BROKEN: u64 = 3;

#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Clock {
    rings: u64,
    pokes: u64,
    is_mended: bool,
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) enum Command {
    /// Sets a timer that rings after this many milliseconds.
    Set {
        millis: u64,
    },
    Ring,
    /// Sends a poke to another entity.
    Send {
        to: u64,
    },
    Poke,
    Mend,
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) enum ClockEvent {
    Set,
    Rang,
    Sent,
    Poked,
    Mended,
}
impl Event for ClockEvent {}

impl Entity for Clock {
    const KIND: &'static str = "clock";
    type Id = u64;
    type Command = Command;
    type Event = ClockEvent;
    type Reply = ();
    type Rejection = Never;

    fn decide(&self, command: Command, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
        let happened = match command {
            Command::Set { millis } => {
                let at = turn.now().after(Duration::from_millis(millis));
                turn.remind("ring", at, None, Command::Ring);
                ClockEvent::Set
            }
            Command::Ring => ClockEvent::Rang,
            Command::Send { to } => {
                turn.send::<Self>(to, Command::Poke);
                ClockEvent::Sent
            }
            Command::Poke => {
                assert!(self.is_mended, "it is broken");
                ClockEvent::Poked
            }
            Command::Mend => ClockEvent::Mended,
        };
        turn.emit(happened);
        Ok(CommandAnswer::Now(()))
    }

    fn evolve(&mut self, event: &ClockEvent) {
        match event {
            ClockEvent::Set | ClockEvent::Sent => {}
            ClockEvent::Rang => self.rings += 1,
            ClockEvent::Poked => self.pokes += 1,
            ClockEvent::Mended => self.is_mended = true,
        }
    }
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct Look;

impl Query<Clock> for Look {
    const NAME: &'static str = "Look";
    type Answer = (u64, u64);

    fn answer(self, clock: &Clock, _: &Moment<'_, Clock>) -> Result<(u64, u64), Never> {
        Ok((clock.rings, clock.pokes))
    }
}

async fn tell(sim: &Sim, id: u64, command: Command) {
    sim.ask_until_known::<Clock>(id, &format!("{:?}", sim.elapsed()), command)
        .await
        .unwrap();
}

/// Lets seconds pass. In each an event is recorded, and a pass is made.
async fn seconds(sim: &Sim, count: u64) {
    for _ in 0..count {
        tell(sim, BUSY, Command::Set { millis: 400 }).await;
        sim.sleep(SECOND).await;
    }
}

/// Returns the number of an entity's remaining records of each kind, without those of the last seconds.
fn left(sim: &Sim, id: u64) -> BTreeMap<RecordKind, u64> {
    let history = sim.history();
    let last = history.commits.last().unwrap().stamp().at_micros;
    let mut counts = BTreeMap::new();
    for commit in &history.commits {
        let is_old = commit.stamp().at_micros < last - 5_000_000;
        let own = commit
            .records()
            .flatten()
            .filter(|record| is_old && record.id == id.to_string());
        own.for_each(|record| *counts.entry(record.record).or_default() += 1);
    }
    counts
}

async fn dead(sim: &Sim) -> Vec<(ShardId, u64)> {
    let found = sim.call(|engine| async move { engine.dead_messages(None, None, 9).await });
    let found = found.await.unwrap().unwrap();
    found.messages.iter().map(|message| message.number).collect()
}

async fn forget_all_but_the_journal(sim: &Sim) {
    sim.kill();
    sim.lose_store();
    sim.restart().await;
    sim.sleep(5 * SECOND).await;
}

async fn prune(sim: &Sim) {
    let pass = sim.call(|engine| async move { engine.prune(false).await });
    pass.await.unwrap().unwrap();
}

fn simulation() -> Simulation {
    let options = Options {
        keep: [("clock".to_owned(), Keep::Age(KEPT))].into(),
        prune_every: Some(SECOND),
        ..Options::default()
    };
    Simulation::new(7)
        .with::<Clock>()
        .query::<Clock, Look>()
        .options(options)
        .shards(3)
}

#[test]
fn a_distant_timer_fires_once_though_records_and_store_are_lost() {
    simulation().run(|sim| async move {
        tell(&sim, LONG, Command::Set { millis: 20_000 }).await;
        seconds(&sim, 35).await;
        let look = async |sim: &Sim| sim.read_until_known::<Clock, _>(LONG, || Look).await.unwrap().0;
        assert_eq!(look(&sim).await, 1);
        // Timers that were set and have fired since the previous pass are removed.
        let of = |id, kind| left(&sim, id).get(&kind).copied().unwrap_or(0);
        let of_short = [RecordKind::TimerSet, RecordKind::TimerCleared].map(|kind| of(BUSY, kind));
        assert_eq!(of_short, [0, 0]);
        forget_all_but_the_journal(&sim).await;
        assert_eq!(look(&sim).await, 1);
        // A pass over everything removes both.
        seconds(&sim, 10).await;
        prune(&sim).await;
        let of_long = [RecordKind::TimerSet, RecordKind::TimerCleared].map(|kind| of(LONG, kind));
        assert_eq!(of_long, [0, 0]);
        forget_all_but_the_journal(&sim).await;
        assert_eq!(look(&sim).await, 1);
    });
}

#[test]
fn a_retried_dead_message_stays_retried_when_the_store_is_lost() {
    simulation().run(|sim| async move {
        tell(&sim, BUSY, Command::Send { to: BROKEN }).await;
        seconds(&sim, 15).await;
        let number = dead(&sim).await[0];
        tell(&sim, BROKEN, Command::Mend).await;
        let retry = move |engine: throng::Engine| async move {
            let id = BROKEN.to_string();
            engine.retry_dead("clock", &id, number).await
        };
        assert!(matches!(sim.call(retry).await.unwrap().unwrap(), Retried::Done));
        seconds(&sim, 15).await;
        let taken = |sim: &Sim| left(sim, BROKEN).get(&RecordKind::Taken).copied().unwrap_or(0);
        assert_eq!(taken(&sim), 2, "the dead message, and that it was retried");
        assert_eq!(dead(&sim).await, []);
        forget_all_but_the_journal(&sim).await;
        assert_eq!(dead(&sim).await, []);
        prune(&sim).await;
        assert_eq!(taken(&sim), 0);
        forget_all_but_the_journal(&sim).await;
        assert_eq!(dead(&sim).await, []);
    });
}
