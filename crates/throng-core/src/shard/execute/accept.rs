//! Recording and passing on the effects of an accepted command.

use super::{
    call::{Call, Cause, Forward, Output, Ran, Stage, put},
    outcome::Outcome,
    read::{crashed, too_many, unwritable},
    records::{close_cause, known_kind, write_command, write_key, write_message, write_outcome, write_timer},
};
use crate::{
    limits,
    model::{Entity, Error, Family, Published, Sent},
    shard::{
        Common, Delivery, Taking,
        dedup::key::{CommandKey, KeptAnswer, KeptOutcome},
        messages::{Asks, MessageContent},
        resident::{
            Entities,
            slot::{Body, EventShape, TailEvent, panic_text},
        },
        timers::Set,
    },
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use throng_journal::{Address, CommitNo, HEADER_BYTES, Place, Position, RecordKind};

/// A command that was accepted, before it is staged.
pub(crate) struct Accepted<E: Entity> {
    /// The entity's slot.
    pub(crate) at: u32,
    pub(crate) reply: Reply<E>,
    /// The idempotency key it takes effect under.
    pub(crate) key: Option<CommandKey>,
    /// The command's name and content, of a kind that keeps them.
    pub(crate) kept: Option<(&'static str, Vec<u8>)>,
}

pub(crate) enum Reply<E: Entity> {
    Value(E::Reply),
    Forward(Sent),
}

/// The encoded effects, before any of them counts.
struct Written<E: Entity> {
    deliveries: Vec<Delivery>,
    children: Vec<(String, String)>,
    /// The name of each timer, and its settings; `None` clears it.
    timers: Vec<(String, Option<Set>)>,
    key: Option<(u128, KeptOutcome)>,
    forward: Option<(Sent, Option<Taking>)>,
    /// The reply for a typed asker. A JSON asker has it already.
    reply: Option<E::Reply>,
    /// The number of its last event, if it ends.
    ended: u64,
}

/// The initial size of a reply's buffer, so that a small one is not moved while it is written.
const REPLY_BYTES: usize = 128;

impl<E: Entity> Entities<E> {
    /// Encodes all effects of an accepted command, stages them, and answers.
    ///
    /// # Errors
    /// The effects cannot be encoded. Nothing was staged.
    pub(crate) fn accept(
        &mut self,
        common: &mut Common,
        call: &mut Call<'_>,
        accepted: Accepted<E>,
        stage: &mut dyn Stage,
    ) -> Result<Ran, Error<E::Rejection>> {
        let Accepted { at, reply, key, kept } = accepted;
        let events = std::mem::take(&mut self.shapes);
        let mut written = Written {
            deliveries: Vec::new(),
            children: Vec::new(),
            timers: Vec::new(),
            key: None,
            forward: None,
            reply: None,
            ended: self.end_of(at, events.len()),
        };
        let guarded = || self.write(common, call, (reply, key.as_ref()), kept, &mut written);
        let done = catch_unwind(AssertUnwindSafe(guarded)).unwrap_or_else(|panic| {
            let reason = panic_text(panic.as_ref());
            tracing::error!(
                "{}/{} panicked while its answer was written: {reason}",
                E::KIND,
                call.id
            );
            Err(crashed(reason))
        });
        if let Err(error) = done {
            common.messages.give_back();
            common.discard();
            self.effects.clear();
            if !events.is_empty() {
                self.drop_state(common, at);
            }
            return Err(error);
        }
        common.messages.keep();
        for (name, set) in written.timers {
            let own = Address::new(E::KIND, call.id);
            match set {
                Some(set) => common.timers.set(&own, &name, set),
                None => common.timers.clear(&own, &name),
            }
        }
        if written.ended > 0 {
            common.timers.clear_all(&Address::new(E::KIND, call.id));
        }
        let opened = std::mem::take(&mut self.effects.opened);
        if opened != 0 {
            common.timers.calls.add(E::KIND, opened);
        }
        self.record_family(common, call, at, !events.is_empty(), &written.children);
        if !matches!(call.cause, Cause::Asked { .. }) {
            close_cause(common, call, &Address::new(E::KIND, call.id), "done", "");
        }
        let published = std::mem::take(&mut self.effects.published);
        self.hand_over(common, call, at, &events, written.deliveries, stage);
        if written.ended > 0 {
            self.slot(at).ended = written.ended;
            self.trace(common, at).family = true;
            self.store_state(common, at);
        }
        self.shapes = events;
        let rests_on = self.slot(at).rests_on;
        common.publish(published, rests_on);
        if let Some((key, kept)) = written.key {
            common.keys.insert(key, KeptOutcome { rests_on, ..kept });
        }
        Ok(match written.forward {
            None => {
                if let Some(reply) = written.reply {
                    put::<E>(&mut call.output, Ok(reply));
                }
                Ran::done(rests_on, Outcome::Done)
            }
            Some((to, taking)) => {
                let key = key.map(|key| key.derived(E::KIND, call.id));
                Ran::Forward(Box::new(Forward {
                    to,
                    taking,
                    key,
                    rests_on,
                }))
            }
        })
    }

    /// Returns the number of the last event of an entity that is to end; 0 if it is not, or has no events.
    fn end_of(&self, at: u32, events: usize) -> u64 {
        match &self.peek(at).body {
            Body::Resident(resident) if self.effects.ends => resident.seq + events as u64,
            _ => 0,
        }
    }

    fn write(
        &mut self,
        common: &mut Common,
        call: &mut Call<'_>,
        (reply, key): (Reply<E>, Option<&CommandKey>),
        kept: Option<(&'static str, Vec<u8>)>,
        written: &mut Written<E>,
    ) -> Result<(), Error<E::Rejection>> {
        let recorded = !self.effects.is_empty();
        // Allocated only where something is recorded under it.
        let own = || Address::new(E::KIND, call.id);
        if !self.effects.sent.is_empty() || !self.effects.timers.is_empty() {
            self.write_effects(common, call, written)?;
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
                    written.deliveries.push(write_outcome(common, &own(), asks, outcome)?);
                }
                if let Some(key) = key {
                    let json = serde_json::to_string(&reply).map_err(|why| unwritable("reply", why))?;
                    too_many(
                        "the answer kept under an idempotency key",
                        json.len(),
                        limits::KEPT_REPLY_BYTES_MAX,
                    )?;
                    let kept = KeptOutcome::accepted(key, KeptAnswer::Reply(json.into()), call.now);
                    write_key(common, &own(), key, &kept)?;
                    written.key = Some((key.number, kept));
                }
                if let Output::Json(out) = &mut call.output {
                    out.body = Vec::with_capacity(REPLY_BYTES);
                    serde_json::to_writer(&mut out.body, &reply).map_err(|why| unwritable("reply", why))?;
                } else {
                    written.reply = Some(reply);
                }
            }
            Reply::Forward(to) => {
                known_kind(common, &to)?;
                // The message is recorded with the forwarding entity's records, so that a crash in between loses neither.
                let durable = recorded || to.child || matches!(call.cause, Cause::Message(_) | Cause::Timer(_));
                if to.child {
                    written.children.push((to.kind.to_string(), to.id.clone()));
                }
                let mut taking = None;
                if durable {
                    let derived = key.map(|key| (key.derived(E::KIND, call.id), key.life));
                    taking = Some(write_message(common, &own(), &to, asked.cloned(), derived)?);
                }
                // Also for a command without other records: a repetition might be decided otherwise.
                if let Some(key) = key {
                    let mut body = Vec::new();
                    let command = to.encoded(&mut body).map_err(|why| unwritable("command", why))?;
                    let body = String::from_utf8_lossy(&body).into_owned();
                    let kept = if to.child {
                        KeptAnswer::Create
                    } else {
                        KeptAnswer::Forward
                    };
                    let answer = kept(Box::new((to.kind.to_string(), to.id.clone(), command.into(), body)));
                    let kept = KeptOutcome::accepted(key, answer, call.now);
                    write_key(common, &own(), key, &kept)?;
                    written.key = Some((key.number, kept));
                }
                written.forward = Some((to, taking));
            }
        }
        if written.ended > 0 {
            common
                .records
                .push(RecordKind::Ended, common.id, &own(), written.ended, "", 0, &[]);
        }
        if let Some((name, content)) = kept.filter(|_| !common.records.is_empty()) {
            write_command::<E>(common, call, name, content)?;
        }
        too_many(
            "what one command records",
            common.records.bytes(),
            limits::RECORD_BYTES_MAX,
        )
    }

    /// Writes down messages and timers.
    fn write_effects(
        &mut self,
        common: &mut Common,
        call: &Call<'_>,
        written: &mut Written<E>,
    ) -> Result<(), Error<E::Rejection>> {
        let own = || Address::new(E::KIND, call.id);
        for sent in self.effects.sent.drain(..) {
            if sent.child {
                written.children.push((sent.kind.to_string(), sent.id.clone()));
            }
            let asks = sent.note.as_ref().map(|note| Asks {
                by: (E::KIND.to_owned(), call.id.to_owned()),
                asked: (sent.kind.to_string(), sent.id.clone()),
                note: note.clone(),
            });
            if (asks.is_some() || sent.is_call) && !self.hears.iter().any(|(kind, _)| *kind == sent.kind) {
                return Err(crashed(format!(
                    "{} requests of {} but was not given `on_outcome` or `outside` for it",
                    E::KIND,
                    sent.kind
                )));
            }
            let taking = write_message(common, &own(), &sent, asks, None)?;
            written.deliveries.push(Delivery {
                to: sent.address(),
                content: MessageContent::typed(sent),
                taking,
                commit: 0,
            });
        }
        for timer in self.effects.timers.drain(..) {
            written.timers.push(write_timer::<E>(common, &own(), timer)?);
        }
        Ok(())
    }

    /// Parent and children, recorded on both sides.
    fn record_family(
        &mut self,
        common: &mut Common,
        call: &Call<'_>,
        at: u32,
        has_events: bool,
        children: &[(String, String)],
    ) {
        let parent = match call.cause {
            Cause::Message(taking) if taking.child => Some(&taking.sender),
            Cause::Asked { forwarded, .. } => forwarded.filter(|by| by.is_parent).map(|by| &by.address),
            _ => None,
        };
        if children.is_empty() && parent.is_none() {
            return;
        }
        let slot = self.slot(at);
        let Body::Resident(resident) = &mut slot.body else {
            return;
        };
        let is_created = has_events && (resident.seq == 0 || resident.seq == slot.ended);
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
        let is_first = resident.seq == 0 && slot.family.is_none();
        resident.stored_seq = u64::MAX;
        let body = serde_json::to_vec(&change).unwrap_or_default();
        common
            .records
            .push_parts(RecordKind::Family, common.id, (E::KIND, &slot.text), 0, ("", 0), &body);
        let family = slot.family.get_or_insert_default();
        family.add(change);
        self.trace(common, at).family = true;
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
        events: &[EventShape],
        deliveries: Vec<Delivery>,
        stage: &mut dyn Stage,
    ) {
        self.effects.clear();
        if common.records.is_empty() {
            return;
        }
        let staged = common.stage(stage);
        common.send(deliveries, staged.commit);
        let slot = self.slot(at);
        slot.rests_on = staged.commit;
        let Body::Resident(resident) = &mut slot.body else {
            return;
        };
        if events.is_empty() {
            return;
        }
        //= promise 5: numbers have no gaps
        let first = resident.seq + 1;
        resident.seq += events.len() as u64;
        resident.is_gone = false;
        let (is_new, full) = (
            first == 1,
            resident.seq.saturating_sub(resident.stored_seq) >= limits::events_per_state(slot.bytes, slot.hash),
        );
        let position = Position {
            writer: common.writer,
            commit: CommitNo(staged.commit),
        };
        let mut offset = HEADER_BYTES as u32 + staged.shift;
        let trace = self.trace(common, at);
        let before = trace.tail_bytes();
        if trace.tail.is_empty() {
            // Most entities have few events between two checkpoints, while a vector's own first growth is to four.
            trace.tail.reserve_exact(events.len());
        }
        for (seq, event) in (first..).zip(events) {
            let place = Place {
                position,
                offset,
                len: event.length,
            };
            trace.tail.push(TailEvent {
                seq,
                place,
                name: event.name,
                version: event.version,
                is_state: false,
            });
            offset += event.length;
        }
        let grown = trace.tail_bytes() - before;
        common.pending_bytes += grown;
        if is_new {
            self.know(common, call.hash);
        }
        if full {
            self.store_state(common, at);
        }
    }
}

impl Common {
    /// Queues values to be published once the commit they rest on is durable.
    fn publish(&mut self, values: Vec<Published>, rests_on: u64) {
        if values.is_empty() {
            return;
        }
        self.published.extend(values.into_iter().map(|value| (rests_on, value)));
    }

    /// Queues messages that were recorded in this commit.
    fn send(&mut self, deliveries: Vec<Delivery>, commit: u64) {
        if deliveries.is_empty() {
            return;
        }
        let recorded = deliveries.into_iter().map(|delivery| Delivery { commit, ..delivery });
        self.outbox.extend(recorded);
    }
}
