//! The queries of picos: shared functions, and the engine's own queries.

use super::{Answers, Asked, Children, Pico, PicoRejection};
use crate::{
    channel::{Channel, Refused},
    id::{Eci, PicoId, Secret},
    native, run,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng::model::{Moment, Query};
use throng_krl::Value;

/// A query over a channel.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PicoQuery {
    /// The secret of the channel on which it arrives. The channel's policy decides.
    pub via: Secret,
    /// The pico that asks; `None` for a client.
    pub from: Option<PicoId>,
    /// The function or value of a ruleset.
    pub asked: Asked,
    /// The answers to its requests so far.
    #[schemars(with = "serde_json::Value")]
    pub answers: Answers,
}

/// The result of a shared function or value.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct QueryResult(#[schemars(with = "serde_json::Value")] pub Value);

impl Query<Pico> for PicoQuery {
    const NAME: &'static str = "ask";
    type Answer = QueryResult;

    fn answer(self, pico: &Pico, _: &Moment<'_, Pico>) -> Result<QueryResult, PicoRejection> {
        let Self {
            via,
            from,
            asked,
            answers,
        } = self;
        pico.body.admit(via, from, |channel| {
            channel.shape.query_policy.check(&asked.rid, &asked.name)
        })?;
        run::query(pico, via, &asked, &answers).map(QueryResult)
    }
}

/// A query about the pico for the engine's own use. It needs no channel.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Look {}

/// The answer to [`Look`].
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct PicoView {
    /// The realm of rulesets.
    pub realm: Secret,
    /// The channel for the console.
    pub ui: Option<Eci>,
    /// The channel with the tags `system,self`.
    pub own: Option<Eci>,
    /// The channel with the tag `owner`.
    pub owner: Option<Eci>,
    /// The name, as in `wrangler:name()`.
    #[schemars(with = "serde_json::Value")]
    pub name: Value,
    /// The parent; `None` for a root and during an import.
    pub parent: Option<PicoId>,
    /// True while the pico moves to another parent.
    pub is_moving: bool,
    /// The children in no page, and the number of pages.
    #[schemars(with = "serde_json::Value")]
    pub children: Children,
}

impl Query<Pico> for Look {
    const NAME: &'static str = "view";
    type Answer = PicoView;

    fn answer(self, pico: &Pico, _: &Moment<'_, Pico>) -> Result<PicoView, PicoRejection> {
        let tagged = |tags: &[&str]| {
            let channel = pico.body.channels.iter().find(|channel| channel.shape.is_tagged(tags));
            channel.map(|channel| Eci::new(pico.body.id, channel.secret))
        };
        let name = pico
            .variables
            .get(native::WRANGLER, "name")
            .cloned()
            .unwrap_or_default();
        Ok(PicoView {
            realm: pico.body.realm,
            ui: tagged(&["engine", "ui"]),
            own: tagged(&["system", "self"]),
            owner: tagged(&["owner"]),
            name: native::name_of(&pico.body, name),
            parent: pico.body.parent.map(|parent| parent.pico),
            is_moving: pico.body.moving.is_some(),
            children: pico.body.children.clone(),
        })
    }
}

/// A query that checks that a channel may be used for something.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct May {
    /// The secret of the channel.
    pub via: Secret,
    /// The use, which determines the policy to check.
    pub what: Use,
}

/// A use of a channel. A use that is neither an event nor a query of a ruleset has the name of one in policies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Use {
    /// Reading the log: the query `logs` of the console's ruleset.
    ReadLog,
    /// Exporting the pico and all picos below it: the query `export` of the ruleset wrangler.
    Export,
    /// Trying out or installing a ruleset that is given as source: the event `engine_ui:install`.
    Install,
    /// Adopting another pico: the event `wrangler:child_adoption`.
    Adopt,
    /// Following changes of a query's result: the query itself.
    Query {
        /// The ruleset of the query.
        rid: Box<str>,
        /// A function or value that the ruleset shares.
        name: Box<str>,
    },
}

impl Use {
    /// Checks that the channel may be used for this.
    pub(crate) fn check(&self, channel: &Channel) -> Result<(), Refused> {
        let shape = &channel.shape;
        match self {
            Self::ReadLog => shape.query_policy.check(native::UI, "logs"),
            Self::Export => shape.query_policy.check(native::WRANGLER, "export"),
            Self::Install => shape.event_policy.check("engine_ui", "install"),
            Self::Adopt => shape.event_policy.check("wrangler", "child_adoption"),
            Self::Query { rid, name } => shape.query_policy.check(rid, name),
        }
    }
}

impl Query<Pico> for May {
    const NAME: &'static str = "may";
    /// The number of the pico's last event at the check.
    type Answer = u64;

    fn answer(self, pico: &Pico, moment: &Moment<'_, Pico>) -> Result<u64, PicoRejection> {
        let check = |channel: &Channel| self.what.check(channel);
        pico.body.admit(self.via, None, check).map(|()| moment.seq)
    }
}

/// A query for the whole state of a pico, for its export. It needs no channel.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Everything {}

impl Query<Pico> for Everything {
    const NAME: &'static str = "everything";
    type Answer = Pico;

    fn answer(self, pico: &Pico, _: &Moment<'_, Pico>) -> Result<Pico, PicoRejection> {
        match pico.body.is_deleted {
            true => Err(PicoRejection::Deleted {}),
            false => Ok(pico.clone()),
        }
    }
}
