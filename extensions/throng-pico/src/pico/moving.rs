//! A move to another parent.
//!
//! The moving pico decides. First it records that it is moving. Only then it checks that the new parent is neither below it nor below another moving
//! pico. So of two moves that would make a circle together, at least one is refused. Then it asks the new parent to adopt it, leaves the old one, and
//! tells all three by events.

use super::{
    Adoption, Change, Page, PageId, Pico, PicoCommand, PicoRejection, Ran,
    decide::{Decided, Kind, Task, delete_all, first_answers},
    query::Use,
};
use crate::{
    ask::Ask,
    draft::{Draft, PicoMessage, Stop},
    id::{Eci, PicoId, Secret},
    pico::Incoming,
};
use serde::{Deserialize, Serialize};
use throng::model::{Asker, CommandAnswer, Entity, OnOutcome, RequestError, Turn};
use throng_krl::Value;

/// A move to another parent in progress.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Moving {
    /// A channel of the new parent.
    pub to: Eci,
    /// The old parent, on whose behalf it moves; `None` if it has none.
    pub by: Option<PicoId>,
    /// True if the pico was deleted during the move. It ends once it knows its parent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_doomed: bool,
}

impl OnOutcome<Pico> for Pico {
    type Note = ();

    fn on_outcome(_: PicoId, (): (), outcome: Result<Ran, RequestError<PicoRejection>>) -> PicoCommand {
        let outcome = match outcome.map(|ran| ran.adopted) {
            Ok(Some(adoption)) => Ok(*adoption),
            Ok(None) => Err("the new parent said nothing".into()),
            Err(why) => Err(why.to_string().into()),
        };
        PicoCommand::Adopted { outcome }
    }
}

/// Returns the pico that sent the command. A page counts as its parent.
pub(super) fn sender(from: Asker<'_>) -> Option<PicoId> {
    match from {
        Asker::Entity { kind: Pico::KIND, id } => id.parse().ok(),
        Asker::Entity { kind: Page::KIND, id } => id.parse().ok().map(|page: PageId| page.parent),
        _ => None,
    }
}

/// Returns a transaction of the pico itself.
fn own(pico: &Pico, name: &str, attributes: Value) -> Task {
    let via = pico.body.channels.first().map_or(Secret::default(), |own| own.secret);
    Task {
        incoming: Incoming {
            via,
            domain: "throng".into(),
            name: name.into(),
            attributes,
            ..Incoming::default()
        },
        kind: Kind::Own,
        number: None,
        tries: 0,
    }
}

