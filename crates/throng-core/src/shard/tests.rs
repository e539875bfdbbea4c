//! The shard alone: the records it stages, and that nothing is staged after any failure.

use super::*;
use crate::{
    limits,
    model::{CommandAnswer, Entity, Error, Event, OnOutcome, Rejection, RequestError, Turn},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng_journal::{CommitBuilder, CommitNo, Loaded, Position, RecordKind, scratch::SCRATCH_BYTES_MAX};

#[derive(Default, Serialize, Deserialize)]
struct Account {
    #[serde(serialize_with = "storable")]
    balance: i64,
}

/// The balance at which an account's state cannot be stored.
pub(super) const UNSTORABLE: i64 = 666_666;

fn storable<S: serde::Serializer>(balance: &i64, to: S) -> Result<S::Ok, S::Error> {
    match *balance {
        UNSTORABLE => Err(serde::ser::Error::custom("the beast")),
        balance => to.serialize_i64(balance),
    }
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub(super) enum Command {
    Deposit {
        #[serde(deserialize_with = "read_amount")]
        amount: i64,
    },
    Withdraw {
        amount: i64,
    },
    Pay {
        to: String,
        amount: i64,
    },
    Many {
        events: u32,
    },
    Child {
        id: String,
    },
    Remind {
        at: i64,
    },
    Tick,
    /// Requests something from another account, which refuses with this many bytes.
    Request {
        to: String,
        bytes: usize,
    },
    Refuse {
        bytes: usize,
    },
    PanicDeciding,
    PanicEvolving,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
enum AccountEvent {
    Deposited { amount: i64 },
    Withdrawn { amount: i64 },
    Exploded,
}
impl Event for AccountEvent {}

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("only {balance} are there")]
pub(super) struct Short {
    balance: i64,
    #[serde(default)]
    text: String,
}

fn short(balance: i64) -> Short {
    Short {
        balance,
        text: String::new(),
    }
}
impl Rejection for Short {
    fn code(&self) -> &'static str {
        "short"
    }
}

/// A number whose parser has a fault.
#[derive(Clone)]
struct AccountId(String);

impl std::fmt::Display for AccountId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::str::FromStr for AccountId {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        assert!(!text.starts_with("odd"), "an odd id");
        Ok(Self(text.into()))
    }
}

/// Reads an amount, with a deliberate fault: `i64::MIN` panics.
fn read_amount<'de, D: serde::Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
    let amount = i64::deserialize(from)?;
    assert_ne!(amount, i64::MIN, "an odd amount");
    Ok(amount)
}

impl Entity for Account {
    const KIND: &'static str = "account";
    type Id = AccountId;
    type Command = Command;
    type Event = AccountEvent;
    type Reply = i64;
    type Rejection = Short;
    const REQUESTS: &'static [&'static str] = &[Self::KIND];

    fn creates(command: &Command) -> bool {
        !matches!(command, Command::Withdraw { .. })
    }

    fn decide(&self, command: Command, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Short> {
        match command {
            Command::Deposit { amount } => turn.emit(AccountEvent::Deposited { amount }),
            Command::Withdraw { amount } if amount > self.balance => return Err(short(self.balance)),
            Command::Withdraw { amount } => turn.emit(AccountEvent::Withdrawn { amount }),
            Command::Pay { to, amount } => {
                turn.emit(AccountEvent::Withdrawn { amount });
                turn.send::<Self>(AccountId(to), Command::Deposit { amount });
            }
            Command::Many { events } => (0..events).for_each(|_| turn.emit(AccountEvent::Deposited { amount: 1 })),
            Command::Child { id } => turn.create::<Self>(AccountId(id), Command::Tick),
            Command::Remind { at } => turn.remind("tick", Timestamp { micros: at }, None, Command::Tick),
            Command::Tick => {}
            Command::Request { to, bytes } => turn.request::<Self>(AccountId(to), Command::Refuse { bytes }, "note"),
            Command::Refuse { bytes } => {
                return Err(Short {
                    text: "x".repeat(bytes),
                    ..short(self.balance)
                });
            }
            Command::PanicDeciding => panic!("deciding"),
            Command::PanicEvolving => {
                turn.emit(AccountEvent::Deposited { amount: 1 });
                turn.emit(AccountEvent::Exploded);
            }
        }
        Ok(CommandAnswer::after(|account: &Account| account.balance))
    }

    fn evolve(&mut self, event: &AccountEvent) {
        match event {
            AccountEvent::Deposited { amount } => self.balance += amount,
            AccountEvent::Withdrawn { amount } => self.balance -= amount,
            AccountEvent::Exploded => panic!("evolving"),
        }
    }
}

