//! A user: a summary of the user's actions.

mod messages;
mod queries;
mod summary;

pub use messages::{Act, ActionKind, UserCommand, UserEvent, UserRejection, UserReply};
pub use queries::{GetSummary, Interest, Recommend, Recommendations, SummaryView};
pub use summary::{BOUGHT_MAX, HALF_LIFE_S, RECENT_MAX, Summary};

use serde::{Deserialize, Serialize};
use throng::model::{CommandAnswer, Entity, Turn};

use crate::catalogue::{Catalogue, ITEMS};

/// The most actions in one command.
pub const ACTIONS_MAX: usize = 100;

/// A user, by an opaque name of 1 to 256 bytes. The user exists from the first action on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct User {
    summary: Summary,
}

impl User {
    /// Returns the summary of the user's actions.
    #[must_use]
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    fn reply(&self) -> UserReply {
        UserReply {
            actions: self.summary.actions(),
        }
    }
}

impl Entity for User {
    const KIND: &'static str = "user";
    const PUBLIC: &'static [&'static str] = &["act"];
    type Id = String;
    type Command = UserCommand;
    type Event = UserEvent;
    type Reply = UserReply;
    type Rejection = UserRejection;

    fn decide(
        &self,
        UserCommand::Act { actions }: UserCommand,
        turn: &mut Turn<'_, Self>,
    ) -> Result<CommandAnswer<Self>, UserRejection> {
        match actions.len() {
            0 => return Err(UserRejection::NoActions),
            1..=ACTIONS_MAX => {}
            count => return Err(UserRejection::TooManyActions { count }),
        }
        if let Some(act) = actions.iter().find(|act| act.item as usize >= ITEMS) {
            return Err(UserRejection::NoSuchItem { item: act.item });
        }
        let at_s = turn.now().micros.div_euclid(1_000_000);
        for Act { action, item } in actions {
            let category = Catalogue::get().category(item);
            turn.emit(UserEvent::Acted {
                action,
                item,
                category,
                at_s,
            });
        }
        Ok(CommandAnswer::after(Self::reply))
    }

    fn evolve(&mut self, event: &UserEvent) {
        let UserEvent::Acted {
            action,
            item,
            category,
            at_s,
        } = *event;
        self.summary.add(action, item, category, at_s);
    }

    fn heap_bytes(&self) -> usize {
        self.summary.heap_bytes()
    }
}

#[cfg(test)]
mod tests;
