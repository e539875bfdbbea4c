use super::{Budget, Limits};
use crate::{Error, Event, Host, Interrupt, Program, Query, SelectState, Turn, Value};
use std::sync::Arc;

/// Runs programs, one transaction after the other. It keeps its memory between them: make one a thread.
#[derive(Debug)]
pub struct Vm {
    limits: Limits,
    pub(crate) budget: Budget,
    pub(crate) turn: Turn,
}

impl Vm {
    /// A machine with these bounds for each transaction.
    #[must_use]
    pub fn new(limits: Limits) -> Vm {
        Vm {
            limits,
            budget: Budget::new(limits),
            turn: Turn { time_ms: 0, seed: 0 },
        }
    }

    /// Begins a transaction: an event with all that it raises, or a query. What is run until the next one shares its bounds.
    pub fn begin(&mut self, turn: Turn) {
        self.budget = Budget::new(self.limits);
        self.turn = turn;
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
        _program: &Arc<Program>,
        _event: &Event,
        _state: &mut SelectState,
        _host: &mut dyn Host,
    ) -> Result<(), Interrupt> {
        self.budget.step(1)?;
        Ok(())
    }

    /// Answers a query: the result of a shared function, or a shared value.
    ///
    /// # Errors
    ///
    /// If nothing of that name is shared, and as for an event.
    pub fn query(&mut self, program: &Arc<Program>, query: &Query, _host: &mut dyn Host) -> Result<Value, Interrupt> {
        if &*query.name == "__testing" {
            return Ok(program.testing().clone());
        }
        Err(Error::value_error(format!(
            "Ruleset {} does not have query function \"{}\"",
            program.rid, query.name
        ))
        .into())
    }
}
