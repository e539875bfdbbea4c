//! Names to places: the functions that are being compiled, from the outermost in.

use super::Operation;
use crate::Location;
use crate::program::Source;
use std::sync::Arc;

/// A function, an action, a rule's body or a condition while it is compiled.
#[derive(Debug, Default)]
pub(super) struct FunctionState {
    pub(super) operations: Vec<Operation>,
    pub(super) locations: Vec<Location>,
    /// Names that are seen, from the outermost block in.
    pub(super) blocks: Vec<Block>,
    pub(super) locals: u16,
    pub(super) group: Group,
}

/// Names of one block of declarations.
#[derive(Debug, Default)]
pub(super) struct Block {
    pub(super) bound: Vec<(Arc<str>, u16)>,
    /// Declared further down.
    pub(super) pending: Vec<Arc<str>>,
}

/// The closures that are made together with this one, and what they take from around them. Taken from one function of the group to the next.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) members: Vec<(Arc<str>, u32)>,
    pub(super) captures: Vec<(Arc<str>, Source)>,
}

/// Where a name leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Here(Source),
    /// Declared further down in the block.
    TooEarly,
    Nowhere,
}

impl FunctionState {
    pub(super) fn bind(&mut self, name: &Arc<str>) -> u16 {
        let slot = self.reserve();
        if let Some(block) = self.blocks.last_mut() {
            block.pending.retain(|pending| pending != name);
            block.bound.push((Arc::clone(name), slot));
        }
        slot
    }

    /// A local without a name. A function has at most 65,535: its source would be longer than a source may be.
    pub(super) fn reserve(&mut self) -> u16 {
        let slot = self.locals;
        self.locals = self.locals.saturating_add(1);
        slot
    }
}

/// Finds a name in the innermost of these functions, or through what it captures in those around it.
pub(super) fn find(functions: &mut [FunctionState], name: &str) -> Found {
    let Some((function, around)) = functions.split_last_mut() else {
        return Found::Nowhere;
    };
    for block in function.blocks.iter().rev() {
        if let Some((_, slot)) = block.bound.iter().rev().find(|(bound, _)| &**bound == name) {
            return Found::Here(Source::Local(*slot));
        }
        if block.pending.iter().any(|pending| &**pending == name) {
            return Found::TooEarly;
        }
    }
    if let Some((_, code)) = function.group.members.iter().find(|(member, _)| &**member == name) {
        return Found::Here(Source::Sibling(*code));
    }
    let place = |place: usize| Found::Here(Source::Capture(u16::try_from(place).unwrap_or(u16::MAX)));
    if let Some(at) = function
        .group
        .captures
        .iter()
        .position(|(captured, _)| &**captured == name)
    {
        return place(at);
    }
    match find(around, name) {
        Found::Here(source) => {
            function.group.captures.push((Arc::from(name), source));
            place(function.group.captures.len() - 1)
        }
        nowhere => nowhere,
    }
}
