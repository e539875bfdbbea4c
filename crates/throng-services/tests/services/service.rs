//! Services on separate threads, and in place.

use std::{
    sync::{
        Arc, Mutex,
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::Duration,
};
use throng_services::{AskError, Context, HandOver, OnPanic, Reply, Service, TrySendError, service};

/// The time after which a waiting test fails.
const LONG: Duration = Duration::from_mins(2);

enum Message {
    Add(u64),
    Get(Reply<u64>),
    Keep(Reply<u64>),
    Panic(Option<Reply<u64>>),
    /// Reports its arrival, and waits until it may continue.
    Hold(Sender<()>, Receiver<()>),
    Stop,
}

/// A counter that records the calls of its hooks.
#[derive(Default)]
struct Counter {
    count: u64,
    kept: Vec<Reply<u64>>,
    hooks: Arc<Mutex<Vec<String>>>,
}

impl Counter {
    fn note(&self, hook: impl Into<String>) {
        self.hooks.lock().unwrap().push(hook.into());
    }
}

impl Service for Counter {
    type Message = Message;

    fn receive(&mut self, message: Message, context: &mut Context<Message>) {
        match message {
            Message::Add(n) => self.count += n,
            Message::Get(reply) => reply.send(self.count),
            Message::Keep(reply) => self.kept.push(reply),
            Message::Panic(_reply) => panic!("a message that cannot be handled"),
            Message::Hold(there, go) => {
                there.send(()).unwrap();
                go.recv().unwrap();
            }
            Message::Stop => context.stop(),
        }
    }
    fn started(&mut self, _: &mut Context<Message>) {
        self.note("started");
    }
    fn start_of_batch(&mut self, items: usize, _: &mut Context<Message>) {
        self.note(format!("batch of {items}"));
    }
    fn limit(&mut self, _: &mut Context<Message>) {
        self.note("limit");
    }
    fn empty(&mut self, _: &mut Context<Message>) {
        self.note("empty");
    }
    fn idle(&mut self, _: &mut Context<Message>) {
        self.note("idle");
    }
    fn stopped(&mut self) {
        self.note("stopped");
    }
}

fn held() -> (Message, Receiver<()>, Sender<()>) {
    let ((there, is_there), (go, may_go)) = (mpsc::channel(), mpsc::channel());
    (Message::Hold(there, may_go), is_there, go)
}

#[test]
fn hooks_run_in_order_and_messages_sent_meanwhile_are_one_batch() {
    let hooks = Arc::<Mutex<Vec<String>>>::default();
    let of = hooks.clone();
    let counter = move || Counter {
        hooks: of.clone(),
        ..Counter::default()
    };
    let running = service("counter", counter)
        .limit_items(4)
        .idle_after(LONG)
        .start()
        .unwrap();
    let mut address = running.address();
    let (hold, is_there, go) = held();
    address.send(hold).unwrap();
    is_there.recv_timeout(LONG).unwrap();
    for n in 0..6 {
        address.send(Message::Add(n)).unwrap();
    }
    go.send(()).unwrap();
    let counts = running.stop();
    assert_eq!((counts.received, counts.batches, counts.panics), (7, 2, 0));
    let mut hooks = hooks.lock().unwrap().clone();
    // There may have been an idle moment before the first message.
    if hooks[1] == "empty" {
        hooks.remove(1);
    }
    assert_eq!(
        hooks,
        ["started", "batch of 1", "batch of 6", "limit", "empty", "stopped"]
    );
}

#[test]
fn idle_is_told_once_after_nothing_has_come_for_a_while() {
    let hooks = Arc::<Mutex<Vec<String>>>::default();
    let of = hooks.clone();
    let counter = move || Counter {
        hooks: of.clone(),
        ..Counter::default()
    };
    let running = service("counter", counter)
        .idle_after(Duration::from_millis(1))
        .start()
        .unwrap();
    let idles = || hooks.lock().unwrap().iter().filter(|hook| *hook == "idle").count();
    while idles() == 0 {
        thread::yield_now();
    }
    running.address().ask(Message::Get).wait(LONG).unwrap();
    while idles() < 2 {
        thread::yield_now();
    }
    running.stop();
    let hooks = hooks.lock().unwrap();
    let twice = hooks.windows(2).any(|two| two == ["idle", "idle"]);
    assert!(!twice, "{hooks:?}");
}

#[test]
fn a_panic_costs_its_message_and_the_service_goes_on_as_it_is() {
    let running = service("counter", Counter::default).start().unwrap();
    let mut address = running.address();
    address.send(Message::Add(1)).unwrap();
    let crashed = address.ask(|reply| Message::Panic(Some(reply)));
    address.send(Message::Add(2)).unwrap();
    assert_eq!(address.ask(Message::Get).wait(LONG), Ok(3));
    assert_eq!(crashed.wait(LONG), Err(AskError::Gone));
    let counts = running.stop();
    assert_eq!((counts.panics, counts.restarts), (1, 0));
}

#[test]
fn a_restarted_service_receives_the_rest_of_the_batch() {
    let running = service("counter", Counter::default)
        .on_panic(OnPanic::Restart)
        .start()
        .unwrap();
    let mut address = running.address();
    let (hold, is_there, go) = held();
    address.send(hold).unwrap();
    is_there.recv_timeout(LONG).unwrap();
    for message in [Message::Add(1), Message::Panic(None), Message::Add(2)] {
        address.send(message).unwrap();
    }
    go.send(()).unwrap();
    assert_eq!(address.ask(Message::Get).wait(LONG), Ok(2));
    let counts = running.stop();
    assert_eq!((counts.received, counts.panics, counts.restarts), (5, 1, 1));
}

#[test]
fn a_panicking_factory_ends_the_service_and_tells_its_senders() {
    let mut times = 0;
    let factory = move || {
        times += 1;
        assert!(times == 1, "it cannot be made again");
        Counter::default()
    };
    let running = service("counter", factory).on_panic(OnPanic::Restart).start().unwrap();
    let mut address = running.address();
    address.send(Message::Panic(None)).unwrap();
    while address.send(Message::Add(1)).is_ok() {
        thread::yield_now();
    }
    assert_eq!(address.ask(Message::Get).wait(LONG), Err(AskError::Gone));
    let counts = running.join();
    assert_eq!((counts.panics, counts.restarts), (2, 0));
}

#[test]
fn stopping_receives_all_that_was_sent_before_from_every_thread() {
    for hand_over in [HandOver::Adaptive, HandOver::Every(64)] {
        let running = service("counter", Counter::default)
            .queue(64, 8)
            .hand_over(hand_over)
            .start()
            .unwrap();
        let senders: Vec<_> = (0..4)
            .map(|_| {
                let mut address = running.address();
                thread::spawn(move || address.send_all((0..10_000).map(|_| Message::Add(1))).map_err(drop))
            })
            .collect();
        for sender in senders {
            sender.join().unwrap().unwrap();
        }
        assert_eq!(running.stop().received, 40_000, "{hand_over:?}");
    }
}

#[test]
fn after_the_stop_senders_get_their_messages_back() {
    let running = service("counter", Counter::default).start().unwrap();
    let mut address = running.address();
    running.stop();
    let refused = address.send(Message::Add(1)).unwrap_err();
    assert_eq!(refused.unsent.len(), 1);
}

#[test]
fn a_service_can_end_itself() {
    let running = service("counter", Counter::default).start().unwrap();
    let mut address = running.address();
    address.send(Message::Add(1)).unwrap();
    address.send(Message::Stop).unwrap();
    assert_eq!(running.join().received, 2);
}

#[test]
fn an_unanswered_ask_ends_at_its_limit_a_dropped_one_at_once() {
    let running = service("counter", Counter::default).start().unwrap();
    let mut address = running.address();
    let kept = address.ask(Message::Keep);
    assert_eq!(kept.wait(Duration::from_millis(1)), Err(AskError::TimedOut));
    let kept = address.ask(Message::Keep);
    running.stop();
    assert_eq!(kept.wait(LONG), Err(AskError::Gone), "the service took it along");
}

#[test]
fn tasks_ask_too_and_their_limit_is_tokios() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let running = service("counter", Counter::default).start().unwrap();
    runtime.block_on(async {
        let mut address = running.address();
        address.send_async(Message::Add(4)).await.unwrap();
        let shared = address.share();
        assert_eq!(shared.try_ask(Message::Get).unwrap().within(LONG).await, Ok(4));
        let kept = shared.try_ask(Message::Keep).unwrap();
        assert_eq!(kept.within(Duration::from_millis(1)).await, Err(AskError::TimedOut));
        let all = (0..3).map(|_| shared.try_ask(Message::Get).unwrap());
        assert_eq!(futures_util::future::join_all(all).await, [Ok(4); 3]);
    });
    running.stop();
}

