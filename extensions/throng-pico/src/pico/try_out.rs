//! The trial of a ruleset with an event or a query. It runs on a copy of the pico, and nothing is kept.

use super::{Answers, Asked, Change, Incoming, Installed, Logged, Pico, PicoRejection, SelectedRule, Use};
use crate::{
    draft::{Draft, PicoMessage, Stop},
    id::Secret,
    rulesets::{Loaded, Version},
    run,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use throng::model::{Moment, Query};
use throng_krl::{Event, Value};

/// The URL of the tried ruleset, as its rules see it.
const TRIED_URL: &str = "krl:tried";

/// A query that tries a ruleset in a pico. The ruleset counts as installed, in place of the one with the same id.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TryOut {
    /// The channel. It must allow the installation of rulesets.
    pub via: Secret,
    /// The ruleset's source in KRL.
    pub source: Arc<str>,
    /// The event to try; `None` for a query.
    #[schemars(with = "serde_json::Value")]
    pub event: Option<Incoming>,
    /// The query to try, if there is no event.
    #[schemars(with = "serde_json::Value")]
    pub asked: Option<Asked>,
    /// The answers to its requests so far.
    #[schemars(with = "serde_json::Value")]
    pub answers: Answers,
}

/// The result of a trial.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Tried {
    /// The error, if it would fail and change nothing.
    pub error: Option<Box<str>>,
    /// The log entries, in order.
    #[schemars(with = "serde_json::Value")]
    pub log: Vec<Logged>,
    /// The selected rules, in order.
    #[schemars(with = "serde_json::Value")]
    pub rules: Vec<SelectedRule>,
    /// The directives of an event.
    #[schemars(with = "serde_json::Value")]
    pub directives: Vec<Value>,
    /// The changes that the event would make in the pico.
    #[schemars(with = "serde_json::Value")]
    pub changes: Vec<Change>,
    /// Short descriptions of the messages that the event would send.
    pub sends: Vec<String>,
    /// The result of a query.
    #[schemars(with = "serde_json::Value")]
    pub result: Value,
}

impl Query<Pico> for TryOut {
    const NAME: &'static str = "try";
    type Answer = Tried;

    fn answer(self, pico: &Pico, _: &Moment<'_, Pico>) -> Result<Tried, PicoRejection> {
        let Self {
            via,
            source,
            event,
            asked,
            answers,
        } = self;
        pico.body.admit(via, None, |channel| Use::Install.check(channel))?;
        let malformed = |why: String| PicoRejection::Malformed { why: why.into() };
        let version = Version {
            url: TRIED_URL.into(),
            source,
            ..Version::default()
        };
        let loaded = Arc::new(Loaded::compile(&version).map_err(malformed)?);
        let mut copy = pico.clone();
        copy.take(loaded.rid());
        let is_query = event.is_none();
        let mut draft = Draft::new(&copy, via, &answers, is_query);
        draft.trial = Some(loaded);
        let ran = match (event, asked) {
            (Some(incoming), _) => run_event(&mut draft, incoming).map(|()| Value::Null),
            (None, Some(asked)) => run::asked(&mut draft, &asked),
            (None, None) => return Err(malformed("there is neither an event nor a query to try".into())),
        };
        let (result, error) = match ran {
            Ok(result) => (result, None),
            Err(Stop::Failed(error)) => (Value::Null, Some(error.to_string().into())),
            Err(Stop::Ask(ask)) => {
                let used = draft.used();
                drop(draft);
                let mut answers = answers;
                answers.given.truncate(used);
                return Err(PicoRejection::Waits {
                    ask,
                    answers: Box::new(answers),
                });
            }
        };
        let tried = Tried {
            log: std::mem::take(&mut draft.log),
            rules: std::mem::take(&mut draft.rules),
            error,
            ..Tried::default()
        };
        // A failed run leaves only its log.
        Ok(match tried.error {
            Some(_) => tried,
            None => Tried {
                directives: std::mem::take(&mut draft.directives),
                changes: std::mem::take(&mut draft.changes),
                sends: draft.outgoing.messages.iter().map(said).collect(),
                result,
                ..tried
            },
        })
    }
}

impl Pico {
    /// Puts the tried ruleset in place of the installed one with the same id. It sees that one's variables.
    fn take(&mut self, rid: &str) {
        let rulesets = &mut self.body.rulesets;
        match rulesets.iter_mut().find(|ruleset| &*ruleset.rid == rid) {
            Some(ruleset) => (ruleset.url, ruleset.states) = (TRIED_URL.into(), None),
            None => rulesets.push(Installed {
                rid: rid.into(),
                url: TRIED_URL.into(),
                config: Value::Null,
                states: None,
            }),
        }
    }
}

fn run_event(draft: &mut Draft<'_>, incoming: Incoming) -> Result<(), Stop> {
    let event = Event {
        eci: draft.via.to_string().into(),
        domain: incoming.domain,
        name: incoming.name,
        attributes: incoming.attributes,
        eid: draft.eid.clone(),
        time_ms: draft.now_ms(),
    };
    draft.raise(event, None)?;
    run::events(draft)
}

/// Describes a message in a few words.
fn said(message: &PicoMessage) -> String {
    match message {
        PicoMessage::Born(pico, _) => format!("makes the child {pico}"),
        PicoMessage::Event(pico, event) => format!("sends {}:{} to the pico {pico}", event.domain, event.name),
        PicoMessage::Abroad(event) => format!("sends {}:{} to another engine", event.domain, event.name),
        PicoMessage::Delete(pico) => format!("deletes the pico {pico}"),
        PicoMessage::Move(pico, _) => format!("moves the pico {pico} to another parent"),
        PicoMessage::Seek | PicoMessage::Adopt(..) | PicoMessage::Left(..) => "goes to another parent".to_owned(),
        PicoMessage::Seal(..) | PicoMessage::RemoveFromPage(..) => "keeps its list of children".to_owned(),
    }
}
