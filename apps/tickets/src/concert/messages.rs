//! The messages of a concert: commands, events, replies and rejections.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng_app::model::{Event, Rejection};

/// A zone of a concert: seats with one price.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Zone {
    /// The name, unique within the concert.
    pub name: String,
    /// The price of a seat, in cents.
    pub cents: u64,
    /// The number of seats. They are numbered from 1.
    pub seats: u32,
}

/// A command of a concert.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConcertCommand {
    /// Puts the concert on sale.
    Announce {
        /// The concert's title.
        title: String,
        /// The zones, at most 20.
        zones: Vec<Zone>,
        /// The time to pay for held seats, in seconds: at most an hour, ten minutes by default.
        #[serde(default)]
        hold_secs: Option<u32>,
    },
    /// Holds seats for an order, or puts it on the waiting list. Only orders send this.
    Hold {
        /// The order's id.
        order: String,
        /// The zone's name.
        zone: String,
        /// The number of seats.
        tickets: u32,
        /// True if the order waits when there are too few seats.
        waits: bool,
    },
    /// Sells the held seats. Only orders send this.
    Sell {
        /// The order's id.
        order: String,
    },
    /// Gives back the order's seats, or its place on the waiting list. Only orders send this.
    Release {
        /// The order's id.
        order: String,
    },
}

/// An event of a concert.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConcertEvent {
    /// The concert is on sale.
    Announced {
        /// The concert's title.
        title: String,
        /// The zones, with prices and numbers of seats.
        zones: Vec<Zone>,
        /// The time to pay for held seats, in seconds.
        hold_secs: u32,
    },
    /// Seats are held for an order. If it was waiting, it waits no longer.
    SeatsHeld {
        /// The order's id.
        order: String,
        /// The zone's name.
        zone: String,
        /// The numbers of the seats.
        seats: Vec<u32>,
        /// The number of seats of the zone that are still free.
        free: u32,
    },
    /// The order joined the end of the zone's waiting list.
    WaitListed {
        /// The order's id.
        order: String,
        /// The zone's name.
        zone: String,
        /// The number of seats it waits for.
        tickets: u32,
    },
    /// The held seats are sold.
    SeatsSold {
        /// The order's id.
        order: String,
    },
    /// The order gave back its seats, or left the waiting list.
    Released {
        /// The order's id.
        order: String,
        /// The zone's name.
        zone: String,
        /// The numbers of the seats; none if it was waiting.
        seats: Vec<u32>,
        /// The number of seats of the zone that are free now.
        free: u32,
    },
}

impl Event for ConcertEvent {}

/// Seats held for an order until it has paid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Offer {
    /// The numbers of the seats.
    pub seats: Vec<u32>,
    /// The price of all of them, in cents.
    pub cents: u64,
    /// The time to pay for them, in seconds.
    pub hold_secs: u32,
}

/// The reply of a concert.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConcertReply {
    /// The command is done.
    Done,
    /// The seats are held.
    Held(Offer),
    /// The order is on the waiting list.
    Waiting {
        /// The place, from 1.
        place: u32,
    },
}

/// A refusal of a concert.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum ConcertRejection {
    /// The concert was announced before.
    #[error("the concert is on sale already")]
    AlreadyAnnounced,
    /// The announcement has no zones, too many zones, two zones of one name, or a number out of bounds.
    #[error("{why}")]
    Invalid {
        /// The field and its fault.
        why: String,
    },
    /// The concert has no such zone.
    #[error("the concert has no zone {zone:?}")]
    NoSuchZone {
        /// The requested zone.
        zone: String,
    },
    /// Fewer seats are free, or other orders wait for them.
    #[error("there are not {tickets} free seats in {zone:?}")]
    SoldOut {
        /// The zone's name.
        zone: String,
        /// The requested number of seats.
        tickets: u32,
    },
    /// The waiting list is full.
    #[error("the waiting list of {zone:?} is full")]
    ListIsFull {
        /// The zone's name.
        zone: String,
    },
    /// The order has seats already, or waits for them.
    #[error("the order has asked before")]
    HasAsked,
}

impl Rejection for ConcertRejection {
    fn code(&self) -> &'static str {
        match self {
            Self::AlreadyAnnounced => "already-announced",
            Self::Invalid { .. } => "invalid",
            Self::NoSuchZone { .. } => "no-such-zone",
            Self::SoldOut { .. } => "sold-out",
            Self::ListIsFull { .. } => "list-is-full",
            Self::HasAsked => "has-asked",
        }
    }

    fn status(&self) -> u16 {
        match self {
            Self::Invalid { .. } => 422,
            _ => 409,
        }
    }
}
