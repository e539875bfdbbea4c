//! Writing down what an accepted command wants done, and handing it over.

use super::{
    Asks, Call, Cause, Common, Delivery, Forward, Outcome, Output, Ran, Stage, Taking, dead,
    entities::Entities,
    execute::{Accepted, Reply, Shape},
    keys::{self, Kept, KeptAnswer},
    messages::{Envelope, HEARD, Heard, Parcel},
    outcome::put,
    read::{crashed, recorded, too_many, unwritable},
    registry::Registry,
    slot::{Body, TailEvent, panic_text},
    timers::{self, Set},
};
use crate::{
    limits,
    model::{Entity, Error, Family, Rejection, Sent, Timer},
    tagged,
};
use serde_json::value::RawValue;
use std::{
    borrow::Cow,
    panic::{AssertUnwindSafe, catch_unwind},
};
use throng_journal::{Address, CommitNo, HEADER_BYTES, Place, Position, RecordKind};

/// Everything written down, before any of it counts.
struct Written<E: Entity> {
    deliveries: Vec<Delivery>,
    children: Vec<(String, String)>,
    /// Name, and what it is set to; cleared without.
    timers: Vec<(String, Option<Set>)>,
    key: Option<(u128, Kept)>,
    forward: Option<(Sent, Option<Taking>)>,
    /// For a typed asker; a JSON one has it already.
    reply: Option<E::Reply>,
}

/// Room for a small reply, so that it is not moved while it is written.
const REPLY_BYTES: usize = 128;

/// An idempotency key: in one number, as it was given, and the fingerprint of the command.
type Key = (u128, String, u64);

impl<E: Entity> Entities<E> {
    /// Writes down everything an accepted command wants done, stages it, and answers.
    pub(super) fn accept(
        &mut self,
        common: &mut Common,
        registry: &Registry,
        call: &mut Call<'_>,
        (at, accepted, key): (u32, Accepted<E>, Option<Key>),
        stage: &mut dyn Stage,
    ) -> Ran {
        let Accepted { reply, events } = accepted;
        let guarded = || self.write(common, registry, call, (reply, key.as_ref()));
        let written = catch_unwind(AssertUnwindSafe(guarded)).unwrap_or_else(|panic| {
            let reason = panic_text(panic.as_ref());
            tracing::error!(
                "{}/{} panicked while its answer was written: {reason}",
                E::KIND,
                call.id
            );
            Err(crashed(reason))
        });
        let written = match written {
            Ok(written) => written,
            Err(error) => {
                common.messages.give_back();
                common.records.clear();
                self.effects.clear();
                if !events.is_empty() {
                    self.drop_state(common, at);
                }
                return self.refuse(common, registry, call, error, stage);
            }
        };
        common.messages.keep();
        for (name, set) in written.timers {
            let own = Address::new(E::KIND, call.id);
            match set {
                Some(set) => common.timers.set(&own, &name, set),
                None => common.timers.clear(&own, &name),
            }
        }
        self.record_family(common, call, (at, !events.is_empty()), &written.children);
        if !matches!(call.cause, Cause::Asked { .. }) {
            close_cause(common, call, &Address::new(E::KIND, call.id), "done", "");
        }
        let published = std::mem::take(&mut self.effects.published);
        self.hand_over(common, call, at, &events, written.deliveries, stage);
        self.shapes = events;
        let rests_on = self.slot(at).rests_on;
        common
            .published
            .extend(published.into_iter().map(|value| (rests_on, value)));
        if let Some((key, kept)) = written.key {
            common.keys.insert(key, Kept { rests_on, ..kept });
        }
        match written.forward {
            None => {
                if let Some(reply) = written.reply {
                    put::<E>(&mut call.output, Ok(reply));
                }
                Ran::Done {
                    rests_on,
                    outcome: Outcome::Done,
                }
            }
            Some((to, taking)) => {
                let key = key.map(|(_, name, _)| format!("{}/{}/{name}", E::KIND, call.id));
                Ran::Forward(Box::new(Forward {
                    to,
                    taking,
                    key,
                    rests_on,
                }))
            }
        }
    }

