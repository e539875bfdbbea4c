use super::expression::Resolved;
use super::{Binary, Compiler, Operation};
use crate::host::CallKind;
use crate::syntax::ast::{Action, ActionBlock, BlockKind, ExpressionKind};
use crate::value::Value;

impl Compiler {
    /// Emits a block of actions. Returns the local that says whether it fired.
    pub(super) fn action_block(&mut self, block: &ActionBlock) -> u16 {
        match &block.condition {
            Some(condition) => self.expression(condition),
            None => self.emit_constant(Value::Boolean(true)),
        }
        let fired = self.function().reserve();
        self.emit(Operation::SetLocal(fired));
        if block.actions.is_empty() {
            return fired;
        }
        self.emit(Operation::Local(fired));
        let skip = self.emit_jump(Operation::JumpIfFalse(0));
        match &block.kind {
            BlockKind::Every => {
                for action in &block.actions {
                    self.action(action);
                }
            }
            BlockKind::Choose(choice) => {
                self.expression(choice);
                let labels = block.actions.iter().map(|action| {
                    let label = action.label.as_ref().map(|label| Value::String(label.text.clone()));
                    (label, action)
                });
                self.one_of(&labels.collect::<Vec<_>>());
            }
            BlockKind::Sample => {
                let count = u32::try_from(block.actions.len()).unwrap_or(u32::MAX);
                self.emit(Operation::Sample(count));
                let numbers = block.actions.iter().enumerate();
                let numbers = numbers.map(|(number, action)| (Some(Value::Number(number as f64)), action));
                self.one_of(&numbers.collect::<Vec<_>>());
            }
        }
        self.land(skip);
        fired
    }

    /// Emits the action whose label equals the value on the stack.
    fn one_of(&mut self, actions: &[(Option<Value>, &Action)]) {
        let choice = self.function().reserve();
        self.emit(Operation::SetLocal(choice));
        let mut ends = Vec::new();
        for (label, action) in actions {
            let Some(label) = label else {
                self.error(action.location, "all actions inside a `choose` block need a label");
                continue;
            };
            self.emit(Operation::Local(choice));
            self.emit_constant(label.clone());
            self.emit(Operation::Binary(Binary::Equal));
            let next = self.emit_jump(Operation::JumpIfFalse(0));
            self.action(action);
            ends.push(self.emit_jump(Operation::Jump(0)));
            self.land(next);
        }
        for end in ends {
            self.land(end);
        }
    }

    fn action(&mut self, action: &Action) {
        let location = action.location;
        self.location = location;
        match &action.callee.kind {
            ExpressionKind::Domain { domain, name } => {
                let shape = self.arguments(None, &action.arguments);
                self.location = location;
                self.module(domain, name, shape, CallKind::Action, location);
            }
            ExpressionKind::Identifier(name) => {
                let resolved = self.resolve(name, location);
                self.named_action(name, resolved, action);
            }
            _ => {}
        }
        match action.setting.as_slice() {
            [] => self.emit(Operation::Pop),
            [name, rest @ ..] => {
                if let Some(second) = rest.first() {
                    self.error(second.location, "Actions only return one value");
                }
                let slot = self.function().bind(&name.text);
                self.emit(Operation::SetLocal(slot));
            }
        }
    }

    fn named_action(&mut self, name: &str, resolved: Resolved, action: &Action) {
        let is_function = match resolved {
            Resolved::Operator(_) if name == "send_directive" => {
                let shape = self.arguments(None, &action.arguments);
                self.location = action.location;
                self.emit(Operation::SendDirective(shape));
                return;
            }
            Resolved::Operator(operator) => operator.type_name() == "Function",
            Resolved::Global(global) => {
                let type_name = self.global_types.get(usize::from(global)).copied();
                type_name.is_some_and(|name| !matches!(name, "Action" | ""))
            }
            _ => false,
        };
        if is_function {
            self.error(action.location, "Not an action: Function");
        }
        self.emit_name(resolved);
        let shape = self.arguments(None, &action.arguments);
        self.location = action.location;
        self.emit(Operation::Act(shape));
    }
}
