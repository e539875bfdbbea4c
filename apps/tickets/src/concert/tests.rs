//! Tests of the concert without an engine.

use super::*;
use throng_app::{Done, Subject};

fn zone(name: &str, seats: u32) -> Zone {
    Zone {
        name: name.into(),
        cents: 5_000,
        seats,
    }
}

fn concert(seats: u32) -> Subject<Concert> {
    let announced = ConcertEvent::Announced {
        title: "Hamlet".into(),
        zones: vec![zone("stalls", seats)],
        hold_secs: HOLD_SECS,
    };
    Subject::given("hamlet", [announced])
}

fn hold(order: &str, tickets: u32, waits: bool) -> ConcertCommand {
    ConcertCommand::Hold {
        order: order.into(),
        zone: "stalls".into(),
        tickets,
        waits,
    }
}

fn release(order: &str) -> ConcertCommand {
    ConcertCommand::Release { order: order.into() }
}

/// Returns the orders that were offered seats, with the seats.
fn offers(done: &Done<Concert>) -> Vec<(String, Vec<u32>)> {
    let offer = |(order, command): (&str, &OrderCommand)| match command {
        OrderCommand::TakeOffer(offer) => (order.to_owned(), offer.seats.clone()),
        other => panic!("{other:?}"),
    };
    done.sent::<Order>().map(offer).collect()
}

#[test]
fn seats_are_held_from_the_front_and_never_twice() {
    let mut concert = concert(3);
    let held = |seats: &[u32]| {
        ConcertReply::Held(Offer {
            seats: seats.to_vec(),
            cents: 5_000 * seats.len() as u64,
            hold_secs: 600,
        })
    };
    assert_eq!(concert.when(hold("a", 2, false)).unwrap().reply, Some(held(&[1, 2])));
    assert!(concert.when(hold("b", 2, false)).is_err(), "one is left");
    assert_eq!(concert.when(hold("c", 1, false)).unwrap().reply, Some(held(&[3])));
    concert.when(release("a")).unwrap();
    assert_eq!(concert.when(hold("d", 1, false)).unwrap().reply, Some(held(&[1])));
    assert!(concert.when(hold("d", 1, false)).is_err(), "an order asks once");
}

#[test]
fn seats_that_come_back_are_offered_in_order() {
    let mut concert = concert(4);
    for (order, tickets) in [("a", 2), ("b", 2), ("c", 3), ("d", 1)] {
        concert.when(hold(order, tickets, true)).unwrap();
    }
    assert_eq!(
        offers(&concert.when(release("a")).unwrap()),
        [],
        "the first needs three"
    );
    assert!(concert.when(hold("e", 1, false)).is_err(), "nobody overtakes");
    let offered = offers(&concert.when(release("b")).unwrap());
    assert_eq!(offered, [("c".to_owned(), vec![1, 2, 3]), ("d".to_owned(), vec![4])]);
    assert!(concert.state.zones[0].waiting.is_empty());
}

#[test]
fn seats_go_on_when_the_first_leaves_the_line() {
    let mut concert = concert(2);
    for (order, tickets) in [("a", 1), ("b", 2), ("c", 1)] {
        concert.when(hold(order, tickets, true)).unwrap();
    }
    let offered = offers(&concert.when(release("b")).unwrap());
    assert_eq!(offered, [("c".to_owned(), vec![2])]);
    assert_eq!(offers(&concert.when(release("b")).unwrap()), [], "it has gone");
}

#[test]
fn only_held_seats_are_sold_and_sold_ones_come_back() {
    let mut concert = concert(2);
    let sell = |order: &str| ConcertCommand::Sell { order: order.into() };
    concert.when(hold("a", 1, false)).unwrap();
    concert.when(hold("b", 2, true)).unwrap();
    for (order, events) in [("a", 1), ("a", 0), ("b", 0), ("nobody", 0)] {
        assert_eq!(
            concert.when(sell(order)).unwrap().effects.events.len(),
            events,
            "{order}"
        );
    }
    let view = ZoneView::from(&concert.state.zones[0]);
    assert_eq!((view.free, view.held, view.sold, view.waiting), (1, 0, 1, 1));
    concert.when(release("a")).unwrap();
    let view = ZoneView::from(&concert.state.zones[0]);
    assert_eq!((view.free, view.held, view.sold, view.waiting), (0, 2, 0, 0));
}

#[test]
fn impossible_announcements_are_refused() {
    let announce = |zones: Vec<Zone>, hold_secs: Option<u32>| {
        let mut concert = Subject::<Concert>::given("hamlet", []);
        let title = "Hamlet".to_owned();
        concert
            .when(ConcertCommand::Announce {
                title,
                zones,
                hold_secs,
            })
            .is_ok()
    };
    assert!(announce(vec![zone("a", 1), zone("b", SEATS_MAX)], Some(1)));
    assert!(!announce(vec![], None));
    assert!(!announce(vec![zone("a", 1), zone("a", 1)], None));
    assert!(!announce(vec![zone("a", 0)], None));
    assert!(!announce(vec![zone("a", 1)], Some(0)));
}
