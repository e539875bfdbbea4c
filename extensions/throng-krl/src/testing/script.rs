use super::Pico;
use crate::{Directive, Error, Value};
use std::error::Error as StdError;
use std::fmt;

/// A script: events and queries for a pico, with the expected outcome of each.
///
/// ```text
/// # Lines that begin with a number sign are comments.
/// event echo:hello {"name": "ann"}
///     directive say {"something": "Hello ann"}
/// event echo:unknown
/// query hello {"obj": "Bob"}
///     "Hello Bob"
/// ent name
///     "ann"
/// wait 90 s
///     directive reminded
/// event math:divide {"by": "x"}
///     error cannot be divided
/// ```
///
/// Indented lines are the expectations of the line above them:
///
/// - the directives of an event, in order and complete, with all their options,
/// - the value of a query or a variable, as JSON,
/// - `error`: an error that contains this text,
/// - `log`: a log entry whose message contains this text.
///
/// `use FILE` installs another ruleset. `module FILE` only lets rulesets use it.
#[derive(Debug)]
pub struct Script {
    steps: Vec<ScriptStep>,
}

/// A line of a script and its expectations.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptStep {
    /// The line's number, from 1.
    pub line: usize,
    /// The event, the query or the change of the clock.
    pub command: Action,
    expected: Vec<Expected>,
}

/// The action of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Sends an event and compares the directives.
    Event {
        /// The first part of its type, `say` of `say:hello`.
        domain: String,
        /// The second part of its type, `hello` of `say:hello`.
        name: String,
        /// The attributes, or null.
        attributes: Value,
    },
    /// Queries the ruleset and compares the result.
    Query {
        /// A shared function or value.
        name: String,
        /// The arguments, or null.
        arguments: Value,
    },
    /// Reads an entity variable and compares it.
    Variable(String),
    /// Moves the clock forward by this many milliseconds.
    Wait(i64),
    /// Installs a ruleset from a file beside the script.
    Use(String),
    /// Lets rulesets use the ruleset of a file as a module.
    Module(String),
}

#[derive(Clone, Debug, PartialEq)]
enum Expected {
    Directive { name: String, options: Value },
    Value(Value),
    Error(String),
    Log(String),
}

/// An invalid line of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptError {
    /// The line's number, from 1.
    pub line: usize,
    /// The fault of the script.
    pub message: String,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {}: {}", self.line, self.message)
    }
}

impl StdError for ScriptError {}

/// A step whose outcome was not the expected one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The line of the script, from 1.
    pub line: usize,
    /// The expectation.
    pub expected: String,
    /// The outcome instead.
    pub found: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "line {}: expected {}, found {}",
            self.line, self.expected, self.found
        )
    }
}

impl Script {
    /// Parses a script.
    ///
    /// # Errors
    ///
    /// [`ScriptError`]: the first invalid line.
    pub fn parse(text: &str) -> Result<Script, ScriptError> {
        let mut steps: Vec<ScriptStep> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let fail = |message: String| ScriptError {
                line: number + 1,
                message,
            };
            if line.trim().is_empty() || line.trim_start().starts_with('#') {
                continue;
            }
            if !line.starts_with([' ', '\t']) {
                steps.push(ScriptStep {
                    line: number + 1,
                    command: command(line.trim()).map_err(fail)?,
                    expected: Vec::new(),
                });
                continue;
            }
            let Some(step) = steps.last_mut() else {
                return Err(fail("an expectation without a step before it".into()));
            };
            step.expected.push(expectation(line.trim()).map_err(fail)?);
        }
        Ok(Script { steps })
    }

    /// Returns the number of steps.
    #[must_use]
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// True if there is no step.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Returns the files of rulesets that it needs, each with true if it is installed (`use`).
    pub fn files(&self) -> impl Iterator<Item = (&str, bool)> {
        self.steps.iter().filter_map(|step| match &step.command {
            Action::Use(file) => Some((file.as_str(), true)),
            Action::Module(file) => Some((file.as_str(), false)),
            _ => None,
        })
    }

    /// Runs the steps on a pico that has the rulesets installed. Returns the steps whose outcome was not the expected one.
    pub fn run(&self, pico: &mut Pico) -> Vec<Mismatch> {
        self.steps.iter().filter_map(|step| step.run(pico)).collect()
    }
}