#[test]
fn a_full_queue_refuses_a_send_that_does_not_wait() {
    let running = service("counter", Counter::default).queue(1, 1).start().unwrap();
    let mut address = running.address();
    let (hold, is_there, go) = held();
    address.send(hold).unwrap();
    is_there.recv_timeout(LONG).unwrap();
    let mut sent = 0;
    loop {
        match address.try_send(Message::Add(1)) {
            Ok(()) => sent += 1,
            Err(TrySendError::Full(_)) => break,
            Err(TrySendError::Closed(_)) => panic!("it runs"),
        }
        assert!(sent < 100, "the queue has a bound");
    }
    assert_eq!(address.try_ask(Message::Get).unwrap_err(), AskError::Full);
    go.send(()).unwrap();
    drop(address);
    assert_eq!(running.stop().received, sent + 1, "what was taken was received");
}

/// A service that ticks, and asks another service.
#[derive(Default)]
struct Asker {
    ticks: u64,
    heard: Vec<Result<u64, AskError>>,
    waiting: Option<Reply<Vec<Result<u64, AskError>>>>,
}

enum Asking {
    Tick,
    Every(Duration),
    After(Duration),
    Ticks(Reply<u64>),
    Ask(Box<throng_services::Address<Message>>, bool, Duration),
    Heard(Result<u64, AskError>),
    All(Reply<Vec<Result<u64, AskError>>>),
}

