//! The queries of a show.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng::model::{Moment, Query, View};

use super::{Seats, Show, ShowRejection};

/// The query `view`: the show with all its seats.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct GetShow {}

/// The answer to [`GetShow`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShowView {
    /// The show's id.
    pub id: String,
    /// The show's title.
    pub title: String,
    /// All seats, in the order of their numbers.
    pub seats: Vec<SeatView>,
}

/// A seat in a show's view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SeatView {
    /// The number, from 0.
    pub number: u8,
    /// The status of the seat.
    pub status: SeatStatus,
    /// The price of the seat.
    pub price: u32,
}

/// The status of a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum SeatStatus {
    /// The seat can be reserved.
    Available,
    /// The seat is reserved.
    Reserved,
}

impl Query<Show> for GetShow {
    const NAME: &'static str = View::NAME;
    type Answer = ShowView;

    fn answer(self, show: &Show, moment: &Moment<'_, Show>) -> Result<ShowView, ShowRejection> {
        let view = |seats: &Seats| {
            (0..seats.count())
                .map(|number| SeatView {
                    number,
                    status: match seats.is_reserved(number) {
                        Some(true) => SeatStatus::Reserved,
                        _ => SeatStatus::Available,
                    },
                    price: show.price,
                })
                .collect()
        };
        Ok(ShowView {
            id: moment.id.to_string(),
            title: show.title.to_string(),
            seats: show.seats.as_ref().map(view).unwrap_or_default(),
        })
    }
}