impl ScriptStep {
    fn run(&self, pico: &mut Pico) -> Option<Mismatch> {
        pico.take_log();
        let found = match &self.command {
            Action::Event {
                domain,
                name,
                attributes,
            } => pico.event(domain, name, attributes.clone()).map(Found::Directives),
            Action::Wait(milliseconds) => {
                let time = pico.time_ms().saturating_add(*milliseconds);
                pico.set_time_ms(time).map(Found::Directives)
            }
            Action::Query { name, arguments } => pico.query(name, arguments.clone()).map(Found::Value),
            Action::Variable(name) => Ok(Found::Value(pico.variable(name))),
            Action::Use(_) | Action::Module(_) => return None,
        };
        let log = pico.take_log();
        let logged = |text: &String| {
            log.iter()
                .any(|entry| entry.message.contains(text) || entry.value.to_json().contains(text.as_str()))
        };
        let (logs, others): (Vec<&Expected>, Vec<&Expected>) = self
            .expected
            .iter()
            .partition(|expected| matches!(expected, Expected::Log(_)));
        let missing = logs
            .into_iter()
            .find(|expected| !matches!(expected, Expected::Log(text) if logged(text)));
        if missing.is_none() && matches(&found, &others) {
            return None;
        }
        let expected: Vec<String> = self.expected.iter().map(ToString::to_string).collect();
        Some(Mismatch {
            line: self.line,
            expected: if expected.is_empty() {
                "no directive".into()
            } else {
                expected.join(", ")
            },
            found: match found {
                Ok(found) => found.to_string(),
                Err(error) => format!("error {error}"),
            },
        })
    }
}

enum Found {
    Directives(Vec<Directive>),
    Value(Value),
}

fn matches(found: &Result<Found, Error>, expected: &[&Expected]) -> bool {
    match (found, expected) {
        (Err(error), [Expected::Error(text)]) => error.to_string().contains(text),
        (Ok(Found::Value(value)), [Expected::Value(wanted)]) => value == wanted,
        (Ok(Found::Directives(directives)), expected) => {
            let is_wanted = |(directive, expected): (&Directive, &&Expected)| match expected {
                Expected::Directive { name, options } => {
                    directive.name.text() == *name && (directive.options == *options)
                }
                _ => false,
            };
            directives.len() == expected.len() && directives.iter().zip(expected).all(is_wanted)
        }
        _ => false,
    }
}

impl fmt::Display for Found {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Found::Value(value) => formatter.write_str(&value.to_json()),
            Found::Directives(directives) if directives.is_empty() => formatter.write_str("no directive"),
            Found::Directives(directives) => {
                let texts = directives
                    .iter()
                    .map(|it| format!("directive {} {}", it.name.text(), it.options.to_json()));
                formatter.write_str(&texts.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expected::Directive { name, options } => write!(formatter, "directive {name} {}", options.to_json()),
            Expected::Value(value) => formatter.write_str(&value.to_json()),
            Expected::Error(text) => write!(formatter, "error {text}"),
            Expected::Log(text) => write!(formatter, "log {text}"),
        }
    }
}

fn command(line: &str) -> Result<Action, String> {
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    let (first, value) = rest.trim().split_once([' ', '\t']).unwrap_or((rest.trim(), ""));
    let json = || match value.trim() {
        "" => Ok(Value::Null),
        text => Value::from_json(text).ok_or_else(|| format!("`{text}` is no JSON")),
    };
    if first.is_empty() {
        return Err(format!("`{verb}` needs something behind it"));
    }
    match verb {
        "event" => {
            let Some((domain, name)) = first.split_once(':') else {
                return Err(format!("an event is called `domain:name`, not `{first}`"));
            };
            let (domain, name) = (domain.to_owned(), name.to_owned());
            let attributes = json()?;
            Ok(Action::Event {
                domain,
                name,
                attributes,
            })
        }
        "query" => Ok(Action::Query {
            name: first.into(),
            arguments: json()?,
        }),
        "ent" => Ok(Action::Variable(first.into())),
        "use" => Ok(Action::Use(first.into())),
        "module" => Ok(Action::Module(first.into())),
        "wait" => {
            let milliseconds = match value.trim() {
                "ms" => 1,
                "s" => 1_000,
                "min" => 60_000,
                "h" => 3_600_000,
                "d" => 86_400_000,
                unit => return Err(format!("`wait` needs a unit, ms, s, min, h or d, not `{unit}`")),
            };
            let amount: i64 = first.parse().map_err(|_| format!("`{first}` is no whole number"))?;
            Ok(Action::Wait(amount.saturating_mul(milliseconds)))
        }
        _ => Err(format!(
            "expected `event`, `query`, `ent`, `wait`, `use` or `module`, found `{verb}`"
        )),
    }
}

fn expectation(line: &str) -> Result<Expected, String> {
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    match verb {
        "directive" => {
            let rest = rest.trim();
            let at = rest.find(" {").unwrap_or(rest.len());
            let options = match rest[at..].trim() {
                "" => Value::from(crate::Map::default()),
                text => Value::from_json(text).ok_or_else(|| format!("`{text}` is no JSON"))?,
            };
            let name = rest[..at].to_owned();
            Ok(Expected::Directive { name, options })
        }
        "error" => Ok(Expected::Error(rest.trim().into())),
        "log" => Ok(Expected::Log(rest.trim().into())),
        _ => match Value::from_json(line) {
            Some(value) => Ok(Expected::Value(value)),
            None => Err(format!(
                "expected `directive`, `error`, `log` or a value as JSON, found `{line}`"
            )),
        },
    }
}
