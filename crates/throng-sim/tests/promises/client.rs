//! A client with one request at a time. After an unknown outcome it repeats the request under its key.

use crate::{
    account::{Account, Command, KIND, Kin, Look, Mode, No, View},
    book::{Asked, Book, Told},
    relay::{self, Relay},
};
use std::{future::poll_fn, time::Duration};
use throng::{
    Engine, JsonRejection,
    driver::{Executed, Execution},
    model::Error,
};
use throng_core::tagged;
use throng_sim::{Gone, Sim};

/// The number of accounts, without spawned ones.
pub(crate) const ACCOUNTS: u64 = 9;
const RELAYS: u64 = 3;
/// The longest delay of an answer beyond its deadline. While the end of a writer is unknown, its callers wait for the journal.
const LATE_MAX: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) sim: Sim,
    pub(crate) book: Book,
    pub(crate) number: u64,
    pub(crate) generation: std::sync::Arc<std::sync::atomic::AtomicU8>,
    /// True if acknowledged operations may be lost in a power failure.
    pub(crate) lossy: bool,
    /// The number of processes before the newest one that may be asked, too: those it took over from.
    pub(crate) back: usize,
}

type Outcome = Result<View, Error<No>>;

impl Client {
    pub(crate) async fn run(self, operations: usize) {
        for _ in 0..operations {
            let pause = [0, 100, 3_000, 60_000][self.sim.below(4) as usize];
            self.sim.sleep(Duration::from_micros(self.sim.below(pause + 1))).await;
            match self.sim.below(100) {
                0..70 => self.operate().await,
                70..84 => self.look().await,
                84..90 => self.history().await,
                90..94 => self.list().await,
                _ => self.relay().await,
            }
        }
    }

    fn account(&self) -> u64 {
        // A few accounts are hot.
        self.sim.below(if self.sim.chance(0.5) { 3 } else { ACCOUNTS })
    }

    fn command(&self, op: u64) -> Command {
        let (amount, to) = (1 + self.sim.below(20).cast_signed(), self.account());
        match self.sim.below(40) {
            0..4 => Command::Open { op, amount },
            4..9 => Command::Add {
                op,
                amount,
                parts: self.sim.below(5) as u32,
            },
            9..13 => Command::Take { op, amount: amount * 3 },
            13..18 => Command::Transfer {
                op,
                to: (0..=self.sim.below(4)).map(|_| self.account()).collect(),
                amount,
            },
            18..23 => Command::Ask {
                op,
                to: if self.sim.chance(0.2) { 900 + to } else { to },
                amount,
                mode: [Mode::Accept, Mode::Refuse, Mode::Panic, Mode::Forward][self.sim.below(4) as usize],
            },
            23..25 => Command::Route { op, amount },
            25..27 => Command::Forward {
                op,
                to,
                amount,
                trace: self.sim.chance(0.6),
            },
            27..30 => Command::Chain {
                op,
                hops: 1 + self.sim.below(8) as u32,
                to: (0..=self.sim.below(2)).map(|_| self.account()).collect(),
            },
            30..32 => Command::Spawn {
                op,
                child: 1_000 + op,
                answers: self.sim.chance(0.5),
            },
            32..35 => Command::Plan {
                op,
                name: ["a", "b"][self.sim.below(2) as usize].into(),
                after_micros: self.sim.below(400_000),
                every_micros: self.sim.chance(0.4).then(|| 1_000 + self.sim.below(100_000)),
                times: 1 + self.sim.below(3) as u32,
            },
            35..36 => Command::Cancel { op, name: "a".into() },
            36..37 => Command::PanicDeciding { op },
            37..38 => Command::PanicEvolving { op },
            _ if self.sim.chance(0.2) => Command::Plant { op },
            _ => Command::Add { op, amount, parts: 1 },
        }
    }

