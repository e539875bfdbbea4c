//! The commands of a pico.

use super::{
    Answers, Body, Handled, Imported, Incoming, Newborn, Page, PageCommand, PageId, Pico, PicoCommand, PicoEvent,
    PicoRejection, Portion, Ran, ScheduleId, Scheduled, Waiting, When, moving,
};
use crate::{
    ask::Ask,
    channel::{Channel, Refused},
    draft::{Draft, Outgoing, PicoMessage, Stop},
    family::Fresh,
    id::{Eci, PicoId, Secret},
    native, run,
};
use std::time::Duration;
use throng::model::{Asker, CommandAnswer, Entity, Timestamp, Topic, Turn};
use throng_krl::{Event, Value};

/// The most events of a pico that wait for answers.
const WAITING_MAX: usize = 1_000;
/// The most tries of a waiting event before it fails.
const TRIES_MAX: u32 = 10;
/// The time after which a waiting event is tried again, since the worker for it may have ended.
const RETRY_AFTER: Duration = Duration::from_secs(60);
/// The approximate limit of the bytes of a pico's variables. It is well below the engine's limit for an entity, even with escapes.
const KEPT_BYTES_MAX: usize = 8 << 20;

/// The topic of waiting events, for the worker that answers their requests.
pub(crate) const WAITING: Topic<WaitsFor> = Topic::new("pico-waits");

/// A waiting event and its pending request.
#[derive(Clone, Debug)]
pub(crate) struct WaitsFor {
    pub(crate) pico: PicoId,
    pub(crate) number: u64,
    pub(crate) ask: Ask,
    pub(crate) answers: Answers,
}

pub(super) type Decided = Result<CommandAnswer<Pico>, PicoRejection>;

pub(super) fn decide(pico: &Pico, command: PicoCommand, turn: &mut Turn<'_, Pico>) -> Decided {
    match command {
        PicoCommand::Found(newborn) | PicoCommand::Born(newborn) => born(newborn, turn),
        PicoCommand::Event(incoming) => event(pico, incoming, turn),
        PicoCommand::Due(id) => due(pico, &id, turn),
        PicoCommand::Resume { waiting, answers } => resume(pico, waiting, Some(answers), turn),
        PicoCommand::Retry(waiting) => resume(pico, waiting, None, turn),
        PicoCommand::Delete {} => delete(pico, turn),
        PicoCommand::Post(incoming) => post(pico, incoming, turn),
        PicoCommand::Move { to } => moving::set_out(pico, to, turn),
        PicoCommand::Seek {} => moving::seek(pico, turn),
        PicoCommand::Adopt { via, by } => moving::adopt(pico, via, by, turn),
        PicoCommand::Adopted { outcome } => moving::adopted(pico, outcome, turn),
        PicoCommand::Left { number } => moving::left(pico, number, turn),
        PicoCommand::Import(imported) => import(*imported, turn),
        PicoCommand::ImportMore(portion) => import_more(portion, turn),
    }
}

fn now_ms(turn: &Turn<'_, Pico>) -> i64 {
    turn.now().micros.div_euclid(1_000)
}

pub(super) fn first_answers(turn: &Turn<'_, Pico>) -> Answers {
    Answers {
        time_ms: now_ms(turn),
        seed: Secret(turn.unguessable()),
        given: Vec::new(),
    }
}

/// Creates the pico, and runs its first transaction.
fn born(newborn: Newborn, turn: &mut Turn<'_, Pico>) -> Decided {
    let id = *turn.id();
    if !turn.is_new() {
        return Err(PicoRejection::Exists { pico: id });
    }
    let mut fresh = Fresh::of(turn.unguessable());
    let (key, own) = (fresh.secret(), fresh.secret());
    let pico = Pico::born(id, &newborn, key, own);
    let asked = newborn.asked.clone();
    turn.emit(PicoEvent::Born { id, newborn, key, own });
    let via = pico.body.channels.get(1).map_or(own, |channel| channel.secret);
    let incoming = Incoming {
        via,
        domain: "throng".into(),
        name: "born".into(),
        attributes: asked,
        ..Incoming::default()
    };
    let answers = Answers {
        seed: fresh.secret(),
        ..first_answers(turn)
    };
    let task = Task {
        incoming,
        kind: Kind::Own,
        number: None,
        tries: 0,
    };
    task.run(&pico, answers, turn)
}

