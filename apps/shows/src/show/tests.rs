use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use throng::{
    Subject,
    model::{Error, Moment, Query, Rejection, Timestamp},
};

const ID: &str = "0b31ab76-c5a3-4d3c-9f3f-6f6ad9a5a3b7";

fn id() -> ShowId {
    ID.parse().unwrap()
}

fn created(seats: u8) -> ShowEvent {
    ShowEvent::ShowCreated {
        title: "Hamlet".into(),
        seats,
        price: SEAT_PRICE,
    }
}

fn create(max_seats: u32) -> ShowCommand {
    ShowCommand::CreateShow {
        title: "Hamlet".into(),
        max_seats,
    }
}

fn reserve(seat: i32) -> ShowCommand {
    ShowCommand::ReserveSeat { seat }
}

fn cancel(seat: i32) -> ShowCommand {
    ShowCommand::CancelSeatReservation { seat }
}

/// Returns the event and the reply of an accepted command, or its rejection.
fn ask(show: &mut Subject<Show>, command: ShowCommand) -> Result<(ShowEvent, u32), ShowRejection> {
    match show.when(command) {
        Ok(done) => {
            let [event] = <[_; 1]>::try_from(done.effects.events).unwrap();
            Ok((event, done.reply.unwrap().available))
        }
        Err(Error::Rejected(why)) => Err(why),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_show_is_created_with_all_its_seats_available() {
    let mut show = Subject::<Show>::given(id(), []);
    assert_eq!(ask(&mut show, create(50)), Ok((created(50), 50)));
    let moment = Moment {
        id: &id(),
        seq: 1,
        now: Timestamp::default(),
        from: throng::model::Asker::Client(None),
        family: None,
    };
    let view = GetShow {}.answer(&show.state, &moment).unwrap();
    assert_eq!((view.id.as_str(), view.title.as_str()), (ID, "Hamlet"));
    let numbers: Vec<u8> = view.seats.iter().map(|seat| seat.number).collect();
    assert_eq!(numbers, (0..50).collect::<Vec<u8>>());
    assert!(
        view.seats
            .iter()
            .all(|seat| seat.status == SeatStatus::Available && seat.price == 100)
    );
}

#[test]
fn an_existing_show_is_refused_as_such_whatever_its_size() {
    let mut show = Subject::<Show>::given(id(), [created(50)]);
    assert_eq!(ask(&mut show, create(50)), Err(ShowRejection::ShowAlreadyExists));
    assert_eq!(ask(&mut show, create(101)), Err(ShowRejection::ShowAlreadyExists));
}

#[test]
fn a_show_has_at_most_100_seats() {
    let mut show = Subject::<Show>::given(id(), []);
    assert_eq!(ask(&mut show, create(101)), Err(ShowRejection::TooManySeats));
    assert_eq!(ask(&mut show, create(u32::MAX)), Err(ShowRejection::TooManySeats));
    assert_eq!(show.seq, 0, "a refusal leaves no event");
    assert_eq!(ask(&mut show, create(100)), Ok((created(100), 100)));
}

#[test]
fn only_a_show_that_exists_can_be_asked() {
    let mut show = Subject::<Show>::given(id(), []);
    for command in [reserve(0), cancel(0)] {
        assert!(matches!(show.when(command), Err(Error::Unknown { kind: "show", .. })));
    }
}

#[test]
fn a_seat_is_reserved_once_and_given_back_once() {
    let mut show = Subject::<Show>::given(id(), [created(2)]);
    assert_eq!(ask(&mut show, cancel(1)), Err(ShowRejection::SeatNotReserved));
    assert_eq!(ask(&mut show, reserve(1)), Ok((ShowEvent::SeatReserved { seat: 1 }, 1)));
    assert_eq!(ask(&mut show, reserve(1)), Err(ShowRejection::SeatNotAvailable));
    assert_eq!(
        ask(&mut show, cancel(1)),
        Ok((ShowEvent::SeatReservationCancelled { seat: 1 }, 2))
    );
    assert_eq!(ask(&mut show, cancel(1)), Err(ShowRejection::SeatNotReserved));
    assert_eq!(show.seq, 3);
}

#[test]
fn seats_are_numbered_from_0_to_one_below_their_count() {
    let mut show = Subject::<Show>::given(id(), [created(50)]);
    for seat in [-1, 50, 255, 256, i32::MIN, i32::MAX] {
        assert_eq!(ask(&mut show, reserve(seat)), Err(ShowRejection::SeatNotExists));
        assert_eq!(ask(&mut show, cancel(seat)), Err(ShowRejection::SeatNotExists));
    }
    assert!(ask(&mut show, reserve(0)).is_ok() && ask(&mut show, reserve(49)).is_ok());
    let mut none = Subject::<Show>::given(id(), [created(0)]);
    assert_eq!(ask(&mut none, reserve(0)), Err(ShowRejection::SeatNotExists));
}

#[test]
fn a_no_is_said_in_one_word() {
    for (rejection, word) in [
        (ShowRejection::ShowAlreadyExists, "SHOW_ALREADY_EXISTS"),
        (ShowRejection::TooManySeats, "TOO_MANY_SEATS"),
        (ShowRejection::SeatNotExists, "SEAT_NOT_EXISTS"),
        (ShowRejection::SeatNotAvailable, "SEAT_NOT_AVAILABLE"),
        (ShowRejection::SeatNotReserved, "SEAT_NOT_RESERVED"),
    ] {
        assert_eq!(rejection.to_string(), word);
        assert_eq!(serde_json::to_value(rejection).unwrap(), word);
        assert_eq!(rejection.code(), word.to_ascii_lowercase().replace('_', "-"));
    }
}

#[test]
#[should_panic(expected = "created before")]
fn a_history_that_creates_a_show_twice_cannot_be_applied() {
    Subject::<Show>::given(id(), [created(1), created(1)]);
}

#[test]
#[should_panic(expected = "no seat 1")]
fn a_history_with_a_seat_that_is_not_there_cannot_be_applied() {
    Subject::<Show>::given(id(), [created(1), ShowEvent::SeatReserved { seat: 1 }]);
}

proptest! {
    #[test]
    fn a_show_answers_as_a_set_of_reserved_numbers(
        count in 0..=100_u8,
        commands in proptest::collection::vec((any::<bool>(), -2..103_i32), 0..200),
    ) {
        let mut show = Subject::<Show>::given(id(), [created(count)]);
        let mut reserved = BTreeSet::new();
        for (takes, seat) in commands {
            let is_there = (0..i32::from(count)).contains(&seat);
            let expected = match (is_there, takes, reserved.contains(&seat)) {
                (false, _, _) => Err(ShowRejection::SeatNotExists),
                (true, true, true) => Err(ShowRejection::SeatNotAvailable),
                (true, false, false) => Err(ShowRejection::SeatNotReserved),
                (true, true, false) => { reserved.insert(seat); Ok(()) }
                (true, false, true) => { reserved.remove(&seat); Ok(()) }
            };
            let available = u32::from(count) - u32::try_from(reserved.len()).unwrap();
            let command = if takes { reserve(seat) } else { cancel(seat) };
            let answered = ask(&mut show, command).map(|(_, left)| left);
            prop_assert_eq!(answered, expected.map(|()| available));
            let read: Show = serde_json::from_slice(&serde_json::to_vec(&show.state).unwrap()).unwrap();
            prop_assert_eq!(&read, &show.state);
        }
    }
}