/// Runs `change` as a transaction of the pico itself.
fn transact(
    pico: &Pico,
    (name, attributes): (&str, Value),
    turn: &mut Turn<'_, Pico>,
    change: impl FnOnce(&mut Draft<'_>) -> Result<(), Stop>,
) -> Result<Ran, PicoRejection> {
    let task = own(pico, name, attributes);
    let answers = first_answers(turn);
    let mut draft = Draft::new(pico, task.incoming.via, &answers, false);
    match change(&mut draft) {
        Ok(()) => Ok(task.record(pico, draft, turn)),
        Err(Stop::Failed(error)) => Err(PicoRejection::Failed {
            error: error.to_string().into(),
        }),
        Err(Stop::Ask(_)) => Err(PicoRejection::Failed {
            error: "nothing is asked elsewhere here".into(),
        }),
    }
}

/// Sends an event to the pico's own rules, for a separate transaction.
fn tell_own_rules(draft: &mut Draft<'_>, name: &str, attributes: Value) -> Result<(), Stop> {
    let own = draft.via.to_string();
    draft.send(&own, "wrangler", name, attributes)
}

/// Begins a move to another parent.
pub(super) fn set_out(pico: &Pico, to: Eci, turn: &mut Turn<'_, Pico>) -> Decided {
    let by = sender(turn.from());
    let parent = pico.body.parent.map(|parent| parent.pico);
    let may = by == parent && (by.is_some() || turn.from().is_client() && pico.body.id != PicoId::ROOT);
    if !may {
        return Err(PicoRejection::NotTheParent {});
    }
    if pico.body.moving.is_some() {
        return Ok(CommandAnswer::Now(Ran::default()));
    }
    let attributes = Value::map([("to", Value::from(to.to_string()))]);
    let moving = Moving {
        to,
        by,
        is_doomed: false,
    };
    let ran = transact(pico, ("leaves", attributes), turn, |draft| {
        draft.record(Change::Leaves(Box::new(moving)))?;
        draft.dispatch(PicoMessage::Seek)
    })?;
    Ok(CommandAnswer::Now(ran))
}

/// Checks that the new parent is possible.
pub(super) fn seek(pico: &Pico, turn: &mut Turn<'_, Pico>) -> Decided {
    let answers = first_answers(turn);
    own(pico, "seek", Value::Null).run(pico, answers, turn)
}

/// Asks the new parent to adopt this pico, if it is possible; else the pico stays.
pub(super) fn sought(draft: &mut Draft<'_>) -> Result<(), Stop> {
    let Some(moving) = draft.body().moving.clone() else {
        return Ok(());
    };
    let (of, child) = (moving.to.pico, draft.id());
    match draft.ask(Ask::Ancestors { of, child })? {
        Ok(_) => draft.dispatch(PicoMessage::Adopt(moving.to, moving.by)),
        Err(why) => stays(draft, &why),
    }
}

/// Gives up the move, and tells the old parent.
fn stays(draft: &mut Draft<'_>, why: &str) -> Result<(), Stop> {
    draft.record(Change::Stays)?;
    let told = draft.body().parent.zip(draft.tagged(&["system", "child"]));
    told.map_or(Ok(()), |(parent, eci)| {
        let attributes = Value::map([("eci", Value::from(eci.to_string())), ("error", why.into())]);
        draft.send(&parent.to_string(), "wrangler", "child_not_moved", attributes)
    })
}

/// Takes the sender as a child.
pub(super) fn adopt(pico: &Pico, via: Secret, by: Option<PicoId>, turn: &mut Turn<'_, Pico>) -> Decided {
    let Some(child) = sender(turn.from()) else {
        return Err(PicoRejection::NotTheParent {});
    };
    pico.body.admit(via, by, |channel| Use::Adopt.check(channel))?;
    let mut adopted = None;
    let attributes = Value::map([("pico", Value::from(child.to_string()))]);
    let ran = transact(pico, ("adopts", attributes), turn, |draft| {
        let place = draft.next_place(child);
        let eci = draft.add_child(child, place)?;
        adopted = Some(Box::new(place));
        let attributes = Value::map([("eci", Value::from(eci.to_string()))]);
        tell_own_rules(draft, "child_adopted", attributes)
    })?;
    Ok(CommandAnswer::Now(Ran { adopted, ..ran }))
}

/// Handles the new parent's answer to the adoption.
pub(super) fn adopted(pico: &Pico, outcome: Result<Adoption, Box<str>>, turn: &mut Turn<'_, Pico>) -> Decided {
    let (Some(moving), true) = (&pico.body.moving, matches!(turn.from(), Asker::Outcome { .. })) else {
        return Ok(CommandAnswer::Now(Ran::default()));
    };
    let is_doomed = moving.is_doomed;
    let left = pico.body.parent.map(|old| (old.pico, pico.body.number));
    let ran = transact(pico, ("adopted", Value::Null), turn, |draft| match outcome {
        Err(_) if is_doomed => Ok(()),
        Err(why) => stays(draft, &why),
        Ok(adoption) => {
            let new = (adoption.parent.pico, adoption.number);
            draft.record(Change::Parent(adoption))?;
            for (parent, number) in left.into_iter().chain(is_doomed.then_some(new)) {
                draft.dispatch(PicoMessage::Left(parent, number))?;
            }
            let attributes = Value::map([("parent", Value::from(adoption.parent.to_string()))]);
            tell_own_rules(draft, "parent_changed", attributes)
        }
    })?;
    if is_doomed {
        delete_all(pico, turn);
    }
    Ok(CommandAnswer::Now(ran))
}

/// Removes a child that has another parent now.
pub(super) fn left(pico: &Pico, number: u32, turn: &mut Turn<'_, Pico>) -> Decided {
    let Some(child) = sender(turn.from()) else {
        return Err(PicoRejection::NotTheParent {});
    };
    let attributes = Value::map([("pico", Value::from(child.to_string()))]);
    let ran = transact(pico, ("left", attributes), turn, |draft| {
        draft.remove_child(number)?;
        let eci = draft.family().down(child, number).to_string();
        let attributes = Value::map([("eci", Value::from(eci))]);
        tell_own_rules(draft, "child_moved", attributes)
    })?;
    Ok(CommandAnswer::Now(ran))
}
