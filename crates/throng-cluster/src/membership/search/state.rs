//! A state of the searched world, small enough to visit all states. States that differ only in unobservable things have one common form: numbers, the
//! order of processes, and forgotten things.

use super::Lie;
use std::hash::{Hash, Hasher};
use throng_journal::NodeState;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// A set of shards, or of writes, one bit each.
pub(super) type Mask = u8;

/// The holder number of a killed process.
pub(super) const DEAD: u8 = u8::MAX;
/// The ticks of a lease.
pub(super) const LEASE: u8 = 1;
/// The ticks after which a silent node is dead. Counters stop there.
pub(super) const SILENCE: u8 = 1;

/// The whole state. Numbers of nodes, writers and beats begin at 1; 0 is none.
#[derive(Clone, Debug, Hash)]
pub(super) struct World {
    pub(super) lie: Option<Lie>,
    /// True if free shards are taken as dealt. Otherwise a node below its share takes them, as once patience is over.
    pub(super) is_dealt: bool,
    /// The directory's rows: living nodes, and ended nodes that own shards.
    pub(super) rows: Vec<Row>,
    pub(super) owners: Vec<u8>,
    /// The streams that are not sealed, or whose lease has not expired, in the order of their numbers. Any other stream is sealed.
    pub(super) streams: Vec<Stream>,
    pub(super) writes: Vec<Write>,
    pub(super) processes: Vec<Process>,
    /// True while the database is unavailable.
    pub(super) is_away: bool,
    /// True if this search has outages. Only then the time since a node's last failed beat matters.
    pub(super) has_outages: bool,
    /// True if the killed process is known to be gone: its port refuses, and its sessions have ended.
    pub(super) is_gone_known: bool,
    pub(super) left: Budget,
}

/// The numbers of events that may still happen.
#[derive(Clone, Copy, Debug, Default, Hash)]
pub(super) struct Budget {
    pub(super) writes: u8,
    pub(super) kills: u8,
    pub(super) restarts: u8,
    /// The number of pauses so long that the others declare the process dead.
    pub(super) pauses: u8,
    pub(super) lost_answers: u8,
    pub(super) outages: u8,
    pub(super) drains: u8,
}

#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Row {
    pub(super) id: u8,
    /// The place of the process. A process started as its replacement has the same.
    pub(super) name: u8,
    pub(super) holder: u8,
    pub(super) state: NodeState,
    pub(super) beat: u8,
    /// The ticks since its last beat. No node can read this.
    pub(super) age: u8,
    pub(super) wants_drain: bool,
}

#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Stream {
    pub(super) writer: u8,
    pub(super) node: u8,
    pub(super) holder: u8,
    pub(super) shards: Mask,
    pub(super) is_sealed: bool,
    /// The ticks that others must wait for after it is sealed.
    pub(super) lease: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Fate {
    /// The commit may land.
    #[default]
    Sent,
    Landed,
    Acknowledged,
    /// The commit is known never to land.
    Lost,
}

#[derive(Clone, Copy, Debug, Default, Hash)]
pub(super) struct Write {
    pub(super) by: u8,
    pub(super) writer: u8,
    pub(super) shard: u8,
    pub(super) fate: Fate,
    /// True while its engine waits for the answer.
    pub(super) is_awaited: bool,
    /// The writes that it depends on: those its engine knew.
    pub(super) knew: Mask,
}

#[derive(Clone, Debug, Hash)]
pub(super) struct Process {
    pub(super) tag: Tag,
    pub(super) is_up: bool,
    pub(super) node: u8,
    pub(super) is_at: Loop,
    /// The memory of its membership: the last beat of each other node, and the ticks since it was first seen.
    pub(super) beats: Vec<Beat>,
    /// The ticks since one of its own beats failed. Its membership should use them, but is not checked for it.
    pub(super) calm: u8,
    pub(super) is_disconnected: bool,
    /// The shards that its engine serves, according to its loop.
    pub(super) serves: Option<Mask>,
    /// True if the engine serves nothing because some of its shards were given away.
    pub(super) has_given: bool,
    pub(super) change: Option<Change>,
    /// The last orders of its engine: the node and its shards.
    pub(super) member: (u8, Mask),
    pub(super) engine: Engine,
    pub(super) again: Option<Again>,
    /// The writer for which it answers reads, and the remaining ticks.
    pub(super) lease: (u8, u8),
}

