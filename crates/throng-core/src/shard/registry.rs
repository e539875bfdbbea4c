//! The kinds an engine knows.

use super::{KindCheck, Table, check::EntityCheck, entities::Entities, messages::RecordedOutcome, outcome::JsonReply};
use crate::{
    limits,
    model::{Encode, Entity, Error, Moment, OnOutcome, Query, encode},
};
#[cfg(feature = "schemas")]
use schemars::{Schema, SchemaGenerator};
use std::any::Any;

/// A kind of entity.
pub struct Kind {
    /// The first part of every address, [`Entity::KIND`].
    pub name: &'static str,
    /// The commands that clients may ask, [`Entity::PUBLIC`].
    pub public: &'static [&'static str],
    /// The version of its state.
    pub state_version: u16,
    /// For how long its events are kept, if the service does not say otherwise.
    pub keep: crate::model::Keep,
    /// The queries it answers, in the order they were given.
    pub queries: Vec<QueryKind>,
    /// The schema of its commands: one of several objects or words, each a command.
    #[cfg(feature = "schemas")]
    pub command_schema: fn(&mut SchemaGenerator) -> Schema,
    /// The schema of its events.
    #[cfg(feature = "schemas")]
    pub event_schema: fn(&mut SchemaGenerator) -> Schema,
    /// The schema of its reply.
    #[cfg(feature = "schemas")]
    pub reply_schema: fn(&mut SchemaGenerator) -> Schema,
    /// The schema of its rejection.
    #[cfg(feature = "schemas")]
    pub rejection_schema: fn(&mut SchemaGenerator) -> Schema,
    encode: Encode,
    pub(super) table: fn() -> Box<dyn Table>,
    /// Holds the kind against what was recorded.
    pub check: fn() -> Box<dyn KindCheck>,
    /// The kinds it requests something of.
    requests: &'static [&'static str],
    /// From kind to `HearFn` of this kind.
    hears: Vec<(&'static str, Box<dyn Any + Send + Sync>)>,
}

/// A named query of a kind.
pub struct QueryKind {
    /// The name it is asked by, [`Query::NAME`].
    pub name: &'static str,
    /// The schema of its fields.
    #[cfg(feature = "schemas")]
    pub arguments_schema: fn(&mut SchemaGenerator) -> Schema,
    /// The schema of its answer.
    #[cfg(feature = "schemas")]
    pub answer_schema: fn(&mut SchemaGenerator) -> Schema,
    /// A `QueryFn` of the kind.
    run: Box<dyn Any + Send + Sync>,
}

pub(super) type QueryFn<E> = fn(&E, &Moment<'_, E>, &str, &mut JsonReply);
pub(super) type HearFn<E> = fn(&str, String, &[u8]) -> Result<<E as Entity>::Command, String>;

/// A query of a client: a field it does not have is refused, as a command's is. One that another node's code asks comes as a JSON object.
fn read_query<E: Entity, Q: Query<E>>(arguments: &str) -> Result<Q, String> {
    if arguments.starts_with('{') || arguments == "null" {
        return serde_json::from_slice(arguments.as_bytes()).map_err(|why| why.to_string());
    }
    let fields = serde_urlencoded::Deserializer::new(form_urlencoded::parse(arguments.as_bytes()));
    let mut unknown = None;
    let read = serde_ignored::deserialize(fields, |path| {
        unknown.get_or_insert_with(|| path.to_string());
    });
    match (read, unknown) {
        (Ok(_), Some(field)) if !E::IGNORES_UNKNOWN_FIELDS => Err(format!("unknown field `{field}`")),
        (read, _) => read.map_err(|why: serde_urlencoded::de::Error| why.to_string()),
    }
}

/// The kinds an engine knows, in the order they were given.
pub struct Registry {
    kinds: Vec<Kind>,
    shards: u16,
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            kinds: Vec::new(),
            shards: limits::SHARDS,
        }
    }
}

