use super::{Compiler, Operation};
use crate::program::RuleProgram;
use crate::syntax::ast::{Foreach, Rule};
use crate::value::Value;
use std::sync::Arc;

impl Compiler {
    /// Compiles a rule. Returns `None` if it is inactive or cannot be selected.
    pub(super) fn rule(&mut self, rule: &Rule) -> Option<RuleProgram> {
        self.location = rule.name.location;
        if !rule.is_active {
            self.warn(
                rule.name.location,
                format!("rule {} is inactive, i.e. commented out", rule.name.text),
            );
            return None;
        }
        let Some(select) = &rule.select else {
            self.error(
                rule.name.location,
                format!("rule {} is missing a `select`", rule.name.text),
            );
            return None;
        };
        self.testing.begin_rule();
        let selected = self.select(select);
        let settings = selected.settings;
        let body = self.code(&settings, |compiler| {
            compiler.loops.clear();
            compiler.foreach(&rule.foreach, rule);
            compiler.emit(Operation::Null);
        });
        Some(RuleProgram {
            name: Arc::clone(&rule.name.text),
            machine: selected.machine,
            patterns: selected.patterns,
            within: selected.within,
            settings: u16::try_from(settings.len()).unwrap_or(u16::MAX),
            body,
        })
    }

    /// Emits the remaining nested loops, with the rule's body in the innermost one.
    fn foreach(&mut self, loops: &[Foreach], rule: &Rule) {
        let Some((outer, inner)) = loops.split_first() else {
            self.rule_body(rule);
            return;
        };
        self.expression(&outer.collection);
        let slot = self.function().reserve();
        self.function().reserve();
        self.function().reserve();
        self.emit(Operation::Iterate(slot));
        let mut names = outer.setting.iter();
        let value = names.next().map(|name| self.function().bind(&name.text));
        let key = names.next().map(|name| self.function().bind(&name.text));
        for rest in names {
            self.function().bind(&rest.text);
        }
        let begin = self.here();
        let next = self.emit_jump(Operation::Next {
            slot,
            value,
            key,
            exit: 0,
        });
        self.loops.push(slot);
        self.foreach(inner, rule);
        self.loops.pop();
        self.emit(Operation::Jump(begin));
        self.land(next);
    }

    fn rule_body(&mut self, rule: &Rule) {
        self.declarations(&rule.prelude);
        let fired = match &rule.block {
            Some(block) => self.action_block(block),
            None => {
                self.emit_constant(Value::Boolean(true));
                let fired = self.function().reserve();
                self.emit(Operation::SetLocal(fired));
                fired
            }
        };
        self.emit(Operation::Fired(fired));
        let Some(postlude) = &rule.postlude else { return };
        if !postlude.fired.is_empty() {
            self.emit(Operation::Local(fired));
            let skip = self.emit_jump(Operation::JumpIfFalse(0));
            self.statements(&postlude.fired);
            self.land(skip);
        }
        if !postlude.not_fired.is_empty() {
            self.emit(Operation::Local(fired));
            self.emit(Operation::Not);
            let skip = self.emit_jump(Operation::JumpIfFalse(0));
            self.statements(&postlude.not_fired);
            self.land(skip);
        }
        self.statements(&postlude.always);
    }
}
