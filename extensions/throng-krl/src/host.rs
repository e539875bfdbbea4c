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
    /// The attributes, as a map.
    pub attributes: Value,
    /// The transaction's id.
    pub eid: Arc<str>,
    /// The time of the event, in milliseconds since 1970. `within` is measured by it.
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

/// The time and the random seed of one transaction. Equal inputs give equal results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The value of `time:now()`, in milliseconds since 1970.
    pub time_ms: i64,
    /// The seed of `random:…` and `sample`.
    pub seed: u64,
}

/// The reason why a program stopped.
#[derive(Clone, Debug)]
pub enum Interrupt {
    /// The program or the host failed, which ends the transaction.
    Error(Error),
    /// The host needs an answer from outside. It discards the transaction's effects. Once it has the answer, it runs the transaction again with the
    /// same
    /// [`Turn`].
    Wait(Request),
}

/// A request that the host has to answer before the transaction can be run again.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The module, for example `http`.
    pub domain: Arc<str>,
    /// Its function or action.
    pub name: Arc<str>,
    /// The arguments as given by the program.
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
    /// A sentence with the attempt and the failure.
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
    /// Returns the error that a text states, for example one from another program. It has no location, which would be in the other program.
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
    /// Returns the name of the error in JavaScript.
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
    /// Returns the argument of a parameter, by name or else by place; null if it is missing.
    #[must_use]
    pub fn get(&self, place: usize, name: &str) -> Value {
        self.find(place, name).unwrap_or_default()
    }

    /// Works like [`get`](Arguments::get), but returns `None` for a missing argument.
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

    /// Returns all arguments as one map. Positional ones get the names of their parameters.
    #[must_use]
    pub fn to_map(&self, parameters: &[&str]) -> Value {
        let places = parameters.iter().zip(&self.positional);
        let places = places.map(|(name, value)| (Arc::from(*name), value.clone()));
        Value::map(places.chain(self.named.iter().cloned()))
    }
}

/// The kind of use of a module.
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
    /// The calling ruleset. In code of a module it is the module's id.
    pub rid: &'a str,
    /// The calling rule, if there is one.
    pub rule: Option<&'a str>,
    /// The module: `ctx`, `http`, … or the id of a ruleset for which [`Host::module`] returned [`Module::Host`].
    pub domain: &'a str,
    /// The function, action or property of the module.
    pub name: &'a str,
    /// The kind of use: for a value or for an effect.
    pub kind: CallKind,
    /// The arguments as given by the program.
    pub arguments: &'a Arguments,
    /// The configuration from `use module … with`, a map.
    pub configuration: &'a Value,
}

/// A ruleset used as a module.
#[derive(Clone, Debug)]
pub enum Module {
    /// A ruleset that the host compiled. It runs within this transaction.
    Program(Arc<Program>),
    /// A module whose calls the host answers ([`Host::call`]).
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
    /// The only ruleset that gets the event; `None` for all.
    pub for_rid: Option<Arc<str>>,
}

/// `schedule`: an event for a later time.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// The ruleset that schedules it.
    pub rid: Arc<str>,
    /// The channel of the event being handled now.
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

/// The time of a scheduled event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// A single time, in milliseconds since 1970.
    At(i64),
    /// Repeated times, as a cron expression.
    Repeat(Arc<str>),
}

/// A message of a rule to the sender of the event.
#[derive(Clone, Debug, PartialEq)]
pub struct Directive {
    /// The name. It is usually a text, but any value is allowed.
    pub name: Value,
    /// The options; an empty map if there are none.
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
    /// `log warn`: something to check.
    Warn,
    /// `log error`: something that should not happen.
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
    /// The logged text, or the subject of the entry.
    pub message: Arc<str>,
    /// The value concerned; null if there is none.
    pub value: Value,
}

/// The access of a running program to its pico and everything outside.
///
/// A transaction runs again from its start after [`Interrupt::Wait`]. So nothing that a host is told may take effect before the transaction has
/// succeeded.
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
    /// The errors of `ent_put`.
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
    /// [`Interrupt::Error`]: the module has no such function, or the arguments do not fit. [`Interrupt::Wait`]: the answer has not arrived yet.
    fn call(&mut self, call: &Call<'_>) -> Result<Value, Interrupt>;

    /// Appends an event to the transaction.
    ///
    /// # Errors
    ///
    /// [`Interrupt::Error`]: it cannot be appended.
    fn raise(&mut self, raise: Raise) -> Result<(), Interrupt>;

    /// Drops the raised events that are not handled yet, and skips the rulesets that have not handled the current event yet (`error error`).
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

    /// Called when an event has selected a rule, before the rule's body runs.
    fn rule_selected(&mut self, _rid: &Arc<str>, _rule: &Arc<str>) {}

    /// Called when the last selected rule runs its actions, or when its condition prevents that. A rule with `foreach` calls it once per round.
    fn rule_fired(&mut self, _fired: bool) {}

    /// Adds a log entry. The program first asks `is_logged`, so that it builds no entry in vain.
    fn log(&mut self, entry: LogEntry);

    /// True if entries of this level are logged.
    fn is_logged(&self, level: Level) -> bool;
}
