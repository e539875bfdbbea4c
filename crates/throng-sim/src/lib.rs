//! The test kit: seeded, virtual time, faulty journal, crash points.

mod faults;
mod history;
mod host;
mod journal;
mod medium;
mod simulation;
mod store;
mod world;

pub use faults::{Faults, Lie};
pub use history::{History, SentMessage};
pub use simulation::{Failure, Gone, Run, Sim, Simulation, for_each_seed};
pub use world::Hang;
