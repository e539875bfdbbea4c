//! Pages in two releases of a service. They number their messages, and record those they take.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};
use throng::model::*;
use throng_testing::fixtures::Never;

/// The first id of leaves, a kind that only the next release has.
pub(super) const FIRST_LEAF: u64 = 1_000;

/// The messages of a page.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(super) struct Known {
    /// The number of messages sent, by receiver.
    pub(super) sent: BTreeMap<u64, u64>,
    /// The messages taken, by sender.
    pub(super) taken: BTreeMap<u64, Taken>,
    /// The numbers of timers set, and fired.
    pub(super) set: u64,
    pub(super) rung: u64,
    /// The messages that came twice, or after a later one.
    pub(super) wrong: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(super) struct Taken {
    pub(super) count: u64,
    last: u64,
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub(super) enum PageEvent {
    Sent { to: u64 },
    Took { from: u64, number: u64 },
    Set,
    Rang,
}
impl Event for PageEvent {}

impl Known {
    fn next(&self, to: u64) -> u64 {
        self.sent.get(&to).copied().unwrap_or_default() + 1
    }

    fn apply(&mut self, happened: &PageEvent) {
        match happened {
            PageEvent::Sent { to } => *self.sent.entry(*to).or_default() += 1,
            PageEvent::Took { from, number } => {
                let taken = self.taken.entry(*from).or_default();
                if *number <= taken.last {
                    let last = taken.last;
                    self.wrong
                        .push(format!("message {number} of {from} was taken after message {last}"));
                }
                taken.count += 1;
                taken.last = *number;
            }
            PageEvent::Set => self.set += 1,
            PageEvent::Rang => self.rung += 1,
        }
    }
}

fn sender(turn: &Asker<'_>) -> u64 {
    match turn {
        Asker::Entity { id, .. } => id.parse().unwrap(),
        other => panic!("{other:?} sends nothing"),
    }
}

macro_rules! page {
    ($name:ident, $kind:literal, $query:ident, $command:ident { $($variant:ident { $field:ident } => |$of:ident, $turn:ident| $decide:expr),* }) => {
        #[derive(Default, Serialize, Deserialize)]
        pub(super) struct $name(Known);

        #[derive(Clone, Serialize, Deserialize, JsonSchema)]
        pub(super) enum $command {
            $($variant { $field: u64 }),*
        }

        impl Entity for $name {
            const KIND: &'static str = $kind;
            type Id = u64;
            type Command = $command;
            type Event = PageEvent;
            type Reply = ();
            type Rejection = Never;

            fn creates(_: &$command) -> bool {
                true
            }

            fn decide(&self, asked: $command, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
                match asked {
                    $($command::$variant { $field } => {
                        let ($of, $turn) = (&self.0, &mut *turn);
                        let happened = $decide;
                        turn.emit(happened);
                    })*
                }
                Ok(CommandAnswer::Now(()))
            }

            fn evolve(&mut self, happened: &PageEvent) {
                self.0.apply(happened);
            }
        }

        #[derive(Serialize, Deserialize, JsonSchema)]
        pub(super) struct $query {}

        impl Query<$name> for $query {
            const NAME: &'static str = "known";
            type Answer = Known;
            fn answer(self, page: &$name, _: &Moment<'_, $name>) -> Result<Known, Never> {
                Ok(page.0.clone())
            }
        }
    };
}

page!(Before, "page", Told, BeforeCommand {
    Send { to } => |of, turn| {
        turn.send::<Before>(to, BeforeCommand::Note { number: of.next(to) });
        PageEvent::Sent { to }
    },
    Note { number } => |_of, turn| PageEvent::Took { from: sender(&turn.from()), number }
});

page!(After, "page", ToldAfter, AfterCommand {
    Send { to } => |of, turn| {
        turn.send::<After>(to, AfterCommand::Note { number: of.next(to) });
        PageEvent::Sent { to }
    },
    Note { number } => |_of, turn| PageEvent::Took { from: sender(&turn.from()), number },
    SendNew { to } => |of, turn| {
        turn.send::<After>(to, AfterCommand::Mark { number: of.next(to) });
        PageEvent::Sent { to }
    },
    Mark { number } => |_of, turn| PageEvent::Took { from: sender(&turn.from()), number },
    SendToLeaf { to } => |of, turn| {
        turn.send::<Leaf>(to, LeafCommand::Mark { number: of.next(to) });
        PageEvent::Sent { to }
    },
    Remind { to } => |of, turn| {
        let at = turn.now().after(Duration::from_millis(100 * to));
        turn.remind(format!("timer {}", of.set + 1), at, None, AfterCommand::Ring { number: of.set + 1 });
        PageEvent::Set
    },
    Ring { number } => |of, _turn| {
        assert!(number <= of.set);
        PageEvent::Rang
    }
});

page!(Leaf, "leaf", ToldLeaf, LeafCommand {
    Mark { number } => |_of, turn| PageEvent::Took { from: sender(&turn.from()), number }
});
