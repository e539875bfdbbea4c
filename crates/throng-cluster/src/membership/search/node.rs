//! What a process does, step by step: its life's loop with the real [`Membership`], and its engine, as `life.rs` and the engine's own lives
//! carry out what membership decides.

use super::{
    Lie,
    database::{Refused, has},
    explore::Step,
    state::{Again, Beat, Change, DEAD, Do, Engine, Fate, LEASE, Loop, Mask, Process, SILENCE, Stage, World, Write},
};
use crate::membership::{Action, Membership, Seen, Timing};
use std::{collections::BTreeSet, time::Duration};
use throng_journal::{Node, NodeId, ShardId, ShardSet, View};

/// Microseconds of a tick.
const TICK: u64 = 4;
/// Of a lease, as membership knows it: so many that 1.25 times of it are a silence.
const LEASE_MICROS: u64 = 3;
/// Now, for a membership, whose silences count back from here.
const NOW: u64 = 1_000 * TICK;

fn timing(is_dealt: bool) -> Timing {
    Timing {
        lease: Duration::from_micros(LEASE_MICROS),
        beat: Duration::from_micros(1),
        patience: if is_dealt { Duration::MAX } else { Duration::ZERO },
    }
}

fn set(mask: Mask) -> ShardSet {
    let shards = (0..8).filter(|shard| has(mask, *shard));
    shards.map(|shard| ShardId(shard as u16)).collect()
}

fn mask(set: &ShardSet) -> Mask {
    set.iter().fold(0, |mask, shard| mask | 1 << shard.0)
}

/// What came of a step of an engine's that begins.
enum Begun {
    Next(Stage),
    /// It is refused for good, or fails and may be tried again.
    Failed {
        is_refused: bool,
    },
    Runs,
}

impl World {
    pub(super) fn holds(&self, place: usize, writer: u8) -> bool {
        let (of, left) = self.processes[place].lease;
        of == writer && left > 0
    }

    /// The write that a process's engine waits for.
    fn awaited(&self, place: usize) -> Option<usize> {
        let is_awaited = |write: &Write| write.is_awaited && usize::from(write.by) == place;
        self.writes.iter().position(is_awaited)
    }

    /// Everything a process can do now; `false` for what fails because the database is away, or whose answer is lost.
    pub(super) fn steps_of(&self, place: usize, steps: &mut Vec<Step>) {
        let process = &self.processes[place];
        let may_lose = self.left.lost_answers > 0 && !self.is_away;
        let mut add = |step: fn(usize, bool) -> Step, can_lose: bool| {
            steps.push(step(place, true));
            if can_lose && may_lose {
                steps.push(step(place, false));
            }
        };
        match process.is_at {
            Loop::Joining if self.is_away => {}
            Loop::Joining | Loop::Waiting => add(|place, is_told| Step::Beat { place, is_told }, true),
            Loop::Looked(..) => add(|place, _| Step::Decide { place }, false),
            Loop::Acting(ref actions) if self.is_too_much(actions) => {}
            Loop::Acting(_) => add(|place, _| Step::Act { place }, false),
        }
        if let Some(change) = process.change
            && self.can_go_on(place, change.is_at)
        {
            let can_lose = matches!(change.is_at, Stage::Seals(_) | Stage::Opens | Stage::Holds(_));
            add(|place, is_told| Step::Change { place, is_told }, can_lose);
        }
        if let Some(again) = process.again
            && self.can_go_on(place, again.is_at)
            && !(self.is_away && !matches!(again.is_at, Stage::Waits | Stage::Begins(..)))
        {
            let can_lose = matches!(again.is_at, Stage::Opens | Stage::Holds(_));
            add(|place, is_told| Step::Again { place, is_told }, can_lose);
        }
        if process.lease.0 != 0 && !self.is_away && !self.is_renewed(place) {
            add(|place, _| Step::Renew { place }, false);
        }
        if let Engine::Running {
            writer,
            shards,
            is_closing: false,
            ..
        } = process.engine
            && self.left.writes > 0
            && self.awaited(place).is_none()
            && self.holds(place, writer)
        {
            let own = (0..self.owners.len()).filter(|shard| has(shards, *shard));
            steps.extend(own.map(|shard| Step::Write { place, shard }));
        }
    }

