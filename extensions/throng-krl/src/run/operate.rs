//! Operators between two values, and access to a value's members.

use super::Run;
use super::effects::checked_path;
use crate::compile::Binary;
use crate::host::{Interrupt, Level};
use crate::value::{Regex, path_of};
use crate::{Error, Value};
use std::cmp::Ordering;
use std::sync::Arc;

impl Run<'_> {
    pub(super) fn binary(&mut self, operator: Binary) -> Result<(), Interrupt> {
        let right = self.pop();
        let left = self.pop();
        let value = match (operator, &left, &right) {
            (Binary::Add, Value::Number(left), Value::Number(right)) => Value::number(left + right),
            (Binary::Subtract, Value::Number(left), Value::Number(right)) => Value::number(left - right),
            (Binary::Multiply, Value::Number(left), Value::Number(right)) => Value::number(left * right),
            (Binary::Less, Value::Number(left), Value::Number(right)) => Value::Boolean(left < right),
            (Binary::Greater, Value::Number(left), Value::Number(right)) => Value::Boolean(left > right),
            (Binary::Equal, Value::Number(left), Value::Number(right)) => Value::Boolean(left == right),
            _ => self.binary_slow(operator, &left, &right)?,
        };
        self.push(value);
        Ok(())
    }

    fn binary_slow(&mut self, operator: Binary, left: &Value, right: &Value) -> Result<Value, Interrupt> {
        let boolean = |boolean: bool| Ok(Value::Boolean(boolean));
        match operator {
            Binary::Add => self.add(left, right),
            Binary::Subtract => Ok(numbers(left, right, |left, right| left - right).ok_or_else(|| {
                Error::type_error(format!("{} cannot be subtracted from {}", right.text(), left.text()))
            })?),
            Binary::Multiply => Ok(numbers(left, right, |left, right| left * right).ok_or_else(|| {
                Error::type_error(format!("{} cannot be multiplied by {}", left.text(), right.text()))
            })?),
            Binary::Divide => self.divide(left, right),
            Binary::Modulo => {
                let modulo = |left: f64, right: f64| if right == 0.0 { 0.0 } else { left % right };
                Ok(numbers(left, right, modulo).ok_or_else(|| {
                    Error::type_error(format!("Cannot calculate {} modulo {}", left.text(), right.text()))
                })?)
            }
            Binary::Equal | Binary::NotEqual => {
                self.compared(left, right)?;
                boolean((left == right) == (operator == Binary::Equal))
            }
            Binary::Less => boolean(order(left, right) == Ordering::Less),
            Binary::LessOrEqual => boolean(order(left, right) != Ordering::Greater),
            Binary::Greater => boolean(order(left, right) == Ordering::Greater),
            Binary::GreaterOrEqual => boolean(order(left, right) != Ordering::Less),
            Binary::Order => Ok(Value::Number(f64::from(order(left, right) as i8))),
            Binary::TextOrder => Ok(Value::Number(f64::from(text_order(left, right) as i8))),
            Binary::Contains => self.contains(left, right),
            Binary::Like => self.like(left, right),
        }
    }

    fn add(&mut self, left: &Value, right: &Value) -> Result<Value, Interrupt> {
        if let (Value::Number(left), Value::Number(right)) = (left, right)
            && left.is_finite()
            && right.is_finite()
        {
            return Ok(Value::number(left + right));
        }
        let (left, right) = (left.text(), right.text());
        let mut text = String::with_capacity(left.len() + right.len());
        text.push_str(&left);
        text.push_str(&right);
        Ok(self.made(Value::from(text))?)
    }

    fn divide(&mut self, left: &Value, right: &Value) -> Result<Value, Interrupt> {
        let Some((Some(dividend), Some(divisor))) = Some((left.to_number(), right.to_number())) else {
            let message = format!("{} cannot be divided by {}", left.text(), right.text());
            return Err(Error::type_error(message).into());
        };
        if divisor == 0.0 {
            self.log(
                Level::Debug,
                Arc::from(format!("[DIVISION BY ZERO] {} / 0", left.text())),
                Value::Null,
            );
            return Ok(Value::Number(0.0));
        }
        Ok(Value::number(dividend / divisor))
    }

    /// Charges for comparing two values.
    pub(crate) fn compared(&mut self, left: &Value, right: &Value) -> Result<(), Error> {
        self.vm.budget.step(left.bytes().min(right.bytes()) / 64)
    }

    fn contains(&mut self, left: &Value, right: &Value) -> Result<Value, Interrupt> {
        let found = match left {
            Value::Array(items) => {
                self.vm.budget.step(items.len() as u64)?;
                let mut found = false;
                for item in items.iter() {
                    self.compared(item, right)?;
                    found = item == right;
                    if found {
                        break;
                    }
                }
                found
            }
            // As in lodash's `has`, an array is a path.
            Value::Map(_) => {
                let path = path_of(right);
                checked_path(&path)?;
                let end = path.iter().try_fold(left, |value, key| value.child(key));
                end.is_some() && !path.is_empty()
            }
            _ => false,
        };
        Ok(Value::Boolean(found))
    }

    fn like(&mut self, left: &Value, right: &Value) -> Result<Value, Interrupt> {
        let regex = self.regex(right)?;
        let text = left.text();
        self.vm.budget.step(text.len() as u64 / 8)?;
        Ok(Value::Boolean(regex.engine().is_match(&text)))
    }

    /// Returns a regular expression: the value itself, or one compiled from its text.
    pub(crate) fn regex(&mut self, value: &Value) -> Result<Arc<Regex>, Error> {
        if let Value::Regex(regex) = value {
            return Ok(Arc::clone(regex));
        }
        self.vm.budget.step(1_000)?;
        let regex = Regex::new(&value.text(), "");
        regex
            .map(Arc::new)
            .map_err(|error| Error::value_error(error.to_string()))
    }

    /// Evaluates `a{path}` or `a[index]`.
    pub(super) fn member(&mut self, is_index: bool) -> Result<(), Interrupt> {
        let path = self.pop();
        let object = self.pop();
        let value = match &path {
            Value::String(key) => object.at_path(std::slice::from_ref(key)),
            Value::Array(keys) if !is_index => {
                let path = path_of(&path);
                checked_path(&path)?;
                // An empty path has no value.
                if keys.is_empty() {
                    Value::Null
                } else {
                    object.at_path(&path)
                }
            }
            key => object.at_path(&[key.to_text()]),
        };
        self.push(value);
        Ok(())
    }
}

fn numbers(left: &Value, right: &Value, operate: impl Fn(f64, f64) -> f64) -> Option<Value> {
    Some(Value::number(operate(left.to_number()?, right.to_number()?)))
}

/// Compares two values: as numbers if both convert to one, else as texts.
pub(crate) fn order(left: &Value, right: &Value) -> Ordering {
    match (left.to_number(), right.to_number()) {
        (Some(left), Some(right)) => left.partial_cmp(&right).unwrap_or(Ordering::Equal),
        _ => text_order(left, right),
    }
}

/// Compares two values as texts, by UTF-16 units as JavaScript does.
pub(crate) fn text_order(left: &Value, right: &Value) -> Ordering {
    let (left, right) = (left.text(), right.text());
    if left.is_ascii() && right.is_ascii() {
        return left.as_bytes().cmp(right.as_bytes());
    }
    left.encode_utf16().cmp(right.encode_utf16())
}
