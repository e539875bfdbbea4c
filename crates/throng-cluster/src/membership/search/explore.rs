//! Visits every reachable state, breadth first, so that a fault is reported with the fewest steps that lead to it.

use super::{
    Lie,
    database::has,
    state::{DEAD, Engine, Fate, Loop, Process, World},
};
use std::collections::{HashMap, HashSet, VecDeque};

/// A possible step. Its answer may be lost; then the process only knows that the step failed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Transition {
    /// Time passes by one tick.
    Tick,
    /// Time passes, but the clock of a paused process stands still.
    TickWhilePaused {
        place: usize,
    },
    /// The database becomes unavailable, or returns.
    Outage(bool),
    Kill {
        place: usize,
    },
    /// Other processes notice that the killed process is gone.
    SeeKilled,
    Restart {
        place: usize,
    },
    /// An operator drains a node.
    Drain {
        row: usize,
    },
    /// A node beats, or joins.
    Beat {
        place: usize,
        is_told: bool,
    },
    /// The process decides on the answer it has read.
    Decide {
        place: usize,
    },
    /// The process declares a node dead, or takes shards.
    Act {
        place: usize,
    },
    /// The engine takes a step to serve other shards, or to give some away.
    Change {
        place: usize,
        is_told: bool,
    },
    /// The engine restarts after a failed append.
    Again {
        place: usize,
        is_told: bool,
    },
    Renew {
        place: usize,
    },
    Write {
        place: usize,
        shard: usize,
    },
    Land {
        write: usize,
    },
    Answer {
        write: usize,
        is_told: bool,
    },
}

/// The result of a search.
pub(super) struct Searched {
    pub(super) states: usize,
    /// The fault, and the steps that lead to it.
    pub(super) wrong: Option<(String, Vec<String>)>,
}

/// The most states to visit.
const STATES_MAX: usize = 2_000_000;
/// The number of rounds without faults within which all shards must be served.
const ROUNDS_MAX: usize = 60;
/// The most steps of a process without time passing.
const STEPS_A_ROUND: usize = 60;

impl World {
    fn steps(&self) -> Vec<Transition> {
        let mut steps = vec![Transition::Tick];
        let up = || (0..self.processes.len()).filter(|place| self.processes[*place].is_up);
        for place in up() {
            if self.lies(Lie::LeasesStandStill) {
                steps.push(Transition::TickWhilePaused { place });
            }
            if self.left.kills > 0 {
                steps.push(Transition::Kill { place });
            }
            self.steps_of(place, &mut steps);
        }
        if self.is_away {
            steps.push(Transition::Outage(false));
        } else if self.left.outages > 0 {
            steps.push(Transition::Outage(true));
        }
        if self.holds_anything(DEAD) && !self.is_gone_known {
            steps.push(Transition::SeeKilled);
        }
        if self.left.restarts > 0 {
            let down = (0..self.processes.len()).filter(|place| !self.processes[*place].is_up);
            steps.extend(down.map(|place| Transition::Restart { place }));
        }
        if self.left.drains > 0 {
            let rows = self.rows.iter().enumerate();
            let living = rows.filter(|(_, row)| row.lives());
            steps.extend(living.map(|(row, _)| Transition::Drain { row }));
        }
        for (write, of) in self.writes.iter().enumerate() {
            if of.fate == Fate::Sent && !self.is_away {
                steps.push(Transition::Land { write });
            }
            if of.is_awaited && of.fate == Fate::Landed {
                steps.push(Transition::Answer { write, is_told: true });
            }
            if of.is_awaited && (self.is_away || self.left.lost_answers > 0) {
                steps.push(Transition::Answer { write, is_told: false });
            }
        }
        steps
    }

    pub(super) fn holds_anything(&self, holder: u8) -> bool {
        let rows = self.rows.iter().filter(|row| row.lives());
        rows.map(|row| row.holder).any(|of| of == holder)
            || self.streams.iter().any(|stream| stream.holder == holder)
            || self
                .writes
                .iter()
                .any(|write| write.by == holder && write.fate == Fate::Sent)
    }

