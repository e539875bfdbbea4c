use super::{Parser, Role};
use crate::syntax::ParseError;
use crate::syntax::ast::{Declaration, MetaKind, MetaProperty, Name, Use};
use crate::syntax::lexer::TokenKind;

impl Parser<'_> {
    pub(super) fn meta_property(&mut self) -> Result<MetaProperty, ParseError> {
        let location = self.location();
        let unknown = self.expected(
            "expected `name`, `version`, `description`, `author`, `logging`, `use`, `configure`, `provides` or `shares`",
        );
        let key = self.word("a property of the ruleset")?;
        let kind = match &*key.text {
            "version" => self.meta_text("version")?,
            "name" => self.meta_text("name")?,
            "description" => self.meta_text("description")?,
            "author" => self.meta_text("author")?,
            "logging" => self.logging(key)?,
            "key" | "keys" => {
                self.word("the name of a key")?;
                self.expression(0)?;
                MetaKind::Ignored { key: key.text }
            }
            "errors" => {
                self.expect_word("to")?;
                self.rid()?;
                MetaKind::Ignored { key: key.text }
            }
            "use" => self.uses()?,
            "configure" => {
                self.expect_word("using")?;
                MetaKind::Configure(self.declarations()?)
            }
            "provide" | "provides" => self.provides(key)?,
            "share" | "shares" => MetaKind::Shares(self.identifiers()?),
            _ => return Err(unknown),
        };
        Ok(MetaProperty { location, kind })
    }

    fn meta_text(&mut self, key: &'static str) -> Result<MetaKind, ParseError> {
        let value = self.expression(0)?;
        Ok(MetaKind::Text { key, value })
    }

    fn logging(&mut self, key: Name) -> Result<MetaKind, ParseError> {
        if self.take_word("on") || self.take_word("off") {
            return Ok(MetaKind::Ignored { key: key.text });
        }
        Err(self.expected("expected `on` or `off`"))
    }

    fn provides(&mut self, key: Name) -> Result<MetaKind, ParseError> {
        let next = self.ahead(1).kind;
        if self.is_word("keys") && next == TokenKind::Symbol {
            self.advance();
            self.identifiers()?;
            self.expect_word("to")?;
            self.rid()?;
            while self.take_raw(",") {
                self.rid()?;
            }
            return Ok(MetaKind::Ignored { key: key.text });
        }
        Ok(MetaKind::Provides(self.identifiers()?))
    }

    fn uses(&mut self) -> Result<MetaKind, ParseError> {
        self.expect_word("module")?;
        let rid = self.rid()?;
        let alias = self.behind("alias", Self::identifier)?;
        let with = self.behind("with", Self::with)?.unwrap_or_default();
        Ok(MetaKind::Use(Use { rid, alias, with }))
    }

    /// Parses the declarations after `with`. `and` between them is optional.
    fn with(&mut self) -> Result<Vec<Declaration>, ParseError> {
        let mut declarations = vec![self.declaration()?];
        loop {
            if !self.take_word("and") && !self.is_declaration() {
                return Ok(declarations);
            }
            declarations.push(self.declaration()?);
        }
    }

    /// Parses the parameters of a function or an action.
    pub(super) fn parameters(&mut self) -> Result<Vec<crate::syntax::ast::Parameter>, ParseError> {
        self.expect_bracket("(", Role::Suffix)?;
        let mut parameters = Vec::new();
        while !self.is_raw(")") {
            let name = self.identifier()?;
            let default = if self.take_raw("=") {
                Some(self.expression(0)?)
            } else {
                None
            };
            parameters.push(crate::syntax::ast::Parameter { name, default });
            if !self.take_raw(",") {
                break;
            }
        }
        if !self.take_raw(")") {
            return Err(self.expected("expected `,` or `)` after a parameter"));
        }
        Ok(parameters)
    }
}