    /// It would declare one dead that lives, and so many pauses as that are not in this search.
    fn is_too_much(&self, actions: &[Do]) -> bool {
        let Some(Do::DeclareDead { node, beat }) = actions.first() else {
            return false;
        };
        let found = self.silent(*node, *beat);
        self.left.pauses == 0 && !self.is_away && found.is_some_and(|row| row.holder != DEAD)
    }

    fn is_renewed(&self, place: usize) -> bool {
        let (writer, left) = self.processes[place].lease;
        let stream = self.streams.iter().find(|stream| stream.writer == writer);
        left >= LEASE && stream.is_some_and(|stream| stream.lease >= LEASE && !stream.is_sealed)
    }

    /// One of the two that change an engine's life has it for itself.
    fn can_go_on(&self, place: usize, stage: Stage) -> bool {
        let process = &self.processes[place];
        let is_changed = process
            .change
            .is_some_and(|change| !matches!(change.is_at, Stage::Waits));
        let begins_again = |again: Again| !matches!(again.is_at, Stage::Waits | Stage::Seals(_));
        match stage {
            Stage::Waits => !is_changed && !process.again.is_some_and(begins_again),
            Stage::Drains => match process.engine {
                Engine::Running { writer, .. } => self.awaited(place).is_none() || !self.holds(place, writer),
                Engine::Down | Engine::Failed => true,
            },
            Stage::Holds(writer) => self.is_away || self.is_sealed(writer) || self.is_outlived(place, writer),
            Stage::Seals(_) | Stage::Opens | Stage::Begins(..) | Stage::Gives => true,
        }
    }

    /// A beat; or, as long as it is no member, a join.
    pub(super) fn beat_of(&mut self, place: usize, is_told: bool) {
        let (node, is_away) = (self.processes[place].node, self.is_away);
        let is_joining = matches!(self.processes[place].is_at, Loop::Joining);
        if is_joining {
            let joined = self.join(place as u8);
            let process = &mut self.processes[place];
            if let (Ok(node), true) = (joined, is_told) {
                process.node = node;
                process.is_at = Loop::Waiting;
                process.beats.clear();
                process.serves = None;
            }
            return;
        }
        let beaten = if is_away {
            Ok(Default::default())
        } else {
            self.beat(node)
        };
        let watches_on = self.lies(Lie::WatchesOnThroughOutages);
        let process = &mut self.processes[place];
        match beaten {
            _ if is_away || !is_told => {
                process.calm = 0;
                if !watches_on {
                    process.beats.clear();
                }
            }
            Ok((nodes, owners)) => process.is_at = Loop::Looked(nodes, owners),
            Err(Refused) => {
                process.node = 0;
                process.is_at = Loop::Joining;
            }
        }
    }

    /// What its membership makes of what it saw.
    pub(super) fn decide(&mut self, place: usize) {
        let process = &self.processes[place];
        let Loop::Looked(glances, owners) = &process.is_at else {
            return;
        };
        let node = |glance: &super::state::Glance| Node {
            id: NodeId(glance.id.into()),
            said: throng_journal::Join::default(),
            state: glance.state,
            beat: glance.beat.into(),
            is_disconnected: glance.is_disconnected,
        };
        let view = View {
            nodes: glances.iter().map(node).collect(),
            owners: owners
                .iter()
                .map(|owner| (*owner != 0).then_some(NodeId((*owner).into())))
                .collect(),
            ..View::default()
        };
        let refuses = |id: &u8| {
            let row = self.rows.iter().find(|row| row.id == *id);
            row.is_some_and(|row| {
                let is_gone = row.holder == DEAD && self.is_gone_known;
                is_gone || self.lies(Lie::DeclaresDeadByFreeLocks) && self.is_disconnected(row.holder)
            })
        };
        let seen = Seen {
            refusing: glances
                .iter()
                .map(|glance| glance.id)
                .filter(refuses)
                .map(|id| NodeId(id.into()))
                .collect::<BTreeSet<_>>(),
            serves: process.serves.map(set),
            is_changing: process.change.is_some(),
        };
        let back = |ticks: u8| NOW - u64::from(ticks) * TICK;
        let mut membership = Membership::new(NodeId(process.node.into()), timing(self.is_dealt));
        membership.beats = process
            .beats
            .iter()
            .map(|beat| (NodeId(beat.node.into()), (beat.beat.into(), back(beat.silence))))
            .collect();
        let actions = membership.actions(&view, NOW, &seen);
        let ticks = |since: u64| ((NOW - since) / TICK) as u8;
        let process = &mut self.processes[place];
        process.beats = membership
            .beats
            .iter()
            .map(|(node, (beat, since))| Beat {
                node: node.0 as u8,
                beat: *beat as u8,
                silence: ticks(*since),
            })
            .collect();
        let action = |action| match action {
            Action::DeclareDead { node, beat } => Some(Do::DeclareDead {
                node: node.0 as u8,
                beat: beat as u8,
            }),
            Action::Take(shards) => Some(Do::Take(mask(&shards))),
            Action::Serve(shards) => Some(Do::Serve(mask(&shards))),
            Action::Give { to, shards } => Some(Do::Give {
                to: to.0 as u8,
                shards: mask(&shards),
            }),
            Action::Leave => None,
        };
        process.is_at = Loop::Acting(actions.into_iter().filter_map(action).collect());
        self.spawn(place);
    }

