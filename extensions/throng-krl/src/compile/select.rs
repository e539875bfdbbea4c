//! The compilation of event expressions to machines.

use super::{Compiler, Operation};
use crate::program::{Pattern, PatternAggregator};
use crate::select::{Builder, Machine, TooLarge};
use crate::syntax::ast::{EventExpression, EventKind, EventOperator, EventPattern, Expression, Name, Select, Within};
use crate::value::Value;
use std::sync::Arc;

/// The compiled `select` of a rule.
pub(super) struct Selected {
    pub(super) machine: Machine,
    pub(super) patterns: Vec<Pattern>,
    pub(super) within: Option<u32>,
    /// The variables that the event expression sets, in the order of their first mention.
    pub(super) settings: Vec<Arc<str>>,
}

impl Compiler {
    pub(super) fn select(&mut self, select: &Select) -> Selected {
        let mut settings = Vec::new();
        match select {
            Select::Where(condition) => {
                let code = self.condition(&settings, condition);
                let any: Arc<str> = Arc::from("*");
                let pattern = Pattern {
                    domain: Arc::clone(&any),
                    name: any,
                    is_any: true,
                    attributes: Vec::new(),
                    settings: Vec::new(),
                    condition: Some(code),
                    aggregator: None,
                };
                Selected {
                    machine: Machine::single(),
                    patterns: vec![pattern],
                    within: None,
                    settings,
                }
            }
            Select::When { event, within } => {
                let mut names = Vec::new();
                event_names(event, &mut names);
                for name in names {
                    if !settings.contains(&name.text) {
                        settings.push(Arc::clone(&name.text));
                    }
                }
                let mut patterns = Vec::new();
                let machine = match self.machine(event, &settings, &mut patterns).and_then(Builder::finish) {
                    Ok(machine) => machine,
                    Err(TooLarge) => {
                        self.error(event.location, format!("the event expression is too large: {TooLarge}"));
                        Machine::single()
                    }
                };
                let within = within.as_ref().map(|within| self.within(&settings, within));
                Selected {
                    machine,
                    patterns,
                    within,
                    settings,
                }
            }
        }
    }

    fn condition(&mut self, settings: &[Arc<str>], condition: &Expression) -> u32 {
        self.code(settings, |compiler| compiler.expression(condition))
    }

    fn within(&mut self, settings: &[Arc<str>], within: &Within) -> u32 {
        self.code(settings, |compiler| {
            compiler.expression(&within.amount);
            compiler.emit_constant(Value::Number(within.period_ms));
            compiler.emit(Operation::Binary(super::Binary::Multiply));
        })
    }

    fn machine(
        &mut self,
        event: &EventExpression,
        settings: &[Arc<str>],
        patterns: &mut Vec<Pattern>,
    ) -> Result<Builder, TooLarge> {
        let mut inner = |operands: &[EventExpression]| {
            let machines = operands.iter().map(|operand| self.machine(operand, settings, patterns));
            machines.collect::<Result<Vec<_>, _>>()
        };
        match &event.kind {
            EventKind::Event(pattern) => {
                let at = self.place(patterns.len(), "events in one rule");
                let pattern = self.pattern(pattern, settings);
                patterns.push(pattern);
                Ok(Builder::event(at))
            }
            EventKind::Operator { operator, operands } => {
                let machines = inner(operands)?;
                match operator {
                    EventOperator::Or => Builder::or(machines),
                    EventOperator::And => Builder::and(&machines),
                    EventOperator::Before => Builder::before(machines),
                    EventOperator::Then => Builder::then(machines),
                    EventOperator::After => Builder::before(machines.into_iter().rev().collect()),
                    EventOperator::Between => Builder::between(machines),
                    EventOperator::NotBetween => Builder::not_between(machines),
                }
            }
            EventKind::Any { count, operands } => Builder::any(*count, &inner(operands)?),
            EventKind::Group {
                repeats,
                count,
                operand,
            } => {
                let machine = self.machine(operand, settings, patterns)?;
                if *repeats {
                    Builder::repeat(*count, &machine)
                } else {
                    Builder::count(*count, &machine)
                }
            }
        }
    }

    fn pattern(&mut self, pattern: &EventPattern, settings: &[Arc<str>]) -> Pattern {
        if let Some(deprecation) = pattern.deprecation {
            self.warn(pattern.domain.location, format!("DEPRECATED SYNTAX - {deprecation}"));
        }
        self.testing.event(&pattern.domain.text, &pattern.name.text);
        for (attribute, _) in &pattern.attributes {
            self.testing.attribute(&attribute.text);
        }
        let slots = |names: &[Name]| {
            let slot = |name: &Name| settings.iter().position(|known| *known == name.text);
            names
                .iter()
                .filter_map(slot)
                .filter_map(|at| u16::try_from(at).ok())
                .collect::<Vec<_>>()
        };
        let aggregator = pattern.aggregator.as_ref().map(|aggregator| PatternAggregator {
            operator: aggregator.operator,
            settings: slots(&aggregator.names),
        });
        let condition = pattern
            .condition
            .as_ref()
            .map(|condition| self.condition(settings, condition));
        Pattern {
            domain: Arc::clone(&pattern.domain.text),
            name: Arc::clone(&pattern.name.text),
            is_any: false,
            attributes: pattern
                .attributes
                .iter()
                .map(|(name, regex)| (Arc::clone(&name.text), Arc::clone(regex)))
                .collect(),
            settings: slots(&pattern.setting),
            condition,
            aggregator,
        }
    }
}

/// Collects the variables that an event expression sets.
fn event_names<'a>(event: &'a EventExpression, names: &mut Vec<&'a Name>) {
    match &event.kind {
        EventKind::Event(pattern) => {
            names.extend(&pattern.setting);
            names.extend(pattern.aggregator.iter().flat_map(|aggregator| &aggregator.names));
        }
        EventKind::Operator { operands, .. } | EventKind::Any { operands, .. } => {
            for operand in operands {
                event_names(operand, names);
            }
        }
        EventKind::Group { operand, .. } => event_names(operand, names),
    }
}
