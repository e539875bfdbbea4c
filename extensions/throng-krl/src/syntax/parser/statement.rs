use super::{Parser, Role};
use crate::syntax::ParseError;
use crate::syntax::ast::{
    EntityVariable, EventType, Guard, LogLevel, RaiseStatement, ScheduleStatement, Statement, StatementKind,
};
use crate::syntax::lexer::TokenKind;

impl Parser<'_> {
    pub(super) fn statement(&mut self) -> Result<Statement, ParseError> {
        let location = self.location();
        let kind = self.statement_kind()?;
        let on_final = self.tokens.text(self.ahead(1)) == "final";
        let guard = if self.is_word("on") && on_final {
            self.advance();
            self.advance();
            Some(Guard::OnFinal)
        } else if self.take_word("if") {
            Some(Guard::If(self.expression(0)?))
        } else {
            None
        };
        Ok(Statement { location, kind, guard })
    }

    fn statement_kind(&mut self) -> Result<StatementKind, ParseError> {
        if self.is_declaration() {
            return Ok(StatementKind::Declare(self.declaration()?));
        }
        let next = self.ahead(1);
        let is_variable = self.is_identifier() && next.kind == TokenKind::Raw && self.tokens.text(next) == ":";
        if is_variable {
            let variable = self.entity_variable()?;
            self.expect_raw(":=")?;
            let value = self.expression(0)?;
            return Ok(StatementKind::Assign { variable, value });
        }
        let keyword = if self.kind() == TokenKind::Symbol {
            self.text()
        } else {
            ""
        };
        let unknown = self.expected(
            "expected a statement: `ent:name := value`, `name = value`, `clear`, `raise`, `schedule`, `log`, `error`, `last`, or `}`",
        );
        self.advance();
        match keyword {
            "clear" => Ok(StatementKind::Clear(self.entity_variable()?)),
            "raise" => self.raise(),
            "schedule" => self.schedule(),
            "log" => {
                let level = self.level()?;
                let value = self.expression(0)?;
                Ok(StatementKind::Log { level, value })
            }
            "error" => {
                let level = self.level()?;
                let value = self.expression(0)?;
                Ok(StatementKind::Error { level, value })
            }
            "last" => Ok(StatementKind::Last),
            _ => Err(unknown),
        }
    }

    fn entity_variable(&mut self) -> Result<EntityVariable, ParseError> {
        let domain = self.identifier()?;
        self.joint()?;
        let name = self.identifier()?.text;
        self.roles[self.at] = Role::Suffix;
        let path = if self.take_raw("{") {
            let path = self.expression(0)?;
            self.expect_raw("}")?;
            Some(path)
        } else {
            self.roles[self.at] = Role::Plain;
            None
        };
        Ok(EntityVariable { domain, name, path })
    }

    /// Parses `event expression` or `domain event expression`.
    fn event_type(&mut self) -> Result<EventType, ParseError> {
        if self.take_word("event") {
            return Ok(EventType::Whole(self.expression(0)?));
        }
        if !self.is_identifier() {
            return Err(self.expected("expected the event's domain, or `event`"));
        }
        let domain = self.identifier()?.text;
        self.expect_word("event")?;
        let name = self.expression(0)?;
        Ok(EventType::Named { domain, name })
    }

    fn raise(&mut self) -> Result<StatementKind, ParseError> {
        let event = self.event_type()?;
        let for_rid = self.behind("for", |parser| parser.expression(0))?;
        let attributes = self.behind("attributes", |parser| parser.expression(0))?;
        Ok(StatementKind::Raise(RaiseStatement {
            event,
            for_rid,
            attributes,
        }))
    }

    fn schedule(&mut self) -> Result<StatementKind, ParseError> {
        let event = self.event_type()?;
        let repeats = self.is_word("repeat");
        if !repeats && !self.is_word("at") {
            return Err(self.expected("expected `at` or `repeat`"));
        }
        self.advance();
        let time = self.expression(0)?;
        let attributes = self.behind("attributes", |parser| parser.expression(0))?;
        let setting = if self.take_word("setting") {
            self.expect_bracket("(", Role::Suffix)?;
            let name = self.identifier()?;
            self.expect_raw(")")?;
            Some(name)
        } else {
            None
        };
        Ok(StatementKind::Schedule(ScheduleStatement {
            event,
            repeats,
            time,
            attributes,
            setting,
        }))
    }

    fn level(&mut self) -> Result<LogLevel, ParseError> {
        let level = match self.text() {
            "error" => LogLevel::Error,
            "warn" => LogLevel::Warn,
            "info" => LogLevel::Info,
            "debug" => LogLevel::Debug,
            _ => return Err(self.expected("expected a level: `error`, `warn`, `info` or `debug`")),
        };
        self.advance();
        Ok(level)
    }
}
