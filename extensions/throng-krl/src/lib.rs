//! KRL, the Kinetic Rule Language of pico-engine 1.x. A ruleset's source is [parsed](parse), [compiled](compile) once to a [`Program`], and
//! run by a [`Vm`] for one event or query at a time.
//!
//! This crate does no I/O, reads no clock and draws no random numbers. A running program accesses its pico through a [`Host`]; time and
//! random seed come in a [`Turn`]. Equal inputs give equal results, so that an event can be run again, and simulated.
//!
//! Every run ends: steps, memory, depth and the number of events raised are [limited](Limits). Regular expressions take linear time, and
//! sources that nest too deeply are refused.
//!
//! ```
//! use throng_krl::{compile, parse};
//!
//! let source = r#"ruleset hello { rule greet { select when say hello send_directive("hi") } }"#;
//! let program = compile(&parse(source)?)?;
//! assert!(program.handles("say", "hello"));
//!
//! let mut pico = throng_krl::testing::Pico::default();
//! pico.install(program);
//! let directives = pico.event("say", "hello", throng_krl::Value::Null)?;
//! assert_eq!(directives[0].name.as_str(), Some("hi"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod compile;
mod host;
mod library;
mod program;
mod run;
mod select;
mod syntax;
pub mod testing;
mod value;

pub use compile::{CompileError, compile};
pub use host::{
    Arguments, Call, CallKind, Directive, Error, ErrorKind, Event, Host, Interrupt, Level, LogEntry, Module, Query,
    Raise, Request, Schedule, Turn, When, without_location,
};
pub use program::{Dependency, Diagnostic, Meta, Program};
pub use run::{Function, Limits, Vm};
pub use select::SelectState;
pub use syntax::{EXPRESSION_DEPTH_MAX, Location, ParseError, Ruleset, SOURCE_BYTES_MAX, format, parse};
pub use value::{Array, Entries, Map, NESTING_MAX, Regex, RegexError, Value, format_number};
