//! Ids and channels of imported picos: either all unchanged or all new.

use crate::{
    channel::Channel,
    family::{self, Family},
    id::{Eci, PicoId, Secret},
    pico::{Body, Change},
};
use serde_json::Value as Json;
use std::collections::HashMap;

/// The exported relatives that determine the names of a pico.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kin {
    pub(super) key: Secret,
    pub(super) parent: Option<PicoId>,
    pub(super) number: u32,
}

/// The picos of an import, and their new names.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) picos: HashMap<PicoId, Kin>,
    pub(super) top: PicoId,
    /// The realm of the exporting engine. The picos get this engine's realm.
    pub(super) old_realm: Secret,
    pub(super) realm: Secret,
    /// The seed of new names; `None` keeps the old ones.
    pub(super) seed: Option<Secret>,
}

impl Names {
    pub(super) fn pico(&self, old: PicoId) -> PicoId {
        match (self.seed, self.picos.contains_key(&old)) {
            (Some(seed), true) => PicoId((family::first(seed, &old.0.to_be_bytes()) as u64).max(1)),
            _ => old,
        }
    }

    fn secret(&self, old: Secret) -> Secret {
        match self.seed {
            Some(seed) => Secret(family::first(seed, &old.0.to_be_bytes())),
            None => old,
        }
    }

    fn family(&self, pico: PicoId, kin: Kin) -> (Family, Family) {
        let new = Family::of(self.pico(pico), self.secret(kin.key));
        (Family::of(pico, kin.key), new)
    }

    /// True if this is the exporting engine's channel for the pico's console.
    fn is_console(&self, pico: PicoId, secret: Secret) -> bool {
        family::ui(self.old_realm, pico).secret == secret
    }

    /// Returns this engine's console channel. An identical pico keeps the exporting engine's beside it.
    pub(super) fn console(&self, pico: PicoId, change: &Change) -> Option<Change> {
        match change {
            Change::Channel(channel) if self.seed.is_none() && self.is_console(pico, channel.secret) => {
                Some(Change::Channel(Channel {
                    secret: family::ui(self.realm, pico).secret,
                    ..channel.clone()
                }))
            }
            _ => None,
        }
    }

    /// Returns the new name of an imported pico's channel. Other channels stay unchanged.
    pub(super) fn eci(&self, old: Eci) -> Eci {
        let Some(kin) = self.picos.get(&old.pico).copied() else {
            return old;
        };
        let pico = self.pico(old.pico);
        let parent = kin.parent.and_then(|parent| Some((parent, *self.picos.get(&parent)?)));
        if let Some((parent, of_parent)) = parent {
            let (was, is) = self.family(parent, of_parent);
            if was.down(old.pico, kin.number) == old {
                return is.down(pico, kin.number);
            }
        }
        let (was, is) = self.family(old.pico, kin);
        if let Some(child) = was.child(old.secret) {
            return is.up(self.pico(child));
        }
        let secret = match old.secret {
            secret if secret == was.well_known() => is.well_known(),
            secret if self.seed.is_some() && self.is_console(old.pico, secret) => family::ui(self.realm, pico).secret,
            other => self.secret(other),
        };
        Eci { pico, secret }
    }

    /// Renames each text in JSON that is exactly a channel of an imported pico.
    pub(super) fn texts(&self, json: &mut Json) {
        let renamed = |text: &str| {
            let eci = text.parse::<Eci>().ok()?;
            let renamed = self.eci(eci);
            (renamed != eci).then(|| renamed.to_string())
        };
        match json {
            Json::String(text) => {
                if let Some(new) = renamed(text) {
                    *text = new;
                }
            }
            Json::Array(items) => items.iter_mut().for_each(|item| self.texts(item)),
            Json::Object(map) => {
                map.values_mut().for_each(|value| self.texts(value));
                if map.keys().any(|key| renamed(key).is_some()) {
                    let entries = std::mem::take(map).into_iter();
                    *map = entries
                        .map(|(key, value)| (renamed(&key).unwrap_or(key), value))
                        .collect();
                }
            }
            _ => {}
        }
    }

    /// Returns the body of an imported pico. The top one has no parent before it is adopted.
    pub(super) fn body(&self, old: &Body) -> Body {
        let is_top = old.id == self.top;
        Body {
            id: self.pico(old.id),
            realm: self.realm,
            key: self.secret(old.key),
            parent: old.parent.filter(|_| !is_top).map(|parent| self.eci(parent)),
            moving: None,
            ..old.clone()
        }
    }

    /// Returns a change of an imported pico, whose texts are renamed already. `None` if the import makes that part anew.
    pub(super) fn change(&self, pico: PicoId, change: Change) -> Option<Change> {
        let secret = |secret: Secret| self.eci(Eci { pico, secret }).secret;
        Some(match change {
            Change::Channel(channel) if channel.family.is_some() && pico == self.top => return None,
            Change::Channel(channel) => Change::Channel(Channel {
                secret: secret(channel.secret),
                family: channel.family.map(|family| self.pico(family)),
                ..channel
            }),
            Change::Schedule(mut scheduled) => {
                scheduled.via = secret(scheduled.via);
                Change::Schedule(scheduled)
            }
            other => other,
        })
    }

    pub(super) fn via(&self, pico: PicoId, via: Secret) -> Secret {
        self.eci(Eci { pico, secret: via }).secret
    }
}
