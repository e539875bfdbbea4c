//! Kinds that use everything the model has.
#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "shared by tests, each using some"
)]

pub mod failing;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    task::Poll,
    time::{Duration, Instant},
};
use throng::{
    Engine, Options,
    journal::{Commit, Journal, Maybe, MemoryJournal, MemoryStore, Place, Position},
    model::*,
};
use throng_testing::{Fallible, delegate};

#[derive(Default, Serialize, Deserialize)]
pub struct Account {
    pub balance: i64,
    pub heard: Vec<String>,
    pub ticks: u32,
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub enum Command {
    Open {
        balance: i64,
    },
    Deposit {
        amount: i64,
    },
    Withdraw {
        amount: i64,
    },
    /// Withdraws here, and deposits into another account.
    Pay {
        to: String,
        amount: i64,
    },
    /// Requests a withdrawal from another account, and receives its outcome.
    Collect {
        from: String,
        amount: i64,
    },
    Heard {
        text: String,
    },
    /// Forwards the command to another account. With `note`, also records an event here.
    Ask {
        other: String,
        command: Box<Command>,
        note: bool,
    },
    Remind {
        in_ms: u64,
        every_ms: Option<u64>,
    },
    Tick,
    Cancel,
    Child {
        id: String,
    },
    /// Tells a child to begin, or to begin anew.
    Foster {
        id: String,
    },
    Family,
    /// Ends the account.
    Close,
    /// Creates the account anew after its end.
    Reopen,
    Grow {
        bytes: usize,
    },
    PanicDeciding,
    PanicEvolving,
}

impl Command {
    pub fn pay(to: impl Into<String>, amount: i64) -> Self {
        let to = to.into();
        Self::Pay { to, amount }
    }

    pub fn collect(from: impl Into<String>, amount: i64) -> Self {
        let from = from.into();
        Self::Collect { from, amount }
    }

    pub fn remind(in_ms: u64, every_ms: Option<u64>) -> Self {
        Self::Remind { in_ms, every_ms }
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub enum AccountEvent {
    Opened { balance: i64 },
    Deposited { amount: i64 },
    Withdrawn { amount: i64 },
    Heard { text: String },
    Ticked,
    Closed,
    Exploded,
}
impl Event for AccountEvent {}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Balance {
    pub balance: i64,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("only {balance} are there")]
pub struct Short {
    pub balance: i64,
}
impl Rejection for Short {
    fn code(&self) -> &'static str {
        "short"
    }
}

impl Account {
    fn view(&self) -> Balance {
        Balance {
            balance: self.balance,
            text: self.heard.join(","),
        }
    }
}

impl Entity for Account {
    const KIND: &'static str = "account";
    type Id = String;
    type Command = Command;
    type Event = AccountEvent;
    type Reply = Balance;
    type Rejection = Short;
    const REQUESTS: &'static [&'static str] = &[Self::KIND];
    const INDEXED: &'static [IndexedField<Self>] = &[
        IndexedField::of("balance", |account| account.balance.into()),
        IndexedField::of("last", |account| account.heard.last().cloned().into()),
        IndexedField::of("heard", |account| account.heard.clone().into()),
    ];

    fn creates(command: &Command) -> bool {
        matches!(command, Command::Open { .. } | Command::Ask { .. } | Command::Reopen)
    }

    fn recreates(command: &Command) -> bool {
        matches!(command, Command::Reopen)
    }

