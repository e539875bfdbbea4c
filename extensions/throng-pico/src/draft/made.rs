//! The parts of a draft that make and end picos and channels, and send events.

use super::{Draft, SCHEDULED_MAX, Stop, limit};
use crate::{
    channel::Shape,
    family,
    id::{Eci, PicoId, Secret},
    pico::{Adoption, CHILDREN_MAX, Change, Child, Incoming, Installed, Installing, Logged, Newborn, Scheduled},
};
use std::{collections::BTreeSet, sync::Arc};
use throng_krl::{Error, Value};

/// The most picos that one event makes, and the most events that it sends. Each takes a message of the engine.
const OUTGOING_MAX: usize = 900;
/// The most rulesets of a pico. Each event visits all of them.
const RULESETS_MAX: usize = 1_000;

/// The messages to other picos, in order.
#[derive(Default)]
pub(crate) struct Outgoing {
    pub(crate) messages: Vec<PicoMessage>,
}

pub(crate) enum PicoMessage {
    Born(PicoId, Box<Newborn>),
    Event(PicoId, Box<Incoming>),
    /// An event for a pico of another engine.
    Abroad(Box<Incoming>),
    Delete(PicoId),
    /// Tells a child to move to this channel's pico.
    Move(PicoId, Eci),
    /// Tells the pico itself to check the way to the new parent.
    Seek,
    /// Tells the new parent, over this channel and on behalf of the old parent, to adopt this pico.
    Adopt(Eci, Option<PicoId>),
    /// Tells the old parent that the child with this number has left.
    Left(PicoId, u32),
    Seal(u32, Vec<Child>),
    RemoveFromPage(u32, u32),
}