/// Handles an event that arrives on a channel.
fn event(pico: &Pico, mut incoming: Incoming, turn: &mut Turn<'_, Pico>) -> Decided {
    check(pico, &incoming, turn.from())?;
    if !matches!(incoming.attributes, Value::Map(_)) {
        let found = incoming.attributes.type_name();
        return Err(PicoRejection::Malformed {
            why: format!("attributes are a map, found {found}").into(),
        });
    }
    let answers = incoming.answers.take().unwrap_or_else(|| first_answers(turn));
    let task = Task {
        incoming,
        kind: Kind::Event,
        number: None,
        tries: 0,
    };
    task.run(pico, answers, turn)
}

/// Checks that the event may arrive on its channel.
fn check(pico: &Pico, incoming: &Incoming, from: Asker<'_>) -> Result<(), PicoRejection> {
    let sender = match from {
        Asker::Entity { kind: Pico::KIND, id } => id.parse().ok(),
        // The service asks on behalf of another pico.
        Asker::Client(_) => incoming.from,
        _ => None,
    };
    let (domain, name) = (&*incoming.domain, &*incoming.name);
    pico.body.admit(incoming.via, sender, |channel| {
        channel.shape.event_policy.check(domain, name)
    })
}

impl Body {
    /// Checks that this sender may use the channel with this secret. `check` asks the channel's policy.
    pub(crate) fn admit(
        &self,
        via: Secret,
        from: Option<PicoId>,
        check: impl Fn(&Channel) -> Result<(), Refused>,
    ) -> Result<(), PicoRejection> {
        if self.is_deleted {
            return Err(PicoRejection::Deleted {});
        }
        let Some(channel) = self.channels.iter().find(|channel| channel.secret == via) else {
            let family = crate::family::Family::of(self.id, self.key);
            return match (family.child(via), from) {
                (Some(child), Some(from)) if child == from => Ok(()),
                (Some(_), _) => Err(PicoRejection::Family {}),
                (None, _) => Err(PicoRejection::NoChannel {
                    eci: Eci::new(self.id, via).to_string().into(),
                }),
            };
        };
        if channel.family.is_some_and(|family| from != Some(family)) {
            return Err(PicoRejection::Family {});
        }
        check(channel).map_err(|refused| match refused {
            Refused::Denied => PicoRejection::Denied {},
            Refused::NotAllowed => PicoRejection::NotAllowed {},
        })
    }
}

/// Handles a scheduled event whose time has come.
fn due(pico: &Pico, id: &ScheduleId, turn: &mut Turn<'_, Pico>) -> Decided {
    let Some(scheduled) = pico.body.schedules.get(id) else {
        return Ok(CommandAnswer::Now(Ran::default()));
    };
    remind(scheduled, turn);
    let task = Task {
        incoming: Incoming {
            via: scheduled.via,
            domain: scheduled.domain.clone(),
            name: scheduled.name.clone(),
            attributes: scheduled.attributes.clone(),
            ..Incoming::default()
        },
        kind: match scheduled.when {
            When::At(_) => Kind::Due(Some(id.clone())),
            When::Repeat(_) => Kind::Due(None),
        },
        number: None,
        tries: 0,
    };
    let answers = first_answers(turn);
    task.run(pico, answers, turn)
}

/// Sets the timer of a scheduled event, if it is due (again) later.
fn remind(scheduled: &Scheduled, turn: &mut Turn<'_, Pico>) {
    let now_ms = now_ms(turn);
    let next_ms = match scheduled.when {
        // Its only time is now.
        When::At(_) if matches!(turn.from(), Asker::Timer(name) if name == scheduled.timer()) => None,
        _ => scheduled.next_ms(now_ms),
    };
    if let Some(next_ms) = next_ms {
        let at = Timestamp {
            micros: next_ms.saturating_mul(1_000),
        };
        turn.remind(scheduled.timer(), at, None, PicoCommand::Due(scheduled.id.clone()));
    }
}

