//! A source and a target in memory, which forget what they were told.

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};
use throng::{
    Builder, Engine,
    journal::{Journal, MemoryJournal, MemoryStore},
    model::Entity as _,
    projection::DurableEvent,
};
use throng_connectors::{
    Batch, Egress, EntityCommand, Ingress, IngressOptions, Message, Outbound, Outcome, Received, Settled, SinkError,
    Source, Target, TargetPosition,
};
use throng_testing::{
    HeldJournal, eventually,
    fixtures::{Command, Counter, Hits},
};

const MESSAGES: usize = 100;

#[derive(Clone, Default)]
struct Shelf(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    settled: usize,
    dead: Vec<String>,
    losses: u32,
    given: usize,
    /// Settling at the source never returns.
    hangs: bool,
    is_hanging: bool,
}

/// A source of numbered messages. Its connection is lost at the first settlements.
struct Numbers {
    shelf: Shelf,
    next: usize,
}

impl Source for Numbers {
    type Position = usize;
    type Error = io::Error;

    fn name(&self) -> String {
        "numbers".into()
    }

    async fn open(&mut self, _bytes_max: usize) -> io::Result<()> {
        self.next = self.shelf.0.lock().unwrap().settled;
        Ok(())
    }

    async fn receive(&mut self) -> io::Result<Vec<Received<usize>>> {
        let first = self.next;
        if first == MESSAGES {
            return std::future::pending().await;
        }
        self.next = (first + 7).min(MESSAGES);
        self.shelf.0.lock().unwrap().given += self.next - first;
        Ok((first..self.next)
            .map(|number| {
                let message = Message {
                    body: if number == 50 { b"50".to_vec() } else { b"a".to_vec() },
                    id: Some(number.to_string()),
                    headers: vec![("number".into(), number.to_string())],
                    ..Message::default()
                };
                Received::new(number, message)
            })
            .collect())
    }

