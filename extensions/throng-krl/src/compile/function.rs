//! Functions, actions and blocks of declarations.

use super::mentions::mentions;
use super::scope::{FunctionState, Group};
use super::{Compiler, Operation};
use crate::program::ClosureGroup;
use crate::syntax::ast::{Declaration, Expression, ExpressionKind, Parameter};
use std::collections::HashSet;
use std::sync::Arc;

pub(super) fn is_function(expression: &Expression) -> bool {
    matches!(expression.kind, ExpressionKind::Function(_) | ExpressionKind::Action(_))
}

impl Compiler {
    /// Emits code for declarations. Each of them binds a name.
    ///
    /// Functions may call functions declared below them. A function is made just before the first value that mentions it, together with the functions
    /// that it mentions. So its captures exist by then. A value sees only the declarations above it: `x = x()` calls the `x` outside the block.
    pub(super) fn declarations(&mut self, declarations: &[Declaration]) {
        self.report_duplicates(declarations);
        let mut functions: Vec<&Declaration> = declarations.iter().filter(|it| is_function(&it.value)).collect();
        for declaration in declarations
            .iter()
            .filter(|declaration| !is_function(&declaration.value))
        {
            let (needed, left) = needed_by(&declaration.value, functions);
            functions = left;
            self.closures(&needed);
            self.expression(&declaration.value);
            let slot = self.function().bind(&declaration.name.text);
            self.emit(Operation::SetLocal(slot));
        }
        self.closures(&functions);
    }

    pub(super) fn report_duplicates(&mut self, declarations: &[Declaration]) {
        let mut names = HashSet::new();
        for declaration in declarations {
            if !names.insert(&declaration.name.text) {
                self.error(
                    declaration.name.location,
                    format!("Duplicate declaration: {}", declaration.name.text),
                );
            }
        }
    }

    /// Emits closures that are made together, and binds their names.
    fn closures(&mut self, declarations: &[&Declaration]) {
        if declarations.is_empty() {
            return;
        }
        let names: Vec<Arc<str>> = declarations
            .iter()
            .map(|declaration| Arc::clone(&declaration.name.text))
            .collect();
        let codes: Vec<u32> = names.iter().map(|_| self.reserve_code()).collect();
        let mut group = Group {
            members: names.iter().cloned().zip(codes.iter().copied()).collect(),
            captures: Vec::new(),
        };
        for (declaration, code) in declarations.iter().zip(&codes) {
            group = self.function_code(*code, &declaration.value, group);
        }
        let members = names
            .iter()
            .zip(&codes)
            .map(|(name, code)| (*code, self.function().bind(name)))
            .collect();
        let at = self.closure_group(group, members);
        self.emit(Operation::Closures(at));
    }

    /// Emits a closure without a name.
    pub(super) fn closure(&mut self, expression: &Expression) {
        let code = self.reserve_code();
        let group = self.function_code(code, expression, Group::default());
        self.location = expression.location;
        let at = self.closure_group(group, vec![(code, 0)]);
        self.emit(Operation::Closure(at));
    }

    fn closure_group(&mut self, group: Group, members: Vec<(u32, u16)>) -> u32 {
        self.groups.push(ClosureGroup {
            captures: group.captures.into_iter().map(|(_, source)| source).collect(),
            members,
        });
        u32::try_from(self.groups.len() - 1).unwrap_or(u32::MAX)
    }

    /// Compiles a function or an action as a member of a group. Returns the group with the captures added.
    pub(super) fn function_code(&mut self, code: u32, expression: &Expression, group: Group) -> Group {
        let (parameters, is_action) = match &expression.kind {
            ExpressionKind::Function(lambda) => (&lambda.parameters, false),
            ExpressionKind::Action(definition) => (&definition.parameters, true),
            _ => return group,
        };
        let names = self.check_parameters(parameters);
        let state = FunctionState {
            group,
            ..FunctionState::default()
        };
        let loops = std::mem::take(&mut self.loops);
        let state = self.fill_code(code, &names, state, |compiler| {
            compiler.defaults(parameters);
            match &expression.kind {
                ExpressionKind::Function(lambda) => {
                    compiler.declarations(&lambda.declarations);
                    compiler.expression(&lambda.result);
                }
                ExpressionKind::Action(definition) => {
                    compiler.declarations(&definition.declarations);
                    compiler.action_block(&definition.block);
                    match &definition.result {
                        Some(result) => compiler.expression(result),
                        None => compiler.emit(Operation::Null),
                    }
                }
                _ => {}
            }
        });
        self.loops = loops;
        if let Some(code) = self.codes.get_mut(code as usize) {
            code.is_action = is_action;
        }
        state.group
    }

    fn check_parameters(&mut self, parameters: &[Parameter]) -> Vec<Arc<str>> {
        let mut names = Vec::with_capacity(parameters.len());
        let mut has_default = false;
        for parameter in parameters {
            let name = &parameter.name;
            if names.contains(&name.text) {
                self.error(name.location, format!("Duplicate parameter: {}", name.text));
            }
            if has_default && parameter.default.is_none() {
                self.error(
                    name.location,
                    "Cannot have a non-default parameter after a defaulted one",
                );
            }
            has_default |= parameter.default.is_some();
            names.push(Arc::clone(&name.text));
        }
        names
    }

    fn defaults(&mut self, parameters: &[Parameter]) {
        for (place, parameter) in parameters.iter().enumerate() {
            let Some(default) = &parameter.default else { continue };
            let local = u16::try_from(place).unwrap_or(u16::MAX);
            let given = self.emit_jump(Operation::JumpUnlessNull { local, target: 0 });
            self.expression(default);
            self.emit(Operation::SetLocal(local));
            self.land(given);
        }
    }
}

/// Splits functions in two: those that an expression mentions, directly or through others, and the rest.
fn needed_by<'a>(
    expression: &Expression,
    functions: Vec<&'a Declaration>,
) -> (Vec<&'a Declaration>, Vec<&'a Declaration>) {
    if functions.is_empty() {
        return (Vec::new(), Vec::new());
    }
    let mut names = HashSet::new();
    mentions(expression, &mut names);
    let mut needed: Vec<&Declaration> = Vec::new();
    let mut left = functions;
    loop {
        let (found, rest): (Vec<_>, Vec<_>) = left
            .into_iter()
            .partition(|function| names.contains(&*function.name.text));
        left = rest;
        if found.is_empty() {
            return (needed, left);
        }
        for function in &found {
            mentions(&function.value, &mut names);
        }
        needed.extend(found);
    }
}
