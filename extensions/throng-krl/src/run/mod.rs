//! The machine. It runs compiled rules and functions within the bounds of a transaction.

mod budget;
mod call;
mod effects;
mod events;
mod execute;
mod modules;
mod operate;
mod vm;

pub use budget::Limits;
pub use vm::Vm;

pub(crate) use budget::Budget;
pub(crate) use effects::checked_path;
pub(crate) use operate::{order, text_order};

use crate::{Error, Event, Host, Interrupt, Program, Query, Value};
use std::fmt;
use std::sync::Arc;

/// The deepest nesting of operators that call functions with operators in them. Each level takes stack of the thread.
const OPERATOR_DEPTH_MAX: u32 = 60;

/// A function or an action as a value.
#[derive(Clone)]
pub struct Function(pub(crate) Callable);

#[derive(Clone)]
pub(crate) enum Callable {
    Closure(Arc<Closure>),
    /// An operator of the standard library.
    Operator(crate::library::Operator),
}

/// A code with its captured values.
pub(crate) struct Closure {
    /// The program instance of this transaction that it belongs to.
    pub(crate) instance: u32,
    pub(crate) code: u32,
    pub(crate) is_action: bool,
    pub(crate) captures: Arc<[Value]>,
}

impl Function {
    pub(crate) fn type_name(&self) -> &'static str {
        match &self.0 {
            Callable::Closure(closure) if closure.is_action => "Action",
            Callable::Closure(_) => "Function",
            Callable::Operator(operator) => operator.type_name(),
        }
    }

    /// True if both are the same function. Code is not compared.
    pub(crate) fn is_same(&self, other: &Function) -> bool {
        match (&self.0, &other.0) {
            (Callable::Closure(left), Callable::Closure(right)) => {
                left.instance == right.instance
                    && left.code == right.code
                    && Arc::ptr_eq(&left.captures, &right.captures)
            }
            (Callable::Operator(left), Callable::Operator(right)) => left == right,
            _ => false,
        }
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "[{}]", self.type_name())
    }
}

/// A program within one transaction. Each global is computed at most once in it.
pub(crate) struct Instance {
    program: Arc<Program>,
    globals: Vec<GlobalState>,
    uses: Vec<Option<UsedModule>>,
    /// The configuration, if it is used as a module; null for an installed ruleset.
    configuration: Value,
    /// The instance that uses this one as a module.
    user: Option<u32>,
}

#[derive(Clone)]
enum GlobalState {
    Unset,
    Computing,
    Set(Value),
}

#[derive(Clone)]
enum UsedModule {
    Program(u32),
    Host { configuration: Value },
}

/// A running code.
struct Frame {
    instance: u32,
    code: u32,
    next: usize,
    /// The place on the stack of its first local.
    base: usize,
    /// The height to which the stack is cut when it returns.
    floor: usize,
    captures: Arc<[Value]>,
}

/// The run of one program for one event or query.
pub(crate) struct Run<'a> {
    vm: &'a mut Vm,
    host: &'a mut dyn Host,
    frames: Vec<Frame>,
    /// The instance of the program itself, not of a module.
    root: u32,
    event: Option<&'a Event>,
    query: Option<&'a Query>,
    rule: Option<Arc<str>>,
    /// True if the ruleset's remaining rules are skipped.
    is_last: bool,
    /// The current nesting of operators that call functions with operators in them.
    operator_depth: u32,
}

impl<'a> Run<'a> {
    fn new(vm: &'a mut Vm, program: &Arc<Program>, host: &'a mut dyn Host) -> Run<'a> {
        let known = vm
            .instances
            .iter()
            .position(|it| it.user.is_none() && Arc::ptr_eq(&it.program, program));
        let root = known.unwrap_or_else(|| {
            vm.instances.push(Instance::new(Arc::clone(program), Value::Null, None));
            vm.instances.len() - 1
        });
        vm.stack.clear();
        Run {
            vm,
            host,
            frames: Vec::new(),
            root: u32::try_from(root).unwrap_or(u32::MAX),
            event: None,
            query: None,
            rule: None,
            is_last: false,
            operator_depth: 0,
        }
    }

    /// Adds the ruleset and the rule to a failure.
    fn end<T>(self, done: Result<T, Interrupt>) -> Result<T, Interrupt> {
        done.map_err(|interrupt| match interrupt {
            Interrupt::Error(mut error) => {
                let root = self.vm.instances.get(self.root as usize);
                error.rid = error
                    .rid
                    .or_else(|| root.map(|instance| Arc::clone(&instance.program.rid)));
                error.rule = error.rule.or(self.rule);
                Interrupt::Error(error)
            }
            wait => wait,
        })
    }

    pub(crate) fn budget(&mut self) -> &mut Budget {
        &mut self.vm.budget
    }

    pub(crate) fn random(&mut self) -> &mut fastrand::Rng {
        &mut self.vm.random
    }

    pub(crate) fn time_ms(&self) -> i64 {
        self.vm.turn.time_ms
    }

    /// Counts a new value, and refuses one that is too large or nests too deeply.
    pub(crate) fn made(&mut self, value: Value) -> Result<Value, Error> {
        let bytes = match &value {
            Value::String(text) => 24 + text.len() as u64,
            Value::Array(array) => 48 + 24 * array.len() as u64,
            Value::Map(map) => 96 + 80 * map.len() as u64,
            _ => return Ok(value),
        };
        // The steps for making the value and freeing it again.
        self.vm.budget.step(3 + bytes / 256)?;
        let limits = self.vm.budget.limits();
        if value.depth() > crate::NESTING_MAX {
            return Err(Error::limit(format!(
                "a value nests more than {} deep",
                crate::NESTING_MAX
            )));
        }
        if value.bytes() > limits.value_bytes {
            return Err(Error::limit(format!(
                "a value of more than {} bytes",
                limits.value_bytes
            )));
        }
        self.vm.budget.allocate(bytes)?;
        Ok(value)
    }

    /// Returns the ruleset whose code runs. It is the module's while a function of a module runs.
    fn rid(&self) -> &Arc<str> {
        let instance = self.frames.last().map_or(self.root, |frame| frame.instance);
        &self.vm.instances[instance as usize].program.rid
    }

    /// True while code of a module runs. Such code has no access to the event.
    fn is_module(&self) -> bool {
        self.frames.last().is_some_and(|frame| frame.instance != self.root)
    }
}

impl Instance {
    fn new(program: Arc<Program>, configuration: Value, user: Option<u32>) -> Instance {
        Instance {
            globals: vec![GlobalState::Unset; program.globals.len()],
            uses: vec![None; program.uses.len()],
            program,
            configuration,
            user,
        }
    }
}