    fn write(
        &mut self,
        common: &mut Common,
        registry: &Registry,
        call: &mut Call<'_>,
        (reply, key): (Reply<E>, Option<&Key>),
    ) -> Result<Written<E>, Error<E::Rejection>> {
        let recorded = !self.effects.is_empty();
        // Allocated only where something is recorded under it.
        let own = || Address::new(E::KIND, call.id);
        let mut written = Written {
            deliveries: Vec::new(),
            children: Vec::new(),
            timers: Vec::new(),
            key: None,
            forward: None,
            reply: None,
        };
        for sent in self.effects.sent.drain(..) {
            if sent.child {
                written.children.push((sent.kind.to_owned(), sent.id.clone()));
            }
            let asks = sent.note.as_ref().map(|note| Asks {
                by: (E::KIND.to_owned(), call.id.to_owned()),
                asked: (sent.kind.to_owned(), sent.id.clone()),
                note: note.clone(),
            });
            if asks.is_some() && registry.kinds()[call.kind].hears::<E>(sent.kind).is_none() {
                return Err(crashed(format!(
                    "{} requests of {} but was not given `hears` for it",
                    E::KIND,
                    sent.kind
                )));
            }
            let taking = write_message(common, registry, &own(), &sent, asks, None)?;
            written.deliveries.push(Delivery {
                to: sent.address(),
                parcel: Parcel::typed(sent),
                taking,
                commit: 0,
            });
        }
        for timer in self.effects.timers.drain(..) {
            written.timers.push(write_timer::<E>(common, &own(), timer)?);
        }
        let asked = if let Cause::Message(taking) = call.cause {
            taking.asks.as_ref()
        } else {
            None
        };
        match reply {
            Reply::Value(reply) => {
                if let Some(asks) = asked {
                    let outcome =
                        serde_json::to_string(&Ok::<_, ()>(&reply)).map_err(|why| unwritable("reply", why))?;
                    written
                        .deliveries
                        .push(write_heard(common, registry, &own(), asks, outcome)?);
                }
                if let Some((key, name, print)) = key {
                    let json = serde_json::to_string(&reply).map_err(|why| unwritable("reply", why))?;
                    too_many(
                        "the answer kept under an idempotency key",
                        json.len(),
                        limits::KEPT_REPLY_BYTES_MAX,
                    )?;
                    let answer = KeptAnswer::Reply(json);
                    written.key = Some((*key, write_key(common, call, &own(), name, *print, answer)?));
                }
                if let Output::Json(out) = &mut call.output {
                    out.body.clear();
                    out.body.reserve(REPLY_BYTES);
                    serde_json::to_writer(&mut out.body, &reply).map_err(|why| unwritable("reply", why))?;
                } else {
                    written.reply = Some(reply);
                }
            }
            Reply::Forward(to) => {
                known_kind(registry, &to)?;
                // Recorded with what the forwarding entity records, so that a crash between the two loses neither.
                let durable = recorded || to.child || matches!(call.cause, Cause::Message(_) | Cause::Timer(_));
                if to.child {
                    written.children.push((to.kind.to_owned(), to.id.clone()));
                }
                let mut taking = None;
                if durable {
                    let derived = key.map(|(_, name, _)| format!("{}/{}/{name}", E::KIND, call.id));
                    taking = Some(write_message(common, registry, &own(), &to, asked.cloned(), derived)?);
                }
                // Also of one that records nothing else: asked again, it may decide otherwise.
                if let Some((key, name, print)) = key {
                    let mut body = Vec::new();
                    let command = to.encoded(&mut body).map_err(|why| unwritable("command", why))?;
                    let body = String::from_utf8_lossy(&body).into_owned();
                    let kept = if to.child {
                        KeptAnswer::Create
                    } else {
                        KeptAnswer::Forward
                    };
                    let answer = kept(to.kind.into(), to.id.clone(), command.into(), body);
                    written.key = Some((*key, write_key(common, call, &own(), name, *print, answer)?));
                }
                written.forward = Some((to, taking));
            }
        }
        too_many(
            "what one command records",
            common.records.bytes(),
            limits::RECORD_BYTES_MAX,
        )?;
        Ok(written)
    }

    /// Parent and children, recorded on both sides.
    fn record_family(
        &mut self,
        common: &mut Common,
        call: &Call<'_>,
        (at, has_events): (u32, bool),
        children: &[(String, String)],
    ) {
        let parent = match call.cause {
            Cause::Message(taking) if taking.child => Some(&taking.sender),
            Cause::Asked { parent, .. } => parent,
            _ => None,
        };
        if children.is_empty() && parent.is_none() {
            return;
        }
        let slot = self.slot(at);
        let Body::Here(here) = &mut slot.body else { return };
        let is_created = has_events && here.seq == 0;
        let parent = parent.filter(|_| is_created);
        let parent = parent.map(|parent| (parent.kind.to_string(), parent.id.to_string()));
        let known = |child: &&(String, String)| {
            slot.family
                .as_ref()
                .is_some_and(|family| family.children.contains(*child))
        };
        let change = Family {
            parent,
            children: children.iter().filter(|child| !known(child)).cloned().collect(),
        };
        if change == Family::default() {
            return;
        }
        let is_first = here.seq == 0 && slot.family.is_none();
        here.stored_seq = u64::MAX;
        let body = serde_json::to_vec(&change).unwrap_or_default();
        common
            .records
            .push_parts(RecordKind::Family, common.id, (E::KIND, &slot.text), 0, ("", 0), &body);
        let family = slot.family.get_or_insert_default();
        family.parent = family.parent.take().or(change.parent);
        family.children.extend(change.children);
        self.trace(at).family = true;
        if is_first {
            self.know(common, call.hash);
        }
    }

