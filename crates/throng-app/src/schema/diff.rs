//! Compares two contracts of a service.

use super::accept::{Comparison, Difference, Mismatch, Type};
use serde::Serialize;
use serde_json::{Map, Value};
use std::fmt;

/// The severity of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// The new program cannot read what is recorded, or a client of the old contract fails.
    Breaking,
    /// The older program, or a reader of the old contract, may meet something unknown.
    Caution,
    /// An addition that harms nobody.
    Addition,
}

/// A change between two contracts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Change {
    pub(super) level: Level,
    /// The place in the contract, such as `account/events/deposited/cents`.
    pub(super) path: String,
    pub(super) what: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Breaking => "breaking",
            Level::Caution => "caution",
            Level::Addition => "addition",
        };
        write!(f, "{level}: {} {}", self.path, self.what)
    }
}

/// Two contracts of one service.
pub(super) struct Contracts<'a> {
    old: &'a Value,
    new: &'a Value,
    changes: Vec<Change>,
}

/// The direction in which values go.
#[derive(Clone, Copy, PartialEq)]
enum Reads {
    /// The new program reads what the old one, or its clients, wrote.
    New,
    /// Clients of the old contract, and the old program, read what the new one writes.
    Old,
}

fn members<'a>(of: &'a Value, name: &str) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
    of.get(name).and_then(Value::as_object).into_iter().flatten()
}

fn member<'a>(of: &'a Value, list: &str, name: &str) -> Option<&'a Value> {
    of.get(list)?.get(name)
}

/// Returns the changes from one contract to the next, the worst first.
pub(super) fn changes(old: &Value, new: &Value) -> Vec<Change> {
    let mut contracts = Contracts {
        old,
        new,
        changes: Vec::new(),
    };
    contracts.compare_kinds("kinds");
    contracts.compare_kinds("actors");
    let mut changes = contracts.changes;
    changes.sort_by(|one, other| (one.level, &one.path).cmp(&(other.level, &other.path)));
    changes
}

impl<'a> Contracts<'a> {
    fn add(&mut self, level: Level, path: String, what: impl Into<String>) {
        let what = what.into();
        self.changes.push(Change { level, path, what });
    }

    fn compare_kinds(&mut self, list: &str) {
        for (kind, old) in members(self.old, list) {
            let Some(new) = member(self.new, list, kind) else {
                self.add(
                    Level::Breaking,
                    kind.clone(),
                    "is gone: its history and its clients remain",
                );
                continue;
            };
            self.compare_commands(kind, old, new);
            self.compare_events(kind, old, new);
            self.compare_answers(kind, old, new);
            self.compare_queries(kind, old, new);
            self.compare_recorded(kind, "call", old, new);
            self.compare_recorded(kind, "notes", old, new);
        }
        for (kind, _) in members(self.new, list).filter(|(kind, _)| member(self.old, list, kind).is_none()) {
            self.add(Level::Addition, kind.clone(), "is a new kind");
        }
    }

