#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(dead_code, reason = "only the schemas are used")]

use super::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::marker::PhantomData;
use throng::model::{
    Attempt, CallError, CallId, CallOutcome, CommandAnswer, CommandReply, Entity, Event, Message, OnCallOutcome,
    OnOutcome, Outside, Rejection, RequestError, Turn,
};

/// An account whose types depend on the contract.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
struct Account<C, E, R>(PhantomData<fn(C, E, R)>);

impl<C, E, R> Default for Account<C, E, R> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

#[derive(Debug, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("it is closed")]
enum Refused {
    Closed,
}

impl Rejection for Refused {
    fn code(&self) -> &'static str {
        "closed"
    }
}

impl<C: Message, E: Event, R: Message> Entity for Account<C, E, R> {
    const KIND: &'static str = "account";
    const PUBLIC: &'static [&'static str] = &["deposit"];
    type Id = String;
    type Command = C;
    type Event = E;
    type Reply = R;
    type Rejection = Refused;

    fn decide(&self, _: C, _: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Refused> {
        Err(Refused::Closed)
    }

    fn evolve(&mut self, _: &E) {}
}

/// Declares the messages of a contract.
macro_rules! messages {
    ($($(#[$attribute:meta])* $name:ident { $($body:tt)* })*) => { $(
        #[derive(Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        $(#[$attribute])*
        enum $name { $($body)* }
    )* };
}

messages! {
    Command { Deposit { cents: u32, note: Option<String> }, Tick {} }
    CommandGone { Deposit { cents: u32, note: Option<String> } }
    CommandNarrow { Deposit { cents: u16, note: String, from: Option<u8> }, Tick { again: bool } }
    CommandWithoutNote { Deposit { cents: u64 }, Tick {} }
    Deposited { Deposited { cents: u32, by: By } }
    DepositedMore { Deposited { cents: u32, by: By, from: String } }
    DepositedOptional { Deposited { cents: u32, by: By, #[serde(default)] from: Option<String> }, Closed }
    DepositedLess { Deposited { by: By } }
    DepositedWide { Deposited { cents: u64, by: ByMore } }
    Received { Received { cents: u32 } }
    DepositedAnew { Deposited { amount: f64 } }
    By { Cash, Card }
    ByMore { Cash, Card, Phone }
    List { End, More(Box<List>, u8) }
    ListOther { End, More(Box<ListOther>, String) }
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Reply {
    cents: u64,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct ReplyMore {
    cents: Option<u64>,
    open: bool,
}

impl Event for Deposited {}
impl Event for DepositedMore {}
impl Event for DepositedOptional {}
impl Event for DepositedLess {}
impl Event for DepositedWide {}
impl Event for List {}
impl Event for ListOther {}

impl Event for Received {
    const VERSIONS: &'static [(&'static str, u16)] = &[("deposited", 2)];
}

impl Event for DepositedAnew {
    const VERSIONS: &'static [(&'static str, u16)] = &[("deposited", 2)];
}

fn app<C: Message, E: Event, R: Message>() -> App {
    App::new("test").with::<Account<C, E, R>>()
}

fn contract<C: Message, E: Event, R: Message>() -> Value {
    export(app::<C, E, R>()).unwrap()
}

/// Returns the changes from the first contract to this one.
fn since_first<C: Message, E: Event, R: Message>() -> Vec<String> {
    said(&contract::<Command, Deposited, Reply>(), &contract::<C, E, R>())
}

fn said(old: &Value, new: &Value) -> Vec<String> {
    changes(old, new).iter().map(ToString::to_string).collect()
}

#[test]
fn contract_without_changes_is_compatible() {
    assert_eq!(since_first::<Command, Deposited, Reply>(), [""; 0]);
}

#[test]
fn commands_that_clients_may_send_stay_acceptable() {
    assert_eq!(
        since_first::<CommandGone, Deposited, Reply>(),
        ["breaking: account/commands/tick is gone: give it an alias, or take it up with upcast_command"]
    );
    assert_eq!(
        since_first::<CommandNarrow, Deposited, Reply>(),
        [
            "breaking: account/commands/deposit/cents has the maximum 65535 now, and had 4294967295",
            "breaking: account/commands/deposit/note is required now, and could be absent",
            "breaking: account/commands/deposit/note is string now, and could be null",
            "breaking: account/commands/tick/again is required now, and could be absent",
        ]
    );
    assert_eq!(
        since_first::<CommandWithoutNote, Deposited, Reply>(),
        ["breaking: account/commands/deposit/note is gone: whoever sends it is refused"]
    );
}

#[test]
fn recorded_events_stay_readable() {
    assert_eq!(
        since_first::<Command, DepositedMore, Reply>(),
        ["breaking: account/events/deposited/from is required now, and could be absent"]
    );
    assert_eq!(
        since_first::<Command, DepositedOptional, Reply>(),
        ["caution: account/events/closed is a new event: the older program cannot read it, readers may not know it"]
    );
    assert_eq!(
        since_first::<Command, DepositedLess, Reply>(),
        ["breaking: account/events/deposited/cents may be absent now, and was always there"]
    );
}

#[test]
fn readers_of_events_meet_no_wider_values() {
    assert_eq!(
        since_first::<Command, DepositedWide, Reply>(),
        [
            "breaking: account/events/deposited/cents has the maximum 18446744073709552000 now, and had 4294967295",
            "caution: account/events/deposited/by may be \"phone\" now: older readers do not know it",
        ]
    );
}

#[test]
fn raised_version_of_an_event_is_a_caution() {
    let raised = "caution: account/events/deposited has version 2 now, and had 1: its upcaster has to take it up, and the older program cannot read it";
    assert_eq!(since_first::<Command, DepositedAnew, Reply>(), [raised]);
    let renamed = since_first::<Command, Received, Reply>();
    assert_eq!(renamed.len(), 2, "{renamed:?}");
    assert_eq!(renamed[0], raised);
    assert!(
        renamed[1].starts_with("caution: account/events/received is a new event"),
        "{renamed:?}"
    );
    let back = said(
        &contract::<Command, DepositedAnew, Reply>(),
        &contract::<Command, Deposited, Reply>(),
    );
    assert_eq!(
        back,
        ["breaking: account/events/deposited has version 1, and had 2: recorded ones cannot be read"]
    );
}

#[test]
fn replies_keep_all_that_clients_read() {
    assert_eq!(
        since_first::<Command, Deposited, ReplyMore>(),
        [
            "breaking: account/reply/cents may be absent now, and was always there",
            "breaking: account/reply/cents may be null now, and was integer",
            "caution: account/reply/open is required now, and could be absent",
        ]
    );
}

#[test]
fn recursive_types_are_compared_to_their_end() {
    let (old, new) = (
        contract::<Command, List, Reply>(),
        contract::<Command, ListOther, Reply>(),
    );
    assert_eq!(said(&old, &old), [""; 0]);
    assert_eq!(
        said(&old, &new),
        [
            "breaking: account/events/more/0/more/1 is string now, and could be integer",
            "breaking: account/events/more/0/more/1 may be string now, and was integer",
            "breaking: account/events/more/1 is string now, and could be integer",
            "breaking: account/events/more/1 may be string now, and was integer",
        ]
    );
}

#[test]
fn exit_code_tells_compatible_from_breaking_from_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (old, nothing) = (path("old.json"), path("nothing.json"));
    fs::write(&nothing, "{}").unwrap();
    let run = |app: App, arguments: &[&str]| app.run_with([&["test", "schema"][..], arguments].concat());
    let export = run(app::<Command, Deposited, Reply>(), &["export", "--output", &old]);
    assert_eq!(export, ExitCode::SUCCESS);
    let against = |arguments: &[&str], app: App| run(app, &[&["diff", old.as_str()][..], arguments].concat());
    assert_eq!(against(&[], app::<Command, Deposited, Reply>()), ExitCode::SUCCESS);
    assert_eq!(
        against(&[&old], app::<CommandGone, Deposited, Reply>()),
        ExitCode::SUCCESS
    );
    assert_eq!(
        against(&["--json"], app::<CommandGone, Deposited, Reply>()),
        ExitCode::FAILURE
    );
    let tick = ["--allow", "account/commands/tick"];
    assert_eq!(
        against(&tick, app::<CommandGone, Deposited, Reply>()),
        ExitCode::SUCCESS
    );
    let caution = app::<Command, DepositedOptional, Reply>;
    assert_eq!(against(&[], caution()), ExitCode::SUCCESS);
    assert_eq!(against(&["--strict"], caution()), ExitCode::FAILURE);
    for (arguments, app) in [
        (&tick[..], app::<Command, Deposited, Reply>()),
        (&[nothing.as_str()][..], app::<Command, Deposited, Reply>()),
        (&["/no/such/file"][..], app::<Command, Deposited, Reply>()),
    ] {
        assert_eq!(against(arguments, app), ExitCode::from(ERROR), "{arguments:?}");
    }
}

