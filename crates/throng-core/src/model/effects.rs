//! The effects that a command can ask for, and the facts it decides on: the time, its family, its asker.

use serde::{Deserialize, Serialize};
use std::{any::Any, borrow::Cow, collections::BTreeSet, marker::PhantomData, time::Duration};
use throng_journal::Address;

/// Microseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Timestamp {
    /// Microseconds since 1970-01-01 UTC.
    pub micros: i64,
}

impl Timestamp {
    /// Returns the time this much later.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self {
            micros: self
                .micros
                .saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)),
        }
    }
}

/// An entity's parent and children.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Family {
    /// The entity that created it, with [`Turn::create`](super::Turn::create).
    pub parent: Option<(String, String)>,
    /// The entities it created, as kind and id.
    pub children: BTreeSet<(String, String)>,
}

impl Family {
    /// Adds relatives that were recorded later. A later parent replaces the one before: it has created the entity anew.
    pub(crate) fn add(&mut self, later: Self) {
        self.parent = later.parent.or(self.parent.take());
        self.children.extend(later.children);
    }
}

/// A topic of live values, by its name. An app declares it as a constant.
///
/// ```
/// use throng_core::model::Topic;
///
/// const SEATS_TAKEN: Topic<u32> = Topic::new("seats-taken");
/// ```
pub struct Topic<T> {
    name: &'static str,
    of: PhantomData<fn(T)>,
}

impl<T> Topic<T> {
    /// Returns the topic of this name. All topics of one name must have values of the same type.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, of: PhantomData }
    }

    /// The name under which values are published and listened to.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

/// A value on its way to a topic.
pub struct Published {
    /// The topic's name.
    pub topic: &'static str,
    /// The value, of the topic's type `T`.
    pub value: Box<dyn Any + Send>,
}

pub(crate) type Encode = fn(&(dyn Any + Send), &mut Vec<u8>) -> serde_json::Result<&'static str>;

/// A command on its way to another entity. It is typed until it has to wait or to leave the process; then it is encoded.
pub struct Sent {
    /// The receiver's kind.
    pub kind: Cow<'static, str>,
    /// The receiver's id.
    pub id: String,
    /// The receiver's `Option<Command>`.
    pub(crate) command: Box<dyn Any + Send>,
    pub(crate) encode: Encode,
    /// The note of a request, which comes back with its outcome. `None`: a message without outcome.
    pub note: Option<String>,
    /// True if the receiver becomes the sender's child when this message creates it.
    pub child: bool,
    /// True if the message begins a call, whose outcome the sender gets.
    pub(crate) is_call: bool,
}

impl Sent {
    /// Appends the command's content to `out` and returns its name.
    ///
    /// # Errors
    /// `serde_json::Error`: the command cannot be written as JSON.
    pub fn encoded(&self, out: &mut Vec<u8>) -> serde_json::Result<&'static str> {
        (self.encode)(self.command.as_ref(), out)
    }

    /// The receiver's address.
    #[must_use]
    pub fn address(&self) -> Address {
        Address::new(&*self.kind, self.id.as_str())
    }
}

/// A named, durable timer of an entity.
pub enum Timer<C> {
    /// Sets it, replacing one of the same name.
    Set {
        /// Its name within the entity.
        name: Cow<'static, str>,
        /// The time it is due.
        at: Timestamp,
        /// The period after which it is due again, each time; `None`: it is due once.
        every: Option<Duration>,
        /// The command that the entity gets when the timer is due.
        command: C,
    },
    /// Cancels the timer of this name, if it is set.
    Cancel(Cow<'static, str>),
}
