//! An entity that uses the whole model, in three generations of one kind.

use crate::relay::Relay;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, collections::BTreeMap, time::Duration};
use throng::model::*;

pub(crate) const KIND: &str = "account";

/// The view of an account: the number of events, and a digest of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct View {
    pub(crate) id: u64,
    pub(crate) count: u64,
    pub(crate) digest: u64,
    pub(crate) balance: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("no: {why}")]
pub(crate) struct No {
    pub(crate) why: String,
    pub(crate) view: View,
}

impl Rejection for No {
    fn code(&self) -> &'static str {
        "no"
    }
}

/// The contents of an event: its operation, the part of that, and the amount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Fact {
    pub(crate) op: u64,
    pub(crate) part: u32,
    pub(crate) amount: i64,
}

/// The memo of every move, in the second generation and later.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Memo<const G: u8>(pub(crate) u32);

fn missing<const G: u8>() -> Memo<G> {
    assert!(G == 1, "a move of generation 1 was not taken a step up");
    Memo(0)
}

impl<const G: u8> Memo<G> {
    fn is_none(&self) -> bool {
        G == 1
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Moved<const G: u8> {
    #[serde(flatten)]
    pub(crate) fact: Fact,
    #[serde(default = "missing", skip_serializing_if = "Memo::is_none")]
    pub(crate) memo: Memo<G>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Planned {
    #[serde(flatten)]
    pub(crate) fact: Fact,
    pub(crate) name: String,
    pub(crate) due: i64,
    pub(crate) times: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Named {
    #[serde(flatten)]
    pub(crate) fact: Fact,
    pub(crate) name: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum AccountEvent<const G: u8> {
    Opened(Fact),
    Moved(Moved<G>),
    Debited(Fact),
    Received(Fact),
    Reserved(Fact),
    Settled(Fact),
    Refunded(Fact),
    Passed(Fact),
    Hopped(Fact),
    Spawned(Fact),
    Planned(Planned),
    Cancelled(Named),
    Ticked(Named),
    /// Cannot be applied, so it is never recorded.
    Poison(Fact),
    /// Generation 2 cannot apply it.
    Bomb(Fact),
}

impl<const G: u8> AccountEvent<G> {
    pub(crate) fn parts(&self) -> (&'static str, Fact) {
        match self {
            Self::Opened(fact) => ("Opened", *fact),
            Self::Moved(moved) => ("Moved", moved.fact),
            Self::Debited(fact) => ("Debited", *fact),
            Self::Received(fact) => ("Received", *fact),
            Self::Reserved(fact) => ("Reserved", *fact),
            Self::Settled(fact) => ("Settled", *fact),
            Self::Refunded(fact) => ("Refunded", *fact),
            Self::Passed(fact) => ("Passed", *fact),
            Self::Hopped(fact) => ("Hopped", *fact),
            Self::Spawned(fact) => ("Spawned", *fact),
            Self::Planned(planned) => ("Planned", planned.fact),
            Self::Cancelled(named) => ("Cancelled", named.fact),
            Self::Ticked(named) => ("Ticked", named.fact),
            Self::Poison(fact) => ("Poison", *fact),
            Self::Bomb(fact) => ("Bomb", *fact),
        }
    }
}

impl<const G: u8> JsonSchema for AccountEvent<G> {
    fn schema_name() -> Cow<'static, str> {
        "AccountEvent".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({})
    }
}

impl<const G: u8> Event for AccountEvent<G> {
    const VERSIONS: &'static [(&'static str, u16)] = if G == 1 { &[] } else { &[("Moved", 2)] };

    fn upcast(mut old: Recorded) -> Result<Recorded, UpcastError> {
        if old.name != "Moved" || old.version != 1 {
            return Err(UpcastError(format!("no step up from {} {}", old.name, old.version)));
        }
        old.payload["memo"] = 0.into();
        old.version = 2;
        Ok(old)
    }
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum Mode {
    Accept,
    Refuse,
    Panic,
    Forward,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum Command {
    Open {
        op: u64,
        amount: i64,
    },
    Add {
        op: u64,
        amount: i64,
        parts: u32,
    },
    Take {
        op: u64,
        amount: i64,
    },
    Transfer {
        op: u64,
        to: Vec<u64>,
        amount: i64,
    },
    Receive {
        op: u64,
        part: u32,
        amount: i64,
    },
    Ask {
        op: u64,
        to: u64,
        amount: i64,
        mode: Mode,
    },
    Accept {
        op: u64,
        amount: i64,
        mode: Mode,
        next: u64,
    },
    Heard {
        op: u64,
        amount: i64,
        ok: bool,
    },
    Forward {
        op: u64,
        to: u64,
        amount: i64,
        trace: bool,
    },
    Chain {
        op: u64,
        hops: u32,
        to: Vec<u64>,
    },
    Spawn {
        op: u64,
        child: u64,
        /// True if the child answers.
        answers: bool,
    },
    /// Forwards to an account that depends on the state.
    Route {
        op: u64,
        amount: i64,
    },
    Plan {
        op: u64,
        name: String,
        after_micros: u64,
        every_micros: Option<u64>,
        times: u32,
    },
    Tick {
        op: u64,
        name: String,
        times: u32,
    },
    Cancel {
        op: u64,
        name: String,
    },
    PanicDeciding {
        op: u64,
    },
    PanicEvolving {
        op: u64,
    },
    Plant {
        op: u64,
    },
}

#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Account<const G: u8> {
    pub(crate) count: u64,
    pub(crate) digest: u64,
    pub(crate) balance: i64,
    ticks: BTreeMap<u64, u32>,
}

pub(crate) fn fold(digest: u64, name: &str, fact: Fact) -> u64 {
    let mut digest = digest;
    let length = name.len() as u64;
    let first = u64::from(name.as_bytes()[0]);
    for word in [
        length,
        first,
        fact.op,
        u64::from(fact.part),
        fact.amount.cast_unsigned(),
    ] {
        digest = (digest ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31);
    }
    digest
}

impl<const G: u8> Account<G> {
    pub(crate) fn view(&self, id: u64) -> View {
        View {
            id,
            count: self.count,
            digest: self.digest,
            balance: self.balance,
        }
    }

    fn after(id: u64) -> Result<CommandAnswer<Self>, No> {
        Ok(CommandAnswer::after(move |account: &Self| account.view(id)))
    }

    fn no(&self, id: u64, why: &str) -> Result<CommandAnswer<Self>, No> {
        Err(No {
            why: why.to_owned(),
            view: self.view(id),
        })
    }
}

impl<const G: u8> Entity for Account<G> {
    const KIND: &'static str = KIND;
    const STATE_VERSION: u16 = G as u16;
    type Id = u64;
    type Command = Command;
    type Event = AccountEvent<G>;
    type Reply = View;
    type Rejection = No;
    const REQUESTS: &'static [&'static str] = &[Self::KIND];

    fn creates(command: &Command) -> bool {
        !matches!(
            command,
            Command::Take { .. } | Command::Accept { .. } | Command::Cancel { .. }
        )
    }

    fn decide(&self, command: Command, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, No> {
        let id = *turn.id();
        let fact = |op, part, amount| Fact { op, part, amount };
        assert_eq!(turn.moment().seq, self.count, "as many events as were applied");
        match command {
            Command::Open { op, amount } => {
                if !turn.is_new() {
                    return self.no(id, "it is open");
                }
                turn.emit(AccountEvent::Opened(fact(op, 0, amount)));
            }
            Command::Add { op, amount, parts } => {
                for part in 0..parts {
                    let fact = fact(op, part, amount);
                    turn.emit(AccountEvent::Moved(Moved { fact, memo: Memo(7) }));
                }
            }
            Command::Take { op, amount } => {
                if self.balance < amount {
                    return self.no(id, "too little");
                }
                let fact = fact(op, 0, -amount);
                turn.emit(AccountEvent::Moved(Moved { fact, memo: Memo(8) }));
            }
            Command::Transfer { op, to, amount } => {
                let total = amount * to.len() as i64;
                turn.emit(AccountEvent::Debited(fact(op, 0, -total)));
                for (part, to) in (0..).zip(to) {
                    turn.send::<Self>(to, Command::Receive { op, part, amount });
                }
            }
            Command::Receive { op, part, amount } => turn.emit(AccountEvent::Received(fact(op, part, amount))),
            Command::Ask { op, to, amount, mode } => {
                turn.emit(AccountEvent::Reserved(fact(op, 0, -amount)));
                let next = to + 1;
                let accept = Command::Accept { op, amount, mode, next };
                turn.request::<Self>(to, accept, (op, amount));
            }
            Command::Accept { op, amount, mode, next } => match mode {
                Mode::Accept => turn.emit(AccountEvent::Received(fact(op, 0, amount))),
                Mode::Refuse => return self.no(id, "not wanted"),
                // A retry may have another outcome.
                Mode::Panic if turn.moment().seq.is_multiple_of(2) => panic!("planned panic: an asked entity"),
                Mode::Panic => return self.no(id, "not wanted any more"),
                Mode::Forward => {
                    let mode = Mode::Accept;
                    let accept = Command::Accept { op, amount, mode, next };
                    return Ok(CommandAnswer::forward::<Self>(next, accept));
                }
            },
            Command::Heard { op, ok: true, .. } => turn.emit(AccountEvent::Settled(fact(op, 0, 0))),
            Command::Heard { op, amount, ok: false } => turn.emit(AccountEvent::Refunded(fact(op, 0, amount))),
            Command::Forward { op, to, amount, trace } => {
                if trace {
                    turn.emit(AccountEvent::Passed(fact(op, 0, 0)));
                }
                let parts = 1;
                return Ok(CommandAnswer::forward::<Self>(to, Command::Add { op, amount, parts }));
            }
            Command::Chain { op, hops, to } => {
                turn.emit(AccountEvent::Hopped(fact(op, hops, 0)));
                if hops > 0 {
                    let next = to[hops as usize % to.len()];
                    turn.send::<Self>(next, Command::Chain { op, hops: hops - 1, to });
                }
            }
            Command::Spawn { op, child, answers } => {
                turn.emit(AccountEvent::Spawned(fact(op, 0, 0)));
                let open = Command::Open { op, amount: 0 };
                if answers {
                    return Ok(CommandAnswer::create::<Self>(child, open));
                }
                turn.create::<Self>(child, open);
            }
            Command::Route { op, amount } => {
                let add = Command::Add { op, amount, parts: 1 };
                return Ok(CommandAnswer::forward::<Self>(
                    self.count % crate::client::ACCOUNTS,
                    add,
                ));
            }
            Command::Plan {
                op,
                name,
                after_micros,
                every_micros,
                times,
            } => {
                let due = turn.now().after(Duration::from_micros(after_micros));
                let planned = Planned {
                    fact: fact(op, 0, 0),
                    name: name.clone(),
                    due: due.micros,
                    times: if every_micros.is_some() { times } else { 1 },
                };
                let every = every_micros.map(Duration::from_micros);
                let times = planned.times;
                turn.emit(AccountEvent::Planned(planned));
                turn.remind(name.clone(), due, every, Command::Tick { op, name, times });
            }
            Command::Tick { op, name, times } => {
                let part = self.ticks.get(&op).copied().unwrap_or_default();
                if part + 1 >= times {
                    turn.cancel(name.clone());
                }
                let fact = fact(op, part, 0);
                turn.emit(AccountEvent::Ticked(Named { fact, name }));
            }
            Command::Cancel { op, name } => {
                turn.cancel(name.clone());
                let fact = fact(op, 0, 0);
                turn.emit(AccountEvent::Cancelled(Named { fact, name }));
            }
            Command::PanicDeciding { op } => {
                turn.emit(AccountEvent::Opened(fact(op, 0, 1)));
                turn.send::<Self>(id + 1, Command::Receive { op, part: 0, amount: 1 });
                turn.send::<Relay>(id, crate::relay::Command::Post { op, to: id, amount: 1 });
                panic!("planned panic: deciding");
            }
            Command::PanicEvolving { op } => {
                turn.emit(AccountEvent::Moved(Moved {
                    fact: fact(op, 0, 1),
                    memo: Memo(9),
                }));
                turn.send::<Self>(id + 1, Command::Receive { op, part: 0, amount: 1 });
                turn.emit(AccountEvent::Poison(fact(op, 0, 1)));
            }
            Command::Plant { op } => turn.emit(AccountEvent::Bomb(fact(op, 0, 0))),
        }
        Self::after(id)
    }

    fn evolve(&mut self, event: &AccountEvent<G>) {
        let (name, fact) = event.parts();
        self.count += 1;
        self.digest = fold(self.digest, name, fact);
        self.balance += fact.amount;
        match event {
            AccountEvent::Ticked(named) => *self.ticks.entry(named.fact.op).or_default() += 1,
            AccountEvent::Poison(_) => panic!("planned panic: evolving"),
            AccountEvent::Bomb(_) if G == 2 => panic!("planned panic: this generation knows no bombs"),
            _ => {}
        }
    }

    fn heap_bytes(&self) -> usize {
        200 + self.ticks.len() * 16
    }
}

impl<const G: u8> OnOutcome<Account<G>> for Account<G> {
    /// The operation, and its amount.
    type Note = (u64, i64);

    fn on_outcome(_: u64, (op, amount): (u64, i64), outcome: Result<View, RequestError<No>>) -> Command {
        Command::Heard {
            op,
            amount,
            ok: outcome.is_ok(),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Look {}

impl<const G: u8> Query<Account<G>> for Look {
    const NAME: &'static str = "view";
    type Answer = View;

    fn answer(self, account: &Account<G>, moment: &Moment<'_, Account<G>>) -> Result<View, No> {
        Ok(account.view(*moment.id))
    }
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Kin {}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Relatives {
    pub(crate) parent: Option<String>,
    pub(crate) children: Vec<String>,
}

impl<const G: u8> Query<Account<G>> for Kin {
    const NAME: &'static str = "kin";
    type Answer = Relatives;

    fn answer(self, _: &Account<G>, moment: &Moment<'_, Account<G>>) -> Result<Relatives, No> {
        let family = moment.family.cloned().unwrap_or_default();
        Ok(Relatives {
            parent: family.parent.map(|(_, id)| id),
            children: family.children.into_iter().map(|(_, id)| id).collect(),
        })
    }
}