impl OnOutcome<Account> for Account {
    type Note = String;

    fn on_outcome(_: AccountId, _: String, _: Result<i64, RequestError<Short>>) -> Command {
        Command::Tick
    }
}

/// A commit that is open, without an engine.
#[derive(Default)]
pub(super) struct Open {
    pub(super) builder: CommitBuilder,
    pub(super) staged: usize,
}

impl Stage for Open {
    fn stage(&mut self, records: &mut CommitBuilder) -> Staged {
        self.staged += 1;
        Staged {
            commit: 1,
            shift: self.builder.append(records),
        }
    }
}

/// Returns the cause of a client's command.
fn asked(key: Option<&str>) -> Cause<'_> {
    Cause::Asked {
        key,
        life: KeyLife::default(),
        caller: None,
        forwarded: None,
    }
}

/// The position of the commit of [`Bench::finish`].
pub(super) const FIRST: Position = Position {
    writer: WriterId(1),
    commit: CommitNo(1),
};

pub(super) struct Bench {
    pub(super) shard: Shard,
    pub(super) open: Open,
}

pub(super) type Answered = Result<i64, Error<Short>>;

impl Bench {
    pub(super) fn new() -> Self {
        let mut registry = Registry::default();
        registry.add::<Account>();
        registry.add_hears::<Account, Account>();
        registry.set_shards(1);
        Self {
            shard: Shard::new(ShardId(0), WriterId(1), Arc::new(registry), Timestamp::default()),
            open: Open::default(),
        }
    }

    pub(super) fn run(&mut self, id: &str, command: Command, key: Option<&str>) -> (Ran, Option<Answered>) {
        let mut input = Some(command);
        let mut output: Option<Answered> = None;
        let (typed, reply) = (Input::Typed(&mut input), Output::Typed(&mut output));
        let ran = self.execute(id, typed, reply, asked(key), false);
        (ran, output)
    }

    pub(super) fn execute(
        &mut self,
        id: &str,
        input: Input<'_>,
        output: Output<'_>,
        cause: Cause<'_>,
        may_wait: bool,
    ) -> Ran {
        let mut call = Call {
            kind: 0,
            hash: limits::hash("account", id),
            id,
            now: Timestamp { micros: 1_000 },
            entropy: 7,
            input,
            output,
            cause,
            may_wait,
            trace: None,
        };
        self.shard.execute(&mut call, &mut self.open)
    }

    pub(super) fn ask(&mut self, id: &str, command: Command) -> Answered {
        self.run(id, command, None).1.expect("the shard answers at once")
    }

    /// Adds the entity to the store, not loaded yet.
    pub(super) fn store_has(&mut self, id: &str) {
        let mut known = resident::known::Known::default();
        known.insert(limits::hash("account", id));
        let mut rows = Vec::new();
        known.rows("account", ShardId(0), &mut rows);
        for (row, value) in rows {
            assert!(self.shard.row(&row, &value.unwrap()));
        }
    }

    /// Finishes the open commit.
    pub(super) fn finish(&mut self) -> throng_journal::Commit {
        self.open.builder.finish(throng_journal::Stamp {
            writer: WriterId(1),
            number: CommitNo(1),
            synced: CommitNo(0),
            at_micros: 0,
        })
    }

    fn json(&mut self, id: &str, name: &str, body: &str) -> JsonReply {
        let mut reply = JsonReply::default();
        let body = body.as_bytes();
        let ran = self.execute(
            id,
            Input::Json { name, body },
            Output::Json(&mut reply),
            asked(None),
            false,
        );
        assert!(matches!(ran, Ran::Done { .. }));
        reply
    }
}

#[test]
fn a_command_that_does_not_create_finds_nobody() {
    let mut bench = Bench::new();
    let answer = bench.ask("a", Command::Withdraw { amount: 1 });
    assert!(
        matches!(answer, Err(Error::Unknown { kind: "account", .. })),
        "{answer:?}"
    );
    assert_eq!((bench.open.staged, bench.shard.load().entities), (0, 0));
}

//= promise 5: numbers have no gaps
#[test]
fn events_are_staged_with_their_place_and_gapless_numbers() {
    let mut bench = Bench::new();
    assert_eq!(bench.ask("a", Command::Deposit { amount: 5 }), Ok(5));
    assert_eq!(bench.ask("b", Command::Deposit { amount: 6 }), Ok(6));
    assert_eq!(bench.ask("a", Command::Many { events: 2 }), Ok(7));
    let commit = bench.finish();
    let records: Vec<_> = commit
        .records()
        .map(Result::unwrap)
        .map(|record| (record.id, record.seq))
        .collect();
    assert_eq!(records, [("a", 1), ("b", 1), ("a", 2), ("a", 3)]);
    for event in bench.shard.tail(0, limits::hash("account", "a"), "a") {
        let body = &commit.bytes()[event.place.offset as usize..][..event.place.len as usize];
        assert!(body.starts_with(b"{\"amount\":"), "{:?}", String::from_utf8_lossy(body));
    }
}

