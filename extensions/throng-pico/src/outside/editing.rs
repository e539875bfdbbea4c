//! Trial and installation of rulesets that are given as source.

use super::{Failure, OWN_SCHEME, Picos, now_ms, too_often, unguessable};
use crate::{
    ask::{ASKS_MAX, Ask},
    id::{Eci, Secret},
    pico::{Answers, Asked, Incoming, Pico, PicoRejection, Tried, TryOut, Use},
    rulesets::Loaded,
};
use std::sync::Arc;
use throng::model::Error;
use throng_krl::Value;

impl Picos {
    /// Tries an event or a query with this ruleset in a pico, and keeps nothing. It makes no requests and sends no messages, but lists what it would
    /// request or send.
    ///
    /// # Errors
    ///
    /// [`Failure`]: the ruleset does not compile, the pico rejects the trial, or the engine fails.
    pub(crate) async fn try_out(
        &self,
        eci: Eci,
        source: Arc<str>,
        event: Option<Incoming>,
        asked: Option<Asked>,
    ) -> Result<Tried, Failure> {
        let mut answers = Answers {
            time_ms: now_ms(),
            seed: Secret(unguessable()),
            given: Vec::new(),
        };
        for _ in 0..=ASKS_MAX {
            let query = TryOut {
                via: eci.secret,
                source: source.clone(),
                event: event.clone(),
                asked: asked.clone(),
                answers,
            };
            match self.0.engine.entity::<Pico>(eci.pico).read(query).await {
                Err(Error::Rejected(PicoRejection::Waits { ask, answers: given })) => {
                    let effect = match &*ask {
                        Ask::Http { method, .. } => Some(format!("an HTTP request ({method})")),
                        Ask::Flush { url } => Some(format!("the ruleset {url}, fetched anew")),
                        Ask::Event { domain, name, .. } => Some(format!("the event {domain}:{name} at another pico")),
                        _ => None,
                    };
                    if let Some(effect) = effect {
                        let why = format!("it goes on only after {effect}: a try-out asks nobody for that");
                        return Ok(Tried {
                            error: Some(why.into()),
                            ..Tried::default()
                        });
                    }
                    answers = self.answered(eci.pico, *ask, *given, 0).await;
                }
                answered => return answered,
            }
        }
        Err(too_often())
    }

    /// Installs a ruleset that is given as source. It is recorded under a URL of the pico, `krl:PICO/RID`. All picos with that URL installed use it
    /// from their next event on.
    ///
    /// # Errors
    ///
    /// [`Failure`]: the channel may not install, the ruleset does not compile, or the engine fails.
    pub(crate) async fn install(&self, eci: Eci, source: String) -> Result<Arc<Loaded>, Failure> {
        self.may(eci, Use::Install).await?;
        let failed = |error: Box<str>| Error::Rejected(PicoRejection::Malformed { why: error });
        let parsed = throng_krl::parse(&source).map_err(|error| failed(error.to_string().into()))?;
        let url = format!("{OWN_SCHEME}{}/{}", eci.pico, parsed.rid());
        let loaded = self.take(&url, source).await.map_err(failed)?;
        let incoming = Incoming {
            via: eci.secret,
            domain: "engine_ui".into(),
            name: "install".into(),
            attributes: Value::map([("url", Value::from(url)), ("config", Value::map::<&str>([]))]),
            ..Incoming::default()
        };
        match self.event(eci.pico, incoming, None).await?.error {
            Some(error) => Err(failed(error)),
            None => Ok(loaded),
        }
    }
}
