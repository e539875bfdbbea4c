//! The interface through which a running program accesses its pico and everything outside.

use crate::{Program, Value};
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// An event that a program handles.
#[derive(Clone, Debug)]
pub struct Event {
    /// The channel on which it arrived.
    pub eci: Arc<str>,
    /// The first part of its type.
    pub domain: Arc<str>,
    /// The second part of its type.
    pub name: Arc<str>,
    /// Its attributes, a map.
    pub attributes: Value,
    /// The transaction's id.
    pub eid: Arc<str>,
    /// When it happened, in milliseconds since 1970. `within` counts in it.
    pub time_ms: i64,
}

/// A query that a program answers.
#[derive(Clone, Debug)]
pub struct Query {
    /// The channel on which it arrived.
    pub eci: Arc<str>,
    /// The shared function or value that is queried.
    pub name: Arc<str>,
    /// The arguments by name, a map.
    pub arguments: Value,
    /// The transaction's id.
    pub qid: Arc<str>,
}

/// Time and random seed of one transaction. Equal ones give equal results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The value of `time:now()`, in milliseconds since 1970.
    pub time_ms: i64,
    /// The seed of `random:…` and `sample`.
    pub seed: u64,
}

/// Why a program stopped.
#[derive(Clone, Debug)]
pub enum Interrupt {
    /// The program or the host failed, which ends the transaction.
    Error(Error),
    /// The host needs an answer from outside. It discards the transaction's effects, and runs it again from its start with the same
    /// [`Turn`] once the answer is there.
    Wait(Request),
}

/// A request that the host has to answer before the transaction can be run again.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The module, for example `http`.
    pub domain: Arc<str>,
    /// Its function or action.
    pub name: Arc<str>,
    /// The arguments as the program gave them.
    pub arguments: Arguments,
}

/// The kind of failure that ended a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A value has a type that does not fit.
    Type,
    /// A value, module or function does not exist or cannot be used.
    Value,
    /// A limit was reached: steps, memory, depth, events.
    Limit,
}

/// A failure of a running program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The kind of failure.
    pub kind: ErrorKind,
    /// The attempt and the failure, in a sentence.
    pub message: String,
    /// The ruleset in which it happened. Set once the program has ended.
    pub rid: Option<Arc<str>>,
    /// The rule in which it happened, if any.
    pub rule: Option<Arc<str>>,
    /// The place in the ruleset's source.
    pub location: Option<crate::Location>,
}

impl Error {
    /// Returns an error about a value of the wrong type.
    #[must_use]
    pub fn type_error(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Type, message)
    }

    /// Returns an error about a value, a module or a function.
    #[must_use]
    pub fn value_error(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Value, message)
    }

    pub(crate) fn limit(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Limit, message)
    }

    fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error {
            kind,
            message: message.into(),
            rid: None,
            rule: None,
            location: None,
        }
    }
}

/// Returns the text of an error without the location that its `Display` adds, as pico-engine shows it.
#[must_use]
pub fn without_location(text: &str) -> &str {
    match text.rfind(" [at line ") {
        Some(at) if text.ends_with(']') => &text[..at],
        _ => text,
    }
}

impl Error {
    /// Returns the error in a text, for example from another program. It has no location, since that would be in the other program.
    #[must_use]
    pub fn told(text: &str) -> Error {
        let text = without_location(text);
        let kinds = [ErrorKind::Type, ErrorKind::Value, ErrorKind::Limit];
        let told = kinds.into_iter().find_map(|kind| {
            let message = text.strip_prefix(kind.name())?.strip_prefix(": ")?;
            Some(Error::new(kind, message))
        });
        told.unwrap_or_else(|| Error::value_error(text))
    }
}

impl ErrorKind {
    /// The name of the error in JavaScript.
    fn name(self) -> &'static str {
        match self {
            ErrorKind::Type => "TypeError",
            ErrorKind::Value => "Error",
            ErrorKind::Limit => "RangeError",
        }
    }
}

/// Prints the error as JavaScript does: `TypeError: …`, `Error: …`; followed by the location, ` [at line 3 col 5]`, if it is known.
impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.kind.name(), self.message)?;
        match self.location {
            Some(location) => write!(formatter, " [at line {} col {}]", location.line, location.column),
            None => Ok(()),
        }
    }
}

