//! Construction of state machines: one function for each operator of event expressions.

use super::{END, Machine, START, Trigger};
use std::collections::HashMap;
use std::fmt;

/// The most transitions a machine may have.
const TRANSITIONS_MAX: usize = 4_096;
/// The most operands of `and` and `any`. Their order does not matter, so the machine has a state for each set of them.
const UNORDERED_MAX: usize = 8;

/// The error for an event expression whose machine would be too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

impl fmt::Display for TooLarge {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "at most {UNORDERED_MAX} events in any order, and {TRANSITIONS_MAX} transitions in all"
        )
    }
}

/// A machine under construction. Its states have numbers of their own.
#[derive(Clone, Debug)]
pub(crate) struct Builder {
    transitions: Vec<(u32, Trigger, u32)>,
    start: u32,
    end: u32,
    states: u32,
}

impl Builder {
    pub(crate) fn event(pattern: u16) -> Builder {
        Builder {
            transitions: vec![(0, Trigger::Event(pattern), 1)],
            start: 0,
            end: 1,
            states: 2,
        }
    }

    fn empty() -> Builder {
        Builder {
            transitions: Vec::new(),
            start: 0,
            end: 1,
            states: 2,
        }
    }

    /// Inserts another machine between two states of this one.
    fn insert(&mut self, other: &Builder, from: u32, to: u32) -> Result<(), TooLarge> {
        let base = self.states;
        self.states += other.states;
        let place = |state: u32| match state {
            state if state == other.start => from,
            state if state == other.end => to,
            state => base + state,
        };
        let transitions = other
            .transitions
            .iter()
            .map(|(from, on, to)| (place(*from), on.clone(), place(*to)));
        self.transitions.extend(transitions);
        if self.transitions.len() > TRANSITIONS_MAX {
            Err(TooLarge)
        } else {
            Ok(())
        }
    }

    fn state(&mut self) -> u32 {
        self.states += 1;
        self.states - 1
    }

    /// Accepts any one of the operands.
    pub(crate) fn or(operands: Vec<Builder>) -> Result<Builder, TooLarge> {
        let mut machine = Builder::empty();
        for operand in &operands {
            machine.insert(operand, machine.start, machine.end)?;
        }
        Ok(machine)
    }

    /// Accepts all operands, in any order.
    pub(crate) fn and(operands: &[Builder]) -> Result<Builder, TooLarge> {
        Builder::any(operands.len(), operands)
    }

    /// Accepts `count` of the operands, in any order, each at most once.
    pub(crate) fn any(count: usize, operands: &[Builder]) -> Result<Builder, TooLarge> {
        if operands.len() > UNORDERED_MAX {
            return Err(TooLarge);
        }
        let mut machine = Builder::empty();
        // One state for each set of operands seen so far. The bits of a key are the operands.
        let mut states: HashMap<u32, u32> = HashMap::from([(0, machine.start)]);
        for happened in 0_u32..1 << operands.len() {
            if happened.count_ones() as usize >= count {
                continue;
            }
            let Some(from) = states.get(&happened).copied() else {
                continue;
            };
            for (place, operand) in operands.iter().enumerate() {
                let then = happened | 1 << place;
                if then == happened {
                    continue;
                }
                let to = if then.count_ones() as usize == count {
                    machine.end
                } else {
                    *states.entry(then).or_insert_with(|| machine.state())
                };
                machine.insert(operand, from, to)?;
            }
        }
        Ok(machine)
    }

    /// Accepts the operands one after the other, with any events between.
    pub(crate) fn before(operands: Vec<Builder>) -> Result<Builder, TooLarge> {
        Ok(Builder::chain(&operands)?.0)
    }

    /// Chains the operands one after the other, and returns the states between them.
    fn chain(operands: &[Builder]) -> Result<(Builder, Vec<u32>), TooLarge> {
        let mut machine = Builder::empty();
        let mut between = Vec::new();
        let mut from = machine.start;
        for (place, operand) in operands.iter().enumerate() {
            let to = if place + 1 == operands.len() {
                machine.end
            } else {
                machine.state()
            };
            machine.insert(operand, from, to)?;
            between.push(to);
            from = to;
        }
        between.pop();
        Ok((machine, between))
    }

    /// Accepts the operands one after the other, with none of the rule's other events between.
    pub(crate) fn then(operands: Vec<Builder>) -> Result<Builder, TooLarge> {
        let (mut machine, between) = Builder::chain(&operands)?;
        for state in between {
            let ways = machine.transitions.iter().filter(|(from, _, _)| *from == state);
            let mut others: Vec<Trigger> = ways.map(|(_, on, _)| Trigger::Not(Box::new(on.clone()))).collect();
            others.dedup();
            let on = match others.len() {
                1 => others.remove(0),
                _ => Trigger::Or(others),
            };
            machine.transitions.push((state, on, machine.start));
        }
        Ok(machine)
    }

    /// Accepts the first operand between the second and the third.
    pub(crate) fn between(operands: Vec<Builder>) -> Result<Builder, TooLarge> {
        let mut machine = Builder::empty();
        let [event, first, last] = &operands[..] else {
            return Err(TooLarge);
        };
        let (began, happened) = (machine.state(), machine.state());
        machine.insert(first, machine.start, began)?;
        machine.insert(event, began, happened)?;
        machine.insert(last, happened, machine.end)?;
        Ok(machine)
    }

    /// Accepts the third operand after the second, without the first between them.
    pub(crate) fn not_between(operands: Vec<Builder>) -> Result<Builder, TooLarge> {
        let mut machine = Builder::empty();
        let [event, first, last] = &operands[..] else {
            return Err(TooLarge);
        };
        let began = machine.state();
        machine.insert(first, machine.start, began)?;
        machine.insert(last, began, machine.end)?;
        machine.insert(event, began, machine.start)?;
        Ok(machine)
    }

    /// Accepts the operand this many times.
    pub(crate) fn count(count: usize, operand: &Builder) -> Result<Builder, TooLarge> {
        Ok(Builder::chain(&vec![operand.clone(); count])?.0)
    }

    /// Accepts the operand this many times, and each further time.
    pub(crate) fn repeat(count: usize, operand: &Builder) -> Result<Builder, TooLarge> {
        let mut machine = Builder::count(count, operand)?;
        machine.insert(operand, machine.end, machine.end)?;
        Ok(machine)
    }

    /// Returns the machine, with its states numbered in the order in which they are reached.
    pub(crate) fn finish(self) -> Result<Machine, TooLarge> {
        let mut numbers: HashMap<u32, u16> = HashMap::from([(self.start, START), (self.end, END)]);
        let mut transitions: Vec<Vec<(Trigger, u16)>> = vec![Vec::new(), Vec::new()];
        for (from, on, to) in self.transitions {
            let mut number = |state: u32| {
                let next = u16::try_from(numbers.len()).map_err(|_| TooLarge)?;
                let number = *numbers.entry(state).or_insert(next);
                if usize::from(number) == transitions.len() {
                    transitions.push(Vec::new());
                }
                Ok(number)
            };
            let (from, to) = (number(from)?, number(to)?);
            let ways = &mut transitions[usize::from(from)];
            if !ways.contains(&(on.clone(), to)) {
                ways.push((on, to));
            }
        }
        Ok(Machine::new(transitions))
    }
}
