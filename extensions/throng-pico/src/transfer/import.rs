//! The import of exported picos.

use super::{
    read::{self, ExportContents, ImportStep, Plan, Source},
    rename::Names,
};
use crate::{
    id::{Eci, PicoId, Secret},
    outside::{Failure, LEVELS_MAX, Picos, now_ms, unguessable},
    pico::{Look, Page, PageCommand, Pico, PicoCommand, PicoView},
    rulesets::Version,
};
use serde::Serialize;
use std::{collections::HashMap, sync::Arc, time::Duration};
use throng::model::Error;
use tokio::{sync::mpsc, task::JoinSet};

/// The most picos that are created at a time.
const AT_ONCE: usize = 64;
/// The most steps that are read ahead.
const STEPS_AHEAD: usize = 64;
/// The longest wait for the new parent to adopt the top pico.
const ADOPTION: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(5);

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Imported {
    /// The pico at the top of the imported tree.
    pub(crate) pico: PicoId,
    /// The channel by which a client reaches the top pico.
    pub(crate) eci: Option<Eci>,
    /// The number of picos of the tree, including the top one.
    pub(crate) picos: usize,
    /// Rulesets whose version here differs from the exported one. The picos use the version here.
    pub(crate) other_versions: Vec<Arc<str>>,
}

/// The reason why an import failed, in full or in part.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The export is invalid. Nothing was done.
    Unusable(String),
    /// The import failed midway, for this reason. The picos created so far stay.
    Broken(String),
    /// Another import is under way.
    Busy,
    /// The channel refuses it, or the engine fails.
    Refused(Failure),
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self::Refused(failure)
    }
}

impl Picos {
    /// Makes the exported picos children of the pico that a channel reaches. They keep their ids and channels, or get new ones.
    pub(crate) async fn import(&self, to: Eci, source: Source, is_identical: bool) -> Result<Imported, Failed> {
        let Ok(_only) = self.importing().try_lock() else {
            return Err(Failed::Busy);
        };
        let reading = source.clone();
        let seen = tokio::task::spawn_blocking(move || read::check(&reading)).await;
        let ExportContents {
            picos,
            top,
            realm: old_realm,
            rulesets,
        } = seen
            .map_err(|error| Failed::Broken(error.to_string()))?
            .map_err(Failed::Unusable)?;
        if is_identical {
            self.refuse_existing(&picos.keys().copied().collect::<Vec<_>>()).await?;
        }
        let names = Names {
            picos,
            top,
            old_realm,
            realm: self.root().await?.realm,
            seed: (!is_identical).then(|| Secret(unguessable())),
        };
        let (urls, other_versions) = self.rulesets(rulesets).await.map_err(Failed::Unusable)?;
        let (pico, count) = (names.pico(top), names.picos.len());
        self.make(source, names, urls).await?;
        let eci = self.hand_over(pico, to).await?;
        Ok(Imported {
            pico,
            eci,
            picos: count,
            other_versions,
        })
    }

    /// Refuses picos that exist already, since they would keep their ids. The remains of an interrupted import, which have no parent, do not count.
    async fn refuse_existing(&self, picos: &[PicoId]) -> Result<(), Failed> {
        for pico in picos {
            let mut above = Some(*pico);
            for _ in 0..LEVELS_MAX {
                let Some(id) = above.take() else { break };
                match self.engine().entity::<Pico>(id).read(Look {}).await {
                    Err(Error::Unknown { .. } | Error::Ended { .. }) => {}
                    Ok(PicoView { parent: None, .. }) if id != PicoId::ROOT => {}
                    Ok(PicoView {
                        parent: Some(parent), ..
                    }) => above = Some(parent),
                    Ok(_) => return Err(Failed::Unusable(format!("there is a pico {pico} already"))),
                    Err(error) => return Err(error.into()),
                }
            }
            if above.is_some() {
                return Err(Failed::Unusable(format!("there is a pico {pico} already")));
            }
        }
        Ok(())
    }

