//! Quarantines that timers keep, in memory.

use super::{QUARANTINE, Set};
use crate::{model::Timestamp, shard::Quarantined};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, cell::Cell, collections::BTreeMap};
use throng_journal::Address;

/// The command of the timer.
#[derive(Serialize, Deserialize)]
pub(crate) struct Written<'a> {
    pub(crate) by: Cow<'a, str>,
    pub(crate) reason: Cow<'a, str>,
    pub(crate) since_micros: i64,
}

/// An entity that an operator has quarantined.
#[derive(Debug)]
pub(crate) struct OperatorQuarantine {
    by: String,
    pub(crate) reason: String,
    since: Timestamp,
    /// The commit of its record in this epoch's stream; 0: it was recorded before this epoch.
    pub(crate) commit: u64,
    /// The number of commands that were refused. Written under the shard's lock, by `&self` methods that refuse.
    pub(crate) refused: Cell<u64>,
}

/// The quarantines of one shard, by the hash of their entities.
#[derive(Debug, Default)]
pub(crate) struct OperatorQuarantines {
    all: BTreeMap<(u64, Address), OperatorQuarantine>,
    /// True if a quarantine was set or ended since the last look.
    has_changed: bool,
}

fn key(address: &Address) -> (u64, Address) {
    (crate::limits::hash(&address.kind, &address.id), address.clone())
}

impl OperatorQuarantines {
    /// Notes that a timer of this name was set.
    pub(crate) fn timer_set(&mut self, address: &Address, name: &str, set: &Set, commit: u64) {
        if name != QUARANTINE {
            return;
        }
        let written: Option<Written<'_>> = serde_json::from_str(&set.body).ok();
        let (by, reason, since_micros) = written.map_or_else(Default::default, |written| {
            (
                written.by.into_owned(),
                written.reason.into_owned(),
                written.since_micros,
            )
        });
        let quarantine = OperatorQuarantine {
            by,
            reason,
            since: Timestamp { micros: since_micros },
            commit,
            refused: Cell::new(0),
        };
        self.all.insert(key(address), quarantine);
        self.has_changed = true;
    }

    /// Notes the commit that holds what the current command has set.
    pub(crate) fn staged(&mut self, address: &Address, name: &str, commit: u64) {
        if name == QUARANTINE
            && let Some(quarantine) = self.all.get_mut(&key(address))
        {
            quarantine.commit = commit;
        }
    }

    /// Notes that a timer of this name was removed.
    pub(crate) fn timer_gone(&mut self, address: &Address, name: &str) {
        if name == QUARANTINE {
            self.all.remove(&key(address));
            self.has_changed = true;
        }
    }

    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn contains(&self, address: &Address) -> bool {
        !self.all.is_empty() && self.all.contains_key(&key(address))
    }

    #[inline]
    pub(crate) fn find(&self, hash: u64, kind: &str, id: &str) -> Option<(&Address, &OperatorQuarantine)> {
        // Nearly always there are none, and this check is all that a command costs.
        if self.all.is_empty() {
            return None;
        }
        let alike = self.all.range((hash, Address::new("", ""))..);
        let alike = alike.take_while(|((of, _), _)| *of == hash);
        let mut named = alike.map(|((_, address), quarantine)| (address, quarantine));
        named.find(|(address, _)| &*address.kind == kind && &*address.id == id)
    }

    /// All of them, as an operator sees them.
    pub(crate) fn views(&self) -> impl Iterator<Item = Quarantined> {
        self.all
            .iter()
            .map(|((_, address), quarantine)| quarantine.view(address))
    }

    pub(crate) fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = Quarantined> + 'a {
        let of_kind = self.all.iter().filter(move |((_, address), _)| &*address.kind == kind);
        of_kind.map(|((_, address), quarantine)| quarantine.view(address))
    }
}

impl OperatorQuarantine {
    pub(crate) fn view(&self, address: &Address) -> Quarantined {
        Quarantined {
            address: address.clone(),
            seq: 0,
            reason: self.reason.clone(),
            since: self.since,
            refused: self.refused.get(),
            by: Some(self.by.clone()),
        }
    }
}
