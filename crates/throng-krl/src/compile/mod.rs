//! From the tree of a ruleset to a program.

use crate::program::Diagnostic;
use crate::{Program, Ruleset, Value};
use std::collections::HashMap;
use std::error::Error;
use std::fmt;

/// What is wrong with a ruleset, all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileError {
    /// In the order of the source.
    pub diagnostics: Vec<Diagnostic>,
}

impl fmt::Display for CompileError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, diagnostic) in self.diagnostics.iter().enumerate() {
            let separator = if place == 0 { "" } else { "\n" };
            write!(formatter, "{separator}{diagnostic}")?;
        }
        Ok(())
    }
}

impl Error for CompileError {}

#[derive(Debug)]
pub(crate) struct Code;

/// Compiles a ruleset.
///
/// # Errors
///
/// Everything that is wrong with it: names that nothing declares, unknown modules, declarations that stand twice.
pub fn compile(ruleset: &Ruleset) -> Result<Program, CompileError> {
    let mut dispatch: HashMap<Box<str>, HashMap<Box<str>, Vec<u16>>> = HashMap::new();
    for rule in &ruleset.rules {
        if let Some(crate::syntax::ast::Select::When { event, .. }) = &rule.select
            && let crate::syntax::ast::EventKind::Event(pattern) = &event.kind
        {
            dispatch
                .entry((&*pattern.domain.text).into())
                .or_default()
                .insert((&*pattern.name.text).into(), vec![0]);
        }
    }
    Ok(Program {
        rid: ruleset.rid.text.clone(),
        meta: crate::Meta::default(),
        warnings: Vec::new(),
        testing: Value::Null,
        codes: Vec::new(),
        constants: Vec::new(),
        shapes: Vec::new(),
        groups: Vec::new(),
        globals: Vec::new(),
        uses: Vec::new(),
        references: Vec::new(),
        rules: Vec::new(),
        dispatch,
        any_event: Vec::new(),
        shares: Vec::new(),
        provides: Vec::new(),
    })
}
