use super::*;

const HOT: u64 = 1 << 8;
const SAME_BUCKET: u64 = HOT + 1;
const OTHER: u64 = 2 << 8;

fn share() -> Arc<Share> {
    let share = alone();
    SPENT.with(|spent| spent.crowd.set(true));
    share
}

/// Returns a share on a loop where other entities were idle lately.
fn alone() -> Arc<Share> {
    let share = Share::new(Duration::from_micros(4 * u64::from(REQUEST_MICROS)));
    share.begin();
    SPENT.with(|spent| spent.crowd.set(false));
    Arc::new(share)
}

/// Runs one command, or returns the ticket of its wait.
fn run(share: &Arc<Share>, hash: u64) -> Option<Ticket> {
    if may_be_hot(hash)
        && let Entry::Wait(ticket) = share.enter(hash)
    {
        return Some(ticket);
    }
    spend(share, hash);
    None
}

fn spend(share: &Share, hash: u64) {
    if charge(hash, 0) {
        share.charge(hash, 0);
    }
}

fn go(ticket: &mut Ticket) -> bool {
    Pin::new(ticket)
        .poll(&mut Context::from_waker(Waker::noop()))
        .is_ready()
}

#[test]
fn hot_entity_has_its_share_and_its_bucket_goes_on() {
    let share = share();
    let ran = (0..10).filter(|_| run(&share, HOT).is_none()).count();
    assert_eq!(ran, 4, "two before it is told apart, two after");
    assert!(run(&share, SAME_BUCKET).is_none() && run(&share, OTHER).is_none());
}

#[test]
fn commit_goes_before_waiting_entities_that_go_in_order() {
    let share = share();
    let mut waiting: Vec<Ticket> = (0..14).filter_map(|_| run(&share, HOT)).collect();
    assert!(run(&share, OTHER).is_none());
    assert_eq!(waiting.len(), 10);
    assert!(!go(&mut waiting[0]), "the batch is not over");
    assert_eq!(
        share.batch_ends(),
        BatchEnd {
            early: false,
            more: true
        }
    );
    assert!(!go(&mut waiting[1]), "not before the first");
    for ticket in &mut waiting[..4] {
        assert!(go(ticket));
        spend(&share, HOT);
    }
    assert!(!go(&mut waiting[4]), "it has had its share");
    assert!(run(&share, HOT).is_some(), "who comes now comes after those that wait");
}

#[test]
fn alone_it_gets_the_whole_turn() {
    let share = share();
    let mut waiting: VecDeque<Ticket> = (0..30).filter_map(|_| run(&share, HOT)).collect();
    let mut early = 0;
    while share.batch_ends().early {
        early += 1;
        for _ in 0..4 {
            assert!(go(&mut waiting[0]));
            waiting.pop_front();
            spend(&share, HOT);
        }
    }
    assert_eq!(early, SHARES - 1);
}

#[test]
fn one_that_goes_away_and_a_loop_that_ends_hold_up_nobody() {
    let share = share();
    let mut waiting: Vec<Ticket> = (0..8).filter_map(|_| run(&share, HOT)).collect();
    share.batch_ends();
    drop(waiting.remove(0));
    assert!(go(&mut waiting[0]));
    assert!(!go(&mut waiting[2]), "out of order");
    share.close();
    assert!(go(&mut waiting[2]) && run(&share, HOT).is_none());
}

#[test]
fn one_that_does_not_come_holds_up_nobody() {
    let share = share();
    let mut waiting: Vec<Ticket> = (0..14).filter_map(|_| run(&share, HOT)).collect();
    assert!(waiting.iter_mut().all(|ticket| !go(ticket)));
    share.batch_ends();
    // Four were released, but the first is not polled.
    assert!(!go(&mut waiting[1]));
    share.batch_ends();
    assert!(go(&mut waiting[1]));
    assert!(go(&mut waiting[0]), "it goes when it comes");
}

#[test]
fn one_that_is_alone_holds_up_nobody_until_others_come() {
    let share = alone();
    assert!((0..30).all(|_| run(&share, HOT).is_none()));
    assert!(run(&share, OTHER).is_none());
    let waiting = run(&share, HOT);
    assert!(waiting.is_some());
    share.batch_ends();
    assert!(
        run(&share, HOT).is_some(),
        "it comes after the one that waits, also while nobody else is there"
    );
}

#[test]
fn no_more_wait_than_may() {
    let share = share();
    (0..4).for_each(|_| spend(&share, HOT));
    let mut waiting = Vec::new();
    let refused = loop {
        match share.enter(HOT) {
            Entry::Go => panic!("it has had its share"),
            Entry::Wait(ticket) => waiting.push(ticket),
            Entry::Refuse(wait) => break wait,
        }
    };
    let cost = u64::from(REQUEST_MICROS * SHARES);
    assert_eq!(
        (waiting.len(), refused),
        (WAITING_MAX, Duration::from_micros(cost * WAITING_MAX as u64))
    );
}

#[test]
fn a_thread_without_a_loop_knows_nobody_hot() {
    leave();
    for _ in 0..1_000 {
        assert!(!charge(HOT, 1_000) && !may_be_hot(HOT));
    }
}
