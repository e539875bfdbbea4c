//! Calls as entities: each call is an entity, and the calls of a worker are one kind.

use super::{
    CallCommand, CallEvent, CallId, CallOffer, CallOutcome, CallReject, CallReply, LATE, OUTCOME, Outside,
    state::{CallState, LOOK, Policy},
};
use crate::{
    model::{CommandAnswer, Entity, Keep, Sent, Topic, Turn},
    shard::{OUTCOME_NAME, RequestOutcome},
};
use serde::{Deserialize, Serialize, ser::Error as _};
use serde_json::Value;
use std::{any::Any, borrow::Cow, marker::PhantomData, str, time::Duration};

const PREFIX: &str = "call-";
const KIND_BYTES_MAX: usize = 64;

/// Returns the name of the worker whose calls are entities of this kind.
#[must_use]
pub fn worker_of(kind: &str) -> Option<&str> {
    kind.strip_prefix(PREFIX)
}

/// A call of a worker.
#[derive(Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub struct Call<W> {
    state: CallState,
    #[serde(skip)]
    of: PhantomData<fn() -> W>,
}

impl<W> Default for Call<W> {
    fn default() -> Self {
        Self {
            state: CallState::default(),
            of: PhantomData,
        }
    }
}

const fn kind_text(name: &str) -> [u8; KIND_BYTES_MAX] {
    assert!(
        !name.is_empty() && PREFIX.len() + name.len() <= KIND_BYTES_MAX,
        "a worker's name has 1 to 59 bytes"
    );
    let (mut text, mut at) = ([0; KIND_BYTES_MAX], 0);
    while at < PREFIX.len() + name.len() {
        text[at] = match at < PREFIX.len() {
            true => PREFIX.as_bytes()[at],
            false => name.as_bytes()[at - PREFIX.len()],
        };
        at += 1;
    }
    text
}

impl<W: Outside> Call<W> {
    const TEXT: &'static [u8] = &kind_text(W::NAME);

    /// The topic on which a call announces that an attempt may begin.
    pub const READY: Topic<CallOffer> = Topic::new(Self::KIND);

    /// Returns the address of one of the worker's permits. The engine that owns its shard may have one more attempt under way.
    #[must_use]
    pub fn permit(number: usize) -> CallId {
        CallId(xxhash_rust::xxh3::xxh3_128(format!("permit {number}").as_bytes()))
    }
}

impl<W: Outside> Call<W> {
    /// Returns the hash of the request's destination, as it is after these events; 0 if it has none or cannot be read.
    fn destination(&self, events: &[CallEvent]) -> u64 {
        let begun = events.iter().find_map(|event| match event {
            CallEvent::Begun { request, .. } => Some(request),
            _ => None,
        });
        let of = |destination: fn(&W::Request) -> String| {
            let request = W::Request::deserialize(begun.unwrap_or_else(|| self.state.request())).ok()?;
            Some(xxhash_rust::xxh3::xxh3_64(destination(&request).as_bytes()).max(1))
        };
        W::DESTINATION.and_then(of).unwrap_or_default()
    }
}

impl<W: Outside> Entity for Call<W> {
    const KIND: &'static str = match str::from_utf8(Self::TEXT.split_at(PREFIX.len() + W::NAME.len()).0) {
        Ok(kind) => kind,
        Err(_) => panic!("a worker's name is of [a-z0-9-]"),
    };
    const KEEP: Keep = Keep::Age(Duration::from_secs(30 * 86_400));
    type Id = CallId;
    type Command = CallCommand;
    type Event = CallEvent;
    type Reply = CallReply;
    type Rejection = CallReject;

    fn creates(command: &CallCommand) -> bool {
        matches!(
            command,
            CallCommand::Begin(_)
                | CallCommand::Admit {}
                | CallCommand::Join { .. }
                | CallCommand::Leave { .. }
                | CallCommand::Offer { .. }
        )
    }

    fn recreates(command: &CallCommand) -> bool {
        // A line ends when it is empty; these begin it anew.
        matches!(command, CallCommand::Join { .. } | CallCommand::Leave { .. })
    }

    fn decide(&self, command: CallCommand, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, CallReject> {
        let moment = (turn.now(), turn.unguessable());
        let mut step = self
            .state
            .decide(command, &Policy::of::<W>(turn.out.restored_at), moment)?;
        let destination = if step.is_ready {
            self.destination(&step.events)
        } else {
            0
        };
        if let Some(CallEvent::Begun { trace, .. }) = step.events.first_mut() {
            *trace = turn.out.trace.map(Box::new);
        }
        let timer = self.state.timer(&step.events);
        for event in step.events {
            turn.out.opened += event.opens();
            turn.emit(event);
        }
        if let Some(outcome) = step.told {
            let note = if step.is_late { LATE } else { OUTCOME };
            turn.tell_caller(self.state.caller(), note, &outcome);
        }
        if let Some(next) = step.admits {
            turn.send::<Self>(next, CallCommand::Admit {});
        }
        if let Some(line) = step.leaves {
            let call = *turn.id();
            turn.send::<Self>(line, CallCommand::Leave { call });
        }
        if step.ends {
            turn.end();
        } else if let Some(at) = step.look {
            if turn.out.opened < 0 {
                turn.cancel(LOOK);
            }
            turn.remind(timer, at, None, CallCommand::Look {});
        }
        if step.is_ready {
            let offer = CallOffer {
                call: *turn.id(),
                attempts: self.state.attempts(),
                is_forwarded: false,
                destination,
            };
            turn.publish(&Self::READY, offer);
        }
        for offer in step.offers {
            turn.publish(&Self::READY, offer);
        }
        Ok(CommandAnswer::Now(step.reply))
    }

    fn evolve(&mut self, event: &CallEvent) {
        self.state.evolve(event);
    }

    fn heap_bytes(&self) -> usize {
        self.state.heap_bytes()
    }
}

impl<W: Outside> Turn<'_, Call<W>> {
    /// Sends the call's outcome to the entity that made the call, in the form of a request's outcome.
    fn tell_caller(&mut self, (kind, id): &(String, String), note: &str, outcome: &CallOutcome<Value, Value>) {
        let outcome = serde_json::value::to_raw_value(outcome).expect("it was made of JSON");
        let outcome = RequestOutcome {
            from: (Call::<W>::KIND.to_owned(), self.id().to_string()),
            note: note.to_owned(),
            outcome,
        };
        self.out.sent.push(Sent {
            kind: Cow::Owned(kind.clone()),
            id: id.clone(),
            command: Box::new(outcome),
            encode: encode_outcome,
            note: None,
            child: false,
            is_call: false,
        });
    }
}

fn encode_outcome(outcome: &(dyn Any + Send), out: &mut Vec<u8>) -> serde_json::Result<&'static str> {
    match outcome.downcast_ref::<RequestOutcome>() {
        Some(outcome) => serde_json::to_writer(out, outcome).map(|()| OUTCOME_NAME),
        None => Err(serde_json::Error::custom("this is no outcome")),
    }
}
