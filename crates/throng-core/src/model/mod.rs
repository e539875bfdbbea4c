//! The traits and types in which a service is written.

mod actor;
mod answer;
mod asker;
mod entity;
mod error;
mod event;
mod keep;
mod message;
mod query;
mod text_id;
mod turn;

pub use actor::{Actor, Placement};
pub use answer::{Answer, Read};
pub use asker::Asker;
pub use entity::{Entity, EntityId, OnOutcome, Rejection, RequestError};
pub use error::Error;
pub use event::{Event, Recorded, UpcastError};
pub use keep::Keep;
pub use message::Message;
pub use query::{Query, View};
pub use text_id::{InvalidTextId, TextId};
pub use turn::{Effects, Family, Moment, Published, Sent, Timer, Timestamp, Topic, Turn};
pub(crate) use turn::{Encode, encode};