    /// Compares commands. Timers and messages hold commands too, so the new program reads recorded ones even if they are not public.
    fn compare_commands(&mut self, kind: &str, old: &'a Value, new: &'a Value) {
        let is_public = |command: &Value| command["public"] == true;
        let ignores = new["ignores_unknown_fields"] == true;
        if old["ignores_unknown_fields"] == true && !ignores {
            let what = "refuses fields of clients that it does not know, and did not before";
            self.add(Level::Breaking, format!("{kind}/commands"), what);
        }
        for (name, was) in members(old, "commands") {
            let path = format!("{kind}/commands/{name}");
            let Some(is) = member(new, "commands", name) else {
                self.add(
                    Level::Breaking,
                    path,
                    "is gone: give it an alias, or take it up with upcast_command",
                );
                continue;
            };
            if is_public(was) && !is_public(is) {
                self.add(Level::Breaking, path.clone(), "is not public any more");
            }
            // Recorded commands may have unknown fields.
            let refuses_unknown = is_public(was) && !ignores;
            for found in self.differences(Reads::New, (&was["schema"], &is["schema"]), refuses_unknown) {
                self.add_difference(Level::Breaking, &path, Reads::New, &found);
            }
            if was.get("reply").or(is.get("reply")).is_some() {
                let reply = |command: &'a Value, kind: &'a Value| command.get("reply").unwrap_or(&kind["reply"]);
                let replies = (reply(was, old), reply(is, new));
                self.compare_answer(&format!("{path}/reply"), replies, false);
            }
        }
        for (name, is) in members(new, "commands") {
            let path = format!("{kind}/commands/{name}");
            match member(old, "commands", name) {
                None => self.add(Level::Addition, path, "is a new command"),
                Some(was) if !is_public(was) && is_public(is) => self.add(Level::Addition, path, "is public now"),
                Some(_) => {}
            }
        }
    }

    fn compare_events(&mut self, kind: &str, old: &'a Value, new: &'a Value) {
        let version = |event: &Value| event["version"].as_u64().unwrap_or(1);
        for (name, was) in members(old, "events") {
            let path = format!("{kind}/events/{name}");
            let Some(is) = member(new, "events", name) else {
                // This command was read only from records. Whether some are still recorded is unknown.
                let what = "is gone: recorded ones cannot be read without a version and an upcaster";
                self.add(Level::Breaking, path, what);
                continue;
            };
            let (before, after) = (version(was), version(is));
            if after < before {
                let what = format!("has version {after}, and had {before}: recorded ones cannot be read");
                self.add(Level::Breaking, path, what);
            } else if after > before {
                let what = format!(
                    "has version {after} now, and had {before}: its upcaster has to take it up, and the older program cannot read it"
                );
                self.add(Level::Caution, path, what);
            } else if let (Some(was), Some(is)) = (was.get("schema"), is.get("schema")) {
                for found in self.differences(Reads::New, (was, is), false) {
                    self.add_difference(Level::Breaking, &path, Reads::New, &found);
                }
                for found in self.differences(Reads::Old, (was, is), false) {
                    let is_variant = matches!(found.what, Mismatch::Variant(_));
                    let level = if is_variant { Level::Caution } else { Level::Breaking };
                    self.add_difference(level, &path, Reads::Old, &found);
                }
            }
        }
        for (name, _) in members(new, "events")
            .filter(|(name, is)| member(old, "events", name).is_none() && is.get("schema").is_some())
        {
            let what = "is a new event: the older program cannot read it, readers may not know it";
            self.add(Level::Caution, format!("{kind}/events/{name}"), what);
        }
    }

    /// Compares replies and rejections. They go to clients; the new program also reads outcomes of requests that are on their way.
    fn compare_answers(&mut self, kind: &str, old: &'a Value, new: &'a Value) {
        let path = format!("{kind}/reply");
        self.compare_answer(&path, (&old["reply"], &new["reply"]), true);
        for (name, was) in members(old, "rejections") {
            let path = format!("{kind}/rejections/{name}");
            match member(new, "rejections", name) {
                Some(is) => self.compare_answer(&path, (was, is), true),
                None => self.add(Level::Caution, path, "is gone: outcomes on their way may still say it"),
            }
        }
        for (name, _) in members(new, "rejections").filter(|(name, _)| member(old, "rejections", name).is_none()) {
            let what = "is a new rejection: clients may not know it";
            self.add(Level::Caution, format!("{kind}/rejections/{name}"), what);
        }
    }

