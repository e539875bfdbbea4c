//! The code of the machine, which works on a stack of values.

use crate::Location;
use crate::host::CallKind;
use crate::library::Operator;
use crate::syntax::ast::LogLevel;
use std::sync::Arc;

/// The code of a function, an action, a rule's body or a condition.
#[derive(Debug, Default)]
pub(crate) struct Code {
    pub(crate) operations: Vec<Operation>,
    /// The place in the source for each operation.
    pub(crate) locations: Vec<Location>,
    /// The names of the first locals.
    pub(crate) parameters: Vec<Arc<str>>,
    pub(crate) locals: u16,
    pub(crate) is_action: bool,
}

/// An operation. It takes its operands from the stack and leaves its results there.
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
    /// Jumps and keeps the value if it is false. Otherwise drops it and goes on.
    JumpIfFalseKeep(u32),
    JumpIfTrueKeep(u32),
    JumpUnlessNull {
        local: u16,
        target: u32,
    },
    Array(u32),
    /// Makes a map from the values on the stack. Its keys are this shape.
    Map(u32),
    /// Joins this many values to a text.
    Text(u32),
    /// Makes the single closure of a group, on the stack.
    Closure(u32),
    /// Makes the closures of a group, in their locals.
    Closures(u32),
    Not,
    Binary(Binary),
    /// `a{path}` or `a[index]`.
    Member {
        is_index: bool,
    },
    /// Applies an operator of the library to this many arguments.
    Apply {
        operator: Operator,
        count: u8,
    },
    /// Calls the function below its arguments. Their names are this shape.
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
    /// Pushes an attribute of the event. This constant is its name.
    Attribute(u32),
    Return,
    /// Begins a loop over a collection. The loop uses three locals from this one on.
    Iterate(u16),
    /// Takes the next key and value of a loop, or jumps out of it.
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
    /// Pushes a random integer below this one.
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
    /// Ends the rule and skips the ruleset's other rules for this event.
    Last,
    /// Tells the host whether the rule has fired, according to this local.
    Fired(u16),
}

/// A binary operator.
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
    /// `<=>`: -1, 0 or 1. Numbers compare by value.
    Order,
    /// `cmp`: like `<=>`, with the operands as texts.
    TextOrder,
    /// `><`: true if the collection on the left contains the right operand.
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
