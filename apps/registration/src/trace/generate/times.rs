//! The times of the requests: quiet weeks, registration days, surges at midnight.

use super::super::{Shape, random::Random};

/// The length of the generated registration period, in days.
pub const PERIOD_DAYS: u32 = 56;

/// The days on which registration opens for another part of the students, counted from the start of the period.
pub(super) const REGISTRATION_DAYS: [u32; 5] = [14, 16, 18, 21, 23];

/// The registration day with the fullest minute.
const FULLEST_DAY: u32 = REGISTRATION_DAYS[3];

const DAY_MINUTES: u32 = 24 * 60;
const PERIOD_MINUTES: u32 = PERIOD_DAYS * DAY_MINUTES;

/// The length of a surge after midnight, in minutes.
pub(super) const SURGE_MINUTES: u32 = 60;

/// Returns the time of every request, ascending, in seconds since the first midnight of the period.
pub(super) fn draw(shape: &Shape, random: &mut Random) -> Vec<u32> {
    let per_minute = draw_minutes(shape, random);
    let mut seconds = Vec::with_capacity(shape.requests() as usize);
    for (minute, load) in (0..).zip(per_minute).filter(|(_, load)| *load > 0) {
        let per_second = draw_seconds(minute, load, shape.requests_per_second_max, random);
        for (second, load) in (0..).zip(per_second) {
            seconds.extend(std::iter::repeat_n(minute * 60 + second, load as usize));
        }
    }
    seconds
}

/// Returns the number of requests in each minute of the period. The fullest minute is set first.
fn draw_minutes(shape: &Shape, random: &mut Random) -> Vec<u32> {
    let full = shape.requests_per_minute_max;
    let mut loads = vec![0; PERIOD_MINUTES as usize];
    loads[(FULLEST_DAY * DAY_MINUTES) as usize] = full;
    for _ in full..shape.requests() {
        let drawn = draw_minute(random) as usize;
        add_with_room(&mut loads, drawn, full);
    }
    loads
}

fn draw_minute(random: &mut Random) -> u32 {
    let registration_day = REGISTRATION_DAYS[random.index(REGISTRATION_DAYS.len())];
    match random.below(100) {
        // The product of three draws falls off steeply, so nearly a quarter of a surge is in its first minute.
        0..45 => {
            let product = (0..3).fold(1, |product, _| product * random.below(SURGE_MINUTES));
            registration_day * DAY_MINUTES + product / (SURGE_MINUTES * SURGE_MINUTES)
        }
        45..80 => registration_day * DAY_MINUTES + draw_waking_minute(random),
        _ => random.below(PERIOD_DAYS) * DAY_MINUTES + draw_waking_minute(random),
    }
}

/// Draws a minute between seven in the morning and midnight.
fn draw_waking_minute(random: &mut Random) -> u32 {
    random.between(7 * 60, DAY_MINUTES - 1)
}

/// Returns the number of requests in each second of a minute with `load` requests. The fullest minute begins with the fullest second.
fn draw_seconds(minute: u32, load: u32, full: u32, random: &mut Random) -> [u32; 60] {
    let mut loads = [0; 60];
    let is_fullest = minute == FULLEST_DAY * DAY_MINUTES;
    if is_fullest {
        loads[0] = full;
    }
    for _ in loads[0]..load {
        let drawn = random.index(60);
        let drawn = if is_fullest && random.one_in(2) {
            drawn.min(random.index(60))
        } else {
            drawn
        };
        add_with_room(&mut loads, drawn, full);
    }
    loads
}

/// Adds one to the first of `loads` that is below `full`, from `start` on and around the end.
fn add_with_room(loads: &mut [u32], start: usize, full: u32) {
    let (before, from_start) = loads.split_at_mut(start);
    let room = from_start.iter_mut().chain(before).find(|load| **load < full);
    *room.expect("a checked shape has more room than requests") += 1;
}
