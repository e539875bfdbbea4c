//! The queries of a concert.

use super::{Concert, ConcertRejection, Zone, ZoneState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng_app::model::{Moment, Query, View};

/// The query for the zones and their free seats: `GET /api/concert/{id}`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct GetConcert {}

/// The public view of a concert.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConcertView {
    /// The concert's title.
    pub title: String,
    /// The zones, with prices and free seats.
    pub zones: Vec<ZoneView>,
    /// The number of events so far. The live feed continues after it.
    pub as_of: u64,
}

/// A zone, with the counts of its seats.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ZoneView {
    /// The zone, its price and all its seats.
    #[serde(flatten)]
    pub zone: Zone,
    /// The number of free seats.
    pub free: u32,
    /// The number of seats that are held and not paid yet.
    pub held: u32,
    /// The number of sold seats.
    pub sold: u32,
    /// The number of orders on the waiting list.
    pub waiting: u32,
}

impl From<&ZoneState> for ZoneView {
    fn from(of: &ZoneState) -> Self {
        let free = of.seats.free();
        Self {
            zone: of.zone.clone(),
            free,
            held: of.zone.seats - free - of.sold,
            sold: of.sold,
            waiting: of.waiting.len() as u32,
        }
    }
}

impl Query<Concert> for GetConcert {
    const NAME: &'static str = View::NAME;
    type Answer = ConcertView;

    fn answer(self, concert: &Concert, moment: &Moment<'_, Concert>) -> Result<ConcertView, ConcertRejection> {
        Ok(ConcertView {
            title: concert.title.clone(),
            zones: concert.zones.iter().map(ZoneView::from).collect(),
            as_of: moment.seq,
        })
    }
}
