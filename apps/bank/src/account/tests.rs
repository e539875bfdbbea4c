//! Tests of the account without an engine.

use super::*;
use throng_app::{
    Done, Subject,
    model::{Error, Timer},
};

fn ann(events: impl IntoIterator<Item = AccountEvent>) -> Subject<Account> {
    let opened = [AccountEvent::Opened {}, AccountEvent::Deposited { cents: 50_000 }];
    Subject::given("ann", opened.into_iter().chain(events))
}

fn transfer(to: &str, cents: u64) -> Command {
    let to = to.parse().unwrap();
    Command::Transfer { to, cents }
}

fn refusal(done: Result<Done<Account>, Error<AccountRejection>>) -> AccountRejection {
    match done {
        Err(Error::Rejected(refusal)) => refusal,
        Err(other) => panic!("{other}"),
        Ok(done) => panic!("{:?}", done.effects.events),
    }
}

#[test]
fn a_transfer_leaves_is_on_its_way_and_asks_the_other() {
    let mut ann = ann([]);
    let done = ann.when(transfer("bob", 700)).unwrap();
    let sent: Vec<_> = done.sent::<Account>().collect();
    assert!(matches!(sent[..], [("bob", Command::Receive { cents: 700 })]));
    assert_eq!(done.effects.sent[0].note.as_deref(), Some("1"));
    let balance = done.reply.unwrap();
    assert_eq!((balance.cents, balance.on_the_way), (49_300, [(1, 700)].into()));
}

#[test]
fn taken_money_is_gone_and_refused_money_is_back() {
    for (outcome, cents) in [(Ok(Balance::default()), 49_300), (Err(RequestError::Unknown), 50_000)] {
        let mut ann = ann([]);
        ann.when(transfer("bob", 700)).unwrap();
        let heard = Account::on_outcome("bob".into(), 1, outcome);
        let balance = ann.when(heard.clone()).unwrap().reply.unwrap();
        assert_eq!((balance.cents, balance.on_the_way.len()), (cents, 0));
        assert_eq!(ann.when(heard).unwrap().effects.events, [], "once");
    }
}

#[test]
fn nothing_is_spent_that_is_not_there() {
    for command in [transfer("bob", 50_001), Command::Withdraw { cents: 50_001 }] {
        assert_eq!(
            refusal(ann([]).when(command)),
            AccountRejection::BalanceTooLow { cents: 50_000 }
        );
    }
    assert_eq!(refusal(ann([]).when(transfer("ann", 1))), AccountRejection::ToItself);
}

#[test]
fn interest_is_paid_also_for_missed_days() {
    let mut ann = ann([]);
    let done = ann.when(Command::PayInterest {}).unwrap();
    assert_eq!(done.effects.events, [AccountEvent::InterestPaid { cents: 5 }]);
    ann.missed_ticks = 2;
    let done = ann.when(Command::PayInterest {}).unwrap();
    assert_eq!(done.effects.events, [AccountEvent::InterestPaid { cents: 15 }]);
}

#[test]
fn opening_sets_the_timer_and_closing_ends_it() {
    let mut new = Subject::<Account>::given("new", []);
    let done = new.when(Command::Open {}).unwrap();
    assert!(matches!(
        &done.effects.timers[..],
        [Timer::Set {
            every: Some(INTEREST_EVERY),
            ..
        }]
    ));
    let done = new.when(Command::Close {}).unwrap();
    assert!(matches!(&done.effects.timers[..], [Timer::Cancel(name)] if name == INTEREST));
    assert_eq!(
        refusal(new.when(Command::Receive { cents: 1 })),
        AccountRejection::IsClosed
    );
}

#[test]
fn a_nonempty_account_stays_open_and_balances_are_bounded() {
    assert_eq!(refusal(ann([]).when(Command::Close {})), AccountRejection::IsNotEmpty);
    let mut full = ann([]);
    full.when(transfer("bob", 100)).unwrap();
    let room = CENTS_MAX - 50_000;
    assert_eq!(
        refusal(full.when(Command::Deposit { cents: room + 1 })),
        AccountRejection::TooMuch,
        "what may come back has room"
    );
    full.when(Command::Deposit { cents: room }).unwrap();
}
