//! The original's sets in Redis.

use serde::Serialize;
use throng::projection::DurableEvent;
use throng_redis::{Outbound, redis::Cmd};

use crate::skier::{Skier, SkierEvent};

/// Keeps rides as the original's two consumers do, in two kinds of sets:
///
/// - for each skier, `SADD <skierID> {liftID,time,waitTime,day,seasonID,resortID}`,
/// - for each day of a season, `SADD "<seasonID>:<day>" {liftID,time,waitTime,skierID,resortID}`.
///
/// The elements are exactly the original's texts, line breaks included. So a ride that an original consumer has kept already stays one element.
///
/// Two identical rides are one element of a set, as in the original. The service's own answers count both.
#[derive(Clone, Copy, Debug, Default)]
pub struct OriginalSets;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OfSkier {
    #[serde(rename = "liftID")]
    lift: u32,
    time: u32,
    wait_time: u32,
    day: u32,
    #[serde(rename = "seasonID")]
    season: u32,
    #[serde(rename = "resortID")]
    resort: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OfDay {
    #[serde(rename = "liftID")]
    lift: u32,
    time: u32,
    wait_time: u32,
    #[serde(rename = "skierID")]
    skier: u32,
    #[serde(rename = "resortID")]
    resort: u32,
}

/// True for the keys of the sets.
pub(crate) fn owns_set_key(key: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (first, second) = key.split_once(':').unwrap_or((key, "0"));
    is_number(first) && is_number(second)
}

impl Outbound for OriginalSets {
    const NAME: &'static str = "original-sets";
    const VERSION: u32 = 2;
    type Of = Skier;
    type Item = Vec<Cmd>;

    fn map(&self, seen: &DurableEvent<Skier>) -> Option<Vec<Cmd>> {
        let SkierEvent::Rode(ride) = seen.event;
        let wait_time = ride.wait.unwrap_or_default();
        let of_skier = OfSkier {
            lift: ride.lift,
            time: ride.time,
            wait_time,
            day: ride.day,
            season: ride.season,
            resort: ride.resort,
        };
        let of_day = OfDay {
            lift: ride.lift,
            time: ride.time,
            wait_time,
            skier: seen.id.0,
            resort: ride.resort,
        };
        // Serializing numbers cannot fail.
        let of_skier = serde_json::to_string_pretty(&of_skier).ok()?;
        let of_day = serde_json::to_string_pretty(&of_day).ok()?;
        Some(vec![
            Cmd::sadd(seen.id.0, of_skier),
            Cmd::sadd(format!("{}:{}", ride.season, ride.day), of_day),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_told_from_the_other_keys_of_the_database() {
        for own in ["7", "2022:12"] {
            assert!(owns_set_key(own), "{own}");
        }
        for other in ["", "7:", "skier:7", "day:56:2022:12", "2022:12:1", "resorts"] {
            assert!(!owns_set_key(other), "{other}");
        }
    }
}
