//! Times as text in ISO 8601. All are in UTC, like the original's results.

use super::Result;
use super::strftime::Moment;
use crate::host::Arguments;
use crate::run::Run;
use crate::{Error, Map, Value};
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp, ToSpan as _};

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
    Ok(sum(time, spec).map_or(Value::Null, written))
}

/// Adds amounts of units to a time: first months, then days, then shorter units. `None` beyond the year 9999.
fn sum(time: Timestamp, spec: &Map) -> Option<Timestamp> {
    let mut amounts = [0.0; 10];
    for (name, amount) in spec {
        if let Some(unit) = unit(name) {
            amounts[unit] = amount.to_number().unwrap_or(f64::NAN);
        }
    }
    let [
        years,
        quarters,
        months,
        weeks,
        iso_weeks,
        days,
        hours,
        minutes,
        seconds,
        milliseconds,
    ] = amounts;
    let weeks = if weeks == 0.0 || weeks.is_nan() {
        iso_weeks
    } else {
        weeks
    };
    // NaN among the amounts makes their sum NaN, which counts as 0. Halves round away from 0.
    let whole = |number: f64| number.round() as i64;
    let months = 0
        .days()
        .try_months(whole(months + quarters * 3.0 + years * 12.0))
        .ok()?;
    let days = 0.days().try_days(whole(days + weeks * 7.0)).ok()?;
    let milliseconds = milliseconds + seconds * 1_000.0 + minutes * 60_000.0 + hours * 3_600_000.0;
    let date = Offset::UTC.to_datetime(time).checked_add(months).ok()?;
    let date = date.checked_add(days).ok()?.to_zoned(TimeZone::UTC).ok()?;
    let sum = date.timestamp().as_millisecond() as f64 + if milliseconds.is_nan() { 0.0 } else { milliseconds };
    Timestamp::from_millisecond(sum as i64).ok()
}

/// Returns the index of a unit among the amounts. `m` is a minute, `M` a month, `D` a date.
fn unit(name: &str) -> Option<usize> {
    let short = ["y", "Q", "M", "w", "W", "d", "h", "m", "s", "ms"];
    let long = [
        "year",
        "quarter",
        "month",
        "week",
        "isoweek",
        "day",
        "hour",
        "minute",
        "second",
        "millisecond",
    ];
    let of_short = |name: &str| short.iter().position(|short| *short == name);
    if of_short(name).is_some() || name == "D" {
        return of_short(name);
    }
    let name = name.to_ascii_lowercase();
    let singular = name.strip_suffix('s').unwrap_or(&name);
    of_short(&name).or_else(|| long.iter().position(|long| *long == singular))
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
    let moment = Moment {
        time: Offset::UTC.to_datetime(time),
        seconds: time.as_millisecond().div_euclid(1_000),
    };
    Ok(Value::from(moment.format(format)))
}

/// Returns the time of a `schedule … at`, in milliseconds since 1970. The value is such a number, or a text.
pub(crate) fn timestamp_ms(time: &Value, now_ms: i64) -> Option<i64> {
    match time {
        Value::Number(number) if number.is_finite() => Some(*number as i64),
        Value::String(text) => parse(text, now_ms).map(Timestamp::as_millisecond),
        _ => None,
    }
}

fn at_ms(time_ms: i64) -> Timestamp {
    Timestamp::from_millisecond(time_ms).unwrap_or(if time_ms < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

/// Writes a time like JavaScript's `toISOString`: with milliseconds, in UTC.
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

/// Parses a time in full or partial ISO 8601: a date, a date and time with or without an offset (default UTC), or a time of today.
fn parse(text: &str, now_ms: i64) -> Option<Timestamp> {
    let text = text.trim();
    if let Some(time) = text.parse::<Timestamp>().ok().or_else(|| parse_date_time(text)) {
        return Some(time);
    }
    let today = Offset::UTC.to_datetime(at_ms(now_ms)).date();
    let clock = text.strip_prefix('T').unwrap_or(text);
    let is_clock = clock.len() >= 2 && clock.bytes().take(2).all(|byte| byte.is_ascii_digit());
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

/// Parses a date. A month, a year, a day of the year (`2026-300`) and a day of a week (`2026-W12-4`) are dates too.
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
