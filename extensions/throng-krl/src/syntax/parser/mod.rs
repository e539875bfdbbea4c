//! The parser from tokens to the tree. It parses operators by binding power, and bounds the depth of all nesting.

mod event;
mod expression;
mod meta;
mod rule;
mod statement;

use super::ast::{Declaration, Expression, Name, Ruleset};
use super::lexer::{Token, TokenKind, Tokens, tokenize};
use super::{EXPRESSION_DEPTH_MAX, Location, ParseError};
use std::sync::Arc;

/// Words that cannot be names.
const RESERVED: [&str; 8] = [
    "defaction",
    "function",
    "return",
    "not",
    "setting",
    "null",
    "true",
    "false",
];

/// Parses a ruleset.
///
/// # Errors
///
/// [`ParseError`]: the source is no ruleset. It has the first wrong place, the text there and the text expected.
pub fn parse(source: &str) -> Result<Ruleset, ParseError> {
    let tokens = tokenize(source)?;
    Parser::new(&tokens).ruleset()
}

/// Parses a ruleset and returns the role of each token, for the formatter.
pub(super) fn roles(tokens: &Tokens<'_>) -> Result<Vec<Role>, ParseError> {
    let mut parser = Parser::new(tokens);
    parser.ruleset()?;
    Ok(parser.roles)
}

/// The role of a token whose text alone is ambiguous.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Role {
    #[default]
    Plain,
    /// An operator before its operand.
    Prefix,
    /// A bracket that belongs to the token before it: a path, an index, arguments, parameters.
    Suffix,
    /// A bracket of a map or an array.
    Literal,
    /// A colon, point or hyphen within a name.
    Joint,
}

struct Parser<'a> {
    tokens: &'a Tokens<'a>,
    at: usize,
    depth: u16,
    roles: Vec<Role>,
}

