use super::{Budget, Instance, Limits, Run};
use crate::{Event, Host, Interrupt, Program, Query, SelectState, Turn, Value};
use std::fmt;
use std::sync::Arc;

/// A machine that runs programs, one transaction after another. It reuses its memory between them, so make one per thread.
pub struct Vm {
    limits: Limits,
    pub(super) turn: Turn,
    pub(super) budget: Budget,
    pub(super) random: fastrand::Rng,
    pub(super) stack: Vec<Value>,
    /// The programs of this transaction, with those used as modules.
    pub(super) instances: Vec<Instance>,
    /// The captures shared by closures that capture nothing.
    pub(super) no_captures: Arc<[Value]>,
}

impl fmt::Debug for Vm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Vm")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl Vm {
    /// Returns a machine with these bounds for each transaction.
    #[must_use]
    pub fn new(limits: Limits) -> Vm {
        Vm {
            limits,
            turn: Turn { time_ms: 0, seed: 0 },
            budget: Budget::new(limits),
            random: fastrand::Rng::with_seed(0),
            stack: Vec::new(),
            instances: Vec::new(),
            no_captures: Arc::from([]),
        }
    }

    /// Begins a transaction: an event with all events it raises, or a query. All runs until the next call share its bounds.
    pub fn begin(&mut self, turn: Turn) {
        self.turn = turn;
        self.budget = Budget::new(self.limits);
        self.random = fastrand::Rng::with_seed(turn.seed);
        self.stack.clear();
        self.instances.clear();
    }

    /// Returns the steps that the transaction has taken so far.
    #[must_use]
    pub fn steps_taken(&self) -> u64 {
        self.budget.steps_taken()
    }

    /// Runs the rules of a ruleset that an event selects, in their order.
    ///
    /// # Errors
    ///
    /// [`Interrupt::Error`]: a rule or the host failed. [`Interrupt::Wait`]: the host has to wait for an answer. After either, discard `state`, and
    /// let nothing that the host was told take effect.
    pub fn event(
        &mut self,
        program: &Arc<Program>,
        event: &Event,
        state: &mut SelectState,
        host: &mut dyn Host,
    ) -> Result<(), Interrupt> {
        if !program.handles(&event.domain, &event.name) {
            return Ok(());
        }
        let mut run = Run::new(self, program, host);
        run.event = Some(event);
        let done = run.rules(program, event, state);
        run.end(done)
    }

    /// Answers a query: the result of a shared function, or a shared value.
    ///
    /// # Errors
    ///
    /// [`Interrupt::Error`]: the ruleset shares no such name, or the program or the host failed. [`Interrupt::Wait`]: as for an event.
    pub fn query(&mut self, program: &Arc<Program>, query: &Query, host: &mut dyn Host) -> Result<Value, Interrupt> {
        let mut run = Run::new(self, program, host);
        run.query = Some(query);
        let done = run.answer(program, query);
        run.end(done)
    }
}
