//! A pico's entity variables, by ruleset and name.

use crate::intern::name;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use throng_krl::Value;

/// The entity variables of a pico, sorted by ruleset and name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Variables(Vec<Variable>);

/// An entity variable. Within its ruleset it is `ent:` and its name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Variable {
    /// The ruleset that owns it. No other one sees it.
    #[serde(with = "name")]
    pub rid: Arc<str>,
    /// The name that rules use, without `ent:`.
    #[serde(with = "name")]
    pub name: Arc<str>,
    /// The value. It is data, without functions.
    pub value: Value,
}

impl Variables {
    fn place(&self, rid: &str, name: &str) -> Result<usize, usize> {
        self.0
            .binary_search_by(|variable| (&*variable.rid, &*variable.name).cmp(&(rid, name)))
    }

    /// Returns the value of a variable.
    #[must_use]
    pub fn get(&self, rid: &str, name: &str) -> Option<&Value> {
        Some(&self.0.get(self.place(rid, name).ok()?)?.value)
    }

    /// Returns all variables, sorted by ruleset and name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Variable> {
        self.0.iter()
    }

    /// Returns the variables of a ruleset, sorted by name.
    pub fn of<'a>(&'a self, rid: &'a str) -> impl Iterator<Item = &'a Variable> {
        self.0.iter().filter(move |variable| &*variable.rid == rid)
    }

    /// Sets a variable, or the value at a path in it.
    pub(crate) fn put(&mut self, rid: &str, name: &str, path: &[Arc<str>], value: Value) {
        let place = self.place(rid, name).unwrap_or_else(|place| {
            let variable = Variable {
                rid: name::intern(rid),
                name: name::intern(name),
                value: Value::Null,
            };
            self.0.insert(place, variable);
            place
        });
        put(&mut self.0[place].value, path, value);
    }

    /// Removes a variable, or the value at a path in it.
    pub(crate) fn remove(&mut self, rid: &str, name: &str, path: &[Arc<str>]) {
        let Ok(place) = self.place(rid, name) else { return };
        match path {
            [] => drop(self.0.remove(place)),
            path => self.0[place].value.remove_at_path(path),
        }
    }

    /// Removes all variables of a ruleset.
    pub(crate) fn remove_all(&mut self, rid: &str) {
        self.0.retain(|variable| &*variable.rid != rid);
    }

    /// Returns the approximate bytes of the variables, without the table itself.
    pub(crate) fn heap_bytes(&self) -> usize {
        let values = self.0.iter().map(|variable| variable.value.bytes()).sum::<u64>();
        usize::try_from(values).unwrap_or(usize::MAX) + self.0.capacity() * size_of::<Variable>()
    }
}

/// Sets a value, or the value at a path in it.
pub(crate) fn put(variable: &mut Value, path: &[Arc<str>], value: Value) {
    match path {
        [] => *variable = value,
        path => variable.set_at_path(path, value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_found_by_ruleset_and_name() {
        let mut variables = Variables::default();
        variables.put("b", "x", &[], 1.0.into());
        variables.put("a", "x", &["k".into(), "l".into()], 2.0.into());
        assert_eq!(variables.get("b", "x"), Some(&1.0.into()));
        assert_eq!(
            variables.get("a", "x").unwrap().at_path(&["k".into(), "l".into()]),
            2.0.into()
        );
        variables.remove("a", "x", &["k".into(), "l".into()]);
        assert_eq!(
            variables.get("a", "x").unwrap().at_path(&["k".into()]),
            Value::map::<&str>([])
        );
        variables.remove_all("b");
        assert!(variables.get("b", "x").is_none());
    }
}
