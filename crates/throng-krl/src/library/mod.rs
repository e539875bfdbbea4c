//! The standard library.

/// An operator, by its place in the table of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operator(pub(crate) u8);

impl Operator {
    pub(crate) fn type_name(self) -> &'static str {
        "Function"
    }
}

/// A function of a module of this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModuleFunction(pub(crate) u8);
