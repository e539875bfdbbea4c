//! Tests of the order without an engine.

use super::*;
use crate::payments::{Declined, PaymentRequest, Receipt};
use throng_app::{
    Done, Subject,
    model::{Call, CallCommand, CallId, CallOutcome, Error, OnCallOutcome},
};

type Outcome = CallOutcome<Receipt, Declined>;

fn answered() -> Outcome {
    let payment = "o-1/1".into();
    CallOutcome::Answered(Receipt { payment })
}

fn offer() -> Offer {
    Offer {
        seats: vec![7, 8],
        cents: 10_000,
        hold_secs: 600,
    }
}

/// Returns an order of Ann's with held seats.
fn held() -> Subject<Order> {
    let mut order = Subject::given("o-1", []);
    let placed = OrderCommand::Place {
        customer: "ann".parse().unwrap(),
        concert: "hamlet".parse().unwrap(),
        zone: "stalls".into(),
        tickets: 2,
        waits: false,
    };
    order.when(placed).unwrap();
    order.when(OrderCommand::HearCustomer { refused: None }).unwrap();
    let outcome = HoldOutcome::Held(offer());
    order.when(OrderCommand::HearConcert { outcome }).unwrap();
    order
}

fn pay(order: &mut Subject<Order>) -> CallId {
    let done = order.when(OrderCommand::Pay { token: "card".into() }).unwrap();
    let called = match &done.effects.events[..] {
        [OrderEvent::PaymentAsked { call, .. }] => *call,
        other => panic!("{other:?}"),
    };
    assert_eq!(done.effects.sent.len(), 1, "the call");
    called
}

/// Counts the requested reversals.
fn reversals(done: &Done<Order>) -> usize {
    let asked = |event: &&OrderEvent| matches!(event, OrderEvent::ReversalAsked { .. });
    done.effects.events.iter().filter(asked).count()
}

fn concert_hears(done: &Done<Order>) -> Vec<&ConcertCommand> {
    done.sent::<Concert>().map(|(_, command)| command).collect()
}

#[test]
fn payment_in_time_confirms_and_sells() {
    let mut order = held();
    let call = pay(&mut order);
    let done = order.when(Order::on_call_outcome(call, answered())).unwrap();
    assert_eq!(done.reply, Some(Stage::Confirmed));
    assert!(matches!(concert_hears(&done)[..], [ConcertCommand::Sell { .. }]));
    let again = order.when(Order::on_call_outcome(call, answered())).unwrap();
    assert_eq!(again.effects.events, [], "once");
}

#[test]
fn payment_after_the_hold_is_reversed_once() {
    let mut order = held();
    let call = pay(&mut order);
    let expired = order.when(OrderCommand::Expire {}).unwrap();
    assert_eq!(expired.reply, Some(Stage::Expired));
    assert!(matches!(concert_hears(&expired)[..], [ConcertCommand::Release { .. }]));
    let cancelled: Vec<_> = expired.sent::<Call<crate::payments::Payments>>().collect();
    assert!(matches!(cancelled[..], [(_, CallCommand::Cancel {})]));
    let done = order.when(Order::on_call_outcome(call, answered())).unwrap();
    assert_eq!((done.reply, reversals(&done)), (Some(Stage::Expired), 1));
    let again = order.when(Order::on_call_outcome(call, answered())).unwrap();
    assert_eq!(reversals(&again), 0);
}

#[test]
fn unknown_payment_is_reversed_and_may_be_made_again() {
    let mut order = held();
    let first = pay(&mut order);
    let unknown = CallOutcome::Unknown("there is no answer".into());
    let done = order.when(Order::on_call_outcome(first, unknown)).unwrap();
    assert_eq!((done.reply, reversals(&done)), (Some(Stage::Held), 1));
    let late = Order::on_late_answer(
        first,
        Ok(Receipt {
            payment: "o-1/1".into(),
        }),
    );
    assert_eq!(reversals(&order.when(late).unwrap()), 0, "it is reversed already");
    let second = pay(&mut order);
    let done = order.when(Order::on_call_outcome(second, answered())).unwrap();
    assert_eq!(done.reply, Some(Stage::Confirmed));
}

