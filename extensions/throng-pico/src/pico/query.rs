//! The queries of picos: shared functions, and the console's drawing.

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
    /// The secret of the channel it comes over, whose policy decides.
    pub via: Secret,
    /// The pico that asks; a client where there is none.
    pub from: Option<PicoId>,
    /// A ruleset's function or value.
    pub asked: Asked,
    /// The answers from elsewhere so far.
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

/// The query for the pico itself, for the engine's own needs: no channel is asked.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Look {}

/// The answer to [`Look`].
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct PicoView {
    /// The realm of rulesets.
    pub realm: Secret,
    /// Its channel for the console.
    pub ui: Option<Eci>,
    /// The channel tagged `system,self`.
    pub own: Option<Eci>,
    /// The channel tagged `owner`.
    pub owner: Option<Eci>,
    /// The name that `wrangler:name()` tells.
    #[schemars(with = "serde_json::Value")]
    pub name: Value,
    /// The parent; `None` for a root, and for a pico that is being imported.
    pub parent: Option<PicoId>,
    /// True if the pico looks for a way to another parent.
    pub is_moving: bool,
    /// Its children in no page, and how many pages there are.
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

/// The query whether a channel may be used for something.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct May {
    /// The secret of the channel that asks.
    pub via: Secret,
    /// Decides which of the channel's policies is asked.
    pub what: Use,
}

/// The use of a channel. A use that is no event or query of a ruleset is named in a policy as one of these would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Use {
    /// Reading the log: the query `logs` of the console's ruleset.
    ReadLog,
    /// Exporting it with all below it: the query `export` of the ruleset wrangler.
    Export,
    /// Trying a ruleset out, and installing one that is given as it stands: the event `engine_ui:install`.
    Install,
    /// Making another pico its child: the event `wrangler:child_adoption`.
    Adopt,
    /// Hearing that the answer of a query may have changed: the query.
    Query {
        /// The ruleset that shares it.
        rid: Box<str>,
        /// A function that the ruleset shares.
        name: Box<str>,
    },
}

impl Use {
    /// Checks that a channel may be used for it.
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
    /// The number of the pico's last event when it was asked.
    type Answer = u64;

    fn answer(self, pico: &Pico, moment: &Moment<'_, Pico>) -> Result<u64, PicoRejection> {
        let check = |channel: &Channel| self.what.check(channel);
        pico.body.admit(self.via, None, check).map(|()| moment.seq)
    }
}

/// All that a pico is, for its export: no channel is asked.
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