    fn decide(&self, command: Command, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Short> {
        match command {
            Command::Open { balance } => turn.emit(AccountEvent::Opened { balance }),
            Command::Deposit { amount } => turn.emit(AccountEvent::Deposited { amount }),
            Command::Withdraw { amount } if amount > self.balance => return Err(Short { balance: self.balance }),
            Command::Withdraw { amount } => turn.emit(AccountEvent::Withdrawn { amount }),
            Command::Pay { to, amount } => {
                turn.emit(AccountEvent::Withdrawn { amount });
                turn.send::<Self>(to, Command::Deposit { amount });
            }
            Command::Collect { from, amount } => {
                turn.request::<Self>(from.clone(), Command::Withdraw { amount }, from);
            }
            Command::Heard { text } => turn.emit(AccountEvent::Heard { text }),
            Command::Ask { other, command, note } => {
                if note {
                    turn.emit(AccountEvent::Heard {
                        text: format!("asked {other}"),
                    });
                }
                return Ok(CommandAnswer::forward::<Self>(other, *command));
            }
            Command::Remind { in_ms, every_ms } => {
                let at = turn.now().after(Duration::from_millis(in_ms));
                turn.remind("tick", at, every_ms.map(Duration::from_millis), Command::Tick);
            }
            Command::Tick => turn.emit(AccountEvent::Ticked),
            Command::Cancel => turn.cancel("tick"),
            Command::Child { id } => turn.create::<Self>(id, Command::Open { balance: 0 }),
            Command::Foster { id } => turn.create::<Self>(id, Command::Reopen),
            Command::Family => {
                let parent = turn.parent().map_or(String::new(), |(kind, id)| format!("{kind}/{id}"));
                let children: Vec<_> = turn.children::<Self>().collect();
                let text = format!("{parent}>{}", children.join("+"));
                return Ok(CommandAnswer::Now(Balance { balance: 0, text }));
            }
            Command::Grow { bytes } => turn.emit(AccountEvent::Heard {
                text: "x".repeat(bytes),
            }),
            Command::Close => {
                turn.emit(AccountEvent::Closed);
                turn.end();
            }
            Command::Reopen if turn.is_new() => turn.emit(AccountEvent::Opened { balance: 1 }),
            Command::Reopen => return Err(Short { balance: self.balance }),
            Command::PanicDeciding => panic!("deciding"),
            Command::PanicEvolving => turn.emit(AccountEvent::Exploded),
        }
        Ok(CommandAnswer::after(Self::view))
    }

    fn evolve(&mut self, event: &AccountEvent) {
        match event {
            AccountEvent::Opened { balance } => self.balance = *balance,
            AccountEvent::Deposited { amount } => self.balance += amount,
            AccountEvent::Withdrawn { amount } => self.balance -= amount,
            AccountEvent::Heard { text } => self.heard.push(text.clone()),
            AccountEvent::Ticked => self.ticks += 1,
            AccountEvent::Closed => self.heard.push("closed".into()),
            AccountEvent::Exploded => panic!("evolving"),
        }
    }

    fn heap_bytes(&self) -> usize {
        self.heard.iter().map(|text| 24 + text.len()).sum()
    }
}

impl OnOutcome<Account> for Account {
    type Note = String;

    fn on_outcome(from: String, note: String, outcome: Result<Balance, RequestError<Short>>) -> Command {
        let what = match outcome {
            Ok(done) => format!("{} left", done.balance),
            Err(RequestError::Rejected(short)) => format!("no, {}", short.balance),
            Err(other) => other.to_string(),
        };
        Command::Heard {
            text: format!("{from}/{note}: {what}"),
        }
    }
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub struct View {}
impl Query<Account> for View {
    const NAME: &'static str = "view";
    type Answer = Balance;
    fn answer(self, account: &Account, _: &Moment<'_, Account>) -> Result<Balance, Short> {
        Ok(account.view())
    }
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Ticks {}
impl Query<Account> for Ticks {
    const NAME: &'static str = "ticks";
    type Answer = u32;
    fn answer(self, account: &Account, _: &Moment<'_, Account>) -> Result<u32, Short> {
        Ok(account.ticks)
    }
}

/// A journal, a store, and the engines on them.
#[derive(Clone)]
pub struct World {
    pub journal: MemoryJournal,
    pub store: MemoryStore,
}

impl World {
    pub fn new() -> Self {
        let journal = MemoryJournal::new();
        Self {
            store: MemoryStore::new(journal.clone()),
            journal,
        }
    }

    pub async fn engine(&self) -> Engine {
        self.engine_with(Options::default()).await
    }

    pub async fn engine_with(&self, options: Options) -> Engine {
        self.start(Self::builder().options(options)).await.unwrap()
    }

