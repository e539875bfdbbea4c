//! The use of modules: rulesets, this crate's own modules, and the host's.

use super::{Instance, Run, UsedModule};
use crate::host::{Arguments, Call, CallKind, Interrupt, Module};
use crate::program::{ModuleReference, ModuleTarget};
use crate::{Error, Value};
use std::sync::Arc;

impl Run<'_> {
    /// Uses a module's name with the arguments on the stack. Returns true if it entered a frame.
    pub(super) fn use_module(
        &mut self,
        reference: &ModuleReference,
        shape: &[Option<Arc<str>>],
        kind: CallKind,
    ) -> Result<bool, Interrupt> {
        let value = match reference.target {
            ModuleTarget::Event => {
                let arguments = self.take_arguments(shape);
                self.event_property(&reference.name, &arguments)
            }
            ModuleTarget::Own(function) => {
                let arguments = self.take_arguments(shape);
                let value = function.run(self, &arguments)?;
                self.made(value)?
            }
            ModuleTarget::Host => {
                let arguments = self.take_arguments(shape);
                match self.own_property(&reference.domain, &reference.name) {
                    Some(value) => value,
                    None => self.call_host(&reference.domain, &reference.name, kind, arguments, &Value::Null)?,
                }
            }
            ModuleTarget::Used(place) => match self.used_module(place)? {
                UsedModule::Program(instance) => return self.call_provided(instance, &reference.name, shape, kind),
                UsedModule::Host { configuration } => {
                    let arguments = self.take_arguments(shape);
                    let instance = self.frames.last().map_or(self.root, |frame| frame.instance);
                    let program = Arc::clone(&self.vm.instances[instance as usize].program);
                    let rid = &program.uses[usize::from(place)].rid;
                    self.call_host(rid, &reference.name, kind, arguments, &configuration)?
                }
            },
        };
        self.push(value);
        Ok(false)
    }

    fn take_arguments(&mut self, shape: &[Option<Arc<str>>]) -> Arguments {
        let mut arguments = Arguments::default();
        for (value, name) in self.take(shape.len()).into_iter().zip(shape) {
            match name {
                None => arguments.positional.push(value),
                Some(name) => arguments.named.push((Arc::clone(name), value)),
            }
        }
        arguments
    }

    fn call_host(
        &mut self,
        domain: &str,
        name: &str,
        kind: CallKind,
        arguments: Arguments,
        configuration: &Value,
    ) -> Result<Value, Interrupt> {
        let arguments = &arguments.into_data();
        if kind == CallKind::Action {
            self.vm.budget.effect()?;
        }
        let rid = Arc::clone(self.rid());
        let call = Call {
            rid: &rid,
            rule: self.rule.as_deref(),
            domain,
            name,
            kind,
            arguments,
            configuration,
        };
        let value = self.host.call(&call)?;
        Ok(self.made(value)?)
    }

    // --- what the machine knows itself -----------------------------------------------------------------------------------

    /// Returns an attribute of the event. It is null in a module and in a query.
    pub(super) fn attribute(&self, name: &str) -> Value {
        match self.event {
            Some(event) if !self.is_module() => event.attributes.child(name).cloned().unwrap_or_default(),
            _ => Value::Null,
        }
    }

    fn event_property(&self, name: &str, arguments: &Arguments) -> Value {
        let Some(event) = self.event.filter(|_| !self.is_module()) else {
            return Value::Null;
        };
        match name {
            "eci" => Value::String(Arc::clone(&event.eci)),
            "domain" => Value::String(Arc::clone(&event.domain)),
            "name" | "type" => Value::String(Arc::clone(&event.name)),
            "attrs" => event.attributes.clone(),
            "attr" => {
                let attribute = event.attributes.child(&arguments.get(0, "name").text());
                attribute.cloned().unwrap_or(Value::Undefined)
            }
            "eid" => Value::String(Arc::clone(&event.eid)),
            _ => Value::Number(event.time_ms as f64),
        }
    }

    /// Returns a property of `meta` or `ctx` that the machine knows without the host.
    fn own_property(&self, domain: &str, name: &str) -> Option<Value> {
        let (event, query) = if self.is_module() {
            (None, None)
        } else {
            (self.event, self.query)
        };
        match (domain, name) {
            ("meta" | "ctx", "rid") => Some(Value::String(Arc::clone(self.rid()))),
            ("meta", "inEvent") => Some(Value::Boolean(event.is_some())),
            ("meta", "inQuery") => Some(Value::Boolean(query.is_some())),
            ("meta", "eci") => Some(match (event, query) {
                (Some(event), _) => Value::String(Arc::clone(&event.eci)),
                (_, Some(query)) => Value::String(Arc::clone(&query.eci)),
                _ => Value::Null,
            }),
            ("meta", "txnId") => Some(match (event, query) {
                (Some(event), _) => Value::String(Arc::clone(&event.eid)),
                (_, Some(query)) => Value::String(Arc::clone(&query.qid)),
                _ => Value::Null,
            }),
            ("meta", "ruleName") => {
                let rule = self.rule.as_ref().filter(|_| !self.is_module());
                Some(rule.map_or(Value::Null, |rule| Value::String(Arc::clone(rule))))
            }
            _ => None,
        }
    }

    // --- rulesets as modules ---------------------------------------------------------------------------------------------

    fn used_module(&mut self, place: u16) -> Result<UsedModule, Interrupt> {
        let user = self.frames.last().map_or(self.root, |frame| frame.instance);
        let instance = &self.vm.instances[user as usize];
        if let Some(used) = &instance.uses[usize::from(place)] {
            return Ok(used.clone());
        }
        let program = Arc::clone(&instance.program);
        let used = &program.uses[usize::from(place)];
        self.refuse_cycle(user, &used.rid)?;
        let Some(module) = self.host.module(&used.rid)? else {
            return Err(Error::value_error(format!("Module not found: {}", used.rid)).into());
        };
        let configuration = match used.configuration {
            Some(code) => self.run_code(user, code, &[])?,
            None => Value::Null,
        };
        let made = match module {
            Module::Host => UsedModule::Host { configuration },
            Module::Program(module) => {
                self.vm.instances.push(Instance::new(module, configuration, Some(user)));
                UsedModule::Program(u32::try_from(self.vm.instances.len() - 1).unwrap_or(u32::MAX))
            }
        };
        self.vm.instances[user as usize].uses[usize::from(place)] = Some(made.clone());
        Ok(made)
    }

    fn refuse_cycle(&self, user: u32, rid: &Arc<str>) -> Result<(), Interrupt> {
        let mut chain = vec![Arc::clone(rid)];
        let mut next = Some(user);
        while let Some(instance) = next {
            let instance = &self.vm.instances[instance as usize];
            chain.push(Arc::clone(&instance.program.rid));
            next = instance.user;
        }
        if chain[1..].contains(rid) {
            chain.reverse();
            return Err(Error::value_error(format!("Dependency Cycle Found: {}", chain.join(" -> "))).into());
        }
        Ok(())
    }

    fn call_provided(
        &mut self,
        instance: u32,
        name: &str,
        shape: &[Option<Arc<str>>],
        kind: CallKind,
    ) -> Result<bool, Interrupt> {
        let program = Arc::clone(&self.vm.instances[instance as usize].program);
        let Some((_, global)) = program.provides.iter().find(|(provided, _)| &**provided == name) else {
            return Err(Error::value_error(format!("the module {} provides no `{name}`", program.rid)).into());
        };
        let value = self.global(instance, *global)?;
        if kind == CallKind::Property && !matches!(value, Value::Function(_)) {
            self.push(value);
            return Ok(false);
        }
        let base = self.vm.stack.len() - shape.len();
        self.enter_function(&value, shape, base, base, kind == CallKind::Action)
    }
}
