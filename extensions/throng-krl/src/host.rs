//! The interface through which a running program reaches outside itself.

use crate::{Program, Value};
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// An event, as a program takes it.
#[derive(Clone, Debug)]
pub struct Event {
    /// The channel it came over.
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

/// A query, as a program takes it.
#[derive(Clone, Debug)]
pub struct Query {
    /// The channel it came over.
    pub eci: Arc<str>,
    /// The shared function or value that is asked for.
    pub name: Arc<str>,
    /// The arguments by name, a map.
    pub arguments: Value,
    /// The transaction's id.
    pub qid: Arc<str>,
}

/// Time and chance of one transaction. Equal ones make equal results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The value of `time:now()`, in milliseconds since 1970.
    pub time_ms: i64,
    /// The start of `random:…` and `sample`.
    pub seed: u64,
}

/// Why a program does not go on.
#[derive(Clone, Debug)]
pub enum Interrupt {
    /// The program or the host failed: the transaction ends.
    Error(Error),
    /// The host needs an answer from elsewhere. Nothing of what the transaction did may stay; it is run again, from its start and with the
    /// same [`Turn`], once the answer is there.
    Wait(Request),
}

/// A request that the host has to answer before the transaction can be run again.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The module asked, `http` say.
    pub domain: Arc<str>,
    /// The function or action of it.
    pub name: Arc<str>,
    /// The arguments as the program gave them.
    pub arguments: Arguments,
}

/// The kind of failure that ended a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A value of a type that cannot be used so.
    Type,
    /// A value, a module or a function that does not exist or cannot be used.
    Value,
    /// A bound was reached: steps, memory, depth, events.
    Limit,
}

/// A failure of a running program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The kind of failure.
    pub kind: ErrorKind,
    /// The attempt and the finding, in a sentence.
    pub message: String,
    /// The ruleset it happened in; known once the program has ended.
    pub rid: Option<Arc<str>>,
    /// The rule it happened in, if in one.
    pub rule: Option<Arc<str>>,
    /// The place in the ruleset's source.
    pub location: Option<crate::Location>,
}

impl Error {
    /// A failure that a value of the wrong type caused.
    #[must_use]
    pub fn type_error(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Type, message)
    }

    /// A failure that a value, a module or a function caused.
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

/// The text of an error without the place that its `Display` adds: as pico-engine tells it.
#[must_use]
pub fn without_location(text: &str) -> &str {
    match text.rfind(" [at line ") {
        Some(at) if text.ends_with(']') => &text[..at],
        _ => text,
    }
}

impl Error {
    /// The failure that a text tells, of another program say; the place is not of this one.
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

/// The text of the error in JavaScript: `TypeError: …`, `Error: …`; with the place, ` [at line 3 col 5]`, if it is known.
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

/// The arguments of a call: those by place, then those by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arguments {
    /// The values in the order they were written.
    pub positional: Vec<Value>,
    /// `name = value`.
    pub named: Vec<(Arc<str>, Value)>,
}

impl Arguments {
    /// The argument of a parameter, by its name or else its place; null if it is missing.
    #[must_use]
    pub fn get(&self, place: usize, name: &str) -> Value {
        self.find(place, name).unwrap_or_default()
    }

    /// Works like [`get`](Arguments::get), but gives none if it is missing.
    pub(crate) fn find(&self, place: usize, name: &str) -> Option<Value> {
        let named = self.named.iter().find(|(key, _)| &**key == name);
        let found = named.map(|(_, value)| value).or_else(|| self.positional.get(place));
        found.cloned()
    }

    /// The arguments as data ([`Value::into_data`]).
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

    /// All of them as one map, those by place under their parameters' names.
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
    /// `http:get(…)` in an expression: it may change nothing.
    Function,
    /// `ctx:newPico(…)` among the actions.
    Action,
}

/// A use of a module that the host answers.
#[derive(Debug)]
pub struct Call<'a> {
    /// The ruleset that asks; a module's own id while its code runs.
    pub rid: &'a str,
    /// The rule that asks, if one does.
    pub rule: Option<&'a str>,
    /// The module: `ctx`, `http`, … or the id of a ruleset that [`Host::module`] says the host answers.
    pub domain: &'a str,
    /// The function, action or property of the module.
    pub name: &'a str,
    /// The use: for its value, or for its effect.
    pub kind: CallKind,
    /// The arguments as the program gave them.
    pub arguments: &'a Arguments,
    /// The configuration that the ruleset gave to the module (`use module … with`), a map.
    pub configuration: &'a Value,
}

/// A ruleset used as a module.
#[derive(Clone, Debug)]
pub enum Module {
    /// Compiled by the host, and run within this transaction.
    Program(Arc<Program>),
    /// The host answers its calls ([`Host::call`]).
    Host,
}

