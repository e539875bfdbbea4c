//! Native rulesets: every pico has them, and they are compiled with the engine. They have the same events and queries as the original's, and take
//! no memory in a pico that does not use them.

mod subscription;
mod ui;
mod wrangler;

use crate::draft::{Draft, Stop};
use throng_krl::{Error, Event, Value};

pub(crate) use subscription::well_known;
pub(crate) use ui::{channel as ui_channel, children};
pub(crate) use wrangler::{born, name_of};

/// The console of pico-engine 1.x.
pub(crate) const UI: &str = "io.picolabs.pico-engine-ui";
/// Children, channels, rulesets.
pub(crate) const WRANGLER: &str = "io.picolabs.wrangler";
/// Relations between picos.
pub(crate) const SUBSCRIPTION: &str = "io.picolabs.subscription";

/// A ruleset that every pico has without installing it, written in Rust.
pub(crate) struct Native {
    /// The id of the ruleset that it replaces.
    pub(crate) rid: &'static str,
    /// The title for people, beside the id.
    pub(crate) title: &'static str,
    /// The domains of the events that it handles.
    domains: &'static [&'static str],
    /// Called with each event of its domains.
    pub(crate) handle: fn(&mut Draft<'_>, &Event) -> Result<(), Stop>,
    /// Answers a query, or a call of a ruleset that uses it as a module. `None`: it has nothing of this name.
    pub(crate) answer: fn(&mut Draft<'_>, &str, &NativeArguments<'_>) -> Option<Result<Value, Stop>>,
}

/// The arguments of a query or call.
pub(crate) struct NativeArguments<'a>(pub(crate) &'a dyn Fn(usize, &str) -> Value);

impl NativeArguments<'_> {
    /// Returns an argument by its place or name; null if there is none.
    pub(crate) fn get(&self, place: usize, name: &str) -> Value {
        (self.0)(place, name)
    }

    pub(crate) fn text(&self, place: usize, name: &str) -> String {
        text(&self.get(place, name))
    }
}

/// The native rulesets, in the order in which they handle an event.
pub(crate) static ALL: &[Native] = &[ui::RULESET, wrangler::RULESET, subscription::RULESET];

/// Returns a native ruleset by its id.
pub(crate) fn find(rid: &str) -> Option<&'static Native> {
    ALL.iter().find(|native| native.rid == rid)
}

impl Native {
    /// Returns the ruleset in the form of `ctx:rulesets`.
    pub(crate) fn shown(&self) -> Value {
        let meta = Value::map([("name", Value::from(self.title))]);
        let compiler = Value::map([
            ("version", Value::from(env!("CARGO_PKG_VERSION"))),
            ("warnings", Value::array(Vec::new())),
        ]);
        Value::map([
            ("rid", Value::from(self.rid)),
            ("url", format!("throng:{}", self.rid).into()),
            ("config", Value::map::<&str>([])),
            (
                "meta",
                Value::map([("krl", Value::from("")), ("krlMeta", meta), ("compiler", compiler)]),
            ),
        ])
    }

    /// Returns the parts that a console may try out: none, since they are documented.
    pub(crate) fn testing(&self) -> Value {
        let none = || Value::array(Vec::new());
        Value::map([("queries", none()), ("events", none())])
    }

    /// True if it handles events of this domain.
    pub(crate) fn takes(&self, domain: &str) -> bool {
        self.domains.contains(&domain)
    }
}

/// Returns an attribute of an event; null if it is missing.
pub(crate) fn attribute(event: &Event, name: &str) -> Value {
    event.attributes.child(name).cloned().unwrap_or_default()
}

/// Returns a text attribute that must be present and not empty.
pub(crate) fn required(event: &Event, name: &str) -> Option<String> {
    let value = attribute(event, name);
    (!value.is_null()).then(|| text(&value)).filter(|text| !text.is_empty())
}

/// Returns a value as text; empty for null.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        other => other.to_text().to_string(),
    }
}

/// Returns a copy of the map with this entry set.
pub(crate) fn with(map: &Value, key: &str, value: Value) -> Value {
    let mut map = map.clone();
    map.set_at_path(&[key.into()], value);
    map
}

/// Returns a copy of the map without this entry.
pub(crate) fn without(map: &Value, key: &str) -> Value {
    let mut map = map.clone();
    map.remove_at_path(&[key.into()]);
    map
}

/// Converts a value to JSON. Functions become text.
pub(crate) fn json(value: &Value) -> serde_json::Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// Converts JSON to a value.
pub(crate) fn value(json: serde_json::Value) -> Value {
    serde_json::from_value(json).unwrap_or_default()
}

/// Converts a serializable object to a value.
pub(crate) fn shown(of: &impl serde::Serialize) -> Value {
    value(serde_json::to_value(of).unwrap_or_default())
}

/// Reads tags and policies as a ruleset writes them.
pub(crate) fn shape(tags: &Value, events: &Value, queries: &Value) -> Result<crate::channel::Shape, Stop> {
    crate::channel::Shape::read(&json(tags), &json(events), &json(queries))
        .map_err(|why| Error::type_error(why.to_string()).into())
}

pub(crate) fn channels(draft: &Draft<'_>) -> Vec<Value> {
    let id = draft.id();
    draft
        .body()
        .channels
        .iter()
        .map(|channel| value(channel.shown(id)))
        .collect()
}