    /// What takes no statement is done at once.
    fn spawn(&mut self, place: usize) {
        let process = &mut self.processes[place];
        let Loop::Acting(actions) = &mut process.is_at else {
            return;
        };
        let (to, shards) = match actions.first() {
            None => {
                process.is_at = Loop::Waiting;
                return;
            }
            Some(Do::Serve(shards)) => (0, *shards),
            Some(Do::Give { to, shards }) => (*to, *shards),
            Some(_) => return,
        };
        // It is the last one.
        process.is_at = Loop::Waiting;
        let (node, is_at) = (process.node, Stage::Waits);
        process.change = Some(Change {
            node,
            to,
            shards,
            is_at,
        });
        if self.can_go_on(place, Stage::Waits) {
            self.begin_change(place);
        }
    }

    /// A statement of its loop; without a database it fails, and the next one is tried.
    pub(super) fn act(&mut self, place: usize) -> Result<(), String> {
        let node = self.processes[place].node;
        let Loop::Acting(actions) = &mut self.processes[place].is_at else {
            return Ok(());
        };
        let action = actions.remove(0);
        if !self.is_away {
            match action {
                Do::DeclareDead { node: dead, beat } => self.declare_dead(node, dead, beat)?,
                Do::Take(shards) => self.take(node, shards),
                Do::Serve(_) | Do::Give { .. } => {}
            }
        }
        self.spawn(place);
        Ok(())
    }

    fn begin_change(&mut self, place: usize) {
        let gives_at_once = self.lies(Lie::GivesBesideItsStream);
        let process = &mut self.processes[place];
        let Some(change) = &mut process.change else { return };
        let member = (change.node, change.shards);
        match &mut process.engine {
            Engine::Running { .. } if change.to == 0 && process.member == member => {
                process.serves = Some(change.shards);
                process.change = None;
            }
            _ if change.to != 0 && gives_at_once => change.is_at = Stage::Gives,
            Engine::Running { is_closing, .. } => {
                *is_closing = true;
                change.is_at = Stage::Drains;
                if self.awaited(place).is_none() {
                    self.change(place, true);
                }
            }
            Engine::Down | Engine::Failed => self.is_released(place),
        }
    }

    /// Nothing runs any more.
    fn is_released(&mut self, place: usize) {
        let process = &mut self.processes[place];
        let Some(change) = &mut process.change else { return };
        match change.to {
            // A stream without shards would hold nothing: there is none.
            0 if change.shards == 0 => self.end_change(place, Some(0)),
            0 => {
                process.member = (change.node, change.shards);
                change.is_at = Stage::Opens;
            }
            _ => change.is_at = Stage::Gives,
        }
    }

    fn end_change(&mut self, place: usize, serves: Option<Mask>) {
        let counts_all = self.lies(Lie::CountsWhatTheLifeBeforeBegan);
        let process = &mut self.processes[place];
        let Some(change) = process.change.take() else { return };
        process.serves = serves.filter(|_| change.node == process.node || counts_all);
    }

