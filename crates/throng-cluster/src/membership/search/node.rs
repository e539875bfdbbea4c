//! The steps of a process: its loop, the passage of time, and its end. The loop carries out the decisions of the real [`Membership`] as
//! `node_loop.rs` does.

use super::{
    Lie,
    database::{Refused, has},
    explore::Transition,
    state::{Beat, Change, DEAD, Do, Engine, LEASE, Loop, Mask, Process, SILENCE, Stage, World},
};
use crate::membership::{Action, Membership, NodeFacts, Timing};
use std::{collections::BTreeSet, time::Duration};
use throng_journal::{Node, NodeId, ShardId, ShardSet, View};

/// The microseconds of a tick.
const TICK: u64 = 4;
/// The microseconds of a lease, as membership counts it. A silence is 1.25 times as long.
const LEASE_MICROS: u64 = 3;
/// The current time of a membership. Silences are counted back from here.
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

impl World {
    /// Adds all possible steps of a process. `false` stands for a step that fails because the database is unavailable, or whose answer is lost.
    pub(super) fn steps_of(&self, place: usize, steps: &mut Vec<Transition>) {
        let process = &self.processes[place];
        let may_lose = self.left.lost_answers > 0 && !self.is_away;
        let mut add = |step: fn(usize, bool) -> Transition, can_lose: bool| {
            steps.push(step(place, true));
            if can_lose && may_lose {
                steps.push(step(place, false));
            }
        };
        match process.is_at {
            Loop::Joining if self.is_away => {}
            Loop::Joining | Loop::Waiting => add(|place, is_told| Transition::Beat { place, is_told }, true),
            Loop::Looked(..) => add(|place, _| Transition::Decide { place }, false),
            Loop::Acting(ref actions) if self.is_too_much(actions) => {}
            Loop::Acting(_) => add(|place, _| Transition::Act { place }, false),
        }
        if let Some(change) = process.change
            && self.can_go_on(place, change.is_at)
        {
            let can_lose = matches!(
                change.is_at,
                Stage::Seals(_) | Stage::Opens | Stage::Holds(_) | Stage::Gives
            );
            add(|place, is_told| Transition::Change { place, is_told }, can_lose);
        }
        if let Some(again) = process.again
            && self.can_go_on(place, again.is_at)
            && (!self.is_away || matches!(again.is_at, Stage::Waits | Stage::Begins(..)))
        {
            let can_lose = matches!(again.is_at, Stage::Opens | Stage::Holds(_));
            add(|place, is_told| Transition::Again { place, is_told }, can_lose);
        }
        if process.lease.0 != 0 && !self.is_away && !self.is_renewed(place) {
            add(|place, _| Transition::Renew { place }, false);
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
            steps.extend(own.map(|shard| Transition::Write { place, shard }));
        }
    }

    /// Returns true if the process would declare a living node dead although this search has no pause left for that.
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

    /// Lets a node beat. A process that is no member joins instead.
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
                process.has_given = false;
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

    /// Lets the process's membership decide on the view that it has read.
    pub(super) fn decide(&mut self, place: usize) {
        let process = &self.processes[place];
        let Loop::Looked(glances, owners) = &process.is_at else {
            return;
        };
        let node = |glance: &super::state::Glance| Node {
            beat: glance.beat.into(),
            is_disconnected: glance.is_disconnected,
            ..Node::new(NodeId(glance.id.into()), throng_journal::Join::default(), glance.state)
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
        let seen = NodeFacts {
            refusing: glances
                .iter()
                .map(|glance| glance.id)
                .filter(refuses)
                .map(|id| NodeId(id.into()))
                .collect::<BTreeSet<_>>(),
            serves: process.serves.map(set),
            has_given: process.has_given,
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
            Action::CutOff(_) | Action::Leave => None,
        };
        process.is_at = Loop::Acting(actions.into_iter().filter_map(action).collect());
        self.spawn(place);
    }

    /// Begins the change of the engine if that is the next action, or ends the loop's pass if no action is left. Both need no statement, so they are
    /// done at once.
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
        // This was the last action.
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

    /// Executes a statement of the loop. Without a database it fails, and the next one is tried.
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

    /// Lets time pass by one tick for all processes. The clock of the paused process stands still.
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
