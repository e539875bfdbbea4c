//! A concert: zones of seats, the orders that hold or have bought them, and a waiting list for each zone.
//!
//! Only the concert assigns seats. It gives no seat twice, since it handles one command after another. Returned seats go to the waiting list first,
//! in its order. No order overtakes the first one on the list, even if fewer seats would be enough for it.

mod messages;
mod queries;
mod seats;
#[cfg(test)]
mod tests;

pub use messages::{ConcertCommand, ConcertEvent, ConcertRejection, ConcertReply, Offer, Zone};
pub use queries::{ConcertView, GetConcert, ZoneView};

use crate::order::{Order, OrderCommand};
use seats::Seats;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use throng_app::model::{CommandAnswer, Entity, Turn};

/// The default time to pay for held seats, in seconds.
pub const HOLD_SECS: u32 = 600;
const HOLD_SECS_MAX: u32 = 3_600;
const ZONES_MAX: usize = 20;
const SEATS_MAX: u32 = 50_000;
const CENTS_MAX: u64 = 100_000_000;
/// The most orders on the waiting list of a zone.
const WAITING_MAX: usize = 10_000;

/// A concert's state.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Concert {
    title: String,
    hold_secs: u32,
    zones: Vec<ZoneState>,
    /// The orders, by id.
    orders: BTreeMap<String, Place>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct ZoneState {
    zone: Zone,
    seats: Seats,
    sold: u32,
    waiting: VecDeque<Waiting>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Waiting {
    order: String,
    tickets: u32,
}

/// An order's place in the concert.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Place {
    zone: String,
    /// The seats; empty while the order waits.
    seats: Vec<u32>,
    is_sold: bool,
}

impl Concert {
    fn zone(&self, name: &str) -> Option<&ZoneState> {
        self.zones.iter().find(|of| of.zone.name == name)
    }

    fn zone_mut(&mut self, name: &str) -> &mut ZoneState {
        let of = self.zones.iter_mut().find(|of| of.zone.name == name);
        of.expect("an event names a zone of the concert")
    }

    fn offer(&self, zone: &Zone, seats: Vec<u32>) -> Offer {
        Offer {
            cents: zone.cents * seats.len() as u64,
            seats,
            hold_secs: self.hold_secs,
        }
    }

    fn hold(
        &self,
        of: &ZoneState,
        asked: Waiting,
        waits: bool,
        turn: &mut Turn<'_, Self>,
    ) -> Result<ConcertReply, ConcertRejection> {
        let (zone, Waiting { order, tickets }) = (of.zone.name.clone(), asked);
        match of.seats.lowest(tickets).filter(|_| of.waiting.is_empty()) {
            Some(seats) => {
                let offer = self.offer(&of.zone, seats.clone());
                let free = of.seats.free() - tickets;
                turn.emit(ConcertEvent::SeatsHeld {
                    order,
                    zone,
                    seats,
                    free,
                });
                Ok(ConcertReply::Held(offer))
            }
            None if !waits || tickets > of.zone.seats => Err(ConcertRejection::SoldOut { zone, tickets }),
            None if of.waiting.len() >= WAITING_MAX => Err(ConcertRejection::ListIsFull { zone }),
            None => {
                turn.emit(ConcertEvent::WaitListed { order, zone, tickets });
                let place = of.waiting.len() as u32 + 1;
                Ok(ConcertReply::Waiting { place })
            }
        }
    }

    /// Takes back an order's seats, and offers them to the waiting orders, in their order.
    fn release(&self, order: String, of: &ZoneState, place: &Place, turn: &mut Turn<'_, Self>) {
        let mut seats = of.seats.clone();
        seats.give_back(&place.seats);
        let waiting = of.waiting.iter().filter(|waiting| waiting.order != order);
        turn.emit(ConcertEvent::Released {
            order: order.clone(),
            zone: of.zone.name.clone(),
            seats: place.seats.clone(),
            free: seats.free(),
        });
        for next in waiting {
            let Some(found) = seats.lowest(next.tickets) else { break };
            seats.take(&found);
            let offer = self.offer(&of.zone, found.clone());
            turn.emit(ConcertEvent::SeatsHeld {
                order: next.order.clone(),
                zone: of.zone.name.clone(),
                seats: found,
                free: seats.free(),
            });
            turn.send::<Order>(next.order.clone(), OrderCommand::TakeOffer(offer));
        }
    }
}

