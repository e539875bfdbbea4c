//! The draft of a running event: its effects so far. Nothing takes effect before the event has succeeded.

mod host;
mod made;

pub(crate) use made::{Outgoing, PicoMessage, attributes_of};

use crate::{
    ask::{ASKS_MAX, Answered, Ask},
    channel::{Channel, Shape},
    family::{Family, Fresh},
    id::{Eci, PicoId, Secret},
    intern::name,
    pico::{Answers, Body, Change, Installed, Logged, Pico, SelectedRule, put},
    rulesets::Loaded,
};
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};
use throng_krl::{Error, Event, Interrupt, Value};

/// The most events raised in one transaction.
const RAISED_MAX: usize = 10_000;
/// The most directives of one transaction.
const DIRECTIVES_MAX: usize = 10_000;
/// The most log entries of one transaction, and the most selected rules in its record. The rest is dropped.
const LOGGED_MAX: usize = 100;
/// The most channels of a pico. Each event searches them for its own.
const CHANNELS_MAX: usize = 10_000;
/// The most scheduled events of a pico.
const SCHEDULED_MAX: usize = 10_000;

/// The reason why a run ended early.
pub(crate) enum Stop {
    /// A rule or a native ruleset failed.
    Failed(Error),
    /// A request must be answered first.
    Ask(Box<Ask>),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// A transaction on a pico.
pub(crate) struct Draft<'a> {
    pico: &'a Pico,
    /// A changed copy of all but the variables; `None` before the first change.
    changed: Option<Box<Body>>,
    variables: HashMap<(Arc<str>, Arc<str>), Touched>,
    answers: &'a Answers,
    next_answer: usize,
    /// The pending request. It is kept here because the machine's interrupt cannot carry it.
    ask: Option<Box<Ask>>,
    pub(crate) fresh: Fresh,
    /// The channel on which the event or query arrived.
    pub(crate) via: Eci,
    /// The id of the transaction. Each of its events and log entries carries it.
    pub(crate) eid: Arc<str>,
    /// True for a query, which may change nothing.
    is_query: bool,
    pub(crate) event: Option<Arc<Event>>,
    pub(crate) queue: VecDeque<(Arc<Event>, Taker)>,
    raised: usize,
    pub(crate) changes: Vec<Change>,
    pub(crate) outgoing: Outgoing,
    pub(crate) directives: Vec<Value>,
    pub(crate) log: Vec<Logged>,
    pub(crate) rules: Vec<SelectedRule>,
    /// True if more rules were selected than are recorded.
    rules_left_out: bool,
    /// The ruleset of a trial run.
    pub(crate) trial: Option<Arc<Loaded>>,
}

/// The receiver of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Taker {
    /// A ruleset that every pico has, by its index.
    Native(usize),
    Installed(Arc<str>),
}

/// A variable that was written in this transaction.
enum Touched {
    /// Written since the last read.
    Stale,
    /// The current value.
    Known(Value),
}

impl<'a> Draft<'a> {
    pub(crate) fn new(pico: &'a Pico, via: Secret, answers: &'a Answers, is_query: bool) -> Self {
        let mut fresh = Fresh::of(answers.seed.0);
        let eid: Arc<str> = Secret(fresh.number()).to_string().into();
        Self {
            pico,
            changed: None,
            variables: HashMap::new(),
            answers,
            next_answer: 0,
            ask: None,
            fresh,
            via: Eci::new(pico.body.id, via),
            eid,
            is_query,
            event: None,
            queue: VecDeque::new(),
            raised: 0,
            changes: Vec::new(),
            outgoing: Outgoing::default(),
            directives: Vec::new(),
            log: Vec::new(),
            rules: Vec::new(),
            rules_left_out: false,
            trial: None,
        }
    }

    pub(crate) fn body(&self) -> &Body {
        self.changed.as_deref().unwrap_or(&self.pico.body)
    }

    pub(crate) fn id(&self) -> PicoId {
        self.pico.body.id
    }

    pub(crate) fn now_ms(&self) -> i64 {
        self.answers.time_ms
    }

    pub(crate) fn family(&self) -> Family {
        Family::of(self.id(), self.pico.body.key)
    }

    /// Records another change.
    pub(crate) fn record(&mut self, change: Change) -> Result<(), Stop> {
        if self.is_query {
            return Err(Error::value_error("a query changes nothing: this can only be done in a rule").into());
        }
        let pico = self.pico;
        match &change {
            Change::Put { .. } | Change::Remove { .. } => {}
            structural => self
                .changed
                .get_or_insert_with(|| Box::new(pico.body.clone()))
                .apply(structural),
        }
        self.changes.push(change);
        Ok(())
    }

    // --- variables ---

