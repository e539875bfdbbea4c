use crate::Error;

/// The bounds of a transaction. A transaction that reaches one fails, and the program cannot catch the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Steps of the machine. An operator on a collection takes one step per item.
    pub steps: u64,
    /// The approximate bytes of all values made. Freed values count too.
    pub memory_bytes: u64,
    /// The bytes of one value, counted as if it shared nothing.
    pub value_bytes: u64,
    /// The depth of nested calls.
    pub call_depth: u32,
    /// Raised events, scheduled events, directives and messages.
    pub effects: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            steps: 500_000,
            memory_bytes: 256 << 20,
            value_bytes: 16 << 20,
            call_depth: 1_000,
            effects: 10_000,
        }
    }
}

/// The part of the bounds that the transaction has left.
#[derive(Debug)]
pub(crate) struct Budget {
    limits: Limits,
    steps: u64,
    memory_bytes: u64,
    effects: u32,
}

impl Budget {
    pub(crate) fn new(limits: Limits) -> Budget {
        Budget {
            limits,
            steps: limits.steps,
            memory_bytes: limits.memory_bytes,
            effects: limits.effects,
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn steps_taken(&self) -> u64 {
        self.limits.steps - self.steps
    }

    #[inline]
    pub(crate) fn step(&mut self, steps: u64) -> Result<(), Error> {
        match self.steps.checked_sub(steps) {
            Some(left) => {
                self.steps = left;
                Ok(())
            }
            None => Err(Error::limit(format!(
                "more than {} steps in one event",
                self.limits.steps
            ))),
        }
    }

    #[inline]
    pub(crate) fn allocate(&mut self, bytes: u64) -> Result<(), Error> {
        match self.memory_bytes.checked_sub(bytes) {
            Some(left) => {
                self.memory_bytes = left;
                Ok(())
            }
            None => {
                let most = self.limits.memory_bytes;
                Err(Error::limit(format!("values of more than {most} bytes in one event")))
            }
        }
    }

    pub(crate) fn effect(&mut self) -> Result<(), Error> {
        match self.effects.checked_sub(1) {
            Some(left) => {
                self.effects = left;
                Ok(())
            }
            None => {
                let most = self.limits.effects;
                Err(Error::limit(format!(
                    "more than {most} events, directives and messages in one event"
                )))
            }
        }
    }
}
