//! The world around the picos of an engine. It sends them events and queries, and answers their requests to something else.

mod editing;
mod fetch;
mod log;
mod places;
mod work;

pub(crate) use log::PAGE_ROOM_BYTES;
pub use log::{LogError, LogPage, LogQuery};

use crate::{
    Settings,
    ask::{ASKS_MAX, Answered, Ask},
    id::{Eci, PicoId, Secret},
    native,
    pico::{
        Answers, Asked, Child, GetPage, Incoming, Look, May, Newborn, Page, PageId, Pico, PicoCommand, PicoQuery,
        PicoRejection, PicoView, Ran, Use,
    },
    rulesets::{self, GetVersion, Loaded, Ruleset, RulesetCommand, Version, sha256},
};
use places::Holder;
use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use throng::{
    Engine,
    model::{Error, Rejection},
};
use throng_krl::Value;

/// The prefix of the URL of a ruleset that was given as source.
const OWN_SCHEME: &str = "krl:";
/// The longest chain of picos in which each asks the next.
const DEPTH_MAX: usize = 8;

/// The pause before a pico that does not exist yet is asked again. A message creates it after the event that asked for it, so it may still be on its
/// way. It is asked again up to [`ASKS_MAX`] times, about a second in all.
const BIRTH_PAUSE: Duration = Duration::from_millis(15);

/// The most levels of picos above a moving one.
pub(crate) const LEVELS_MAX: usize = 1_000;

/// The reason why an event or a query was not handled.
pub type Failure = Error<PicoRejection>;

/// The handle by which the routes and the worker use an engine with picos. Clones share it.
#[derive(Clone)]
pub struct Picos(Arc<Inner>);

struct Inner {
    engine: Engine,
    settings: Settings,
    root: OnceLock<PicoView>,
    web: fetch::Web,
    /// Held by the running import. Only one runs at a time.
    importing: tokio::sync::Mutex<()>,
}