/// `raise`: one more event in this transaction.
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
    /// Only this ruleset takes it.
    pub for_rid: Option<Arc<str>>,
}

/// `schedule`: an event at another time.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// The ruleset that schedules it.
    pub rid: Arc<str>,
    /// The channel of the event that is handled.
    pub eci: Arc<str>,
    /// The first part of its type, `say` of `say:hello`.
    pub domain: Arc<str>,
    /// The second part of its type, `hello` of `say:hello`.
    pub name: Arc<str>,
    /// Its attributes: a map, or null for none.
    pub attributes: Value,
    /// The times: one, or repeated ones.
    pub when: When,
}

/// When a scheduled event happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// A single time, in milliseconds since 1970.
    At(i64),
    /// Repeated times, in the form of cron.
    Repeat(Arc<str>),
}

/// A rule's message to the sender of the event.
#[derive(Clone, Debug, PartialEq)]
pub struct Directive {
    /// A text, as a rule; any value can stand there.
    pub name: Value,
    /// Its options; an empty map if there are none.
    pub options: Value,
    /// The ruleset that made it.
    pub rid: Arc<str>,
    /// The rule that made it.
    pub rule: Option<Arc<str>>,
}

/// The weight of a log entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Inner workings.
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
    /// Its weight.
    pub level: Level,
    /// The ruleset that logged it.
    pub rid: Arc<str>,
    /// The rule that logged it; none where a function of a query did.
    pub rule: Option<Arc<str>>,
    /// The text that was logged, or what the entry is about.
    pub message: Arc<str>,
    /// The value concerned; null if there is none.
    pub value: Value,
}

/// A running program's access to everything outside: the pico it runs in.
///
/// A transaction may be run again from its start after [`Interrupt::Wait`], so nothing that a host is told may take effect before the
/// transaction has ended well.
pub trait Host {
    /// Reads an entity variable, or what is at a path in it; null where there is nothing.
    ///
    /// # Errors
    ///
    /// Whatever keeps it from being read.
    fn ent_get(&mut self, rid: &str, name: &str, path: &[Arc<str>]) -> Result<Value, Interrupt>;

    /// Writes an entity variable, or what is at a path in it ([`Value::set_at_path`]). The value is data.
    ///
    /// # Errors
    ///
    /// Whatever keeps it from being written, a query's being run say.
    fn ent_put(&mut self, rid: &str, name: &str, path: &[Arc<str>], value: Value) -> Result<(), Interrupt>;

    /// Removes an entity variable, or what is at a path in it ([`Value::remove_at_path`]).
    ///
    /// # Errors
    ///
    /// As for `ent_put`.
    fn ent_remove(&mut self, rid: &str, name: &str, path: &[Arc<str>]) -> Result<(), Interrupt>;

    /// The ruleset a program uses as a module; none if there is no such one.
    ///
    /// # Errors
    ///
    /// Whatever keeps it from being loaded.
    fn module(&mut self, rid: &str) -> Result<Option<Module>, Interrupt>;

    /// Uses a module of the host: `ctx`, `event:send`, `http`, `schedule`, `wrangler`, `subscription`, `meta`.
    ///
    /// # Errors
    ///
    /// If the module knows no such thing, the arguments cannot be used, or an answer has to be waited for.
    fn call(&mut self, call: &Call<'_>) -> Result<Value, Interrupt>;

    /// Appends an event to the transaction.
    ///
    /// # Errors
    ///
    /// If it cannot be taken.
    fn raise(&mut self, raise: Raise) -> Result<(), Interrupt>;

    /// Forgets the events that were raised and not yet handled, and the rulesets that the current event has still to reach (`error error`).
    fn clear_schedule(&mut self);

    /// Schedules an event and returns what `setting` gets.
    ///
    /// # Errors
    ///
    /// If it cannot be scheduled, a cron expression being none say.
    fn schedule(&mut self, schedule: Schedule) -> Result<Value, Interrupt>;

    /// Takes a directive.
    ///
    /// # Errors
    ///
    /// If there are too many.
    fn directive(&mut self, directive: Directive) -> Result<(), Interrupt>;

    /// An event selects a rule: its body runs next.
    fn rule_selected(&mut self, _rid: &Arc<str>, _rule: &Arc<str>) {}

    /// The rule selected last takes its actions, or its condition keeps it from them. A rule with `foreach` tells it once a round.
    fn rule_fired(&mut self, _fired: bool) {}

    /// Takes a log entry. Asked with `is_logged` first, so that nothing is made for nobody.
    fn log(&mut self, entry: LogEntry);

    /// True if entries of this level are wanted.
    fn is_logged(&self, level: Level) -> bool;
}