impl Draft<'_> {
    pub(crate) fn dispatch(&mut self, message: PicoMessage) -> Result<(), Stop> {
        if self.outgoing.messages.len() >= OUTGOING_MAX {
            return Err(limit(format!("an event sends more than {OUTGOING_MAX} messages")));
        }
        self.outgoing.messages.push(message);
        Ok(())
    }

    /// Makes a child. Returns the channel to it, and its channel for the console.
    pub(crate) fn new_pico(&mut self, rulesets: Vec<Installing>, asked: Value) -> Result<(Eci, Eci), Stop> {
        within_rulesets_max(rulesets.len())?;
        let pico = self.fresh.pico();
        let place = self.next_place(pico);
        let realm = self.body().realm;
        let newborn = Newborn {
            realm,
            parent: Some(place.parent),
            number: place.number,
            down: place.down,
            rulesets,
            asked,
        };
        // The child must exist before others hear of it.
        self.dispatch(PicoMessage::Born(pico, Box::new(newborn)))?;
        let down = self.add_child(pico, place)?;
        Ok((down, family::ui(realm, pico)))
    }

    /// Returns the place that the pico gets if it becomes a child now.
    pub(crate) fn next_place(&self, pico: PicoId) -> Adoption {
        let (family, number) = (self.family(), self.body().children.next_number());
        Adoption {
            parent: family.up(pico),
            number,
            down: family.down(pico, number).secret,
        }
    }

    /// Adds a pico as a child at this place, and returns the channel to it.
    pub(crate) fn add_child(&mut self, pico: PicoId, place: Adoption) -> Result<Eci, Stop> {
        if !self.body().children.has_room() {
            let why = format!("a pico has at most {CHILDREN_MAX} children: delete some, or make it below another pico");
            return Err(limit(why));
        }
        let number = place.number;
        self.record(Change::Child(Child { number, pico }))?;
        if let Some((page, children)) = self.body().children.full() {
            self.record(Change::Sealed)?;
            self.dispatch(PicoMessage::Seal(page, children))?;
        }
        Ok(Eci::new(pico, place.down))
    }

    /// Returns a child and its number, by its family ECI.
    fn child(&self, eci: &str) -> Result<(PicoId, u32), Stop> {
        let child = eci.parse::<Eci>().ok();
        let numbered = child.and_then(|eci| Some((eci.pico, self.family().number(eci)?)));
        let Some((pico, number)) = numbered else {
            return Err(Error::value_error(format!("\"{eci}\" is not a child ECI")).into());
        };
        let children = &self.body().children;
        if children.page_of(number).is_none() && !children.young().iter().any(|child| child.number == number) {
            return Err(Error::value_error(format!("the child {eci} is deleted already")).into());
        }
        Ok((pico, number))
    }

    /// Asks a child to move to another parent. The child moves if that parent accepts it.
    pub(crate) fn move_child(&mut self, eci: &str, to: &str) -> Result<(), Stop> {
        let (pico, _) = self.child(eci)?;
        let Ok(to) = to.parse::<Eci>() else {
            return Err(Error::value_error(format!("ECI not found {to}")).into());
        };
        self.dispatch(PicoMessage::Move(pico, to))
    }

    /// Removes a child from the children. The child itself goes on.
    pub(crate) fn remove_child(&mut self, number: u32) -> Result<(), Stop> {
        let page = self.body().children.page_of(number);
        self.record(Change::NoChild(number))?;
        match page {
            Some(page) => self.dispatch(PicoMessage::RemoveFromPage(page, number)),
            None => Ok(()),
        }
    }

    /// Ends a child and all picos below it.
    pub(crate) fn del_pico(&mut self, eci: &str) -> Result<(), Stop> {
        let (pico, number) = self.child(eci)?;
        self.remove_child(number)?;
        self.dispatch(PicoMessage::Delete(pico))
    }

    /// Sends an event to another pico or to this one. It is handled in a separate transaction.
    pub(crate) fn send(&mut self, eci: &str, domain: &str, name: &str, attributes: Value) -> Result<(), Stop> {
        let Ok(to) = eci.parse::<Eci>() else {
            return Err(Error::value_error(format!("ECI not found {eci}")).into());
        };
        if self.is_query {
            return Err(Error::value_error("a query sends nothing: this can only be done in a rule").into());
        }
        let incoming = Incoming {
            via: to.secret,
            domain: domain.into(),
            name: name.into(),
            attributes: attributes_of(attributes)?,
            ..Incoming::default()
        };
        self.dispatch(PicoMessage::Event(to.pico, Box::new(incoming)))
    }

    /// True if a text is no ECI of this engine. Logs an error then; a sender that does not wait gets no other notice.
    pub(crate) fn is_unreachable(&mut self, rid: &str, eci: &str) -> bool {
        let is_unreachable = eci.parse::<Eci>().is_err();
        if is_unreachable {
            self.note(Logged {
                level: "error".into(),
                rid: rid.into(),
                rule: None,
                message: format!("Error: ECI not found {eci}").into(),
                value: Value::Null,
            });
        }
        is_unreachable
    }

    /// Sends an event to a pico of another engine.
    pub(crate) fn send_abroad(&mut self, url: String, attributes: Value) -> Result<(), Stop> {
        let request = Value::map([("url", Value::from(url)), ("json", attributes_of(attributes)?)]);
        let incoming = Incoming {
            via: self.via.secret,
            domain: "throng".into(),
            name: "post".into(),
            attributes: request,
            ..Incoming::default()
        };
        self.dispatch(PicoMessage::Abroad(Box::new(incoming)))
    }

    /// Installs a ruleset, or configures it anew. Returns its id.
    pub(crate) fn install(&mut self, url: &str, config: Value) -> Result<Arc<str>, Stop> {
        let has = self.body().rulesets.iter().map(|ruleset| ruleset.rid.clone()).collect();
        let installing = self.installing(url, config, &has)?;
        let rid = installing.rid.clone();
        let others = self.body().rulesets.iter().filter(|ruleset| ruleset.rid != rid);
        within_rulesets_max(others.count() + 1)?;
        let states = self.installed(&rid).and_then(|known| known.states.clone());
        self.record(Change::Ruleset(Installed::of(installing, states)))?;
        Ok(rid)
    }

    /// Loads a ruleset from its URL, ready to be installed beside these.
    pub(crate) fn installing(
        &mut self,
        url: &str,
        config: Value,
        has: &BTreeSet<Arc<str>>,
    ) -> Result<Installing, Stop> {
        let url: Arc<str> = crate::intern::name::intern(url.trim());
        let loaded = self.program(&url)?;
        if crate::native::find(loaded.rid()).is_some() {
            return Err(Error::value_error(format!("every pico has the ruleset {}", loaded.rid())).into());
        }
        let is_there = |rid: &str| has.contains(rid) || crate::native::find(rid).is_some();
        if let Some(missing) = loaded.program.dependencies().find(|used| !is_there(&used.rid)) {
            return Err(Error::value_error(format!("Dependant module not loaded: {}", missing.rid)).into());
        }
        Ok(Installing {
            rid: crate::intern::name::intern(loaded.rid()),
            url,
            config,
        })
    }

    /// Uninstalls a ruleset and removes its variables.
    pub(crate) fn uninstall(&mut self, rid: &str) -> Result<(), Stop> {
        if self.installed(rid).is_none() {
            return match crate::native::find(rid) {
                Some(_) => Err(Error::value_error(format!("every pico has the ruleset {rid}")).into()),
                None => Ok(()),
            };
        }
        let others: Vec<Arc<str>> = self.body().rulesets.iter().map(|other| other.url.clone()).collect();
        let mut users = Vec::new();
        for url in others {
            let loaded = self.program(&url)?;
            if loaded.rid() != rid && loaded.uses(rid) {
                users.push(loaded.rid().to_owned());
            }
        }
        if !users.is_empty() {
            let users = users.join(" and ");
            return Err(Error::value_error(format!("Cannot uninstall {rid} because {users} depends on it")).into());
        }
        let key = crate::intern::name::intern(rid);
        self.variables.retain(|(of, _), _| *of != key);
        let scheduled: Vec<_> = self
            .body()
            .schedules
            .iter()
            .filter(|scheduled| *scheduled.rid == *rid)
            .map(|scheduled| scheduled.id.clone())
            .collect();
        for id in scheduled {
            self.record(Change::NoSchedule(id))?;
        }
        // Earlier writes of this transaction are gone, too.
        for name in self.pico.variables.of(rid).map(|variable| variable.name.clone()) {
            self.variables
                .insert((key.clone(), name), super::Touched::Known(Value::Null));
        }
        self.record(Change::NoRuleset(key))
    }

    /// Schedules another event.
    pub(crate) fn add_schedule(&mut self, scheduled: Scheduled) -> Result<(), Stop> {
        if self.body().schedules.len() >= SCHEDULED_MAX {
            let why = format!("a pico has at most {SCHEDULED_MAX} scheduled events: remove some with schedule:remove");
            return Err(limit(why));
        }
        self.record(Change::Schedule(scheduled))
    }

    /// Replaces the tags and policies of a channel.
    pub(crate) fn put_channel(&mut self, eci: &str, shape: Shape) -> Result<(), Stop> {
        let channel = self.editable(eci)?;
        let channel = crate::channel::Channel::new(channel.secret, channel.family, shape);
        self.record(Change::Channel(channel))
    }

    pub(crate) fn del_channel(&mut self, eci: &str) -> Result<(), Stop> {
        let secret: Secret = self.editable(eci)?.secret;
        self.record(Change::NoChannel(secret))
    }
}

