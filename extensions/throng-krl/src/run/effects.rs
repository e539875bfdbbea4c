//! The effects of a rule on the world: entity variables, events, directives, the log.

use super::Run;
use crate::compile::Operation;
use crate::host::{Directive, Interrupt, Level, LogEntry, Raise, Schedule, When};
use crate::program::Program;
use crate::syntax::ast::LogLevel;
use crate::value::{Map, path_of};
use crate::{Error, NESTING_MAX, Value};
use std::sync::Arc;

impl Run<'_> {
    pub(super) fn effect(&mut self, operation: Operation, program: &Arc<Program>) -> Result<(), Interrupt> {
        match operation {
            Operation::EntityGet { name, has_path } => {
                let path = self.path(has_path)?;
                let name = program.constants[name as usize].as_str().unwrap_or_default();
                let value = match has_path && path.is_empty() {
                    true => Value::Null,
                    false => self.host.ent_get(&program.rid, name, &path)?,
                };
                self.push(value);
                Ok(())
            }
            Operation::EntityPut { name, has_path } => {
                let value = self.pop();
                let path = self.path(has_path)?;
                let name = program.constants[name as usize].as_str().unwrap_or_default();
                match has_path {
                    true => self.put_below(&program.rid, name, &path, value),
                    false => {
                        let value = self.made(value.into_data())?;
                        self.host.ent_put(&program.rid, name, &[], value)
                    }
                }
            }
            Operation::EntityRemove { name, has_path } => {
                let path = self.path(has_path)?;
                let name = program.constants[name as usize].as_str().unwrap_or_default();
                if has_path && path.is_empty() {
                    return Ok(());
                }
                self.host.ent_remove(&program.rid, name, &path)
            }
            Operation::SendDirective(shape) => self.send_directive(&program.shapes[shape as usize]),
            Operation::Raise {
                whole,
                has_rid,
                has_attributes,
            } => self.raise(whole, has_rid, has_attributes),
            Operation::Schedule {
                whole,
                repeats,
                has_attributes,
            } => self.schedule(whole, repeats, has_attributes),
            Operation::Log(level) => {
                let value = self.pop();
                let (message, value) = match value {
                    Value::String(text) => (text, Value::Null),
                    other => (Arc::from(""), other),
                };
                self.log(level_of(level), message, value);
                Ok(())
            }
            Operation::Error(level) => self.raise_error(level),
            _ => Ok(()),
        }
    }

    fn path(&mut self, has_path: bool) -> Result<Vec<Arc<str>>, Error> {
        if !has_path {
            return Ok(Vec::new());
        }
        let path = path_of(&self.pop());
        checked_path(&path)?;
        Ok(path)
    }

    /// Sets the value at a path in an entity variable. A variable that is neither array nor map becomes a map.
    fn put_below(&mut self, rid: &str, name: &str, path: &[Arc<str>], value: Value) -> Result<(), Interrupt> {
        let held = self.host.ent_get(rid, name, &[])?;
        let is_container = matches!(held, Value::Array(_) | Value::Map(_));
        let has_place = held.has_place_for(path);
        // With this copy dropped, the host can change the value in place.
        drop(held);
        if path.is_empty() && !is_container {
            return self.host.ent_put(rid, name, path, Value::from(Map::default()));
        }
        if path.is_empty() || !has_place {
            return Ok(());
        }
        let is_undefined = matches!(value, Value::Undefined);
        // The bounds apply to the part here, and to the whole variable when it is read again.
        let value = self.made(value.into_data())?;
        self.host.ent_put(rid, name, path, value)?;
        // A map converted to JSON loses undefined entries.
        if is_undefined {
            self.host.ent_remove(rid, name, path)
        } else {
            Ok(())
        }
    }

    pub(crate) fn log(&mut self, level: Level, message: Arc<str>, value: Value) {
        if !self.host.is_logged(level) {
            return;
        }
        let entry = LogEntry {
            level,
            rid: Arc::clone(self.rid()),
            rule: self.rule.clone(),
            message,
            value,
        };
        self.host.log(entry);
    }

    // --- directives ------------------------------------------------------------------------------------------------------

    fn send_directive(&mut self, shape: &[Option<Arc<str>>]) -> Result<(), Interrupt> {
        let mut name = Value::Null;
        let mut options = Value::Null;
        for (place, (value, parameter)) in self.take(shape.len()).into_iter().zip(shape).enumerate() {
            match (parameter.as_deref(), place) {
                (Some("name"), _) | (None, 0) => name = value,
                (Some("options"), _) | (None, 1) => options = value,
                _ => {}
            }
        }
        self.vm.budget.effect()?;
        if !options.is_true() {
            options = Value::from(Map::default());
        }
        let directive = Directive {
            name: name.into_data(),
            options: options.into_data(),
            rid: Arc::clone(&self.vm.instances[self.root as usize].program.rid),
            rule: self.rule.clone(),
        };
        let text = |text: Option<&Arc<str>>| text.map_or(Value::Null, |text| Value::String(Arc::clone(text)));
        let meta = Value::map([
            ("rid", Value::String(Arc::clone(&directive.rid))),
            ("rule_name", text(directive.rule.as_ref())),
            ("txnId", text(self.event.map(|event| &event.eid))),
        ]);
        let value = Value::map([
            ("type", Value::from("directive")),
            ("name", directive.name.clone()),
            ("options", directive.options.clone()),
            ("meta", meta),
        ]);
        self.host.directive(directive)?;
        let value = self.made(value)?;
        self.push(value);
        Ok(())
    }

    // --- events ----------------------------------------------------------------------------------------------------------

    /// Pops the domain and name of an event from the stack.
    fn event_type(&mut self, whole: bool) -> Result<(Arc<str>, Arc<str>), Error> {
        let (domain, name) = if whole {
            let text: String = self.pop().text().split_whitespace().collect();
            let (domain, name) = text.split_once(':').unwrap_or((&text, ""));
            (Arc::from(domain), Arc::from(name))
        } else {
            let name = self.pop();
            let Value::String(name) = &name else {
                let found = name.text();
                return Err(Error::type_error(format!(
                    "the name of an event has to be a text, not {found}"
                )));
            };
            let name: Arc<str> = Arc::from(name.trim());
            (self.pop().to_text(), name)
        };
        if domain.is_empty() || name.is_empty() {
            let message = format!("an event needs a domain and a name, like `domain:name`, not `{domain}:{name}`");
            return Err(Error::value_error(message));
        }
        Ok((domain, name))
    }

    fn raise(&mut self, whole: bool, has_rid: bool, has_attributes: bool) -> Result<(), Interrupt> {
        let attributes = if has_attributes { self.pop() } else { Value::Null };
        let for_rid = if has_rid { Some(self.pop()) } else { None };
        let (domain, name) = self.event_type(whole)?;
        let for_rid = for_rid.filter(|rid| !rid.is_null()).map(|rid| rid.to_text());
        self.raise_event(domain, name, attributes, for_rid)
    }

    fn raise_event(
        &mut self,
        domain: Arc<str>,
        name: Arc<str>,
        attributes: Value,
        for_rid: Option<Arc<str>>,
    ) -> Result<(), Interrupt> {
        let attributes = match attributes.into_data() {
            Value::Null => Value::from(Map::default()),
            Value::Map(map) => Value::Map(map),
            other => {
                let found = other.type_name();
                return Err(
                    Error::type_error(format!("the attributes of an event have to be a Map, not {found}")).into(),
                );
            }
        };
        self.vm.budget.effect()?;
        let rid = Arc::clone(self.rid());
        self.host.raise(Raise {
            rid,
            domain,
            name,
            attributes,
            for_rid,
        })
    }

    /// Runs `error level data`: raises an event `system:error` for this ruleset. With level `error` it first drops all events and rulesets still to
    /// come.
    fn raise_error(&mut self, level: LogLevel) -> Result<(), Interrupt> {
        let data = self.pop();
        let rid = Arc::clone(self.rid());
        let attributes = Value::map([
            ("level", Value::from(level.as_str())),
            ("data", data),
            ("rid", Value::String(Arc::clone(&rid))),
            (
                "rule_name",
                self.rule
                    .as_ref()
                    .map_or(Value::Null, |rule| Value::String(Arc::clone(rule))),
            ),
            ("genus", Value::from("user")),
        ]);
        if level == LogLevel::Error {
            self.is_last = true;
            self.host.clear_schedule();
        }
        self.raise_event(Arc::from("system"), Arc::from("error"), attributes, Some(rid))?;
        if level == LogLevel::Error
            && let Some(frame) = self.frames.last_mut()
        {
            // The last operation returns, so nothing more of the rule runs.
            let code = &self.vm.instances[frame.instance as usize].program.codes[frame.code as usize];
            frame.next = code.operations.len().saturating_sub(1);
            self.vm.stack.push(Value::Null);
        }
        Ok(())
    }

    fn schedule(&mut self, whole: bool, repeats: bool, has_attributes: bool) -> Result<(), Interrupt> {
        let attributes = if has_attributes {
            self.pop().into_data()
        } else {
            Value::Null
        };
        let time = self.pop();
        let (domain, name) = self.event_type(whole)?;
        let when = if repeats {
            When::Repeat(time.to_text())
        } else {
            let at = crate::library::timestamp_ms(&time, self.time_ms());
            let Some(at) = at else {
                let found = time.type_name();
                return Err(Error::type_error(format!("schedule .. at expected a timestamp but got {found}")).into());
            };
            When::At(at)
        };
        self.vm.budget.effect()?;
        let eci = self.event.map_or_else(|| Arc::from(""), |event| Arc::clone(&event.eci));
        let schedule = Schedule {
            rid: Arc::clone(self.rid()),
            eci,
            domain,
            name,
            attributes,
            when,
        };
        let value = self.host.schedule(schedule)?;
        let value = self.made(value)?;
        self.push(value);
        Ok(())
    }
}

/// Refuses a path that is longer than values may nest.
pub(crate) fn checked_path(path: &[Arc<str>]) -> Result<(), Error> {
    if path.len() > usize::from(NESTING_MAX) {
        return Err(Error::limit(format!(
            "a path of {} keys, more than {NESTING_MAX}",
            path.len()
        )));
    }
    Ok(())
}

fn level_of(level: LogLevel) -> Level {
    match level {
        LogLevel::Error => Level::Error,
        LogLevel::Warn => Level::Warn,
        LogLevel::Info => Level::Info,
        LogLevel::Debug => Level::Debug,
    }
}