#[test]
fn large_command_leaves_no_large_buffer_behind() {
    let mut bench = Bench::new();
    for command in [
        Command::Many { events: 100_000 },
        Command::Many { events: 500 },
        Command::PanicEvolving,
    ] {
        let (_, common) = bench.shard.entities::<Account>(0).unwrap();
        common.payload.reserve(1 << 20);
        bench.run("a", command, None);
        let (accounts, common) = bench.shard.entities::<Account>(0).unwrap();
        let events = accounts.effects.events.capacity() * size_of::<AccountEvent>();
        assert!(common.payload.capacity() <= SCRATCH_BYTES_MAX && events <= SCRATCH_BYTES_MAX);
    }
}

//= promise 8: a panic costs one command
#[test]
fn a_rejection_or_a_panic_stages_nothing_and_changes_nothing() {
    let mut bench = Bench::new();
    assert_eq!(bench.ask("a", Command::Deposit { amount: 5 }), Ok(5));
    let staged = bench.open.staged;
    assert_eq!(
        bench.ask("a", Command::Withdraw { amount: 6 }),
        Err(Error::Rejected(short(5)))
    );
    assert_eq!(
        bench.ask("a", Command::PanicDeciding),
        Err(Error::Crashed {
            reason: "deciding".into()
        })
    );
    assert_eq!(bench.open.staged, staged);
    assert_eq!(bench.ask("a", Command::Withdraw { amount: 5 }), Ok(0));
}

