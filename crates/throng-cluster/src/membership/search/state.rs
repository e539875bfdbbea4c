//! A state of the searched world, small enough that all of them can be visited, and the one form that states have which only differ in
//! what nobody can tell: numbers, the order of processes, what is forgotten.

use super::Lie;
use std::hash::{Hash, Hasher};
use throng_journal::NodeState;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// A set of shards, or of writes: a bit each.
pub(super) type Mask = u8;

/// The number that stands for a killed process.
pub(super) const DEAD: u8 = u8::MAX;
/// Ticks that a lease lasts.
pub(super) const LEASE: u8 = 1;
/// Ticks after which a node that is silent is dead, and further than which nobody counts.
pub(super) const SILENCE: u8 = 1;

/// All there is. Numbers of nodes, writers and beats begin at 1; 0 is none.
#[derive(Clone, Debug, Hash)]
pub(super) struct World {
    pub(super) lie: Option<Lie>,
    /// Free shards are taken as they are dealt; else by whoever is below its share, as once patience is over.
    pub(super) is_dealt: bool,
    /// The directory's rows: nodes that live, and those that are over and own something.
    pub(super) rows: Vec<Row>,
    pub(super) owners: Vec<u8>,
    /// The streams that are not sealed or whose lease is not over, in the order of their numbers. Any other one is sealed.
    pub(super) streams: Vec<Stream>,
    pub(super) writes: Vec<Write>,
    pub(super) processes: Vec<Process>,
    /// The database answers nobody.
    pub(super) is_away: bool,
    /// There are any in this search: only then anybody asks how long a node was not cut off.
    pub(super) has_outages: bool,
    /// The process that was killed is known to be gone: its port refuses, its sessions and itself are no more.
    pub(super) is_gone_known: bool,
    pub(super) left: Budget,
}

/// The budget of things that may still happen.
#[derive(Clone, Copy, Debug, Default, Hash)]
pub(super) struct Budget {
    pub(super) writes: u8,
    pub(super) kills: u8,
    pub(super) restarts: u8,
    /// The pauses so long that the others declare the process dead.
    pub(super) pauses: u8,
    pub(super) lost_answers: u8,
    pub(super) outages: u8,
    pub(super) drains: u8,
}

#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Row {
    pub(super) id: u8,
    /// The place of the process, which a process that is started in its stead has, too.
    pub(super) name: u8,
    pub(super) holder: u8,
    pub(super) state: NodeState,
    pub(super) beat: u8,
    /// Ticks since it has beaten: what no node is told.
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
    /// Ticks that others have to wait for, once it is sealed.
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
    /// Its engine waits for the answer.
    pub(super) is_awaited: bool,
    /// The writes it rests on: those its engine knew.
    pub(super) knew: Mask,
}

#[derive(Clone, Debug, Hash)]
pub(super) struct Process {
    pub(super) tag: Tag,
    pub(super) is_up: bool,
    pub(super) node: u8,
    pub(super) is_at: Loop,
    /// The memory of its membership: of each other node the last beat, and the ticks since it began.
    pub(super) beats: Vec<Beat>,
    /// Ticks since a beat of its own failed: what its membership has to go by, and is not asked for.
    pub(super) calm: u8,
    pub(super) is_disconnected: bool,
    /// The shards that its loop believes its engine to serve.
    pub(super) serves: Option<Mask>,
    /// The engine serves nothing because some of its shards were given away.
    pub(super) has_given: bool,
    pub(super) change: Option<Change>,
    /// The last orders of its engine: the node and its shards.
    pub(super) member: (u8, Mask),
    pub(super) engine: Engine,
    pub(super) again: Option<Again>,
    /// The writer of whom it answers reads, and for how many ticks.
    pub(super) lease: (u8, u8),
}

/// The letter of a process, for people only; it is no part of the state.
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

/// The place of its loop.
#[derive(Clone, Debug, Hash)]
pub(super) enum Loop {
    Joining,
    Waiting,
    /// The loop has this answer, and has done nothing about it yet.
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

/// The change that its loop asks of its engine: serve these, or release all and give these.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Change {
    pub(super) node: u8,
    /// 0: it is to serve.
    pub(super) to: u8,
    pub(super) shards: Mask,
    pub(super) is_at: Stage,
}

/// An engine that begins again from its journal by itself.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Again {
    /// Its stream was found sealed.
    pub(super) was_sealed: bool,
    pub(super) is_at: Stage,
}

#[derive(Clone, Copy, Debug, Hash)]
pub(super) enum Stage {
    /// Waits for the other change to be done.
    Waits,
    /// Waits until nothing is under way.
    Drains,
    Seals(u8),
    Opens,
    /// A stream is open; others' leases are waited for.
    Holds(u8),
    /// All is read.
    Begins(u8, Mask),
    Gives,
}

#[derive(Clone, Copy, Debug, Hash)]
pub(super) enum Engine {
    Down,
    Running {
        writer: u8,
        shards: Mask,
        /// The writes it knows.
        memory: Mask,
        is_closing: bool,
    },
    /// An append has failed, and nothing was done about it yet.
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

/// All that is hashed, in the order it is.
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

    /// Two states are the same if this is.
    pub(super) fn fingerprint(&self) -> u128 {
        xxh3_128(&bytes(self).0)
    }

    /// Brings it into the form that all states have which nobody can tell from it.
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

    /// Forgets what can have no effect any more.
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

/// Numbers only have to be told apart, and to have their order.
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
