//! The names that an expression mentions, including those in its functions.

use crate::syntax::ast::{ActionBlock, Argument, BlockKind, Declaration, Expression, ExpressionKind, Parameter};
use std::collections::HashSet;

pub(super) fn mentions<'a>(expression: &'a Expression, names: &mut HashSet<&'a str>) {
    match &expression.kind {
        ExpressionKind::Null
        | ExpressionKind::Boolean(_)
        | ExpressionKind::Number(_)
        | ExpressionKind::String(_)
        | ExpressionKind::Regex(_)
        | ExpressionKind::Domain { .. } => {}
        ExpressionKind::Identifier(name) => {
            names.insert(name);
        }
        ExpressionKind::Chevron(parts) | ExpressionKind::Array(parts) => all(parts, names),
        ExpressionKind::Map(entries) => all(entries.iter().map(|(_, value)| value), names),
        ExpressionKind::Function(lambda) => {
            in_function(&lambda.parameters, &lambda.declarations, names);
            mentions(&lambda.result, names);
        }
        ExpressionKind::Action(definition) => {
            in_function(&definition.parameters, &definition.declarations, names);
            in_block(&definition.block, names);
            all(&definition.result, names);
        }
        ExpressionKind::Unary { operand, .. } => mentions(operand, names),
        ExpressionKind::Binary { left, right, .. } => all([&**left, right], names),
        ExpressionKind::Conditional(inner) => all([&inner.test, &inner.consequent, &inner.alternate], names),
        ExpressionKind::Member { object, path, .. } => all([&**object, path], names),
        ExpressionKind::Dot { object, property } => all([&**object, property], names),
        ExpressionKind::Call { callee, arguments } => {
            mentions(callee, names);
            in_arguments(arguments, names);
        }
    }
}

fn all<'a>(expressions: impl IntoIterator<Item = &'a Expression>, names: &mut HashSet<&'a str>) {
    for expression in expressions {
        mentions(expression, names);
    }
}

fn in_arguments<'a>(arguments: &'a [Argument], names: &mut HashSet<&'a str>) {
    all(arguments.iter().map(|argument| &argument.value), names);
}

fn in_function<'a>(parameters: &'a [Parameter], declarations: &'a [Declaration], names: &mut HashSet<&'a str>) {
    all(
        parameters.iter().filter_map(|parameter| parameter.default.as_ref()),
        names,
    );
    all(declarations.iter().map(|declaration| &declaration.value), names);
}

fn in_block<'a>(block: &'a ActionBlock, names: &mut HashSet<&'a str>) {
    all(&block.condition, names);
    if let BlockKind::Choose(choice) = &block.kind {
        mentions(choice, names);
    }
    for action in &block.actions {
        mentions(&action.callee, names);
        in_arguments(&action.arguments, names);
    }
}
