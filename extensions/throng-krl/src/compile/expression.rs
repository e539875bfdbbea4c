use super::scope::find;
use super::{Binary, Compiler, Operation};
use crate::host::CallKind;
use crate::library::Operator;
use crate::program::Source;
use crate::syntax::Location;
use crate::syntax::ast::{Argument, Expression, ExpressionKind, UnaryOperator};
use crate::value::Value;
use std::sync::Arc;

/// The place of a name's value when the code runs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Resolved {
    Variable(Source),
    Global(u16),
    Operator(Operator),
    /// None. An error has been reported.
    Unknown,
}

impl Compiler {
    /// Emits code that pushes the value of an expression.
    pub(super) fn expression(&mut self, expression: &Expression) {
        self.location = expression.location;
        match &expression.kind {
            ExpressionKind::Null => self.emit(Operation::Null),
            ExpressionKind::Boolean(boolean) => self.emit_constant(Value::Boolean(*boolean)),
            ExpressionKind::Number(number) => self.emit_constant(Value::Number(*number)),
            ExpressionKind::String(text) => {
                let at = self.text_constant(text);
                self.emit(Operation::Constant(at));
            }
            ExpressionKind::Regex(regex) => self.emit_constant(Value::Regex(Arc::clone(regex))),
            ExpressionKind::Chevron(parts) => {
                let count = self.all(parts);
                self.emit(Operation::Text(count));
            }
            ExpressionKind::Array(items) => {
                let count = self.all(items);
                self.emit(Operation::Array(count));
            }
            ExpressionKind::Map(entries) => {
                for (_, value) in entries {
                    self.expression(value);
                }
                let shape = self.shape(entries.iter().map(|(key, _)| Some(Arc::clone(&key.text))).collect());
                self.emit(Operation::Map(shape));
            }
            ExpressionKind::Identifier(name) => self.identifier(name, expression.location),
            ExpressionKind::Domain { domain, name } => self.property(domain, name, expression.location),
            ExpressionKind::Function(_) | ExpressionKind::Action(_) => self.closure(expression),
            ExpressionKind::Unary { operator, operand } => self.unary(*operator, operand),
            ExpressionKind::Binary { operator, left, right } => self.binary(operator, left, right, expression.location),
            ExpressionKind::Conditional(inner) => {
                self.expression(&inner.test);
                let otherwise = self.emit_jump(Operation::JumpIfFalse(0));
                self.expression(&inner.consequent);
                let end = self.emit_jump(Operation::Jump(0));
                self.land(otherwise);
                self.expression(&inner.alternate);
                self.land(end);
            }
            ExpressionKind::Member { object, path, is_index } => {
                self.member(object, path, *is_index, expression.location);
            }
            ExpressionKind::Dot { object, property } => {
                self.warn(
                    expression.location,
                    "`.name` is deprecated: use `{\"name\"}` or `[index]` instead",
                );
                self.expression(object);
                match &property.kind {
                    ExpressionKind::Identifier(name) => {
                        let at = self.text_constant(name);
                        self.emit(Operation::Constant(at));
                    }
                    _ => self.expression(property),
                }
                self.location = expression.location;
                self.emit(Operation::Member { is_index: true });
            }
            ExpressionKind::Call { callee, arguments } => self.call(callee, arguments, expression.location),
        }
    }

    pub(super) fn emit_constant(&mut self, value: Value) {
        let at = self.constant(value);
        self.emit(Operation::Constant(at));
    }

    fn all(&mut self, expressions: &[Expression]) -> u32 {
        for expression in expressions {
            self.expression(expression);
        }
        u32::try_from(expressions.len()).unwrap_or(u32::MAX)
    }

    fn unary(&mut self, operator: UnaryOperator, operand: &Expression) {
        let location = self.location;
        if let (UnaryOperator::Minus, ExpressionKind::Number(number)) = (operator, &operand.kind) {
            self.emit_constant(Value::Number(-number));
            return;
        }
        self.expression(operand);
        self.location = location;
        match operator {
            UnaryOperator::Plus => {}
            UnaryOperator::Not => self.emit(Operation::Not),
            UnaryOperator::Minus => self.apply("-", 1),
        }
    }

    fn binary(&mut self, operator: &str, left: &Expression, right: &Expression, location: Location) {
        self.expression(left);
        let short_cut = match operator {
            "||" => Some(Operation::JumpIfTrueKeep(0)),
            "&&" => Some(Operation::JumpIfFalseKeep(0)),
            _ => None,
        };
        if let Some(jump) = short_cut {
            let end = self.emit_jump(jump);
            self.expression(right);
            self.land(end);
            return;
        }
        self.expression(right);
        self.location = location;
        if let Some(binary) = Binary::of(operator) {
            self.emit(Operation::Binary(binary));
        }
    }

    /// Emits an operator of the library, for values already on the stack.
    pub(super) fn apply(&mut self, name: &str, count: u8) {
        if let Some(operator) = Operator::of(name) {
            self.emit(Operation::Apply { operator, count });
        }
    }

    fn member(&mut self, object: &Expression, path: &Expression, is_index: bool, location: Location) {
        match &object.kind {
            ExpressionKind::Domain { domain, name } if &**domain == "ent" => {
                self.expression(path);
                self.location = location;
                if is_index {
                    self.emit(Operation::Array(1));
                }
                let name = self.text_constant(name);
                self.emit(Operation::EntityGet { name, has_path: true });
                return;
            }
            ExpressionKind::Domain { domain, name } if &**domain == "event" && &**name == "attrs" => {
                if let ExpressionKind::String(key) = &path.kind {
                    self.testing.attribute(key);
                    let at = self.text_constant(key);
                    self.emit(Operation::Attribute(at));
                    return;
                }
            }
            _ => {}
        }
        self.expression(object);
        self.expression(path);
        self.location = location;
        self.emit(Operation::Member { is_index });
    }

