//! Read models and sinks in simulated worlds: despite any failure or death, each durable event counts once, in order.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::Poll,
    time::Duration,
};
use throng::{
    journal::{Address, Applied, Error, Later, MemoryViews, ViewBatch, ViewOffset, ViewRange, ViewRow, Views},
    model::*,
    projection::{DurableEvent, EventOffset, Interrupt, Projection, Rows, Sink, SinkError},
};
use throng_sim::{Faults, Sim, Simulation, for_each_seed};
use throng_testing::fixtures::Never;

#[derive(Default, Serialize, Deserialize)]
struct Till {
    coins: u64,
}
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
enum Command {
    Insert { coins: u64 },
}
#[derive(Serialize, Deserialize, JsonSchema)]
enum TillEvent {
    Inserted { coins: u64 },
}
impl Event for TillEvent {}
impl Entity for Till {
    const KIND: &'static str = "till";
    type Id = String;
    type Command = Command;
    type Event = TillEvent;
    type Reply = u64;
    type Rejection = Never;
    fn decide(
        &self,
        Command::Insert { coins }: Command,
        turn: &mut Turn<'_, Self>,
    ) -> Result<CommandAnswer<Self>, Never> {
        turn.emit(TillEvent::Inserted { coins });
        Ok(CommandAnswer::after(|till: &Till| till.coins))
    }
    fn evolve(&mut self, TillEvent::Inserted { coins }: &TillEvent) {
        self.coins += coins;
    }
}

/// A projection of the events and coins of each till. It refuses missing and repeated events.
struct Takings;

impl Projection for Takings {
    const NAME: &'static str = "takings";
    type Of = Till;
    fn apply(&self, seen: &DurableEvent<Till>, rows: &mut Rows<'_>) -> Result<(), Interrupt> {
        let (events, sum) = rows.json::<(u64, u64)>(&seen.id)?.unwrap_or_default();
        if seen.seq != events + 1 {
            return Err(Interrupt::poison(format!("event {} follows {events}", seen.seq)));
        }
        let TillEvent::Inserted { coins } = seen.event;
        rows.put_json(&seen.id, &(seen.seq, sum + coins))
    }
}

/// The delivered events in order, with repetitions.
type Delivered = Arc<Mutex<Vec<(EventOffset, String, u64)>>>;

struct Courier {
    delivered: Delivered,
    dice: Arc<Dice>,
}

impl Sink for Courier {
    const NAME: &'static str = "courier";
    type Of = Till;
    fn deliver(&self, batch: Vec<DurableEvent<Till>>) -> Later<'_, Result<(), SinkError>> {
        Box::pin(async move {
            self.dice.wait().await;
            let some = if self.dice.fails() {
                batch.len() / 2
            } else {
                batch.len()
            };
            let is_all = some == batch.len();
            let taken = batch
                .into_iter()
                .take(some)
                .map(|seen| (seen.offset, seen.id, seen.seq));
            self.delivered.lock().unwrap().extend(taken);
            self.dice.wait().await;
            if is_all {
                Ok(())
            } else {
                Err(SinkError::Retry("half of it".into()))
            }
        })
    }
}

/// Random choices determined by the seed.
struct Dice {
    state: AtomicU64,
    is_calm: AtomicBool,
}

impl Dice {
    fn new(seed: u64) -> Self {
        Self {
            state: AtomicU64::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            is_calm: AtomicBool::new(false),
        }
    }

    fn roll(&self) -> u64 {
        let mut state = self.state.load(Relaxed);
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        self.state.store(state, Relaxed);
        state >> 32
    }

    fn fails(&self) -> bool {
        self.roll().is_multiple_of(7) && !self.is_calm.load(Relaxed)
    }

    /// Waits for a few polls, in which other tasks run, and the process may die.
    async fn wait(&self) {
        let mut polls = self.roll() % 4;
        std::future::poll_fn(move |context| {
            if polls == 0 {
                return Poll::Ready(());
            }
            polls -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}

/// A store that outlives the processes. It fails before or after its work.
struct Shaky {
    views: MemoryViews,
    dice: Arc<Dice>,
}

impl Shaky {
    fn answer<'a, T: Send + 'a>(
        &'a self,
        work: impl FnOnce() -> Later<'a, Result<T, Error>> + Send + 'a,
    ) -> Later<'a, Result<T, Error>> {
        let failed = || Error::backend("keeping rows", "the line is dead");
        Box::pin(async move {
            self.dice.wait().await;
            if self.dice.fails() {
                return Err(failed());
            }
            let answer = work().await;
            self.dice.wait().await;
            if self.dice.fails() {
                return Err(failed());
            }
            answer
        })
    }
}

impl Views for Shaky {
    fn offset(&self, view: &str) -> Later<'_, Result<Option<ViewOffset>, Error>> {
        let view = view.to_owned();
        self.answer(move || self.views.offset(&view))
    }
    fn apply(&self, view: &str, batch: ViewBatch) -> Later<'_, Result<Applied, Error>> {
        let view = view.to_owned();
        self.answer(move || self.views.apply(&view, batch))
    }
    fn get(&self, view: &str, keys: Vec<Vec<u8>>) -> Later<'_, Result<Vec<Option<Vec<u8>>>, Error>> {
        let view = view.to_owned();
        self.answer(move || self.views.get(&view, keys))
    }
    fn scan(&self, view: &str, range: ViewRange) -> Later<'_, Result<Vec<ViewRow>, Error>> {
        self.views.scan(view, range)
    }
    fn clear(&self, view: &str) -> Later<'_, Result<(), Error>> {
        let view = view.to_owned();
        self.answer(move || self.views.clear(&view))
    }
    fn names(&self) -> Later<'_, Result<Vec<String>, Error>> {
        self.views.names()
    }
}

