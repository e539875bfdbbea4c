//! Reads of a concert.

use super::{Concert, ConcertRejection, Zone, ZoneState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng_app::model::{Moment, Query, View};

/// Asks for the zones and their free seats: `GET /api/concert/{id}`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct GetConcert {}

/// A concert, as everybody may see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConcertView {
    /// The concert's title.
    pub title: String,
    /// Prices and free seats, zone by zone.
    pub zones: Vec<ZoneView>,
    /// The number of its events so far: the live feed goes on after it.
    pub as_of: u64,
}

/// A zone and the numbers of its seats.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ZoneView {
    /// The zone, its price and all its seats.
    #[serde(flatten)]
    pub zone: Zone,
    /// Seats that can be held.
    pub free: u32,
    /// Seats that are held and not paid yet.
    pub held: u32,
    /// Seats that are sold.
    pub sold: u32,
    /// Orders on the waiting list.
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