type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl Picos {
    /// Returns the picos of this engine. The root is made at its first use.
    #[must_use]
    pub fn new(engine: Engine, settings: Settings) -> Self {
        let web = fetch::Web::new(&settings);
        Self(Arc::new(Inner {
            engine,
            settings,
            root: OnceLock::new(),
            web,
            importing: tokio::sync::Mutex::new(()),
        }))
    }

    /// Returns the settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// Returns the root's channel with the tag `owner`.
    pub(crate) async fn owner(&self) -> Result<Option<Eci>, Failure> {
        self.root().await?;
        let owned = self.0.engine.entity::<Pico>(PicoId::ROOT).read(Look {}).await?;
        Ok(owned.owner)
    }

    pub(crate) fn importing(&self) -> &tokio::sync::Mutex<()> {
        &self.0.importing
    }

    /// Returns the path of a `file:` URL, if it may be read.
    pub(crate) fn file(&self, url: &str) -> Result<std::path::PathBuf, Box<str>> {
        self.0.web.file(url)
    }

    /// Returns the root pico. Makes it if it does not exist.
    ///
    /// # Errors
    ///
    /// [`Failure`]: the engine cannot make or read it.
    pub async fn root(&self) -> Result<&PicoView, Failure> {
        if let Some(root) = self.0.root.get() {
            return Ok(root);
        }
        let look = || self.0.engine.entity::<Pico>(PicoId::ROOT).read(Look {});
        let root = match look().await {
            Err(Error::Unknown { .. }) => {
                let newborn = Newborn {
                    realm: Secret(unguessable()),
                    parent: None,
                    number: 0,
                    down: Secret::default(),
                    rulesets: Vec::new(),
                    asked: Value::Null,
                };
                let made = self
                    .0
                    .engine
                    .entity::<Pico>(PicoId::ROOT)
                    .ask(PicoCommand::Found(newborn))
                    .await;
                match made {
                    // Another caller made it first.
                    Ok(_) | Err(Error::Rejected(PicoRejection::Exists { .. })) => look().await?,
                    Err(other) => return Err(other),
                }
            }
            root => root?,
        };
        rulesets::set_host(root.realm, &self.0.settings.host);
        Ok(self.0.root.get_or_init(|| root))
    }

    /// Sends an event to a pico and waits for its end. With a key it takes effect once.
    ///
    /// # Errors
    ///
    /// [`Failure`]: the pico's rejection, or the engine's error.
    pub async fn event(&self, to: PicoId, incoming: Incoming, key: Option<String>) -> Result<Ran, Failure> {
        self.event_at(to, incoming, key, 0).await
    }

    fn event_at(
        &self,
        to: PicoId,
        mut incoming: Incoming,
        key: Option<String>,
        depth: usize,
    ) -> Later<'_, Result<Ran, Failure>> {
        Box::pin(async move {
            for asked in 0..=ASKS_MAX {
                let mut pico = self.0.engine.entity::<Pico>(to);
                if let Some(key) = &key {
                    pico = pico.once(key.clone());
                }
                match pico.ask(PicoCommand::Event(incoming.clone())).await {
                    Err(Error::Rejected(PicoRejection::Waits { ask, answers })) => {
                        incoming.answers = Some(self.answered(to, *ask, *answers, depth).await);
                    }
                    Err(Error::Unknown { .. }) if incoming.from.is_some() && asked < ASKS_MAX => {
                        tokio::time::sleep(BIRTH_PAUSE).await;
                    }
                    ran => return ran,
                }
            }
            Err(too_often())
        })
    }

    /// Queries a pico. Changes nothing.
    ///
    /// # Errors
    ///
    /// [`Failure`]: the pico's rejection, or the engine's error.
    pub async fn query(&self, eci: Eci, asked: Asked) -> Result<Value, Failure> {
        self.query_at(eci, None, asked, 0).await
    }

    /// Checks that a channel may be used for this. Returns the number of the pico's last event at the check.
    ///
    /// # Errors
    ///
    /// [`Failure`]: the channel refuses it, or the engine fails.
    pub(crate) async fn may(&self, eci: Eci, what: Use) -> Result<u64, Failure> {
        let via = eci.secret;
        let may = self.0.engine.entity::<Pico>(eci.pico).read(May { via, what });
        may.await
    }

    fn query_at(
        &self,
        eci: Eci,
        from: Option<PicoId>,
        asked: Asked,
        depth: usize,
    ) -> Later<'_, Result<Value, Failure>> {
        Box::pin(async move {
            let none = || Answers {
                time_ms: now_ms(),
                seed: Secret(unguessable()),
                given: Vec::new(),
            };
            let mut answers = none();
            for times in 0..=ASKS_MAX {
                let query = PicoQuery {
                    via: eci.secret,
                    from,
                    asked: asked.clone(),
                    answers,
                };
                match self.0.engine.entity::<Pico>(eci.pico).read(query).await {
                    Err(Error::Rejected(PicoRejection::Waits { ask, answers: given })) => {
                        answers = self.answered(eci.pico, *ask, *given, depth).await;
                    }
                    Err(Error::Unknown { .. }) if from.is_some() && times < ASKS_MAX => {
                        tokio::time::sleep(BIRTH_PAUSE).await;
                        answers = none();
                    }
                    answered => return answered.map(|seen| seen.0),
                }
            }
            Err(too_often())
        })
    }

    /// Returns the answers with one more: the answer to this request.
    async fn answered(&self, to: PicoId, ask: Ask, mut answers: Answers, depth: usize) -> Answers {
        let answered = self.answer(to, &ask, depth + 1).await;
        answers.given.push((ask, answered));
        answers
    }

    /// Makes a request of a running event or query of a pico, and returns its answer.
    pub(crate) fn answer<'a>(&'a self, to: PicoId, ask: &'a Ask, depth: usize) -> Later<'a, Answered> {
        Box::pin(async move {
            if depth > DEPTH_MAX {
                return Err(format!("more than {DEPTH_MAX} picos ask one for the other").into());
            }
            match ask {
                Ask::Load { url } => self.load_for(Some(to), url).await.map(|_| Value::Null),
                Ask::Flush { url } => self.flush_for(Some(to), url).await.map(|_| Value::Null),
                Ask::Ancestors { of, child } => self.ancestors(*of, *child).await,
                Ask::Children { parent, pages } => self.children(*parent, *pages).await,
                Ask::Names { picos } => self.names(picos).await,
                Ask::Query {
                    from,
                    eci,
                    rid,
                    name,
                    arguments,
                } => {
                    let asked = Asked {
                        rid: rid.clone(),
                        name: name.clone(),
                        arguments: arguments.clone(),
                    };
                    let answered = self.query_at(*eci, *from, asked, depth).await;
                    answered.map_err(|failure| unanswered(*eci, failure))
                }
                Ask::Event { .. } => self.event_for(ask, depth).await,
                Ask::Http { method, arguments } => self.0.web.request(Some(to), method, arguments).await,
                Ask::Logs { pico } => self.episodes(*pico).await,
            }
        })
    }

    /// Sends an event to another pico on behalf of one, and asks the query that follows it.
    async fn event_for(&self, ask: &Ask, depth: usize) -> Answered {
        let Ask::Event {
            from,
            eci,
            domain,
            name,
            attributes,
            then,
            once,
        } = ask
        else {
            return Err("that is no event".into());
        };
        let then = then
            .clone()
            .map(|(rid, name, arguments)| Asked { rid, name, arguments });
        let incoming = Incoming {
            via: eci.secret,
            from: Some(*from),
            domain: domain.clone(),
            name: name.clone(),
            attributes: attributes.clone(),
            then: then.clone(),
            answers: None,
        };
        let ran = self
            .event_at(eci.pico, incoming, Some(once.to_string()), depth)
            .await
            .map_err(|failure| unanswered(*eci, failure))?;
        if let Some(error) = ran.error {
            return Err(error);
        }
        match (ran.answer, then) {
            (Some(Ok(value)), _) => Ok(value),
            (Some(Err(PicoRejection::Waits { .. })), Some(asked)) => {
                self.query_at(*eci, Some(*from), asked, depth).await.map_err(said)
            }
            (Some(Err(no)), _) => Err(no.to_string().into()),
            (None, _) => Ok(ran.eid.into()),
        }
    }

    /// Checks that a pico may become the parent of another one.
    async fn ancestors(&self, of: PicoId, child: PicoId) -> Answered {
        let mut above = Some(of);
        for _ in 0..LEVELS_MAX {
            let Some(pico) = above else {
                return Ok(Value::Null);
            };
            if pico == child {
                return Err("a pico cannot be moved below itself".into());
            }
            let view = self.0.engine.entity::<Pico>(pico).read(Look {}).await.map_err(said)?;
            if view.is_moving {
                return Err(
                    format!("the pico {pico} above is on its way itself: try again when it has arrived").into(),
                );
            }
            above = view.parent;
        }
        Err(format!("there are more than {LEVELS_MAX} picos one above the other").into())
    }

    async fn children(&self, parent: PicoId, pages: u32) -> Answered {
        let mut all: Vec<Child> = Vec::new();
        for page in 0..pages {
            let read = self
                .0
                .engine
                .entity::<Page>(PageId { parent, page })
                .read(GetPage {})
                .await;
            match read {
                Ok(children) => all.extend(children),
                // The message that creates the page has not arrived yet.
                Err(Error::Unknown { .. } | Error::Ended { .. }) => {}
                Err(error) => return Err(error.to_string().into()),
            }
        }
        Ok(native::shown(&all))
    }

    async fn names(&self, picos: &[PicoId]) -> Answered {
        let mut names = Vec::with_capacity(picos.len());
        for pico in picos {
            let name = match self.0.engine.entity::<Pico>(*pico).read(Look {}).await {
                Ok(view) => view.name,
                Err(_) => Value::Null,
            };
            names.push(name);
        }
        Ok(names.into())
    }

    // --- rulesets ---

    async fn realm(&self) -> Result<Secret, Box<str>> {
        self.root().await.map(|root| root.realm).map_err(said)
    }

    /// Returns a ruleset, ready to run: the version recorded last, or else the URL's content.
    ///
    /// # Errors
    ///
    /// The ruleset cannot be fetched, or does not compile.
    pub async fn load(&self, url: &str) -> Result<Arc<Loaded>, Box<str>> {
        self.load_for(None, url).await
    }

    async fn load_for(&self, of: Holder, url: &str) -> Result<Arc<Loaded>, Box<str>> {
        let realm = self.realm().await?;
        if let Some(loaded) = rulesets::cached(realm, url) {
            return Ok(loaded);
        }
        let recorded = self.0.engine.entity::<Ruleset>(sha256(url)).read(GetVersion {}).await;
        match recorded {
            Ok(version) => {
                let loaded = Loaded::compile(&version)?;
                Ok(rulesets::keep(realm, loaded))
            }
            Err(Error::Unknown { .. }) => self.flush_for(of, url).await,
            Err(error) => Err(error.to_string().into()),
        }
    }

    /// Returns the recorded version of an installed ruleset.
    pub(crate) async fn recorded(&self, url: &str) -> Result<Version, Box<str>> {
        let recorded = self.0.engine.entity::<Ruleset>(sha256(url)).read(GetVersion {}).await;
        recorded.map_err(said)
    }

    /// Fetches a ruleset again. All picos that have it use the new version from their next event on.
    ///
    /// # Errors
    ///
    /// The ruleset cannot be fetched, does not compile, or uses a module that uses it in turn. Then the old version stays.
    pub async fn flush(&self, url: &str) -> Result<Arc<Loaded>, Box<str>> {
        self.flush_for(None, url).await
    }

    async fn flush_for(&self, of: Holder, url: &str) -> Result<Arc<Loaded>, Box<str>> {
        // A ruleset that was given as source has no location to fetch it from.
        if url.starts_with(OWN_SCHEME) {
            let version = self.recorded(url).await?;
            return Ok(rulesets::keep(self.realm().await?, Loaded::compile(&version)?));
        }
        let source = self.0.web.ruleset(of, url).await?;
        self.take(url, source).await
    }

    /// Records this source as the content of the URL.
    ///
    /// # Errors
    ///
    /// The errors of [`flush`](Self::flush), except those of fetching.
    pub async fn take(&self, url: &str, source: String) -> Result<Arc<Loaded>, Box<str>> {
        let realm = self.realm().await?;
        let version = Version {
            url: url.into(),
            rid: "".into(),
            hash: sha256(&source).into(),
            source: source.into(),
            flushed_ms: 0,
        };
        let loaded = Loaded::compile(&version)?;
        refuse_cycles(realm, &loaded)?;
        let command = RulesetCommand::Record(Version {
            rid: loaded.rid().into(),
            ..version
        });
        let recorded = self.0.engine.entity::<Ruleset>(sha256(url)).ask(command).await;
        let recorded = recorded.map_err(|error| error.to_string())?;
        let loaded = Loaded {
            flushed_ms: recorded.flushed_ms,
            ..loaded
        };
        Ok(rulesets::keep(realm, loaded))
    }
}

