//! The traits and types in which a service is written.

mod actor;
mod answer;
mod asker;
mod call;
mod effects;
mod entity;
mod error;
mod event;
mod indexed;
mod keep;
mod message;
pub(crate) mod note;
mod query;
mod reply;
mod text_id;
mod turn;

pub use actor::{Actor, Placement};
pub use asker::Asker;
pub use call::{
    Attempt, AttemptResult, Call, CallCommand, CallError, CallEvent, CallId, CallOffer, CallOutcome, CallReject,
    CallReply, Calling, CallsOf, InvalidCallId, OnCallOutcome, Outside, worker_of,
};
pub(crate) use call::{LATE, LOOK, OUTCOME, opened_by};
pub(crate) use effects::Encode;
pub use effects::{Family, Published, Sent, Timer, Timestamp, Topic};
pub use entity::{CommandAnswer, Effects, Entity, EntityId, Moment, OnOutcome, Read, Rejection, RequestError, Turn};
pub use error::Error;
pub use event::{Event, Recorded, UpcastError};
pub use indexed::IndexedField;
pub use keep::Keep;
pub use message::Message;
pub use query::{Query, View};
pub use reply::CommandReply;
pub(crate) use reply::wrong_reply;
pub use text_id::{InvalidTextId, TextId};
pub(crate) use turn::encode;