    /// Stages the records, and remembers where they went.
    fn hand_over(
        &mut self,
        common: &mut Common,
        call: &Call<'_>,
        at: u32,
        events: &[Shape],
        deliveries: Vec<Delivery>,
        stage: &mut dyn Stage,
    ) {
        self.effects.clear();
        if common.records.is_empty() {
            return;
        }
        let staged = common.stage(stage);
        common.outbox.extend(deliveries.into_iter().map(|delivery| Delivery {
            commit: staged.commit,
            ..delivery
        }));
        let slot = self.slot(at);
        slot.rests_on = staged.commit;
        let Body::Here(here) = &mut slot.body else { return };
        if events.is_empty() {
            return;
        }
        let first = here.seq + 1;
        here.seq += events.len() as u64;
        let (is_new, full) = (
            first == 1,
            here.seq.saturating_sub(here.stored_seq) >= limits::events_per_state(slot.bytes),
        );
        let position = Position {
            writer: common.writer,
            commit: CommitNo(staged.commit),
        };
        let mut offset = HEADER_BYTES as u32 + staged.shift;
        let trace = self.trace(at);
        if trace.tail.is_empty() {
            // Most entities have few events between two checkpoints; a vector's own first step is to four.
            trace.tail.reserve_exact(events.len());
        }
        for (seq, (name, version, len)) in (first..).zip(events) {
            let place = Place {
                position,
                offset,
                len: *len,
            };
            trace.tail.push(TailEvent {
                seq,
                place,
                name,
                version: *version,
            });
            offset += len;
        }
        if is_new {
            self.know(common, call.hash);
        }
        if full {
            self.store_state(common, at);
        }
    }
}

fn known_kind<R>(registry: &Registry, to: &Sent) -> Result<(), Error<R>> {
    if registry.find(to.kind).is_none() {
        return Err(crashed(format!(
            "it sends to the kind {:?}, which the engine was not given",
            to.kind
        )));
    }
    if !limits::is_id(&to.id) {
        return Err(crashed(format!(
            "it sends to {}/{:?}: an id has 1 to 256 bytes",
            to.kind, to.id
        )));
    }
    Ok(())
}

fn write_message<R: Rejection>(
    common: &mut Common,
    registry: &Registry,
    own: &Address,
    sent: &Sent,
    asks: Option<Asks>,
    key: Option<String>,
) -> Result<Taking, Error<R>> {
    known_kind(registry, sent)?;
    let mut command = Vec::new();
    let name = sent.encoded(&mut command).map_err(|why| unwritable("command", why))?;
    let command = String::from_utf8(command).map_err(|why| unwritable("command", why))?;
    let command = RawValue::from_string(command).map_err(|why| unwritable("command", why))?;
    let taking = Taking {
        from: common.id,
        number: common.messages.next(registry.shard_of(sent.kind, &sent.id)),
        sender: own.clone(),
        asks,
        key,
        child: sent.child,
        name: name.into(),
        command,
        again: false,
    };
    write_sent(common, own, (sent.kind, &sent.id), &taking)?;
    Ok(taking)
}

fn write_sent<R>(
    common: &mut Common,
    own: &Address,
    (kind, id): (&str, &str),
    taking: &Taking,
) -> Result<(), Error<R>> {
    let envelope = Envelope {
        to: (Cow::Borrowed(kind), Cow::Borrowed(id)),
        asks: taking.asks.clone(),
        key: taking.key.clone(),
        child: taking.child,
        command: &taking.command,
    };
    common.payload.clear();
    serde_json::to_writer(&mut common.payload, &envelope).map_err(|why| unwritable("message", why))?;
    too_many("the command's name", taking.name.len(), limits::NAME_BYTES_MAX)?;
    recorded(common.records.bytes(), common.payload.len())?;
    common.records.push(
        RecordKind::Sent,
        common.id,
        own,
        taking.number,
        &taking.name,
        0,
        &common.payload,
    );
    Ok(())
}