async fn insert(sim: &Sim, till: u64, coins: u64) {
    let asked = sim.call(move |engine| async move {
        let till = engine.entity::<Till>(format!("till {till}"));
        till.ask(Command::Insert { coins }).await
    });
    // The journal shows in the end if it took effect.
    let _ = asked.await;
}

#[test]
fn each_durable_event_counts_once_and_in_order() {
    for_each_seed(
        "throng-sim",
        "each_durable_event_counts_once_and_in_order",
        30,
        |seed, keep_trace| {
            let dice = Arc::new(Dice::new(seed));
            let shaky = Arc::new(Shaky {
                views: MemoryViews::new(),
                dice: dice.clone(),
            });
            let delivered = Delivered::default();
            let (views, sink, chance) = (shaky.clone(), delivered.clone(), dice.clone());
            let world = Simulation::new(seed)
                .with::<Till>()
                .setup(move |builder| {
                    let courier = Courier {
                        delivered: sink.clone(),
                        dice: chance.clone(),
                    };
                    builder.projection(Takings).sink(courier).views(views.clone())
                })
                .faults(Faults::random(seed))
                .keep_trace(keep_trace);
            let outcome = world.try_run(|sim| async move {
                sim.restart().await;
                for coins in 1..60 {
                    if sim.engine().is_none() {
                        sim.restart().await;
                    }
                    insert(&sim, sim.below(4), coins).await;
                    match sim.below(20) {
                        0 => sim.kill(),
                        1 => sim.power_loss(),
                        2 => drop(sim.stop().await),
                        3..=6 => sim.sleep(Duration::from_millis(sim.below(300))).await,
                        7 => {
                            if let Some(engine) = sim.engine() {
                                engine.rebuild_projection("takings");
                            }
                        }
                        _ => {}
                    }
                }
                sim.set_faults(Faults::none());
                dice.is_calm.store(true, Relaxed);
                sim.restart().await;
                let caught_up = sim
                    .call(|engine| async move {
                        let is_there = engine.read_model::<Takings>().caught_up().await;
                        (is_there, engine.projections())
                    })
                    .await
                    .unwrap();
                assert!(caught_up.0, "{:?}", caught_up.1);
                let history = sim.history();
                let mut expected = BTreeMap::new();
                let mut all = Vec::new();
                for Address { kind, id } in history.entities().into_keys() {
                    let events = history.events(&kind, &id);
                    let coins = |payload: &[u8]| -> u64 {
                        let value: serde_json::Value = serde_json::from_slice(payload).unwrap();
                        value["coins"].as_u64().unwrap()
                    };
                    let sum: u64 = events.iter().map(|event| coins(&event.payload)).sum();
                    expected.insert(id.to_string(), (events.len() as u64, sum));
                    all.extend(events.iter().map(|event| (event.position, id.to_string(), event.seq)));
                }
                let rows = shaky.views.scan("takings", ViewRange::default()).await.unwrap();
                let rows: BTreeMap<String, (u64, u64)> = rows
                    .into_iter()
                    .map(|(key, value)| (String::from_utf8(key).unwrap(), serde_json::from_slice(&value).unwrap()))
                    .collect();
                assert_eq!(rows, expected, "the rows are the fold of what is durable");
                // The sink may lag behind independently.
                let count = all.len();
                let once = || {
                    let (mut last, mut once) = (None, Vec::new());
                    for (offset, id, seq) in delivered.lock().unwrap().iter() {
                        if last.is_none_or(|last| *offset > last) {
                            once.push((offset.position, id.clone(), *seq));
                            last = Some(*offset);
                        }
                    }
                    once
                };
                for _ in 0..2_000 {
                    if once().len() >= count {
                        break;
                    }
                    sim.sleep(Duration::from_millis(100)).await;
                }
                let mut once = once();
                assert!(
                    once.is_sorted_by_key(|(position, ..)| *position),
                    "in the order of history"
                );
                once.sort();
                all.sort();
                assert_eq!(once, all, "told apart by their offsets, each event came once");
            });
            outcome.map(drop).map_err(|failure| failure.to_string())
        },
    );
}