    // --- names -----------------------------------------------------------------------------------------------------------

    pub(super) fn resolve(&mut self, name: &str, location: Location) -> Resolved {
        if let Some(source) = find(&mut self.functions, name) {
            return Resolved::Variable(source);
        }
        if let Some(global) = self.global_names.get(name) {
            return Resolved::Global(*global);
        }
        match Operator::of(name) {
            Some(operator) => Resolved::Operator(operator),
            None => {
                self.error(location, format!("Undefined id: {name}"));
                Resolved::Unknown
            }
        }
    }

    fn identifier(&mut self, name: &Arc<str>, location: Location) {
        let resolved = self.resolve(name, location);
        self.emit_name(resolved);
    }

    pub(super) fn emit_name(&mut self, resolved: Resolved) {
        self.emit(match resolved {
            Resolved::Variable(Source::Local(slot)) => Operation::Local(slot),
            Resolved::Variable(Source::Capture(at)) => Operation::Capture(at),
            Resolved::Variable(Source::Sibling(code)) => Operation::Sibling(code),
            Resolved::Global(global) => Operation::Global(global),
            Resolved::Operator(operator) => Operation::Operator(operator),
            Resolved::Unknown => Operation::Null,
        });
    }

    fn property(&mut self, domain: &Arc<str>, name: &Arc<str>, location: Location) {
        if &**domain == "ent" {
            let name = self.text_constant(name);
            self.emit(Operation::EntityGet { name, has_path: false });
            return;
        }
        let shape = self.shape(Vec::new());
        self.module(domain, name, shape, CallKind::Property, location);
    }

    // --- calls -----------------------------------------------------------------------------------------------------------

    fn call(&mut self, callee: &Expression, arguments: &[Argument], location: Location) {
        let (object, callee) = match &callee.kind {
            ExpressionKind::Dot { object, property } => (Some(&**object), &**property),
            _ => (None, callee),
        };
        match &callee.kind {
            ExpressionKind::Domain { domain, name } if &**domain != "ent" => {
                if &**domain == "event" && &**name == "attrs" {
                    self.error(
                        callee.location,
                        "`event:attrs` is a Map, not a Function. Use `event:attrs{key}` instead",
                    );
                }
                self.note_attribute(domain, name, arguments);
                let shape = self.arguments(object, arguments);
                self.location = location;
                self.module(domain, name, shape, CallKind::Function, callee.location);
            }
            ExpressionKind::Identifier(name) => {
                if let Some(ExpressionKind::Domain { domain, name: of }) = object.map(|object| &object.kind)
                    && (&**domain, &**of, &**name) == ("event", "attrs", "get")
                {
                    self.note_first(arguments);
                }
                let resolved = self.resolve(name, callee.location);
                self.call_name(resolved, object, arguments, location);
            }
            _ => {
                self.expression(callee);
                let shape = self.arguments(object, arguments);
                self.location = location;
                self.emit(Operation::Call(shape));
            }
        }
    }

    fn call_name(
        &mut self,
        resolved: Resolved,
        object: Option<&Expression>,
        arguments: &[Argument],
        location: Location,
    ) {
        let has_names = arguments.iter().any(|argument| argument.name.is_some());
        if let Resolved::Operator(operator) = resolved {
            if operator.type_name() == "Action" {
                self.error(location, "Not a function: Action");
            }
            if !has_names {
                self.arguments(object, arguments);
                self.location = location;
                let count = arguments.len() + usize::from(object.is_some());
                let Ok(count) = u8::try_from(count) else {
                    self.error(location, "more than 255 arguments");
                    return;
                };
                self.emit(Operation::Apply { operator, count });
                return;
            }
        }
        if let Resolved::Global(global) = resolved
            && let Some(type_name) = self.global_types.get(usize::from(global)).copied()
            && !matches!(type_name, "Function" | "")
        {
            self.error(location, format!("Not a function: {type_name}"));
        }
        self.emit_name(resolved);
        let shape = self.arguments(object, arguments);
        self.location = location;
        self.emit(Operation::Call(shape));
    }

    /// Emits the arguments and returns their shape.
    pub(super) fn arguments(&mut self, first: Option<&Expression>, arguments: &[Argument]) -> u32 {
        let mut shape = Vec::with_capacity(arguments.len() + 1);
        if let Some(first) = first {
            self.expression(first);
            shape.push(None);
        }
        let mut has_names = false;
        for argument in arguments {
            if has_names && argument.name.is_none() {
                self.error(
                    argument.value.location,
                    "Once you used a named arg, all following must be named.",
                );
            }
            has_names |= argument.name.is_some();
            self.expression(&argument.value);
            shape.push(argument.name.as_ref().map(|name| Arc::clone(&name.text)));
        }
        self.shape(shape)
    }

    fn note_attribute(&mut self, domain: &str, name: &str, arguments: &[Argument]) {
        if (domain, name) == ("event", "attr") {
            let location = self.location;
            self.warn(location, "event:attr(key) is deprecated. Use event:attrs{key} instead");
            self.note_first(arguments);
        }
    }

    fn note_first(&mut self, arguments: &[Argument]) {
        if let Some(ExpressionKind::String(key)) = arguments.first().map(|argument| &argument.value.kind) {
            self.testing.attribute(key);
        }
    }
}
