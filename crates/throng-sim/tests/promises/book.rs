//! The record of the clients' requests and answers.

use crate::account::{Command, View};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

/// The outcome of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Done(View),
    /// The entity refused.
    Refused(View),
    /// The engine refused, and says that nothing was done.
    Nothing(&'static str),
    /// The outcome is unknown.
    Unknown,
}

/// The kind of an operation's request.
#[derive(Clone, Debug)]
pub(crate) enum Asked {
    Account(Command),
    Relay(crate::relay::Command),
}

#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) to: u64,
    pub(crate) asked: Asked,
    pub(crate) keyed: bool,
    pub(crate) told: Vec<Told>,
    /// The time of its last answer.
    pub(crate) ended: Duration,
}

impl Operation {
    pub(crate) fn done(&self) -> Option<&View> {
        self.told.iter().find_map(|told| match told {
            Told::Done(view) => Some(view),
            _ => None,
        })
    }

    /// Returns true if every attempt was answered with nothing done.
    pub(crate) fn is_nothing(&self) -> bool {
        let nothing = |told: &Told| matches!(told, Told::Nothing(_) | Told::Refused(_));
        self.told.iter().all(nothing)
    }
}

/// A state shown to a client.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) view: View,
    pub(crate) began: Duration,
    pub(crate) ended: Duration,
    pub(crate) what: &'static str,
}

#[derive(Default)]
pub(crate) struct Entries {
    pub(crate) operations: BTreeMap<u64, Operation>,
    pub(crate) shown: Vec<Shown>,
    pub(crate) last: u64,
}

/// The records, shared by all clients of a run.
#[derive(Clone, Default)]
pub(crate) struct Book {
    entries: Arc<Mutex<Entries>>,
}

impl Book {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap()
    }

    /// Returns a unique number for an operation.
    pub(crate) fn number(&self) -> u64 {
        let mut entries = self.lock();
        entries.last += 1;
        entries.last
    }

    pub(crate) fn asks(&self, op: u64, to: u64, asked: Asked, keyed: bool) {
        let operation = Operation {
            to,
            asked,
            keyed,
            told: Vec::new(),
            ended: Duration::ZERO,
        };
        self.lock().operations.insert(op, operation);
    }

    pub(crate) fn told(&self, op: u64, told: Told, (began, ended): (Duration, Duration)) {
        let mut entries = self.lock();
        let view = match &told {
            Told::Done(view) => Some((view.clone(), "a reply")),
            Told::Refused(view) => Some((view.clone(), "a rejection")),
            _ => None,
        };
        // The relay shows no state of its own.
        if let Some((view, what)) = view.filter(|(view, _)| view.count > 0) {
            entries.shown.push(Shown {
                view,
                began,
                ended,
                what,
            });
        }
        if let Some(operation) = entries.operations.get_mut(&op) {
            operation.told.push(told);
            operation.ended = ended;
        }
    }

    pub(crate) fn shows(&self, what: &'static str, view: View, (began, ended): (Duration, Duration)) {
        self.lock().shown.push(Shown {
            view,
            began,
            ended,
            what,
        });
    }
}
