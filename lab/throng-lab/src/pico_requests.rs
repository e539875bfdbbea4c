//! Requests to an engine of picos.

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use throng_load::{Report, Request};

use throng_cli::{client::Client, demo::answers, progress::Progress};

/// The domain of a console's requests to a pico.
pub(crate) const UI: &str = "io.picolabs.pico-engine-ui";

/// Writes a request for a host.
pub(crate) type Build = Box<dyn Fn(&str) -> Vec<u8>>;

/// Returns an event that waits for its directives.
pub(crate) fn event(eci: &str, domain: &str, name: &str, attributes: &Value) -> Build {
    let path = format!("/c/{eci}/event-wait/{domain}/{name}");
    let body = attributes.to_string();
    Box::new(move |host| Request::build("POST", host, &path).json(&body).into_bytes())
}

/// Returns the root pico's own channel.
pub(crate) fn root(client: &Client) -> anyhow::Result<String> {
    own_channel(client, &console(client)?)
}

/// Returns the root pico's channel for the console.
pub(crate) fn console(client: &Client) -> anyhow::Result<String> {
    let context = ask(client, &get("/api/ui-context".into()))?;
    Ok(context["eci"].as_str().context("the engine has no root")?.to_owned())
}

/// Returns the own channel of the pico that has this channel for the console.
pub(crate) fn own_channel(client: &Client, console: &str) -> anyhow::Result<String> {
    let pico = ask(client, &query(console, UI, "pico"))?;
    let channels = pico["channels"].as_array().context("the pico has no channels")?;
    let own = channels
        .iter()
        .find(|channel| channel["tags"] == json!(["system", "self"]));
    let id = own.and_then(|channel| channel["id"].as_str());
    Ok(id.context("the pico has no channel of its own")?.to_owned())
}

fn get(path: String) -> Build {
    Box::new(move |host| Request::get(host, &path).bytes().to_vec())
}

/// Returns a query of a ruleset's shared function: `GET /c/{eci}/query/{rid}/{name}`.
pub(crate) fn query(eci: &str, rid: &str, name: &str) -> Build {
    get(format!("/c/{eci}/query/{rid}/{name}"))
}

/// Sends one request and returns its answer.
pub(crate) fn ask(client: &Client, request: &Build) -> anyhow::Result<Value> {
    let mut requests = throng_load::Trace::new();
    requests.push([], None, 0, &request(client.authority()));
    let mut found = Err("no answer".to_owned());
    client.send(Arc::new(requests), 0.0, None, |_, outcome| {
        found = read(outcome);
        found.is_ok()
    })?;
    found.map_err(anyhow::Error::msg)
}

/// Sends requests and passes each answer to `look`. Requests of one key are sent in order.
pub(crate) fn all(
    client: &Client,
    doing: &'static str,
    requests: impl Iterator<Item = (Vec<u8>, Option<Duration>, Build)>,
    speed: f64,
    mut look: impl FnMut(usize, &Value) -> anyhow::Result<()> + Send,
) -> anyhow::Result<Report> {
    let mut sent = throng_load::Trace::new();
    for (key, offset, request) in requests {
        sent.push(&key, offset, 0, &request(client.authority()));
    }
    let mut first_wrong = None;
    let progress = Progress::new(doing, sent.len() as u64);
    let report = client.send(Arc::new(sent), speed, Some(progress), |index, outcome| {
        let looked = read(outcome).and_then(|answer| look(index, &answer).map_err(|error| error.to_string()));
        match looked {
            Ok(()) => true,
            Err(wrong) => {
                first_wrong.get_or_insert_with(|| format!("{doing}, request {}: {wrong}", index + 1));
                false
            }
        }
    })?;
    match first_wrong {
        Some(wrong) => bail!(wrong),
        None => Ok(report),
    }
}

fn read(outcome: &throng_load::Outcome<'_>) -> Result<Value, String> {
    match &outcome.result {
        Ok(answer) if answer.status == 200 => serde_json::from_slice(answer.body).map_err(|error| error.to_string()),
        Ok(answer) => Err(answers::said(answer)),
        Err(kind) => Err(kind.name().to_string()),
    }
}
