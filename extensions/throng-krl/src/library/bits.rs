//! Operators on the bits of integers: 32 bits, as in JavaScript.

use super::{Given, Result};
use crate::run::Run;
use crate::{Error, Value};

fn operands(given: &Given, what: &str) -> Result<(i32, i32)> {
    let (left, right) = (given.get(0), given.get(1));
    match (left.to_number(), right.to_number()) {
        (Some(left), Some(right)) => Ok((to_int32(left), to_int32(right))),
        _ => Err(Error::type_error(format!("{} cannot be {what} {}", left.text(), right.text())).into()),
    }
}

/// Returns the low 32 bits of a number.
fn to_int32(number: f64) -> i32 {
    let low = number.trunc().rem_euclid(4_294_967_296.0);
    (low as u32).cast_signed()
}

fn number(bits: i32) -> Result<Value> {
    Ok(Value::Number(f64::from(bits)))
}

pub(super) fn shift_right(_: &mut Run<'_>, given: Given) -> Result<Value> {
    let (left, right) = operands(&given, "shifted by")?;
    number(left >> (right & 31))
}

pub(super) fn shift_left(_: &mut Run<'_>, given: Given) -> Result<Value> {
    let (left, right) = operands(&given, "shifted by")?;
    number(left.wrapping_shl(right.cast_unsigned()))
}

pub(super) fn and(_: &mut Run<'_>, given: Given) -> Result<Value> {
    let (left, right) = operands(&given, "bitwise anded")?;
    number(left & right)
}

pub(super) fn or(_: &mut Run<'_>, given: Given) -> Result<Value> {
    let (left, right) = operands(&given, "bitwise ored")?;
    number(left | right)
}

pub(super) fn exclusive_or(_: &mut Run<'_>, given: Given) -> Result<Value> {
    let (left, right) = operands(&given, "bitwise xored")?;
    number(left ^ right)
}

pub(super) fn not(_: &mut Run<'_>, given: Given) -> Result<Value> {
    match given.get(0).to_number() {
        Some(left) => number(!to_int32(left)),
        None => Err(Error::type_error(format!("{} cannot be inverted", given.get(0).text())).into()),
    }
}