impl StdError for Error {}

impl From<Error> for Interrupt {
    fn from(error: Error) -> Interrupt {
        Interrupt::Error(error)
    }
}

/// The arguments of a call: the positional ones, then the named ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arguments {
    /// The positional values in order.
    pub positional: Vec<Value>,
    /// The named values.
    pub named: Vec<(Arc<str>, Value)>,
}

impl Arguments {
    /// Returns a parameter's argument, by its name or else by its place; null if it is missing.
    #[must_use]
    pub fn get(&self, place: usize, name: &str) -> Value {
        self.find(place, name).unwrap_or_default()
    }

    /// Works like [`get`](Arguments::get), but returns `None` if it is missing.
    pub(crate) fn find(&self, place: usize, name: &str) -> Option<Value> {
        let named = self.named.iter().find(|(key, _)| &**key == name);
        let found = named.map(|(_, value)| value).or_else(|| self.positional.get(place));
        found.cloned()
    }

    /// Converts the arguments to data ([`Value::into_data`]).
    pub(crate) fn into_data(self) -> Arguments {
        Arguments {
            positional: self.positional.into_iter().map(Value::into_data).collect(),
            named: self
                .named
                .into_iter()
                .map(|(name, value)| (name, value.into_data()))
                .collect(),
        }
    }

    /// Returns all arguments as one map, the positional ones under their parameters' names.
    #[must_use]
    pub fn to_map(&self, parameters: &[&str]) -> Value {
        let places = parameters.iter().zip(&self.positional);
        let places = places.map(|(name, value)| (Arc::from(*name), value.clone()));
        Value::map(places.chain(self.named.iter().cloned()))
    }
}

/// The use of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// `ctx:children`: a value, without parentheses.
    Property,
    /// `http:get(…)` in an expression. It must have no effect.
    Function,
    /// `ctx:newPico(…)` among the actions.
    Action,
}

/// A use of a module that the host answers.
#[derive(Debug)]
pub struct Call<'a> {
    /// The calling ruleset; inside a module's code the module's own id.
    pub rid: &'a str,
    /// The calling rule, if any.
    pub rule: Option<&'a str>,
    /// The module: `ctx`, `http`, … or the id of a ruleset for which [`Host::module`] returned [`Module::Host`].
    pub domain: &'a str,
    /// The function, action or property of the module.
    pub name: &'a str,
    /// The use: for its value or for its effect.
    pub kind: CallKind,
    /// The arguments as the program gave them.
    pub arguments: &'a Arguments,
    /// The configuration that the ruleset gave to the module (`use module … with`), a map.
    pub configuration: &'a Value,
}

/// A ruleset used as a module.
#[derive(Clone, Debug)]
pub enum Module {
    /// The host compiled it; it runs within this transaction.
    Program(Arc<Program>),
    /// The host answers its calls ([`Host::call`]).
    Host,
}

/// `raise`: adds an event to this transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct Raise {
    /// The ruleset that raises it.
    pub rid: Arc<str>,
    /// The first part of its type, `say` of `say:hello`.
    pub domain: Arc<str>,
    /// The second part of its type, `hello` of `say:hello`.
    pub name: Arc<str>,
    /// Its attributes, a map.
    pub attributes: Value,
    /// Only this ruleset gets the event.
    pub for_rid: Option<Arc<str>>,
}

/// `schedule`: an event at a later time.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// The ruleset that schedules it.
    pub rid: Arc<str>,
    /// The channel of the event being handled.
    pub eci: Arc<str>,
    /// The first part of its type, `say` of `say:hello`.
    pub domain: Arc<str>,
    /// The second part of its type, `hello` of `say:hello`.
    pub name: Arc<str>,
    /// Its attributes: a map, or null for none.
    pub attributes: Value,
    /// A single time, or repeated times.
    pub when: When,
}

/// When a scheduled event happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// A single time, in milliseconds since 1970.
    At(i64),
    /// Repeated times, as a cron expression.
    Repeat(Arc<str>),
}