    async fn settle(&mut self, settled: Vec<Settled<usize>>) -> io::Result<()> {
        let hangs = {
            let mut shelf = self.shelf.0.lock().unwrap();
            shelf.is_hanging = std::mem::take(&mut shelf.hangs);
            shelf.is_hanging
        };
        if hangs {
            return std::future::pending().await;
        }
        let mut shelf = self.shelf.0.lock().unwrap();
        if shelf.losses > 0 {
            shelf.losses -= 1;
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        for Settled { position, outcome } in settled {
            assert_eq!(position, shelf.settled, "in order");
            shelf.settled += 1;
            if let Outcome::Dead(dead) = outcome {
                shelf.dead.push(dead.reason.clone());
            }
        }
        Ok(())
    }
}

fn read(message: &Message) -> Result<Vec<EntityCommand>, String> {
    match &message.body[..] {
        b"50" => Err(format!("number {}", message.header("number").unwrap())),
        _ => Ok(vec![EntityCommand::new(Counter::KIND, "a", "Hit", Vec::new())]),
    }
}

fn builder() -> Builder {
    Engine::builder().with::<Counter>().query::<Counter, Hits>()
}

async fn start(builder: Builder) -> Engine {
    let journal = MemoryJournal::new();
    let store = MemoryStore::new(journal.clone());
    builder.start(journal, store).await.unwrap()
}

async fn hits(engine: &Engine) -> u64 {
    engine.entity::<Counter>("a").read(Hits).await.unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_a_source_lost_before_it_settles_count_once() {
    let shelf = Shelf::default();
    shelf.0.lock().unwrap().losses = 3;
    let engine = start(builder()).await;
    let source = Numbers {
        shelf: shelf.clone(),
        next: 0,
    };
    let ingress = Ingress::start(&engine, source, IngressOptions::default(), read).unwrap();
    eventually("all are settled", async || shelf.0.lock().unwrap().settled == MESSAGES).await;
    ingress.stop();
    let (given, dead) = {
        let shelf = shelf.0.lock().unwrap();
        (shelf.given, shelf.dead.clone())
    };
    assert!(given >= MESSAGES + 3, "{given} messages were given: some came again");
    assert_eq!(dead, ["it cannot be read: number 50"]);
    assert_eq!(hits(&engine).await, MESSAGES as u64 - 1);
    assert_eq!(engine.driver().budget().held(), 0, "nothing is held any more");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_behind_an_unsettled_one_stay_unsettled_at_the_end() {
    let shelf = Shelf::default();
    shelf.0.lock().unwrap().hangs = true;
    let journal = MemoryJournal::new();
    let store = MemoryStore::new(journal.clone());
    let (journal, hold) = HeldJournal::new(journal, true);
    let engine = builder()
        .start(Box::new(journal) as Box<dyn Journal>, store)
        .await
        .unwrap();
    // Message 50 is dead at once, and the later ones wait for their commit.
    shelf.0.lock().unwrap().settled = 50;
    let source = Numbers {
        shelf: shelf.clone(),
        next: 0,
    };
    let options = IngressOptions {
        drain: Duration::from_millis(200),
        ..IngressOptions::default()
    };
    let ingress = Ingress::start(&engine, source, options, read).unwrap();
    eventually("the dead one is being settled", async || {
        shelf.0.lock().unwrap().is_hanging
    })
    .await;
    hold.send(false).unwrap();
    eventually("those behind it are durable", async || hits(&engine).await == 6).await;
    ingress.stop();
    assert_eq!(shelf.0.lock().unwrap().settled, 50);
    engine.stop().await;
}

/// A target of lines in memory, with their position. An answer is lost once, and all lines are lost once.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<LinesState>>);

#[derive(Default)]
struct LinesState {
    lines: Vec<u64>,
    position: Option<TargetPosition>,
    loses_an_answer: bool,
    clears: u32,
    is_incomplete: bool,
}

impl Target for Lines {
    type Item = u64;
    const STORES_POSITION: bool = true;

    async fn deliver(&mut self, batch: Batch<u64>) -> Result<(), SinkError> {
        let mut lines = self.0.lock().unwrap();
        let is_lost = !batch.items.is_empty() && std::mem::take(&mut lines.loses_an_answer);
        lines.lines.extend(batch.items.into_iter().map(|line| line.item));
        lines.position = Some(batch.position);
        match is_lost {
            false => Ok(()),
            true => Err(SinkError::Retry("the answer is lost".into())),
        }
    }

    async fn position(&mut self) -> Result<Option<TargetPosition>, SinkError> {
        Ok(self.0.lock().unwrap().position.clone())
    }

    async fn clear(&mut self) -> Result<(), SinkError> {
        let mut lines = self.0.lock().unwrap();
        lines.lines.clear();
        lines.clears += 1;
        lines.is_incomplete = true;
        lines.position = None;
        Ok(())
    }

    async fn complete(&mut self) -> Result<(), SinkError> {
        self.0.lock().unwrap().is_incomplete = false;
        Ok(())
    }
}

struct Numbered;

impl Outbound for Numbered {
    const NAME: &'static str = "numbered";
    type Of = Counter;
    type Item = u64;

    fn map(&self, seen: &DurableEvent<Counter>) -> Option<u64> {
        // Every third event is not forwarded.
        (!seen.seq.is_multiple_of(3)).then_some(seen.seq)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_a_target_that_forgets_are_delivered_once() {
    let lines = Lines::default();
    lines.0.lock().unwrap().loses_an_answer = true;
    let sink = Egress::new(Numbered, lines.clone());
    let engine = start(builder().sink(sink)).await;
    let hit = async |until: u64| {
        for _ in 0..30 {
            engine.entity::<Counter>("a").ask(Command::Hit {}).await.unwrap();
        }
        let expected: Vec<u64> = (1..=until).filter(|seq| seq % 3 != 0).collect();
        eventually("each is there, once and in order", async || {
            let lines = lines.0.lock().unwrap();
            lines.lines == expected && !lines.is_incomplete
        })
        .await;
    };
    hit(30).await;
    assert!(!lines.0.lock().unwrap().loses_an_answer);
    let clears = {
        let mut lines = lines.0.lock().unwrap();
        lines.lines.clear();
        lines.position = None;
        lines.clears
    };
    hit(60).await;
    assert_eq!(lines.0.lock().unwrap().clears, clears + 1);
    engine.stop().await;
}