    async fn operate(&self) {
        let (op, to) = (self.book.number(), self.account());
        let command = self.command(op);
        let keyed = self.sim.chance(0.6);
        self.book.asks(op, to, Asked::Account(command.clone()), keyed);
        let key = keyed.then(|| format!("key-{op}"));
        let told = self
            .until_known(op, key.clone(), |key| self.ask(to, command.clone(), key))
            .await;
        let (Told::Done(view), Some(key)) = (&told, key) else {
            return;
        };
        if self.sim.chance(0.3) {
            let again = self.newest().ask(to, command.clone(), Some(key.clone())).await;
            self.same(op, view, again);
        }
        if self.sim.chance(0.15) {
            let other = Command::Add {
                op,
                amount: 1,
                parts: 5,
            };
            match self.newest().ask(to, other, Some(key)).await {
                Ok((Err(Error::KeyReused(_)), _)) => self.sim.count("other command under a used key refused"),
                Ok((Ok(_), _)) if self.lossy => {}
                Ok((Ok(_) | Err(Error::Rejected(_) | Error::Unknown { .. }), _)) => self.sim.wrong(format!(
                    "promise 4: another command was accepted under the key of op {op}"
                )),
                _ => {}
            }
        }
    }

    /// Restricts a client to the newest process. A former one does not know yet that it was replaced, and answers with old states.
    fn newest(&self) -> Self {
        Self {
            back: 0,
            ..self.clone()
        }
    }

    fn same(&self, op: u64, first: &View, again: Result<(Outcome, (Duration, Duration)), Gone>) {
        match again {
            Ok((Ok(view), _)) if view == *first => self.sim.count("same answer again"),
            Ok((Ok(_), _)) if self.lossy => {}
            Ok((Ok(view), _)) => self.sim.wrong(format!(
                "promise 4: op {op} was answered {first:?}, and under its key again {view:?}"
            )),
            Ok((Err(error @ (Error::Rejected(_) | Error::KeyReused(_) | Error::Unknown { .. })), _)) if !self.lossy => {
                self.sim.wrong(format!(
                    "promise 4: op {op} was accepted, and under its key again told: {error}"
                ));
            }
            _ => {}
        }
    }

    async fn relay(&self) {
        let (op, at, to) = (self.book.number(), self.sim.below(RELAYS), self.account());
        let amount = self.sim.below(9).cast_signed();
        let command = if self.sim.chance(0.5) {
            relay::Command::Pass { op, to, amount }
        } else {
            relay::Command::Post { op, to, amount }
        };
        let keyed = self.sim.chance(0.7);
        self.book.asks(op, at, Asked::Relay(command.clone()), keyed);
        let key = keyed.then(|| format!("key-{op}"));
        let ask_at = |client: Self, key: Option<String>| {
            let command = command.clone();
            let ask = move |engine: Engine, within| async move {
                let mut handle = engine.entity::<Relay>(at).within(within);
                if let Some(key) = key {
                    handle = handle.once(key);
                }
                handle.ask(command).await
            };
            async move { client.timed(ask).await }
        };
        let ask = |key| ask_at(self.clone(), key);
        let told = self.until_known(op, key.clone(), ask).await;
        if let (Told::Done(view), Some(key)) = (&told, key)
            && self.sim.chance(0.4)
        {
            let again = ask_at(self.newest(), Some(key)).await;
            self.same(op, view, again);
        }
    }

    /// Repeats a request until its outcome is known. Without a key it is sent once.
    async fn until_known<F>(&self, op: u64, key: Option<String>, ask: impl Fn(Option<String>) -> F) -> Told
    where
        F: Future<Output = Result<(Outcome, (Duration, Duration)), Gone>>,
    {
        for attempt in 0.. {
            let began = self.sim.elapsed();
            let (told, times) = match ask(key.clone()).await {
                Err(Gone) => {
                    self.sim.count("client lost its process");
                    while self.sim.engine().is_none() {
                        self.sim.sleep(Duration::from_millis(20)).await;
                    }
                    (Told::Unknown, (began, self.sim.elapsed()))
                }
                Ok((outcome, times)) => (self.told(op, outcome), times),
            };
            self.sim.note(format_args!("client {} op {op}: {told:?}", self.number));
            self.book.told(op, told.clone(), times);
            let again = match &told {
                Told::Unknown => true,
                Told::Nothing(why) => ["overloaded", "unavailable", "expired"].contains(why),
                _ => false,
            };
            if !again || key.is_none() || attempt > 60 {
                return told;
            }
            self.sim.count("asked again with the key");
            self.sim.sleep(Duration::from_micros(self.sim.below(300_000))).await;
        }
        Told::Unknown
    }