    /// The next step of what its life has its engine do.
    pub(super) fn change(&mut self, place: usize, is_told: bool) {
        let Some(change) = self.processes[place].change else {
            return;
        };
        let fails = self.is_away || !is_told;
        match change.is_at {
            Stage::Waits => self.begin_change(place),
            Stage::Drains => match self.processes[place].engine {
                Engine::Running { writer, .. } if self.awaited(place).is_none() => {
                    self.processes[place].engine = Engine::Down;
                    self.set_stage(place, Stage::Seals(writer));
                }
                _ => {
                    self.fail(place, true);
                    self.end_change(place, None);
                }
            },
            Stage::Seals(writer) => {
                self.let_go(place, writer);
                if !self.is_away {
                    self.seal_all(place as u8, |stream| stream.writer == writer);
                }
                match fails {
                    true => self.end_change(place, None),
                    false => self.is_released(place),
                }
            }
            Stage::Gives => {
                if !self.is_away {
                    // Whatever came of it: its life looks again.
                    let _ = self.give(change.node, change.to, change.shards);
                }
                self.end_change(place, None);
            }
            stage => match self.begin(place, stage, (change.node, change.shards), is_told) {
                Begun::Next(stage) => self.set_stage(place, stage),
                Begun::Failed { .. } => {
                    self.processes[place].engine = Engine::Down;
                    self.end_change(place, None);
                }
                Begun::Runs => self.end_change(place, Some(change.shards)),
            },
        }
    }

    fn set_stage(&mut self, place: usize, stage: Stage) {
        if let Some(change) = &mut self.processes[place].change {
            change.is_at = stage;
        }
    }

    /// The next step of an engine on its way to a stream of these shards.
    fn begin(&mut self, place: usize, stage: Stage, (node, shards): (u8, Mask), is_told: bool) -> Begun {
        let fails = self.is_away || !is_told;
        let failed = |is_refused| Begun::Failed { is_refused };
        match stage {
            Stage::Opens => {
                self.processes[place].lease = (0, 0);
                if self.is_away {
                    return failed(false);
                }
                match self.open(place, node, shards) {
                    Err(Refused) => failed(true),
                    Ok(_) if fails => failed(false),
                    Ok(writer) if self.lies(Lie::ServesBeforeItHasRead) => Begun::Next(Stage::Begins(writer, 0)),
                    Ok(writer) => Begun::Next(Stage::Holds(writer)),
                }
            }
            Stage::Holds(writer) => {
                if self.is_away {
                    return failed(false);
                }
                match self.renew(writer) {
                    Err(Refused) => failed(true),
                    Ok(()) if fails => failed(false),
                    Ok(()) => {
                        self.processes[place].lease = (writer, self.lease());
                        Begun::Next(Stage::Begins(writer, self.read(writer, shards)))
                    }
                }
            }
            Stage::Begins(writer, memory) => {
                if self.lies(Lie::ServesBeforeItHasRead) {
                    self.processes[place].lease = (writer, LEASE);
                }
                self.processes[place].engine = Engine::Running {
                    writer,
                    shards,
                    memory,
                    is_closing: false,
                };
                Begun::Runs
            }
            Stage::Waits | Stage::Drains | Stage::Seals(_) | Stage::Gives => failed(false),
        }
    }

    /// How long a lease lasts from when its statement was sent: what is sent and what is done are one moment here, which is the latest.
    fn lease(&self) -> u8 {
        LEASE + u8::from(self.lies(Lie::LeasesFromTheAnswer))
    }

    fn let_go(&mut self, place: usize, writer: u8) {
        let lease = &mut self.processes[place].lease;
        if lease.0 == writer {
            *lease = (0, 0);
        }
    }

    pub(super) fn renew_of(&mut self, place: usize) {
        let writer = self.processes[place].lease.0;
        let renewed = self.renew(writer);
        self.processes[place].lease = match renewed {
            Ok(()) => (writer, self.lease()),
            Err(Refused) => (0, 0),
        };
    }

    /// A life ends before its time: an append failed, or its stream was found sealed.
    fn fail(&mut self, place: usize, was_sealed: bool) {
        let process = &mut self.processes[place];
        let Engine::Running { writer, .. } = process.engine else {
            return;
        };
        let is_at = Stage::Seals(writer);
        match process.again {
            None => {
                process.engine = Engine::Down;
                process.again = Some(Again { was_sealed, is_at });
            }
            Some(_) => process.engine = Engine::Failed,
        }
        let awaited = self.writes.iter_mut().filter(|write| usize::from(write.by) == place);
        awaited.for_each(|write| write.is_awaited = false);
    }