impl Service for Asker {
    type Message = Asking;

    fn receive(&mut self, message: Asking, context: &mut Context<Asking>) {
        match message {
            Asking::Tick => self.ticks += 1,
            Asking::Every(interval) => {
                context.every(interval, || Asking::Tick).unwrap();
            }
            Asking::After(time) => {
                context.after(time, Asking::Tick).unwrap();
            }
            Asking::Ticks(reply) => reply.send(self.ticks),
            Asking::Ask(mut address, is_answered, limit) => {
                let make = |reply| match is_answered {
                    true => Message::Get(reply),
                    false => Message::Keep(reply),
                };
                context.ask(&mut address, limit, make, Asking::Heard).unwrap();
            }
            Asking::Heard(outcome) => self.heard.push(outcome),
            Asking::All(reply) => self.waiting = Some(reply),
        }
        if self.heard.len() == 4
            && let Some(reply) = self.waiting.take()
        {
            reply.send(std::mem::take(&mut self.heard));
        }
    }
}

#[test]
fn timers_come_by_themselves_to_a_service_that_sleeps() {
    let running = service("asker", Asker::default).start().unwrap();
    let mut address = running.address();
    address.send(Asking::After(Duration::from_millis(2))).unwrap();
    while address.ask(Asking::Ticks).wait(LONG).unwrap() == 0 {
        thread::yield_now();
    }
    address.send(Asking::Every(Duration::from_millis(1))).unwrap();
    while address.ask(Asking::Ticks).wait(LONG).unwrap() < 5 {
        thread::yield_now();
    }
    running.stop();
}

