//! A pico of a running engine, over HTTP.

use anyhow::Context as _;
use serde_json::{Value, json};
use std::time::Duration;

const UI: &str = "io.picolabs.pico-engine-ui";
const TIMEOUT: Duration = Duration::from_secs(60);

/// The answer of an engine.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum EngineAnswer {
    Value(Value),
    /// An error, in the words of the original engine.
    Error(String),
}

impl std::fmt::Display for EngineAnswer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            EngineAnswer::Value(value) => value.fmt(formatter),
            EngineAnswer::Error(error) => write!(formatter, "error {error:?}"),
        }
    }
}

/// A pico made for this run.
pub(crate) struct Engine {
    base: String,
    agent: ureq::Agent,
    /// The channel that allows every event and query.
    eci: String,
}

impl Engine {
    /// Makes a child of the engine's root pico.
    pub(crate) fn connect(base: &str) -> anyhow::Result<Engine> {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(TIMEOUT));
        let mut engine = Engine {
            base: base.trim_end_matches('/').to_owned(),
            agent: config.build().into(),
            eci: String::new(),
        };
        let root = engine.get("/api/ui-context")?["eci"].clone();
        let root = root.as_str().with_context(|| format!("{base} is no engine of picos"))?;
        let kids = |engine: &Engine| {
            let shown = engine.get(&format!("/c/{root}/query/{UI}/box"))?;
            anyhow::Ok(shown["children"].as_array().cloned().unwrap_or_default())
        };
        let known = kids(&engine)?;
        engine.get(&format!("/c/{root}/event-wait/engine_ui/new?name=differential"))?;
        let now = kids(&engine)?;
        let child = now.iter().find(|child| !known.contains(child)).and_then(Value::as_str);
        let child = child.with_context(|| format!("{base} made no child"))?;
        let tags = json!(["differential"]);
        let channel = json!({
            "tags": tags,
            "eventPolicy": { "allow": [{ "domain": "*", "name": "*" }], "deny": [] },
            "queryPolicy": { "allow": [{ "rid": "*", "name": "*" }], "deny": [] },
        });
        engine.post(&format!("/c/{child}/event-wait/engine_ui/new_channel"), &channel)?;
        let pico = engine.get(&format!("/c/{child}/query/{UI}/pico"))?;
        let channels = pico["channels"].as_array().into_iter().flatten();
        let mut tagged = channels.filter(|channel| channel["tags"] == tags);
        let own = tagged.next().and_then(|channel| channel["id"].as_str());
        engine.eci = own
            .with_context(|| format!("{base} made no channel: {pico}"))?
            .to_owned();
        Ok(engine)
    }

    /// Installs a ruleset. Returns the reason if the engine refuses it.
    pub(crate) fn install(&self, url: &str) -> anyhow::Result<Option<String>> {
        Ok(
            match self.event("wrangler", "install_ruleset_request", &json!({ "url": url }))? {
                EngineAnswer::Value(_) => None,
                EngineAnswer::Error(error) => Some(error),
            },
        )
    }

    pub(crate) fn uninstall(&self, rid: &str) -> anyhow::Result<()> {
        self.event("wrangler", "uninstall_ruleset_request", &json!({ "rid": rid }))
            .map(drop)
    }

    /// Sends an event and returns its directives, without parts that differ between any two engines.
    pub(crate) fn event(&self, domain: &str, name: &str, attributes: &Value) -> anyhow::Result<EngineAnswer> {
        let answer = answer(self.post(&format!("/c/{}/event-wait/{domain}/{name}", self.eci), attributes)?);
        Ok(match answer {
            EngineAnswer::Value(value) => {
                let directives = value["directives"].as_array().cloned().unwrap_or_default();
                let shown = directives.iter().map(|one| json!([one["name"], one["options"]]));
                EngineAnswer::Value(shown.collect())
            }
            error => error,
        })
    }

    pub(crate) fn query(&self, rid: &str, name: &str) -> anyhow::Result<EngineAnswer> {
        Ok(answer(self.get(&format!("/c/{}/query/{rid}/{name}", self.eci))?))
    }

    fn get(&self, path: &str) -> anyhow::Result<Value> {
        let url = format!("{}{path}", self.base);
        read(&url, self.agent.get(&url).call())
    }

    fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let url = format!("{}{path}", self.base);
        let request = self.agent.post(&url).header("content-type", "application/json");
        read(&url, request.send(body.to_string()))
    }
}

fn read(url: &str, response: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> anyhow::Result<Value> {
    let mut response = response.with_context(|| url.to_owned())?;
    let text = response.body_mut().read_to_string().with_context(|| url.to_owned())?;
    // The original returns an undefined value as an empty text.
    match text.as_str() {
        "" => Ok(Value::Null),
        text => serde_json::from_str(text).with_context(|| format!("{url} answers no JSON: {text}")),
    }
}

fn answer(value: Value) -> EngineAnswer {
    match value.get("error").and_then(Value::as_str) {
        Some(error) => EngineAnswer::Error(error.to_owned()),
        None => EngineAnswer::Value(without_headers(value)),
    }
}

/// Removes the header fields of the request, which the original adds to every event and query.
fn without_headers(mut value: Value) -> Value {
    match &mut value {
        Value::Object(map) => {
            map.remove("_headers");
            map.values_mut()
                .for_each(|value| *value = without_headers(value.take()));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = without_headers(item.take())),
        _ => {}
    }
    value
}
