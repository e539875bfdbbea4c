//! The handling of an event by a ruleset: which rules it selects, and which it brings further.

use super::{Run, Value};
use crate::host::Interrupt;
use crate::program::{Pattern, PatternAggregator, Program, RuleProgram};
use crate::select::{END, RuleState, START, SelectState, Trigger};
use crate::syntax::ast::AggregateOperator;
use crate::{Error, Event, Query};
use std::sync::Arc;

/// The state of a rule while it handles an event.
struct Progress {
    states: Vec<u16>,
    settings: Vec<Value>,
    gathered: Vec<Vec<Value>>,
    /// True if an event had the right type but the wrong attributes. Then the rule begins anew, unless another transition brings it further.
    is_lost: bool,
}

impl Progress {
    /// Forgets all progress. Returns false, the result of a pattern that does not match.
    fn lose(&mut self) -> bool {
        self.settings.fill(Value::Undefined);
        self.gathered.clear();
        self.is_lost = true;
        false
    }
}

/// The most values that an aggregator gathers. Counts have a smaller bound.
const GATHERED_MAX: usize = 10_000;

impl Run<'_> {
    pub(super) fn rules(
        &mut self,
        program: &Arc<Program>,
        event: &Event,
        state: &mut SelectState,
    ) -> Result<(), Interrupt> {
        let rules = program.rules_for(&event.domain, &event.name);
        if program.any_event.is_empty() {
            return self.each_rule(program, rules.iter(), event, state);
        }
        let mut all: Vec<u16> = rules.iter().chain(&program.any_event).copied().collect();
        all.sort_unstable();
        all.dedup();
        self.each_rule(program, all.iter(), event, state)
    }

    fn each_rule<'r>(
        &mut self,
        program: &Arc<Program>,
        rules: impl Iterator<Item = &'r u16>,
        event: &Event,
        state: &mut SelectState,
    ) -> Result<(), Interrupt> {
        for place in rules {
            let rule = &program.rules[usize::from(*place)];
            self.rule = Some(Arc::clone(&rule.name));
            if let Some(settings) = self.select(rule, event, state)? {
                self.host.rule_selected(&program.rid, &rule.name);
                self.run_code(self.root, rule.body, &settings)?;
            }
            if self.is_last {
                break;
            }
        }
        self.rule = None;
        Ok(())
    }

    /// Advances a rule by an event. If that selects the rule, returns the variables that its event expression set.
    fn select(
        &mut self,
        rule: &RuleProgram,
        event: &Event,
        state: &mut SelectState,
    ) -> Result<Option<Vec<Value>>, Interrupt> {
        let blank = || vec![Value::Undefined; usize::from(rule.settings)];
        if rule.machine.is_single() {
            let mut progress = Progress {
                states: vec![START],
                settings: blank(),
                gathered: Vec::new(),
                is_lost: false,
            };
            let is_selected = self.advance(rule, event, &mut progress)?;
            return Ok(is_selected.then_some(progress.settings));
        }
        let fingerprint = rule.machine.fingerprint();
        let known = state
            .rules
            .remove(&*rule.name)
            .filter(|known| known.expression == fingerprint);
        let mut known = known.unwrap_or_default();
        known.expression = fingerprint;
        // A missing setting was recorded as null.
        for setting in known.settings.iter_mut().filter(|setting| setting.is_null()) {
            *setting = Value::Undefined;
        }
        known.settings.resize(usize::from(rule.settings), Value::Undefined);
        if let Some(within) = rule.within {
            self.keep_time(within, event, &mut known)?;
        }
        known.states.retain(|state| !rule.machine.ways(*state).is_empty());
        if known.states.is_empty() {
            known.states.push(START);
        }
        let mut progress = Progress {
            states: known.states,
            settings: known.settings,
            gathered: known.gathered,
            is_lost: false,
        };
        let is_selected = self.advance(rule, event, &mut progress)?;
        let settings = if is_selected {
            // The rule takes the settings, so the next round begins without them.
            std::mem::replace(&mut progress.settings, blank())
        } else {
            Vec::new()
        };
        // A rule at its beginning has nothing to remember, except when the time of `within` began.
        let at_rest = progress
            .states
            .iter()
            .all(|state| *state == START || rule.machine.ways(*state).is_empty());
        if at_rest && rule.within.is_none() {
            return Ok(is_selected.then_some(settings));
        }
        state.rules.insert(
            rule.name.to_string(),
            RuleState {
                expression: fingerprint,
                states: progress.states,
                began_ms: known.began_ms.filter(|_| !progress.is_lost),
                settings: progress.settings,
                gathered: progress.gathered,
            },
        );
        Ok(is_selected.then_some(settings))
    }

    /// Begins anew if more time has passed than `within` allows.
    fn keep_time(&mut self, within: u32, event: &Event, state: &mut RuleState) -> Result<(), Interrupt> {
        let began_ms = state.began_ms.filter(|began| *began != 0).unwrap_or(event.time_ms);
        let limit = self
            .run_code(self.root, within, &state.settings)?
            .to_number()
            .unwrap_or(0.0);
        let passed = event.time_ms.saturating_sub(began_ms) as f64;
        if passed > limit {
            state.states = vec![START];
            state.settings.fill(Value::Undefined);
        }
        let begins = state.states.contains(&START);
        state.began_ms = Some(if begins { event.time_ms } else { began_ms });
        Ok(())
    }

    /// Advances a rule by an event, and returns true if that brings it to the end of its expression.
    fn advance(&mut self, rule: &RuleProgram, event: &Event, progress: &mut Progress) -> Result<bool, Interrupt> {
        let mut reached: Vec<u16> = Vec::new();
        for state in progress.states.clone() {
            for (trigger, to) in rule.machine.ways(state) {
                self.vm.budget.step(1)?;
                if self.holds(trigger, rule, event, progress)? && !reached.contains(to) {
                    reached.push(*to);
                }
            }
        }
        let is_selected = reached.contains(&END);
        if is_selected {
            progress.states = vec![END];
        } else if !reached.is_empty() {
            progress.states = reached;
        } else if progress.is_lost {
            progress.states = vec![START];
        }
        Ok(is_selected)
    }

    fn holds(
        &mut self,
        trigger: &Trigger,
        rule: &RuleProgram,
        event: &Event,
        progress: &mut Progress,
    ) -> Result<bool, Interrupt> {
        match trigger {
            Trigger::Event(pattern) => self.matches(&rule.patterns[usize::from(*pattern)], event, progress),
            Trigger::Not(inner) => Ok(!self.holds(inner, rule, event, progress)?),
            Trigger::Or(triggers) => {
                for trigger in triggers {
                    if self.holds(trigger, rule, event, progress)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }

    fn matches(&mut self, pattern: &Pattern, event: &Event, progress: &mut Progress) -> Result<bool, Interrupt> {
        if !pattern.is_any && (*pattern.domain != *event.domain || *pattern.name != *event.name) {
            return Ok(false);
        }
        let mut matched = Vec::new();
        for (name, regex) in &pattern.attributes {
            let attribute = event.attributes.child(name);
            let text = attribute.map_or_else(Default::default, Value::text);
            self.vm.budget.step(text.len() as u64 / 8)?;
            if pattern.settings.is_empty() && pattern.aggregator.is_none() {
                if !regex.engine().is_match(&text) {
                    return Ok(progress.lose());
                }
                continue;
            }
            let Some(captures) = regex.engine().captures(&text) else {
                return Ok(progress.lose());
            };
            let groups = captures.iter().skip(1);
            matched.extend(groups.map(|group| group.map_or(Value::Undefined, |group| Value::from(group.as_str()))));
        }
        for (place, setting) in pattern.settings.iter().enumerate() {
            progress.settings[usize::from(*setting)] = matched.get(place).cloned().unwrap_or(Value::Undefined);
        }
        if let Some(condition) = pattern.condition
            && !self.run_code(self.root, condition, &progress.settings)?.is_true()
        {
            return Ok(progress.lose());
        }
        if let Some(aggregator) = &pattern.aggregator {
            gather(aggregator, &matched, progress)?;
        }
        Ok(true)
    }

    // --- queries ---------------------------------------------------------------------------------------------------------

    pub(super) fn answer(&mut self, program: &Arc<Program>, query: &Query) -> Result<Value, Interrupt> {
        let shared = program.shares.iter().find(|(name, _)| *name == query.name);
        let testing = program.globals.iter().position(|global| &*global.name == "__testing");
        let global = match shared {
            Some((_, global)) => Some(*global),
            None if &*query.name == "__testing" => testing.and_then(|place| u16::try_from(place).ok()),
            None => None,
        };
        let Some(global) = global else {
            let message = format!(
                "Ruleset {} does not have query function \"{}\"",
                program.rid, query.name
            );
            return Err(Error::value_error(message).into());
        };
        let value = self.global(self.root, global)?;
        if value.as_function().is_none() {
            return Ok(value.into_data());
        }
        let arguments = query.arguments.as_map();
        let (names, values): (Vec<_>, Vec<_>) = arguments
            .into_iter()
            .flatten()
            .map(|(name, value)| (Some(Arc::clone(name)), value.clone()))
            .unzip();
        let base = self.vm.stack.len();
        self.vm.stack.extend(values);
        let result = match self.enter_function(&value, &names, base, base, false)? {
            true => self.execute()?,
            false => self.pop(),
        };
        Ok(result.into_data())
    }
}

/// Adds the matched attributes to the values that an aggregator has gathered, and sets its variables.
fn gather(aggregator: &PatternAggregator, matched: &[Value], progress: &mut Progress) -> Result<(), Error> {
    let begins = !progress.is_lost && progress.states.contains(&START);
    let repeats = !progress.is_lost && progress.states.contains(&END);
    if progress.gathered.len() < progress.settings.len() {
        progress.gathered.resize(progress.settings.len(), Vec::new());
    }
    for (place, setting) in aggregator.settings.iter().enumerate() {
        let values = &mut progress.gathered[usize::from(*setting)];
        if begins {
            values.clear();
        }
        if values.len() >= GATHERED_MAX {
            return Err(Error::limit(format!(
                "an event expression gathers more than {GATHERED_MAX} values"
            )));
        }
        values.push(matched.get(place).cloned().unwrap_or(Value::Undefined));
        if repeats {
            // The aggregator keeps only the last values.
            values.remove(0);
        }
        progress.settings[usize::from(*setting)] = aggregate(aggregator.operator, values);
    }
    Ok(())
}

fn aggregate(operator: AggregateOperator, values: &[Value]) -> Value {
    let numbers = || values.iter().map(|value| value.to_number().unwrap_or(0.0));
    match operator {
        AggregateOperator::Max => numbers().reduce(f64::max).map_or(Value::Null, Value::Number),
        AggregateOperator::Min => numbers().reduce(f64::min).map_or(Value::Null, Value::Number),
        AggregateOperator::Sum => Value::Number(numbers().sum()),
        AggregateOperator::Avg => Value::number(numbers().sum::<f64>() / values.len() as f64),
        AggregateOperator::Push => Value::array(values.to_vec()),
    }
}
