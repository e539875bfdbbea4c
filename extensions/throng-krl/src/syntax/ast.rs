//! The syntax tree that the parser makes of a source. The compiler and the formatter read it.

use super::Location;
use crate::value::Regex;
use std::sync::Arc;

/// A name and its place in the source.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) text: Arc<str>,
    pub(crate) location: Location,
}

/// A ruleset as written in its source.
#[derive(Debug)]
pub struct Ruleset {
    pub(crate) rid: Name,
    pub(crate) meta: Vec<MetaProperty>,
    pub(crate) global: Vec<Declaration>,
    pub(crate) rules: Vec<Rule>,
}

impl Ruleset {
    /// Returns the ruleset's id, with which the source begins.
    #[must_use]
    pub fn rid(&self) -> &str {
        &self.rid.text
    }
}

#[derive(Debug)]
pub(crate) struct MetaProperty {
    pub(crate) location: Location,
    pub(crate) kind: MetaKind,
}

#[derive(Debug)]
pub(crate) enum MetaKind {
    /// `version`, `name`, `description`, `author`.
    Text {
        key: &'static str,
        value: Expression,
    },
    /// `logging on`, `errors to`, `key`: parsed and ignored, because the engine has other ways for them.
    Ignored {
        key: Arc<str>,
    },
    Use(Use),
    Configure(Vec<Declaration>),
    Provides(Vec<Name>),
    Shares(Vec<Name>),
}

#[derive(Debug)]
pub(crate) struct Use {
    pub(crate) rid: Name,
    pub(crate) alias: Option<Name>,
    pub(crate) with: Vec<Declaration>,
}

#[derive(Debug)]
pub(crate) struct Declaration {
    pub(crate) name: Name,
    pub(crate) value: Expression,
}

#[derive(Debug)]
pub(crate) struct Expression {
    pub(crate) location: Location,
    /// The nesting depth of the expression, at least 1.
    pub(crate) height: u16,
    pub(crate) kind: ExpressionKind,
}

#[derive(Debug)]
pub(crate) enum ExpressionKind {
    Null,
    Boolean(bool),
    Number(f64),
    String(Arc<str>),
    Regex(Arc<Regex>),
    /// The texts of a chevron and the expressions between them, in order.
    Chevron(Vec<Expression>),
    Array(Vec<Expression>),
    Map(Vec<(Name, Expression)>),
    Identifier(Arc<str>),
    /// A member of a module, `http:get`.
    Domain {
        domain: Arc<str>,
        name: Arc<str>,
    },
    Function(Box<Lambda>),
    Action(Box<ActionDefinition>),
    Unary {
        operator: UnaryOperator,
        operand: Box<Expression>,
    },
    Binary {
        operator: &'static str,
        left: Box<Expression>,
        right: Box<Expression>,
    },
    Conditional(Box<Conditional>),
    /// `a{path}` or `a[index]`.
    Member {
        object: Box<Expression>,
        path: Box<Expression>,
        is_index: bool,
    },
    /// `a.name` or `a.domain:name`.
    Dot {
        object: Box<Expression>,
        property: Box<Expression>,
    },
    Call {
        callee: Box<Expression>,
        arguments: Vec<Argument>,
    },
}

#[derive(Debug)]
pub(crate) struct Conditional {
    pub(crate) test: Expression,
    pub(crate) consequent: Expression,
    pub(crate) alternate: Expression,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnaryOperator {
    Plus,
    Minus,
    Not,
}

#[derive(Debug)]
pub(crate) struct Argument {
    pub(crate) name: Option<Name>,
    pub(crate) value: Expression,
}

#[derive(Debug)]
pub(crate) struct Parameter {
    pub(crate) name: Name,
    pub(crate) default: Option<Expression>,
}

#[derive(Debug)]
pub(crate) struct Lambda {
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) declarations: Vec<Declaration>,
    pub(crate) result: Expression,
}

#[derive(Debug)]
pub(crate) struct ActionDefinition {
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) declarations: Vec<Declaration>,
    pub(crate) block: ActionBlock,
    pub(crate) result: Option<Expression>,
}

#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) name: Name,
    pub(crate) is_active: bool,
    pub(crate) select: Option<Select>,
    pub(crate) foreach: Vec<Foreach>,
    pub(crate) prelude: Vec<Declaration>,
    pub(crate) block: Option<ActionBlock>,
    pub(crate) postlude: Option<Postlude>,
}

