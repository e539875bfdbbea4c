//! An engine's kinds.

use super::{
    KindCheck,
    execute::{
        call::{HearFn, QueryFn},
        observer::CommandObserver,
    },
    resident::table::Table,
};
use crate::{
    limits,
    model::{CommandReply, Encode, Entity, Timestamp},
};
#[cfg(feature = "schemas")]
use schemars::{Schema, SchemaGenerator};
use std::any::{Any, TypeId};

#[cfg(feature = "schemas")]
type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// A kind of entity.
pub struct Kind {
    /// The first part of every address, [`Entity::KIND`].
    pub name: &'static str,
    /// The commands that clients may ask, [`Entity::PUBLIC`].
    pub public: &'static [&'static str],
    /// The version of its state.
    pub state_version: u16,
    /// The versions of its events, [`Event::VERSIONS`](crate::model::Event::VERSIONS).
    pub event_versions: &'static [(&'static str, u16)],
    /// Clients may send fields that its commands do not have, [`Entity::IGNORES_UNKNOWN_FIELDS`].
    pub ignores_unknown_fields: bool,
    /// The names of its indexed fields, [`Entity::INDEXED`].
    pub indexed: Vec<&'static str>,
    /// The print of these fields, by which [`read_indexed`](super::read_indexed) knows their rows.
    #[doc(hidden)]
    pub index_print: u64,
    /// The retention of its events, unless the service says otherwise.
    pub keep: crate::model::Keep,
    /// True if its entities are the engine's own, such as calls: clients cannot see them.
    pub is_internal: bool,
    /// The queries it answers, in the order they were given.
    pub queries: Vec<QueryKind>,
    /// The schema of its commands: a choice of objects or words, one for each command.
    #[cfg(feature = "schemas")]
    pub command_schema: fn(&mut SchemaGenerator) -> Schema,
    /// The schema of its events.
    #[cfg(feature = "schemas")]
    pub event_schema: fn(&mut SchemaGenerator) -> Schema,
    /// The schema of its reply.
    #[cfg(feature = "schemas")]
    pub reply_schema: fn(&mut SchemaGenerator) -> Schema,
    /// The commands with replies of one type each, [`Entity::REPLIES`].
    pub replies: &'static [CommandReply],
    /// The schema of its rejection.
    #[cfg(feature = "schemas")]
    pub rejection_schema: fn(&mut SchemaGenerator) -> Schema,
    /// The schemas of request, answer and failure, if its entities are the calls of a worker.
    #[cfg(feature = "schemas")]
    pub call_schemas: Option<fn(&mut SchemaGenerator) -> [Schema; 3]>,
    /// The schemas of the notes it gives along with its requests, by the kind it asks.
    #[cfg(feature = "schemas")]
    pub note_schemas: Vec<(&'static str, SchemaOf)>,
    /// The [`Entity`] itself.
    pub(super) entity: TypeId,
    pub(super) encode: Encode,
    pub(super) table: fn(&Self) -> Box<dyn Table>,
    pub(super) check: fn(&Self) -> Box<dyn KindCheck>,
    /// The kinds it requests something of.
    pub(super) requests: &'static [&'static str],
    /// The `HearFn`s of this kind, by the kind whose outcomes it takes.
    pub(super) hears: Vec<(&'static str, Box<dyn Any + Send + Sync>)>,
    pub(super) observer: Option<CommandObserver>,
}

/// A named query of a kind.
pub struct QueryKind {
    /// The name in the query's route, [`Query::NAME`](crate::model::Query::NAME).
    pub name: &'static str,
    /// The schema of its fields.
    #[cfg(feature = "schemas")]
    pub arguments_schema: fn(&mut SchemaGenerator) -> Schema,
    /// The schema of its answer.
    #[cfg(feature = "schemas")]
    pub answer_schema: fn(&mut SchemaGenerator) -> Schema,
    /// A `QueryFn` of the kind.
    pub(super) run: Box<dyn Any + Send + Sync>,
}

/// An engine's kinds, in the order they were added.
pub struct Registry {
    pub(super) kinds: Vec<Kind>,
    shards: u16,
    restored_at: Option<Timestamp>,
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            kinds: Vec::new(),
            shards: limits::SHARDS,
            restored_at: None,
        }
    }
}

impl Registry {
    /// Returns the first pair of kinds of which one sends requests to the other, but cannot take the outcomes.
    #[must_use]
    pub fn unheard(&self) -> Option<(&'static str, &'static str)> {
        self.kinds.iter().find_map(|kind| {
            let is_heard =
                |from: &&&str| kind.hears.iter().any(|(heard, _)| heard == *from) && self.find(from).is_some();
            let of = kind.requests.iter().find(|from| !is_heard(from))?;
            Some((kind.name, *of))
        })
    }

    pub(super) fn kind_mut(&mut self, name: &str) -> &mut Kind {
        let found = self.kinds.iter_mut().find(|kind| kind.name == name);
        found.unwrap_or_else(|| panic!("the kind {name:?} must be given before what belongs to it"))
    }

    /// Returns the time since when this journal is served in place of its original; `None` if it is no copy.
    #[must_use]
    pub fn restored_at(&self) -> Option<Timestamp> {
        self.restored_at
    }

    /// Sets the time since when this restored journal is served. A call begun before it makes no further attempt; its outcome is `Unknown`.
    pub fn set_restored_at(&mut self, restored_at: Option<Timestamp>) {
        self.restored_at = restored_at;
    }

    /// The engine's number of shards. Fixed at its first start.
    #[must_use]
    pub fn shards(&self) -> u16 {
        self.shards
    }

    /// Sets the number of shards.
    pub fn set_shards(&mut self, shards: u16) {
        self.shards = shards.max(1);
    }

    /// The shard of an entity.
    #[must_use]
    pub fn shard_of(&self, kind: &str, id: &str) -> throng_journal::ShardId {
        limits::shard_of(limits::hash(kind, id), self.shards)
    }

    /// Passes every command of the present kinds to an observer.
    pub fn observe(&mut self, observer: &CommandObserver) {
        for kind in &mut self.kinds {
            kind.observer = Some(observer.clone());
        }
    }

    /// All kinds, in order.
    #[must_use]
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// A kind's index.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<usize> {
        self.kinds.iter().position(|kind| kind.name == name)
    }
}

impl Kind {
    /// Writes a command (an `Option<Command>` of this kind) as JSON, and returns its name.
    ///
    /// # Errors
    /// `serde_json::Error`: the command was moved out already, or cannot be written.
    pub fn encode_command(&self, command: &(dyn Any + Send), out: &mut Vec<u8>) -> serde_json::Result<&'static str> {
        (self.encode)(command, out)
    }

    /// A query by name.
    #[must_use]
    pub fn query(&self, name: &str) -> Option<&QueryKind> {
        self.queries.iter().find(|query| query.name == name)
    }

    /// Returns a check of recorded history against this kind.
    #[must_use]
    pub fn check(&self) -> Box<dyn KindCheck> {
        (self.check)(self)
    }

    pub(super) fn queries<E: Entity>(&self) -> Vec<(&'static str, QueryFn<E>)> {
        let queries = self.queries.iter();
        queries
            .filter_map(|query| Some((query.name, *query.run.downcast_ref()?)))
            .collect()
    }

    pub(super) fn hears<E: Entity>(&self) -> Vec<(&'static str, HearFn<E>)> {
        let hears = self.hears.iter();
        hears
            .filter_map(|(from, hear)| Some((*from, *hear.downcast_ref()?)))
            .collect()
    }
}
