//! The service of the fixtures. Its entities use every record kind. It must not change while a fixture is kept.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::SeqCst},
    },
    time::Duration,
};
use throng::{
    Builder, Engine, Options,
    host::{Host, TokioHost},
    model::*,
    projection::{DurableEvent, Interrupt, Projection, Rows},
};
use throng_testing::delegate;

/// 2026-11-26, 12:00 UTC, in microseconds: the time of day at which the fixtures were written.
pub(crate) const WRITTEN_AT: i64 = 1_795_694_400_000_000;
pub(crate) const DAY: Duration = Duration::from_hours(24);

#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Account {
    balance: i64,
    heard: Vec<String>,
    ticks: u32,
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) enum Command {
    Open {
        balance: i64,
    },
    Deposit {
        amount: i64,
    },
    Withdraw {
        amount: i64,
    },
    /// Withdraws here and deposits into another account.
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
    Remind {
        name: String,
        after_days: u32,
        every_days: Option<u32>,
    },
    Cancel {
        name: String,
    },
    Tick,
    Child {
        id: String,
    },
    Close,
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) enum AccountEvent {
    Opened { balance: i64 },
    Deposited { amount: i64 },
    Withdrawn { amount: i64 },
    Heard { text: String },
    Ticked,
    Closed,
}
impl Event for AccountEvent {}

#[derive(Debug, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("only {balance} are there")]
pub(crate) struct Short {
    balance: i64,
}
impl Rejection for Short {
    fn code(&self) -> &'static str {
        "short"
    }
}

impl Entity for Account {
    const KIND: &'static str = "account";
    const REQUESTS: &'static [&'static str] = &[Self::KIND];
    const KEEPS_COMMANDS: bool = true;
    type Id = String;
    type Command = Command;
    type Event = AccountEvent;
    type Reply = i64;
    type Rejection = Short;

    fn creates(command: &Command) -> bool {
        matches!(command, Command::Open { .. })
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
            Command::Remind {
                name,
                after_days,
                every_days,
            } => {
                let at = Timestamp { micros: WRITTEN_AT }.after(DAY * after_days);
                turn.remind(name, at, every_days.map(|days| DAY * days), Command::Tick);
            }
            Command::Cancel { name } => turn.cancel(name),
            Command::Tick => turn.emit(AccountEvent::Ticked),
            Command::Child { id } => turn.create::<Self>(id, Command::Open { balance: 1 }),
            Command::Close => {
                turn.emit(AccountEvent::Closed);
                turn.end();
            }
        }
        Ok(CommandAnswer::after(|account: &Account| account.balance))
    }

    fn evolve(&mut self, event: &AccountEvent) {
        match event {
            AccountEvent::Opened { balance } => self.balance = *balance,
            AccountEvent::Deposited { amount } => self.balance += amount,
            AccountEvent::Withdrawn { amount } => self.balance -= amount,
            AccountEvent::Heard { text } => self.heard.push(text.clone()),
            AccountEvent::Ticked => self.ticks += 1,
            AccountEvent::Closed => {}
        }
    }
}

impl OnOutcome<Account> for Account {
    type Note = String;

    fn on_outcome(from: String, note: String, outcome: Result<i64, RequestError<Short>>) -> Command {
        let text = match outcome {
            Ok(balance) => format!("{from} ({note}) has {balance} left"),
            Err(error) => format!("{from} ({note}): {error}"),
        };
        Command::Heard { text }
    }
}

/// Keeps its last two events.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Visits {
    count: u64,
    last: String,
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) enum VisitCommand {
    Enter {
        text: String,
    },
    /// Enters, and sends a deposit to an account. The message can outlive the event.
    Tip {
        account: String,
    },
    Leave,
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) enum VisitEvent {
    Entered { text: String },
}
impl Event for VisitEvent {}