/// A worker whose request type depends on the contract.
struct Bank<Q>(PhantomData<fn(Q)>);

impl<Q: Message> Outside for Bank<Q> {
    const NAME: &'static str = "bank";
    type Request = Q;
    type Answer = Reply;
    type Failure = By;

    async fn call(&self, _: Q, _: &Attempt) -> Result<Reply, CallError<By>> {
        Err(CallError::NotSent("there is no bank".into()))
    }
}

impl<Q: Message> OnCallOutcome<Bank<Q>> for Account<Command, Deposited, Reply> {
    fn on_call_outcome(_: CallId, _: CallOutcome<Reply, By>) -> Command {
        Command::Tick {}
    }

    fn on_late_answer(_: CallId, _: Result<Reply, By>) -> Command {
        Command::Tick {}
    }
}

#[test]
fn recorded_requests_of_calls_stay_readable() {
    fn calling<Q: Message>() -> Value {
        let app = app::<Command, Deposited, Reply>();
        export(app.outside::<Account<Command, Deposited, Reply>, Bank<Q>>(Bank::<Q>(PhantomData))).unwrap()
    }
    let old = calling::<Reply>();
    assert_eq!(said(&old, &old), [""; 0]);
    assert_eq!(
        said(&old, &calling::<ReplyMore>()),
        ["breaking: call-bank/request/open is required now, and could be absent"]
    );
}

