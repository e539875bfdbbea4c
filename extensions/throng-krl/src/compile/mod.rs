//! The compiler from a ruleset's tree to a program. Names become places, expressions become code, event expressions become machines.

mod action;
mod code;
mod expression;
mod function;
mod mentions;
mod module;
mod rule;
mod ruleset;
mod scope;
mod select;
mod statement;
mod testing;

pub(crate) use code::{Binary, Code, Operation};

use crate::program::{ClosureGroup, Diagnostic, Global, ModuleReference, ModuleUse, RuleProgram};
use crate::syntax::Location;
use crate::value::Value;
use crate::{Program, Ruleset};
use scope::FunctionState;
use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// The most entries of each numbered table: globals, rules, patterns of a rule. No source of the largest size has so many.
const PLACES_MAX: usize = u16::MAX as usize;

/// All faults of a ruleset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileError {
    /// The faults in the order of the source.
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

/// Compiles a ruleset.
///
/// # Errors
///
/// [`CompileError`]: all faults found, such as undeclared names, unknown modules and duplicate declarations.
pub fn compile(ruleset: &Ruleset) -> Result<Program, CompileError> {
    let mut compiler = Compiler::default();
    let program = compiler.ruleset(ruleset);
    compiler.errors.sort_by_key(|diagnostic| diagnostic.location);
    if compiler.errors.is_empty() {
        Ok(program)
    } else {
        Err(CompileError {
            diagnostics: compiler.errors,
        })
    }
}

/// The state of a compilation.
#[derive(Debug, Default)]
struct Compiler {
    /// The functions being compiled, outermost first. Empty between functions.
    functions: Vec<FunctionState>,
    codes: Vec<Code>,
    constants: Vec<Value>,
    texts: HashMap<Arc<str>, u32>,
    shapes: Vec<Vec<Option<Arc<str>>>>,
    groups: Vec<ClosureGroup>,
    globals: Vec<Global>,
    global_names: HashMap<Arc<str>, u16>,
    /// The type of each global, empty if unknown. Only functions can be called, and only actions can act.
    global_types: Vec<&'static str>,
    uses: Vec<ModuleUse>,
    references: Vec<ModuleReference>,
    rules: Vec<RuleProgram>,
    testing: testing::Testing,
    errors: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
    /// The place in the source of the part being compiled.
    location: Location,
    /// The loops around the statement being compiled.
    loops: Vec<u16>,
}

impl Compiler {
    fn error(&mut self, location: Location, message: impl Into<String>) {
        let message = message.into();
        self.errors.push(Diagnostic { location, message });
    }

    fn warn(&mut self, location: Location, message: impl Into<String>) {
        let message = message.into();
        self.warnings.push(Diagnostic { location, message });
    }

    // --- code ----------------------------------------------------------------------------------------------------------

    fn function(&mut self) -> &mut FunctionState {
        if self.functions.is_empty() {
            self.functions.push(FunctionState::default());
        }
        let last = self.functions.len() - 1;
        &mut self.functions[last]
    }

    fn emit(&mut self, operation: Operation) {
        let location = self.location;
        let function = self.function();
        function.operations.push(operation);
        function.locations.push(location);
    }

    /// Returns the address of the next operation.
    fn here(&mut self) -> u32 {
        u32::try_from(self.function().operations.len()).unwrap_or(u32::MAX)
    }

    /// Emits a jump. [`land`](Compiler::land) sets its target later.
    fn emit_jump(&mut self, operation: Operation) -> usize {
        self.emit(operation);
        self.function().operations.len() - 1
    }

    /// Sets the target of a jump to the next operation.
    fn land(&mut self, jump: usize) {
        let here = self.here();
        let target = match &mut self.function().operations[jump] {
            Operation::Jump(target)
            | Operation::JumpIfFalse(target)
            | Operation::JumpIfFalseKeep(target)
            | Operation::JumpIfTrueKeep(target)
            | Operation::JumpUnlessNull { target, .. }
            | Operation::JumpUnlessFinal { target, .. }
            | Operation::Next { exit: target, .. } => target,
            _ => return,
        };
        *target = here;
    }

    /// Compiles a body as a separate code. Its first locals are the parameters.
    fn code(&mut self, parameters: &[Arc<str>], body: impl FnOnce(&mut Compiler)) -> u32 {
        let at = self.reserve_code();
        self.fill_code(at, parameters, FunctionState::default(), body);
        at
    }

    fn reserve_code(&mut self) -> u32 {
        self.codes.push(Code::default());
        u32::try_from(self.codes.len() - 1).unwrap_or(u32::MAX)
    }

    fn fill_code(
        &mut self,
        at: u32,
        parameters: &[Arc<str>],
        mut state: FunctionState,
        body: impl FnOnce(&mut Compiler),
    ) -> FunctionState {
        for parameter in parameters {
            state.bind(parameter);
        }
        self.functions.push(state);
        body(self);
        self.emit(Operation::Return);
        let mut state = self.functions.pop().unwrap_or_default();
        if let Some(code) = self.codes.get_mut(at as usize) {
            code.operations = std::mem::take(&mut state.operations);
            code.locations = std::mem::take(&mut state.locations);
            code.parameters = parameters.to_vec();
            code.locals = state.locals;
        }
        state
    }

    // --- tables --------------------------------------------------------------------------------------------------------

    fn constant(&mut self, value: Value) -> u32 {
        self.constants.push(value);
        u32::try_from(self.constants.len() - 1).unwrap_or(u32::MAX)
    }

    fn text_constant(&mut self, text: &Arc<str>) -> u32 {
        if let Some(at) = self.texts.get(text) {
            return *at;
        }
        let at = self.constant(Value::String(Arc::clone(text)));
        self.texts.insert(Arc::clone(text), at);
        at
    }

    fn shape(&mut self, shape: Vec<Option<Arc<str>>>) -> u32 {
        let at = self.shapes.iter().position(|known| *known == shape).unwrap_or_else(|| {
            self.shapes.push(shape);
            self.shapes.len() - 1
        });
        u32::try_from(at).unwrap_or(u32::MAX)
    }

    /// Returns the next number of a table with `count` entries. Reports an error if the table is full.
    fn place(&mut self, count: usize, what: &str) -> u16 {
        if count >= PLACES_MAX {
            let location = self.location;
            self.error(location, format!("the ruleset has more than {PLACES_MAX} {what}"));
        }
        u16::try_from(count).unwrap_or(u16::MAX)
    }
}
