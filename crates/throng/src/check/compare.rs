//! Compares the outcome of a command that is decided again with its recorded outcome.

use serde_json::Value;
use throng_core::shard::{Decision, Effect};

/// The recorded outcome of a command.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Was {
    Done,
    Refused,
    Dead,
}

/// The reason why a recorded command has another outcome now.
pub(super) enum Miss {
    Undecided,
    Changed {
        was: String,
        would_be: String,
        values: String,
    },
}

/// Compares the outcomes; `None` if they are the same.
pub(super) fn miss(was: Was, recorded: &[Effect], one: &Decision, other: &Decision) -> Option<Miss> {
    let (is_same, differing) = match (was, one, other) {
        (Was::Done, Decision::Done(one), Decision::Done(other)) if names(one) == names(other) => {
            match names(recorded) == names(one) {
                false => (false, None),
                true => {
                    let parts = recorded.iter().zip(one.iter().zip(other));
                    let differing = parts.into_iter().find_map(|(recorded, (one, other))| {
                        let differing = differing(&recorded.content, &one.content, &other.content)?;
                        Some((recorded.what.clone(), differing))
                    });
                    (differing.is_none(), differing)
                }
            }
        }
        (_, Decision::Done(_), Decision::Done(_)) | (_, Decision::Refused(_), Decision::Refused(_)) => {
            if names_of(one) != names_of(other) {
                return Some(Miss::Undecided);
            }
            (was == Was::Refused && matches!(one, Decision::Refused(_)), None)
        }
        (_, Decision::Failed(_), Decision::Failed(_)) => (was == Was::Dead, None),
        _ => return Some(Miss::Undecided),
    };
    match (is_same, differing) {
        (true, _) => None,
        (false, Some((what, differing))) => Some(differing.miss(&what)),
        (false, None) => Some(Miss::Changed {
            was: match was {
                Was::Done => listed(&names(recorded)),
                Was::Refused => "refused".into(),
                Was::Dead => "dead".into(),
            },
            would_be: match one {
                Decision::Done(effects) => listed(&names(effects)),
                Decision::Refused(why) => format!("refused: {why}"),
                Decision::Failed(why) => format!("dead: {why}"),
            },
            values: String::new(),
        }),
    }
}

fn names(effects: &[Effect]) -> Vec<&str> {
    effects.iter().map(|effect| &*effect.what).collect()
}

/// Returns the names of the effects. `None` stands for any refusal or failure: all of these count as equal.
fn names_of(decision: &Decision) -> Option<Vec<&str>> {
    match decision {
        Decision::Done(effects) => Some(names(effects)),
        Decision::Refused(_) | Decision::Failed(_) => None,
    }
}

fn listed(names: &[&str]) -> String {
    match names {
        [] => "accepted without an effect".into(),
        names => names.join(", "),
    }
}

/// A value that differs now.
pub(super) struct Differing {
    /// The path of the value within its content, like `command.Deposit.cents`; empty for the whole content.
    path: String,
    was: String,
    would_be: String,
}

impl Differing {
    pub(super) fn miss(self, what: &str) -> Miss {
        let Self { path, was, would_be } = self;
        let of = match path.is_empty() {
            true => what.to_owned(),
            false => format!("{what}, its {path}"),
        };
        Miss::Changed {
            was: of,
            would_be: "another".into(),
            values: format!(": {was}, now {would_be}"),
        }
    }
}

/// Returns the first value that differs from the recorded one, ignoring values that also differ between the two new decisions.
pub(super) fn differing(recorded: &Value, one: &Value, other: &Value) -> Option<Differing> {
    match (recorded, one, other) {
        (Value::Object(recorded), Value::Object(one), Value::Object(other)) => {
            let mut names: Vec<&String> = recorded.keys().chain(one.keys()).collect();
            names.sort_unstable();
            names.dedup();
            names.into_iter().find_map(|name| {
                let part = |parts: &serde_json::Map<String, Value>| parts.get(name).cloned().unwrap_or_default();
                let found = differing(&part(recorded), &part(one), &part(other))?;
                Some(found.within(name))
            })
        }
        (Value::Array(recorded), Value::Array(one), Value::Array(other))
            if recorded.len() == one.len() && one.len() == other.len() =>
        {
            let parts = recorded.iter().zip(one.iter().zip(other)).enumerate();
            let mut parts = parts.filter_map(|(at, (recorded, (one, other)))| {
                Some(differing(recorded, one, other)?.within(&at.to_string()))
            });
            parts.next()
        }
        _ if recorded == one || one != other => None,
        _ => Some(Differing {
            path: String::new(),
            was: recorded.to_string(),
            would_be: one.to_string(),
        }),
    }
}

impl Differing {
    fn within(self, name: &str) -> Self {
        let path = match self.path.is_empty() {
            true => name.to_owned(),
            false => format!("{name}.{}", self.path),
        };
        Self { path, ..self }
    }
}