/// An entity that requests something from others of its kind, with a note of type `N`. It replies an `R` to one command.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
struct Asker<N, R>(PhantomData<fn(N, R)>);

impl<N, R> Default for Asker<N, R> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<N: Message, R: Message> Entity for Asker<N, R> {
    const KIND: &'static str = "asker";
    const REQUESTS: &'static [&'static str] = &["asker"];
    const REPLIES: &'static [CommandReply] = &[CommandReply::of::<R>("tick")];
    type Id = String;
    type Command = Command;
    type Event = Deposited;
    type Reply = Value;
    type Rejection = Refused;

    fn decide(&self, _: Command, _: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Refused> {
        Err(Refused::Closed)
    }

    fn evolve(&mut self, _: &Deposited) {}
}

impl<N: Message, R: Message> OnOutcome<Self> for Asker<N, R> {
    type Note = N;

    fn on_outcome(_: String, _: N, _: Result<Value, RequestError<Refused>>) -> Command {
        Command::Tick {}
    }
}

fn asking<N: Message, R: Message>() -> Value {
    let app = App::new("test").with::<Asker<N, R>>();
    export(app.on_outcome::<Asker<N, R>, Asker<N, R>>()).unwrap()
}

#[test]
fn notes_on_their_way_stay_readable() {
    let old = asking::<u32, Reply>();
    assert_eq!(said(&old, &asking::<u64, Reply>()), [""; 0]);
    assert_eq!(
        said(&old, &asking::<String, Reply>()),
        ["breaking: asker/notes/asker is string now, and could be integer"]
    );
    let mut silent = old.clone();
    silent["kinds"]["asker"].as_object_mut().unwrap().remove("notes");
    assert_eq!(
        said(&old, &silent),
        ["breaking: asker/notes/asker is gone: what is on its way cannot be read"]
    );
}

#[test]
fn reply_of_one_command_stays_readable() {
    let old = asking::<u32, Reply>();
    assert_eq!(
        said(&old, &asking::<u32, ReplyMore>())[0],
        "breaking: asker/commands/tick/reply/cents may be absent now, and was always there"
    );
}
