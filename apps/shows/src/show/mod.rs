//! A show: a title, and numbered seats with their reservations.

mod id;
mod messages;
mod queries;
mod seats;

pub use id::ShowId;
pub use messages::{ShowCommand, ShowEvent, ShowRejection, ShowReply};
pub use queries::{GetShow, SeatStatus, SeatView, ShowView};

use seats::Seats;
use serde::{Deserialize, Serialize};
use throng::model::{CommandAnswer, Entity, Turn};

/// The most seats of a show.
pub const SEATS_MAX: u32 = 100;
/// The price of a seat.
pub const SEAT_PRICE: u32 = 100;

/// A show, by its UUID. It exists once it has been created.
///
/// Its seats are numbered from 0. Its existence is checked first: so creating an existing show is refused as such, whatever its size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Show {
    title: Box<str>,
    price: u32,
    /// The seats; `None` before the show is created.
    seats: Option<Seats>,
}

impl Show {
    /// Returns the seat's number, with true if it is reserved.
    fn is_reserved(&self, seat: i32) -> Result<(u8, bool), ShowRejection> {
        let number = u8::try_from(seat).map_err(|_| ShowRejection::SeatNotExists)?;
        let seats = self.seats.as_ref().ok_or(ShowRejection::SeatNotExists)?;
        let is_reserved = seats.is_reserved(number).ok_or(ShowRejection::SeatNotExists)?;
        Ok((number, is_reserved))
    }

    fn reply(&self) -> ShowReply {
        ShowReply {
            available: self.seats.as_ref().map_or(0, Seats::available),
        }
    }

    fn set(&mut self, seat: u8, is_reserved: bool) {
        let is_there = self.seats.as_mut().is_some_and(|seats| seats.set(seat, is_reserved));
        assert!(is_there, "the show has no seat {seat}");
    }
}

impl Entity for Show {
    const KIND: &'static str = "show";
    const PUBLIC: &'static [&'static str] = &["CreateShow", "ReserveSeat", "CancelSeatReservation"];
    type Id = ShowId;
    type Command = ShowCommand;
    type Event = ShowEvent;
    type Reply = ShowReply;
    type Rejection = ShowRejection;

    fn creates(command: &ShowCommand) -> bool {
        matches!(command, ShowCommand::CreateShow { .. })
    }

    fn decide(&self, command: ShowCommand, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, ShowRejection> {
        match command {
            ShowCommand::CreateShow { .. } if !turn.is_new() => return Err(ShowRejection::ShowAlreadyExists),
            ShowCommand::CreateShow { max_seats, .. } if max_seats > SEATS_MAX => {
                return Err(ShowRejection::TooManySeats);
            }
            ShowCommand::CreateShow { title, max_seats } => turn.emit(ShowEvent::ShowCreated {
                title,
                seats: u8::try_from(max_seats).map_err(|_| ShowRejection::TooManySeats)?,
                price: SEAT_PRICE,
            }),
            ShowCommand::ReserveSeat { seat } => match self.is_reserved(seat)? {
                (_, true) => return Err(ShowRejection::SeatNotAvailable),
                (seat, false) => turn.emit(ShowEvent::SeatReserved { seat }),
            },
            ShowCommand::CancelSeatReservation { seat } => match self.is_reserved(seat)? {
                (_, false) => return Err(ShowRejection::SeatNotReserved),
                (seat, true) => turn.emit(ShowEvent::SeatReservationCancelled { seat }),
            },
        }
        Ok(CommandAnswer::after(Self::reply))
    }

    /// Panics on an impossible history (created twice, a missing seat). The engine then quarantines the show and reports the event.
    fn evolve(&mut self, event: &ShowEvent) {
        match event {
            ShowEvent::ShowCreated { title, seats, price } => {
                assert!(self.seats.is_none(), "the show was created before");
                self.title = title.as_str().into();
                self.price = *price;
                self.seats = Some(Seats::new(*seats));
            }
            ShowEvent::SeatReserved { seat } => self.set(*seat, true),
            ShowEvent::SeatReservationCancelled { seat } => self.set(*seat, false),
        }
    }

    fn heap_bytes(&self) -> usize {
        self.title.len()
    }
}

#[cfg(test)]
mod tests;