impl Registry {
    /// Adds a kind.
    ///
    /// # Panics
    /// When the kind's name is not one, or taken: both are mistakes of the program.
    pub fn add<E: Entity>(&mut self) {
        assert!(
            limits::is_kind(E::KIND),
            "{:?} is not a kind: 1 to 64 of [a-z0-9-]",
            E::KIND
        );
        assert!(self.find(E::KIND).is_none(), "the kind {:?} is given twice", E::KIND);
        self.kinds.push(Kind {
            name: E::KIND,
            public: E::PUBLIC,
            state_version: E::STATE_VERSION,
            keep: E::KEEP,
            queries: Vec::new(),
            #[cfg(feature = "schemas")]
            command_schema: |generator| generator.subschema_for::<E::Command>(),
            #[cfg(feature = "schemas")]
            event_schema: |generator| generator.subschema_for::<E::Event>(),
            #[cfg(feature = "schemas")]
            reply_schema: |generator| generator.subschema_for::<E::Reply>(),
            #[cfg(feature = "schemas")]
            rejection_schema: |generator| generator.subschema_for::<E::Rejection>(),
            encode: encode::<E>,
            table: || Box::new(Entities::<E>::default()),
            check: || Box::new(EntityCheck::<E>::default()),
            requests: E::REQUESTS,
            hears: Vec::new(),
        });
    }

    /// Adds a query to a kind.
    ///
    /// # Panics
    /// When the kind was not given before, or has a query of this name.
    pub fn add_query<E: Entity, Q: Query<E>>(&mut self) {
        let run: QueryFn<E> = |entity, moment, arguments, reply| match read_query::<E, Q>(arguments) {
            Err(why) => {
                let why = format!("the query {:?} cannot be read: {why}", Q::NAME);
                reply.error = Some(Box::new(Error::Malformed(why)));
            }
            Ok(query) => match query.answer(entity, moment) {
                Ok(answer) => super::outcome::put_json(reply, &answer),
                Err(rejection) => reply.error = Some(Box::new(Error::Rejected(rejection.into()))),
            },
        };
        let kind = self.kind_mut(E::KIND);
        assert!(
            kind.query(Q::NAME).is_none(),
            "{} has two queries {:?}",
            E::KIND,
            Q::NAME
        );
        kind.queries.push(QueryKind {
            name: Q::NAME,
            #[cfg(feature = "schemas")]
            arguments_schema: |generator| generator.subschema_for::<Q>(),
            #[cfg(feature = "schemas")]
            answer_schema: |generator| generator.subschema_for::<Q::Answer>(),
            run: Box::new(run),
        });
    }

    /// Lets a kind hear the outcome of its requests to another.
    ///
    /// # Panics
    /// When the kind was not given before.
    pub fn add_hears<E: OnOutcome<T>, T: Entity>(&mut self) {
        let hear: HearFn<E> = |from, note, outcome| {
            let from = from
                .parse()
                .map_err(|why: <T::Id as std::str::FromStr>::Err| why.to_string())?;
            let outcome: RecordedOutcome<T::Reply, T::Rejection> =
                serde_json::from_slice(outcome).map_err(|why| why.to_string())?;
            Ok(E::on_outcome(from, note, outcome.into()))
        };
        self.kind_mut(E::KIND).hears.push((T::KIND, Box::new(hear)));
    }

    /// The first pair of kinds of which one requests something of the other, without being able to hear the outcome.
    #[must_use]
    pub fn unheard(&self) -> Option<(&'static str, &'static str)> {
        self.kinds.iter().find_map(|kind| {
            let is_heard =
                |from: &&&str| kind.hears.iter().any(|(heard, _)| heard == *from) && self.find(from).is_some();
            let of = kind.requests.iter().find(|from| !is_heard(from))?;
            Some((kind.name, *of))
        })
    }

    fn kind_mut(&mut self, name: &str) -> &mut Kind {
        let found = self.kinds.iter_mut().find(|kind| kind.name == name);
        found.unwrap_or_else(|| panic!("the kind {name:?} must be given before what belongs to it"))
    }

    /// How many shards the engine has. Fixed at its first start.
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
    /// Writes a command, an `Option<Command>` of this kind, as JSON, and says its name.
    ///
    /// # Errors
    /// It was taken already, or cannot be written; nothing else is known of it.
    pub fn encode_command(&self, command: &(dyn Any + Send), out: &mut Vec<u8>) -> serde_json::Result<&'static str> {
        (self.encode)(command, out)
    }

    /// A query by name.
    #[must_use]
    pub fn query(&self, name: &str) -> Option<&QueryKind> {
        self.queries.iter().find(|query| query.name == name)
    }

    pub(super) fn hears<E: Entity>(&self, from: &str) -> Option<HearFn<E>> {
        let (_, hear) = self.hears.iter().find(|(kind, _)| *kind == from)?;
        hear.downcast_ref().copied()
    }
}

impl QueryKind {
    pub(super) fn run<E: Entity>(&self) -> Option<QueryFn<E>> {
        self.run.downcast_ref().copied()
    }
}