fn within_rulesets_max(rulesets: usize) -> Result<(), Stop> {
    match rulesets {
        0..=RULESETS_MAX => Ok(()),
        _ => Err(limit(format!("a pico has at most {RULESETS_MAX} rulesets"))),
    }
}

/// Returns attributes, which must be a map. Null gives an empty one.
pub(crate) fn attributes_of(value: Value) -> Result<Value, Stop> {
    match value {
        Value::Null => Ok(Value::map::<&str>([])),
        map @ Value::Map(_) => Ok(map.into_data()),
        other => Err(Error::type_error(format!("attributes are a map, found {}", other.type_name())).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        draft::CHANNELS_MAX,
        pico::{Answers, Children, PAGE_CHILDREN, Pico, ScheduleId, When},
    };

    fn pico() -> Pico {
        let newborn = Newborn {
            realm: Secret(1),
            parent: None,
            number: 0,
            down: Secret::default(),
            rulesets: Vec::new(),
            asked: Value::Null,
        };
        Pico::born(PicoId(7), &newborn, Secret(2), Secret(3))
    }

    /// Runs `add` twice in a pico with room for one more. Returns the error of the second run.
    fn refused<T>(pico: &Pico, mut add: impl FnMut(&mut Draft<'_>, u128) -> Result<T, Stop>) -> String {
        let answers = Answers {
            time_ms: 0,
            seed: Secret(4),
            given: Vec::new(),
        };
        let mut draft = Draft::new(pico, Secret(3), &answers, false);
        assert!(add(&mut draft, 1).is_ok(), "there is room for one");
        match add(&mut draft, 2) {
            Err(Stop::Failed(error)) => error.to_string(),
            _ => panic!("there is no room for another one"),
        }
    }

    #[test]
    fn pico_has_ten_thousand_channels_at_most() {
        let mut pico = pico();
        let last = pico.body.channels.last().unwrap().clone();
        pico.body.channels.resize(CHANNELS_MAX - 1, last);
        let why = refused(&pico, |draft, _| draft.new_channel(Shape::open(&["a"])));
        assert!(why.contains("at most 10000 channels: delete"), "{why}");
    }

    #[test]
    fn pico_has_ten_thousand_scheduled_events_at_most() {
        let scheduled = |number: u128| Scheduled {
            id: ScheduleId(Secret(number).to_string().into()),
            rid: "a".into(),
            via: Secret(3),
            domain: "a".into(),
            name: "b".into(),
            attributes: Value::Null,
            when: When::At(0),
        };
        let mut pico = pico();
        let all = vec![serde_json::to_value(scheduled(0)).unwrap(); SCHEDULED_MAX - 1];
        pico.body.schedules = serde_json::from_value(all.into()).unwrap();
        let why = refused(&pico, |draft, number| draft.add_schedule(scheduled(number)));
        assert!(why.contains("at most 10000 scheduled events: remove"), "{why}");
    }

    #[test]
    fn pico_has_four_million_children_at_most() {
        let mut pico = pico();
        let count = CHILDREN_MAX - 1;
        pico.body.children = Children::of(count, count, count / PAGE_CHILDREN, Vec::new());
        let why = refused(&pico, |draft, _| draft.new_pico(Vec::new(), Value::Null));
        assert!(why.contains("at most 4000000 children: delete"), "{why}");
    }
}
