//! Testing of rulesets without an engine: a pico in memory, and scripts of events with the expected outcomes.

mod pico;
mod script;

pub use pico::Pico;
pub use script::{Mismatch, Script, ScriptError, ScriptStep};

use crate::{Program, Value};

/// Returns the events that a ruleset waits for, each with the attributes that the ruleset asks for.
#[must_use]
pub fn events_of(program: &Program) -> Vec<(String, String, Value)> {
    let events = program
        .testing()
        .child("events")
        .and_then(Value::as_array)
        .unwrap_or_default();
    let text = |event: &Value, key: &str| {
        event
            .child(key)
            .map(|text| text.text().into_owned())
            .unwrap_or_default()
    };
    let event = |event: &Value| {
        let names = event.child("attrs").and_then(Value::as_array).unwrap_or_default();
        let attributes = names.iter().map(|name| (name.to_text(), Value::from("1")));
        (text(event, "domain"), text(event, "name"), Value::map(attributes))
    };
    events.iter().map(event).collect()
}