/// Continues a waiting event.
fn resume(pico: &Pico, number: u64, answers: Option<Answers>, turn: &mut Turn<'_, Pico>) -> Decided {
    let Some(waiting) = pico.body.waiting.iter().find(|waiting| waiting.number == number) else {
        return Ok(CommandAnswer::Now(Ran::default()));
    };
    let task = Task {
        incoming: waiting.incoming.clone(),
        kind: match waiting.due.clone() {
            Some(due) => Kind::Due(Some(due)),
            None if waiting.is_own => Kind::Own,
            None => Kind::Event,
        },
        number: Some(number),
        tries: waiting.tries,
    };
    let answers = answers.unwrap_or_else(|| first_answers(turn));
    task.run(pico, answers, turn)
}

/// Ends the pico and all picos below it.
fn delete(pico: &Pico, turn: &mut Turn<'_, Pico>) -> Decided {
    let parent = pico.body.parent.map(|parent| parent.pico);
    let from = moving::sender(turn.from());
    let new_parent = pico.body.moving.as_ref().map(|moving| moving.to.pico);
    if from.is_none() || from != parent && from != new_parent {
        return Err(PicoRejection::NotTheParent {});
    }
    if new_parent.is_some() {
        // A moving pico may have two parents, or none. It ends once it knows its parent.
        let changes = vec![super::Change::Doomed];
        turn.emit(PicoEvent::Ran(Handled {
            domain: "throng".into(),
            name: "doomed".into(),
            changes,
            ..Handled::default()
        }));
        return Ok(CommandAnswer::Now(Ran::default()));
    }
    delete_all(pico, turn);
    Ok(CommandAnswer::Now(Ran::default()))
}

/// Ends the pico and all picos below it.
pub(super) fn delete_all(pico: &Pico, turn: &mut Turn<'_, Pico>) {
    for child in pico.body.children.young() {
        turn.send::<Pico>(child.pico, PicoCommand::Delete {});
    }
    if pico.body.children.sealed() > 0 {
        let page = PageId {
            parent: pico.body.id,
            page: 0,
        };
        let pages = pico.body.children.sealed();
        turn.send::<Page>(page, PageCommand::End { pages });
    }
    turn.emit(PicoEvent::Deleted {});
    turn.end();
}

/// Creates the pico from an export.
fn import(imported: Imported, turn: &mut Turn<'_, Pico>) -> Decided {
    let Imported {
        body,
        replaces,
        portion,
    } = imported;
    if !turn.from().is_client() {
        return Err(PicoRejection::NotTheParent {});
    }
    if !turn.is_new() && !replaces {
        return Err(PicoRejection::Exists { pico: body.id });
    }
    turn.emit(PicoEvent::Imported(Box::new(body)));
    import_more(portion, turn)
}

/// Imports another portion. Its timers start again here.
fn import_more(portion: Portion, turn: &mut Turn<'_, Pico>) -> Decided {
    if !turn.from().is_client() {
        return Err(PicoRejection::NotTheParent {});
    }
    let Portion { changes, waiting } = portion;
    for change in &changes {
        if let super::Change::Schedule(scheduled) = change {
            remind(scheduled, turn);
        }
    }
    turn.emit(PicoEvent::Ran(Handled {
        domain: "throng".into(),
        name: "imported".into(),
        changes,
        ..Handled::default()
    }));
    for waiting in waiting {
        let number = waiting.number;
        turn.remind(waiting_timer(number), turn.now(), None, PicoCommand::Retry(number));
        turn.emit(PicoEvent::Waiting(waiting));
    }
    Ok(CommandAnswer::Now(Ran::default()))
}

pub(super) enum Kind {
    /// The pico's own transaction: its first, a step of a move, or an event for another engine.
    Own,
    /// An event that arrived on a channel.
    Event,
    /// A scheduled event. The id is given if it happens only once.
    Due(Option<ScheduleId>),
}

/// A transaction to run.
pub(super) struct Task {
    pub(super) incoming: Incoming,
    pub(super) kind: Kind,
    /// The number under which it was waiting.
    pub(super) number: Option<u64>,
    /// The number of earlier tries.
    pub(super) tries: u32,
}

