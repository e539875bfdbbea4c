use super::{Parser, RESERVED, Role, height_of};
use crate::syntax::ast::{
    ActionDefinition, Argument, Conditional, Expression, ExpressionKind, Lambda, Name, UnaryOperator,
};
use crate::syntax::lexer::TokenKind;
use crate::syntax::{Location, ParseError};
use crate::value::Regex;
use std::sync::Arc;

/// Binary operators and their binding power.
const BINARY: [(&str, u8); 18] = [
    ("||", 20),
    ("&&", 30),
    ("==", 40),
    ("!=", 40),
    ("<", 40),
    ("<=", 40),
    (">", 40),
    (">=", 40),
    ("like", 40),
    ("><", 40),
    ("<=>", 40),
    ("cmp", 40),
    ("+", 50),
    ("-", 50),
    ("*", 60),
    ("/", 60),
    ("%", 60),
    ("=>", 10),
];
const CONDITIONAL: u8 = 10;
const PREFIX: u8 = 70;
/// The binding power of `.`, `{` and `[`, which reach into a value.
pub(super) const MEMBER: u8 = 80;
const CALL: u8 = 90;

impl Parser<'_> {
    /// Parses an expression whose operators bind more strongly than `binding`.
    pub(super) fn expression(&mut self, binding: u8) -> Result<Expression, ParseError> {
        self.enter()?;
        let mut left = self.operand()?;
        while let Some((operator, power)) = self.infix() {
            if power <= binding {
                break;
            }
            left = self.continued(left, operator, power)?;
        }
        self.leave();
        Ok(left)
    }

    /// Returns the operator at this place, if it can follow an operand.
    fn infix(&self) -> Option<(&'static str, u8)> {
        let text = self.text();
        let is_word = matches!(text, "like" | "cmp");
        match self.kind() {
            TokenKind::Raw => {}
            TokenKind::Symbol if is_word => {}
            _ => return None,
        }
        match text {
            "." => Some((".", MEMBER)),
            "{" => Some(("{", MEMBER)),
            "[" => Some(("[", MEMBER)),
            "(" => Some(("(", CALL)),
            _ => BINARY.iter().copied().find(|(operator, _)| *operator == text),
        }
    }

    fn continued(&mut self, left: Expression, operator: &'static str, power: u8) -> Result<Expression, ParseError> {
        let location = left.location;
        let operator_location = self.location();
        if matches!(operator, "." | "{" | "[" | "(") {
            self.roles[self.at] = Role::Suffix;
        }
        self.advance();
        let boxed = Box::new;
        match operator {
            "." => {
                let property = self.property()?;
                let height = self.above(left.height)?;
                let (object, property) = (boxed(left), boxed(property));
                Ok(node(location, height, ExpressionKind::Dot { object, property }))
            }
            "{" | "[" => {
                let path = self.expression(0)?;
                self.expect_raw(if operator == "{" { "}" } else { "]" })?;
                let height = self.above(left.height.max(path.height))?;
                let kind = ExpressionKind::Member {
                    object: boxed(left),
                    path: boxed(path),
                    is_index: operator == "[",
                };
                Ok(node(location, height, kind))
            }
            "(" => {
                let arguments = self.arguments_after_bracket()?;
                let height =
                    self.above(height_of(arguments.iter().map(|argument| &argument.value)).max(left.height))?;
                let callee = boxed(left);
                Ok(node(location, height, ExpressionKind::Call { callee, arguments }))
            }
            "=>" => {
                let consequent = self.expression(CONDITIONAL)?;
                self.expect_raw("|")?;
                let alternate = self.expression(0)?;
                let height = self.above(height_of([&left, &consequent, &alternate]))?;
                let conditional = Conditional {
                    test: left,
                    consequent,
                    alternate,
                };
                Ok(node(
                    location,
                    height,
                    ExpressionKind::Conditional(Box::new(conditional)),
                ))
            }
            _ => {
                let right = self.expression(power)?;
                let height = self.above(left.height.max(right.height))?;
                let kind = ExpressionKind::Binary {
                    operator,
                    left: boxed(left),
                    right: boxed(right),
                };
                Ok(node(operator_location, height, kind))
            }
        }
    }

    /// Parses the part after a point: a name, or `domain:name`.
    fn property(&mut self) -> Result<Expression, ParseError> {
        let name = self.identifier()?;
        self.maybe_domain(name)
    }

    /// Parses an identifier, or `domain:name` if a colon follows.
    pub(super) fn maybe_domain(&mut self, name: Name) -> Result<Expression, ParseError> {
        if !self.is_raw(":") {
            return Ok(node(name.location, 1, ExpressionKind::Identifier(name.text)));
        }
        self.joint()?;
        let second = self.identifier()?;
        let kind = ExpressionKind::Domain {
            domain: name.text,
            name: second.text,
        };
        Ok(node(name.location, 1, kind))
    }

    pub(super) fn arguments(&mut self) -> Result<Vec<Argument>, ParseError> {
        self.expect_bracket("(", Role::Suffix)?;
        self.arguments_after_bracket()
    }

    fn arguments_after_bracket(&mut self) -> Result<Vec<Argument>, ParseError> {
        let mut arguments = Vec::new();
        while !self.is_raw(")") {
            let name = if self.is_declaration() {
                Some(self.identifier()?)
            } else {
                None
            };
            if name.is_some() {
                self.expect_raw("=")?;
            }
            let value = self.expression(0)?;
            arguments.push(Argument { name, value });
            if !self.take_raw(",") {
                break;
            }
        }
        if !self.take_raw(")") {
            return Err(self.expected("expected `,` or `)` after an argument"));
        }
        Ok(arguments)
    }

    // --- operands ----------------------------------------------------------------------------------------------------

    fn operand(&mut self) -> Result<Expression, ParseError> {
        let location = self.location();
        let text = self.text();
        match self.kind() {
            TokenKind::Number => {
                self.advance();
                let number = text.parse().unwrap_or(0.0);
                Ok(node(location, 1, ExpressionKind::Number(number)))
            }
            TokenKind::String => {
                self.advance();
                let text = unescape(&text[1..text.len() - 1], &["\"", "\\"]);
                Ok(node(location, 1, ExpressionKind::String(Arc::from(text))))
            }
            TokenKind::Regex => {
                let regex = self.regex()?;
                Ok(node(location, 1, ExpressionKind::Regex(regex)))
            }
            TokenKind::ChevronOpen => self.chevron(),
            TokenKind::Symbol => self.word_operand(location, text),
            TokenKind::Raw => self.raw_operand(location, text),
            _ => Err(self.expected("expected an expression")),
        }
    }

    pub(super) fn regex(&mut self) -> Result<Arc<Regex>, ParseError> {
        let text = self.text();
        let end = text.rfind('#').unwrap_or(text.len());
        let source = text.get(3..end).unwrap_or_default().replace("\\#", "#");
        let regex = Regex::new(&source, &text[end..]).map_err(|error| ParseError {
            location: self.location(),
            found: String::new(),
            expected: error.to_string(),
        })?;
        self.advance();
        Ok(Arc::new(regex))
    }

    fn word_operand(&mut self, location: Location, text: &str) -> Result<Expression, ParseError> {
        match text {
            "true" | "false" => {
                self.advance();
                Ok(node(location, 1, ExpressionKind::Boolean(text == "true")))
            }
            "null" => {
                self.advance();
                Ok(node(location, 1, ExpressionKind::Null))
            }
            "not" => self.unary(location, UnaryOperator::Not),
            "function" => self.function(location),
            "defaction" => self.action_definition(location),
            _ if RESERVED.contains(&text) => Err(self.expected("expected an expression, and this word is reserved")),
            _ => {
                let name = self.identifier()?;
                self.maybe_domain(name)
            }
        }
    }

    fn raw_operand(&mut self, location: Location, text: &str) -> Result<Expression, ParseError> {
        match text {
            "+" => self.unary(location, UnaryOperator::Plus),
            "-" => self.unary(location, UnaryOperator::Minus),
            "(" => {
                self.advance();
                let inner = self.expression(0)?;
                self.expect_raw(")")?;
                Ok(inner)
            }
            "[" => self.array(location),
            "{" => self.map(location),
            _ => Err(self.expected("expected an expression")),
        }
    }

    fn unary(&mut self, location: Location, operator: UnaryOperator) -> Result<Expression, ParseError> {
        if operator != UnaryOperator::Not {
            self.roles[self.at] = Role::Prefix;
        }
        self.advance();
        let operand = self.expression(PREFIX)?;
        let height = self.above(operand.height)?;
        let operand = Box::new(operand);
        Ok(node(location, height, ExpressionKind::Unary { operator, operand }))
    }

    fn array(&mut self, location: Location) -> Result<Expression, ParseError> {
        self.roles[self.at] = Role::Literal;
        self.advance();
        let mut items = Vec::new();
        while !self.is_raw("]") {
            items.push(self.expression(0)?);
            if !self.take_raw(",") {
                break;
            }
        }
        self.roles[self.at] = Role::Literal;
        if !self.take_raw("]") {
            return Err(self.expected("expected `,` or `]` after an item"));
        }
        let height = self.above(height_of(&items))?;
        Ok(node(location, height, ExpressionKind::Array(items)))
    }

    fn map(&mut self, location: Location) -> Result<Expression, ParseError> {
        self.roles[self.at] = Role::Literal;
        self.advance();
        let mut entries = Vec::new();
        while !self.is_raw("}") {
            if self.kind() != TokenKind::String {
                return Err(self.expected("expected a key of the map, a string, or `}`"));
            }
            let text = self.text();
            let key = Name {
                text: Arc::from(unescape(&text[1..text.len() - 1], &["\"", "\\"])),
                location: self.location(),
            };
            self.advance();
            self.expect_raw(":")?;
            entries.push((key, self.expression(0)?));
            if !self.take_raw(",") {
                break;
            }
        }
        self.roles[self.at] = Role::Literal;
        if !self.take_raw("}") {
            return Err(self.expected("expected `,` or `}` after an entry"));
        }
        let height = self.above(height_of(entries.iter().map(|(_, value)| value)))?;
        Ok(node(location, height, ExpressionKind::Map(entries)))
    }

    fn chevron(&mut self) -> Result<Expression, ParseError> {
        let location = self.location();
        self.advance();
        let mut parts = Vec::new();
        loop {
            let location = self.location();
            match self.kind() {
                TokenKind::ChevronText => {
                    let text = unescape(self.text(), &[">", "#{", "\\"]);
                    parts.push(node(location, 1, ExpressionKind::String(Arc::from(text))));
                    self.advance();
                }
                TokenKind::BeestingOpen => {
                    self.advance();
                    parts.push(self.expression(0)?);
                    if self.kind() != TokenKind::BeestingClose {
                        return Err(self.expected("expected `}` after the expression in the chevron"));
                    }
                    self.advance();
                }
                TokenKind::ChevronClose => break,
                _ => return Err(self.expected("expected `>>`")),
            }
        }
        self.advance();
        let height = self.above(height_of(&parts))?;
        Ok(node(location, height, ExpressionKind::Chevron(parts)))
    }

    fn function(&mut self, location: Location) -> Result<Expression, ParseError> {
        self.advance();
        let parameters = self.parameters()?;
        self.expect_raw("{")?;
        let declarations = self.declarations()?;
        self.take_word("return");
        if self.is_raw("}") {
            return Err(self.expected("expected the expression that the function returns"));
        }
        let result = self.expression(0)?;
        self.take_raw(";");
        if !self.take_raw("}") {
            return Err(self.expected("expected `}` after the expression that the function returns"));
        }
        let defaults = parameters.iter().filter_map(|parameter| parameter.default.as_ref());
        let inner = defaults.chain(declarations.iter().map(|declaration| &declaration.value));
        let height = self.above(height_of(inner.chain([&result])))?;
        let lambda = Lambda {
            parameters,
            declarations,
            result,
        };
        Ok(node(location, height, ExpressionKind::Function(Box::new(lambda))))
    }

    fn action_definition(&mut self, location: Location) -> Result<Expression, ParseError> {
        self.advance();
        let parameters = self.parameters()?;
        self.expect_raw("{")?;
        let declarations = self.declarations()?;
        let block = self.action_block()?;
        if self.is_word("returns") {
            return Err(self.expected("expected `return` or `}`: an action returns one value"));
        }
        let result = self.behind("return", |parser| parser.expression(0))?;
        if self.is_raw(",") {
            return Err(self.expected("expected `}`: an action returns one value"));
        }
        if result.is_some() {
            self.take_raw(";");
        }
        if !self.take_raw("}") {
            return Err(self.expected("expected `return` or `}` after the actions"));
        }
        let defaults = parameters.iter().filter_map(|parameter| parameter.default.as_ref());
        let declared = declarations.iter().map(|declaration| &declaration.value);
        let arguments = block
            .actions
            .iter()
            .flat_map(|action| &action.arguments)
            .map(|argument| &argument.value);
        let inner = defaults
            .chain(declared)
            .chain(arguments)
            .chain(&block.condition)
            .chain(&result);
        let height = self.above(height_of(inner))?;
        let definition = ActionDefinition {
            parameters,
            declarations,
            block,
            result,
        };
        Ok(node(location, height, ExpressionKind::Action(Box::new(definition))))
    }
}

fn node(location: Location, height: u16, kind: ExpressionKind) -> Expression {
    Expression { location, height, kind }
}

/// Returns the text without the backslashes before any of `escaped`.
fn unescape(text: &str, escaped: &[&str]) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        match escaped.iter().find(|escaped| after.starts_with(**escaped)) {
            Some(escaped) => {
                plain.push_str(escaped);
                rest = &after[escaped.len()..];
            }
            None => {
                plain.push('\\');
                rest = after;
            }
        }
    }
    plain.push_str(rest);
    plain
}