    fn told(&self, op: u64, outcome: Outcome) -> Told {
        let (counted, told) = match outcome {
            Ok(view) => ("done", Told::Done(view)),
            Err(Error::Rejected(no)) => ("refused", Told::Refused(no.view)),
            Err(Error::Unknown { .. }) => ("unknown entity", Told::Nothing("unknown")),
            Err(Error::Ended { .. }) => ("ended", Told::Nothing("ended")),
            Err(Error::KeyRefused(_)) => ("refused before", Told::Nothing("refused before")),
            Err(Error::Overloaded { .. }) => ("overloaded", Told::Nothing("overloaded")),
            Err(Error::StorageFull { .. }) => ("storage full", Told::Nothing("storage full")),
            Err(Error::Unavailable { .. }) => ("unavailable", Told::Nothing("unavailable")),
            Err(Error::Expired) => ("expired", Told::Nothing("expired")),
            Err(Error::OutcomeUnknown) => ("outcome unknown", Told::Unknown),
            Err(Error::Crashed { reason }) => {
                if !reason.starts_with("planned panic") {
                    self.sim.wrong(format!("promise 8: op {op} crashed: {reason}"));
                }
                ("crashed", Told::Nothing("crashed"))
            }
            Err(Error::Quarantined { .. }) => ("quarantined", Told::Nothing("quarantined")),
            Err(error @ (Error::Malformed(_) | Error::TooLarge { .. } | Error::KeyReused(_))) => {
                self.sim.wrong(format!("op {op} was told: {error}"));
                ("malformed", Told::Nothing("malformed"))
            }
        };
        self.sim.count(counted);
        told
    }

    /// Calls the engine with a deadline, and measures the time.
    async fn timed<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        call: impl FnOnce(Engine, Duration) -> F,
    ) -> Result<(T, (Duration, Duration)), Gone> {
        let within = if self.sim.chance(0.1) {
            Duration::from_micros(self.sim.below(20_000))
        } else {
            Duration::from_secs(5)
        };
        let has_rival = self.back > 0 && self.sim.processes() > 1;
        let back = if has_rival && self.sim.chance(0.3) {
            self.back
        } else {
            0
        };
        let began = self.sim.elapsed();
        let sim = self.sim.clone();
        // The process may die while its answer is in flight, after the answer was given.
        let timed = |engine| {
            let answer = call(engine, within);
            async move { (answer.await, sim.elapsed()) }
        };
        let (value, ended) = self.sim.call_at(back, timed).await?;
        let took = self.sim.elapsed() - began;
        if took > within + LATE_MAX {
            self.sim.wrong(format!(
                "client {} was answered after {took:?}, its deadline was {within:?}",
                self.number
            ));
        }
        Ok((value, (began, ended)))
    }

    async fn ask(
        &self,
        to: u64,
        command: Command,
        key: Option<String>,
    ) -> Result<(Outcome, (Duration, Duration)), Gone> {
        let generation = self.generation.load(std::sync::atomic::Ordering::Relaxed);
        let json = self.sim.chance(0.2);
        self.timed(move |engine, within| async move {
            if json {
                return ask_json(&engine, to, &command, key, within).await;
            }
            match generation {
                1 => ask_typed::<1>(&engine, to, command, key, within).await,
                2 => ask_typed::<2>(&engine, to, command, key, within).await,
                _ => ask_typed::<3>(&engine, to, command, key, within).await,
            }
        })
        .await
    }

    async fn look(&self) {
        let to = self.account();
        let generation = self.generation.load(std::sync::atomic::Ordering::Relaxed);
        let kin = self.sim.chance(0.1);
        let looked = self.timed(move |engine, within| async move {
            match generation {
                1 => look_typed::<1>(&engine, to, within, kin).await,
                2 => look_typed::<2>(&engine, to, within, kin).await,
                _ => look_typed::<3>(&engine, to, within, kin).await,
            }
        });
        match looked.await {
            Ok((Ok(view), times)) => {
                self.sim.count("query answered");
                self.book.shows("a query", view, times);
            }
            Ok((Err(Error::Unknown { .. }), times)) => {
                self.sim.count("query for nobody");
                let nobody = View {
                    id: to,
                    ..View::default()
                };
                self.book.shows("a 404", nobody, times);
            }
            _ => {}
        }
    }

    async fn history(&self) {
        let to = self.account();
        let page = 1 + self.sim.below(20) as usize;
        let read = self.sim.call(move |engine| async move {
            let kind = engine.kind(KIND).unwrap();
            engine.history(kind, &to.to_string(), 0, page).await
        });
        let Ok(Ok(events)) = read.await else { return };
        let ended = self.sim.elapsed();
        self.sim.count("history read");
        let mut view = View {
            id: to,
            ..View::default()
        };
        for event in &events.events {
            if event.seq != view.count + 1 {
                self.sim.wrong(format!(
                    "promise 5: the history of {to} shows event {} after {}",
                    event.seq, view.count
                ));
            }
            crate::checker::apply(&mut view, &event.name, &event.payload);
        }
        // A page shows the past, not the present.
        self.book.shows("a history", view, (Duration::ZERO, ended));
    }

    async fn list(&self) {
        let read = self.sim.call(|engine| async move {
            let kind = engine.kind(KIND).unwrap();
            engine.entities(kind, None, 100).await
        });
        let Ok(Ok(heads)) = read.await else {
            return;
        };
        let ended = self.sim.elapsed();
        self.sim.count("entities listed");
        for head in heads {
            let view = View {
                id: head.id.parse().unwrap(),
                count: head.seq,
                ..View::default()
            };
            self.book.shows("a list", view, (Duration::ZERO, ended));
        }
    }
}

