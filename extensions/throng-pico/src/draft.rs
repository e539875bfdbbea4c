//! The draft of a running event: its effects so far. Nothing of it is there until the event has ended well.

mod host;
mod made;

pub(crate) use made::{Outgoing, Parcel, attributes_of};

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

/// Most events raised in one transaction.
const RAISED_MAX: usize = 10_000;
/// Most directives of one transaction.
const DIRECTIVES_MAX: usize = 10_000;
/// Most entries one transaction has logged, and most rules it has recorded as selected; the rest is left out.
const LOGGED_MAX: usize = 100;
/// Most channels of a pico: each event looks for its own among them.
const CHANNELS_MAX: usize = 10_000;
/// Most events scheduled in a pico.
const SCHEDULED_MAX: usize = 10_000;

/// Why a run did not come to its end.
pub(crate) enum Stop {
    /// A rule, or what a native ruleset was asked, failed.
    Failed(Error),
    /// A request has to be answered first.
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
    /// All but the variables, once one of it has changed.
    changed: Option<Box<Body>>,
    variables: HashMap<(Arc<str>, Arc<str>), Touched>,
    answers: &'a Answers,
    next_answer: usize,
    /// The request that has to be answered; the machine in between cannot carry it.
    ask: Option<Box<Ask>>,
    pub(crate) fresh: Fresh,
    /// The channel the event or query came over.
    pub(crate) via: Eci,
    /// The id that every event and entry of this transaction carries.
    pub(crate) eid: Arc<str>,
    /// A query: nothing may change.
    is_query: bool,
    pub(crate) event: Option<Arc<Event>>,
    pub(crate) queue: VecDeque<(Arc<Event>, Taker)>,
    raised: usize,
    pub(crate) changes: Vec<Change>,
    pub(crate) outgoing: Outgoing,
    pub(crate) directives: Vec<Value>,
    pub(crate) log: Vec<Logged>,
    pub(crate) rules: Vec<SelectedRule>,
    /// More rules were selected than are recorded.
    rules_left_out: bool,
    /// A ruleset that is only tried.
    pub(crate) trial: Option<Arc<Loaded>>,
}

/// The receiver of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Taker {
    /// A ruleset that every pico has, by its place among them.
    Native(usize),
    /// A ruleset that is installed in the pico.
    Installed(Arc<str>),
}

/// A variable that was written in this transaction.
enum Touched {
    /// Since it was last read.
    Stale,
    /// The present value.
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
            // The value that was read is changed in place, unless somebody holds it.
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

    /// The channel with exactly these tags.
    pub(crate) fn tagged(&self, tags: &[&str]) -> Option<Eci> {
        let found = self
            .body()
            .channels
            .iter()
            .find(|channel| channel.shape.is_tagged(tags))?;
        Some(self.own(found.secret))
    }

    /// The ECI of a channel of this pico.
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

    /// Returns a channel of the pico that may be changed.
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

    /// The program of a ruleset, compiled; asked for where it is not at hand.
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
            // It went out of the cache between two runs.
            None => Err(Stop::Ask(Box::new(Ask::Load { url: url.clone() }))),
        }
    }

    // --- events ---

    /// Adds another event to this transaction, for one ruleset or for all.
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

    /// Adds another event to this transaction, for all rulesets.
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

    /// The answer to a question, or that it has to be asked. The same run asks the same questions in the same order; where it does not, since
    /// the pico has changed meanwhile, they are asked anew.
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

    /// The answers that this run used: those after them were given to another one.
    pub(crate) fn used(&self) -> usize {
        self.next_answer
    }
}

/// A bound was reached.
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
    /// Returns the interrupt for the machine, which knows only that there is something to wait for.
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

    /// Returns the stop that interrupted the machine.
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