/// Refuses a ruleset that uses itself as a module, directly or through others.
fn refuse_cycles(realm: Secret, loaded: &Loaded) -> Result<(), Box<str>> {
    let all = rulesets::all(realm);
    let mut path = vec![loaded.rid().to_owned()];
    let mut seen = std::collections::BTreeSet::new();
    let uses = |rid: &str| -> Vec<String> {
        if rid == loaded.rid() {
            return loaded.program.dependencies().map(|used| used.rid.to_string()).collect();
        }
        let known = all.iter().filter(|other| other.rid() == rid);
        known
            .flat_map(|other| other.program.dependencies())
            .map(|used| used.rid.to_string())
            .collect()
    };
    fn walk(
        path: &mut Vec<String>,
        seen: &mut std::collections::BTreeSet<String>,
        uses: &dyn Fn(&str) -> Vec<String>,
    ) -> Option<String> {
        let last = path.last().cloned().unwrap_or_default();
        for used in uses(&last) {
            if path.first() == Some(&used) {
                return Some(format!("{} -> {used}", path.join(" -> ")));
            }
            if seen.insert(used.clone()) {
                path.push(used);
                if let Some(cycle) = walk(path, seen, uses) {
                    return Some(cycle);
                }
                path.pop();
            }
        }
        None
    }
    match walk(&mut path, &mut seen, &uses) {
        Some(cycle) => Err(format!("Dependency cycle found: {cycle}").into()),
        None => Ok(()),
    }
}