    fn compare_answer(&mut self, path: &str, schemas: (&'a Value, &'a Value), is_recorded: bool) {
        for found in self.differences(Reads::Old, schemas, false) {
            let is_variant = matches!(found.what, Mismatch::Variant(_));
            let level = if is_variant { Level::Caution } else { Level::Breaking };
            self.add_difference(level, path, Reads::Old, &found);
        }
        let recorded = if is_recorded {
            self.differences(Reads::New, schemas, false)
        } else {
            Vec::new()
        };
        for found in recorded {
            self.add_difference(Level::Caution, path, Reads::New, &found);
        }
    }

    fn compare_queries(&mut self, kind: &str, old: &'a Value, new: &'a Value) {
        for (name, was) in members(old, "queries") {
            let path = format!("{kind}/queries/{name}");
            let Some(is) = member(new, "queries", name) else {
                self.add(Level::Breaking, path, "is gone");
                continue;
            };
            for found in self.differences(Reads::New, (&was["fields"], &is["fields"]), true) {
                self.add_difference(Level::Breaking, &path, Reads::New, &found);
            }
            self.compare_answer(&path, (&was["answer"], &is["answer"]), false);
        }
        for (name, _) in members(new, "queries").filter(|(name, _)| member(old, "queries", name).is_none()) {
            self.add(Level::Addition, format!("{kind}/queries/{name}"), "is a new query");
        }
    }

    /// Requests and answers of calls outside, and notes of requests, stand in the journal: the new program reads those of the old one.
    fn compare_recorded(&mut self, kind: &str, list: &str, old: &'a Value, new: &'a Value) {
        for (name, was) in members(old, list) {
            let path = match list {
                "call" => format!("{kind}/{name}"),
                _ => format!("{kind}/{list}/{name}"),
            };
            let Some(is) = member(new, list, name) else {
                self.add(Level::Breaking, path, "is gone: what is on its way cannot be read");
                continue;
            };
            for found in self.differences(Reads::New, (was, is), false) {
                self.add_difference(Level::Breaking, &path, Reads::New, &found);
            }
        }
    }

    fn differences(&self, reads: Reads, (old, new): (&'a Value, &'a Value), refuses_unknown: bool) -> Vec<Difference> {
        let empty = Map::new();
        let of = |document: &'a Value, schema| Type {
            schema,
            definitions: document["$defs"].as_object().unwrap_or(&empty),
        };
        let (old, new) = (of(self.old, old), of(self.new, new));
        let (reader, writer) = match reads {
            Reads::New => (new, old),
            Reads::Old => (old, new),
        };
        Comparison { refuses_unknown }.run(reader, writer)
    }

    fn add_difference(&mut self, level: Level, path: &str, reads: Reads, found: &Difference) {
        let path = match found.path.as_str() {
            "" => path.to_owned(),
            within => format!("{path}/{within}"),
        };
        let what = match (reads, &found.what) {
            (Reads::New, Mismatch::Missing) => "is required now, and could be absent".to_owned(),
            (Reads::New, Mismatch::Unknown) => "is gone: whoever sends it is refused".to_owned(),
            (Reads::New, Mismatch::Variant(name)) => format!("does not take {name:?} any more"),
            (Reads::New, Mismatch::Kind { reader, writer }) => format!("is {reader} now, and could be {writer}"),
            (
                Reads::New,
                Mismatch::Limit {
                    keyword,
                    reader,
                    writer,
                },
            ) => format!("has the {keyword} {reader} now, and had {writer}"),
            (Reads::Old, Mismatch::Missing) => "may be absent now, and was always there".to_owned(),
            (Reads::Old, Mismatch::Unknown) => "is new, and the older program refuses it".to_owned(),
            (Reads::Old, Mismatch::Variant(name)) => format!("may be {name:?} now: older readers do not know it"),
            (Reads::Old, Mismatch::Kind { reader, writer }) => format!("may be {writer} now, and was {reader}"),
            (
                Reads::Old,
                Mismatch::Limit {
                    keyword,
                    reader,
                    writer,
                },
            ) => format!("has the {keyword} {writer} now, and had {reader}"),
        };
        self.add(level, path, what);
    }
}
