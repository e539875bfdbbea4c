//! Parses the bodies of requests.

use axum::{body::Bytes, extract::rejection::BytesRejection};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use std::ops::RangeInclusive;

use crate::{
    number::lenient,
    ride::{LIFTS, MINUTES, Refused, ResortDayId, Ride, WAITS},
};

/// A received body, or the reason why it was not received.
pub(super) type Body = Result<Bytes, BytesRejection>;

/// The error for an invalid body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BodyError {
    #[error("Invalid body: {0}")]
    Unreadable(String),
    #[error("Missing parameter: '{0}'")]
    Missing(&'static str),
    #[error("{0}")]
    Invalid(Refused),
}

/// A ride on a lift.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "LiftRide")]
pub(super) struct LiftRide {
    /// The minute of the ski day, 1 to 420.
    #[serde(default)]
    #[schemars(with = "u32", required)]
    time: Value,
    /// The lift's number, from 1.
    #[serde(default, rename = "liftID")]
    #[schemars(with = "u32", required)]
    lift: Value,
    /// The minutes waited at the lift; optional.
    #[serde(default)]
    #[schemars(with = "Option<u32>")]
    wait_time: Value,
}

/// A season to add.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "Season")]
pub(super) struct NewSeason {
    /// The year, in 4 digits.
    #[serde(default)]
    #[schemars(with = "String", required)]
    year: Value,
}

/// Parses the ride in a body.
pub(super) fn ride(body: &Body, day: ResortDayId) -> Result<Ride, BodyError> {
    let LiftRide { time, lift, wait_time } = read(body)?;
    let ResortDayId { resort, season, day } = day;
    Ok(Ride {
        resort,
        season,
        day,
        time: number("time", &time, MINUTES)?,
        lift: number("liftID", &lift, LIFTS)?,
        wait: match wait_time {
            Value::Null => None,
            wait => Some(number("waitTime", &wait, WAITS)?),
        },
    })
}

/// Parses the season in a body.
pub(super) fn season(body: &Body) -> Result<u32, BodyError> {
    let NewSeason { year } = read(body)?;
    let text = match &year {
        Value::Null => return Err(BodyError::Missing("year")),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let is_year = text.len() == 4 && text.bytes().all(|byte| byte.is_ascii_digit());
    let year = text.parse().ok().filter(|_| is_year);
    year.ok_or_else(|| BodyError::Invalid(Refused::invalid("year", shown(&Value::String(text)))))
}

fn read<'a, T: Deserialize<'a>>(body: &'a Body) -> Result<T, BodyError> {
    let bytes = body.as_ref().map_err(|why| BodyError::Unreadable(why.body_text()))?;
    // Serde would accept an array of the fields in their order.
    if bytes.trim_ascii_start().first() == Some(&b'[') {
        return Err(BodyError::Unreadable("an object was expected, not an array".into()));
    }
    serde_json::from_slice(bytes).map_err(|why| BodyError::Unreadable(why.to_string()))
}

fn number(name: &'static str, value: &Value, range: RangeInclusive<u32>) -> Result<u32, BodyError> {
    if value.is_null() {
        return Err(BodyError::Missing(name));
    }
    let number = lenient(value).ok().filter(|number| range.contains(number));
    number.ok_or_else(|| BodyError::Invalid(Refused::invalid(name, shown(value))))
}

/// Returns a value for a message, shortened if it is long.
fn shown(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: ResortDayId = ResortDayId {
        resort: 56,
        season: 2022,
        day: 12,
    };

    fn said(body: &'static str) -> Result<(u32, u32, Option<u32>), String> {
        let ride = ride(&Ok(Bytes::from_static(body.as_bytes())), DAY);
        ride.map(|ride| (ride.time, ride.lift, ride.wait))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_ride_may_leave_out_its_wait() {
        assert_eq!(said(r#"{"time":217,"liftID":21,"waitTime":3}"#), Ok((217, 21, Some(3))));
        assert_eq!(said(r#"{"time":420,"liftID":1}"#), Ok((420, 1, None)));
        assert_eq!(
            said(r#"{"time":1,"liftID":1,"waitTime":0,"more":[]}"#),
            Ok((1, 1, Some(0)))
        );
        assert_eq!(
            said(r#"{"time":"217","liftID":21.0,"waitTime":"3"}"#),
            Ok((217, 21, Some(3))),
            "as the class project's server takes it"
        );
    }

    #[test]
    fn missing_and_wrong_parameters_are_named_in_their_order() {
        for (body, message) in [
            ("{}", "Missing parameter: 'time'"),
            (r#"{"time":null,"liftID":0}"#, "Missing parameter: 'time'"),
            (r#"{"time":1}"#, "Missing parameter: 'liftID'"),
            (r#"{"time":0,"liftID":0}"#, "Invalid value for parameter 'time': 0"),
            (r#"{"time":421,"liftID":1}"#, "Invalid value for parameter 'time': 421"),
            (r#"{"time":-1,"liftID":1}"#, "Invalid value for parameter 'time': -1"),
            (r#"{"time":1.5,"liftID":1}"#, "Invalid value for parameter 'time': 1.5"),
            (
                r#"{"time":"ten","liftID":1}"#,
                "Invalid value for parameter 'time': ten",
            ),
            (
                r#"{"time":1,"liftID":2147483647}"#,
                "Invalid value for parameter 'liftID': 2147483647",
            ),
            (
                r#"{"time":1,"liftID":1,"waitTime":-1}"#,
                "Invalid value for parameter 'waitTime': -1",
            ),
        ] {
            assert_eq!(said(body), Err(message.into()), "{body}");
        }
        for body in ["", "{", "[]", "7", r#"{"time":1,"time":2,"liftID":1}"#] {
            assert!(said(body).unwrap_err().starts_with("Invalid body: "), "{body}");
        }
    }

    #[test]
    fn a_year_has_four_digits() {
        let year = |body: &'static str| season(&Ok(Bytes::from_static(body.as_bytes()))).map_err(|why| why.to_string());
        assert_eq!(year(r#"{"year":"2023"}"#), Ok(2023));
        assert_eq!(year(r#"{"year":2023}"#), Ok(2023));
        assert_eq!(year("{}"), Err("Missing parameter: 'year'".into()));
        for text in ["", "23", "20233", "+202", "year"] {
            let body = format!(r#"{{"year":"{text}"}}"#);
            let refused = season(&Ok(body.into())).unwrap_err().to_string();
            assert_eq!(refused, format!("Invalid value for parameter 'year': {text}"));
        }
    }
}
