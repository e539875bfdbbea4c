//! The requests and events of the original's console.

use super::{Native, NativeArguments, UI, attribute, channels, text, with};
use crate::{
    ask::Ask,
    channel::{Channel, Policy, Shape},
    draft::{Draft, Stop},
    family,
    id::Secret,
    pico::Body,
};
use throng_krl::{Event, Value};

/// The tags of the console's channel.
const TAGS: [&str; 2] = ["engine", "ui"];
const BLUE: &str = "#87cefa";

pub(super) const RULESET: Native = Native {
    rid: UI,
    title: "pico-engine-ui",
    domains: &["engine_ui", "wrangler"],
    handle,
    answer,
};

/// Returns the console's channel.
pub(crate) fn channel(secret: Secret) -> Channel {
    let events = [
        ("engine_ui", "*"),
        ("engine", "started"),
        ("wrangler", "subscription"),
        ("wrangler", "pending_subscription_approval"),
        ("wrangler", "inbound_rejection"),
        ("wrangler", "outbound_cancellation"),
        ("wrangler", "subscription_cancellation"),
    ];
    let queries = [
        ("*", "__testing"),
        (UI, "*"),
        (super::SUBSCRIPTION, "established"),
        (super::SUBSCRIPTION, "inbound"),
        (super::SUBSCRIPTION, "outbound"),
        (super::SUBSCRIPTION, "wellKnown_Rx"),
    ];
    let shape = Shape {
        event_policy: Policy::only(&events),
        query_policy: Policy::only(&queries),
        ..Shape::open(&TAGS)
    };
    Channel::new(secret, None, shape)
}

/// The numeric attributes of a pico's appearance that a console may set.
const NUMBERS: [&str; 4] = ["x", "y", "width", "height"];

fn handle(draft: &mut Draft<'_>, event: &Event) -> Result<(), Stop> {
    let given = |name: &str| attribute(event, name);
    match (&*event.domain, &*event.name) {
        ("engine_ui", "box") => look(draft, event),
        ("engine_ui", "new") => {
            let mut attributes = event.attributes.clone();
            for name in ["name", "backgroundColor"] {
                if !given(name).is_true() {
                    let own = draft.value(UI, name);
                    attributes = with(&attributes, name, own);
                }
            }
            draft.raise_as("wrangler", "new_child_request", attributes)
        }
        ("engine_ui", "del") => {
            let ui = text(&given("eci"));
            let Some(child) = child_of(draft, &ui)? else {
                return Ok(());
            };
            draft.del_pico(&child)
        }
        ("engine_ui", "install") => draft.raise_as("wrangler", "install_ruleset_request", event.attributes.clone()),
        ("engine_ui", "uninstall") => draft.uninstall(&text(&given("rid"))),
        ("engine_ui", "flush") => {
            let url = text(&given("url"));
            match draft.ask(Ask::Flush { url: url.into() })? {
                Ok(_) => Ok(()),
                Err(why) => Err(throng_krl::Error::value_error(why).into()),
            }
        }
        ("engine_ui", "new_channel") => {
            let shape = super::shape(&given("tags"), &given("eventPolicy"), &given("queryPolicy"))?;
            draft.new_channel(shape).map(drop)
        }
        ("engine_ui", "del_channel") => draft.del_channel(&text(&given("eci"))),
        ("engine_ui", "testing_eci") => draft.put(UI, "testingECI", &[], given("eci")),
        _ => Ok(()),
    }
}

fn look(draft: &mut Draft<'_>, event: &Event) -> Result<(), Stop> {
    for name in NUMBERS {
        let given = attribute(event, name);
        if given.is_true()
            && let Some(number) = given.to_number()
        {
            draft.put(UI, name, &[], number.into())?;
        }
    }
    let name = attribute(event, "name");
    if name.is_true() {
        draft.put(UI, "name", &[], name.to_text().into())?;
    }
    let colour = text(&attribute(event, "backgroundColor"));
    if is_colour(&colour) {
        draft.put(UI, "backgroundColor", &[], colour.into())?;
    }
    Ok(())
}

