//! Running programs.

mod limits;
mod vm;

pub use limits::Limits;
pub use vm::Vm;

pub(crate) use limits::Budget;

use crate::Value;
use std::fmt;
use std::sync::Arc;

/// A function or an action as a value.
#[derive(Clone)]
pub struct Function(pub(crate) Callable);

#[derive(Clone)]
pub(crate) enum Callable {
    Closure(Arc<Closure>),
    /// An operator of the standard library.
    Operator(crate::library::Operator),
}

/// Code, and what it took from around it.
pub(crate) struct Closure {
    /// The instance of the program it belongs to, in this transaction.
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

    /// Whether two are one: what they do is not compared.
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
