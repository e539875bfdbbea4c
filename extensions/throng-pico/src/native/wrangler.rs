//! Children, channels and rulesets by events: `wrangler:new_child_request` and the like.

use super::{Native, NativeArguments, UI, WRANGLER, attribute, channels, required, text, with};
use crate::{
    ask::{Answered, Ask},
    draft::{Draft, Stop},
    id::{Eci, PicoId},
    pico::Body,
};
use std::sync::Arc;
use throng_krl::{Error, Event, Value};

pub(super) const RULESET: Native = Native {
    rid: WRANGLER,
    title: "Wrangler Core",
    domains: &["wrangler"],
    handle,
    answer,
};

fn handle(draft: &mut Draft<'_>, event: &Event) -> Result<(), Stop> {
    match &*event.name {
        "new_child_request" => match event.attributes.child("name") {
            // Any value with a non-empty text is a name, even null.
            Some(name) if !name.text().is_empty() => new_child(draft, event),
            _ => Ok(()),
        },
        "child_deletion_request" => match required(event, "eci") {
            Some(eci) => {
                draft.del_pico(&eci)?;
                draft.raise_as("wrangler", "child_deleted", event.attributes.clone())
            }
            None => Ok(()),
        },
        "child_move_request" => match (required(event, "eci"), required(event, "to")) {
            (Some(eci), Some(to)) => draft.move_child(&eci, &to),
            _ => Ok(()),
        },
        "ready_for_deletion" => ready_for_deletion(draft),
        "new_channel_request" => new_channel(draft, event),
        "channel_deletion_request" => match required(event, "eci") {
            Some(eci) => {
                draft.del_channel(&eci)?;
                draft.raise_as("wrangler", "channel_deleted", event.attributes.clone())
            }
            None => Ok(()),
        },
        "install_ruleset_request" => install(draft, event),
        "uninstall_ruleset_request" => match required(event, "rid") {
            Some(rid) => {
                draft.uninstall(&rid)?;
                draft.raise_as("wrangler", "ruleset_uninstalled", event.attributes.clone())
            }
            None => Ok(()),
        },
        "rulesets_need_flushing" => flush_all(draft),
        "name_changed" => match required(event, "name") {
            Some(name) => draft.put(WRANGLER, "name", &[], name.into()),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

fn new_child(draft: &mut Draft<'_>, event: &Event) -> Result<(), Stop> {
    let (eci, ui) = draft.new_pico(Vec::new(), event.attributes.clone())?;
    let made = with(&event.attributes, "eci", eci.to_string().into());
    let made = with(&made, "uiEci", ui.to_string().into());
    draft.raise_as("wrangler", "new_child_created", made)
}

/// Starts a child: records its name, tells its rulesets that they are installed, and tells its parent that it exists.
pub(crate) fn born(draft: &mut Draft<'_>, asked: &Value) -> Result<(), Stop> {
    let rids: Vec<Value> = draft
        .body()
        .rulesets
        .iter()
        .map(|ruleset| ruleset.rid.clone().into())
        .collect();
    let entry = |name: &str| asked.child(name).cloned().unwrap_or_default();
    if !asked.is_null() {
        draft.put(WRANGLER, "name", &[], entry("name"))?;
        draft.put(UI, "name", &[], entry("name"))?;
        let colour = entry("backgroundColor");
        if colour.is_true() {
            draft.put(UI, "backgroundColor", &[], colour)?;
        }
    }
    if !rids.is_empty() {
        draft.raise_as("wrangler", "ruleset_installed", Value::map([("rids", rids.into())]))?;
    }
    if asked.is_null() {
        return Ok(());
    }
    let eci: Value = draft.via.to_string().into();
    draft.raise_as("wrangler", "pico_created", asked.clone())?;
    let attributes = with(asked, "eci", eci);
    draft.raise_as("wrangler", "pico_initialized", attributes.clone())?;
    let parent = draft.body().parent.map(|parent| parent.to_string());
    parent.map_or(Ok(()), |parent| {
        draft.send(&parent, "wrangler", "child_initialized", attributes)
    })
}

fn ready_for_deletion(draft: &mut Draft<'_>) -> Result<(), Stop> {
    let parent = draft.body().parent.map(|parent| parent.to_string());
    let own = draft.tagged(&["system", "child"]).map(|eci| eci.to_string());
    match (parent, own) {
        (Some(parent), Some(own)) => {
            let attributes = Value::map([("eci", Value::from(own))]);
            draft.send(&parent, "wrangler", "child_deletion_request", attributes)
        }
        _ => Ok(()),
    }
}

fn new_channel(draft: &mut Draft<'_>, event: &Event) -> Result<(), Stop> {
    let [tags, events, queries] = ["tags", "eventPolicy", "queryPolicy"].map(|name| attribute(event, name));
    if !(tags.is_true() && events.is_true() && queries.is_true()) {
        return Ok(());
    }
    let channel = draft.new_channel(super::shape(&tags, &events, &queries)?)?;
    let channel = super::value(channel.shown(draft.id()));
    draft.raise_as(
        "wrangler",
        "channel_created",
        with(&event.attributes, "channel", channel),
    )
}

fn install(draft: &mut Draft<'_>, event: &Event) -> Result<(), Stop> {
    let url = match (
        required(event, "url"),
        required(event, "absoluteURL"),
        required(event, "rid"),
    ) {
        (Some(url), _, _) => url,
        (None, Some(beside), Some(rid)) => match beside.rsplit_once('/') {
            Some((folder, _)) => format!("{folder}/{rid}.krl"),
            None => format!("{rid}.krl"),
        },
        _ => return Ok(()),
    };
    let config = match attribute(event, "config") {
        Value::Null => Value::map::<&str>([]),
        config => config,
    };
    let rid = draft.install(&url, config)?;
    let attributes = with(&event.attributes, "rids", vec![Value::from(rid)].into());
    draft.raise_as("wrangler", "ruleset_installed", attributes)
}

fn flush_all(draft: &mut Draft<'_>) -> Result<(), Stop> {
    let urls: Vec<_> = draft
        .body()
        .rulesets
        .iter()
        .map(|ruleset| ruleset.url.clone())
        .collect();
    for url in urls {
        draft.ask(Ask::Flush { url })?.map_err(Error::value_error)?;
    }
    draft.raise_as("wrangler", "rulesets_flushed", Value::map::<&str>([]))
}

fn answer(draft: &mut Draft<'_>, name: &str, given: &NativeArguments<'_>) -> Option<Result<Value, Stop>> {
    Some(match name {
        "name" => Ok(own_name(draft)),
        "id" => Ok(own(draft)),
        "parent_eci" => Ok(parent(draft)),
        "myself" => Ok(Value::map([
            ("name", own_name(draft)),
            ("id", own(draft)),
            (
                "eci",
                draft
                    .tagged(&["system", "child"])
                    .map_or_else(|| own(draft), |eci| eci.to_string().into()),
            ),
        ])),
        "channels" => Ok(tagged(draft, &given.get(0, "tags"))),
        "installedRIDs" => {
            let natives = super::ALL.iter().map(|native| Value::from(native.rid));
            let rids = draft
                .body()
                .rulesets
                .iter()
                .map(|ruleset| Value::from(ruleset.rid.clone()));
            Ok(natives.chain(rids).collect::<Vec<_>>().into())
        }
        "rulesetConfig" => {
            let rid = given.text(0, "rid");
            Ok(draft
                .installed(&rid)
                .map(|ruleset| ruleset.config.clone())
                .unwrap_or_default())
        }
        "rulesetMeta" => ruleset_meta(draft, &given.text(0, "rid")),
        "children" => children(draft),
        "skyQuery" => sky_query(draft, given),
        "picoQuery" => pico_query(draft, given),
        "createChannel" => {
            let [tags, events, queries] =
                [(0, "tags"), (1, "eventPolicy"), (2, "queryPolicy")].map(|(at, name)| given.get(at, name));
            super::shape(&tags, &events, &queries)
                .and_then(|shape| draft.new_channel(shape))
                .map(|channel| super::value(channel.shown(draft.id())))
        }
        "deleteChannel" => draft.del_channel(&given.text(0, "eci")).map(|()| Value::Null),
        _ => return None,
    })
}

fn own_name(draft: &mut Draft<'_>) -> Value {
    let name = draft.value(WRANGLER, "name");
    name_of(draft.body(), name)
}

/// Returns the name of a pico. A root has a default name; a child has the given one or none.
pub(crate) fn name_of(body: &Body, given: Value) -> Value {
    match given {
        Value::Null if body.parent.is_none() => "Pico".into(),
        name => name,
    }
}

fn own(draft: &Draft<'_>) -> Value {
    draft
        .tagged(&["system", "self"])
        .map(|eci| eci.to_string().into())
        .unwrap_or_default()
}

fn parent(draft: &Draft<'_>) -> Value {
    draft
        .body()
        .parent
        .map(|eci| eci.to_string().into())
        .unwrap_or_default()
}

/// Returns the channels with exactly these tags, or all channels if none are given.
fn tagged(draft: &Draft<'_>, tags: &Value) -> Value {
    let tags: Vec<String> = match tags {
        Value::Null => return channels(draft).into(),
        Value::Array(tags) => tags.iter().map(text).collect(),
        tags => text(tags).split(',').map(str::to_owned).collect(),
    };
    let mut tags: Vec<String> = tags.into_iter().map(|tag| tag.trim().to_lowercase()).collect();
    tags.dedup();
    let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
    let id = draft.id();
    let found = draft
        .body()
        .channels
        .iter()
        .filter(|channel| channel.shape.is_tagged(&tags));
    found
        .map(|channel| super::value(channel.shown(id)))
        .collect::<Vec<_>>()
        .into()
}

fn ruleset_meta(draft: &mut Draft<'_>, rid: &str) -> Result<Value, Stop> {
    let rulesets = draft.shown_rulesets()?;
    let is_it = |ruleset: &&Value| ruleset.child("rid").and_then(Value::as_str) == Some(rid);
    let found = rulesets.as_array().and_then(|list| list.iter().find(is_it));
    Ok(found
        .map(|ruleset| ruleset.at_path(&["meta".into(), "krlMeta".into()]))
        .unwrap_or_default())
}

/// Returns the children with their names. Each of them is asked.
fn children(draft: &mut Draft<'_>) -> Result<Value, Stop> {
    let all = super::ui::children(draft)?;
    if all.is_empty() {
        return Ok(Value::array(Vec::new()));
    }
    let picos = all.iter().map(|(child, _)| child.pico).collect();
    let names = draft.ask(Ask::Names { picos })?.map_err(Error::value_error)?;
    let names = names.as_array().unwrap_or_default();
    let family = draft.family();
    let shown = all.iter().zip(names).map(|((child, eci), name)| {
        Value::map([
            ("eci", Value::from(eci.to_string())),
            ("name", name.clone()),
            ("parent_eci", family.up(child.pico).to_string().into()),
        ])
    });
    Ok(shown.collect::<Vec<_>>().into())
}

/// A query to a pico over one of its channels.
struct Asked {
    eci: String,
    rid: Arc<str>,
    name: Arc<str>,
    arguments: Value,
    /// The URL to ask, if the pico is on another engine.
    abroad: Option<String>,
    is_own: bool,
}

impl Asked {
    fn read(draft: &Draft<'_>, given: &NativeArguments<'_>) -> Result<Self, Stop> {
        let (eci, rid, name) = (given.text(0, "eci"), given.text(1, "mod"), given.text(2, "func"));
        let [host, path, root] = [(4, "_host"), (5, "_path"), (6, "_root_url")].map(|(at, name)| given.text(at, name));
        let own = crate::rulesets::host(draft.body().realm);
        let root = match (&*root, &*host) {
            ("", "") => None,
            ("", host) if host == &*own => None,
            ("", host) => Some(format!("{host}{}", if path.is_empty() { "/sky/cloud/" } else { &path })),
            (root, _) => Some(root.to_owned()),
        };
        let to = eci.parse::<Eci>().ok();
        let is_own = to.is_some_and(|to| to.pico == draft.id() && draft.channel(to.secret).is_some());
        Ok(Self {
            abroad: root.map(|root| format!("{root}{eci}/{rid}/{name}")),
            is_own,
            eci,
            rid: rid.into(),
            name: name.into(),
            arguments: crate::draft::attributes_of(given.get(3, "params"))?,
        })
    }

    /// Asks a pico of this engine, as this pico or as any client.
    fn here(self, draft: &mut Draft<'_>, from: Option<PicoId>) -> Result<Answered, Stop> {
        let Ok(eci) = self.eci.parse() else {
            return Ok(Err(format!("ECI not found {}", self.eci).into()));
        };
        draft.ask(Ask::Query {
            from,
            eci,
            rid: self.rid,
            name: self.name,
            arguments: self.arguments,
        })
    }
}

/// Returns the answer of `http:get` if a pico asks itself.
fn own_response() -> Value {
    Value::map([
        ("status_code", 400.0.into()),
        ("status_line", "HTTP/1.1 400 Pico should not query itself".into()),
        ("content", r#"{"error":"Pico should not query itself"}"#.into()),
    ])
}

/// Asks another engine. Returns the answer in the form of `http:get`.
fn asked_abroad(draft: &mut Draft<'_>, url: String, arguments: Value) -> Result<Value, Stop> {
    let arguments = Value::map([("url", Value::from(url)), ("qs", arguments)]);
    let method = "GET".into();
    Ok(draft
        .ask(Ask::Http { method, arguments })?
        .map_err(|why| Error::told(&why))?)
}

fn pico_query(draft: &mut Draft<'_>, given: &NativeArguments<'_>) -> Result<Value, Stop> {
    let asked = Asked::read(draft, given)?;
    match asked.abroad {
        _ if asked.is_own => Ok(own_response()),
        Some(url) => asked_abroad(draft, url, asked.arguments).map(|response| result_of(&response)),
        None => {
            let from = Some(draft.id());
            Ok(asked.here(draft, from)?.map_err(|why| Error::told(&why))?)
        }
    }
}

/// Asks over HTTP, as a client does. A failure gives a map, never an error.
fn sky_query(draft: &mut Draft<'_>, given: &NativeArguments<'_>) -> Result<Value, Stop> {
    let asked = Asked::read(draft, given)?;
    let response = match asked.abroad {
        _ if asked.is_own => own_response(),
        Some(url) => asked_abroad(draft, url, asked.arguments)?,
        None => {
            let answered = asked.here(draft, None)?;
            let error = |why: Box<str>| Value::map([("error", Value::from(Error::told(&why).to_string()))]);
            Value::map([
                ("status_code", 200.0.into()),
                ("status_line", "OK".into()),
                ("content", answered.unwrap_or_else(error)),
            ])
        }
    };
    Ok(result_of(&response))
}

/// Returns the answer, or a map with the fault: a status other than 200, no content, or an `error` in the answer.
fn result_of(response: &Value) -> Value {
    let part = |name: &str| response.child(name).cloned().unwrap_or_default();
    let (status, content) = (part("status_code"), part("content"));
    let content = content.as_str().and_then(Value::from_json).unwrap_or(content);
    let own = |name: &str| {
        content
            .as_map()
            .and_then(|map| map.get(name))
            .filter(|error| !error.is_null())
    };
    let [error, message] = ["error", "error_str"].map(|name| own(name).cloned().unwrap_or(0.0.into()));
    let is_bad = content.is_null() || content.as_str() == Some("null") || error.is_true() || message.is_true();
    if status == 200.0.into() && !is_bad {
        return content;
    }
    Value::map([
        ("error", Value::from("sky query request was unsuccesful.")),
        (
            "httpStatus",
            Value::map([("code", status), ("message", part("status_line"))]),
        ),
        ("picoQueryError", error),
        ("picoQueryErrorMsg", message),
        ("picoQueryReturnValue", content),
    ])
}
