use crate::{
    Call, Directive, Error, Event, Host, Interrupt, Level, Limits, LogEntry, Map, Module, Program, Query, Raise,
    Schedule, SelectState, Turn, Value, Vm, When,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The channel of every event and query.
const ECI: &str = "testing";

/// A pico in memory with rulesets, entity variables, scheduled events, and a clock that moves only on request.
///
/// There are no other picos and no network. Of the host's modules it supports `schedule:list`, `schedule:get` and `schedule:remove`, `event:send` to
/// itself, `ctx:rulesets`, and values of `ctx` and `meta` that need nothing else.
#[derive(Debug)]
pub struct Pico {
    vm: Vm,
    installed: Vec<Installed>,
    modules: BTreeMap<Arc<str>, Arc<Program>>,
    outside: Outside,
    transactions: u64,
}

#[derive(Debug)]
struct Installed {
    program: Arc<Program>,
    state: SelectState,
}

/// The part of the pico that rulesets see, and the effects of an event.
#[derive(Clone, Debug, Default)]
struct Outside {
    /// The entity variables, by ruleset and name.
    variables: BTreeMap<(Arc<str>, Arc<str>), Value>,
    modules: BTreeMap<Arc<str>, Arc<Program>>,
    rids: Vec<Arc<str>>,
    scheduled: Vec<Scheduled>,
    raised: VecDeque<Raise>,
    sent: VecDeque<Raise>,
    directives: Vec<Directive>,
    log: Vec<LogEntry>,
    /// True after `error error`: the remaining rulesets skip the event.
    is_cleared: bool,
    is_query: bool,
    time_ms: i64,
    next_id: u64,
}

#[derive(Clone, Debug)]
struct Scheduled {
    id: Arc<str>,
    at_ms: i64,
    schedule: Schedule,
}

impl Default for Pico {
    fn default() -> Pico {
        Pico::new(Limits::default())
    }
}

impl Pico {
    /// Returns a pico with these limits. Its clock starts at the beginning of 2026.
    #[must_use]
    pub fn new(limits: Limits) -> Pico {
        Pico {
            vm: Vm::new(limits),
            installed: Vec::new(),
            modules: BTreeMap::new(),
            outside: Outside {
                time_ms: 1_767_225_600_000,
                ..Outside::default()
            },
            transactions: 0,
        }
    }

    /// Installs a ruleset. Other rulesets can use it as a module, too.
    pub fn install(&mut self, program: Program) {
        let program = Arc::new(program);
        self.outside.rids.push(Arc::clone(program.rid()));
        self.offer(Arc::clone(&program));
        self.installed.push(Installed {
            program,
            state: SelectState::default(),
        });
    }

    /// Lets other rulesets use this one as a module.
    pub fn offer(&mut self, program: Arc<Program>) {
        self.modules.insert(Arc::clone(program.rid()), program);
        self.outside.modules = self.modules.clone();
    }

    /// Sends an event. Returns its directives and those of all events it raised. An event that fails changes nothing.
    ///
    /// # Errors
    ///
    /// The error that ended it.
    pub fn event(&mut self, domain: &str, name: &str, attributes: Value) -> Result<Vec<Directive>, Error> {
        let attributes = match attributes {
            Value::Null => Value::from(Map::default()),
            Value::Map(map) => Value::Map(map),
            other => {
                return Err(Error::type_error(format!(
                    "attributes have to be a Map, not {}",
                    other.type_name()
                )));
            }
        };
        let first = Raise {
            rid: Arc::from(""),
            domain: Arc::from(domain),
            name: Arc::from(name),
            attributes,
            for_rid: None,
        };
        let mut directives = self.transaction(first)?;
        // Each event that the pico sent to itself is a separate transaction.
        while let Some(sent) = self.outside.sent.pop_front() {
            directives.extend(self.transaction(sent)?);
        }
        Ok(directives)
    }

    fn transaction(&mut self, first: Raise) -> Result<Vec<Directive>, Error> {
        let before = self.outside.clone();
        let states: Vec<SelectState> = self.installed.iter().map(|installed| installed.state.clone()).collect();
        self.begin(false);
        let done = self.run_all(first);
        let directives = std::mem::take(&mut self.outside.directives);
        if let Err(error) = done {
            self.outside = before;
            for (installed, state) in self.installed.iter_mut().zip(states) {
                installed.state = state;
            }
            return Err(error);
        }
        Ok(directives)
    }

    fn begin(&mut self, is_query: bool) {
        self.transactions += 1;
        self.outside.is_query = is_query;
        self.outside.raised.clear();
        self.outside.directives.clear();
        self.vm.begin(Turn {
            time_ms: self.outside.time_ms,
            seed: self.transactions,
        });
    }

    fn run_all(&mut self, first: Raise) -> Result<(), Error> {
        self.outside.raised.push_back(first);
        while let Some(raise) = self.outside.raised.pop_front() {
            self.outside.is_cleared = false;
            let event = Event {
                eci: Arc::from(ECI),
                domain: raise.domain,
                name: raise.name,
                attributes: raise.attributes,
                eid: Arc::from(format!("t{}", self.transactions)),
                time_ms: self.outside.time_ms,
            };
            for installed in &mut self.installed {
                if raise.for_rid.as_ref().is_some_and(|rid| rid != installed.program.rid()) {
                    continue;
                }
                let done = self
                    .vm
                    .event(&installed.program, &event, &mut installed.state, &mut self.outside);
                done.map_err(ended)?;
                if self.outside.is_cleared {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Queries the ruleset that was installed first.
    ///
    /// # Errors
    ///
    /// An [`Error`]: the ruleset shares no such name, or fails.
    pub fn query(&mut self, name: &str, arguments: Value) -> Result<Value, Error> {
        self.begin(true);
        let Some(installed) = self.installed.first() else {
            return Err(Error::value_error("no ruleset is installed"));
        };
        let query = Query {
            eci: Arc::from(ECI),
            name: Arc::from(name),
            arguments,
            qid: Arc::from(format!("t{}", self.transactions)),
        };
        self.vm
            .query(&installed.program, &query, &mut self.outside)
            .map_err(ended)
    }

    /// Returns an entity variable of the ruleset that was installed first; null if it has none of that name.
    #[must_use]
    pub fn variable(&self, name: &str) -> Value {
        let rid = self
            .installed
            .first()
            .map(|installed| Arc::clone(installed.program.rid()));
        let key = rid.map(|rid| (rid, Arc::from(name)));
        key.and_then(|key| self.outside.variables.get(&key))
            .cloned()
            .unwrap_or_default()
    }

    /// Returns the log entries since the last call.
    pub fn take_log(&mut self) -> Vec<LogEntry> {
        std::mem::take(&mut self.outside.log)
    }

    /// Returns the time of the clock, in milliseconds since 1970.
    #[must_use]
    pub fn time_ms(&self) -> i64 {
        self.outside.time_ms
    }

    /// Returns the steps that the last event or query took.
    #[must_use]
    pub fn steps_taken(&self) -> u64 {
        self.vm.steps_taken()
    }

    /// Sets the clock, and sends the scheduled events that are due by then, in order. Repeating ones are not sent.
    ///
    /// # Errors
    ///
    /// The first error of any of them.
    pub fn set_time_ms(&mut self, time_ms: i64) -> Result<Vec<Directive>, Error> {
        let mut directives = Vec::new();
        loop {
            let due = self
                .outside
                .scheduled
                .iter()
                .filter(|scheduled| scheduled.at_ms <= time_ms);
            let Some(next) = due.min_by_key(|scheduled| scheduled.at_ms).cloned() else {
                break;
            };
            self.outside.scheduled.retain(|scheduled| scheduled.id != next.id);
            self.outside.time_ms = self.outside.time_ms.max(next.at_ms);
            directives.extend(self.event(&next.schedule.domain, &next.schedule.name, next.schedule.attributes)?);
        }
        self.outside.time_ms = time_ms;
        Ok(directives)
    }
}

fn ended(interrupt: Interrupt) -> Error {
    match interrupt {
        Interrupt::Error(error) => error,
        Interrupt::Wait(request) => Error::value_error(format!(
            "{}:{} has to wait, which this pico cannot",
            request.domain, request.name
        )),
    }
}

impl Outside {
    fn refuse_in_query(&self) -> Result<(), Interrupt> {
        if self.is_query {
            return Err(Error::value_error("a query changes nothing").into());
        }
        Ok(())
    }

    fn scheduled_value(scheduled: &Scheduled) -> Value {
        let schedule = &scheduled.schedule;
        let event = Value::map([
            ("eci", Value::String(Arc::clone(&schedule.eci))),
            ("domain", Value::String(Arc::clone(&schedule.domain))),
            ("name", Value::String(Arc::clone(&schedule.name))),
            ("data", Value::map([("attrs", schedule.attributes.clone())])),
            ("time", Value::Number(0.0)),
        ]);
        let (kind, when) = match &schedule.when {
            When::At(at) => ("at", ("time", Value::Number(*at as f64))),
            When::Repeat(timespec) => ("repeat", ("timespec", Value::String(Arc::clone(timespec)))),
        };
        Value::map([
            ("id", Value::String(Arc::clone(&scheduled.id))),
            ("type", Value::from(kind)),
            when,
            ("event", event),
        ])
    }

    fn send(&mut self, options: &Value) -> Value {
        let text = |key: &str| options.child(key).map_or_else(|| Arc::from(""), Value::to_text);
        self.sent.push_back(Raise {
            rid: Arc::from(""),
            domain: text("domain"),
            name: if options.child("name").is_some() {
                text("name")
            } else {
                text("type")
            },
            attributes: options.child("attrs").cloned().unwrap_or_default(),
            for_rid: None,
        });
        Value::Null
    }
}

impl Host for Outside {
    fn ent_get(&mut self, rid: &str, name: &str, path: &[Arc<str>]) -> Result<Value, Interrupt> {
        let value = self.variables.get(&(Arc::from(rid), Arc::from(name)));
        Ok(value.map_or(Value::Null, |value| value.at_path(path)))
    }

    fn ent_put(&mut self, rid: &str, name: &str, path: &[Arc<str>], value: Value) -> Result<(), Interrupt> {
        self.refuse_in_query()?;
        let variable = self.variables.entry((Arc::from(rid), Arc::from(name))).or_default();
        if path.is_empty() {
            *variable = value;
        } else {
            variable.set_at_path(path, value);
        }
        Ok(())
    }

    fn ent_remove(&mut self, rid: &str, name: &str, path: &[Arc<str>]) -> Result<(), Interrupt> {
        self.refuse_in_query()?;
        let key = (Arc::from(rid), Arc::from(name));
        if path.is_empty() {
            self.variables.remove(&key);
        } else if let Some(variable) = self.variables.get_mut(&key) {
            variable.remove_at_path(path);
        }
        Ok(())
    }

    fn module(&mut self, rid: &str) -> Result<Option<Module>, Interrupt> {
        Ok(self.modules.get(rid).cloned().map(Module::Program))
    }

    fn call(&mut self, call: &Call<'_>) -> Result<Value, Interrupt> {
        let scheduled = self.scheduled.iter().map(Outside::scheduled_value);
        match (call.domain, call.name) {
            ("schedule", "list") => Ok(Value::array(scheduled.collect())),
            ("schedule", "get" | "remove") => {
                let id = call.arguments.get(0, "id");
                let found = scheduled
                    .into_iter()
                    .find(|scheduled| scheduled.child("id") == Some(&id));
                if call.name == "remove" {
                    self.scheduled
                        .retain(|scheduled| Value::String(Arc::clone(&scheduled.id)) != id);
                    return Ok(Value::Null);
                }
                Ok(found.unwrap_or_default())
            }
            ("event", "send") => Ok(self.send(&call.arguments.get(0, "options"))),
            ("ctx", "rulesets") => {
                let rids = self
                    .rids
                    .iter()
                    .map(|rid| Value::map([("rid", Value::String(Arc::clone(rid)))]));
                Ok(Value::array(rids.collect()))
            }
            ("ctx" | "meta", "picoId") => Ok(Value::from("pico")),
            ("ctx" | "meta", _) => Ok(Value::Null),
            (domain, name) => Err(Error::value_error(format!("{domain}:{name} needs an engine")).into()),
        }
    }

    fn raise(&mut self, raise: Raise) -> Result<(), Interrupt> {
        self.raised.push_back(raise);
        Ok(())
    }

    fn clear_schedule(&mut self) {
        self.raised.clear();
        self.is_cleared = true;
    }

    fn schedule(&mut self, schedule: Schedule) -> Result<Value, Interrupt> {
        self.next_id += 1;
        let at_ms = match schedule.when {
            When::At(at) => at,
            When::Repeat(_) => i64::MAX,
        };
        let scheduled = Scheduled {
            id: Arc::from(format!("s{}", self.next_id)),
            at_ms,
            schedule,
        };
        let value = Outside::scheduled_value(&scheduled);
        self.scheduled.push(scheduled);
        Ok(value)
    }

    fn directive(&mut self, directive: Directive) -> Result<(), Interrupt> {
        self.directives.push(directive);
        Ok(())
    }

    fn log(&mut self, entry: LogEntry) {
        self.log.push(entry);
    }

    fn is_logged(&self, _: Level) -> bool {
        true
    }
}