impl Task {
    pub(super) fn run(self, pico: &Pico, answers: Answers, turn: &mut Turn<'_, Pico>) -> Decided {
        let mut draft = Draft::new(pico, self.incoming.via, &answers, false);
        let ran = self.begin(&mut draft).and_then(|()| run::events(&mut draft));
        match ran {
            Ok(()) => self.done(pico, draft, turn),
            Err(Stop::Failed(error)) => Ok(self.failed(&draft, &error.to_string(), turn)),
            Err(Stop::Ask(ask)) => {
                let used = draft.used();
                drop(draft);
                let mut answers = answers;
                answers.given.truncate(used);
                self.wait(pico, *ask, answers, turn)
            }
        }
    }

    fn begin(&self, draft: &mut Draft<'_>) -> Result<(), Stop> {
        let Incoming {
            domain,
            name,
            attributes,
            ..
        } = &self.incoming;
        if matches!(self.kind, Kind::Own) {
            return match &**name {
                "born" => native::born(draft, attributes),
                "seek" => moving::sought(draft),
                _ => post_now(draft, attributes),
            };
        }
        let event = Event {
            eci: draft.via.to_string().into(),
            domain: domain.clone(),
            name: name.clone(),
            attributes: attributes.clone(),
            eid: draft.eid.clone(),
            time_ms: draft.now_ms(),
        };
        draft.raise(event, None)
    }

    fn done(self, pico: &Pico, draft: Draft<'_>, turn: &mut Turn<'_, Pico>) -> Decided {
        if pico.bytes_after(&draft.changes, KEPT_BYTES_MAX) > KEPT_BYTES_MAX {
            let most = format!("the variables of a pico take at most {KEPT_BYTES_MAX} bytes");
            return Ok(self.failed(&draft, &most, turn));
        }
        let then = self.incoming.then.clone();
        let via = self.incoming.via;
        let ran = self.record(pico, draft, turn);
        let now = first_answers(turn);
        Ok(CommandAnswer::after(move |pico: &Pico| {
            let answer = then.map(|asked| run::query(pico, via, &asked, &now));
            Ran { answer, ..ran }
        }))
    }

    /// Records the draft's changes and sends its messages.
    pub(super) fn record(self, pico: &Pico, mut draft: Draft<'_>, turn: &mut Turn<'_, Pico>) -> Ran {
        let (directives, eid) = (std::mem::take(&mut draft.directives), draft.eid.clone());
        send(pico.body.id, std::mem::take(&mut draft.outgoing), turn);
        set_timers(&draft, turn);
        let handled = self.handled(&mut draft);
        turn.emit(PicoEvent::Ran(handled));
        Ran {
            eid,
            directives,
            ..Ran::default()
        }
    }

    /// Returns the record of the event.
    fn handled(self, draft: &mut Draft<'_>) -> Handled {
        let due = match self.kind {
            Kind::Due(due) => due,
            _ => None,
        };
        Handled {
            eid: draft.eid.clone(),
            via: self.incoming.via,
            domain: self.incoming.domain,
            name: self.incoming.name,
            attributes: self.incoming.attributes,
            changes: std::mem::take(&mut draft.changes),
            log: std::mem::take(&mut draft.log),
            rules: std::mem::take(&mut draft.rules),
            waited: self.number,
            due,
        }
    }

    /// Records only that the event failed.
    fn failed(self, draft: &Draft<'_>, error: &str, turn: &mut Turn<'_, Pico>) -> CommandAnswer<Pico> {
        let via = draft.via.secret;
        let eid = draft.eid.clone();
        let due = match self.kind {
            Kind::Due(due) => due,
            _ => None,
        };
        turn.emit(PicoEvent::Failed {
            handled: Handled {
                eid: eid.clone(),
                via,
                domain: self.incoming.domain,
                name: self.incoming.name,
                attributes: self.incoming.attributes,
                waited: self.number,
                due,
                log: draft.log.clone(),
                rules: draft.rules.clone(),
                ..Handled::default()
            },
            error: error.into(),
        });
        CommandAnswer::Now(Ran {
            eid,
            error: Some(error.into()),
            ..Ran::default()
        })
    }