fn too_often() -> Failure {
    Error::Rejected(PicoRejection::Failed {
        error: format!("it asks more than {ASKS_MAX} times elsewhere").into(),
    })
}

/// Returns the reason why a channel gave no answer. For a missing pico it is the original's text.
fn unanswered(eci: Eci, failure: Failure) -> Box<str> {
    match failure {
        Error::Unknown { .. } | Error::Ended { .. } => format!("ECI not found {eci}").into(),
        failure => said(failure),
    }
}

fn said<R: Rejection>(error: Error<R>) -> Box<str> {
    error.to_string().into()
}

pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Returns a number that cannot be guessed.
///
/// # Panics
///
/// If the system has no random numbers, since then no secret is safe.
pub(crate) fn unguessable() -> u128 {
    let mut bytes = [0; 16];
    let filled = ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes);
    assert!(filled.is_ok(), "the system gives no random numbers");
    u128::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng::journal::{MemoryJournal, MemoryStore};

    /// Returns requests of one pico to another, whose maker gave it this secret.
    fn asks(eci: Eci) -> [Ask; 2] {
        let from = PicoId::ROOT;
        let query = Ask::Query {
            from: Some(from),
            eci,
            rid: "io.picolabs.wrangler".into(),
            name: "parent_eci".into(),
            arguments: Value::default(),
        };
        let event = Ask::Event {
            from,
            eci,
            domain: "any".into(),
            name: "thing".into(),
            attributes: serde_json::from_str("{}").unwrap(),
            then: None,
            once: "1".into(),
        };
        [query, event]
    }

    #[tokio::test]
    async fn a_request_waits_for_a_pico_in_birth_but_not_for_ever() {
        let journal = MemoryJournal::new();
        let store = MemoryStore::new(journal.clone());
        let builder = crate::kinds(Engine::builder());
        let picos = Picos::new(builder.start(journal, store).await.unwrap(), Settings::default());
        let realm = picos.root().await.unwrap().realm;
        for (number, ask) in [1, 2].into_iter().zip(0..) {
            let eci = Eci::new(PicoId(7 + number), Secret(5));
            let newborn = Newborn {
                realm,
                parent: Some(Eci::new(PicoId::ROOT, Secret(6))),
                number: 0,
                down: eci.secret,
                rulesets: Vec::new(),
                asked: Value::Null,
            };
            let made = async {
                tokio::time::sleep(BIRTH_PAUSE * 3).await;
                picos
                    .engine()
                    .entity::<Pico>(eci.pico)
                    .ask(PicoCommand::Found(newborn))
                    .await
            };
            let asks = asks(eci);
            let (answered, made) = tokio::join!(picos.answer(PicoId::ROOT, &asks[ask], 0), made);
            made.unwrap();
            answered.unwrap();
        }
        let nobody = Eci::new(PicoId(1), Secret(5));
        for ask in asks(nobody) {
            let error = picos.answer(PicoId::ROOT, &ask, 0).await.unwrap_err();
            assert!(error.contains("ECI not found"), "{error}");
        }
    }
}