    pub async fn try_engine(&self) -> Result<Engine, throng::StartError> {
        self.start(Self::builder()).await
    }

    /// Adds a node of a cluster, whose builder `more` extends.
    pub async fn node_with(
        &self,
        peers: Arc<dyn throng::driver::peers::Peers>,
        more: impl FnOnce(throng::Builder) -> throng::Builder,
    ) -> Engine {
        self.start(more(Self::builder().peers(peers))).await.unwrap()
    }

    /// Adds a node of a cluster, on a journal that replaces this world's.
    pub async fn node_on(&self, journal: Arc<dyn Journal>, peers: Arc<dyn throng::driver::peers::Peers>) -> Engine {
        let builder = Self::builder().peers(peers);
        let started = builder.start_shared(journal, Arc::new(self.store.clone()));
        started.await.unwrap()
    }

    /// Starts an engine on a journal that replaces this world's.
    pub async fn start_on(&self, journal: impl Journal + 'static, builder: throng::Builder) -> Engine {
        let started = builder.start_shared(Arc::new(journal), Arc::new(self.store.clone()));
        started.await.unwrap()
    }

    pub fn builder() -> throng::Builder {
        Engine::builder()
            .with::<Account>()
            .query::<Account, View>()
            .query::<Account, Ticks>()
            .on_outcome::<Account, Account>()
    }

    pub async fn start(&self, builder: throng::Builder) -> Result<Engine, throng::StartError> {
        builder
            .start_shared(Arc::new(self.journal.clone()), Arc::new(self.store.clone()))
            .await
    }
}

pub async fn ask(engine: &Engine, id: &str, command: Command) -> Result<Balance, Error<Short>> {
    engine.entity::<Account>(id).ask(command).await
}

pub async fn open(engine: &Engine, id: &str, balance: i64) {
    ask(engine, id, Command::Open { balance }).await.unwrap();
}

pub async fn balance(engine: &Engine, id: &str) -> i64 {
    engine.entity::<Account>(id).read(View {}).await.unwrap().balance
}

pub async fn text(engine: &Engine, id: &str) -> String {
    engine.entity::<Account>(id).read(View {}).await.unwrap().text
}

/// The time after which a waiting test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for a condition. Fails if it does not come true.
pub async fn eventually(mut condition: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !condition().await {
        assert!(begun.elapsed() < PATIENCE, "it did not come true within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until clients have done this much more.
pub async fn more(done: &AtomicU32, count: u32) {
    let enough = done.load(SeqCst) + count;
    eventually(async || done.load(SeqCst) >= enough).await;
}

/// Polls a future once, which must not be ready.
pub async fn waits<F: Future + ?Sized>(future: &mut Pin<Box<F>>) {
    let is_pending = poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_pending()));
    assert!(is_pending.await, "it has nothing to wait for");
}

/// A journal that counts its reads.
#[derive(Clone)]
pub struct Counting {
    journal: MemoryJournal,
    /// The number of reads of commits.
    pub reads: Arc<AtomicU32>,
    /// The number of commits that these reads returned.
    pub commits: Arc<AtomicU32>,
    /// The number of reads of single records.
    pub reads_at: Arc<AtomicU32>,
}

impl Counting {
    pub fn new(world: &World) -> Self {
        Self {
            journal: world.journal.clone(),
            reads: Arc::default(),
            commits: Arc::default(),
            reads_at: Arc::default(),
        }
    }
}

impl Journal for Counting {
    delegate!(Journal, journal: open take append seal forget depth durability);

    fn read(&self, after: Position, bytes_max: usize) -> Fallible<'_, Vec<Commit>> {
        self.reads.fetch_add(1, SeqCst);
        let read = self.journal.read(after, bytes_max);
        Box::pin(async move {
            let read = read.await?;
            self.commits.fetch_add(read.len() as u32, SeqCst);
            Ok(read)
        })
    }
    fn read_at<'a>(&'a self, places: &'a [Place]) -> Maybe<'a, Result<Vec<Vec<u8>>, throng::journal::Error>> {
        self.reads_at.fetch_add(1, SeqCst);
        self.journal.read_at(places)
    }
}