#[test]
fn late_answer_of_a_failed_payment_is_reversed() {
    let mut order = held();
    let call = pay(&mut order);
    let declined = CallOutcome::Failed(Declined { why: "no".into() });
    let done = order.when(Order::on_call_outcome(call, declined)).unwrap();
    assert_eq!((done.reply, reversals(&done)), (Some(Stage::Held), 0));
    let late = Order::on_late_answer(
        call,
        Ok(Receipt {
            payment: "o-1/1".into(),
        }),
    );
    assert_eq!(reversals(&order.when(late.clone()).unwrap()), 1);
    assert_eq!(reversals(&order.when(late).unwrap()), 0, "once");
}

#[test]
fn reversal_without_outcome_is_asked_for_anew() {
    let mut order = held();
    let call = pay(&mut order);
    order.when(Order::on_call_outcome(call, answered())).unwrap();
    let done = order.when(OrderCommand::Cancel {}).unwrap();
    let reversal = match &done.effects.events[..] {
        [OrderEvent::Closed { .. }, OrderEvent::ReversalAsked { call, .. }] => *call,
        other => panic!("{other:?}"),
    };
    let done = order.when(Order::on_call_outcome(reversal, CallOutcome::Refused("later".into())));
    let done = done.unwrap();
    let second = match &done.effects.events[..] {
        [OrderEvent::ReversalAsked { call, .. }] => *call,
        other => panic!("{other:?}"),
    };
    assert_ne!(reversal, second);
    order.when(Order::on_call_outcome(second, answered())).unwrap();
    let payments = order.state.payment_views("o-1");
    assert_eq!(payments[0].status, PaymentStatus::Reversed);
}

#[test]
fn cancelled_order_ignores_an_offer_under_way() {
    let mut order = held();
    let done = order.when(OrderCommand::Cancel {}).unwrap();
    assert!(matches!(concert_hears(&done)[..], [ConcertCommand::Release { .. }]));
    assert_eq!(done.sent::<Customer>().count(), 1);
    let done = order.when(OrderCommand::TakeOffer(offer())).unwrap();
    assert_eq!(done.effects.events, []);
    assert!(order.when(OrderCommand::Cancel {}).is_err(), "it has ended");
}

#[test]
fn only_the_customer_and_the_box_office_pay() {
    let mut order = held();
    let token = || OrderCommand::Pay { token: "card".into() };
    order.from = Asker::Client(Some("bob"));
    let refused = order.when(token());
    assert!(matches!(refused, Err(Error::Rejected(OrderRejection::NotYours))));
    order.from = Asker::Client(Some("ann"));
    order.when(token()).unwrap();
    assert!(order.when(token()).is_err(), "it is being paid");
}

#[test]
fn hold_that_is_over_cannot_be_paid() {
    let mut order = held();
    order.now = order.now.after(Duration::from_secs(600));
    let refused = order.when(OrderCommand::Pay { token: "card".into() });
    let rejection = OrderRejection::NotPayable { stage: Stage::Held };
    assert!(matches!(refused, Err(Error::Rejected(found)) if found == rejection));
}

#[test]
fn payment_is_named_by_order_and_number() {
    let mut order = held();
    let done = order.when(OrderCommand::Pay { token: "card".into() }).unwrap();
    let mut begin = Vec::new();
    done.effects.sent[0].encoded(&mut begin).unwrap();
    let begin: serde_json::Value = serde_json::from_slice(&begin).unwrap();
    let charge: PaymentRequest = serde_json::from_value(begin["request"].clone()).unwrap();
    let expected = PaymentRequest::Charge {
        payment: "o-1/1".into(),
        cents: 10_000,
        token: "card".into(),
    };
    assert_eq!(charge, expected);
}
