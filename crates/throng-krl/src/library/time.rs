//! Times, as text in ISO 8601. All are UTC, as in what the original returns.

use super::Result;
use crate::host::Arguments;
use crate::run::Run;
use crate::{Error, Map, Value};
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{Offset, TimeZone};
use jiff::{Span, Timestamp, ToSpan as _};

pub(super) fn now(run: &mut Run<'_>, arguments: &Arguments) -> Result<Value> {
    let options = arguments.get(0, "opts");
    if options.is_true() && options.as_map().is_none() {
        let message = format!("time:now was given {} instead of an opts map", options.text());
        return Err(Error::type_error(message).into());
    }
    Ok(written(at_ms(run.time_ms())))
}

pub(super) fn new(run: &mut Run<'_>, arguments: &Arguments) -> Result<Value> {
    let date = arguments.get(0, "date");
    if !date.is_true() {
        return Err(Error::value_error("time:new needs a date string").into());
    }
    if let Value::Number(number) = date {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a number beyond all times saturates, and is refused"
        )]
        let time = Timestamp::from_millisecond(number as i64);
        return match time {
            Ok(time) => Ok(written(time)),
            Err(_) => Err(Error::value_error("time:new was given a number beyond all times").into()),
        };
    }
    Ok(written(parsed(&date, "new", run.time_ms())?))
}

pub(super) fn add(run: &mut Run<'_>, arguments: &Arguments) -> Result<Value> {
    let (date, spec) = (arguments.get(0, "date"), arguments.get(1, "spec"));
    if !date.is_true() {
        return Err(Error::value_error("time:add needs a date string").into());
    }
    if !spec.is_true() {
        return Err(Error::value_error("time:add needs a spec map").into());
    }
    let time = parsed(&date, "add", run.time_ms())?;
    let Some(spec) = spec.as_map() else {
        let message = format!("time:add was given {} instead of a spec map", spec.text());
        return Err(Error::type_error(message).into());
    };
    let sum = span(spec).and_then(|span| time.to_zoned(TimeZone::UTC).checked_add(span).ok());
    match sum {
        Some(sum) => Ok(written(sum.timestamp())),
        None => Err(Error::value_error("time:add leads beyond all times").into()),
    }
}

/// What a map of units and amounts comes to. Unknown units count for nothing, as in the original.
fn span(spec: &Map) -> Option<Span> {
    let amount = |names: &[&str]| {
        let value = names.iter().find_map(|name| spec.get(name));
        value.and_then(Value::to_number).unwrap_or(0.0)
    };
    #[expect(clippy::cast_possible_truncation, reason = "saturates, and is refused")]
    let whole = |names: &[&str]| (amount(names) + 0.5).floor() as i64;
    let quarters = whole(&["quarters", "quarter", "Q"]).checked_mul(3)?;
    let milliseconds = amount(&["hours", "hour", "h"]) * 3_600_000.0
        + amount(&["minutes", "minute", "m"]) * 60_000.0
        + amount(&["seconds", "second", "s"]) * 1_000.0
        + amount(&["milliseconds", "millisecond", "ms"]);
    #[expect(clippy::cast_possible_truncation, reason = "saturates, and is refused")]
    let milliseconds = milliseconds as i64;
    let dates = 0.days().try_years(whole(&["years", "year", "y"])).ok()?;
    let dates = dates
        .try_months(whole(&["months", "month", "M"]).checked_add(quarters)?)
        .ok()?;
    let dates = dates.try_weeks(whole(&["weeks", "week", "w"])).ok()?;
    let dates = dates.try_days(whole(&["days", "day", "d"])).ok()?;
    // A span has one sign for all its units.
    let zero: DateTime = Date::constant(2000, 1, 1).at(0, 0, 0, 0);
    if (dates.signum() >= 0) == (milliseconds >= 0) || dates.is_zero() || milliseconds == 0 {
        return dates.try_milliseconds(milliseconds).ok();
    }
    let days = dates.to_duration(zero).ok()?.as_millis();
    let all = i64::try_from(days).ok()?.checked_add(milliseconds)?;
    0.days().try_milliseconds(all).ok()
}

pub(super) fn strftime(run: &mut Run<'_>, arguments: &Arguments) -> Result<Value> {
    let (date, format) = (arguments.get(0, "date"), arguments.get(1, "fmt"));
    if !date.is_true() {
        return Err(Error::value_error("time:strftime needs a date string").into());
    }
    if !format.is_true() {
        return Err(Error::value_error("time:strftime needs a fmt string").into());
    }
    let time = parsed(&date, "strftime", run.time_ms())?;
    let Some(format) = format.as_str() else {
        let message = format!("time:strftime was given {} instead of a fmt string", format.text());
        return Err(Error::type_error(message).into());
    };
    match jiff::fmt::strtime::format(format, &time.to_zoned(TimeZone::UTC)) {
        Ok(text) => Ok(Value::from(text)),
        Err(error) => Err(Error::value_error(format!("time:strftime cannot use the format {format}: {error}")).into()),
    }
}

