//! When something repeats: cron's five fields, or six with seconds first.

use jiff::{Timestamp, ToSpan, Zoned, civil::DateTime, tz::TimeZone};
use std::str::FromStr;

/// A time that repeats, in UTC.
#[derive(Clone, Debug)]
pub(crate) struct Cron {
    seconds: Field,
    minutes: Field,
    hours: Field,
    days: Field,
    months: Field,
    weekdays: Field,
}

/// The values a field may have, one bit each.
#[derive(Clone, Copy, Debug)]
struct Field {
    values: u64,
    is_any: bool,
}

/// Days that are looked at for the next one: 29 February comes every four years, but not in 2100.
const DAYS_MAX: usize = 366 * 9;

const MONTHS: &[&str] = &[
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const WEEKDAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

impl FromStr for Cron {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        let fields = match fields.len() {
            5 => [&["0"], fields.as_slice()].concat(),
            6 => fields,
            count => {
                return Err(format!(
                    "{text:?} has {count} fields; cron has five, or six with seconds first"
                ));
            }
        };
        let field = |at: usize, first, last, names| read(fields[at], first, last, names);
        let mut weekdays = field(5, 0, 7, (WEEKDAYS, 0))?;
        // Sunday is 0 and 7.
        weekdays.values |= weekdays.values >> 7 & 1;
        Ok(Self {
            seconds: field(0, 0, 59, (&[], 0))?,
            minutes: field(1, 0, 59, (&[], 0))?,
            hours: field(2, 0, 23, (&[], 0))?,
            days: field(3, 1, 31, (&[], 0))?,
            months: field(4, 1, 12, (MONTHS, 1))?,
            weekdays,
        })
    }
}

fn read(text: &str, first: u32, last: u32, (names, base): (&[&str], u32)) -> Result<Field, String> {
    let wrong = || format!("{text:?} is no field of cron from {first} to {last}");
    let number = |text: &str| {
        let named = names.iter().position(|name| name.eq_ignore_ascii_case(text));
        let number = named.and_then(|at| u32::try_from(at).ok()).map(|at| at + base);
        let number = number.or_else(|| text.parse().ok());
        number
            .filter(|number| (first..=last).contains(number))
            .ok_or_else(wrong)
    };
    let mut values = 0;
    for part in text.split(',') {
        let (range, step) = part
            .split_once('/')
            .map_or((part, None), |(range, step)| (range, Some(step)));
        let step: u32 = step.map_or(Ok(1), |step| step.parse().map_err(|_| wrong()))?;
        let (from, to) = match range.split_once('-') {
            _ if matches!(range, "*" | "?") => (first, last),
            Some((from, to)) => (number(from)?, number(to)?),
            None if step > 1 => (number(range)?, last),
            None => (number(range)?, number(range)?),
        };
        if step == 0 || from > to {
            return Err(wrong());
        }
        for value in (from..=to).step_by(step as usize) {
            values |= 1 << value;
        }
    }
    Ok(Field {
        values,
        is_any: matches!(text, "*" | "?"),
    })
}

impl Field {
    fn has(self, value: i8) -> bool {
        self.values >> value & 1 == 1
    }

    /// The least value from this one on.
    fn from(self, value: i8) -> Option<i8> {
        let rest = self.values.checked_shr(value.unsigned_abs().into())?;
        let after = i8::try_from(rest.trailing_zeros()).ok().filter(|_| rest != 0)?;
        value.checked_add(after)
    }
}

impl Cron {
    /// The first time after this one, both in milliseconds since 1970; none if there is none in nine years.
    pub(crate) fn next_ms(&self, after_ms: i64) -> Option<i64> {
        let begin = Timestamp::from_second(after_ms.div_euclid(1_000) + 1).ok()?;
        let mut at: DateTime = begin.to_zoned(TimeZone::UTC).datetime();
        for _ in 0..DAYS_MAX {
            if self.has_day(&at)
                && let Some(found) = self.in_day(at)
            {
                let zoned: Zoned = found.to_zoned(TimeZone::UTC).ok()?;
                return Some(zoned.timestamp().as_millisecond());
            }
            at = at.date().tomorrow().ok()?.at(0, 0, 0, 0);
        }
        None
    }