    /// The next step of an engine that begins again by itself.
    pub(super) fn again(&mut self, place: usize, is_told: bool) {
        let process = &self.processes[place];
        let (Some(again), member) = (process.again, process.member) else {
            return;
        };
        let is_at = match again.is_at {
            Stage::Seals(writer) => {
                self.let_go(place, writer);
                self.seal_all(place as u8, |stream| stream.writer == writer);
                self.answer_by_what_landed(writer);
                Some(Stage::Waits)
            }
            Stage::Waits if matches!(process.engine, Engine::Running { .. }) => None,
            Stage::Waits if again.was_sealed => {
                self.processes[place].engine = Engine::Down;
                None
            }
            Stage::Waits => Some(Stage::Opens),
            stage => match self.begin(place, stage, member, is_told) {
                Begun::Next(stage) => Some(stage),
                Begun::Failed { is_refused: false } => Some(Stage::Opens),
                Begun::Failed { is_refused: true } => {
                    self.processes[place].engine = Engine::Down;
                    None
                }
                Begun::Runs => None,
            },
        };
        self.processes[place].again = is_at.map(|is_at| Again { is_at, ..again });
    }

    fn answer_by_what_landed(&mut self, writer: u8) {
        for write in self.writes.iter_mut().filter(|write| write.writer == writer) {
            write.fate = match write.fate {
                Fate::Landed => Fate::Acknowledged,
                Fate::Sent => Fate::Lost,
                fate => fate,
            };
        }
    }

    /// A command is decided; its append is sent.
    pub(super) fn write(&mut self, place: usize, shard: usize) {
        self.left.writes -= 1;
        let bit = 1 << self.writes.len();
        let Engine::Running { writer, memory, .. } = &mut self.processes[place].engine else {
            return;
        };
        self.writes.push(Write {
            by: place as u8,
            writer: *writer,
            shard: shard as u8,
            fate: Fate::Sent,
            is_awaited: true,
            knew: *memory,
        });
        *memory |= bit;
    }

    pub(super) fn land(&mut self, number: usize) -> Result<(), String> {
        let write = self.writes[number];
        if self.append(number)?.is_err() {
            self.writes[number].fate = Fate::Lost;
            if write.is_awaited {
                self.fail(write.by.into(), true);
            }
        }
        Ok(())
    }

    /// An engine hears what came of its append, or that nobody knows.
    pub(super) fn answer(&mut self, number: usize, is_told: bool) {
        let write = &mut self.writes[number];
        let place = write.by.into();
        write.is_awaited = false;
        match is_told {
            true => write.fate = Fate::Acknowledged,
            false => self.fail(place, false),
        }
    }

    /// A moment goes by, for everybody; but for one that is paused, where its clock stands still meanwhile.
    pub(super) fn tick(&mut self, paused: Option<usize>) {
        self.streams
            .iter_mut()
            .for_each(|stream| stream.lease = stream.lease.saturating_sub(1));
        let later = |ticks: &mut u8, most: u8| *ticks = (*ticks + 1).min(most);
        self.rows.iter_mut().for_each(|row| later(&mut row.age, SILENCE));
        for (place, process) in self.processes.iter_mut().enumerate() {
            if paused != Some(place) {
                process.lease.1 = process.lease.1.saturating_sub(1);
            }
            later(&mut process.calm, SILENCE);
            process
                .beats
                .iter_mut()
                .for_each(|beat| later(&mut beat.silence, SILENCE));
        }
    }

    pub(super) fn kill(&mut self, place: usize) {
        let process = &mut self.processes[place];
        *process = Process {
            is_up: false,
            ..Process::new(process.tag.0)
        };
        self.is_gone_known = false;
        let dies = |holder: &mut u8| {
            if usize::from(*holder) == place {
                *holder = DEAD;
            }
        };
        let living = self.rows.iter_mut().filter(|row| row.lives());
        living.for_each(|row| dies(&mut row.holder));
        self.streams.iter_mut().for_each(|stream| dies(&mut stream.holder));
        for write in &mut self.writes {
            dies(&mut write.by);
            write.is_awaited &= write.by != DEAD;
        }
    }
}