/// The time of a `schedule … at`, in milliseconds since 1970: a number of them, or a text.
pub(crate) fn timestamp_ms(time: &Value, now_ms: i64) -> Option<i64> {
    match time {
        #[expect(clippy::cast_possible_truncation, reason = "a number beyond all times saturates")]
        Value::Number(number) if number.is_finite() => Some(*number as i64),
        Value::String(text) => parse(text, now_ms).map(Timestamp::as_millisecond),
        _ => None,
    }
}

fn at_ms(time_ms: i64) -> Timestamp {
    Timestamp::from_millisecond(time_ms).unwrap_or(if time_ms < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

/// As JavaScript's `toISOString`: with milliseconds, in UTC.
fn written(time: Timestamp) -> Value {
    let time = Offset::UTC.to_datetime(time);
    let (date, clock) = (time.date(), time.time());
    let year = date.year();
    let year = if (0..=9999).contains(&year) {
        format!("{year:04}")
    } else {
        format!("-{:06}", -i32::from(year))
    };
    let (month, day, hour) = (date.month(), date.day(), clock.hour());
    let (minute, second, millisecond) = (clock.minute(), clock.second(), clock.millisecond());
    Value::from(format!(
        "{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z"
    ))
}

fn parsed(date: &Value, function: &str, now_ms: i64) -> Result<Timestamp> {
    if let Some(time) = parse(&date.text(), now_ms) {
        return Ok(time);
    }
    let text = date.text();
    Err(if matches!(date, Value::String(_)) {
        Error::value_error(format!("time:{function} was given an invalid date string ({text})"))
    } else {
        Error::type_error(format!("time:{function} was given {text} instead of a date string"))
    }
    .into())
}

/// A time in ISO 8601, in full or in part: a date, a date and a time, with an offset or without (UTC), or a time of today.
fn parse(text: &str, now_ms: i64) -> Option<Timestamp> {
    let text = text.trim();
    if let Some(time) = text.parse::<Timestamp>().ok().or_else(|| parse_date_time(text)) {
        return Some(time);
    }
    let today = Offset::UTC.to_datetime(at_ms(now_ms)).date();
    let clock = text.strip_prefix('T').unwrap_or(text);
    let is_clock = clock.len() >= 4 && clock.bytes().take(2).all(|byte| byte.is_ascii_digit());
    if !is_clock {
        return None;
    }
    let whole = format!("{today}T{clock}");
    whole.parse::<Timestamp>().ok().or_else(|| parse_date_time(&whole))
}

fn parse_date_time(text: &str) -> Option<Timestamp> {
    let utc = |time: DateTime| time.to_zoned(TimeZone::UTC).ok().map(|time| time.timestamp());
    if let Ok(time) = text.parse::<DateTime>() {
        return utc(time);
    }
    let (date, clock) = text.split_once(['T', ' ']).unwrap_or((text, ""));
    let date = parse_date(date)?;
    let clock = if clock.is_empty() {
        Time::midnight()
    } else {
        clock.parse().ok()?
    };
    utc(date.to_datetime(clock))
}

/// A date: also a month, a year, a day of a year (`2026-300`) or of a week (`2026-W12-4`).
fn parse_date(text: &str) -> Option<Date> {
    let text = &*text.replace('-', "");
    if !text.is_ascii() {
        return None;
    }
    if let Some((year, week)) = text.split_once('W') {
        let (week, day) = week.split_at_checked(2)?;
        let day = if day.is_empty() { "1" } else { day };
        return format!("{year}-W{week}-{day}")
            .parse::<jiff::civil::ISOWeekDate>()
            .ok()
            .map(|week| week.date());
    }
    let number = |range: std::ops::Range<usize>| text.get(range).and_then(|digits| digits.parse::<i16>().ok());
    let small = |range| number(range).and_then(|number| i8::try_from(number).ok());
    let year = number(0..4)?;
    match text.len() {
        4 => Date::new(year, 1, 1).ok(),
        6 => Date::new(year, small(4..6)?, 1).ok(),
        7 => Date::new(year, 1, 1)
            .ok()?
            .checked_add(i64::from(number(4..7)? - 1).days())
            .ok(),
        8 => Date::new(year, small(4..6)?, small(6..8)?).ok(),
        _ => None,
    }
}
