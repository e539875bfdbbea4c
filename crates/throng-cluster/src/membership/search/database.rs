//! The statements of directory and journal, each of them atomic. Conditions, changes and answers are those of their documentation.

use super::{
    Lie,
    state::{DEAD, Engine, Fate, Glance, LEASE, Mask, Row, SILENCE, Stream, World},
};
use throng_journal::NodeState;

/// The refusal of a statement: its node is over, or another condition is not met.
#[derive(Debug)]
pub(super) struct Refused;

impl World {
    fn lives(&self, node: u8) -> bool {
        self.rows.iter().any(|row| row.id == node && row.lives())
    }

    pub(super) fn is_sealed(&self, writer: u8) -> bool {
        let stream = self.streams.iter().find(|stream| stream.writer == writer);
        stream.is_none_or(|stream| stream.is_sealed)
    }

    /// Ends a node, and its streams with it.
    fn end(&mut self, node: u8, state: NodeState) {
        self.rows
            .iter_mut()
            .filter(|row| row.id == node)
            .for_each(|row| row.state = state);
        if !self.lies(Lie::DeclaresDeadWithoutSeal) {
            let own = self.streams.iter_mut().filter(|stream| stream.node == node);
            own.for_each(|stream| stream.is_sealed = true);
        }
    }

    pub(super) fn join(&mut self, place: u8) -> Result<u8, Refused> {
        let before = self.rows.iter().find(|row| row.lives() && row.name == place).copied();
        if let Some(before) = before {
            let is_over = before.holder == place || self.is_gone_known;
            if !is_over {
                return Err(Refused);
            }
            self.end(before.id, NodeState::Dead);
        }
        let mut last = 0;
        self.each_id(|id| last = last.max(*id));
        self.rows.push(Row {
            id: last + 1,
            name: place,
            holder: place,
            state: NodeState::Serving,
            beat: 1,
            age: 0,
            wants_drain: false,
        });
        Ok(last + 1)
    }

    pub(super) fn beat(&mut self, node: u8) -> Result<(Vec<Glance>, Vec<u8>), Refused> {
        let row = self.rows.iter_mut().find(|row| row.id == node && row.lives());
        let row = row.ok_or(Refused)?;
        row.beat += 1;
        row.age = 0;
        row.state = match row.wants_drain {
            true => NodeState::Draining,
            false => NodeState::Serving,
        };
        let glances = self.rows.iter().map(|row| Glance {
            id: row.id,
            state: row.state,
            beat: row.beat,
            is_disconnected: row.lives() && self.is_disconnected(row.holder),
        });
        Ok((glances.collect(), self.owners.clone()))
    }

    /// Returns true if the process's sessions are gone.
    pub(super) fn is_disconnected(&self, holder: u8) -> bool {
        match self.processes.get(usize::from(holder)) {
            Some(process) => process.is_disconnected,
            None => self.is_gone_known,
        }
    }

    /// Returns a living node that has not beaten since this beat.
    pub(super) fn silent(&self, node: u8, beat: u8) -> Option<Row> {
        let found = self.rows.iter().find(|row| row.id == node && row.lives()).copied();
        found.filter(|row| row.beat == beat || self.lies(Lie::DeclaresDeadByAnOldBeat))
    }

    /// Declares a node dead. Returns an error if the node was not silent.
    pub(super) fn declare_dead(&mut self, by: u8, dead: u8, beat: u8) -> Result<(), String> {
        let Some(row) = self.silent(dead, beat).filter(|_| self.lives(by)) else {
            return Ok(());
        };
        self.left.pauses -= u8::from(row.holder != DEAD);
        self.end(dead, NodeState::Dead);
        let by = self.processes.iter().find(|process| process.node == by);
        let is_gone = row.holder == DEAD && self.is_gone_known;
        if !is_gone && row.holder != DEAD && row.age < SILENCE {
            return Err("a node was declared dead that has beaten".into());
        }
        if !is_gone && by.is_some_and(|by| by.calm < SILENCE) {
            return Err("a node was declared dead by one that was cut off itself".into());
        }
        Ok(())
    }

    pub(super) fn take(&mut self, by: u8, shards: Mask) {
        if !self.lives(by) {
            return;
        }
        for shard in 0..self.owners.len() {
            if has(shards, shard) && !self.lives(self.owners[shard]) {
                self.owners[shard] = by;
            }
        }
    }

    fn owns(&self, node: u8, shards: Mask) -> bool {
        let mut owners = self.owners.iter().enumerate();
        owners.all(|(shard, owner)| !has(shards, shard) || *owner == node)
    }

    pub(super) fn give(&mut self, from: u8, to: u8, shards: Mask) -> Result<(), Refused> {
        let is_open = |stream: &Stream| !stream.is_sealed && stream.shards & shards != 0;
        let serves = |row: &Row| row.id == to && row.state == NodeState::Serving;
        let is_allowed = self.lives(from)
            && self.rows.iter().any(serves)
            && self.owns(from, shards)
            && (self.lies(Lie::GivesBesideItsStream) || !self.streams.iter().any(is_open));
        if !is_allowed {
            return Err(Refused);
        }
        for shard in (0..self.owners.len()).filter(|shard| has(shards, *shard)) {
            self.owners[shard] = to;
        }
        Ok(())
    }

