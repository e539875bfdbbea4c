//! Resolution of names to places, through the functions being compiled.

use super::Operation;
use crate::Location;
use crate::program::Source;
use std::sync::Arc;

/// The state of the function, action, rule body or condition being compiled.
#[derive(Debug, Default)]
pub(super) struct FunctionState {
    pub(super) operations: Vec<Operation>,
    pub(super) locations: Vec<Location>,
    /// The visible names and their locals. A later entry shadows an earlier one of the same name.
    pub(super) bound: Vec<(Arc<str>, u16)>,
    pub(super) locals: u16,
    pub(super) group: Group,
}

/// The closures that are made together with this one, and their captures. It is passed from one function of the group to the next.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) members: Vec<(Arc<str>, u32)>,
    pub(super) captures: Vec<(Arc<str>, Source)>,
}

impl FunctionState {
    pub(super) fn bind(&mut self, name: &Arc<str>) -> u16 {
        let slot = self.reserve();
        self.bound.push((Arc::clone(name), slot));
        slot
    }

    /// Reserves a local without a name. 65,535 are enough: a source with more would be too long.
    pub(super) fn reserve(&mut self) -> u16 {
        let slot = self.locals;
        self.locals = self.locals.saturating_add(1);
        slot
    }
}

/// Resolves a name in the innermost function. A name of an outer function becomes a capture.
pub(super) fn find(functions: &mut [FunctionState], name: &str) -> Option<Source> {
    let (function, around) = functions.split_last_mut()?;
    if let Some((_, slot)) = function.bound.iter().rev().find(|(bound, _)| &**bound == name) {
        return Some(Source::Local(*slot));
    }
    if let Some((_, code)) = function.group.members.iter().find(|(member, _)| &**member == name) {
        return Some(Source::Sibling(*code));
    }
    let place = |place: usize| Source::Capture(u16::try_from(place).unwrap_or(u16::MAX));
    if let Some(at) = function
        .group
        .captures
        .iter()
        .position(|(captured, _)| &**captured == name)
    {
        return Some(place(at));
    }
    let source = find(around, name)?;
    function.group.captures.push((Arc::from(name), source));
    Some(place(function.group.captures.len() - 1))
}
