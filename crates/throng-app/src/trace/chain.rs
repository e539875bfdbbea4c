//! The chain of turns around an entity, read from the journal: the causes of each of its turns, and their effects.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use throng::journal::{Address, Commit, Position, Record, RecordKind};

/// The most readings of the journal in each direction.
const READINGS_MAX: usize = 16;
/// The most turns of a chain.
pub(super) const TURNS_MAX: usize = 10_000;

/// A message, by its sending shard and its number there.
pub(super) type Message = (u16, u64);

/// A turn's position: a commit, and the number of the turn in it.
pub(super) type Place = (Position, usize);

/// A turn of an entity: the records of one command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct TracedTurn {
    /// The commit that recorded it.
    pub(super) commit: String,
    /// The commit's time, in microseconds since 1970.
    pub(super) at_micros: i64,
    pub(super) kind: String,
    pub(super) id: String,
    /// The message that it took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) taken: Option<Taken>,
    /// The client's command, if its kind keeps commands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) command: Option<String>,
    /// Its events, by name and number.
    pub(super) events: Vec<(String, u64)>,
    pub(super) sent: Vec<Sent>,
    /// Timers that it set (`true`) or cleared.
    pub(super) timers: Vec<(String, bool)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Taken {
    pub(super) message: Message,
    /// The outcome, as the journal names it: `done`, `refused`, `dead`, `dropped`.
    pub(super) outcome: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Sent {
    pub(super) message: Message,
    pub(super) command: String,
    /// The receiver; `None` if retention has removed it.
    pub(super) to: Option<(String, String)>,
}

/// The receiver in a message's record, as kind and id.
#[derive(Deserialize)]
struct Receiver {
    to: (String, String),
}

impl TracedTurn {
    fn new(commit: &Commit, record: &Record<'_>) -> Self {
        Self {
            commit: commit.position().to_string(),
            at_micros: commit.stamp().at_micros,
            kind: record.kind.to_owned(),
            id: record.id.to_owned(),
            taken: None,
            command: None,
            events: Vec::new(),
            sent: Vec::new(),
            timers: Vec::new(),
        }
    }

    /// True if the next record begins another turn: it is of another entity, follows a record that ends a turn, or is an event after other
    /// effects.
    fn is_over(&self, next: &Record<'_>) -> bool {
        let has_effects = !self.sent.is_empty() || !self.timers.is_empty() || self.command.is_some();
        let is_event = next.record == RecordKind::Event;
        self.kind != next.kind || self.id != next.id || self.taken.is_some() || is_event && has_effects
    }

    fn add(&mut self, record: &Record<'_>) {
        let name = || record.name.to_owned();
        let message = |shard| (shard, record.seq);
        match record.record {
            RecordKind::Event => self.events.push((name(), record.seq)),
            RecordKind::Sent => self.sent.push(Sent {
                message: message(record.shard.0),
                command: name(),
                to: serde_json::from_slice::<Receiver>(record.body)
                    .ok()
                    .map(|receiver| receiver.to),
            }),
            RecordKind::Taken => {
                self.taken = Some(Taken {
                    message: message(record.version),
                    outcome: name(),
                });
            }
            RecordKind::Command => self.command = Some(name()),
            RecordKind::TimerSet | RecordKind::TimerCleared => {
                self.timers.push((name(), record.record == RecordKind::TimerSet));
            }
            _ => {}
        }
    }

    fn is_empty(&self) -> bool {
        self.events.is_empty() && self.sent.is_empty() && self.taken.is_none() && self.timers.is_empty()
    }
}

/// The turns of a commit, in order.
fn turns(commit: &Commit) -> Vec<TracedTurn> {
    let mut turns: Vec<TracedTurn> = Vec::new();
    for record in commit.records().flatten() {
        match turns.last_mut().filter(|turn| !turn.is_over(&record)) {
            Some(turn) => turn.add(&record),
            None => {
                let mut turn = TracedTurn::new(commit, &record);
                turn.add(&record);
                turns.push(turn);
            }
        }
    }
    turns.retain(|turn| !turn.is_empty());
    turns
}

/// The turns around an entity.
#[derive(Default)]
pub(super) struct Chain {
    pub(super) turns: BTreeMap<Place, TracedTurn>,
    /// The turns of the entity itself.
    pub(super) own: BTreeSet<Place>,
    /// True if the chain is longer than the limit.
    pub(super) is_cut: bool,
}

impl Chain {
    /// Follows the causes and effects of an entity's last turns, reading the journal as often as necessary.
    ///
    /// # Errors
    /// The error that `walk` returned. `walk` reads the whole journal once.
    pub(super) fn follow<E>(
        of: &Address,
        last: usize,
        mut walk: impl FnMut(&mut dyn FnMut(&Commit)) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut own: VecDeque<(Place, TracedTurn)> = VecDeque::new();
        walk(&mut |commit| {
            for (at, turn) in turns(commit).into_iter().enumerate() {
                if turn.kind == *of.kind && turn.id == *of.id {
                    own.push_back(((commit.position(), at), turn));
                }
                if own.len() > last {
                    own.pop_front();
                }
            }
        })?;
        let mut chain = Self {
            own: own.iter().map(|(place, _)| *place).collect(),
            turns: own.into_iter().collect(),
            is_cut: false,
        };
        let taken = |turn: &TracedTurn| turn.taken.iter().map(|taken| taken.message).collect::<Vec<_>>();
        let sent = |turn: &TracedTurn| turn.sent.iter().map(|sent| sent.message).collect::<Vec<_>>();
        // Effects are followed before causes: the other effects of a cause belong to another chain.
        chain.extend(&mut walk, sent, taken)?;
        chain.extend(&mut walk, taken, sent)?;
        Ok(chain)
    }

    /// Adds the turns at the other end of messages, until no message leads to a new one.
    fn extend<E>(
        &mut self,
        walk: &mut impl FnMut(&mut dyn FnMut(&Commit)) -> Result<(), E>,
        from: impl Fn(&TracedTurn) -> Vec<Message>,
        to: impl Fn(&TracedTurn) -> Vec<Message>,
    ) -> Result<(), E> {
        let own = self.own.iter().filter_map(|place| self.turns.get(place));
        let mut wanted: HashSet<Message> = own.flat_map(&from).collect();
        let mut seen = wanted.clone();
        for _ in 0..READINGS_MAX {
            if wanted.is_empty() {
                return Ok(());
            }
            let mut next = HashSet::new();
            walk(&mut |commit| {
                for (at, turn) in turns(commit).into_iter().enumerate() {
                    let place = (commit.position(), at);
                    if !to(&turn).iter().any(|message| wanted.contains(message)) || self.turns.contains_key(&place) {
                        continue;
                    }
                    if self.turns.len() >= TURNS_MAX {
                        self.is_cut = true;
                        continue;
                    }
                    for message in from(&turn) {
                        // Nearly always the same reading meets it later.
                        if seen.insert(message) {
                            wanted.insert(message);
                            next.insert(message);
                        }
                    }
                    self.turns.insert(place, turn);
                }
            })?;
            wanted = next;
        }
        self.is_cut |= !wanted.is_empty();
        Ok(())
    }
}