#[test]
fn each_ask_between_services_has_exactly_one_outcome() {
    let counter = service("counter", Counter::default).start().unwrap();
    let gone = service("gone", Counter::default).start().unwrap();
    let to_gone = gone.address();
    gone.stop();
    let full = service("full", Counter::default).queue(1, 1).start().unwrap();
    let mut to_full = full.address();
    let (hold, is_there, go) = held();
    to_full.send(hold).unwrap();
    is_there.recv_timeout(LONG).unwrap();
    while to_full.try_send(Message::Add(1)).is_ok() {}
    let asker = service("asker", Asker::default).start().unwrap();
    let mut address = asker.address();
    let all = address.ask(Asking::All);
    address
        .send(Asking::Ask(Box::new(counter.address()), true, LONG))
        .unwrap();
    address
        .send(Asking::Ask(
            Box::new(counter.address()),
            false,
            Duration::from_millis(1),
        ))
        .unwrap();
    address.send(Asking::Ask(Box::new(to_gone), true, LONG)).unwrap();
    address.send(Asking::Ask(Box::new(to_full), true, LONG)).unwrap();
    let mut outcomes = all.wait(LONG).unwrap();
    outcomes.sort_by_key(|outcome| format!("{outcome:?}"));
    let expected = [AskError::Full, AskError::Gone, AskError::TimedOut].map(Err::<u64, _>);
    assert_eq!(outcomes[..3], expected);
    assert_eq!(outcomes[3], Ok(0));
    counter.stop();
    go.send(()).unwrap();
    asker.stop();
    full.stop();
}

#[test]
fn a_limit_may_be_for_ever() {
    let counter = service("counter", Counter::default).idle_after(Duration::MAX);
    let counter = counter.start().unwrap();
    let asker = service("asker", Asker::default).start().unwrap();
    let mut address = asker.address();
    let all = address.ask(Asking::All);
    address.send(Asking::After(Duration::MAX)).unwrap();
    address.send(Asking::Every(Duration::MAX)).unwrap();
    for _ in 0..4 {
        let ask = Asking::Ask(Box::new(counter.address()), true, Duration::MAX);
        address.send(ask).unwrap();
    }
    assert_eq!(all.wait(Duration::MAX).unwrap(), [Ok(0); 4]);
    assert_eq!((asker.stop().panics, counter.stop().panics), (0, 0));
}

#[test]
fn in_place_a_message_is_received_on_the_senders_thread() {
    let running = service("counter", Counter::default).in_place();
    let mut address = running.address();
    address.send(Message::Add(2)).unwrap();
    address.send(Message::Panic(None)).unwrap();
    address.send(Message::Add(3)).unwrap();
    assert_eq!(address.ask(Message::Get).wait(Duration::ZERO), Ok(5));
    let counts = running.stop();
    assert_eq!((counts.received, counts.panics), (4, 1));
    assert_eq!(address.send(Message::Add(1)).unwrap_err().unsent.len(), 1);
}

#[test]
fn in_place_messages_of_many_threads_are_received_one_by_one() {
    let running = service("counter", Counter::default).queue(16, 1).in_place();
    let senders: Vec<_> = (0..4)
        .map(|_| {
            let mut address = running.address();
            thread::spawn(move || address.send_all((0..5_000).map(|_| Message::Add(1))).map_err(drop))
        })
        .collect();
    for sender in senders {
        sender.join().unwrap().unwrap();
    }
    assert_eq!(running.address().ask(Message::Get).wait(LONG), Ok(20_000));
    assert_eq!(running.stop().received, 20_001);
}

#[test]
fn in_place_timers_come_with_the_next_turn_and_answers_at_once() {
    let counter = service("counter", Counter::default).in_place();
    let asker = service("asker", Asker::default).in_place();
    let mut address = asker.address();
    address.send(Asking::After(Duration::ZERO)).unwrap();
    asker.turn();
    assert_eq!(address.ask(Asking::Ticks).wait(Duration::ZERO), Ok(1));
    let all = address.ask(Asking::All);
    for _ in 0..4 {
        address
            .send(Asking::Ask(Box::new(counter.address()), true, LONG))
            .unwrap();
    }
    assert_eq!(all.wait(Duration::ZERO), Ok(vec![Ok(0); 4]));
}