    pub(crate) fn put(&mut self, rid: &str, variable: &str, path: &[Arc<str>], value: Value) -> Result<(), Stop> {
        let (rid, variable) = (name::intern(rid), name::intern(variable));
        let touched = self.variables.entry((rid.clone(), variable.clone()));
        match path {
            [] => drop(touched.insert_entry(Touched::Known(value.clone()))),
            // Changed in place, unless the value is shared.
            path => {
                if let Touched::Known(known) = touched.or_insert(Touched::Stale) {
                    put(known, path, value.clone());
                }
            }
        }
        self.record(Change::Put {
            rid,
            name: variable,
            path: path.to_vec(),
            value,
        })
    }

    pub(crate) fn remove(&mut self, rid: &str, variable: &str, path: &[Arc<str>]) -> Result<(), Stop> {
        if self.value(rid, variable).is_null() {
            return Ok(());
        }
        let (rid, variable) = (name::intern(rid), name::intern(variable));
        let touched = self.variables.entry((rid.clone(), variable.clone()));
        match path {
            [] => drop(touched.insert_entry(Touched::Known(Value::Null))),
            path => {
                if let Touched::Known(known) = touched.or_insert(Touched::Stale) {
                    known.remove_at_path(path);
                }
            }
        }
        self.record(Change::Remove {
            rid,
            name: variable,
            path: path.to_vec(),
        })
    }

    /// Returns the value of a variable, with all changes of this transaction.
    pub(crate) fn value(&mut self, rid: &str, variable: &str) -> Value {
        if self.variables.is_empty() {
            return self.pico.variables.get(rid, variable).cloned().unwrap_or_default();
        }
        let key = (name::intern(rid), name::intern(variable));
        match self.variables.get(&key) {
            None => self.pico.variables.get(rid, variable).cloned().unwrap_or_default(),
            Some(Touched::Known(value)) => value.clone(),
            Some(Touched::Stale) => {
                let value = self.replayed(rid, variable);
                self.variables.insert(key, Touched::Known(value.clone()));
                value
            }
        }
    }

    fn replayed(&self, of: &str, variable: &str) -> Value {
        let mut value = self.pico.variables.get(of, variable).cloned().unwrap_or_default();
        for change in &self.changes {
            match change {
                Change::Put {
                    rid,
                    name,
                    path,
                    value: to,
                } if (&**rid, &**name) == (of, variable) => {
                    put(&mut value, path, to.clone());
                }
                Change::Remove { rid, name, path } if (&**rid, &**name) == (of, variable) => match &**path {
                    [] => value = Value::Null,
                    path => value.remove_at_path(path),
                },
                Change::NoRuleset(rid) if &**rid == of => value = Value::Null,
                _ => {}
            }
        }
        value
    }

    // --- channels ---

    pub(crate) fn channel(&self, secret: Secret) -> Option<&Channel> {
        self.body().channels.iter().find(|channel| channel.secret == secret)
    }

    /// Returns the channel with exactly these tags.
    pub(crate) fn tagged(&self, tags: &[&str]) -> Option<Eci> {
        let found = self
            .body()
            .channels
            .iter()
            .find(|channel| channel.shape.is_tagged(tags))?;
        Some(self.own(found.secret))
    }

    /// Returns the ECI of a channel of this pico.
    pub(crate) fn own(&self, secret: Secret) -> Eci {
        Eci::new(self.id(), secret)
    }

    pub(crate) fn new_channel(&mut self, shape: Shape) -> Result<Channel, Stop> {
        if self.body().channels.len() >= CHANNELS_MAX {
            let why = format!("a pico has at most {CHANNELS_MAX} channels: delete those that nobody uses any more");
            return Err(limit(why));
        }
        let channel = Channel::new(self.fresh.secret(), None, shape);
        self.record(Change::Channel(channel.clone()))?;
        Ok(channel)
    }

    /// Returns a channel of the pico. Fails if the channel may not be changed.
    pub(crate) fn editable(&self, eci: &str) -> Result<&Channel, Stop> {
        let found = eci.parse::<Eci>().ok().filter(|eci| eci.pico == self.id());
        match found.and_then(|eci| self.channel(eci.secret)) {
            None => Err(Error::value_error(format!("ECI not found {eci}")).into()),
            Some(channel) if channel.family.is_some() => {
                Err(Error::value_error("Cannot change or delete family channels.").into())
            }
            Some(channel) if channel.is_system() => {
                Err(Error::value_error("Cannot change or delete the pico's own channel.").into())
            }
            Some(channel) => Ok(channel),
        }
    }

    // --- rulesets ---

    pub(crate) fn installed(&self, rid: &str) -> Option<&Installed> {
        self.body().rulesets.iter().find(|ruleset| &*ruleset.rid == rid)
    }

