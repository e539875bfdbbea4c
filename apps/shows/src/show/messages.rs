//! A show's commands, events, replies and rejections.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng::model::{Event, Rejection};

/// A command of a show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all_fields = "camelCase")]
pub enum ShowCommand {
    /// Creates the show with all seats available. Refused if it exists.
    CreateShow {
        /// The show's title.
        title: String,
        /// The number of seats, at most 100. They are numbered from 0.
        max_seats: u32,
    },
    /// Reserves a seat that is available.
    ReserveSeat {
        /// The seat's number.
        seat: i32,
    },
    /// Gives a reserved seat back.
    CancelSeatReservation {
        /// The seat's number.
        seat: i32,
    },
}

/// An event of a show. Its record in the journal also has the show's id and the time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ShowEvent {
    /// The show was created.
    ShowCreated {
        /// The show's title.
        title: String,
        /// The number of seats. They are numbered from 0, and all are available.
        seats: u8,
        /// The price of each seat.
        price: u32,
    },
    /// A seat was reserved.
    SeatReserved {
        /// The seat's number.
        seat: u8,
    },
    /// A seat was given back.
    SeatReservationCancelled {
        /// The seat's number.
        seat: u8,
    },
}

impl Event for ShowEvent {}

/// The answer to a command: the show's state after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShowReply {
    /// The number of available seats.
    pub available: u32,
}

/// The reason why a show refuses a command. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ShowRejection {
    /// The show was created before.
    #[error("SHOW_ALREADY_EXISTS")]
    ShowAlreadyExists,
    /// The command asks for more than 100 seats.
    #[error("TOO_MANY_SEATS")]
    TooManySeats,
    /// The show has no seat of this number.
    #[error("SEAT_NOT_EXISTS")]
    SeatNotExists,
    /// The seat is reserved.
    #[error("SEAT_NOT_AVAILABLE")]
    SeatNotAvailable,
    /// The seat is not reserved.
    #[error("SEAT_NOT_RESERVED")]
    SeatNotReserved,
}

impl Rejection for ShowRejection {
    fn code(&self) -> &'static str {
        match self {
            Self::ShowAlreadyExists => "show-already-exists",
            Self::TooManySeats => "too-many-seats",
            Self::SeatNotExists => "seat-not-exists",
            Self::SeatNotAvailable => "seat-not-available",
            Self::SeatNotReserved => "seat-not-reserved",
        }
    }

    fn status(&self) -> u16 {
        match self {
            Self::ShowAlreadyExists | Self::SeatNotAvailable | Self::SeatNotReserved => 409,
            Self::TooManySeats | Self::SeatNotExists => 422,
        }
    }

    fn field(&self) -> Option<&'static str> {
        match self {
            Self::ShowAlreadyExists => None,
            Self::TooManySeats => Some("maxSeats"),
            Self::SeatNotExists | Self::SeatNotAvailable | Self::SeatNotReserved => Some("seat"),
        }
    }
}
