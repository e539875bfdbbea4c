//! Calls of functions and actions, and values of `global`.

use super::execute::closure;
use super::{Callable, Closure, Function, GlobalState, OPERATOR_DEPTH_MAX, Run};
use crate::host::Interrupt;
use crate::library::Operator;
use crate::program::GlobalKind;
use crate::{Error, Value};
use std::sync::Arc;

impl Run<'_> {
    /// Calls the value that stands on the stack below its arguments. Returns true if it entered a frame; an operator returns at once.
    pub(super) fn begin_call(&mut self, shape: &[Option<Arc<str>>], is_action: bool) -> Result<bool, Interrupt> {
        let base = self.vm.stack.len() - shape.len();
        let callee = std::mem::take(&mut self.vm.stack[base - 1]);
        self.enter_function(&callee, shape, base, base - 1, is_action)
    }

    /// Calls a function with the arguments on the stack from `base` on. Returns true if it entered a frame.
    pub(super) fn enter_function(
        &mut self,
        callee: &Value,
        shape: &[Option<Arc<str>>],
        base: usize,
        floor: usize,
        is_action: bool,
    ) -> Result<bool, Interrupt> {
        let kind = if is_action { "an action" } else { "a function" };
        let fits = match callee {
            Value::Function(function) => match (function.type_name(), is_action) {
                ("ActionFunction", _) | ("Function", false) | ("Action", true) => Some(function),
                _ => None,
            },
            _ => None,
        };
        let Some(function) = fits else {
            return Err(Error::type_error(format!("{} is not {kind}", callee.text())).into());
        };
        match &function.0 {
            Callable::Closure(target) => {
                self.place_arguments(target, shape, base);
                self.enter(target, base, floor)?;
                Ok(true)
            }
            Callable::Operator(operator) => {
                let mut arguments = self.take(self.vm.stack.len() - base);
                if shape.iter().any(Option::is_some) {
                    arguments = by_parameter(arguments, shape, operator.parameters());
                }
                let value = self.apply(*operator, arguments)?;
                self.vm.stack.truncate(floor);
                self.push(value);
                Ok(false)
            }
        }
    }

    /// Moves each argument to its parameter, by place or by name.
    fn place_arguments(&mut self, target: &Closure, shape: &[Option<Arc<str>>], base: usize) {
        let program = &self.vm.instances[target.instance as usize].program;
        let parameters = &program.codes[target.code as usize].parameters;
        if shape.iter().any(Option::is_some) {
            let arguments = self.vm.stack.split_off(base);
            let names: Vec<&str> = parameters.iter().map(|name| &**name).collect();
            self.vm.stack.extend(by_parameter(arguments, shape, &names));
        } else {
            self.vm.stack.truncate(base + parameters.len());
        }
    }

    /// Calls a function from within an operator.
    pub(crate) fn call_function(&mut self, function: &Value, arguments: &[Value]) -> Result<Value, Interrupt> {
        if self.operator_depth >= OPERATOR_DEPTH_MAX {
            let message = format!("operators and the functions they call nest more than {OPERATOR_DEPTH_MAX} deep");
            return Err(Error::limit(message).into());
        }
        self.operator_depth += 1;
        let base = self.vm.stack.len();
        self.vm.stack.extend_from_slice(arguments);
        // An empty shape: no argument has a name.
        let result = match self.enter_function(function, &[], base, base, false)? {
            true => self.execute()?,
            false => self.pop(),
        };
        self.operator_depth -= 1;
        Ok(result)
    }

    /// Runs an operator of the library.
    pub(super) fn apply(&mut self, operator: Operator, arguments: Vec<Value>) -> Result<Value, Interrupt> {
        let items = match arguments.first() {
            Some(Value::Array(array)) => array.len(),
            Some(Value::Map(map)) => map.len(),
            Some(Value::String(text)) => text.len() / 16,
            _ => 0,
        };
        self.vm.budget.step(items as u64)?;
        let value = operator.run(self, arguments)?;
        Ok(if operator.makes_values() {
            self.made(value)?
        } else {
            value
        })
    }

    // --- globals ---------------------------------------------------------------------------------------------------------

    /// Returns the value of a global. It is computed at the first use.
    pub(super) fn global(&mut self, instance: u32, global: u16) -> Result<Value, Interrupt> {
        let place = usize::from(global);
        let this = &mut self.vm.instances[instance as usize];
        match &this.globals[place] {
            GlobalState::Set(value) => return Ok(value.clone()),
            GlobalState::Computing => {
                let name = &this.program.globals[place].name;
                return Err(Error::value_error(format!("the value of `{name}` needs itself")).into());
            }
            GlobalState::Unset => {}
        }
        let program = Arc::clone(&this.program);
        let definition = &program.globals[place];
        let value = match &definition.kind {
            GlobalKind::Constant(value) => return Ok(value.clone()),
            GlobalKind::Testing => return Ok(program.testing.clone()),
            GlobalKind::Function(code) => closure(instance, *code, Arc::clone(&self.vm.no_captures), &program),
            GlobalKind::Lazy(code) => self.compute_global(instance, place, *code)?,
            GlobalKind::Configured(code) => match this.configuration.child(&definition.name) {
                Some(value) => value.clone(),
                None => self.compute_global(instance, place, *code)?,
            },
        };
        self.vm.instances[instance as usize].globals[place] = GlobalState::Set(value.clone());
        Ok(value)
    }

    fn compute_global(&mut self, instance: u32, place: usize, code: u32) -> Result<Value, Interrupt> {
        if self.operator_depth >= OPERATOR_DEPTH_MAX {
            let message = format!("globals that need globals nest more than {OPERATOR_DEPTH_MAX} deep");
            return Err(Error::limit(message).into());
        }
        self.operator_depth += 1;
        self.vm.instances[instance as usize].globals[place] = GlobalState::Computing;
        let value = self.run_code(instance, code, &[])?;
        self.operator_depth -= 1;
        Ok(value)
    }
}

/// Returns the arguments in the order of the parameters. Named arguments go to their parameter, others stay at their place. Gaps are undefined.
fn by_parameter(arguments: Vec<Value>, shape: &[Option<Arc<str>>], parameters: &[impl AsRef<str>]) -> Vec<Value> {
    let mut placed = Vec::new();
    for (place, (argument, name)) in arguments.into_iter().zip(shape).enumerate() {
        let at = match name {
            None => Some(place),
            Some(name) => parameters.iter().position(|parameter| parameter.as_ref() == &**name),
        };
        let Some(at) = at.filter(|at| *at < parameters.len()) else {
            continue;
        };
        if placed.len() <= at {
            placed.resize(at + 1, Value::Undefined);
        }
        placed[at] = argument;
    }
    placed
}

impl Value {
    /// Returns the function, if it can be called in an expression.
    pub(crate) fn as_function(&self) -> Option<&Function> {
        match self {
            Value::Function(function) if function.type_name() != "Action" => Some(function),
            _ => None,
        }
    }
}
