//! A trace from a seed, to a given [`Shape`].
//!
//! Three steps, each in its file: what is offered and how much it is wanted, when requests are made, and who asks what.
//! Whole numbers only, and one written-out source of randomness: a seed gives the same trace everywhere.

mod offers;
mod requests;
mod times;

use super::{Shape, ShapeError, Trace, random::Random};

pub use times::PERIOD_DAYS;

/// Generates the trace that belongs to `shape` and `seed`; its [`Trace::shape`] is `shape` exactly.
///
/// - A few sections are wanted by hundreds, most by a handful; many of the wanted ones fill up.
/// - The period lasts [`PERIOD_DAYS`] days. Two quiet weeks, then five registration days, one for each fifth of the
///   students, which open at midnight with a surge; then quiet weeks again. One of the midnights holds the fullest
///   second and minute.
/// - Students drop what they asked for, now and then what they never had, and some ask twice for the same section.
///
/// Takes time and memory in proportion to the number of requests and sections.
///
/// # Errors
/// The shape is impossible ([`Shape::check`]).
pub fn generate(shape: &Shape, seed: u64) -> Result<Trace, ShapeError> {
    shape.check()?;
    let mut random = Random::seeded(seed);
    let offers = offers::draw(shape, &mut random);
    let seconds = times::draw(shape, &mut random);
    let requests = requests::draw(shape, &offers, &seconds, &mut random);
    Ok(Trace {
        sections: offers.sections,
        requests,
    })
}
