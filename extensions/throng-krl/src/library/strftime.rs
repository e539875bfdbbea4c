//! Formatting of times by directives like `%Y-%m-%d`, with English names.

use jiff::civil::DateTime;
use std::fmt::Write as _;

const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// The name of the only supported time zone, as JavaScript writes it.
const ZONE: &str = "Coordinated Universal Time";

/// A time in UTC, and its seconds since 1970.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    pub(super) time: DateTime,
    pub(super) seconds: i64,
}

impl Moment {
    /// Writes the time in a format. An unknown directive is copied unchanged.
    pub(super) fn format(self, format: &str) -> String {
        let mut out = String::with_capacity(format.len() * 2);
        self.write(&mut out, format);
        out
    }

    fn write(self, out: &mut String, format: &str) {
        let mut characters = format.chars();
        // A colon, once seen, applies to all later offsets, as in the original.
        let mut has_colon = false;
        while let Some(character) = characters.next() {
            if character != '%' {
                out.push(character);
                continue;
            }
            let mut padding = None;
            let directive = loop {
                match characters.next() {
                    Some('-') => padding = Some(""),
                    Some('_') => padding = Some(" "),
                    Some('0') => padding = Some("0"),
                    Some(':') => has_colon = true,
                    other => break other,
                }
            };
            match directive {
                Some('z') => out.push_str(if has_colon { "+00:00" } else { "+0000" }),
                Some(directive) => self.directive(out, directive, padding),
                None => {}
            }
        }
    }

    fn directive(self, out: &mut String, directive: char, padding: Option<&str>) {
        let (date, clock) = (self.time.date(), self.time.time());
        let weekday = date.weekday().to_sunday_zero_offset();
        let (day_name, month_name) = (
            DAYS[usize::from(weekday.unsigned_abs())],
            MONTHS[usize::from(date.month().unsigned_abs()) - 1],
        );
        let (hour, hour_of_12) = (clock.hour(), (clock.hour() + 11) % 12 + 1);
        let two = |out: &mut String, number: i16, default: &str| {
            let padding = padding.unwrap_or(default);
            let padding = if (0..10).contains(&number) { padding } else { "" };
            write!(out, "{padding}{number}")
        };
        // The number of whole weeks since the first Sunday of the year, or with `from` 6, since the first Monday.
        let week = |from: i8| (date.day_of_year() + 6 - i16::from((weekday + from) % 7)) / 7;
        // Writing to a text cannot fail.
        let _ = match directive {
            'A' => write!(out, "{day_name}"),
            'a' => write!(out, "{}", &day_name[..3]),
            'B' => write!(out, "{month_name}"),
            'b' | 'h' => write!(out, "{}", &month_name[..3]),
            'C' => two(out, date.year().div_euclid(100), "0"),
            'Y' => write!(out, "{}", date.year()),
            'y' => two(out, date.year() % 100, "0"),
            'm' => two(out, date.month().into(), "0"),
            'd' => two(out, date.day().into(), "0"),
            'e' => two(out, date.day().into(), " "),
            'o' => write!(out, "{}{}", date.day(), ordinal(date.day())),
            'j' => write!(out, "{:03}", date.day_of_year()),
            'U' => two(out, week(0), "0"),
            'W' => two(out, week(6), "0"),
            'u' => write!(out, "{}", (weekday + 6) % 7 + 1),
            'w' => write!(out, "{weekday}"),
            'H' => two(out, hour.into(), "0"),
            'k' => two(out, hour.into(), " "),
            'I' => two(out, hour_of_12.into(), "0"),
            'l' => two(out, hour_of_12.into(), " "),
            'M' => two(out, clock.minute().into(), "0"),
            'S' => two(out, clock.second().into(), "0"),
            'L' => write!(out, "{:03}", clock.millisecond()),
            's' => write!(out, "{}", self.seconds),
            'p' => write!(out, "{}", if hour < 12 { "AM" } else { "PM" }),
            'P' => write!(out, "{}", if hour < 12 { "am" } else { "pm" }),
            'Z' => write!(out, "{ZONE}"),
            'n' => writeln!(out),
            't' => write!(out, "\t"),
            '%' => write!(out, "%"),
            other => {
                match composite(other) {
                    Some(format) => self.write(out, format),
                    None => out.extend(['%', other]),
                }
                Ok(())
            }
        };
    }
}

/// Returns the expansion of a directive that stands for others.
fn composite(directive: char) -> Option<&'static str> {
    Some(match directive {
        'c' => "%a %d %b %Y %X %Z",
        'D' | 'x' => "%m/%d/%y",
        'F' => "%Y-%m-%d",
        'R' => "%H:%M",
        'T' => "%H:%M:%S",
        'r' | 'X' => "%I:%M:%S %p",
        'v' => "%e-%b-%Y",
        _ => return None,
    })
}

/// Returns the ending of a day's ordinal: `st` in `1st`.
fn ordinal(day: i8) -> &'static str {
    match day {
        1 | 21 | 31 => "st",
        2 | 22 => "nd",
        3 | 23 => "rd",
        _ => "th",
    }
}
