use super::{Budget, Instance, Limits, Run};
use crate::{Event, Host, Interrupt, Program, Query, SelectState, Turn, Value};
use std::fmt;
use std::sync::Arc;

/// Runs programs, one transaction after the other. It keeps its memory between them: make one a thread.
pub struct Vm {
    limits: Limits,
    pub(super) turn: Turn,
    pub(super) budget: Budget,
    pub(super) random: fastrand::Rng,
    pub(super) stack: Vec<Value>,
    /// The programs of this transaction, and those they use as modules.
    pub(super) instances: Vec<Instance>,
    /// The captures of a closure that takes nothing from around it.
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
    /// A machine with these bounds for each transaction.
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

    /// Begins a transaction: an event with all that it raises, or a query. What is run until the next one shares its bounds.
    pub fn begin(&mut self, turn: Turn) {
        self.turn = turn;
        self.budget = Budget::new(self.limits);
        self.random = fastrand::Rng::with_seed(turn.seed);
        self.stack.clear();
        self.instances.clear();
    }

    /// The steps that the transaction has taken so far.
    #[must_use]
    pub fn steps_taken(&self) -> u64 {
        self.budget.steps_taken()
    }

    /// Runs the rules of a ruleset that an event selects, in their order.
    ///
    /// # Errors
    ///
    /// The first failure, of a rule or of the host, or that the host has to wait. Then nothing that was told to the host may take effect, and
    /// `state` has to be forgotten.
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
    /// If nothing of that name is shared, and as for an event.
    pub fn query(&mut self, program: &Arc<Program>, query: &Query, host: &mut dyn Host) -> Result<Value, Interrupt> {
        let mut run = Run::new(self, program, host);
        run.query = Some(query);
        let done = run.answer(program, query);
        run.end(done)
    }
}