    /// Returns the compiled program of a ruleset. Asks for it if it is not cached.
    pub(crate) fn program(&mut self, url: &Arc<str>) -> Result<Arc<Loaded>, Stop> {
        if let Some(trial) = self.trial.as_ref().filter(|trial| trial.url == *url) {
            return Ok(trial.clone());
        }
        if let Some(loaded) = crate::rulesets::cached(self.pico.body.realm, url) {
            return Ok(loaded);
        }
        if let Err(why) = self.ask(Ask::Load { url: url.clone() })? {
            return Err(Error::value_error(why).into());
        }
        match crate::rulesets::cached(self.pico.body.realm, url) {
            Some(loaded) => Ok(loaded),
            // The cache lost it between two runs.
            None => Err(Stop::Ask(Box::new(Ask::Load { url: url.clone() }))),
        }
    }

    // --- events ---

    /// Adds an event to this transaction, for one ruleset or for all.
    pub(crate) fn raise(&mut self, event: Event, for_rid: Option<&str>) -> Result<(), Stop> {
        self.raised += 1;
        if self.raised > RAISED_MAX {
            return Err(limit(format!("an event raises more than {RAISED_MAX} others")));
        }
        let event = Arc::new(event);
        let is_meant = |rid: &str| for_rid.is_none_or(|only| only == rid);
        for (place, native) in crate::native::ALL.iter().enumerate() {
            if is_meant(native.rid) && native.takes(&event.domain) {
                self.queue.push_back((event.clone(), Taker::Native(place)));
            }
        }
        let rulesets = self.changed.as_deref().unwrap_or(&self.pico.body).rulesets.iter();
        let takers = rulesets.filter(|ruleset| is_meant(&ruleset.rid));
        let takers = takers.map(|ruleset| (event.clone(), Taker::Installed(ruleset.rid.clone())));
        self.queue.extend(takers);
        Ok(())
    }

    /// Adds an event to this transaction, for all rulesets.
    pub(crate) fn raise_as(&mut self, domain: &str, name: &str, attributes: Value) -> Result<(), Stop> {
        let event = Event {
            eci: self.via.to_string().into(),
            domain: domain.into(),
            name: name.into(),
            attributes,
            eid: self.eid.clone(),
            time_ms: self.now_ms(),
        };
        self.raise(event, None)
    }

    pub(crate) fn direct(&mut self, directive: Value) -> Result<(), Stop> {
        if self.directives.len() >= DIRECTIVES_MAX {
            return Err(limit(format!("an event has more than {DIRECTIVES_MAX} directives")));
        }
        self.directives.push(directive);
        Ok(())
    }

    pub(crate) fn note(&mut self, entry: Logged) {
        if self.log.len() < LOGGED_MAX {
            self.log.push(entry);
        }
    }

    // --- elsewhere ---

    /// Returns the answer to a request, or a stop that asks for it. A repeated run makes the same requests in the same order. If the pico has changed
    /// meanwhile, they may differ, and are asked anew.
    pub(crate) fn ask(&mut self, ask: Ask) -> Result<Answered, Stop> {
        match self.answers.given.get(self.next_answer) {
            Some((asked, answered)) if *asked == ask => {
                self.next_answer += 1;
                Ok(answered.clone())
            }
            _ if self.next_answer >= ASKS_MAX => {
                Err(limit(format!("an event asks more than {ASKS_MAX} times elsewhere")))
            }
            _ => Err(Stop::Ask(Box::new(ask))),
        }
    }

    /// Returns the number of answers that this run used. Later answers belong to an earlier run and are dropped.
    pub(crate) fn used(&self) -> usize {
        self.next_answer
    }
}

/// Returns the error for a bound that was reached.
pub(crate) fn limit(message: String) -> Stop {
    Stop::Failed(Error {
        kind: throng_krl::ErrorKind::Limit,
        message,
        rid: None,
        rule: None,
        location: None,
    })
}

impl Draft<'_> {
    /// Returns the interrupt for the machine. It says only that there is something to wait for; the request is kept here.
    fn interrupt(&mut self, stop: Stop) -> Interrupt {
        match stop {
            Stop::Failed(error) => Interrupt::Error(error),
            Stop::Ask(ask) => {
                let request = throng_krl::Request {
                    domain: "throng".into(),
                    name: "ask".into(),
                    arguments: throng_krl::Arguments::default(),
                };
                self.ask = Some(ask);
                Interrupt::Wait(request)
            }
        }
    }

    /// Returns the stop behind an interrupt of the machine.
    pub(crate) fn stop(&mut self, interrupt: Interrupt) -> Stop {
        match (interrupt, self.ask.take()) {
            (Interrupt::Error(error), _) => Stop::Failed(error),
            (Interrupt::Wait(_), Some(ask)) => Stop::Ask(ask),
            (Interrupt::Wait(request), None) => {
                let message = format!("{}:{} cannot be asked here", request.domain, request.name);
                Stop::Failed(Error::value_error(message))
            }
        }
    }
}
