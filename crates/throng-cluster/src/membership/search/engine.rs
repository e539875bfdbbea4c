//! The engine of a process, step by step: one epoch after another, by orders of its loop and after failures.

use super::{
    Lie,
    database::Refused,
    state::{Again, Engine, Fate, LEASE, Mask, Stage, World, Write},
};

/// The outcome of a step of a starting engine.
enum Begun {
    Next(Stage),
    /// The step is refused for good, or failed and may be retried.
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

    /// Returns the write that a process's engine waits for.
    pub(super) fn awaited(&self, place: usize) -> Option<usize> {
        let is_awaited = |write: &Write| write.is_awaited && usize::from(write.by) == place;
        self.writes.iter().position(is_awaited)
    }

    /// Returns true if a stage may proceed: only one of the two changes may work on an engine's epoch.
    pub(super) fn can_go_on(&self, place: usize, stage: Stage) -> bool {
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

    pub(super) fn begin_change(&mut self, place: usize) {
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

    /// Continues a change once no epoch runs any more.
    fn is_released(&mut self, place: usize) {
        let process = &mut self.processes[place];
        let Some(change) = &mut process.change else { return };
        match change.to {
            // A stream without shards would hold nothing, so none is opened.
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
        process.has_given = false;
    }

    /// Takes the next step of the change that the loop requested from its engine.
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
                // The loop checks again, whatever the outcome.
                let is_given = !self.is_away && self.give(change.node, change.to, change.shards).is_ok();
                self.end_change(place, None);
                let process = &mut self.processes[place];
                process.has_given = is_given && is_told && change.node == process.node;
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

    /// Takes the next step of an engine towards a stream of these shards.
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
                    Ok(writer) => {
                        self.processes[place].lease = (writer, self.lease());
                        Begun::Next(Stage::Holds(writer))
                    }
                }
            }
            Stage::Holds(writer) => {
                if self.is_away {
                    return failed(false);
                }
                let renewed = match self.holds(place, writer) {
                    true => Ok(()),
                    false => self.renew(writer),
                };
                match renewed {
                    Err(Refused) => failed(true),
                    Ok(()) if fails => failed(false),
                    Ok(()) => {
                        if !self.holds(place, writer) {
                            self.processes[place].lease = (writer, self.lease());
                        }
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

    /// Returns the length of a lease from the moment its statement was sent. Here the statement is sent and executed at the same moment, which is the
    /// latest start of a lease.
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

    /// Ends an epoch early: an append failed, or its stream was found sealed.
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

    /// Takes the next step of an engine that restarts by itself.
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

    /// Decides a command and sends its append.
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

    /// Gives an engine the outcome of its append. Without an answer the outcome stays unknown.
    pub(super) fn answer(&mut self, number: usize, is_told: bool) {
        let write = &mut self.writes[number];
        let place = write.by.into();
        write.is_awaited = false;
        match is_told {
            true => write.fate = Fate::Acknowledged,
            false => self.fail(place, false),
        }
    }
}
