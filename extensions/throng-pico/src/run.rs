//! Runs an event with all events that it raises, or a query.

use crate::{
    draft::{Draft, Stop, Taker},
    native::{self, NativeArguments},
    pico::{Answers, Asked, Change, Pico, PicoRejection},
};
use std::{cell::RefCell, sync::Arc};
use throng_krl::{Event, Limits, Query, Turn, Value, Vm};

/// The limits of a transaction, about 20 ms of computing.
const LIMITS: Limits = Limits {
    steps: 500_000,
    memory_bytes: 64 << 20,
    value_bytes: 3 << 20,
    call_depth: 1_000,
    effects: 10_000,
};

thread_local! {
    /// The machine of this thread. It reuses its memory between transactions.
    static VM: RefCell<Vm> = RefCell::new(Vm::new(LIMITS));
}

/// Handles the queued events and all events that they raise.
pub(crate) fn events(draft: &mut Draft<'_>) -> Result<(), Stop> {
    with_machine(draft, |vm, draft| {
        while let Some((event, taker)) = draft.queue.pop_front() {
            draft.event = Some(event.clone());
            match taker {
                Taker::Native(place) => (native::ALL[place].handle)(draft, &event)?,
                Taker::Installed(rid) => installed(vm, draft, &event, &rid)?,
            }
        }
        Ok(())
    })
}

fn with_machine<T>(draft: &mut Draft<'_>, run: impl FnOnce(&mut Vm, &mut Draft<'_>) -> T) -> T {
    let turn = Turn {
        time_ms: draft.now_ms(),
        seed: draft.fresh.number() as u64,
    };
    VM.with(|vm| match vm.try_borrow_mut() {
        Ok(mut vm) => {
            vm.begin(turn);
            run(&mut vm, draft)
        }
        // A transaction within a transaction never happens, but is no reason to panic.
        Err(_) => {
            let mut vm = Vm::new(LIMITS);
            vm.begin(turn);
            run(&mut vm, draft)
        }
    })
}

fn installed(vm: &mut Vm, draft: &mut Draft<'_>, event: &Arc<Event>, rid: &Arc<str>) -> Result<(), Stop> {
    let Some(ruleset) = draft.installed(rid) else {
        // An earlier event uninstalled the ruleset.
        return Ok(());
    };
    let (url, states) = (ruleset.url.clone(), ruleset.states.clone());
    let loaded = draft.program(&url)?;
    if !loaded.program.handles(&event.domain, &event.name) {
        return Ok(());
    }
    let mut next = states.as_deref().cloned().unwrap_or_default();
    let ran = vm.event(&loaded.program, event, &mut next, draft);
    ran.map_err(|interrupt| draft.stop(interrupt))?;
    let next = (!next.is_empty()).then(|| Box::new(next));
    if next != states {
        draft.record(Change::Waits {
            rid: rid.clone(),
            states: next,
        })?;
    }
    Ok(())
}

/// Answers a query over a channel.
pub(crate) fn query(
    pico: &Pico,
    via: crate::id::Secret,
    asked: &Asked,
    answers: &Answers,
) -> Result<Value, PicoRejection> {
    let mut draft = Draft::new(pico, via, answers, true);
    let failed = |error: throng_krl::Error| PicoRejection::Failed {
        error: error.to_string().into(),
    };
    match answer(&mut draft, asked) {
        Ok(Some(value)) => Ok(value),
        Ok(None) => Err(PicoRejection::NoQuery {
            rid: (&*asked.rid).into(),
            name: (&*asked.name).into(),
        }),
        Err(None) => Err(PicoRejection::NotInstalled {
            rid: (&*asked.rid).into(),
        }),
        Err(Some(Stop::Failed(error))) => Err(failed(error)),
        Err(Some(Stop::Ask(ask))) => {
            let mut answers = answers.clone();
            answers.given.truncate(draft.used());
            Err(PicoRejection::Waits {
                ask,
                answers: Box::new(answers),
            })
        }
    }
}

/// Answers a query of a tried ruleset.
pub(crate) fn asked(draft: &mut Draft<'_>, asked: &Asked) -> Result<Value, Stop> {
    let absent = |what: String| Stop::Failed(throng_krl::Error::value_error(what));
    match answer(draft, asked) {
        Ok(Some(value)) => Ok(value),
        Ok(None) => Err(absent(format!("{} does not share {:?}", asked.rid, asked.name))),
        Err(None) => Err(absent(format!("the pico does not have {} installed", asked.rid))),
        Err(Some(stop)) => Err(stop),
    }
}

/// Answers a query. `Err(None)`: the ruleset is not installed. `Ok(None)`: it shares nothing of this name.
fn answer(draft: &mut Draft<'_>, asked: &Asked) -> Result<Option<Value>, Option<Stop>> {
    let Asked { rid, name, arguments } = asked;
    if let Some(native) = native::find(rid) {
        if &**name == "__testing" {
            return Ok(Some(native.testing()));
        }
        let get = |_: usize, name: &str| arguments.child(name).cloned().unwrap_or_default();
        return (native.answer)(draft, name, &NativeArguments(&get))
            .transpose()
            .map_err(Some);
    }
    let url = draft.installed(rid).map(|ruleset| ruleset.url.clone()).ok_or(None)?;
    let loaded = draft.program(&url).map_err(Some)?;
    if &**name != "__testing" && !loaded.program.shares().any(|shared| shared == name) {
        return Ok(None);
    }
    let query = Query {
        eci: draft.via.to_string().into(),
        name: name.clone(),
        arguments: arguments.clone(),
        qid: draft.eid.clone(),
    };
    let answered = with_machine(draft, |vm, draft| vm.query(&loaded.program, &query, draft));
    answered.map(Some).map_err(|interrupt| Some(draft.stop(interrupt)))
}
