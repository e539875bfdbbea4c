//! Rulesets by URL: their recorded versions, and their programs. Each version is compiled once.

use crate::id::Secret;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{
    collections::HashMap,
    fmt::Write as _,
    sync::{Arc, PoisonError, RwLock},
};
use throng::model::{CommandAnswer, Entity, Event, Moment, Query, Rejection, Turn};
use throng_krl::Program;

/// A ruleset that is ready to run.
#[derive(Debug)]
pub struct Loaded {
    /// The URL it comes from.
    pub url: Arc<str>,
    /// The source as written.
    pub source: Arc<str>,
    /// SHA-256 of the source, in hexadecimal digits.
    pub hash: Arc<str>,
    /// The time when it was fetched, in milliseconds since 1970.
    pub flushed_ms: i64,
    /// The program, compiled once and shared by all picos that have the ruleset.
    pub program: Arc<Program>,
}

impl Loaded {
    /// Compiles a ruleset.
    ///
    /// # Errors
    ///
    /// The faults and their locations, as a text.
    pub fn compile(version: &Version) -> Result<Self, String> {
        let tree = throng_krl::parse(&version.source).map_err(|error| error.to_string())?;
        let program = throng_krl::compile(&tree).map_err(|error| error.to_string())?;
        Ok(Self {
            url: version.url.clone(),
            source: version.source.clone(),
            hash: version.hash.clone(),
            flushed_ms: version.flushed_ms,
            program: Arc::new(program),
        })
    }

    /// Returns the id, with which the source begins. It is independent of the URL.
    #[must_use]
    pub fn rid(&self) -> &str {
        self.program.rid()
    }

    /// True if it uses this ruleset as a module.
    #[must_use]
    pub fn uses(&self, rid: &str) -> bool {
        self.program.dependencies().any(|used| &*used.rid == rid)
    }

    /// Returns the ruleset in the form of `ctx:rulesets`.
    #[must_use]
    pub fn shown(&self) -> serde_json::Value {
        let meta = self.program.meta();
        let warnings = self.program.warnings().iter();
        let warnings: Vec<_> = warnings
            .map(|warning| json!({ "message": warning.to_string() }))
            .collect();
        json!({
            "krl": self.source,
            "krlMeta": {
                "version": meta.version, "name": meta.name, "description": meta.description, "author": meta.author,
            },
            "hash": self.hash,
            "flushed": crate::time::text(self.flushed_ms),
            "compiler": { "version": env!("CARGO_PKG_VERSION"), "warnings": warnings },
        })
    }
}

/// The most cached programs. With one more, all are dropped, and loaded again when needed.
const PROGRAMS_MAX: usize = 10_000;

/// The data that the picos of one engine share in this process.
#[derive(Default)]
struct Realm {
    loaded: HashMap<Arc<str>, Arc<Loaded>>,
    host: Arc<str>,
}

/// The realms. A process may run several engines, for example in tests.
static REALMS: RwLock<Option<HashMap<Secret, Realm>>> = RwLock::new(None);

/// Returns the program of a ruleset, if it is cached.
pub(crate) fn cached(realm: Secret, url: &str) -> Option<Arc<Loaded>> {
    let realms = REALMS.read().unwrap_or_else(PoisonError::into_inner);
    realms.as_ref()?.get(&realm)?.loaded.get(url).cloned()
}

/// Returns all cached programs.
pub(crate) fn all(realm: Secret) -> Vec<Arc<Loaded>> {
    let realms = REALMS.read().unwrap_or_else(PoisonError::into_inner);
    let realm = realms.as_ref().and_then(|realms| realms.get(&realm));
    realm
        .map(|realm| realm.loaded.values().cloned().collect())
        .unwrap_or_default()
}

/// Returns the address of this engine for `meta:host`.
pub(crate) fn host(realm: Secret) -> Arc<str> {
    let realms = REALMS.read().unwrap_or_else(PoisonError::into_inner);
    let realm = realms.as_ref().and_then(|realms| realms.get(&realm));
    realm.map(|realm| realm.host.clone()).unwrap_or_default()
}

fn change<T>(realm: Secret, change: impl FnOnce(&mut Realm) -> T) -> T {
    let mut realms = REALMS.write().unwrap_or_else(PoisonError::into_inner);
    change(realms.get_or_insert_default().entry(realm).or_default())
}

/// Caches this version. The picos of this realm use it from now on.
pub(crate) fn keep(realm: Secret, loaded: Loaded) -> Arc<Loaded> {
    let loaded = Arc::new(loaded);
    change(realm, |realm| {
        if realm.loaded.len() >= PROGRAMS_MAX {
            realm.loaded.clear();
        }
        realm.loaded.insert(loaded.url.clone(), loaded.clone())
    });
    loaded
}

/// Drops the cached programs, because they may be old. They are loaded again.
pub(crate) fn forget(realm: Secret) {
    change(realm, |realm| realm.loaded.clear());
}

pub(crate) fn set_host(realm: Secret, host: &str) {
    change(realm, |realm| realm.host = host.into());
}

/// Returns the SHA-256 in hexadecimal digits.
#[must_use]
pub fn sha256(text: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    digest.as_ref().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The content of a URL at the time it was fetched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Version {
    /// The URL it comes from.
    pub url: Arc<str>,
    /// The id that the source begins with.
    pub rid: Arc<str>,
    /// The source as written.
    pub source: Arc<str>,
    /// SHA-256 of the source, in hexadecimal digits.
    pub hash: Arc<str>,
    /// The time when it was fetched, in milliseconds since 1970.
    pub flushed_ms: i64,
}

/// The history of a ruleset, as an entity by the SHA-256 of its URL. Each version is an event; the newest one is the state.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ruleset {
    version: Version,
}

/// A command of a ruleset.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RulesetCommand {
    /// Records the content of the URL.
    Record(Version),
}

/// An event of a ruleset.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub enum RulesetEvent {
    /// The content of the URL was recorded.
    Recorded(Version),
}

impl Event for RulesetEvent {}

/// The rejection of a ruleset, which has no variant.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("a ruleset refuses nothing")]
pub struct Never {}

impl Rejection for Never {
    fn code(&self) -> &'static str {
        "never"
    }
}

impl Entity for Ruleset {
    const KIND: &'static str = "ruleset";
    type Id = String;
    type Command = RulesetCommand;
    type Event = RulesetEvent;
    type Reply = Version;
    type Rejection = Never;

    fn decide(&self, command: RulesetCommand, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
        let RulesetCommand::Record(version) = command;
        let flushed_ms = turn.now().micros / 1_000;
        turn.emit(RulesetEvent::Recorded(Version { flushed_ms, ..version }));
        Ok(CommandAnswer::after(|ruleset: &Self| ruleset.version.clone()))
    }

    fn evolve(&mut self, RulesetEvent::Recorded(version): &RulesetEvent) {
        self.version = version.clone();
    }

    fn heap_bytes(&self) -> usize {
        self.version.source.len() + self.version.url.len() + 256
    }
}

/// A query for the version that picos run at their next event.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct GetVersion {}

impl Query<Ruleset> for GetVersion {
    const NAME: &'static str = "view";
    type Answer = Version;

    fn answer(self, ruleset: &Ruleset, _: &Moment<'_, Ruleset>) -> Result<Version, Never> {
        Ok(ruleset.version.clone())
    }
}