    /// Takes a step. Returns an error if it reveals a fault.
    fn step(&mut self, step: Transition) -> Result<(), String> {
        if let Transition::Beat { place, is_told }
        | Transition::Change { place, is_told }
        | Transition::Again { place, is_told } = step
        {
            self.left.lost_answers -= u8::from(!is_told);
            self.processes[place].is_disconnected &= self.is_away;
        }
        match step {
            Transition::Tick => self.tick(None),
            Transition::TickWhilePaused { place } => self.tick(Some(place)),
            Transition::Outage(begins) => {
                self.is_away = begins;
                self.left.outages -= u8::from(begins);
                // Only these lies use the flag, so otherwise it stays unset, which merges states.
                let matters = self.lies(Lie::TrustsFreeLocks) || self.lies(Lie::DeclaresDeadByFreeLocks);
                self.processes
                    .iter_mut()
                    .for_each(|process| process.is_disconnected = matters && process.is_up);
            }
            Transition::Kill { place } => {
                self.left.kills -= 1;
                self.kill(place);
            }
            Transition::SeeKilled => self.is_gone_known = true,
            Transition::Restart { place } => {
                self.left.restarts -= 1;
                self.processes[place] = Process::new(self.processes[place].tag.0);
            }
            Transition::Drain { row } => {
                self.left.drains -= 1;
                self.rows[row].wants_drain = true;
            }
            Transition::Beat { place, is_told } => self.beat_of(place, is_told),
            Transition::Decide { place } => self.decide(place),
            Transition::Act { place } => self.act(place)?,
            Transition::Change { place, is_told } => self.change(place, is_told),
            Transition::Again { place, is_told } => self.again(place, is_told),
            Transition::Renew { place } => self.renew_of(place),
            Transition::Write { place, shard } => self.write(place, shard),
            Transition::Land { write } => self.land(write)?,
            Transition::Answer { write, is_told } => {
                if !is_told && !self.is_away {
                    self.left.lost_answers -= 1;
                }
                self.answer(write, is_told);
            }
        }
        self.check()
    }

    fn is_served(&self) -> bool {
        self.owners.iter().enumerate().all(|(shard, owner)| {
            let places = (0..self.processes.len()).filter(|place| self.processes[*place].is_up);
            let mut own = places.filter(|place| *owner != 0 && self.processes[*place].node == *owner);
            own.any(|place| match self.processes[place].engine {
                Engine::Running {
                    writer,
                    shards,
                    is_closing,
                    ..
                } => {
                    let may_answer = self.holds(place, writer) && !self.is_sealed(writer);
                    may_answer && !is_closing && has(shards, shard)
                }
                Engine::Down | Engine::Failed => false,
            })
        })
    }

    /// Runs a round: each process beats, does all it can, and beats again; then time passes by one tick.
    fn round(&mut self) -> Result<bool, String> {
        let up = (0..self.processes.len()).filter(|place| self.processes[*place].is_up);
        let up: Vec<usize> = up.collect();
        for place in up.iter().copied() {
            let mut steps = Vec::new();
            self.steps_of(place, &mut steps);
            if let Some(beat) = steps.into_iter().find(|step| matches!(step, Transition::Beat { .. })) {
                self.step(beat)?;
            }
        }
        for place in up {
            let (mut has_beaten, mut steps) = (false, Vec::new());
            for _ in 0..STEPS_A_ROUND {
                steps.clear();
                self.steps_of(place, &mut steps);
                let awaited = self
                    .writes
                    .iter()
                    .position(|write| write.is_awaited && usize::from(write.by) == place);
                let is_beat = |step: &Transition| matches!(step, Transition::Beat { .. });
                let next = match awaited {
                    Some(write) if self.writes[write].fate == Fate::Sent => Some(Transition::Land { write }),
                    Some(write) => Some(Transition::Answer { write, is_told: true }),
                    None => steps.iter().copied().find(|step| !is_beat(step) || !has_beaten),
                };
                let Some(next) = next else { break };
                has_beaten |= is_beat(&next);
                self.step(next)?;
            }
        }
        let is_served = self.is_served();
        self.step(Transition::Tick)?;
        Ok(is_served)
    }

    /// Returns the state in which all shards are served without any fault.
    pub(super) fn served(mut self) -> Self {
        let left = std::mem::take(&mut self.left);
        for _ in 0..ROUNDS_MAX {
            self.simplify();
            if self.round().expect("nothing goes wrong") {
                break;
            }
        }
        self.left = left;
        self
    }

