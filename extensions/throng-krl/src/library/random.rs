//! Random values from the turn's seed. A turn that runs again draws the same values.

use super::Result;
use crate::Value;
use crate::host::Arguments;
use crate::run::Run;

const WORDS: [&str; 64] = [
    "acorn", "amber", "anchor", "apple", "arrow", "badge", "basin", "birch", "blade", "bridge", "candle", "canyon",
    "cedar", "cliff", "cloud", "copper", "coral", "crane", "delta", "desert", "eagle", "ember", "falcon", "feather",
    "fern", "field", "flint", "forest", "garden", "granite", "harbor", "hazel", "island", "ivory", "jasper", "juniper",
    "lantern", "lemon", "maple", "marble", "meadow", "mirror", "moss", "oak", "ocean", "olive", "orchard", "pebble",
    "pepper", "pine", "prairie", "quartz", "raven", "river", "saddle", "silver", "spruce", "stone", "summit",
    "thistle", "timber", "valley", "willow", "winter",
];

/// Returns a unique id in base 36: `c`, the time, and random digits.
pub(super) fn uuid(run: &mut Run<'_>, _: &Arguments) -> Result<Value> {
    let time = u64::try_from(run.time_ms()).unwrap_or(0);
    let mut id = String::from("c");
    base36(time, 8, &mut id);
    for _ in 0..2 {
        let chance = run.random().u64(..);
        base36(chance, 8, &mut id);
    }
    Ok(Value::from(id))
}

/// Appends the last digits of a number in base 36.
fn base36(mut number: u64, digits: usize, text: &mut String) {
    let mut reversed = Vec::with_capacity(digits);
    for _ in 0..digits {
        reversed.push(char::from_digit(u32::try_from(number % 36).unwrap_or(0), 36).unwrap_or('0'));
        number /= 36;
    }
    text.extend(reversed.into_iter().rev());
}

pub(super) fn word(run: &mut Run<'_>, _: &Arguments) -> Result<Value> {
    let place = run.random().usize(..WORDS.len());
    Ok(Value::from(WORDS[place]))
}

/// Returns the requested bounds in ascending order; 0 to 1 by default.
fn bounds(arguments: &Arguments) -> (f64, f64) {
    let upper = arguments.get(0, "upper");
    let lower = arguments.get(1, "lower").to_number().unwrap_or(0.0);
    let upper = match upper {
        upper if upper.is_null() => 1.0,
        upper => upper.to_number().unwrap_or(0.0),
    };
    (lower.min(upper), lower.max(upper))
}

pub(super) fn integer(run: &mut Run<'_>, arguments: &Arguments) -> Result<Value> {
    let (lower, upper) = bounds(arguments);
    let (lower, upper) = ((lower + 0.5).floor(), (upper + 0.5).floor());
    Ok(Value::Number(
        lower + (run.random().f64() * (upper - lower + 1.0)).floor().min(upper - lower),
    ))
}

pub(super) fn number(run: &mut Run<'_>, arguments: &Arguments) -> Result<Value> {
    let (lower, upper) = bounds(arguments);
    Ok(Value::number(lower + run.random().f64() * (upper - lower)))
}