async fn ask_typed<const G: u8>(
    engine: &Engine,
    to: u64,
    command: Command,
    key: Option<String>,
    within: Duration,
) -> Outcome {
    let mut handle = engine.entity::<Account<G>>(to).within(within);
    if let Some(key) = key {
        handle = handle.once(key);
    }
    handle.ask(command).await
}

pub(crate) async fn look_typed<const G: u8>(engine: &Engine, to: u64, within: Duration, kin: bool) -> Outcome {
    if kin {
        drop(engine.entity::<Account<G>>(to).within(within).read(Kin {}).await?);
    }
    engine.entity::<Account<G>>(to).within(within).read(Look {}).await
}

async fn ask_json(engine: &Engine, to: u64, command: &Command, key: Option<String>, within: Duration) -> Outcome {
    let mut body = Vec::new();
    let name = tagged::to_parts(command, &mut body).unwrap();
    let (kind, id) = (engine.kind(KIND).unwrap(), to.to_string());
    // Asks as a gateway does: immediately if possible, otherwise with a wait.
    let driver = engine.driver();
    let attempt = driver.command(kind, id, name, body).and_then(|attempt| match key {
        Some(key) => attempt.once(key),
        None => Ok(attempt),
    });
    let answer = match attempt.map(|attempt| driver.try_now(attempt.within(within))) {
        Ok(Execution::Done(executed)) => answered(executed).await,
        Ok(Execution::Wait(waiting)) => match driver.execute(waiting.into_owned()).await {
            Ok(mut executed) => executed.answer().await,
            Err(error) => Err(error),
        },
        Ok(Execution::Refused(error)) | Err(error) => Err(error),
    };
    match answer {
        Ok(reply) => Ok(serde_json::from_slice(&reply).unwrap()),
        Err(error) => Err(error.engine::<No>().unwrap_or_else(|rejection: JsonRejection| {
            Error::Rejected(serde_json::from_slice(&rejection.body).unwrap())
        })),
    }
}

/// Waits like a task that serves many requests.
async fn answered(mut executed: Executed) -> Result<Vec<u8>, Error<JsonRejection>> {
    if executed.is_remote() {
        return executed.answer().await;
    }
    poll_fn(|context| executed.poll_answer(context)).await
}
