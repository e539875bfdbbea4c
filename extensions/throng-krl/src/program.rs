//! A compiled ruleset with its code and its description.

use crate::compile::Code;
use crate::select::Machine;
use crate::value::Regex;
use crate::{Location, Value};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// A compiled ruleset. It is compiled once per version and shared by all picos that have it installed.
#[derive(Debug)]
pub struct Program {
    pub(crate) rid: Arc<str>,
    pub(crate) meta: Meta,
    pub(crate) warnings: Vec<Diagnostic>,
    pub(crate) testing: Value,
    pub(crate) codes: Vec<Code>,
    pub(crate) constants: Vec<Value>,
    /// The argument names of each call shape; `None` for a positional argument.
    pub(crate) shapes: Vec<Vec<Option<Arc<str>>>>,
    pub(crate) groups: Vec<ClosureGroup>,
    pub(crate) globals: Vec<Global>,
    pub(crate) uses: Vec<ModuleUse>,
    pub(crate) references: Vec<ModuleReference>,
    pub(crate) rules: Vec<RuleProgram>,
    /// The rules that an event may select, by its domain and name, in the order of the ruleset.
    pub(crate) dispatch: HashMap<Box<str>, HashMap<Box<str>, Vec<u16>>>,
    /// Rules that every event may select (`select where`), in order.
    pub(crate) any_event: Vec<u16>,
    /// The shared names with their globals.
    pub(crate) shares: Vec<(Arc<str>, u16)>,
    /// The provided names with their globals.
    pub(crate) provides: Vec<(Arc<str>, u16)>,
}

/// The ruleset's description of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meta {
    /// The title, from `meta { name … }`. The id is [`Program::rid`].
    pub name: Option<Arc<str>>,
    /// `meta { version … }`, any text.
    pub version: Option<Arc<str>>,
    /// `meta { description … }`, for people.
    pub description: Option<Arc<str>>,
    /// `meta { author … }`, for people.
    pub author: Option<Arc<str>>,
}

/// A finding of the compiler and its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The first character of the fault.
    pub location: Location,
    /// The fault, in a sentence.
    pub message: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Location { line, column } = self.location;
        write!(formatter, "line {line}, column {column}: {}", self.message)
    }
}

/// A module that a ruleset uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// The ruleset that `use module` names.
    pub rid: Arc<str>,
    /// The name of the module within the ruleset.
    pub alias: Arc<str>,
}

impl Program {
    /// Returns the id under which the ruleset is installed, queried and used as a module.
    #[must_use]
    pub fn rid(&self) -> &Arc<str> {
        &self.rid
    }

    /// Returns the ruleset's description of itself.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Returns the compiler's warnings.
    #[must_use]
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }

    /// Returns the modules of the `use module` lines, in order.
    pub fn dependencies(&self) -> impl Iterator<Item = Dependency> {
        self.uses.iter().map(|used| Dependency {
            rid: Arc::clone(&used.rid),
            alias: Arc::clone(&used.alias),
        })
    }

    /// Returns the names that queries may ask for. `__testing` may be asked for even if it is not among them.
    pub fn shares(&self) -> impl Iterator<Item = &Arc<str>> {
        self.shares.iter().map(|(name, _)| name)
    }

    /// Returns the names that rulesets may use if they use this one as a module.
    pub fn provides(&self) -> impl Iterator<Item = &Arc<str>> {
        self.provides.iter().map(|(name, _)| name)
    }

    /// Returns the generated `__testing`: the queries with their parameters, and the events with the attributes that the rules ask for.
    #[must_use]
    pub fn testing(&self) -> &Value {
        &self.testing
    }

    /// True if an event can select a rule or bring one further.
    #[must_use]
    pub fn handles(&self, domain: &str, name: &str) -> bool {
        !self.any_event.is_empty() || !self.rules_for(domain, name).is_empty()
    }

    /// Returns the rules whose event expressions name an event.
    pub(crate) fn rules_for(&self, domain: &str, name: &str) -> &[u16] {
        let rules = self.dispatch.get(domain).and_then(|names| names.get(name));
        rules.map_or(&[], Vec::as_slice)
    }
}

/// Closures that are made together and may call each other.
#[derive(Debug, Default)]
pub(crate) struct ClosureGroup {
    /// The captured values of all members.
    pub(crate) captures: Vec<Source>,
    /// The members' codes and the locals for their closures.
    pub(crate) members: Vec<(u32, u16)>,
}

/// The place of a captured value in the enclosing function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Local(u16),
    Capture(u16),
    /// A closure in the group of the enclosing function.
    Sibling(u32),
}

/// A name of `global`, or of `configure using`.
#[derive(Debug)]
pub(crate) struct Global {
    pub(crate) name: Arc<str>,
    pub(crate) kind: GlobalKind,
}

#[derive(Debug)]
pub(crate) enum GlobalKind {
    /// A function or an action.
    Function(u32),
    Constant(Value),
    /// A value computed at its first use within an event.
    Lazy(u32),
    /// A value given by the ruleset that uses this one as a module; computed if it gives none.
    Configured(u32),
    /// The value of `__testing`, if the ruleset declares none.
    Testing,
}

#[derive(Debug)]
pub(crate) struct ModuleUse {
    pub(crate) rid: Arc<str>,
    pub(crate) alias: Arc<str>,
    /// The code for the configuration map of `use module … with`.
    pub(crate) configuration: Option<u32>,
}

/// A use of a module's name.
#[derive(Debug)]
pub(crate) struct ModuleReference {
    pub(crate) target: ModuleTarget,
    pub(crate) domain: Arc<str>,
    pub(crate) name: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModuleTarget {
    /// A ruleset, by its `use module` line.
    Used(u16),
    /// The event being handled.
    Event,
    /// A function of one of this crate's modules.
    Own(crate::library::ModuleFunction),
    /// A module that the host answers.
    Host,
}

#[derive(Debug)]
pub(crate) struct RuleProgram {
    pub(crate) name: Arc<str>,
    pub(crate) machine: Machine,
    pub(crate) patterns: Vec<Pattern>,
    /// The limit of `within`, in milliseconds.
    pub(crate) within: Option<u32>,
    /// The number of variables that the event expression sets. They are the first locals of the rule's codes.
    pub(crate) settings: u16,
    pub(crate) body: u32,
}

/// An event that a rule waits for.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) domain: Arc<str>,
    pub(crate) name: Arc<str>,
    /// True if any event matches (`select where`).
    pub(crate) is_any: bool,
    pub(crate) attributes: Vec<(Arc<str>, Arc<Regex>)>,
    /// The locals for the matched parts of the attributes.
    pub(crate) settings: Vec<u16>,
    pub(crate) condition: Option<u32>,
    pub(crate) aggregator: Option<PatternAggregator>,
}

#[derive(Debug)]
pub(crate) struct PatternAggregator {
    pub(crate) operator: crate::syntax::ast::AggregateOperator,
    pub(crate) settings: Vec<u16>,
}
