//! Kinds, as an engine is given them.

use super::{
    Kind, QueryKind, Registry,
    checkpoint::index::{is_field, print_of},
    execute::{
        call::{HearFn, QueryFn},
        outcome::put_json,
    },
    inspect::check::EntityCheck,
    messages::RecordedOutcome,
    resident::Entities,
};
use crate::{
    limits,
    model::{
        Call, CallId, CallOutcome, Entity, Error, Event, LATE, OUTCOME, OnCallOutcome, OnOutcome, Outside, Query,
        encode, note,
    },
};
use std::any::TypeId;

/// Reads a query. A client's query with an unknown field is refused, like a command. One from another node comes as a JSON object.
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

impl Registry {
    /// Adds a kind.
    ///
    /// # Panics
    /// The kind's name is not valid, or is taken: both are mistakes of the program.
    pub fn add<E: Entity>(&mut self) {
        assert!(
            limits::is_kind(E::KIND),
            "{:?} is not a kind: 1 to 64 of [a-z0-9-]",
            E::KIND
        );
        assert!(self.find(E::KIND).is_none(), "the kind {:?} is given twice", E::KIND);
        let indexed = E::INDEXED;
        assert!(
            indexed.len() <= limits::INDEXED_FIELDS_MAX && indexed.iter().all(|field| is_field(field.name())),
            "{:?} indexes at most {} fields, each named by 1 to 64 of [a-z0-9_]",
            E::KIND,
            limits::INDEXED_FIELDS_MAX
        );
        self.kinds.push(Kind {
            name: E::KIND,
            public: E::PUBLIC,
            replies: E::REPLIES,
            state_version: E::STATE_VERSION,
            event_versions: <E::Event as Event>::VERSIONS,
            ignores_unknown_fields: E::IGNORES_UNKNOWN_FIELDS,
            indexed: E::INDEXED.iter().map(|field| field.name()).collect(),
            index_print: print_of::<E>(),
            keep: E::KEEP,
            is_internal: false,
            queries: Vec::new(),
            #[cfg(feature = "schemas")]
            command_schema: |generator| generator.subschema_for::<E::Command>(),
            #[cfg(feature = "schemas")]
            event_schema: |generator| generator.subschema_for::<E::Event>(),
            #[cfg(feature = "schemas")]
            reply_schema: |generator| generator.subschema_for::<E::Reply>(),
            #[cfg(feature = "schemas")]
            rejection_schema: |generator| generator.subschema_for::<E::Rejection>(),
            #[cfg(feature = "schemas")]
            call_schemas: None,
            #[cfg(feature = "schemas")]
            note_schemas: Vec::new(),
            entity: TypeId::of::<E>(),
            encode: encode::<E>,
            table: |kind| {
                Box::new(Entities::<E>::of(
                    kind.queries::<E>(),
                    kind.hears::<E>(),
                    kind.observer.clone(),
                ))
            },
            check: |kind| Box::new(EntityCheck::<E>::of(kind.hears::<E>())),
            requests: E::REQUESTS,
            hears: Vec::new(),
            observer: None,
        });
    }

    /// Adds a query to a kind.
    ///
    /// # Panics
    /// The kind was not added before, or has a query of this name.
    pub fn add_query<E: Entity, Q: Query<E>>(&mut self) {
        let run: QueryFn<E> = |entity, moment, arguments, reply| match read_query::<E, Q>(arguments) {
            Err(why) => {
                let why = format!("the query {:?} cannot be read: {why}", Q::NAME);
                reply.error = Some(Box::new(Error::Malformed(why)));
            }
            Ok(query) => match query.answer(entity, moment) {
                Ok(answer) => put_json(reply, &answer),
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

    /// Has a kind take the outcomes of its requests to another.
    ///
    /// # Panics
    /// The kind was not added before.
    pub fn add_hears<E: OnOutcome<T>, T: Entity>(&mut self) {
        let hear: HearFn<E> = |from, note, outcome| {
            let from = from
                .parse()
                .map_err(|why: <T::Id as std::str::FromStr>::Err| why.to_string())?;
            let outcome: RecordedOutcome<T::Reply, T::Rejection> =
                serde_json::from_slice(outcome).map_err(|why| why.to_string())?;
            Ok(E::on_outcome(from, note::read(note)?, outcome.into()))
        };
        let kind = self.kind_mut(E::KIND);
        kind.hears.push((T::KIND, Box::new(hear)));
        #[cfg(feature = "schemas")]
        kind.note_schemas.push((T::KIND, |generator| {
            generator.subschema_for::<<E as OnOutcome<T>>::Note>()
        }));
    }

    /// Adds the kind of a worker's calls, unless it is there, and has a kind take their outcomes.
    ///
    /// # Panics
    /// The kind was not added before, or another worker or kind has the name of this worker's calls.
    pub fn add_outside<E: OnCallOutcome<W>, W: Outside>(&mut self) {
        match self.find(Call::<W>::KIND) {
            None => {
                self.add::<Call<W>>();
                let kind = self.kind_mut(Call::<W>::KIND);
                kind.is_internal = true;
                #[cfg(feature = "schemas")]
                {
                    kind.call_schemas = Some(|generator| {
                        [
                            generator.subschema_for::<W::Request>(),
                            generator.subschema_for::<W::Answer>(),
                            generator.subschema_for::<W::Failure>(),
                        ]
                    });
                }
            }
            Some(at) => assert!(
                self.kinds[at].entity == TypeId::of::<Call<W>>(),
                "the kind {:?} of a worker's calls is given twice",
                Call::<W>::KIND
            ),
        }
        let hear: HearFn<E> = |call, note, outcome| {
            let call = call.parse::<CallId>().map_err(|why| format!("{call:?}: {why}"))?;
            let outcome: CallOutcome<W::Answer, W::Failure> =
                serde_json::from_slice(outcome).map_err(|why| why.to_string())?;
            match (note, outcome) {
                (OUTCOME, outcome) => Ok(E::on_call_outcome(call, outcome)),
                (LATE, CallOutcome::Answered(answer)) => Ok(E::on_late_answer(call, Ok(answer))),
                (LATE, CallOutcome::Failed(failure)) => Ok(E::on_late_answer(call, Err(failure))),
                (note, _) => Err(format!("no call tells this as {note:?}")),
            }
        };
        let kind = self.kind_mut(E::KIND);
        if kind.hears.iter().all(|(heard, _)| *heard != Call::<W>::KIND) {
            kind.hears.push((Call::<W>::KIND, Box::new(hear)));
        }
    }
}
