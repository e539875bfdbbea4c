//! The interpreter loop.

use super::{Callable, Closure, Frame, Function, Run};
use crate::compile::Operation;
use crate::host::{CallKind, Interrupt};
use crate::program::{Program, Source};
use crate::value::Map;
use crate::{Error, Value};
use std::sync::Arc;

/// The effect of an operation on the flow of code.
enum Flow {
    On,
    /// Another frame is on top of the stack now.
    Switch,
}

impl Run<'_> {
    /// Runs the top frame and all that it calls, until it returns.
    pub(super) fn execute(&mut self) -> Result<Value, Interrupt> {
        let entry = self.frames.len();
        loop {
            let Some(frame) = self.frames.last() else {
                return Ok(Value::Null);
            };
            let program = Arc::clone(&self.vm.instances[frame.instance as usize].program);
            if let Err(interrupt) = self.execute_frame(&program) {
                return Err(self.locate(interrupt, &program));
            }
            if self.frames.len() < entry {
                return Ok(self.pop());
            }
        }
    }

    /// Adds the ruleset and the place in the source to a failure.
    fn locate(&self, interrupt: Interrupt, program: &Program) -> Interrupt {
        let Interrupt::Error(mut error) = interrupt else {
            return interrupt;
        };
        if error.location.is_none()
            && let Some(frame) = self.frames.last()
        {
            let code = program.codes.get(frame.code as usize);
            error.location = code.and_then(|code| code.locations.get(frame.next.saturating_sub(1)).copied());
            error.rid = error.rid.or_else(|| Some(Arc::clone(&program.rid)));
        }
        Interrupt::Error(error)
    }

    /// Runs the top frame until it returns or another frame comes on top.
    fn execute_frame(&mut self, program: &Arc<Program>) -> Result<(), Interrupt> {
        let Some(frame) = self.frames.last() else { return Ok(()) };
        let (base, mut next) = (frame.base, frame.next);
        let at = self.frames.len() - 1;
        let operations = &program.codes[frame.code as usize].operations;
        loop {
            let operation = operations[next];
            next += 1;
            if let Err(error) = self.vm.budget.step(1) {
                self.frames[at].next = next;
                return Err(error.into());
            }
            match operation {
                Operation::Null => self.push(Value::Undefined),
                Operation::Constant(constant) => self.push(program.constants[constant as usize].clone()),
                Operation::Local(local) => {
                    let value = self.vm.stack[base + usize::from(local)].clone();
                    self.push(value);
                }
                Operation::SetLocal(local) => {
                    let value = self.pop();
                    self.vm.stack[base + usize::from(local)] = value;
                }
                Operation::Pop => drop(self.pop()),
                Operation::Jump(target) => next = target as usize,
                Operation::JumpIfFalse(target) => {
                    if !self.pop().is_true() {
                        next = target as usize;
                    }
                }
                Operation::JumpIfFalseKeep(target) | Operation::JumpIfTrueKeep(target) => {
                    let is_true = self.vm.stack.last().is_some_and(Value::is_true);
                    if is_true == matches!(operation, Operation::JumpIfTrueKeep(_)) {
                        next = target as usize;
                    } else {
                        self.pop();
                    }
                }
                Operation::JumpUnlessNull { local, target } => {
                    if !self.vm.stack[base + usize::from(local)].is_null() {
                        next = target as usize;
                    }
                }
                Operation::Not => {
                    let value = !self.pop().is_true();
                    self.push(Value::Boolean(value));
                }
                Operation::Next { slot, value, key, exit } => {
                    if !self.next_item(base, slot, value, key) {
                        next = exit as usize;
                    }
                }
                Operation::JumpUnlessFinal { slot, target } => {
                    if !self.is_final(base + usize::from(slot)) {
                        next = target as usize;
                    }
                }
                Operation::Return => {
                    self.return_top();
                    return Ok(());
                }
                Operation::Fired(local) => {
                    let fired = self.vm.stack[base + usize::from(local)].is_true();
                    self.host.rule_fired(fired);
                }
                Operation::Last => {
                    self.is_last = true;
                    self.push(Value::Null);
                    self.return_top();
                    return Ok(());
                }
                other => {
                    self.frames[at].next = next;
                    match self.operation(other, program)? {
                        // The operation may have moved `next`: `error error` moves it to the end.
                        Flow::On => next = self.frames[at].next,
                        Flow::Switch => return Ok(()),
                    }
                }
            }
        }
    }

    fn operation(&mut self, operation: Operation, program: &Arc<Program>) -> Result<Flow, Interrupt> {
        match operation {
            Operation::Binary(binary) => self.binary(binary)?,
            Operation::Capture(place) => {
                let value = self
                    .frames
                    .last()
                    .and_then(|frame| frame.captures.get(usize::from(place)));
                let value = value.cloned().unwrap_or_default();
                self.push(value);
            }
            Operation::Sibling(code) => {
                if let Some(frame) = self.frames.last() {
                    let closure = closure(frame.instance, code, Arc::clone(&frame.captures), program);
                    self.push(closure);
                }
            }
            Operation::Global(global) => {
                let instance = self.frames.last().map_or(self.root, |frame| frame.instance);
                let value = self.global(instance, global)?;
                self.push(value);
            }
            Operation::Operator(operator) => self.push(Value::Function(Function(Callable::Operator(operator)))),
            Operation::Array(count) => {
                let items = self.take(count as usize);
                let array = self.made(Value::array(items))?;
                self.push(array);
            }
            Operation::Map(shape) => {
                let keys = &program.shapes[shape as usize];
                let values = self.take(keys.len());
                let entries = keys.iter().flatten().cloned().zip(values);
                let map = self.made(Value::from(entries.collect::<Map>()))?;
                self.push(map);
            }
            Operation::Text(count) => self.text(count as usize)?,
            Operation::Closure(group) | Operation::Closures(group) => {
                self.closures(group, matches!(operation, Operation::Closure(_)), program);
            }
            Operation::Member { is_index } => self.member(is_index)?,
            Operation::Apply { operator, count } => {
                let arguments = self.take(usize::from(count));
                let value = self.apply(operator, arguments)?;
                self.push(value);
            }
            Operation::Call(shape) => return self.call(&program.shapes[shape as usize], false),
            Operation::Act(shape) => return self.call(&program.shapes[shape as usize], true),
            Operation::Module { reference, shape, kind } => {
                let reference = &program.references[reference as usize];
                return self.module(reference, &program.shapes[shape as usize], kind);
            }
            Operation::Attribute(name) => {
                let name = program.constants[name as usize].as_str().unwrap_or_default();
                let value = self.attribute(name);
                self.push(value);
            }
            Operation::Iterate(slot) => self.iterate(slot)?,
            Operation::Sample(count) => {
                let number = self.vm.random.u32(0..count.max(1));
                self.push(Value::Number(f64::from(number)));
            }
            effect => self.effect(effect, program)?,
        }
        Ok(Flow::On)
    }

    // --- the stack -------------------------------------------------------------------------------------------------------

    pub(super) fn push(&mut self, value: Value) {
        self.vm.stack.push(value);
    }

    /// Takes the top value. Compiled code never takes more than it has pushed.
    pub(super) fn pop(&mut self) -> Value {
        self.vm.stack.pop().unwrap_or_default()
    }

    pub(super) fn take(&mut self, count: usize) -> Vec<Value> {
        let from = self.vm.stack.len().saturating_sub(count);
        self.vm.stack.split_off(from)
    }

    fn return_top(&mut self) {
        let value = self.pop();
        if let Some(frame) = self.frames.pop() {
            self.vm.stack.truncate(frame.floor);
        }
        self.push(value);
    }

    /// Pushes a frame whose arguments are on the stack from `base` on.
    pub(super) fn enter(&mut self, target: &Closure, base: usize, floor: usize) -> Result<(), Interrupt> {
        if self.frames.len() >= self.vm.budget.limits().call_depth as usize {
            // The text is the original's, without our bound.
            return Err(Error::limit("Maximum call stack size exceeded").into());
        }
        let locals = {
            let program = &self.vm.instances[target.instance as usize].program;
            usize::from(program.codes[target.code as usize].locals)
        };
        self.vm.stack.resize(base + locals, Value::Undefined);
        self.frames.push(Frame {
            instance: target.instance,
            code: target.code,
            next: 0,
            base,
            floor,
            captures: Arc::clone(&target.captures),
        });
        Ok(())
    }

    /// Runs a code with these values as its first locals.
    pub(super) fn run_code(&mut self, instance: u32, code: u32, locals: &[Value]) -> Result<Value, Interrupt> {
        let base = self.vm.stack.len();
        self.vm.stack.extend_from_slice(locals);
        let target = Closure {
            instance,
            code,
            is_action: false,
            captures: Arc::clone(&self.vm.no_captures),
        };
        self.enter(&target, base, base)?;
        self.execute()
    }

    // --- values ----------------------------------------------------------------------------------------------------------

    fn closures(&mut self, group: u32, is_expression: bool, program: &Arc<Program>) {
        let group = &program.groups[group as usize];
        let Some(frame) = self.frames.last() else { return };
        let (base, instance) = (frame.base, frame.instance);
        let captured = group.captures.iter().map(|source| match source {
            Source::Local(local) => self.vm.stack[base + usize::from(*local)].clone(),
            Source::Capture(place) => frame.captures.get(usize::from(*place)).cloned().unwrap_or_default(),
            Source::Sibling(code) => closure(instance, *code, Arc::clone(&frame.captures), program),
        });
        let captures: Arc<[Value]> = captured.collect();
        for (code, local) in &group.members {
            let value = closure(instance, *code, Arc::clone(&captures), program);
            if is_expression {
                self.push(value);
            } else {
                self.vm.stack[base + usize::from(*local)] = value;
            }
        }
    }

    fn text(&mut self, count: usize) -> Result<(), Interrupt> {
        let parts = self.take(count);
        let mut text = String::new();
        for part in &parts {
            let part = part.text();
            self.vm.budget.allocate(part.len() as u64)?;
            text.push_str(&part);
        }
        let value = self.made(Value::from(text))?;
        self.push(value);
        Ok(())
    }

    // --- loops -----------------------------------------------------------------------------------------------------------

    /// Begins a loop. Three locals hold its values, its keys (null for an array) and the number of the next item.
    fn iterate(&mut self, slot: u16) -> Result<(), Interrupt> {
        let (values, keys) = match self.pop() {
            Value::Array(array) => (Value::Array(array), Value::Null),
            Value::Map(map) => {
                let keys = map.keys().cloned().map(Value::String).collect();
                let values = self.made(Value::array(map.values().cloned().collect()))?;
                (values, Value::array(keys))
            }
            Value::String(text) => {
                let characters = text.chars().map(|character| Value::from(character.to_string()));
                let values = self.made(Value::array(characters.collect()))?;
                let keys = (0..text.chars().count()).map(|place| Value::from(place.to_string()));
                (values, Value::array(keys.collect()))
            }
            _ => (Value::array(Vec::new()), Value::Null),
        };
        let Some(frame) = self.frames.last() else { return Ok(()) };
        let at = frame.base + usize::from(slot);
        self.vm.stack[at] = values;
        self.vm.stack[at + 1] = keys;
        self.vm.stack[at + 2] = Value::Number(0.0);
        Ok(())
    }

    fn loop_place(&self, at: usize) -> usize {
        match self.vm.stack[at + 2] {
            Value::Number(number) => number as usize,
            _ => 0,
        }
    }

    fn next_item(&mut self, base: usize, slot: u16, value: Option<u16>, key: Option<u16>) -> bool {
        let at = base + usize::from(slot);
        let place = self.loop_place(at);
        let Some(item) = self.vm.stack[at].as_array().and_then(|items| items.get(place)).cloned() else {
            return false;
        };
        let number = place as f64;
        self.vm.stack[at + 2] = Value::Number(number + 1.0);
        if let Some(key) = key {
            let name = self.vm.stack[at + 1]
                .as_array()
                .and_then(|keys| keys.get(place))
                .cloned();
            self.vm.stack[base + usize::from(key)] = name.unwrap_or(Value::Number(number));
        }
        if let Some(value) = value {
            self.vm.stack[base + usize::from(value)] = item;
        }
        true
    }

    /// True if a loop is at its last item.
    fn is_final(&self, at: usize) -> bool {
        let count = self.vm.stack[at].as_array().map_or(0, <[Value]>::len);
        self.loop_place(at) == count
    }

    fn call(&mut self, shape: &[Option<Arc<str>>], is_action: bool) -> Result<Flow, Interrupt> {
        match self.begin_call(shape, is_action)? {
            true => Ok(Flow::Switch),
            false => Ok(Flow::On),
        }
    }

    fn module(
        &mut self,
        reference: &crate::program::ModuleReference,
        shape: &[Option<Arc<str>>],
        kind: CallKind,
    ) -> Result<Flow, Interrupt> {
        match self.use_module(reference, shape, kind)? {
            true => Ok(Flow::Switch),
            false => Ok(Flow::On),
        }
    }
}

pub(super) fn closure(instance: u32, code: u32, captures: Arc<[Value]>, program: &Program) -> Value {
    let is_action = program.codes[code as usize].is_action;
    Value::Function(Function(Callable::Closure(Arc::new(Closure {
        instance,
        code,
        is_action,
        captures,
    }))))
}
