//! The test kit: runs a whole service in a simulated world.
//!
//! A [`Simulation`] runs the real engine, with your entities, on one thread in virtual time. The next task, the journal's delays, the
//! faults and the crashes all follow from one **seed**. A failing seed is printed and replays exactly. So even a bug that needs a crash
//! between two commits and a late answer of the store can be reproduced.
//!
//! ```
//! use throng_sim::{Faults, Simulation, for_each_seed};
//! # use schemars::JsonSchema;
//! # use serde::{Deserialize, Serialize};
//! # use throng::model::*;
//! # #[derive(Default, Serialize, Deserialize)] struct Till { coins: u64 }
//! # #[derive(Clone, Serialize, Deserialize, JsonSchema)] enum Command { Insert }
//! # #[derive(Serialize, Deserialize, JsonSchema)] enum TillEvent { Inserted }
//! # impl Event for TillEvent {}
//! # #[derive(Debug, Serialize, Deserialize, JsonSchema, thiserror::Error)] #[error("never")] struct Never;
//! # impl Rejection for Never { fn code(&self) -> &'static str { "never" } }
//! # impl Entity for Till {
//! #     const KIND: &'static str = "till";
//! #     type Id = String; type Command = Command; type Event = TillEvent; type Reply = u64; type Rejection = Never;
//! #     fn decide(&self, _: Command, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
//! #         turn.emit(TillEvent::Inserted);
//! #         Ok(CommandAnswer::after(|till: &Till| till.coins))
//! #     }
//! #     fn evolve(&mut self, _: &TillEvent) { self.coins += 1 }
//! # }
//! // `cargo test` runs 20 worlds; THRONG_SIM_SEEDS=1000 more of them, THRONG_SIM_SEED=7 one alone, with its trace.
//! for_each_seed("shop", "a_coin_counts_once", 20, |seed, keep_trace| {
//!     let world = Simulation::new(seed).with::<Till>().faults(Faults::random(seed)).keep_trace(keep_trace);
//!     let outcome = world.try_run(|sim| async move {
//!         for coin in 0..10 {
//!             // A client that does not know what came of its command asks again under the same key.
//!             sim.ask_until_known::<Till>("front", &format!("coin {coin}"), Command::Insert).await.unwrap();
//!             if sim.chance(0.3) {
//!                 sim.kill();
//!             }
//!         }
//!         assert_eq!(sim.history().events("till", "front").len(), 10, "each coin counts once");
//!     });
//!     outcome.map(drop).map_err(|failure| failure.to_string())
//! });
//! ```
//!
//! # What is simulated
//!
//! - **Time and tasks.** All work of the engine runs on the simulation's executor. A poll takes a microsecond; if no task is ready, time
//!   jumps to the next timer. A run that deadlocks or takes too long is reported ([`Hang`]).
//! - **The journal** answers at once or later, in order or not. It stalls, leaves appends in doubt (until a seal decides), and takes one, two
//!   or four appends at a time. Opening, sealing and reading may fail temporarily ([`Faults`]).
//! - **The store** answers at once or later, and fails. A checkpoint is atomic.
//! - **Processes** are killed ([`Sim::kill`]), lose their power ([`Sim::power_loss`]), stop gracefully, are upgraded
//!   ([`Sim::upgrade`]) or taken over from ([`Sim::start`] beside one that runs). Calls run inside a process and die with it
//!   ([`Sim::call`]); the test itself and what it [`spawn`](Sim::spawn)s are outside and live on.
//! - **Nodes** ([`Sim::nodes`]): a cluster of processes on one database, with their memberships, leases and requests to each other. They are
//!   killed, paused, drained, and cut off from each other or from the database. Their clocks differ.
//!
//! # What is checked
//!
//! Every run ends with the checks of any journal ([`History::check`]): numbers have no gaps, and messages are taken once and in order. The
//! simulated journal and store also check the engine. It must not append out of order or above the depth, store what is not durable, or go
//! back. The promises of your service are for your test to check.
//!
//! Entities alone, without an engine, are tested with [`throng::Subject`].
//!
//! # What it cannot see
//!
//! A simulation cannot see races between threads within a poll; the model checker in `throng-commit` does. With [loops](Simulation::loops) threads
//! alternate only where they wait or work in virtual time ([`busy_for`], [`Faults::sync_micros`]), not between any two instructions. It
//! also has no files and disks; those are covered by the conformance suites of `throng-journal`, the fault tests of each backend, and
//! worlds with a real journal ([`Simulation::journal`]).

mod fake;
mod faults;
mod history;
mod host;
mod journal;
mod medium;
mod nodes;
mod reached;
mod retry;
mod seeds;
mod simulation;
mod store;
mod threads;
mod world;

#[cfg(test)]
mod conformance;

pub use fake::{CallFaults, Fake};
pub use faults::{Faults, Lie};
pub use history::{History, SentMessage};
pub use nodes::Nodes;
pub use reached::Reached;
pub use seeds::{for_each_seed, for_each_seed_with};
pub use simulation::{Failure, Gone, Run, Sim, Simulation};
pub use threads::busy_for;
pub use throng_cluster::Timing;
pub use world::Hang;
