use super::{Parser, Role};
use crate::syntax::Location;
use crate::syntax::ParseError;
use crate::syntax::ast::{
    AggregateOperator, Aggregator, EventExpression, EventKind, EventOperator, EventPattern, Name,
};
use crate::syntax::lexer::TokenKind;

/// The largest number after `any`, `count` and `repeat`.
const COUNT_MAX: usize = 1_000;

impl Parser<'_> {
    /// Parses an event expression whose operators bind more strongly than `binding`.
    pub(super) fn event_expression(&mut self, binding: u8) -> Result<EventExpression, ParseError> {
        self.enter()?;
        let mut left = self.event_operand()?;
        while let Some((operator, power)) = self.event_infix() {
            if power <= binding {
                break;
            }
            left = self.event_continued(left, operator, power)?;
        }
        self.leave();
        Ok(left)
    }

    fn event_infix(&self) -> Option<(EventOperator, u8)> {
        if self.kind() != TokenKind::Symbol {
            return None;
        }
        match self.text() {
            "or" => Some((EventOperator::Or, 20)),
            "and" => Some((EventOperator::And, 30)),
            "before" => Some((EventOperator::Before, 40)),
            "then" => Some((EventOperator::Then, 40)),
            "after" => Some((EventOperator::After, 40)),
            "between" => Some((EventOperator::Between, 50)),
            "not" => Some((EventOperator::NotBetween, 50)),
            _ => None,
        }
    }

    fn event_continued(
        &mut self,
        left: EventExpression,
        operator: EventOperator,
        power: u8,
    ) -> Result<EventExpression, ParseError> {
        let location = left.location;
        self.advance();
        let mut operands = vec![left];
        match operator {
            EventOperator::Between | EventOperator::NotBetween => {
                if operator == EventOperator::NotBetween {
                    self.expect_word("between")?;
                }
                self.expect_bracket("(", Role::Suffix)?;
                operands.push(self.event_expression(0)?);
                self.expect_raw(",")?;
                operands.push(self.event_expression(0)?);
                self.expect_raw(")")?;
            }
            _ => operands.push(self.event_expression(power)?),
        }
        let height = self.above(event_height(&operands))?;
        let kind = EventKind::Operator { operator, operands };
        Ok(EventExpression { location, height, kind })
    }

    fn event_operand(&mut self) -> Result<EventExpression, ParseError> {
        let location = self.location();
        if self.take_raw("(") {
            let inner = self.event_expression(0)?;
            self.expect_raw(")")?;
            return Ok(inner);
        }
        if self.kind() != TokenKind::Symbol {
            return Err(self.expected("expected an event, like `domain:name`, or `(`"));
        }
        // `any`, `or` and the like are operators only if a number or a bracket follows. Otherwise they are the event's domain.
        let next = self.ahead(1);
        let is_group = next.kind == TokenKind::Number || (next.kind == TokenKind::Raw && self.tokens.text(next) == "(");
        let operator = match self.text() {
            _ if !is_group => None,
            "any" => return self.any(location),
            "count" | "repeat" => return self.group(location),
            "and" => Some(EventOperator::And),
            "or" => Some(EventOperator::Or),
            "before" => Some(EventOperator::Before),
            "then" => Some(EventOperator::Then),
            "after" => Some(EventOperator::After),
            _ => None,
        };
        if let Some(operator) = operator {
            self.advance();
            let operands = self.event_list()?;
            let height = self.above(event_height(&operands))?;
            let kind = EventKind::Operator { operator, operands };
            return Ok(EventExpression { location, height, kind });
        }
        let pattern = self.event_pattern()?;
        Ok(EventExpression {
            location,
            height: 1,
            kind: EventKind::Event(Box::new(pattern)),
        })
    }

    fn event_list(&mut self) -> Result<Vec<EventExpression>, ParseError> {
        self.expect_raw("(")?;
        let mut operands = vec![self.event_expression(0)?];
        while self.take_raw(",") {
            operands.push(self.event_expression(0)?);
        }
        self.expect_raw(")")?;
        Ok(operands)
    }

    fn any(&mut self, location: Location) -> Result<EventExpression, ParseError> {
        self.advance();
        let count = self.count()?;
        let operands = self.event_list()?;
        if count >= operands.len() {
            return Err(ParseError {
                location,
                found: format!("`any {count}` of {}", operands.len()),
                expected: "expected more events than `any` is to wait for".into(),
            });
        }
        let height = self.above(event_height(&operands))?;
        Ok(EventExpression {
            location,
            height,
            kind: EventKind::Any { count, operands },
        })
    }

    fn group(&mut self, location: Location) -> Result<EventExpression, ParseError> {
        let repeats = self.is_word("repeat");
        self.advance();
        let count = self.count()?;
        self.expect_raw("(")?;
        let event_location = self.location();
        let mut pattern = self.event_pattern()?;
        self.expect_raw(")")?;
        pattern.aggregator = self.aggregator()?;
        let operand = EventExpression {
            location: event_location,
            height: 1,
            kind: EventKind::Event(Box::new(pattern)),
        };
        let kind = EventKind::Group {
            repeats,
            count,
            operand: Box::new(operand),
        };
        Ok(EventExpression {
            location,
            height: 2,
            kind,
        })
    }

    fn count(&mut self) -> Result<usize, ParseError> {
        let count = match self.kind() {
            TokenKind::Number => self.text().parse().ok().filter(|count| (1..=COUNT_MAX).contains(count)),
            _ => None,
        };
        let Some(count) = count else {
            return Err(self.expected(&format!("expected a whole number from 1 to {COUNT_MAX}")));
        };
        self.advance();
        Ok(count)
    }

    fn aggregator(&mut self) -> Result<Option<Aggregator>, ParseError> {
        if self.kind() != TokenKind::Symbol {
            return Ok(None);
        }
        let operator = match self.text() {
            "max" => AggregateOperator::Max,
            "min" => AggregateOperator::Min,
            "sum" => AggregateOperator::Sum,
            "avg" => AggregateOperator::Avg,
            "push" => AggregateOperator::Push,
            _ => return Ok(None),
        };
        self.advance();
        let names = self.setting()?;
        Ok(Some(Aggregator { operator, names }))
    }

    fn event_pattern(&mut self) -> Result<EventPattern, ParseError> {
        let domain = self.word("the event's domain")?;
        let has_colon = self.is_raw(":");
        if has_colon {
            self.joint()?;
        }
        let name = self.word(if has_colon {
            "the event's name"
        } else {
            "`:` and the event's name"
        })?;
        let mut attributes: Vec<(Name, _)> = Vec::new();
        while self.kind() == TokenKind::Symbol && self.ahead(1).kind == TokenKind::Regex {
            let attribute = self.word("an attribute")?;
            attributes.push((attribute, self.regex()?));
        }
        let mut condition = self.behind("where", |parser| parser.expression(0))?;
        let (mut setting, mut deprecation) = (Vec::new(), None);
        if self.take_word("setting") {
            if condition.is_some() {
                deprecation = Some("`where` belongs after `setting`");
            } else if attributes.is_empty() {
                deprecation = Some("`setting` has nothing to set without a match of an attribute");
            }
            setting = self.setting()?;
        }
        if condition.is_none() && self.take_word("where") {
            condition = Some(self.expression(0)?);
        }
        Ok(EventPattern {
            domain,
            name,
            attributes,
            setting,
            condition,
            aggregator: None,
            deprecation,
        })
    }
}

fn event_height(operands: &[EventExpression]) -> u16 {
    operands.iter().map(|operand| operand.height).max().unwrap_or(0)
}