    /// Opens a stream. The node's earlier streams end.
    pub(super) fn open(&mut self, place: usize, node: u8, shards: Mask) -> Result<u8, Refused> {
        let is_owner = self.owns(node, shards) || self.lies(Lie::OpensWithoutLookingAtTheOwner);
        if !self.lives(node) || !is_owner {
            return Err(Refused);
        }
        let is_in_the_way = |stream: &Stream| !stream.is_sealed && stream.node != node && stream.shards & shards != 0;
        if self.streams.iter().any(is_in_the_way) {
            return Err(Refused);
        }
        self.seal_all(place as u8, |stream| stream.node == node);
        let mut last = 0;
        self.each_writer(|writer| last = last.max(*writer));
        self.streams.push(Stream {
            writer: last + 1,
            node,
            holder: place as u8,
            shards,
            is_sealed: false,
            lease: LEASE,
        });
        Ok(last + 1)
    }

    /// Ends streams. The calling process gives back the leases of its own streams, which it no longer uses.
    pub(super) fn seal_all(&mut self, place: u8, which: impl Fn(&Stream) -> bool) {
        for stream in self.streams.iter_mut().filter(|stream| which(stream)) {
            stream.is_sealed = true;
            if stream.holder == place {
                stream.lease = 0;
            }
        }
    }

    /// Returns true if no other engine may still answer reads from its memory of a stream's shards.
    pub(super) fn is_outlived(&self, place: usize, writer: u8) -> bool {
        let Some(own) = self.streams.iter().find(|stream| stream.writer == writer) else {
            return true;
        };
        let may_answer = |stream: &Stream| {
            let is_gone = match stream.holder {
                DEAD => self.is_gone_known,
                holder => self.lies(Lie::TrustsFreeLocks) && self.is_disconnected(holder),
            };
            let is_other = usize::from(stream.holder) != place && stream.shards & own.shards != 0;
            is_other && stream.is_sealed && stream.lease > 0 && !is_gone
        };
        self.lies(Lie::TakesOverAtOnce) || !self.streams.iter().any(may_answer)
    }

    /// Renews a stream's lease. Refused once the stream is sealed.
    pub(super) fn renew(&mut self, writer: u8) -> Result<(), Refused> {
        let mut streams = self.streams.iter_mut();
        let own = streams.find(|stream| stream.writer == writer && !stream.is_sealed);
        own.ok_or(Refused)?.lease = LEASE;
        Ok(())
    }

    /// Returns what a writer reads of these shards: the records that have landed in earlier, sealed streams.
    pub(super) fn read(&self, writer: u8, shards: Mask) -> Mask {
        let is_of_use = |write: &super::state::Write| {
            let has_landed = matches!(write.fate, Fate::Landed | Fate::Acknowledged);
            has_landed && has(shards, write.shard.into()) && write.writer < writer && self.is_sealed(write.writer)
        };
        let writes = self.writes.iter().enumerate();
        writes.fold(0, |read, (number, write)| match is_of_use(write) {
            true => read | 1 << number,
            false => read,
        })
    }

    /// Appends a write. Refused if the stream is sealed. Returns an error if the append breaks an invariant.
    pub(super) fn append(&mut self, number: usize) -> Result<Result<(), Refused>, String> {
        let write = self.writes[number];
        if self.is_sealed(write.writer) {
            if !self.lies(Lie::AppendsToSealedStreams) {
                return Ok(Err(Refused));
            }
            return Err("a sealed stream has grown".into());
        }
        self.writes[number].fate = Fate::Landed;
        let others = self.writes.iter().enumerate().filter(|(other, _)| *other != number);
        for (other, before) in others {
            let has_landed = matches!(before.fate, Fate::Landed | Fate::Acknowledged);
            if has_landed && before.shard == write.shard && write.knew & 1 << other == 0 {
                return Err("a write has landed whose engine did not know the one before".into());
            }
        }
        Ok(Ok(()))
    }

    /// Checks the invariants of every state.
    pub(super) fn check(&self) -> Result<(), String> {
        for (place, stream) in self.streams.iter().enumerate().filter(|(_, stream)| !stream.is_sealed) {
            let overlaps = |other: &Stream| !other.is_sealed && other.shards & stream.shards != 0;
            if self.streams[..place].iter().any(overlaps) {
                return Err("a shard is written by two".into());
            }
            if !self.owns(stream.node, stream.shards) {
                return Err("a stream is open that may hold shards of another node".into());
            }
        }
        for (place, process) in self.processes.iter().enumerate() {
            let Engine::Running {
                writer,
                shards,
                memory,
                is_closing,
            } = process.engine
            else {
                continue;
            };
            let answers_reads = !is_closing && self.holds(place, writer);
            let is_acknowledged = |write: &&super::state::Write| write.fate == Fate::Acknowledged;
            let of_shards = self
                .writes
                .iter()
                .enumerate()
                .filter(|(_, write)| has(shards, write.shard.into()));
            for (number, _) in of_shards.filter(|(_, write)| is_acknowledged(write)) {
                if memory & 1 << number == 0 && !self.is_sealed(writer) {
                    return Err("an owner has not read what was acknowledged".into());
                }
                if memory & 1 << number == 0 && answers_reads {
                    return Err("a read is answered that is older than what was acknowledged".into());
                }
            }
        }
        Ok(())
    }
}

pub(super) fn has(set: Mask, member: usize) -> bool {
    set & 1 << member != 0
}