    /// Checks that all shards get served if there are no more faults and nobody drains. `settled` holds states for which this is known.
    fn settles(&self, settled: &mut HashSet<u128>) -> Result<(), String> {
        let mut world = self.clone();
        world.is_away = false;
        world.left = super::state::Budget {
            pauses: u8::MAX,
            ..Default::default()
        };
        world.rows.iter_mut().for_each(|row| row.wants_drain = false);
        let mut way = Vec::new();
        for _ in 0..ROUNDS_MAX {
            world.left.pauses = u8::MAX;
            world.simplify();
            let now = world.fingerprint();
            if settled.contains(&now) {
                settled.extend(way);
                return Ok(());
            }
            way.push(now);
            if world.round()? {
                settled.extend(way);
                return Ok(());
            }
        }
        Err(format!(
            "a shard is never served again, though nothing goes wrong any more: {world:#?}"
        ))
    }
}

/// Visits all reachable states.
pub(super) fn search(mut start: World) -> Searched {
    start.simplify();
    let mut numbers = HashMap::from([(start.fingerprint(), 0_u32)]);
    let mut parents = vec![(0_u32, Transition::Tick)];
    let mut queue = VecDeque::from([(start.clone(), 0_u32)]);
    let mut settled = HashSet::new();
    while let Some((world, number)) = queue.pop_front() {
        if let Err(wrong) = world.settles(&mut settled) {
            let steps = told(&start, &parents, number, None);
            return Searched {
                states: numbers.len(),
                wrong: Some((wrong, steps)),
            };
        }
        for step in world.steps() {
            let mut next = world.clone();
            if let Err(wrong) = next.step(step) {
                let steps = told(&start, &parents, number, Some(step));
                return Searched {
                    states: numbers.len(),
                    wrong: Some((wrong, steps)),
                };
            }
            next.simplify();
            let found = numbers.len() as u32;
            if let std::collections::hash_map::Entry::Vacant(entry) = numbers.entry(next.fingerprint()) {
                entry.insert(found);
                parents.push((number, step));
                queue.push_back((next, found));
            }
        }
        assert!(
            numbers.len() < STATES_MAX,
            "more than {STATES_MAX} states: the search has no bound"
        );
    }
    Searched {
        states: numbers.len(),
        wrong: None,
    }
}

/// Describes the steps from the start to a state, and one more step.
fn told(start: &World, parents: &[(u32, Transition)], number: u32, last: Option<Transition>) -> Vec<String> {
    let (mut way, mut at) = (Vec::from_iter(last), number);
    while at != 0 {
        let (before, step) = parents[at as usize];
        way.push(step);
        at = before;
    }
    let mut world = start.clone();
    let mut told = Vec::new();
    for step in way.into_iter().rev() {
        let place = match step {
            Transition::TickWhilePaused { place } | Transition::Kill { place } | Transition::Restart { place } => {
                Some(place)
            }
            Transition::Beat { place, .. } | Transition::Decide { place } | Transition::Act { place } => Some(place),
            Transition::Change { place, .. } | Transition::Again { place, .. } => Some(place),
            Transition::Renew { place } | Transition::Write { place, .. } => Some(place),
            Transition::Tick | Transition::Outage(_) | Transition::SeeKilled | Transition::Drain { .. } => None,
            Transition::Land { .. } | Transition::Answer { .. } => None,
        };
        let what = place.map_or_else(String::new, |place| world.told_of(place, step));
        told.push(format!("{step:?} {what}"));
        let _ = world.step(step);
        world.simplify();
    }
    told
}

impl World {
    /// Describes a step with the name of its process.
    fn told_of(&self, place: usize, step: Transition) -> String {
        let process = &self.processes[place];
        let tag = process.tag.0;
        match (step, &process.is_at) {
            (Transition::Act { .. }, Loop::Acting(actions)) => format!("{tag}: {:?}", actions.first()),
            (Transition::Change { .. }, _) => format!("{tag}: {:?}", process.change),
            (Transition::Again { .. }, _) => format!("{tag}: {:?}", process.again),
            _ => tag.to_string(),
        }
    }
}
