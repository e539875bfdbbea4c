//! Rulesets that every pico has, compiled with the engine: the same events and queries as the original's, and no room in a pico that does
//! not use them.

mod subscription;
mod ui;
mod wrangler;

use crate::draft::{Draft, Stop};
use throng_krl::{Error, Event, Value};

pub(crate) use subscription::well_known;
pub(crate) use ui::{channel as ui_channel, children};
pub(crate) use wrangler::{born, name_of};

/// The domain of the requests and events of pico-engine 1.x's console.
pub(crate) const UI: &str = "io.picolabs.pico-engine-ui";
/// Children, channels, rulesets.
pub(crate) const WRANGLER: &str = "io.picolabs.wrangler";
/// Relations between picos.
pub(crate) const SUBSCRIPTION: &str = "io.picolabs.subscription";

/// A ruleset that every pico has without installing it, written in Rust.
pub(crate) struct Native {
    /// The id of the ruleset that it stands for.
    pub(crate) rid: &'static str,
    /// The title for people, beside the id.
    pub(crate) title: &'static str,
    /// The domains of the events it looks at.
    domains: &'static [&'static str],
    /// Called with each event of its domains.
    pub(crate) handle: fn(&mut Draft<'_>, &Event) -> Result<(), Stop>,
    /// Answers a query, or a call of a ruleset that uses it as a module; `None`: it has nothing of this name.
    pub(crate) answer: fn(&mut Draft<'_>, &str, &NativeArguments<'_>) -> Option<Result<Value, Stop>>,
}

/// The arguments of a query or call.
pub(crate) struct NativeArguments<'a>(pub(crate) &'a dyn Fn(usize, &str) -> Value);

impl NativeArguments<'_> {
    /// An argument by its place or name; null if there is none.
    pub(crate) fn get(&self, place: usize, name: &str) -> Value {
        (self.0)(place, name)
    }

    pub(crate) fn text(&self, place: usize, name: &str) -> String {
        text(&self.get(place, name))
    }
}

/// The native rulesets, in the order in which they take an event.
pub(crate) static ALL: &[Native] = &[ui::RULESET, wrangler::RULESET, subscription::RULESET];

/// Returns a native ruleset by its id.
pub(crate) fn find(rid: &str) -> Option<&'static Native> {
    ALL.iter().find(|native| native.rid == rid)
}

impl Native {
    /// Returns the ruleset as `ctx:rulesets` shows it.
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

    /// Returns the parts that a console may try: none, these are documented.
    pub(crate) fn testing(&self) -> Value {
        let none = || Value::array(Vec::new());
        Value::map([("queries", none()), ("events", none())])
    }

    /// True if it looks at events of this domain.
    pub(crate) fn takes(&self, domain: &str) -> bool {
        self.domains.contains(&domain)
    }
}

/// An attribute of an event; null where there is none.
pub(crate) fn attribute(event: &Event, name: &str) -> Value {
    event.attributes.child(name).cloned().unwrap_or_default()
}

/// A text attribute that must be there and not be empty.
pub(crate) fn required(event: &Event, name: &str) -> Option<String> {
    let value = attribute(event, name);
    (!value.is_null()).then(|| text(&value)).filter(|text| !text.is_empty())
}

/// A value's text; empty for null.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        other => other.to_text().to_string(),
    }
}

/// The same map with another entry.
pub(crate) fn with(map: &Value, key: &str, value: Value) -> Value {
    let mut map = map.clone();
    map.set_at_path(&[key.into()], value);
    map
}

/// The same map without an entry.
pub(crate) fn without(map: &Value, key: &str) -> Value {
    let mut map = map.clone();
    map.remove_at_path(&[key.into()]);
    map
}

/// A value as JSON: functions are their text.
pub(crate) fn json(value: &Value) -> serde_json::Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// JSON as a value.
pub(crate) fn value(json: serde_json::Value) -> Value {
    serde_json::from_value(json).unwrap_or_default()
}

/// The value of something that is written as JSON.
pub(crate) fn shown(of: &impl serde::Serialize) -> Value {
    value(serde_json::to_value(of).unwrap_or_default())
}

/// Tags and policies as a ruleset writes them.
pub(crate) fn shape(tags: &Value, events: &Value, queries: &Value) -> Result<crate::channel::Shape, Stop> {
    crate::channel::Shape::read(&json(tags), &json(events), &json(queries))
        .map_err(|why| Error::type_error(why.to_string()).into())
}

/// A list of all channels.
pub(crate) fn channels(draft: &Draft<'_>) -> Vec<Value> {
    let id = draft.id();
    draft
        .body()
        .channels
        .iter()
        .map(|channel| value(channel.shown(id)))
        .collect()
}
