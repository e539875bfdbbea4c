//! What picos answer without changing: shared functions, and what the console draws.

use super::{Answers, Asked, Children, Pico, PicoRejection};
use crate::{
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
    /// What was asked elsewhere for it so far.
    #[schemars(with = "serde_json::Value")]
    pub answers: Answers,
}

/// What a shared function or value came to.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Seen(#[schemars(with = "serde_json::Value")] pub Value);

impl Query<Pico> for PicoQuery {
    const NAME: &'static str = "ask";
    type Answer = Seen;

    fn answer(self, pico: &Pico, _: &Moment<'_, Pico>) -> Result<Seen, PicoRejection> {
        let Self {
            via,
            from,
            asked,
            answers,
        } = self;
        pico.body.admit(via, from, |channel| {
            channel.shape.query_policy.check(&asked.rid, &asked.name)
        })?;
        run::query(pico, via, &asked, &answers).map(Seen)
    }
}

/// Who a pico is, for the engine's own needs: no channel is asked.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Look {}

/// What [`Look`] answers.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct PicoView {
    /// Which rulesets it takes.
    pub realm: Secret,
    /// Its channel for the console.
    pub ui: Option<Eci>,
    /// The channel tagged `system,self`.
    pub own: Option<Eci>,
    /// As `wrangler:name()` tells it; `Pico` where none was given.
    pub name: String,
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
            channel.map(|channel| Eci {
                pico: pico.body.id,
                secret: channel.secret,
            })
        };
        let name = pico.variables.get(native::WRANGLER, "name").and_then(Value::as_str);
        Ok(PicoView {
            realm: pico.body.realm,
            ui: tagged(&["engine", "ui"]),
            own: tagged(&["system", "self"]),
            name: name.unwrap_or("Pico").to_owned(),
            children: pico.body.children.clone(),
        })
    }
}

/// Whether a channel takes queries of a pico's log.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MayRead {
    /// The secret of the channel that asks.
    pub via: Secret,
}

impl Query<Pico> for MayRead {
    const NAME: &'static str = "may-read";
    type Answer = bool;

    fn answer(self, pico: &Pico, _: &Moment<'_, Pico>) -> Result<bool, PicoRejection> {
        let check = |channel: &crate::channel::Channel| channel.shape.query_policy.check(native::UI, "logs");
        pico.body.admit(self.via, None, check).map(|()| true)
    }
}
