//! Children, channels and rulesets by events: `wrangler:new_child_request` and its like.

use super::{Given, Native, UI, WRANGLER, attribute, channels, required, text, with};
use crate::{
    ask::Ask,
    draft::{Draft, Stop},
};
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
        "new_child_request" => match required(event, "name") {
            Some(_) => new_child(draft, event),
            None => Ok(()),
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

/// What a child does first: it knows its name, tells its rulesets that they are installed and its parent that it is there.
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

fn answer(draft: &mut Draft<'_>, name: &str, given: &Given<'_>) -> Option<Result<Value, Stop>> {
    Some(match name {
        "name" => Ok(name_of(draft)),
        "id" => Ok(own(draft)),
        "parent_eci" => Ok(parent(draft)),
        "myself" => Ok(Value::map([
            ("name", name_of(draft)),
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
        "skyQuery" | "picoQuery" => pico_query(draft, given),
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

fn name_of(draft: &mut Draft<'_>) -> Value {
    match draft.value(WRANGLER, "name") {
        Value::Null => "Pico".into(),
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

/// The channels with exactly these tags; all of them where none are given.
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

/// The children with their names: each of them is asked.
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

fn pico_query(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<Value, Stop> {
    let eci = given.text(0, "eci");
    let (rid, name) = (given.text(1, "mod"), given.text(2, "func"));
    let arguments = crate::draft::attributes_of(given.get(3, "params"))?;
    if given.get(4, "_host").is_true() || given.get(6, "_root_url").is_true() {
        return Err(Error::value_error("a query of another engine is asked with http:get").into());
    }
    let Ok(to) = eci.parse::<crate::id::Eci>() else {
        return Err(Error::value_error(format!("ECI not found {eci}")).into());
    };
    if to.pico == draft.id() {
        let says = Value::map([
            ("error", Value::from("Pico should not query itself")),
            ("httpStatus", 400.0.into()),
        ]);
        return Ok(says);
    }
    let from = draft.id();
    let ask = Ask::Query {
        from,
        eci: to,
        rid: rid.into(),
        name: name.into(),
        arguments,
    };
    match draft.ask(ask)? {
        Ok(value) => Ok(value),
        Err(why) => Ok(Value::map([("error", Value::from(&*why))])),
    }
}
