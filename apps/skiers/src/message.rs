//! A ride as a message.

use serde::{Deserialize, Serialize};

use crate::{number::lenient, ride::Ride};

/// A ride in the broker's form: a JSON object with these names, as the class project's server publishes it. That server may pass on a number that
/// its client sent as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RideMessage {
    /// The minute of the ski day.
    #[serde(deserialize_with = "lenient")]
    pub time: u32,
    /// The lift's number.
    #[serde(rename = "liftID", deserialize_with = "lenient")]
    pub lift: u32,
    /// The minutes waited at the lift. Always written, 0 if unknown, because the class project's consumers require it.
    #[serde(rename = "waitTime", default, deserialize_with = "lenient")]
    pub wait: u32,
    /// The skier's number.
    #[serde(rename = "skierID", deserialize_with = "lenient")]
    pub skier: u32,
    /// The day of the season.
    #[serde(deserialize_with = "lenient")]
    pub day: u32,
    /// The season's year.
    #[serde(rename = "seasonID", deserialize_with = "lenient")]
    pub season: u32,
    /// The resort's number.
    #[serde(rename = "resortID", deserialize_with = "lenient")]
    pub resort: u32,
}

impl RideMessage {
    /// Returns the message of a skier's ride.
    #[must_use]
    pub fn new(skier: u32, ride: &Ride) -> Self {
        Self {
            time: ride.time,
            lift: ride.lift,
            wait: ride.wait.unwrap_or(0),
            skier,
            day: ride.day,
            season: ride.season,
            resort: ride.resort,
        }
    }

    /// Returns the ride of the message.
    #[must_use]
    pub fn ride(&self) -> Ride {
        Ride {
            resort: self.resort,
            season: self.season,
            day: self.day,
            time: self.time,
            lift: self.lift,
            wait: Some(self.wait),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ride_has_the_class_projects_names_and_is_read_back() {
        let ride = Ride {
            resort: 56,
            season: 2022,
            day: 12,
            time: 217,
            lift: 21,
            wait: None,
        };
        let message = RideMessage::new(7, &ride);
        assert_eq!(
            serde_json::to_string(&message).unwrap(),
            r#"{"time":217,"liftID":21,"waitTime":0,"skierID":7,"day":12,"seasonID":2022,"resortID":56}"#
        );
        let pretty = serde_json::to_string_pretty(&message).unwrap();
        let read: RideMessage = serde_json::from_str(&pretty).unwrap();
        assert_eq!((read.skier, read.ride()), (7, Ride { wait: Some(0), ..ride }));
        let as_text = pretty.replace(" 217", " \"217\"").replace(" 21,", " \"21\",");
        let read: RideMessage = serde_json::from_str(&as_text).unwrap();
        assert_eq!(read.ride(), Ride { wait: Some(0), ..ride });
    }
}