#[derive(Debug)]
pub(crate) enum Select {
    When {
        event: EventExpression,
        within: Option<Within>,
    },
    Where(Expression),
}

#[derive(Debug)]
pub(crate) struct Within {
    pub(crate) amount: Expression,
    pub(crate) period_ms: f64,
}

#[derive(Debug)]
pub(crate) struct EventExpression {
    pub(crate) location: Location,
    pub(crate) height: u16,
    pub(crate) kind: EventKind,
}

#[derive(Debug)]
pub(crate) enum EventKind {
    Event(Box<EventPattern>),
    Operator {
        operator: EventOperator,
        operands: Vec<EventExpression>,
    },
    /// `any n (…)`.
    Any {
        count: usize,
        operands: Vec<EventExpression>,
    },
    /// `count n (…)` and `repeat n (…)`.
    Group {
        repeats: bool,
        count: usize,
        operand: Box<EventExpression>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventOperator {
    Or,
    And,
    Before,
    Then,
    After,
    Between,
    NotBetween,
}

#[derive(Debug)]
pub(crate) struct EventPattern {
    pub(crate) domain: Name,
    pub(crate) name: Name,
    pub(crate) attributes: Vec<(Name, Arc<Regex>)>,
    pub(crate) setting: Vec<Name>,
    pub(crate) condition: Option<Expression>,
    pub(crate) aggregator: Option<Aggregator>,
    pub(crate) deprecation: Option<&'static str>,
}

#[derive(Debug)]
pub(crate) struct Aggregator {
    pub(crate) operator: AggregateOperator,
    pub(crate) names: Vec<Name>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AggregateOperator {
    Max,
    Min,
    Sum,
    Avg,
    Push,
}

#[derive(Debug)]
pub(crate) struct Foreach {
    pub(crate) collection: Expression,
    pub(crate) setting: Vec<Name>,
}

#[derive(Debug)]
pub(crate) struct ActionBlock {
    pub(crate) condition: Option<Expression>,
    pub(crate) kind: BlockKind,
    pub(crate) actions: Vec<Action>,
}

#[derive(Debug)]
pub(crate) enum BlockKind {
    Every,
    Sample,
    Choose(Expression),
}

#[derive(Debug)]
pub(crate) struct Action {
    pub(crate) location: Location,
    pub(crate) label: Option<Name>,
    /// An identifier or `domain:name`.
    pub(crate) callee: Expression,
    pub(crate) arguments: Vec<Argument>,
    pub(crate) setting: Vec<Name>,
}

#[derive(Debug, Default)]
pub(crate) struct Postlude {
    pub(crate) fired: Vec<Statement>,
    pub(crate) not_fired: Vec<Statement>,
    pub(crate) always: Vec<Statement>,
}

#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) location: Location,
    pub(crate) kind: StatementKind,
    pub(crate) guard: Option<Guard>,
}

#[derive(Debug)]
pub(crate) enum Guard {
    OnFinal,
    If(Expression),
}

#[derive(Debug)]
pub(crate) enum StatementKind {
    Declare(Declaration),
    Assign {
        variable: EntityVariable,
        value: Expression,
    },
    Clear(EntityVariable),
    Raise(RaiseStatement),
    Schedule(ScheduleStatement),
    Log {
        level: LogLevel,
        value: Expression,
    },
    Error {
        level: LogLevel,
        value: Expression,
    },
    Last,
}

#[derive(Debug)]
pub(crate) struct EntityVariable {
    pub(crate) domain: Name,
    pub(crate) name: Arc<str>,
    pub(crate) path: Option<Expression>,
}

/// The type of a raised or scheduled event.
#[derive(Debug)]
pub(crate) enum EventType {
    /// `raise domain event name`.
    Named { domain: Arc<str>, name: Expression },
    /// `raise event "domain:name"`.
    Whole(Expression),
}

#[derive(Debug)]
pub(crate) struct RaiseStatement {
    pub(crate) event: EventType,
    pub(crate) for_rid: Option<Expression>,
    pub(crate) attributes: Option<Expression>,
}

#[derive(Debug)]
pub(crate) struct ScheduleStatement {
    pub(crate) event: EventType,
    pub(crate) repeats: bool,
    pub(crate) time: Expression,
    pub(crate) attributes: Option<Expression>,
    pub(crate) setting: Option<Name>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
}

impl LogLevel {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
        }
    }
}