#[derive(Debug, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("it never says no")]
pub(crate) struct Never;
impl Rejection for Never {
    fn code(&self) -> &'static str {
        "never"
    }
}

impl Entity for Visits {
    const KIND: &'static str = "visits";
    const KEEP: Keep = Keep::Events(2);
    type Id = String;
    type Command = VisitCommand;
    type Event = VisitEvent;
    type Reply = u64;
    type Rejection = Never;

    fn decide(&self, command: VisitCommand, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
        let text = match command {
            VisitCommand::Enter { text } => text,
            VisitCommand::Tip { account } => {
                let text = format!("a tip for {account}");
                turn.send::<Account>(account, Command::Deposit { amount: 1 });
                text
            }
            VisitCommand::Leave => "the last one".into(),
        };
        turn.emit(VisitEvent::Entered { text });
        Ok(CommandAnswer::after(|visits: &Visits| visits.count))
    }

    fn evolve(&mut self, VisitEvent::Entered { text }: &VisitEvent) {
        self.count += 1;
        self.last.clone_from(text);
    }
}

/// Missing in the program that makes the last checkpoint, so the store notes its records.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Former(Visits);

impl Entity for Former {
    const KIND: &'static str = "former";
    type Id = String;
    type Command = VisitCommand;
    type Event = VisitEvent;
    type Reply = u64;
    type Rejection = Never;

    fn decide(&self, command: VisitCommand, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
        match command {
            VisitCommand::Enter { text } => turn.emit(VisitEvent::Entered { text }),
            VisitCommand::Tip { .. } | VisitCommand::Leave => turn.end(),
        }
        Ok(CommandAnswer::after(|former: &Former| former.0.count))
    }

    fn evolve(&mut self, event: &VisitEvent) {
        self.0.evolve(event);
    }
}

/// The balance of each account that has one.
pub(crate) struct Balances;

impl Projection for Balances {
    const NAME: &'static str = "balances";
    type Of = Account;

    fn apply(&self, seen: &DurableEvent<Account>, rows: &mut Rows<'_>) -> Result<(), Interrupt> {
        let change = match &seen.event {
            AccountEvent::Opened { balance } => *balance,
            AccountEvent::Deposited { amount } => *amount,
            AccountEvent::Withdrawn { amount } => -amount,
            _ => return Ok(()),
        };
        let balance: i64 = rows.json(&seen.id)?.unwrap_or(0);
        rows.put_json(&seen.id, &(balance + change))
    }
}

/// Shows the time of day at which the fixtures were written, plus an offset.
pub(crate) struct Clock {
    host: TokioHost,
    added_micros: AtomicI64,
}

impl Clock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            host: TokioHost::new().unwrap(),
            added_micros: AtomicI64::new(0),
        })
    }

    pub(crate) fn add(&self, time: Duration) {
        self.added_micros.fetch_add(time.as_micros() as i64, SeqCst);
    }
}

impl Host for Clock {
    delegate!(Host, host: elapsed_micros entropy spawn sleep close);

    fn now(&self) -> Timestamp {
        Timestamp {
            micros: WRITTEN_AT + self.host.elapsed_micros().cast_signed() + self.added_micros.load(SeqCst),
        }
    }
}

/// Returns the service without a journal. Checkpoints and retention run only on a test's request.
pub(crate) fn service(has_former: bool, clock: Arc<Clock>) -> Builder {
    let options = Options {
        keep: BTreeMap::new(),
        prune_every: Some(Duration::MAX),
        checkpoint_every: Duration::from_hours(1),
        deadline: Duration::from_mins(1),
        drain: Duration::from_mins(1),
        ..Options::default()
    };
    let builder = Engine::builder()
        .with::<Account>()
        .on_outcome::<Account, Account>()
        .with::<Visits>()
        .projection(Balances)
        .host(clock)
        .shards(8)
        .options(options);
    match has_former {
        true => builder.with::<Former>(),
        false => builder,
    }
}
