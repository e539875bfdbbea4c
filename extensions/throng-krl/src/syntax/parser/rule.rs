use super::Parser;
use super::expression::MEMBER;
use crate::syntax::ParseError;
use crate::syntax::ast::{Action, ActionBlock, BlockKind, Foreach, Postlude, Rule, Select, Statement, Within};
use crate::syntax::lexer::TokenKind;

/// Words that begin a postlude.
const POSTLUDE: [&str; 5] = ["fired", "notfired", "else", "finally", "always"];

impl Parser<'_> {
    pub(super) fn rule(&mut self) -> Result<Rule, ParseError> {
        self.expect_word("rule")?;
        let name = self.identifier()?;
        let mut is_active = true;
        if self.take_word("is") {
            is_active = self.is_word("active");
            if !is_active && !self.is_word("inactive") {
                return Err(self.expected("expected `active` or `inactive`"));
            }
            self.advance();
        }
        self.expect_raw("{")?;
        let select = self.behind("select", Self::select)?;
        let mut foreach = Vec::new();
        while self.take_word("foreach") {
            let collection = self.expression(0)?;
            self.expect_word("setting")?;
            let setting = self.setting()?;
            foreach.push(Foreach { collection, setting });
        }
        let prelude = self.behind("pre", Self::declaration_block)?.unwrap_or_default();
        let has_actions = self.kind() == TokenKind::Symbol && !POSTLUDE.contains(&self.text());
        let block = if has_actions { Some(self.action_block()?) } else { None };
        let postlude = self.postlude()?;
        if !self.take_raw("}") {
            let expected = if postlude.is_some() {
                "expected `}` after the postlude"
            } else {
                "expected an action, `fired`, `notfired`, `always` or `}`"
            };
            return Err(self.expected(expected));
        }
        Ok(Rule {
            name,
            is_active,
            select,
            foreach,
            prelude,
            block,
            postlude,
        })
    }

    fn select(&mut self) -> Result<Select, ParseError> {
        if self.take_word("where") {
            return Ok(Select::Where(self.expression(0)?));
        }
        if !self.take_word("when") {
            return Err(self.expected("expected `when` or `where`"));
        }
        let event = self.event_expression(0)?;
        let within = self.behind("within", Self::within)?;
        Ok(Select::When { event, within })
    }

    fn within(&mut self) -> Result<Within, ParseError> {
        let amount = self.expression(0)?;
        let seconds = match self.text() {
            "second" | "seconds" => 1.0,
            "minute" | "minutes" => 60.0,
            "hour" | "hours" => 3600.0,
            "day" | "days" => 86_400.0,
            "week" | "weeks" => 7.0 * 86_400.0,
            "month" | "months" => 30.0 * 86_400.0,
            "year" | "years" => 365.0 * 86_400.0,
            _ => {
                return Err(self.expected(
                    "expected a period: `seconds`, `minutes`, `hours`, `days`, `weeks`, `months` or `years`",
                ));
            }
        };
        self.advance();
        Ok(Within {
            amount,
            period_ms: seconds * 1000.0,
        })
    }

    pub(super) fn action_block(&mut self) -> Result<ActionBlock, ParseError> {
        let condition = if self.take_word("if") {
            let condition = self.expression(0)?;
            self.expect_word("then")?;
            Some(condition)
        } else {
            None
        };
        let mut kind = BlockKind::Every;
        let mut actions = Vec::new();
        if self.take_word("every") {
            actions = self.actions()?;
        } else if self.take_word("sample") {
            kind = BlockKind::Sample;
            actions = self.actions()?;
        } else if self.take_word("choose") {
            kind = BlockKind::Choose(self.expression(MEMBER)?);
            actions = self.actions()?;
        } else if self.kind() == TokenKind::Symbol && !POSTLUDE.contains(&self.text()) && !self.is_word("return") {
            actions.push(self.action()?);
        }
        if condition.is_some() && actions.is_empty() {
            return Err(self.expected("expected an action, `every`, `sample` or `choose` after `if … then`"));
        }
        Ok(ActionBlock {
            condition,
            kind,
            actions,
        })
    }

    fn actions(&mut self) -> Result<Vec<Action>, ParseError> {
        self.expect_raw("{")?;
        let mut actions = Vec::new();
        while !self.take_raw("}") {
            actions.push(self.action()?);
        }
        Ok(actions)
    }

    fn action(&mut self) -> Result<Action, ParseError> {
        let location = self.location();
        if self.kind() != TokenKind::Symbol {
            return Err(self.expected("expected an action, like `send_directive(\"name\")`, or `}`"));
        }
        let mut name = self.identifier()?;
        let mut label = None;
        if self.take_raw("=>") {
            label = Some(name);
            name = self.identifier()?;
        }
        let callee = self.maybe_domain(name)?;
        let arguments = self.arguments()?;
        let setting = self.behind("setting", Self::setting)?.unwrap_or_default();
        self.take_raw(";");
        Ok(Action {
            location,
            label,
            callee,
            arguments,
            setting,
        })
    }

    fn postlude(&mut self) -> Result<Option<Postlude>, ParseError> {
        let mut postlude = Postlude::default();
        if self.take_word("always") {
            postlude.always = self.statements()?;
            return Ok(Some(postlude));
        }
        let (first, second) = if self.take_word("fired") {
            (&mut postlude.fired, &mut postlude.not_fired)
        } else if self.take_word("notfired") {
            (&mut postlude.not_fired, &mut postlude.fired)
        } else {
            return Ok(None);
        };
        *first = self.statements()?;
        if self.take_word("else") {
            *second = self.statements()?;
        }
        if self.take_word("finally") {
            postlude.always = self.statements()?;
        }
        Ok(Some(postlude))
    }

    fn statements(&mut self) -> Result<Vec<Statement>, ParseError> {
        self.expect_raw("{")?;
        let mut statements = Vec::new();
        while !self.take_raw("}") {
            statements.push(self.statement()?);
            self.take_raw(";");
        }
        Ok(statements)
    }
}
