//! A compiled ruleset: its code and its description.

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
    /// The names of the arguments of each call; `None` for a positional one.
    pub(crate) shapes: Vec<Vec<Option<Arc<str>>>>,
    pub(crate) groups: Vec<ClosureGroup>,
    pub(crate) globals: Vec<Global>,
    pub(crate) uses: Vec<ModuleUse>,
    pub(crate) references: Vec<ModuleReference>,
    pub(crate) rules: Vec<RuleProgram>,
    /// The rules selected by an event, by its domain and name, in the order of the ruleset.
    pub(crate) dispatch: HashMap<Box<str>, HashMap<Box<str>, Vec<u16>>>,
    /// Rules that every event may select (`select where`), in order.
    pub(crate) any_event: Vec<u16>,
    /// Shared names and their globals.
    pub(crate) shares: Vec<(Arc<str>, u16)>,
    /// Provided names and their globals.
    pub(crate) provides: Vec<(Arc<str>, u16)>,
}

/// The ruleset's description of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meta {
    /// `meta { name … }`, a title; the id is [`Program::rid`].
    pub name: Option<Arc<str>>,
    /// `meta { version … }`, any text.
    pub version: Option<Arc<str>>,
    /// `meta { description … }`, for people.
    pub description: Option<Arc<str>>,
    /// `meta { author … }`, for people.
    pub author: Option<Arc<str>>,
}

/// A finding of the compiler, with its location.
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

/// A module a ruleset uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// The ruleset that `use module` names.
    pub rid: Arc<str>,
    /// The name it has in the ruleset.
    pub alias: Arc<str>,
}

impl Program {
    /// Returns the id under which it is installed, queried and used as a module.
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

    /// Returns the modules of its `use module` lines, in order.
    pub fn dependencies(&self) -> impl Iterator<Item = Dependency> {
        self.uses.iter().map(|used| Dependency {
            rid: Arc::clone(&used.rid),
            alias: Arc::clone(&used.alias),
        })
    }

    /// The names that queries may ask for. `__testing` may be asked for in any case.
    pub fn shares(&self) -> impl Iterator<Item = &Arc<str>> {
        self.shares.iter().map(|(name, _)| name)
    }

    /// The names it has for rulesets that use it as a module.
    pub fn provides(&self) -> impl Iterator<Item = &Arc<str>> {
        self.provides.iter().map(|(name, _)| name)
    }

    /// Its queries with their parameters and its events with the attributes they are asked for, as `__testing` says them if the ruleset
    /// does not.
    #[must_use]
    pub fn testing(&self) -> &Value {
        &self.testing
    }

    /// True if an event can select a rule or bring one further.
    #[must_use]
    pub fn handles(&self, domain: &str, name: &str) -> bool {
        !self.any_event.is_empty() || !self.rules_for(domain, name).is_empty()
    }

    /// The rules whose event expressions name an event.
    pub(crate) fn rules_for(&self, domain: &str, name: &str) -> &[u16] {
        let rules = self.dispatch.get(domain).and_then(|names| names.get(name));
        rules.map_or(&[], Vec::as_slice)
    }
}

/// Closures that are made together and may call each other.
#[derive(Debug, Default)]
pub(crate) struct ClosureGroup {
    /// The values that they take from around them.
    pub(crate) captures: Vec<Source>,
    /// Their codes, and the locals they are put into.
    pub(crate) members: Vec<(u32, u16)>,
}

/// The place of a captured value in the function around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Local(u16),
    Capture(u16),
    /// A closure of the group that the function around belongs to.
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
    /// Computed when it is first needed in an event.
    Lazy(u32),
    /// Given by the ruleset that uses this one as a module, or else computed.
    Configured(u32),
    /// The value of `__testing` without a global of that name.
    Testing,
}

#[derive(Debug)]
pub(crate) struct ModuleUse {
    pub(crate) rid: Arc<str>,
    pub(crate) alias: Arc<str>,
    /// The code that computes what `with` gives to the module.
    pub(crate) configuration: Option<u32>,
}

/// A name of a module, as it is used somewhere.
#[derive(Debug)]
pub(crate) struct ModuleReference {
    pub(crate) target: ModuleTarget,
    pub(crate) domain: Arc<str>,
    pub(crate) name: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModuleTarget {
    /// `use module`: which.
    Used(u16),
    /// The event at hand.
    Event,
    /// A module of this crate: which function of it.
    Own(crate::library::ModuleFunction),
    /// A module the host answers.
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

/// An event a rule waits for.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) domain: Arc<str>,
    pub(crate) name: Arc<str>,
    /// True if any event will do (`select where`).
    pub(crate) is_any: bool,
    pub(crate) attributes: Vec<(Arc<str>, Arc<Regex>)>,
    /// The locals that what the attributes matched is put into.
    pub(crate) settings: Vec<u16>,
    pub(crate) condition: Option<u32>,
    pub(crate) aggregator: Option<PatternAggregator>,
}

#[derive(Debug)]
pub(crate) struct PatternAggregator {
    pub(crate) operator: crate::syntax::ast::AggregateOperator,
    pub(crate) settings: Vec<u16>,
}