/// A rule's message to the sender of the event.
#[derive(Clone, Debug, PartialEq)]
pub struct Directive {
    /// Usually a text, but any value is allowed.
    pub name: Value,
    /// Its options; an empty map if there are none.
    pub options: Value,
    /// The ruleset that made it.
    pub rid: Arc<str>,
    /// The rule that made it.
    pub rule: Option<Arc<str>>,
}

/// The level of a log entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// A detail of the interpreter's own work.
    Debug,
    /// The operator `klog`, with the value it passes on.
    Klog,
    /// `log info`: worth knowing later.
    Info,
    /// `log warn`: something to look at.
    Warn,
    /// `log error`: something that should not have happened.
    Error,
}

/// An entry for the pico's log.
#[derive(Clone, Debug, PartialEq)]
pub struct LogEntry {
    /// The level at which it is logged.
    pub level: Level,
    /// The ruleset that logged it.
    pub rid: Arc<str>,
    /// The rule that logged it; `None` for a function of a query.
    pub rule: Option<Arc<str>>,
    /// The text that was logged, or what the entry is about.
    pub message: Arc<str>,
    /// The value concerned; null if there is none.
    pub value: Value,
}

/// A running program's access to its pico and everything outside.
///
/// After [`Interrupt::Wait`] a transaction is run again from its start. So nothing that a host is told may take effect before the
/// transaction has ended well.
pub trait Host {
    /// Reads an entity variable, or the value at a path in it; null if there is none.
    ///
    /// # Errors
    ///
    /// Any [`Interrupt`] that prevents reading.
    fn ent_get(&mut self, rid: &str, name: &str, path: &[Arc<str>]) -> Result<Value, Interrupt>;

    /// Writes an entity variable, or the value at a path in it ([`Value::set_at_path`]). The value is data.
    ///
    /// # Errors
    ///
    /// Any [`Interrupt`] that prevents writing, for example because a query is running.
    fn ent_put(&mut self, rid: &str, name: &str, path: &[Arc<str>], value: Value) -> Result<(), Interrupt>;

    /// Removes an entity variable, or the value at a path in it ([`Value::remove_at_path`]).
    ///
    /// # Errors
    ///
    /// As for `ent_put`.
    fn ent_remove(&mut self, rid: &str, name: &str, path: &[Arc<str>]) -> Result<(), Interrupt>;

    /// Returns the ruleset that a program uses as a module; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// Any [`Interrupt`] that prevents loading it.
    fn module(&mut self, rid: &str) -> Result<Option<Module>, Interrupt>;

    /// Calls a module of the host: `ctx`, `event:send`, `http`, `schedule`, `wrangler`, `subscription`, `meta`.
    ///
    /// # Errors
    ///
    /// [`Interrupt::Error`]: the module has no such function, or the arguments do not fit. [`Interrupt::Wait`]: the answer is not there
    /// yet.
    fn call(&mut self, call: &Call<'_>) -> Result<Value, Interrupt>;

    /// Appends an event to the transaction.
    ///
    /// # Errors
    ///
    /// [`Interrupt::Error`]: it cannot be appended.
    fn raise(&mut self, raise: Raise) -> Result<(), Interrupt>;

    /// Drops the events raised and not yet handled, and skips the rulesets that have not yet handled the current event (`error error`).
    fn clear_schedule(&mut self);

    /// Schedules an event and returns the value for `setting`.
    ///
    /// # Errors
    ///
    /// [`Interrupt::Error`]: it cannot be scheduled, for example because the cron expression is invalid.
    fn schedule(&mut self, schedule: Schedule) -> Result<Value, Interrupt>;

    /// Adds a directive.
    ///
    /// # Errors
    ///
    /// [`Interrupt::Error`]: there are too many.
    fn directive(&mut self, directive: Directive) -> Result<(), Interrupt>;

    /// Called when an event has selected a rule, before its body runs.
    fn rule_selected(&mut self, _rid: &Arc<str>, _rule: &Arc<str>) {}

    /// Called when the rule selected last runs its actions, or when its condition prevents that. A rule with `foreach` calls it once per
    /// round.
    fn rule_fired(&mut self, _fired: bool) {}

    /// Adds a log entry. The program first asks `is_logged`, so that no entry is built in vain.
    fn log(&mut self, entry: LogEntry);

    /// Tells whether entries of this level are logged.
    fn is_logged(&self, level: Level) -> bool;
}