impl<'a> Parser<'a> {
    fn new(tokens: &'a Tokens<'a>) -> Parser<'a> {
        Parser {
            tokens,
            at: 0,
            depth: 0,
            roles: vec![Role::Plain; tokens.tokens.len()],
        }
    }

    // --- tokens ------------------------------------------------------------------------------------------------------

    /// Returns the token this many places ahead. Beyond the last one it is the end.
    fn ahead(&self, places: usize) -> Token {
        let last = self.tokens.tokens.len() - 1;
        self.tokens.tokens[(self.at + places).min(last)]
    }

    fn kind(&self) -> TokenKind {
        self.ahead(0).kind
    }

    fn text(&self) -> &'a str {
        self.tokens.text(self.ahead(0))
    }

    fn location(&self) -> Location {
        self.tokens.location(self.ahead(0).start)
    }

    /// True if nothing stands between this token and the one before.
    fn follows_directly(&self) -> bool {
        let before = self.at.checked_sub(1).and_then(|at| self.tokens.tokens.get(at));
        before.is_some_and(|before| before.end == self.ahead(0).start)
    }

    fn advance(&mut self) {
        if self.kind() != TokenKind::End {
            self.at += 1;
        }
    }

    fn is_raw(&self, text: &str) -> bool {
        self.kind() == TokenKind::Raw && self.text() == text
    }

    fn is_word(&self, text: &str) -> bool {
        self.kind() == TokenKind::Symbol && self.text() == text
    }

    fn take_raw(&mut self, text: &str) -> bool {
        let is_it = self.is_raw(text);
        if is_it {
            self.advance();
        }
        is_it
    }

    fn take_word(&mut self, text: &str) -> bool {
        let is_it = self.is_word(text);
        if is_it {
            self.advance();
        }
        is_it
    }

    /// If this word is next, skips it and parses the part after it.
    fn behind<T>(
        &mut self,
        word: &str,
        read: impl FnOnce(&mut Self) -> Result<T, ParseError>,
    ) -> Result<Option<T>, ParseError> {
        self.take_word(word).then(|| read(self)).transpose()
    }

    fn expect_raw(&mut self, text: &str) -> Result<(), ParseError> {
        if self.take_raw(text) {
            Ok(())
        } else {
            Err(self.expected(&format!("expected `{text}`")))
        }
    }

    /// Expects a bracket and gives it a role.
    fn expect_bracket(&mut self, text: &str, role: Role) -> Result<(), ParseError> {
        self.roles[self.at] = role;
        self.expect_raw(text)
    }

    fn expect_word(&mut self, text: &str) -> Result<(), ParseError> {
        if self.take_word(text) {
            Ok(())
        } else {
            Err(self.expected(&format!("expected `{text}`")))
        }
    }

    /// Returns an error that names the expected text.
    fn expected(&self, expected: &str) -> ParseError {
        let (mut expected, mut length) = (expected, 40);
        if let TokenKind::Illegal(wrong) = self.kind() {
            (expected, length) = (wrong, 1);
        }
        let found = match self.kind() {
            TokenKind::End => "the end of the source".into(),
            _ => {
                let text: String = self.text().chars().take(length).collect();
                format!("`{text}`")
            }
        };
        ParseError {
            location: self.location(),
            found,
            expected: expected.into(),
        }
    }

    fn enter(&mut self) -> Result<(), ParseError> {
        if self.depth >= EXPRESSION_DEPTH_MAX {
            return Err(self.too_deep());
        }
        self.depth += 1;
        Ok(())
    }

    fn leave(&mut self) {
        self.depth -= 1;
    }

    fn too_deep(&self) -> ParseError {
        ParseError {
            location: self.location(),
            found: String::new(),
            expected: format!("the expression nests more than {EXPRESSION_DEPTH_MAX} deep"),
        }
    }

    /// Returns the height of a node above one of this height. Fails beyond the bound.
    fn above(&self, height: u16) -> Result<u16, ParseError> {
        if height >= EXPRESSION_DEPTH_MAX {
            Err(self.too_deep())
        } else {
            Ok(height + 1)
        }
    }

    // --- names -------------------------------------------------------------------------------------------------------

    fn word(&mut self, what: &str) -> Result<Name, ParseError> {
        if self.kind() != TokenKind::Symbol {
            return Err(self.expected(&format!("expected {what}")));
        }
        let name = Name {
            text: Arc::from(self.text()),
            location: self.location(),
        };
        self.advance();
        Ok(name)
    }

    fn is_identifier(&self) -> bool {
        self.kind() == TokenKind::Symbol && !RESERVED.contains(&self.text())
    }

    fn identifier(&mut self) -> Result<Name, ParseError> {
        if self.kind() == TokenKind::Symbol && RESERVED.contains(&self.text()) {
            return Err(self.expected("expected a name, and this word is reserved"));
        }
        self.word("a name")
    }

    /// Expects a colon within a name.
    fn joint(&mut self) -> Result<(), ParseError> {
        self.expect_bracket(":", Role::Joint)
    }

    fn identifiers(&mut self) -> Result<Vec<Name>, ParseError> {
        let mut names = vec![self.identifier()?];
        while self.take_raw(",") {
            names.push(self.identifier()?);
        }
        Ok(names)
    }

    /// Parses `(a, b)` after `setting`.
    fn setting(&mut self) -> Result<Vec<Name>, ParseError> {
        self.expect_bracket("(", Role::Suffix)?;
        let names = self.identifiers()?;
        self.expect_raw(")")?;
        Ok(names)
    }

    /// Parses a ruleset's id: words joined by points and hyphens, without blanks.
    fn rid(&mut self) -> Result<Name, ParseError> {
        let mut name = self.word("a ruleset's id")?;
        let mut text = name.text.to_string();
        while self.follows_directly() && (self.is_raw(".") || self.is_raw("-")) {
            self.roles[self.at] = Role::Joint;
            text.push_str(self.text());
            self.advance();
            if !self.follows_directly() || !matches!(self.kind(), TokenKind::Symbol | TokenKind::Number) {
                return Err(self.expected("expected the rest of a ruleset's id, like `io.picolabs.some.name`"));
            }
            text.push_str(self.text());
            self.advance();
        }
        name.text = Arc::from(text);
        Ok(name)
    }

    // --- declarations ------------------------------------------------------------------------------------------------

    fn is_declaration(&self) -> bool {
        let next = self.ahead(1);
        self.is_identifier() && next.kind == TokenKind::Raw && self.tokens.text(next) == "="
    }

    fn declaration(&mut self) -> Result<Declaration, ParseError> {
        if !self.is_declaration() {
            return Err(self.expected("expected a declaration, like `name = value`"));
        }
        let name = self.identifier()?;
        self.expect_raw("=")?;
        let value = self.expression(0)?;
        Ok(Declaration { name, value })
    }

    fn declarations(&mut self) -> Result<Vec<Declaration>, ParseError> {
        let mut declarations = Vec::new();
        while self.is_declaration() {
            declarations.push(self.declaration()?);
            self.take_raw(";");
        }
        Ok(declarations)
    }

    /// Parses `{ declarations }` after `global` or `pre`.
    fn declaration_block(&mut self) -> Result<Vec<Declaration>, ParseError> {
        self.expect_raw("{")?;
        let declarations = self.declarations()?;
        if !self.take_raw("}") {
            return Err(self.expected("expected a declaration, like `name = value`, or `}`"));
        }
        Ok(declarations)
    }

    // --- the ruleset -------------------------------------------------------------------------------------------------

    fn ruleset(&mut self) -> Result<Ruleset, ParseError> {
        self.expect_word("ruleset")?;
        let rid = self.rid()?;
        self.expect_raw("{")?;
        let mut meta = Vec::new();
        if self.is_word("version") {
            meta.push(self.meta_property()?);
        }
        if self.take_word("meta") {
            self.expect_raw("{")?;
            while self.kind() == TokenKind::Symbol {
                meta.push(self.meta_property()?);
            }
            self.expect_raw("}")?;
        }
        let global = self.behind("global", Self::declaration_block)?.unwrap_or_default();
        let mut rules = Vec::new();
        while self.is_word("rule") {
            rules.push(self.rule()?);
        }
        if !self.take_raw("}") {
            let expected = match (meta.is_empty(), global.is_empty(), rules.is_empty()) {
                (true, true, true) => "expected `meta`, `global`, `rule` or `}`",
                (_, true, true) => "expected `global`, `rule` or `}`",
                _ => "expected `rule` or `}`",
            };
            return Err(self.expected(expected));
        }
        if self.kind() != TokenKind::End {
            return Err(self.expected("expected nothing after the ruleset"));
        }
        Ok(Ruleset {
            rid,
            meta,
            global,
            rules,
        })
    }
}

fn height_of<'a>(expressions: impl IntoIterator<Item = &'a Expression>) -> u16 {
    expressions
        .into_iter()
        .map(|expression| expression.height)
        .max()
        .unwrap_or(0)
}