/// The letter of a process, for reports only. It is not part of the state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tag(pub(super) char);

impl Hash for Tag {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Beat {
    pub(super) node: u8,
    pub(super) beat: u8,
    pub(super) silence: u8,
}

/// The position of its loop.
#[derive(Clone, Debug, Hash)]
pub(super) enum Loop {
    Joining,
    Waiting,
    /// The loop has read this answer, but not yet acted on it.
    Looked(Vec<Glance>, Vec<u8>),
    Acting(Vec<Do>),
}

#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Glance {
    pub(super) id: u8,
    pub(super) state: NodeState,
    pub(super) beat: u8,
    pub(super) is_disconnected: bool,
}

#[derive(Clone, Copy, Debug, Hash)]
pub(super) enum Do {
    DeclareDead { node: u8, beat: u8 },
    Take(Mask),
    Serve(Mask),
    Give { to: u8, shards: Mask },
}

/// A change that the loop requests from its engine: serve these shards, or release all and give these away.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Change {
    pub(super) node: u8,
    /// The receiving node. 0: the engine must serve.
    pub(super) to: u8,
    pub(super) shards: Mask,
    pub(super) is_at: Stage,
}

/// An engine that restarts from its journal by itself.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Again {
    /// True if its stream was found sealed.
    pub(super) was_sealed: bool,
    pub(super) is_at: Stage,
}

#[derive(Clone, Copy, Debug, Hash)]
pub(super) enum Stage {
    /// Waits for the other change to finish.
    Waits,
    /// Waits until no append is in flight.
    Drains,
    Seals(u8),
    Opens,
    /// A stream is open. Other engines' leases are waited for.
    Holds(u8),
    /// All records are read.
    Begins(u8, Mask),
    Gives,
}

#[derive(Clone, Copy, Debug, Hash)]
pub(super) enum Engine {
    Down,
    Running {
        writer: u8,
        shards: Mask,
        /// The writes that it knows.
        memory: Mask,
        is_closing: bool,
    },
    /// An append has failed, which is not handled yet.
    Failed,
}

impl Process {
    pub(super) fn new(tag: char) -> Self {
        Self {
            tag: Tag(tag),
            is_up: true,
            node: 0,
            is_at: Loop::Joining,
            beats: Vec::new(),
            calm: SILENCE,
            is_disconnected: false,
            serves: None,
            has_given: false,
            change: None,
            member: (0, 0),
            engine: Engine::Down,
            again: None,
            lease: (0, 0),
        }
    }

    fn stages(&mut self) -> impl Iterator<Item = &mut Stage> {
        let change = self.change.iter_mut().map(|change| &mut change.is_at);
        change.chain(self.again.iter_mut().map(|again| &mut again.is_at))
    }
}

impl Row {
    pub(super) fn lives(&self) -> bool {
        matches!(self.state, NodeState::Serving | NodeState::Draining)
    }
}

/// The bytes of the state, in the order of hashing.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Hasher for Bytes {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn write_usize(&mut self, number: usize) {
        self.0.push(number as u8);
    }

    fn write_isize(&mut self, number: isize) {
        self.0.push(number as u8);
    }

    fn finish(&self) -> u64 {
        xxh3_64(&self.0)
    }
}

fn bytes(value: &impl Hash) -> Bytes {
    let mut bytes = Bytes(Vec::with_capacity(256));
    value.hash(&mut bytes);
    bytes
}

