//! The type of one command's reply.

use super::Message;
use serde::Serialize;

/// The type that one command replies, of those that [`Entity::Reply`](super::Entity::Reply) can be. See
/// [`Entity::REPLIES`](super::Entity::REPLIES).
///
/// ```
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
/// use throng_core::model::CommandReply;
///
/// #[derive(Serialize, Deserialize, JsonSchema)]
/// struct Held { seats: Vec<u32> }
/// #[derive(Serialize, Deserialize, JsonSchema)]
/// struct Waiting { place: u32 }
/// /// What a concert replies: on the wire it is one or the other, without a name around it.
/// #[derive(Serialize, Deserialize, JsonSchema)]
/// #[serde(untagged)]
/// enum Reply { Held(Held), Waiting(Waiting) }
///
/// const REPLIES: &[CommandReply] = &[CommandReply::of::<Held>("hold"), CommandReply::of::<Waiting>("wait")];
/// assert_eq!(REPLIES[1].command, "wait");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct CommandReply {
    /// The command's serde name.
    pub command: &'static str,
    /// The schema of the type.
    #[cfg(feature = "schemas")]
    pub schema: fn(&mut schemars::SchemaGenerator) -> schemars::Schema,
    reads: fn(&[u8]) -> Result<(), String>,
}

impl CommandReply {
    /// Says that the command of this name replies a `T`.
    #[must_use]
    pub const fn of<T: Message>(command: &'static str) -> Self {
        Self {
            command,
            #[cfg(feature = "schemas")]
            schema: |generator| generator.subschema_for::<T>(),
            reads: |reply| {
                let read = serde_json::from_slice::<T>(reply);
                let name = std::any::type_name::<T>();
                read.map(drop).map_err(|why| format!("it should be a {name}: {why}"))
            },
        }
    }
}

/// Says why the reply of a kind's command is not of the type that the kind names for it.
pub(crate) fn wrong_reply(
    (kind, replies): (&str, &[CommandReply]),
    command: &str,
    reply: &impl Serialize,
) -> Option<String> {
    let expected = replies.iter().find(|reply| reply.command == command)?;
    let written = serde_json::to_vec(reply).map_err(|why| why.to_string());
    let why = written.and_then(|written| (expected.reads)(&written)).err()?;
    Some(format!(
        "{kind} replied something else to {command:?} than REPLIES says: {why}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{CommandAnswer, Entity, Event, Rejection, Turn},
        subject::Subject,
    };
    use serde::Deserialize;

    #[derive(Default, Serialize, Deserialize)]
    struct Zone;

    #[derive(Serialize, Deserialize)]
    #[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
    enum Ask {
        Hold { seats: u32 },
    }

    #[derive(Serialize, Deserialize)]
    #[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
    enum ZoneEvent {}

    impl Event for ZoneEvent {}

    #[derive(Debug, Serialize, Deserialize, thiserror::Error)]
    #[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
    #[error("never")]
    struct Never;

    impl Rejection for Never {
        fn code(&self) -> &'static str {
            "never"
        }
    }

    #[derive(Serialize, Deserialize)]
    #[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
    struct Held {
        seats: u32,
    }

    #[derive(Serialize, Deserialize)]
    #[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
    #[serde(untagged)]
    enum Reply {
        Held(Held),
        Place(u32),
    }

    impl Entity for Zone {
        const KIND: &'static str = "zone";
        const REPLIES: &'static [CommandReply] = &[CommandReply::of::<Held>("Hold")];
        type Id = String;
        type Command = Ask;
        type Event = ZoneEvent;
        type Reply = Reply;
        type Rejection = Never;

        fn decide(&self, Ask::Hold { seats }: Ask, _: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
            Ok(CommandAnswer::Now(match seats {
                1..10 => Reply::Held(Held { seats }),
                place => Reply::Place(place),
            }))
        }

        fn evolve(&mut self, _: &ZoneEvent) {}
    }

    #[test]
    fn reply_of_the_named_type_is_taken() {
        let done = Subject::<Zone>::given("stalls", [])
            .when(Ask::Hold { seats: 2 })
            .unwrap();
        assert!(matches!(done.reply, Some(Reply::Held(Held { seats: 2 }))));
    }

    #[test]
    #[should_panic(expected = "zone replied something else to \"Hold\" than REPLIES says")]
    fn reply_of_another_type_fails_the_test() {
        _ = Subject::<Zone>::given("stalls", []).when(Ask::Hold { seats: 12 });
    }
}