#[test]
fn a_panic_while_reading_costs_only_its_command() {
    let mut bench = Bench::new();
    let told = |answer: JsonReply| answer.error.unwrap().to_string();
    let deposit = |amount: i64| format!(r#"{{"amount":{amount}}}"#);
    let of_odd_id = told(bench.json("odd one", "Deposit", &deposit(1)));
    assert!(
        of_odd_id.ends_with("is not an id of a account: an odd id"),
        "{of_odd_id}"
    );
    let of_odd_amount = told(bench.json("a", "Deposit", &deposit(i64::MIN)));
    assert!(of_odd_amount.contains("an odd amount"), "{of_odd_amount}");
    assert_eq!(bench.json("a", "Deposit", &deposit(2)).body, b"2");
    assert_eq!(bench.open.staged, 1);
}

#[test]
fn a_half_changed_state_comes_back_from_its_events() {
    let mut bench = Bench::new();
    assert_eq!(bench.ask("a", Command::Deposit { amount: 5 }), Ok(5));
    assert_eq!(
        bench.ask("a", Command::PanicEvolving),
        Err(Error::Crashed {
            reason: "evolving".into()
        })
    );
    assert!(matches!(
        bench.run("a", Command::Deposit { amount: 1 }, None).0,
        Ran::Load
    ));
    let hash = limits::hash("account", "a");
    let request = bench.shard.load_request(0, hash, "a").unwrap();
    assert_eq!(request.tail.iter().map(|event| event.seq).collect::<Vec<_>>(), [1]);
    let tail = request
        .tail
        .into_iter()
        .map(|event| (event, br#"{"amount":5}"#.to_vec()))
        .collect();
    bench.shard.loaded(
        0,
        hash,
        "a",
        Recalled {
            tail,
            ..Recalled::default()
        },
    );
    assert_eq!(bench.ask("a", Command::Deposit { amount: 1 }), Ok(6));
}

#[test]
fn too_many_events_are_refused_whole() {
    let mut bench = Bench::new();
    let at_the_edge = u32::try_from(limits::EVENTS_MAX).unwrap();
    assert_eq!(bench.ask("a", Command::Many { events: at_the_edge }), Ok(1_000));
    let answer = bench.ask(
        "a",
        Command::Many {
            events: at_the_edge + 1,
        },
    );
    assert!(
        matches!(
            answer,
            Err(Error::TooLarge {
                found: 1_001,
                limit: 1_000,
                ..
            })
        ),
        "{answer:?}"
    );
    assert_eq!(
        answer.unwrap_err().to_string(),
        "the number of events of one command is 1001, at most 1000 are allowed; nothing was done"
    );
    assert_eq!(bench.ask("a", Command::Deposit { amount: 1 }), Ok(1_001));
}

#[test]
fn a_key_gives_the_same_answer_again_and_no_other_command() {
    let mut bench = Bench::new();
    let mut once = |command| bench.run("a", command, Some("key")).1.unwrap();
    assert_eq!(once(Command::Deposit { amount: 5 }), Ok(5));
    assert_eq!(once(Command::Deposit { amount: 5 }), Ok(5));
    assert_eq!(
        once(Command::Deposit { amount: 6 }),
        Err(Error::KeyReused("key".into()))
    );
    assert_eq!(bench.ask("a", Command::Deposit { amount: 1 }), Ok(6));
}

//= promise 6: taken exactly once
#[test]
fn messages_are_recorded_with_the_events_and_taken_once() {
    let mut bench = Bench::new();
    assert_eq!(bench.ask("a", Command::Deposit { amount: 5 }), Ok(5));
    assert_eq!(
        bench.ask(
            "a",
            Command::Pay {
                to: "b".into(),
                amount: 3
            }
        ),
        Ok(2)
    );
    let mut sent = bench.shard.take_outbox();
    let Some(mut delivery) = sent.pop() else {
        panic!("a message was sent")
    };
    for taken in [false, true] {
        assert_eq!(bench.shard.is_taken(&delivery.taking), taken);
        if !taken {
            let (input, taking) = delivery.parts();
            bench.execute("b", input, Output::Nobody, Cause::Message(taking), false);
        }
    }
    assert_eq!(bench.ask("b", Command::Withdraw { amount: 3 }), Ok(0));
}

#[test]
fn json_errors_name_the_field_the_line_and_the_column() {
    let mut bench = Bench::new();
    let text = |reply: JsonReply| reply.error.map(|error| error.to_string()).unwrap_or_default();
    assert_eq!(bench.json("a", "Deposit", r#"{"amount":5}"#).body, b"5");
    let missing = text(bench.json("a", "Deposit", "{}"));
    assert!(
        missing.contains("missing field `amount`") && missing.contains("line 1 column"),
        "{missing}"
    );
    let wrong = text(bench.json("a", "Deposit", r#"{"amount":"x"}"#));
    assert!(wrong.starts_with("amount: invalid type: string \"x\""), "{wrong}");
    let unknown = text(bench.json("a", "Steal", "{}"));
    assert!(unknown.contains("unknown variant `Steal`"), "{unknown}");
}

#[test]
fn large_entity_that_was_used_last_is_put_away() {
    let mut bench = Bench::new();
    bench.ask("a", Command::Deposit { amount: 5 }).unwrap();
    bench.shard.passivate(usize::MAX, CommitNo(0));
    bench.shard.passivate_large(1 << 20);
    assert_eq!(bench.shard.load().entities, 1, "neither takes a small one");
    assert!(bench.shard.has_large(1) && !bench.shard.has_large(1 << 20));
    bench.shard.passivate_large(1);
    assert_eq!(bench.shard.load().entities, 0);
    assert_eq!(
        bench.ask("a", Command::Deposit { amount: 1 }),
        Ok(6),
        "its state is on the way to the store"
    );
}

#[test]
fn passivated_entities_come_back_as_they_were() {
    let mut bench = Bench::new();
    for id in ["a", "b", "c"] {
        assert_eq!(bench.ask(id, Command::Deposit { amount: 5 }), Ok(5));
    }
    let before = bench.shard.load();
    assert_eq!(before.entities, 3);
    bench.shard.passivate(usize::MAX, CommitNo(0));
    let after = bench.shard.load();
    assert_eq!(after.entities, 1, "only the last used stays");
    assert!(after.pending_bytes > 0);
    assert_eq!(
        bench.ask("b", Command::Withdraw { amount: 4 }),
        Ok(1),
        "from the state on its way to the store"
    );
    let mut rows = Rows::default();
    bench.shard.checkpoint(Timestamp::default(), &mut rows);
    assert_eq!(rows.states.len(), 2);
    let upto = throng_journal::Position {
        writer: WriterId(1),
        commit: CommitNo(1),
    };
    bench.shard.checkpointed(upto);
    assert_eq!(bench.shard.load().pending_bytes, 0);
    assert!(
        matches!(bench.run("a", Command::Deposit { amount: 1 }, None).0, Ran::Load),
        "from the store now"
    );
    let state = rows.states.into_iter().find(|state| &*state.address.id == "a");
    bench.shard.loaded(
        0,
        limits::hash("account", "a"),
        "a",
        Recalled {
            stored: Loaded {
                state,
                events: Vec::new(),
            },
            ..Recalled::default()
        },
    );
    assert_eq!(bench.ask("a", Command::Deposit { amount: 1 }), Ok(6));
}

//= promise 8: a panic costs one command
#[test]
fn an_event_nobody_understands_quarantines_its_entity_alone() {
    let mut bench = Bench::new();
    let hash = limits::hash("account", "a");
    let event = throng_journal::StoredEvent {
        seq: 1,
        position: throng_journal::Position::default(),
        at_micros: 0,
        name: "Renamed".into(),
        version: 1,
        payload: b"{}".to_vec(),
    };
    bench.shard.loaded(
        0,
        hash,
        "a",
        Recalled {
            stored: Loaded {
                state: None,
                events: vec![event],
            },
            ..Recalled::default()
        },
    );
    let answer = bench.ask("a", Command::Deposit { amount: 1 });
    let Err(Error::Quarantined { seq: 1, reason, .. }) = answer else {
        panic!("{answer:?}")
    };
    assert!(
        reason.contains("Renamed") && reason.contains("unknown variant"),
        "{reason}"
    );
    assert_eq!(bench.ask("b", Command::Deposit { amount: 1 }), Ok(1));
}

#[test]
fn the_records_of_an_event_are_of_the_event_kind() {
    let mut bench = Bench::new();
    assert_eq!(
        bench.ask(
            "a",
            Command::Pay {
                to: "b".into(),
                amount: 0
            }
        ),
        Ok(0)
    );
    let commit = bench.finish();
    let kinds: Vec<_> = commit.records().map(|record| record.unwrap().record).collect();
    assert_eq!(kinds, [RecordKind::Event, RecordKind::Sent]);
}

/// Delivers the only pending message. Returns how it was taken.
fn deliver(bench: &mut Bench) -> String {
    let mut delivery = bench.shard.take_outbox().remove(0);
    let to = delivery.to.id.clone();
    let (input, taking) = delivery.parts();
    bench.execute(&to, input, Output::Nobody, Cause::Message(taking), false);
    let commit = bench.finish();
    let records = commit.records().map(Result::unwrap);
    let mut taken = records.filter(|record| record.record == RecordKind::Taken);
    taken.next().expect("it was taken").name.to_owned()
}

#[test]
fn an_unreportable_refusal_is_dead_and_leaves_no_report() {
    for (bytes, taken, reports) in [(10, "refused", 1), (limits::RECORD_BYTES_MAX, "dead", 0)] {
        let mut bench = Bench::new();
        let to = "b".to_owned();
        bench.ask("a", Command::Request { to, bytes }).unwrap();
        bench.finish();
        assert_eq!(deliver(&mut bench), taken);
        assert_eq!(bench.shard.take_outbox().len(), reports);
        // The rejected message used no number: the next one follows the request and the report.
        let to = "b".to_owned();
        bench.ask("a", Command::Pay { to, amount: 1 }).unwrap();
        assert_eq!(bench.shard.take_outbox()[0].taking.number, 2 + reports as u64);
    }
}

#[test]
fn the_reason_of_a_refusal_is_cut_where_it_is_too_long() {
    let mut reason = "ä".repeat(limits::REASON_BYTES_MAX);
    reason.push('!');
    let mut bench = Bench::new();
    let to = "b".to_owned();
    bench.ask("a", Command::Pay { to, amount: 1 }).unwrap();
    let delivery = bench.shard.take_outbox().remove(0);
    bench
        .shard
        .record_dead(&delivery, Timestamp::default(), &reason, &mut bench.open);
    let dead = bench.shard.fresh_dead(&dead_rows(None), &[], 1);
    let message = DeadMessage::read(&dead[0].0, dead[0].1.as_ref().unwrap()).unwrap();
    assert_eq!(message.reason, "ä".repeat(limits::REASON_BYTES_MAX / 2));
}

#[test]
fn unknown_records_stay_where_a_newer_program_may_come() {
    let mut bench = Bench::new();
    let body = br#"{"amount":1}"#;
    let mut run = |id: &str, name: &str, may_wait| {
        let mut reply = JsonReply::default();
        let (input, output) = (Input::Json { name, body }, Output::Json(&mut reply));
        let ran = bench.execute(id, input, output, asked(None), may_wait);
        let is_left = matches!(&ran, Ran::NotUnderstood(why) if why.contains("unknown variant `Steal`"));
        (is_left, reply.error.is_some(), bench.open.staged)
    };
    assert_eq!(run("a", "Deposit", true), (false, false, 1));
    assert_eq!(
        run("a", "Steal", true),
        (true, false, 1),
        "nothing is recorded, nothing answered"
    );
    assert_eq!(run("a", "Steal", false), (false, true, 1));
}