impl World {
    pub(super) fn new(processes: usize, shards: usize, left: Budget) -> Self {
        Self {
            lie: None,
            is_dealt: false,
            rows: Vec::new(),
            owners: vec![0; shards],
            streams: Vec::new(),
            writes: Vec::new(),
            processes: ('a'..).take(processes).map(Process::new).collect(),
            is_away: false,
            has_outages: left.outages > 0,
            is_gone_known: false,
            left,
        }
    }

    pub(super) fn lies(&self, lie: Lie) -> bool {
        self.lie == Some(lie)
    }

    /// Returns a fingerprint. Two states with the same fingerprint are the same.
    pub(super) fn fingerprint(&self) -> u128 {
        xxh3_128(&bytes(self).0)
    }

    /// Brings the state into the common form of all states that cannot be distinguished from it.
    pub(super) fn simplify(&mut self) {
        self.forget();
        let mut ids = Vec::new();
        self.each_id(|id| ids.push(*id));
        renumber(&mut ids, |change| self.each_id(change));
        let mut writers = Vec::new();
        self.each_writer(|writer| writers.push(*writer));
        renumber(&mut writers, |change| self.each_writer(change));
        for node in 1..=ids.len() as u8 {
            let mut beats = Vec::new();
            self.each_beat(|of, beat| {
                if of == node {
                    beats.push(*beat);
                }
            });
            renumber(&mut beats, |change| {
                self.each_beat(|of, beat| {
                    if of == node {
                        change(beat);
                    }
                });
            });
        }
        self.sort_processes();
    }

    /// Forgets everything that can have no more effect.
    fn forget(&mut self) {
        self.is_gone_known &= self.holds_anything(DEAD);
        let (owners, is_gone_known) = (&self.owners, self.is_gone_known);
        self.rows.retain(|row| row.lives() || owners.contains(&row.id));
        for row in self.rows.iter_mut().filter(|row| !row.lives()) {
            (row.name, row.holder, row.beat, row.age, row.wants_drain) = (0, 0, 0, 0, false);
        }
        self.streams.retain(|stream| {
            let is_waited_for = stream.lease > 0 && !(stream.holder == DEAD && is_gone_known);
            !stream.is_sealed || is_waited_for
        });
        for stream in self.streams.iter_mut().filter(|stream| stream.is_sealed) {
            stream.node = 0;
        }
        let (rows, streams, has_outages) = (&self.rows, &self.streams, self.has_outages);
        for process in &mut self.processes {
            if !process.is_up {
                *process = Process {
                    is_up: false,
                    ..Process::new(process.tag.0)
                };
                continue;
            }
            let looked: &[Glance] = match &process.is_at {
                Loop::Looked(looked, _) => looked,
                _ => &[],
            };
            let is_of_use = |beat: &Beat| {
                let lives = rows.iter().any(|row| row.id == beat.node && row.lives());
                lives || looked.iter().any(|glance| glance.id == beat.node)
            };
            process.beats.retain(is_of_use);
            if matches!(process.engine, Engine::Down) && process.again.is_none() && process.change.is_none() {
                process.member = (0, 0);
            }
            let held = streams.iter().find(|stream| stream.writer == process.lease.0);
            if held.is_none() && process.lease.1 == 0 {
                process.lease = (0, 0);
            }
            if !has_outages {
                process.calm = SILENCE;
            }
        }
        for write in &mut self.writes {
            let is_over = matches!(write.fate, Fate::Acknowledged | Fate::Lost);
            if is_over && streams.iter().all(|stream| stream.writer != write.writer) {
                write.writer = 0;
            }
            if write.fate != Fate::Sent {
                write.knew = 0;
            }
            if write.fate != Fate::Sent && !write.is_awaited {
                write.by = 0;
            }
        }
    }