fn is_colour(text: &str) -> bool {
    let digits = text.strip_prefix('#');
    digits.is_some_and(|digits| digits.len() == 6 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Returns all children with their family ECIs, including those in pages.
pub(crate) fn children(draft: &mut Draft<'_>) -> Result<Vec<(crate::pico::Child, crate::id::Eci)>, Stop> {
    let mut all = Vec::new();
    let sealed = draft.body().children.sealed();
    if sealed > 0 {
        let parent = draft.id();
        let answered = draft.ask(Ask::Children { parent, pages: sealed })?;
        let listed = answered.map_err(throng_krl::Error::value_error)?;
        let listed: Vec<crate::pico::Child> = serde_json::from_value(super::json(&listed)).unwrap_or_default();
        all.extend(listed);
    }
    all.extend_from_slice(draft.body().children.young());
    let family = draft.family();
    Ok(all
        .into_iter()
        .map(|child| (child, family.down(child.pico, child.number)))
        .collect())
}

/// Returns the family ECI of the child with this console channel.
fn child_of(draft: &mut Draft<'_>, ui: &str) -> Result<Option<String>, Stop> {
    let Ok(ui) = ui.parse::<crate::id::Eci>() else {
        return Ok(None);
    };
    let found = children(draft)?.into_iter().find(|(child, _)| child.pico == ui.pico);
    if family::ui(draft.body().realm, ui.pico) != ui {
        return Ok(None);
    }
    Ok(found.map(|(_, eci)| eci.to_string()))
}

fn answer(draft: &mut Draft<'_>, name: &str, _: &NativeArguments<'_>) -> Option<Result<Value, Stop>> {
    Some(match name {
        "uiECI" => Ok(ui_eci(draft)),
        "name" => Ok(name_of(draft)),
        "testingECI" => Ok(draft.value(UI, "testingECI")),
        "box" => shown_box(draft),
        "pico" => shown_pico(draft),
        "logs" => logs(draft),
        _ => return None,
    })
}

fn ui_eci(draft: &Draft<'_>) -> Value {
    draft
        .tagged(&TAGS)
        .map(|eci| eci.to_string().into())
        .unwrap_or_default()
}

fn name_of(draft: &mut Draft<'_>) -> Value {
    match draft.value(UI, "name") {
        name if name.is_true() => name,
        _ => "Pico".into(),
    }
}

/// Returns the console channels of all children.
fn child_ui_ecis(draft: &mut Draft<'_>) -> Result<Value, Stop> {
    let realm = draft.body().realm;
    let ecis = children(draft)?
        .into_iter()
        .map(|(child, _)| Value::from(family::ui(realm, child.pico).to_string()));
    Ok(ecis.collect::<Vec<_>>().into())
}

fn parent_ui(draft: &Draft<'_>) -> Value {
    let Body { realm, parent, .. } = draft.body();
    parent
        .map(|parent| family::ui(*realm, parent.pico).to_string().into())
        .unwrap_or_default()
}

fn shown_box(draft: &mut Draft<'_>) -> Result<Value, Stop> {
    let children = child_ui_ecis(draft)?;
    let colour = draft.value(UI, "backgroundColor");
    let mut entries = vec![
        ("eci", ui_eci(draft)),
        ("parent", parent_ui(draft)),
        ("children", children),
        ("name", name_of(draft)),
        ("backgroundColor", if colour.is_true() { colour } else { BLUE.into() }),
    ];
    for name in NUMBERS {
        let number = draft.value(UI, name);
        entries.push((name, if number.is_true() { number } else { 100.0.into() }));
    }
    Ok(Value::map(entries))
}

fn shown_pico(draft: &mut Draft<'_>) -> Result<Value, Stop> {
    let children = child_ui_ecis(draft)?;
    let rulesets = draft.shown_rulesets()?;
    Ok(Value::map([
        ("eci", ui_eci(draft)),
        ("parent", parent_ui(draft)),
        ("children", children),
        ("channels", channels(draft).into()),
        ("rulesets", rulesets),
    ]))
}

/// Returns the latest events, each as an episode.
fn logs(draft: &mut Draft<'_>) -> Result<Value, Stop> {
    let pico = draft.id();
    let answered = draft.ask(Ask::Logs { pico })?;
    Ok(answered.map_err(throng_krl::Error::value_error)?)
}
