//! Generates a trace from a seed, with a given [`Shape`].
//!
//! The three steps have a file each: the sections and their demand, the times of the requests, and their students and operations. All arithmetic uses
//! integers, and the source of randomness is part of the code. So a seed gives the same trace everywhere.

mod offers;
mod requests;
mod times;

use super::{Shape, ShapeError, Trace, random::Random};

pub use times::PERIOD_DAYS;

/// Generates the trace of `shape` and `seed`. Its [`Trace::shape`] is exactly `shape`.
///
/// - A few sections are wanted by hundreds of students, most by a handful. Many of the wanted ones fill up.
/// - The period lasts [`PERIOD_DAYS`] days. After two quiet weeks there are five registration days, one for each fifth of the students. Each opens at
///   midnight with a surge. Then quiet weeks follow. One of the midnights has the fullest second and minute.
/// - Students drop sections that they asked for, and sometimes sections that they never had. Some ask twice for the same section.
///
/// Time and memory are proportional to the number of requests and sections.
///
/// # Errors
///
/// [`ShapeError`]: the shape is impossible ([`Shape::check`]).
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