/// The outcome of a request, as a message back.
pub(super) fn write_heard<R>(
    common: &mut Common,
    registry: &Registry,
    own: &Address,
    asks: &Asks,
    outcome: String,
) -> Result<Delivery, Error<R>> {
    let outcome = RawValue::from_string(outcome).map_err(|why| unwritable("outcome", why))?;
    let heard = Heard {
        from: asks.asked.clone(),
        note: asks.note.clone(),
        outcome,
    };
    let command = serde_json::value::to_raw_value(&heard).map_err(|why| unwritable("outcome", why))?;
    let (kind, id) = (asks.by.0.as_str(), asks.by.1.as_str());
    let number = common.messages.next(registry.shard_of(kind, id));
    let taking = Taking {
        from: common.id,
        number,
        sender: own.clone(),
        asks: None,
        key: None,
        child: false,
        name: HEARD.into(),
        command,
        again: false,
    };
    write_sent(common, own, (kind, id), &taking)?;
    Ok(Delivery {
        to: Address::new(kind, id),
        parcel: Parcel::Heard(heard),
        taking,
        commit: 0,
    })
}

pub(super) fn write_taken(common: &mut Common, to: &Address, taking: &Taking, outcome: &str, reason: &str) {
    let reason = &reason[..reason.floor_char_boundary(limits::REASON_BYTES_MAX)];
    let body = match (outcome, reason) {
        ("dead", reason) => dead::bury(common, to, taking, reason),
        (_, reason) if taking.again => dead::retried(common, to, taking, reason),
        (_, "") => Vec::new(),
        (_, reason) => serde_json::to_vec(reason).unwrap_or_default(),
    };
    common.messages.taken(taking.from, taking.number);
    let shape = (outcome, taking.from.0);
    common.records.push_parts(
        RecordKind::Taken,
        common.id,
        (&to.kind, &to.id),
        taking.number,
        shape,
        &body,
    );
}

fn write_timer<E: Entity>(
    common: &mut Common,
    own: &Address,
    timer: Timer<E::Command>,
) -> Result<(String, Option<Set>), Error<E::Rejection>> {
    let (name, set) = match timer {
        Timer::Cancel(name) => (name, None),
        Timer::Set {
            name,
            at,
            every,
            command,
        } => {
            let mut body = Vec::new();
            let named = tagged::to_parts(&command, &mut body).map_err(|why| unwritable("command", why))?;
            let set = Set {
                at: at.micros,
                every_micros: every.map(|every| u64::try_from(every.as_micros()).unwrap_or(u64::MAX)),
                command: named.to_owned(),
                body: String::from_utf8(body).map_err(|why| unwritable("command", why))?,
            };
            (name, Some(set))
        }
    };
    too_many("the timer's name", name.len(), limits::NAME_BYTES_MAX)?;
    recorded(common.records.bytes(), set.as_ref().map_or(0, |set| set.body.len()))?;
    record_timer(common, own, &name, set.as_ref());
    Ok((name.into_owned(), set))
}

fn record_timer(common: &mut Common, own: &Address, name: &str, set: Option<&Set>) {
    let kind = if set.is_some() {
        RecordKind::TimerSet
    } else {
        RecordKind::TimerCleared
    };
    let body = set.and_then(|set| serde_json::to_vec(set).ok()).unwrap_or_default();
    common.records.push(kind, common.id, own, 0, name, 0, &body);
}

fn write_key<R>(
    common: &mut Common,
    call: &Call<'_>,
    own: &Address,
    name: &str,
    print: u64,
    answer: KeptAnswer,
) -> Result<Kept, Error<R>> {
    let kept = Kept {
        print,
        until: keys::until(call.now),
        answer,
        rests_on: 0,
    };
    let body = serde_json::to_vec(&kept).map_err(|why| unwritable("reply", why))?;
    // A derived key may be longer than a record's name: the body's fingerprint and the number find it again.
    let number = keys::id_of(call.hash, call.id, name);
    let mut with_number = number.to_le_bytes().to_vec();
    with_number.extend_from_slice(&body);
    let shown = name.get(..limits::NAME_BYTES_MAX).unwrap_or("");
    let shown = if name.len() <= limits::NAME_BYTES_MAX {
        name
    } else {
        shown
    };
    common
        .records
        .push(RecordKind::Key, common.id, own, 0, shown, 0, &with_number);
    Ok(kept)
}

/// What ends a message or a timer, recorded with what it did.
pub(super) fn close_cause(common: &mut Common, call: &Call<'_>, own: &Address, outcome: &str, reason: &str) {
    match call.cause {
        Cause::Asked { .. } => {}
        Cause::Message(taking) => write_taken(common, own, taking, outcome, reason),
        // Unless the command set or cancelled it anew.
        Cause::Timer(due) if common.timers.is_set(own, &due.name, due.at) => {
            let set = timers::next_after(due, call.now).map(|at| Set {
                at: at.micros,
                every_micros: due.every_micros,
                command: due.command.clone(),
                body: String::from_utf8_lossy(&due.body).into_owned(),
            });
            record_timer(common, own, &due.name, set.as_ref());
            match set {
                Some(set) => common.timers.set(own, &due.name, set),
                None => common.timers.clear(own, &due.name),
            }
        }
        Cause::Timer(_) => {}
    }
}