impl Entity for Concert {
    const KIND: &'static str = "concert";
    const PUBLIC: &'static [&'static str] = &["announce"];
    type Id = String;
    type Command = ConcertCommand;
    type Event = ConcertEvent;
    type Reply = ConcertReply;
    type Rejection = ConcertRejection;

    fn creates(command: &ConcertCommand) -> bool {
        matches!(command, ConcertCommand::Announce { .. })
    }

    fn decide(
        &self,
        command: ConcertCommand,
        turn: &mut Turn<'_, Self>,
    ) -> Result<CommandAnswer<Self>, ConcertRejection> {
        match command {
            ConcertCommand::Announce { .. } if !turn.is_new() => return Err(ConcertRejection::AlreadyAnnounced),
            ConcertCommand::Announce {
                title,
                zones,
                hold_secs,
            } => {
                let hold_secs = hold_secs.unwrap_or(HOLD_SECS);
                check(&zones, hold_secs)?;
                turn.emit(ConcertEvent::Announced {
                    title,
                    zones,
                    hold_secs,
                });
            }
            ConcertCommand::Hold { order, .. } if self.orders.contains_key(&order) => {
                return Err(ConcertRejection::HasAsked);
            }
            ConcertCommand::Hold {
                order,
                zone,
                tickets,
                waits,
            } => {
                let of = self.zone(&zone).ok_or(ConcertRejection::NoSuchZone { zone })?;
                let asked = Waiting { order, tickets };
                return self.hold(of, asked, waits, turn).map(CommandAnswer::Now);
            }
            ConcertCommand::Sell { order } => {
                let place = self.orders.get(&order);
                if place.is_some_and(|place| !place.seats.is_empty() && !place.is_sold) {
                    turn.emit(ConcertEvent::SeatsSold { order });
                }
            }
            ConcertCommand::Release { order } => {
                if let Some(place) = self.orders.get(&order)
                    && let Some(of) = self.zone(&place.zone)
                {
                    self.release(order, of, place, turn);
                }
            }
        }
        Ok(CommandAnswer::Now(ConcertReply::Done))
    }

    fn evolve(&mut self, event: &ConcertEvent) {
        match event {
            ConcertEvent::Announced {
                title,
                zones,
                hold_secs,
            } => {
                (self.title, self.hold_secs) = (title.clone(), *hold_secs);
                let state = |zone: &Zone| ZoneState {
                    zone: zone.clone(),
                    seats: Seats::new(zone.seats),
                    sold: 0,
                    waiting: VecDeque::new(),
                };
                self.zones = zones.iter().map(state).collect();
            }
            ConcertEvent::SeatsHeld { order, zone, seats, .. } => {
                let of = self.zone_mut(zone);
                of.seats.take(seats);
                of.waiting.retain(|waiting| waiting.order != *order);
                let place = Place {
                    zone: zone.clone(),
                    seats: seats.clone(),
                    is_sold: false,
                };
                self.orders.insert(order.clone(), place);
            }
            ConcertEvent::WaitListed { order, zone, tickets } => {
                let waiting = Waiting {
                    order: order.clone(),
                    tickets: *tickets,
                };
                self.zone_mut(zone).waiting.push_back(waiting);
                let place = Place {
                    zone: zone.clone(),
                    seats: Vec::new(),
                    is_sold: false,
                };
                self.orders.insert(order.clone(), place);
            }
            ConcertEvent::SeatsSold { order } => {
                if let Some(place) = self.orders.get_mut(order) {
                    place.is_sold = true;
                    let (zone, sold) = (place.zone.clone(), place.seats.len() as u32);
                    self.zone_mut(&zone).sold += sold;
                }
            }
            ConcertEvent::Released { order, zone, seats, .. } => {
                let was_sold = self.orders.remove(order).is_some_and(|place| place.is_sold);
                let of = self.zone_mut(zone);
                of.seats.give_back(seats);
                of.waiting.retain(|waiting| waiting.order != *order);
                if was_sold {
                    of.sold -= seats.len() as u32;
                }
            }
        }
    }

    fn heap_bytes(&self) -> usize {
        let of = |of: &ZoneState| 128 + of.seats.heap_bytes() + of.waiting.len() * 80;
        self.orders.len() * 160 + self.zones.iter().map(of).sum::<usize>()
    }
}

fn check(zones: &[Zone], hold_secs: u32) -> Result<(), ConcertRejection> {
    let names: BTreeSet<&str> = zones.iter().map(|zone| zone.name.as_str()).collect();
    let is_zone = |zone: &Zone| {
        !zone.name.is_empty() && (1..=SEATS_MAX).contains(&zone.seats) && (1..=CENTS_MAX).contains(&zone.cents)
    };
    let why = match () {
        () if !(1..=ZONES_MAX).contains(&zones.len()) => format!("a concert has 1 to {ZONES_MAX} zones"),
        () if names.len() < zones.len() => "two zones have one name".into(),
        () if !zones.iter().all(is_zone) => {
            format!("a zone has a name, 1 to {SEATS_MAX} seats, and a price of 1 to {CENTS_MAX} cents")
        }
        () if !(1..=HOLD_SECS_MAX).contains(&hold_secs) => format!("seats are held 1 to {HOLD_SECS_MAX} seconds"),
        () => return Ok(()),
    };
    Err(ConcertRejection::Invalid { why })
}
