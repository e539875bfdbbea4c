//! Recorded commands are decided again by another program.

use crate::kinds::eventually;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng::{
    Builder, Engine,
    check::CheckReport,
    journal::{CommitNo, Journal as _, MemoryJournal, MemoryStore, Position, WriterId},
    model::*,
};

#[derive(Debug, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("it is too much")]
struct TooMuch;
impl Rejection for TooMuch {
    fn code(&self) -> &'static str {
        "too-much"
    }
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
enum Do {
    Put { cents: u64 },
    Give { to: String, cents: u64 },
    Stamp,
    Remind,
    Beat,
}

#[derive(Serialize, Deserialize, JsonSchema)]
enum TillEvent {
    Received { cents: u64 },
    Gave { cents: u64 },
    Stamped { at: Timestamp, token: String },
    Beaten,
}
impl Event for TillEvent {}

/// Two programs with the same kind. `LATER` takes a fee, and refuses large amounts. Both record commands if `KEPT`.
#[derive(Default, Serialize, Deserialize)]
struct Till<const KEPT: bool, const LATER: bool> {
    cents: u64,
}

impl<const KEPT: bool, const LATER: bool> Entity for Till<KEPT, LATER> {
    const KIND: &'static str = "till";
    const KEEPS_COMMANDS: bool = KEPT;
    type Id = String;
    type Command = Do;
    type Event = TillEvent;
    type Reply = u64;
    type Rejection = TooMuch;

    fn decide(&self, command: Do, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, TooMuch> {
        match command {
            Do::Put { cents } if cents > 1_000 && LATER => return Err(TooMuch),
            Do::Put { cents } => turn.emit(TillEvent::Received {
                cents: if LATER { cents - 1 } else { cents },
            }),
            Do::Give { cents, .. } if cents > self.cents => return Err(TooMuch),
            Do::Give { to, cents } => {
                turn.emit(TillEvent::Gave { cents });
                turn.send::<Self>(to, Do::Put { cents });
            }
            Do::Stamp => turn.emit(TillEvent::Stamped {
                at: turn.now(),
                token: turn.unguessable().to_string(),
            }),
            Do::Remind => turn.remind("beat", turn.now(), None, Do::Beat),
            Do::Beat if LATER => {}
            Do::Beat => turn.emit(TillEvent::Beaten),
        }
        Ok(CommandAnswer::after(|till: &Self| till.cents))
    }

    fn evolve(&mut self, event: &TillEvent) {
        match event {
            TillEvent::Received { cents } => self.cents += cents,
            TillEvent::Gave { cents } => self.cents -= cents,
            TillEvent::Stamped { .. } | TillEvent::Beaten => {}
        }
    }
}

type Unkept = Till<false, false>;
type Kept = Till<true, false>;

/// Sends these commands to the till "one" of program `T`. Returns the journal with all their consequences.
async fn history<T: Entity<Id = String, Command = Do>>(commands: &[Do]) -> MemoryJournal {
    let journal = MemoryJournal::new();
    let store = MemoryStore::new(journal.clone());
    let engine = Engine::builder()
        .with::<T>()
        .start(journal.clone(), store)
        .await
        .unwrap();
    for command in commands {
        let _ = engine.entity::<T>("one").ask(command.clone()).await;
        // The tick must land before the next command. In one commit their events could not be distinguished.
        if matches!(command, Do::Remind) {
            eventually(async || records(&journal).await.contains(&"timer-cleared".to_owned())).await;
        }
    }
    engine.stop().await;
    journal
}

async fn commits(journal: &MemoryJournal) -> Vec<throng::journal::Commit> {
    let beginning = Position::new(WriterId(1), CommitNo(0));
    journal.read(beginning, 1 << 20).await.unwrap()
}

async fn records(journal: &MemoryJournal) -> Vec<String> {
    let words = |commit: &throng::journal::Commit| -> Vec<String> {
        let records = commit.records().map(|record| record.unwrap().record.word().to_owned());
        records.collect()
    };
    commits(journal).await.iter().flat_map(words).collect()
}

async fn what_if(program: Builder, journal: &MemoryJournal) -> CheckReport {
    let mut checker = program.checker().what_if();
    for commit in &commits(journal).await {
        checker.commit(commit).await;
    }
    checker.finish()
}

const COMMANDS: [Do; 4] = [Do::Put { cents: 500 }, Do::Put { cents: 2_000 }, Do::Stamp, Do::Remind];

#[tokio::test]
async fn the_same_program_decides_the_same_despite_other_times() {
    let give = Do::Give {
        to: "two".into(),
        cents: 100,
    };
    let journal = history::<Kept>(&[&COMMANDS[..], &[give]].concat()).await;
    let report = what_if(Engine::builder().with::<Kept>(), &journal).await;
    let found = report.what_if.clone().unwrap();
    assert_eq!(
        (found.decided, found.same, found.undecided, found.events_not_kept),
        (7, 7, 0, 0),
        "five commands, a message and a beat: {report}"
    );
    assert!(report.is_sound() && found.changed.is_empty(), "{report}");
}

#[tokio::test]
async fn different_decisions_are_named_with_differing_values() {
    let journal = history::<Kept>(&COMMANDS).await;
    let report = what_if(Engine::builder().with::<Till<true, true>>(), &journal).await;
    let found = report.what_if.clone().unwrap();
    let changes: Vec<_> = found
        .changed
        .iter()
        .map(|one| (&*one.command, &*one.was, &*one.would_be))
        .collect();
    assert_eq!(
        changes,
        [
            ("command of till: Put", "event Received", "refused: it is too much"),
            ("command of till: Put", "event Received, its cents", "another"),
            (
                "timer \"beat\" of till: Beat",
                "event Beaten",
                "accepted without an effect"
            ),
        ],
        "{report}"
    );
    assert!(found.changed[1].first.ends_with(": 500, now 499"), "{report}");
    assert_eq!((found.decided, found.same), (5, 2), "{report}");
    assert!(!report.is_sound());
}

#[tokio::test]
async fn a_kind_without_kept_commands_reports_the_unknown_share() {
    let give = |cents| Do::Give {
        to: "two".into(),
        cents,
    };
    // The second command is refused, and records nothing.
    let journal = history::<Unkept>(&[&COMMANDS[..], &[give(1_500), give(9_000)]].concat()).await;
    assert!(!records(&journal).await.contains(&"command".to_owned()));
    let report = what_if(Engine::builder().with::<Till<false, true>>(), &journal).await;
    let found = report.what_if.clone().unwrap();
    let changes: Vec<_> = found
        .changed
        .iter()
        .map(|one| (&*one.command, &*one.would_be))
        .collect();
    assert_eq!(
        changes,
        [("message to till: Put", "refused: it is too much")],
        "{report}"
    );
    assert_eq!(
        (found.decided, found.undecided, found.events_not_kept),
        (2, 1, 4),
        "two puts, a stamp and a gift are not known, and the beat's event may be such a one: {report}"
    );
}

#[tokio::test]
async fn a_command_that_changes_nothing_or_is_refused_is_not_kept() {
    let nothing = [
        Do::Give {
            to: "two".into(),
            cents: 1,
        },
        Do::Beat,
    ];
    let journal = history::<Till<true, true>>(&nothing).await;
    assert_eq!(records(&journal).await, Vec::<String>::new());
}