    /// Where both are restricted, either of the month's and the week's days will do: so has it been since Unix.
    fn has_day(&self, at: &DateTime) -> bool {
        let (day, weekday) = (
            self.days.has(at.day()),
            self.weekdays.has(at.weekday().to_sunday_zero_offset()),
        );
        let is_day = match self.days.is_any || self.weekdays.is_any {
            true => day && weekday,
            false => day || weekday,
        };
        is_day && self.months.has(at.month())
    }

    /// The first time of a day from this one on.
    fn in_day(&self, at: DateTime) -> Option<DateTime> {
        let mut at = at;
        loop {
            let day = at.date();
            let hour = self.hours.from(at.hour())?;
            if hour > at.hour() {
                at = day.at(hour, 0, 0, 0);
            }
            let Some(minute) = self.minutes.from(at.minute()) else {
                at = next_hour(at)?;
                continue;
            };
            if minute > at.minute() {
                at = day.at(hour, minute, 0, 0);
            }
            match self.seconds.from(at.second()) {
                Some(second) => return Some(day.at(hour, minute, second, 0)),
                None => {
                    let next = at
                        .date()
                        .at(at.hour(), at.minute(), 0, 0)
                        .checked_add(1.minute())
                        .ok()?;
                    at = (next.date() == day).then_some(next)?;
                }
            }
        }
    }
}

fn next_hour(at: DateTime) -> Option<DateTime> {
    let next = at.date().at(at.hour(), 0, 0, 0).checked_add(1.hour()).ok()?;
    (next.date() == at.date()).then_some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(cron: &str, after: &str) -> String {
        let after: Timestamp = after.parse().unwrap();
        let next = cron.parse::<Cron>().unwrap().next_ms(after.as_millisecond());
        next.map_or("never".into(), crate::time::text)
    }

    #[test]
    fn the_next_time_is_the_first_one_after() {
        for (cron, after, expected) in [
            ("* * * * *", "2026-11-23T05:10:42Z", "2026-11-23T05:11:00.000Z"),
            ("*/5 * * * * *", "2026-11-23T05:10:42.5Z", "2026-11-23T05:10:45.000Z"),
            ("*/5 * * * * *", "2026-11-23T05:10:45Z", "2026-11-23T05:10:50.000Z"),
            ("0 0 1 1 *", "2026-11-23T05:10:42Z", "2027-01-01T00:00:00.000Z"),
            ("30 9 * * mon-fri", "2026-11-20T10:00:00Z", "2026-11-23T09:30:00.000Z"),
            ("0 0 29 feb *", "2026-11-23T05:10:42Z", "2028-02-29T00:00:00.000Z"),
            ("0 12 13 * fri", "2026-11-21T00:00:00Z", "2026-11-27T12:00:00.000Z"),
            ("59 59 23 * * 7", "2026-11-22T23:59:59Z", "2026-11-29T23:59:59.000Z"),
            ("15,45 0-6/2 * * *", "2026-11-23T04:45:00Z", "2026-11-23T06:15:00.000Z"),
            ("0 0 31 2 *", "2026-11-23T00:00:00Z", "never"),
        ] {
            assert_eq!(next(cron, after), expected, "{cron}");
        }
    }

    #[test]
    fn what_is_no_cron_is_told_by_its_field() {
        for wrong in [
            "* * * *",
            "60 * * * *",
            "* 24 * * *",
            "5-1 * * * *",
            "*/0 * * * *",
            "x * * * *",
            "",
        ] {
            assert!(wrong.parse::<Cron>().is_err(), "{wrong}");
        }
        assert!("* * * * 8".parse::<Cron>().unwrap_err().contains("0 to 7"));
    }
}
