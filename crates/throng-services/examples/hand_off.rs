//! The cost of a hand-off: the same small work as a plain call, in place, and on a thread of its own; each sent, and asked.
//!
//! `cargo run --release -p throng-services --example hand_off`

use std::{
    hint::black_box,
    time::{Duration, Instant},
};
use throng_services::{Address, Context, Reply, Running, Service, service};

const SENDS: u64 = 2_000_000;
const ASKS: u64 = 100_000;

#[derive(Default)]
struct Sum(u64);

enum Message {
    Add(u64),
    Get(Reply<u64>),
}

impl Service for Sum {
    type Message = Message;
    fn receive(&mut self, message: Message, _: &mut Context<Message>) {
        match message {
            Message::Add(n) => self.0 = black_box(self.0 + n),
            Message::Get(reply) => reply.send(self.0),
        }
    }
}

fn nanos_each(times: u64, mut work: impl FnMut(u64)) -> f64 {
    let begun = Instant::now();
    (0..times).for_each(&mut work);
    begun.elapsed().as_secs_f64() * 1e9 / times as f64
}

fn measure(name: &str, running: &Running<Message>) {
    let mut address: Address<Message> = running.address();
    let mut asked = running.address();
    let limit = Duration::from_secs(30);
    let sent = nanos_each(SENDS, |n| address.send(Message::Add(n)).expect("the service runs"));
    asked.ask(Message::Get).wait(limit).expect("the service answers");
    let asked = nanos_each(ASKS, |_| {
        let _ = black_box(asked.ask(Message::Get).wait(limit));
    });
    println!("{name:<24} {sent:>9.1} ns a send {asked:>12.1} ns an ask");
}

fn main() {
    let mut plain = Sum::default();
    let called = nanos_each(SENDS, |n| plain.0 = black_box(plain.0 + n));
    println!("{:<24} {called:>9.1} ns a call", "a plain call");
    let in_place = service("in place", Sum::default).in_place();
    measure("in place", &in_place);
    let thread = service("thread", Sum::default).start().expect("there is a thread");
    measure("on a thread of its own", &thread);
    thread.stop();
}
