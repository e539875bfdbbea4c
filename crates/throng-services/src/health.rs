//! Health checks. The checked parts report their state, and fail if they have not done so within a time to live.
//!
//! ```
//! use std::time::Duration;
//! use throng_services::health::{Health, Status};
//!
//! let health = Health::new();
//! let billing = health.register("billing", Some(Duration::from_secs(30)));
//! assert_eq!(health.status(), Status::Unknown, "it has not said anything yet");
//! billing.pass();
//! assert_eq!(health.status(), Status::Pass);
//! billing.fail("the bank does not answer");
//! assert_eq!(health.status(), Status::Fail);
//! ```
//!
//! A check fails once its time to live has passed without a report. That is evaluated when the status is read, so nothing has to poll.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// The state of a check; later ones are worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// Works as it should.
    Pass,
    /// Works, but somebody should look.
    Warn,
    /// The part has not reported yet.
    Unknown,
    /// Does not work.
    Fail,
}

impl Status {
    /// Returns `PASS`, `WARN`, `UNKNOWN` or `FAIL`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Warn => "WARN",
            Self::Unknown => "UNKNOWN",
            Self::Fail => "FAIL",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// Why it is so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reason {
    /// No reason.
    #[default]
    None,
    /// There was no report within the time to live.
    TtlElapsed,
    /// No answer came in time.
    TimedOut,
    /// An error, in its own words.
    Error(String),
    /// Another reason, as text.
    Other(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::TtlElapsed => out.write_str("it has not checked in within its time to live"),
            Self::TimedOut => out.write_str("what it asked has not answered in time"),
            Self::Error(why) | Self::Other(why) => out.write_str(why),
        }
    }
}

impl From<&str> for Reason {
    fn from(why: &str) -> Self {
        Self::Other(why.to_owned())
    }
}

/// The present state of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The unique name of the part.
    pub name: String,
    /// Its state.
    pub status: Status,
    /// Why it is so, for operators.
    pub reason: Reason,
}

/// Checks by their names; a clone is the same.
#[derive(Clone)]
pub struct Health {
    inner: Arc<Inner>,
}

struct Inner {
    checks: Mutex<BTreeMap<String, State>>,
    clock: Box<dyn Fn() -> Instant + Send + Sync>,
}

struct State {
    status: Status,
    reason: Reason,
    ttl: Option<Duration>,
    said: Instant,
    /// Identifies the registration: of several under one name, the newest counts.
    generation: Arc<()>,
}

impl State {
    fn now(&self, name: &str, now: Instant) -> Check {
        let is_late = self
            .ttl
            .is_some_and(|ttl| now.saturating_duration_since(self.said) > ttl);
        // A reported failure keeps its own reason, which says more.
        let (status, reason) = match is_late && self.status != Status::Fail {
            true => (Status::Fail, Reason::TtlElapsed),
            false => (self.status, self.reason.clone()),
        };
        Check {
            name: name.to_owned(),
            status,
            reason,
        }
    }
}

impl Default for Health {
    fn default() -> Self {
        Self::new()
    }
}

impl Health {
    /// Returns a set without checks.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Instant::now)
    }

    /// Returns health with another clock.
    #[must_use]
    pub fn with_clock(clock: impl Fn() -> Instant + Send + Sync + 'static) -> Self {
        Self {
            inner: Arc::new(Inner {
                checks: Mutex::default(),
                clock: Box::new(clock),
            }),
        }
    }

    /// Registers a check, which fails if it does not report within its time to live, if it has one. A check of the same name is replaced.
    #[must_use]
    pub fn register(&self, name: impl Into<String>, ttl: Option<Duration>) -> Registered {
        let (name, generation) = (name.into(), Arc::default());
        let state = State {
            status: Status::Unknown,
            reason: Reason::None,
            ttl,
            said: (self.inner.clock)(),
            generation: Arc::clone(&generation),
        };
        self.lock().insert(name.clone(), state);
        Registered {
            health: self.clone(),
            name,
            generation,
        }
    }

    /// Returns the present state of all checks, by name.
    #[must_use]
    pub fn checks(&self) -> Vec<Check> {
        let now = (self.inner.clock)();
        self.lock().iter().map(|(name, state)| state.now(name, now)).collect()
    }

    /// Returns the checks that pass or warn.
    #[must_use]
    pub fn healthy(&self) -> Vec<Check> {
        let mut checks = self.checks();
        checks.retain(|check| check.status <= Status::Warn);
        checks
    }

    /// Returns the checks that fail, or have not reported yet.
    #[must_use]
    pub fn not_healthy(&self) -> Vec<Check> {
        let mut checks = self.checks();
        checks.retain(|check| check.status > Status::Warn);
        checks
    }

    /// Returns the worst state of all; [`Status::Pass`] without checks.
    #[must_use]
    pub fn status(&self) -> Status {
        self.checks()
            .iter()
            .map(|check| check.status)
            .max()
            .unwrap_or(Status::Pass)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, State>> {
        self.inner.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Health").field("checks", &self.checks()).finish()
    }
}

/// A registered check, for the part that reports. Clones are the same check.
#[derive(Clone, Debug)]
pub struct Registered {
    health: Health,
    name: String,
    generation: Arc<()>,
}

impl Registered {
    /// Checks in: it works as it should.
    pub fn pass(&self) {
        self.check_in(Status::Pass, Reason::None);
    }

    /// Reports that it works, but somebody should look.
    pub fn warn(&self, reason: impl Into<Reason>) {
        self.check_in(Status::Warn, reason.into());
    }

    /// Reports that it does not work.
    pub fn fail(&self, reason: impl Into<Reason>) {
        self.check_in(Status::Fail, reason.into());
    }

    /// Reports that it does not work, because of this error.
    pub fn fail_with(&self, error: &dyn std::error::Error) {
        self.check_in(Status::Fail, Reason::Error(error.to_string()));
    }

    /// Reports the outcome of a look.
    pub fn check_in_with<E: std::error::Error>(&self, looked: Result<(), E>) {
        match looked {
            Ok(()) => self.pass(),
            Err(error) => self.fail_with(&error),
        }
    }

    /// Reports a state. It has no effect after another check was registered under the same name.
    pub fn check_in(&self, status: Status, reason: Reason) {
        let said = (self.health.inner.clock)();
        self.mine(|state| (state.status, state.reason, state.said) = (status, reason, said));
    }

    /// Takes the check away.
    pub fn unregister(self) {
        let mut checks = self.health.lock();
        if checks
            .get(&self.name)
            .is_some_and(|state| Arc::ptr_eq(&state.generation, &self.generation))
        {
            checks.remove(&self.name);
        }
    }

    fn mine(&self, change: impl FnOnce(&mut State)) {
        let mut checks = self.health.lock();
        if let Some(state) = checks.get_mut(&self.name)
            && Arc::ptr_eq(&state.generation, &self.generation)
        {
            change(state);
        }
    }
}
