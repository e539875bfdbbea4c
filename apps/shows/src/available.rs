//! The shows with free seats: a read model of their events.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::ops::Bound;
use throng::{
    Engine,
    journal::{Error, ViewRange},
    projection::{DurableEvent, Interrupt, Projection, Rows},
};

use crate::show::{Show, ShowEvent, ShowId};

/// The default number of shows on a page.
pub const PAGE_DEFAULT: usize = 100;
/// The most shows on a page.
pub const PAGE_MAX: usize = 1_000;

/// The read model of free seats. It has one row, by id, for each show with free seats.
#[derive(Clone, Copy, Debug, Default)]
pub struct AvailableShows;

impl Projection for AvailableShows {
    const NAME: &'static str = "available-shows";
    type Of = Show;

    fn apply(&self, seen: &DurableEvent<Show>, rows: &mut Rows<'_>) -> Result<(), Interrupt> {
        let key = seen.id.to_string();
        let change = match seen.event {
            ShowEvent::ShowCreated { seats, .. } => i32::from(seats),
            ShowEvent::SeatReserved { .. } => -1,
            ShowEvent::SeatReservationCancelled { .. } => 1,
        };
        let available = rows.json::<i32>(&key)?.unwrap_or(0) + change;
        match available {
            ..0 => Err(Interrupt::poison(format!("the show would have {available} seats left"))),
            0 => {
                rows.remove(key);
                Ok(())
            }
            1.. => rows.put_json(key, &available),
        }
    }
}

/// A show with free seats.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AvailableShow {
    /// The show's id.
    pub show_id: String,
    /// The number of free seats, at least one.
    pub available_seats: u32,
}

/// A page of shows with free seats, in the order of their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AvailablePage {
    /// The shows of this page.
    pub shows: Vec<AvailableShow>,
    /// The start of the next page; `None` on the last.
    pub after: Option<String>,
}

/// Returns the shows with free seats after an id, or from the first without one. The page lags slightly behind the shows.
///
/// # Errors
///
/// The read model cannot be read.
pub async fn page(engine: &Engine, after: Option<ShowId>, limit: usize) -> Result<AvailablePage, Error> {
    let limit = limit.clamp(1, PAGE_MAX);
    let range = ViewRange {
        from: after.map_or(Bound::Unbounded, |id| Bound::Excluded(id.to_string().into_bytes())),
        rows_max: limit + 1,
        ..ViewRange::default()
    };
    let rows = engine.read_model::<AvailableShows>().scan(range).await?;
    let has_more = rows.len() > limit;
    let shows: Vec<AvailableShow> = rows
        .into_iter()
        .take(limit)
        .map(|(key, value)| AvailableShow {
            show_id: String::from_utf8_lossy(&key).into_owned(),
            available_seats: serde_json::from_slice(&value).unwrap_or_default(),
        })
        .collect();
    let after = shows.last().filter(|_| has_more).map(|show| show.show_id.clone());
    Ok(AvailablePage { shows, after })
}