    /// Returns the new URLs of rulesets, and the rulesets whose version here differs. A ruleset that cannot be loaded from its URL gets a URL made of
    /// its hash. So the import never decides what another URL contains.
    async fn rulesets(&self, versions: Vec<Version>) -> Result<(HashMap<Arc<str>, Arc<str>>, Vec<Arc<str>>), String> {
        let (mut urls, mut others) = (HashMap::new(), Vec::new());
        for version in versions {
            if let Ok(loaded) = self.load(&version.url).await {
                if loaded.hash != version.hash {
                    others.push(version.url);
                }
                continue;
            }
            let hash = crate::rulesets::sha256(&version.source);
            let url: Arc<str> = crate::intern::name::intern(&format!("krl:{hash}"));
            let taken = self.take(&url, version.source.to_string()).await;
            taken.map_err(|why| format!("the ruleset {}: {why}", version.url))?;
            urls.insert(version.url, url);
        }
        Ok((urls, others))
    }

    async fn make(&self, source: Source, names: Names, urls: HashMap<Arc<str>, Arc<str>>) -> Result<(), Failed> {
        let (give, mut steps) = mpsc::channel(STEPS_AHEAD);
        let reading = tokio::task::spawn_blocking(move || {
            let take = |step| give.blocking_send(step).map_err(|_| "the import ended".to_owned());
            Plan::of(&source, &names, &urls)?.run(take)
        });
        let mut making = JoinSet::new();
        let mut made = Ok(());
        while let Some(step) = steps.recv().await {
            made = match step {
                ImportStep::Pico(imported) => {
                    let engine = self.engine().clone();
                    making.spawn(async move {
                        let pico = engine.entity::<Pico>(imported.body.id);
                        let made = pico.ask(PicoCommand::Import(imported)).await;
                        made.map(drop).map_err(|error| error.to_string())
                    });
                    match making.len() {
                        0..AT_ONCE => Ok(()),
                        _ => finish(&mut making, AT_ONCE / 2).await,
                    }
                }
                ImportStep::More(pico, portion) => match finish(&mut making, 0).await {
                    Ok(()) => {
                        let more = self.engine().entity::<Pico>(pico).ask(PicoCommand::ImportMore(portion));
                        more.await.map(drop).map_err(|error| error.to_string())
                    }
                    failed => failed,
                },
                ImportStep::Page(page, children) => {
                    let seal = self.engine().entity::<Page>(page).ask(PageCommand::Seal { children });
                    seal.await.map(drop).map_err(|error| error.to_string())
                }
            };
            if made.is_err() {
                break;
            }
        }
        drop(steps);
        let read = reading.await.map_err(|error| error.to_string()).and_then(|read| read);
        let made = match made {
            Ok(()) => finish(&mut making, 0).await.and(read),
            failed => failed,
        };
        made.map_err(Failed::Broken)
    }

    /// Moves the top pico to its new parent.
    async fn hand_over(&self, top: PicoId, to: Eci) -> Result<Option<Eci>, Failed> {
        self.engine().entity::<Pico>(top).ask(PicoCommand::Move { to }).await?;
        let begun = now_ms();
        loop {
            let view = self.engine().entity::<Pico>(top).read(Look {}).await?;
            match view.parent {
                Some(parent) if parent == to.pico => return Ok(view.own),
                _ if !view.is_moving => return Err(Failed::Broken("the new parent did not take it".into())),
                _ if now_ms() - begun > i64::try_from(ADOPTION.as_millis()).unwrap_or(i64::MAX) => {
                    return Err(Failed::Broken("the new parent does not answer".into()));
                }
                _ => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }
}

/// Waits until at most `left` picos are still being created.
async fn finish(making: &mut JoinSet<Result<(), String>>, left: usize) -> Result<(), String> {
    while making.len() > left {
        match making.join_next().await {
            Some(Ok(made)) => made?,
            Some(Err(error)) => return Err(error.to_string()),
            None => return Ok(()),
        }
    }
    Ok(())
}