    /// Makes the event wait for an answer. A client repeats its event with the answer; for all other senders the pico stores the event.
    fn wait(self, pico: &Pico, ask: Ask, answers: Answers, turn: &mut Turn<'_, Pico>) -> Decided {
        if turn.from().is_client() && self.number.is_none() && matches!(self.kind, Kind::Event) {
            return Err(PicoRejection::Waits {
                ask: Box::new(ask),
                answers: Box::new(answers),
            });
        }
        let is_retry = !turn.from().is_client();
        let tries = self.tries + u32::from(is_retry);
        if tries > TRIES_MAX || self.number.is_none() && pico.body.waiting.len() >= WAITING_MAX {
            let draft = Draft::new(pico, self.incoming.via, &answers, false);
            return Ok(self.failed(&draft, "there was no answer from elsewhere", turn));
        }
        let number = self.number.unwrap_or(pico.body.waited + 1);
        let at = turn.now().after(RETRY_AFTER);
        turn.remind(waiting_timer(number), at, None, PicoCommand::Retry(number));
        turn.publish(
            &WAITING,
            WaitsFor {
                pico: *turn.id(),
                number,
                ask,
                answers,
            },
        );
        // Recorded once when it begins to wait and once per retry, but not per answer.
        if self.number.is_none() || is_retry {
            turn.emit(PicoEvent::Waiting(Waiting {
                number,
                tries,
                is_own: matches!(self.kind, Kind::Own),
                incoming: self.incoming,
                due: match self.kind {
                    Kind::Due(due) => due,
                    _ => None,
                },
            }));
        }
        Ok(CommandAnswer::Now(Ran::default()))
    }
}

fn waiting_timer(number: u64) -> String {
    format!("w {number}")
}

/// Passes the event's messages to the engine.
fn send(id: PicoId, outgoing: Outgoing, turn: &mut Turn<'_, Pico>) {
    for message in outgoing.messages {
        match message {
            PicoMessage::Born(pico, newborn) => turn.send::<Pico>(pico, PicoCommand::Born(*newborn)),
            PicoMessage::Event(pico, incoming) => turn.send::<Pico>(pico, PicoCommand::Event(*incoming)),
            PicoMessage::Abroad(incoming) => turn.send::<Pico>(id, PicoCommand::Post(*incoming)),
            PicoMessage::Delete(pico) => turn.send::<Pico>(pico, PicoCommand::Delete {}),
            PicoMessage::Move(pico, to) => turn.send::<Pico>(pico, PicoCommand::Move { to }),
            PicoMessage::Seek => turn.send::<Pico>(id, PicoCommand::Seek {}),
            PicoMessage::Adopt(to, by) => {
                let via = to.secret;
                turn.request::<Pico>(to.pico, PicoCommand::Adopt { via, by }, ());
            }
            PicoMessage::Left(parent, number) => turn.send::<Pico>(parent, PicoCommand::Left { number }),
            PicoMessage::Seal(page, children) => {
                turn.send::<Page>(PageId { parent: id, page }, PageCommand::Seal { children });
            }
            PicoMessage::RemoveFromPage(page, number) => {
                turn.send::<Page>(PageId { parent: id, page }, PageCommand::Remove { number });
            }
        }
    }
}

/// Sends an event to a pico of another engine, between two runs.
fn post(pico: &Pico, incoming: Incoming, turn: &mut Turn<'_, Pico>) -> Decided {
    let own = pico.body.id.to_string();
    if !matches!(turn.from(), Asker::Entity { kind: Pico::KIND, id } if id == own) {
        return Err(PicoRejection::NotTheParent {});
    }
    let task = Task {
        incoming,
        kind: Kind::Own,
        number: None,
        tries: 0,
    };
    let answers = first_answers(turn);
    task.run(pico, answers, turn)
}

fn post_now(draft: &mut Draft<'_>, request: &Value) -> Result<(), Stop> {
    let ask = Ask::Http {
        method: "POST".into(),
        arguments: request.clone(),
    };
    draft
        .ask(ask)?
        .map(drop)
        .map_err(|why| throng_krl::Error::value_error(why).into())
}

/// Sets and cancels the timers of scheduled events.
fn set_timers(draft: &Draft<'_>, turn: &mut Turn<'_, Pico>) {
    for change in &draft.changes {
        match change {
            super::Change::Schedule(scheduled) => remind(scheduled, turn),
            super::Change::NoSchedule(id) => turn.cancel(id.timer()),
            _ => {}
        }
    }
}
