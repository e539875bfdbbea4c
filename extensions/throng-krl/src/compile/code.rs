//! The code that a machine executes, for a stack of values.

use crate::Location;
use crate::host::CallKind;
use crate::library::Operator;
use crate::syntax::ast::LogLevel;
use std::sync::Arc;

/// The code of a function, an action, a rule's body or a condition.
#[derive(Debug, Default)]
pub(crate) struct Code {
    pub(crate) operations: Vec<Operation>,
    /// The place in the source of each operation.
    pub(crate) locations: Vec<Location>,
    /// The names of the first locals.
    pub(crate) parameters: Vec<Arc<str>>,
    pub(crate) locals: u16,
    pub(crate) is_action: bool,
}

/// A step. An operation takes its operands from the stack, and leaves its results there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Operation {
    Null,
    Constant(u32),
    Local(u16),
    SetLocal(u16),
    Capture(u16),
    /// A closure of the same group.
    Sibling(u32),
    Global(u16),
    Operator(Operator),
    Pop,
    Jump(u32),
    JumpIfFalse(u32),
    /// Keeps the value where it jumps, takes it where not.
    JumpIfFalseKeep(u32),
    JumpIfTrueKeep(u32),
    JumpUnlessNull {
        local: u16,
        target: u32,
    },
    Array(u32),
    /// The values of a map, whose keys are a shape.
    Map(u32),
    /// The text of so many values.
    Text(u32),
    /// The one closure of a group.
    Closure(u32),
    /// The closures of a group, into their locals.
    Closures(u32),
    Not,
    Binary(Binary),
    /// `a{path}` or `a[index]`.
    Member {
        is_index: bool,
    },
    /// An operator of the library with so many arguments.
    Apply {
        operator: Operator,
        count: u8,
    },
    /// A function below its arguments, whose names are a shape.
    Call(u32),
    Act(u32),
    Module {
        reference: u32,
        shape: u32,
        kind: CallKind,
    },
    SendDirective(u32),
    EntityGet {
        name: u32,
        has_path: bool,
    },
    EntityPut {
        name: u32,
        has_path: bool,
    },
    EntityRemove {
        name: u32,
        has_path: bool,
    },
    /// The value of an attribute of the event, by the constant that names it.
    Attribute(u32),
    Return,
    /// Begins a loop over a collection, in three locals from this one on.
    Iterate(u16),
    /// The next value and key of a loop, or out of it.
    Next {
        slot: u16,
        value: Option<u16>,
        key: Option<u16>,
        exit: u32,
    },
    JumpUnlessFinal {
        slot: u16,
        target: u32,
    },
    /// A whole number below this one.
    Sample(u32),
    Raise {
        whole: bool,
        has_rid: bool,
        has_attributes: bool,
    },
    Schedule {
        whole: bool,
        repeats: bool,
        has_attributes: bool,
    },
    Log(LogLevel),
    Error(LogLevel),
    /// Ends the rule, and the ruleset's other rules for this event.
    Last,
    /// Tells the host whether the rule has fired, as this local says.
    Fired(u16),
}

/// An operator between two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// `<=>`: -1, 0 or 1, numbers by their value.
    Order,
    /// `cmp`: the same of the operands as texts.
    TextOrder,
    /// `><`: the collection on the left holds the right one.
    Contains,
    Like,
}

impl Binary {
    pub(crate) fn of(operator: &str) -> Option<Binary> {
        Some(match operator {
            "+" => Binary::Add,
            "-" => Binary::Subtract,
            "*" => Binary::Multiply,
            "/" => Binary::Divide,
            "%" => Binary::Modulo,
            "==" => Binary::Equal,
            "!=" => Binary::NotEqual,
            "<" => Binary::Less,
            "<=" => Binary::LessOrEqual,
            ">" => Binary::Greater,
            ">=" => Binary::GreaterOrEqual,
            "<=>" => Binary::Order,
            "cmp" => Binary::TextOrder,
            "><" => Binary::Contains,
            "like" => Binary::Like,
            _ => return None,
        })
    }
}