    pub(super) fn each_id(&mut self, mut visit: impl FnMut(&mut u8)) {
        self.rows.iter_mut().for_each(|row| visit(&mut row.id));
        self.owners.iter_mut().for_each(&mut visit);
        self.streams.iter_mut().for_each(|stream| visit(&mut stream.node));
        for process in &mut self.processes {
            visit(&mut process.node);
            visit(&mut process.member.0);
            process.beats.iter_mut().for_each(|beat| visit(&mut beat.node));
            if let Some(change) = &mut process.change {
                visit(&mut change.node);
                visit(&mut change.to);
            }
            match &mut process.is_at {
                Loop::Looked(nodes, owners) => {
                    nodes.iter_mut().for_each(|node| visit(&mut node.id));
                    owners.iter_mut().for_each(&mut visit);
                }
                Loop::Acting(actions) => actions.iter_mut().for_each(|action| match action {
                    Do::DeclareDead { node, .. } => visit(node),
                    Do::Give { to, .. } => visit(to),
                    Do::Take(_) | Do::Serve(_) => {}
                }),
                Loop::Joining | Loop::Waiting => {}
            }
        }
    }

    pub(super) fn each_writer(&mut self, mut visit: impl FnMut(&mut u8)) {
        self.streams.iter_mut().for_each(|stream| visit(&mut stream.writer));
        self.writes.iter_mut().for_each(|write| visit(&mut write.writer));
        for process in &mut self.processes {
            visit(&mut process.lease.0);
            if let Engine::Running { writer, .. } = &mut process.engine {
                visit(writer);
            }
            for stage in process.stages() {
                match stage {
                    Stage::Seals(writer) | Stage::Holds(writer) | Stage::Begins(writer, _) => visit(writer),
                    Stage::Waits | Stage::Drains | Stage::Opens | Stage::Gives => {}
                }
            }
        }
    }

    fn each_beat(&mut self, mut visit: impl FnMut(u8, &mut u8)) {
        self.rows.iter_mut().for_each(|row| visit(row.id, &mut row.beat));
        for process in &mut self.processes {
            process
                .beats
                .iter_mut()
                .for_each(|beat| visit(beat.node, &mut beat.beat));
            match &mut process.is_at {
                Loop::Looked(nodes, _) => nodes.iter_mut().for_each(|node| visit(node.id, &mut node.beat)),
                Loop::Acting(actions) => actions.iter_mut().for_each(|action| {
                    if let Do::DeclareDead { node, beat } = action {
                        visit(*node, beat);
                    }
                }),
                Loop::Joining | Loop::Waiting => {}
            }
        }
    }

    /// Sorts the processes, because states that differ only in their places are the same state.
    fn sort_processes(&mut self) {
        let mut order: Vec<usize> = (0..self.processes.len()).collect();
        order.sort_by_cached_key(|place| {
            let process = &self.processes[*place];
            (process.node, bytes(process).finish())
        });
        if order.is_sorted() {
            return;
        }
        self.processes = order.iter().map(|place| self.processes[*place].clone()).collect();
        let place = |before: &mut u8| {
            if *before != DEAD {
                let now = order.iter().position(|place| *place == usize::from(*before));
                *before = now.unwrap_or_default() as u8;
            }
        };
        for row in self.rows.iter_mut().filter(|row| row.lives()) {
            place(&mut row.name);
            place(&mut row.holder);
        }
        self.streams.iter_mut().for_each(|stream| place(&mut stream.holder));
        let is_held = |write: &&mut Write| write.fate == Fate::Sent || write.is_awaited;
        for write in self.writes.iter_mut().filter(is_held) {
            place(&mut write.by);
        }
    }
}

/// Renumbers values: only their equality and order matter.
fn renumber(found: &mut Vec<u8>, each: impl FnOnce(&mut dyn FnMut(&mut u8))) {
    found.retain(|number| *number != 0);
    found.sort_unstable();
    found.dedup();
    let is_so = found
        .iter()
        .enumerate()
        .all(|(place, number)| place + 1 == usize::from(*number));
    if !is_so {
        each(&mut |number| {
            if let Ok(place) = found.binary_search(number) {
                *number = place as u8 + 1;
            }
        });
    }
}
