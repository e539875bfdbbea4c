//! Subscriptions: relations between two picos, each with a channel for the other. `wrangler:subscription` asks for one; it can be approved, rejected
//! and cancelled.

use super::{Native, NativeArguments, SUBSCRIPTION, attribute, required, text, with, without};
use crate::{
    channel::{EventRule, Policy, QueryRule, Shape},
    draft::{Draft, Stop},
};
use throng_krl::{Event, Value};

const WELL_KNOWN: [&str; 2] = ["wellknown_rx", "tx_rx"];
/// The subscriptions to which both sides agreed.
const ESTABLISHED: &str = "established";
/// The subscriptions that this pico asked for.
const OUTBOUND: &str = "outbound";
/// The subscriptions that other picos asked for.
const INBOUND: &str = "inbound";

pub(super) const RULESET: Native = Native {
    rid: SUBSCRIPTION,
    title: "subscription",
    domains: &["wrangler"],
    handle,
    answer,
};

/// Returns the shape of the channel over which picos are introduced to each other.
pub(crate) fn well_known() -> Shape {
    let events = [
        ("wrangler", "subscription"),
        ("wrangler", "new_subscription_request"),
        ("wrangler", "inbound_removal"),
    ];
    Shape {
        event_policy: Policy::<EventRule>::only(&events),
        query_policy: Policy::<QueryRule>::only(&[(SUBSCRIPTION, "wellKnown_Rx")]),
        ..Shape::open(&WELL_KNOWN)
    }
}

fn answer(draft: &mut Draft<'_>, name: &str, given: &NativeArguments<'_>) -> Option<Result<Value, Stop>> {
    Some(match name {
        ESTABLISHED | OUTBOUND | INBOUND => {
            let (key, value) = (given.text(0, "key"), given.get(1, "value"));
            let buses = list(draft, name);
            let all = key.is_empty() || !value.is_true();
            let found = buses.into_iter().filter(|bus| all || entry(bus, &key) == value);
            Ok(found.collect::<Vec<_>>().into())
        }
        "wellKnown_Rx" => {
            let id = draft.id();
            let channel = draft
                .body()
                .channels
                .iter()
                .find(|channel| channel.shape.is_tagged(&WELL_KNOWN));
            Ok(channel
                .map(|channel| super::value(channel.shown(id)))
                .unwrap_or_default())
        }
        "autoAcceptConfig" => Ok(auto_accept(draft)),
        _ => return None,
    })
}

fn auto_accept(draft: &mut Draft<'_>) -> Value {
    match draft.value(SUBSCRIPTION, "autoAcceptConfig") {
        Value::Null => Value::map::<&str>([]),
        config => config,
    }
}

fn list(draft: &mut Draft<'_>, name: &str) -> Vec<Value> {
    let list = draft.value(SUBSCRIPTION, name);
    list.as_array().map(<[Value]>::to_vec).unwrap_or_default()
}

fn set_list(draft: &mut Draft<'_>, name: &str, buses: Vec<Value>) -> Result<(), Stop> {
    draft.put(SUBSCRIPTION, name, &[], buses.into())
}

fn entry(bus: &Value, key: &str) -> Value {
    bus.child(key).cloned().unwrap_or_default()
}

/// Finds the subscription of an event: by its id, by its channels, or by the channel on which the event arrived.
fn find(draft: &mut Draft<'_>, list_name: &str, event: &Event) -> Option<(usize, Value)> {
    let buses = list(draft, list_name);
    let by = ["Id", "Rx", "Tx"]
        .into_iter()
        .find(|key| attribute(event, key).is_true());
    let (key, value) = match by {
        Some(key) => (key, attribute(event, key)),
        None => ("Rx", event.eci.clone().into()),
    };
    buses.into_iter().enumerate().find(|(_, bus)| entry(bus, key) == value)
}

/// Removes a subscription from a list.
fn take(draft: &mut Draft<'_>, list_name: &str, place: usize) -> Result<(), Stop> {
    let mut buses = list(draft, list_name);
    buses.remove(place);
    set_list(draft, list_name, buses)
}

fn append(draft: &mut Draft<'_>, list_name: &str, bus: Value) -> Result<(), Stop> {
    let mut buses = list(draft, list_name);
    buses.push(bus);
    set_list(draft, list_name, buses)
}

/// Sends a `wrangler` event to the other side, which may be on another host.
fn tell(draft: &mut Draft<'_>, (to, host): (&Value, &Value), name: &str, attributes: Value) -> Result<(), Stop> {
    send(draft, (to, host), ("wrangler", name), attributes)
}

/// Sends any event to the other side.
fn send(
    draft: &mut Draft<'_>,
    (to, host): (&Value, &Value),
    (domain, name): (&str, &str),
    attributes: Value,
) -> Result<(), Stop> {
    let Some(eci) = to.as_str() else { return Ok(()) };
    match host.is_true() {
        true => draft.send_abroad(format!("{}/c/{eci}/event/{domain}/{name}", host.to_text()), attributes),
        false if draft.is_unreachable(SUBSCRIPTION, eci) => Ok(()),
        false => draft.send(eci, domain, name, attributes),
    }
}

fn raise(draft: &mut Draft<'_>, name: &str, attributes: Value) -> Result<(), Stop> {
    draft.raise_as("wrangler", name, attributes)
}

fn handle(draft: &mut Draft<'_>, event: &Event) -> Result<(), Stop> {
    match &*event.name {
        "subscription" => ask_for(draft, event),
        "subscription_request_needed" => request(draft, event),
        "new_subscription_request" => asked_for(draft, event),
        "pending_subscription_approval" => approve(draft, event),
        "outbound_pending_subscription_approved" => approved(draft, event),
        "subscription_cancellation" => {
            let Some((_, bus)) = find(draft, ESTABLISHED, event) else {
                return Ok(());
            };
            let attributes = with(&event.attributes, "Id", entry(&bus, "Id"));
            let told = with(&with(&attributes, "Rx", entry(&bus, "Tx")), "Tx", entry(&bus, "Rx"));
            tell(
                draft,
                (&entry(&bus, "Tx"), &entry(&bus, "Tx_host")),
                "established_removal",
                told,
            )?;
            raise(draft, "established_removal", attributes)
        }
        "inbound_rejection" => {
            let Some((_, bus)) = find(draft, INBOUND, event) else {
                return Ok(());
            };
            let attributes = with(&event.attributes, "Id", entry(&bus, "Id"));
            tell(
                draft,
                (&entry(&bus, "Tx"), &entry(&bus, "Tx_host")),
                "outbound_removal",
                attributes.clone(),
            )?;
            raise(draft, "inbound_removal", attributes)
        }
        "outbound_cancellation" => {
            let Some((_, bus)) = find(draft, OUTBOUND, event) else {
                return Ok(());
            };
            let attributes = with(&event.attributes, "Id", entry(&bus, "Id"));
            let told = with(&attributes, "Tx", entry(&bus, "Rx"));
            tell(
                draft,
                (&entry(&bus, "wellKnown_Tx"), &entry(&bus, "Tx_host")),
                "inbound_removal",
                told,
            )?;
            raise(draft, "outbound_removal", attributes)
        }
        "established_removal" => removed(draft, event, ESTABLISHED, "subscription_removed"),
        "inbound_removal" => removed(draft, event, INBOUND, "inbound_subscription_cancelled"),
        "outbound_removal" => removed(draft, event, OUTBOUND, "outbound_subscription_cancelled"),
        "cancel_subscriptions" => cancel_all(draft, event),
        "send_event_on_subs" => find_subs(draft, event),
        "send_event_to_subs" => send_to_subs(draft, event),
        "inbound_pending_subscription_added" => accept_if_configured(draft, event),
        "autoAcceptConfigUpdate" => configure(draft, event),
        "intent_to_delete" if required(event, "Id").is_some() => {
            raise(draft, "subscription_cancellation", event.attributes.clone())?;
            raise(draft, "ready_for_deletion", Value::map::<&str>([]))
        }
        _ => Ok(()),
    }
}

/// Returns the entry of a pending subscription that both sides keep.
fn pending(draft: &mut Draft<'_>, event: &Event) -> Value {
    let mut bus = Value::map::<&str>([]);
    if attribute(event, "Rx_role").is_true() {
        for role in ["Rx_role", "Tx_role"] {
            bus = with(&bus, role, attribute(event, role));
        }
    }
    let host = attribute(event, "Tx_host");
    let own = crate::rulesets::host(draft.body().realm);
    if host.is_true() && host.as_str() != Some(&own) {
        bus = with(&bus, "Tx_host", host);
    }
    let id = match attribute(event, "Id") {
        id if id.is_true() => id,
        _ => draft.fresh.secret().to_string().into(),
    };
    with(&bus, "Id", id)
}

/// Makes a channel for the other side, with the requested tags.
fn channel(draft: &mut Draft<'_>, name: &Value, kind: &Value) -> Result<Value, Stop> {
    let tags = Value::array(vec![name.clone(), kind.clone()]);
    let shape = super::shape(&tags, &Value::Null, &Value::Null)?;
    let channel = draft.new_channel(shape)?;
    Ok(draft.own(channel.secret).to_string().into())
}

fn ask_for(draft: &mut Draft<'_>, event: &Event) -> Result<(), Stop> {
    let well_known = attribute(event, "wellKnown_Tx");
    if !well_known.is_true() {
        return raise(draft, "wellKnown_Tx_format_failure", event.attributes.clone());
    }
    let or = |value: Value, other: &str| if value.is_null() { other.into() } else { value };
    let (name, kind) = (
        or(attribute(event, "name"), "subscription"),
        or(attribute(event, "channel_type"), "Tx_Rx"),
    );
    let rx = channel(draft, &name, &kind)?;
    let bus = with(&pending(draft, event), "wellKnown_Tx", well_known.clone());
    let bus = with(&bus, "Rx", rx.clone());
    append(draft, OUTBOUND, bus.clone())?;
    let mut full = event.attributes.clone();
    for (key, value) in bus.as_map().into_iter().flatten() {
        full = with(&full, key, value.clone());
    }
    let full = with(&with(&full, "channel_name", name), "channel_type", kind);
    raise(draft, "subscription_request_needed", full.clone())?;
    raise(draft, "outbound_pending_subscription_added", full)
}

/// Asks the other side for a subscription. The attributes are from its view.
fn request(draft: &mut Draft<'_>, event: &Event) -> Result<(), Stop> {
    let host = match attribute(event, "Rx_host") {
        host if host.as_str() == Some("localhost") => Value::Null,
        host if host.is_true() => host,
        _ => crate::rulesets::host(draft.body().realm).into(),
    };
    let mut told = event.attributes.clone();
    for (key, value) in [
        ("Rx_role", attribute(event, "Tx_role")),
        ("Tx_role", attribute(event, "Rx_role")),
        ("Tx", attribute(event, "Rx")),
        ("Tx_host", host),
    ] {
        told = if value.is_null() {
            without(&told, key)
        } else {
            with(&told, key, value)
        };
    }
    let to = (&attribute(event, "wellKnown_Tx"), &attribute(event, "Tx_host"));
    tell(draft, to, "new_subscription_request", told)
}

fn asked_for(draft: &mut Draft<'_>, event: &Event) -> Result<(), Stop> {
    let tx = attribute(event, "Tx");
    if !tx.is_true() {
        return raise(draft, "no_Tx_failure", event.attributes.clone());
    }
    let rx = channel(
        draft,
        &attribute(event, "channel_name"),
        &attribute(event, "channel_type"),
    )?;
    let bus = with(&with(&pending(draft, event), "Tx", tx), "Rx", rx.clone());
    let attributes = with(&with(&event.attributes, "Rx", rx), "Id", entry(&bus, "Id"));
    append(draft, INBOUND, bus)?;
    raise(draft, "inbound_pending_subscription_added", attributes)
}

fn approve(draft: &mut Draft<'_>, event: &Event) -> Result<(), Stop> {
    let Some((place, bus)) = find(draft, INBOUND, event) else {
        return Ok(());
    };
    let attributes = with(&event.attributes, "Id", entry(&bus, "Id"));
    let told = with(&attributes, "Tx", entry(&bus, "Rx"));
    let to = (&entry(&bus, "Tx"), &entry(&bus, "Tx_host"));
    tell(draft, to, "outbound_pending_subscription_approved", told)?;
    take(draft, INBOUND, place)?;
    append(draft, ESTABLISHED, bus.clone())?;
    let attributes = with(&attributes, "bus", bus);
    raise(draft, "inbound_pending_subscription_approved", attributes.clone())?;
    raise(draft, "subscription_added", attributes)
}

fn approved(draft: &mut Draft<'_>, event: &Event) -> Result<(), Stop> {
    let Some((place, bus)) = find(draft, OUTBOUND, event) else {
        return Ok(());
    };
    // Accepted only on the channel that was made for the other side.
    if entry(&bus, "Rx") != event.eci.clone().into() {
        return Ok(());
    }
    let bus = without(&with(&bus, "Tx", attribute(event, "Tx")), "wellKnown_Tx");
    take(draft, OUTBOUND, place)?;
    append(draft, ESTABLISHED, bus.clone())?;
    raise(draft, "subscription_added", with(&event.attributes, "bus", bus))
}

fn removed(draft: &mut Draft<'_>, event: &Event, list_name: &str, says: &str) -> Result<(), Stop> {
    let Some((place, bus)) = find(draft, list_name, event) else {
        return Ok(());
    };
    draft.del_channel(&text(&entry(&bus, "Rx")))?;
    take(draft, list_name, place)?;
    raise(draft, says, with(&event.attributes, "bus", bus))
}

fn cancel_all(draft: &mut Draft<'_>, event: &Event) -> Result<(), Stop> {
    let ways = [
        (ESTABLISHED, "subscription_cancellation"),
        (INBOUND, "inbound_rejection"),
        (OUTBOUND, "outbound_cancellation"),
    ];
    for (list_name, way) in ways {
        for bus in list(draft, list_name) {
            raise(draft, way, with(&event.attributes, "Id", entry(&bus, "Id")))?;
        }
    }
    Ok(())
}

fn find_subs(draft: &mut Draft<'_>, event: &Event) -> Result<(), Stop> {
    let established = list(draft, ESTABLISHED);
    let mut found: Vec<Value> = Vec::new();
    for (key, name) in [("Id", "subID"), ("Tx_role", "Tx_role"), ("Rx_role", "Rx_role")] {
        let wanted = attribute(event, name);
        let matching = established
            .iter()
            .filter(|bus| wanted.is_true() && entry(bus, key) == wanted);
        found.extend(matching.cloned());
    }
    let [domain, name] = ["domain", "type"].map(|name| attribute(event, name).is_true());
    if domain && name && !found.is_empty() {
        return raise(
            draft,
            "send_event_to_subs",
            with(&event.attributes, "subs", found.into()),
        );
    }
    let mut why = with(&event.attributes, "foundSubsToSendTo", (!found.is_empty()).into());
    for (key, is_given) in [("domainGiven", domain), ("typeGiven", name)] {
        why = with(&why, key, is_given.into());
    }
    raise(draft, "failed_to_send_event_to_sub", why)
}

fn send_to_subs(draft: &mut Draft<'_>, event: &Event) -> Result<(), Stop> {
    let (domain, name) = (text(&attribute(event, "domain")), text(&attribute(event, "type")));
    let subs = attribute(event, "subs");
    for bus in subs.as_array().unwrap_or_default() {
        let to = (&entry(bus, "Tx"), &entry(bus, "Tx_host"));
        send(draft, to, (&domain, &name), attribute(event, "attrs"))?;
    }
    Ok(())
}

fn configure(draft: &mut Draft<'_>, event: &Event) -> Result<(), Stop> {
    let config = match attribute(event, "config") {
        Value::Null => {
            let entries = text(&attribute(event, "regexMap"));
            let entries = match attribute(event, "regexMap") {
                map @ Value::Map(_) => map,
                _ => serde_json::from_str(&entries).unwrap_or_default(),
            };
            Value::map([
                ("configName", attribute(event, "configName")),
                ("password", attribute(event, "password")),
                ("entries", entries),
            ])
        }
        config => config,
    };
    let name = text(&entry(&config, "configName"));
    if name.is_empty() {
        return raise(draft, "autoAcceptConfigUpdate_failure", event.attributes.clone());
    }
    let path = [name.as_str().into()];
    match attribute(event, "delete").is_true() {
        true => draft.remove(SUBSCRIPTION, "autoAcceptConfig", &path)?,
        false => draft.put(SUBSCRIPTION, "autoAcceptConfig", &path, config)?,
    }
    raise(draft, "auto_accept_config_updated", event.attributes.clone())
}

/// Approves a request if a configured expression matches it.
fn accept_if_configured(draft: &mut Draft<'_>, event: &Event) -> Result<(), Stop> {
    let configs = auto_accept(draft);
    let matches = |name: &str, expressions: &Value| {
        let value = attribute(event, name);
        let expressions = expressions.as_array().unwrap_or_default();
        !value.is_null() && expressions.iter().any(|one| is_match(&text(one), &text(&value)))
    };
    let is_accepted = configs.as_map().into_iter().flatten().any(|(_, config)| {
        let entries = entry(config, "entries");
        entries
            .as_map()
            .into_iter()
            .flatten()
            .any(|(name, expressions)| matches(name, expressions))
    });
    match is_accepted {
        true => {
            raise(draft, "pending_subscription_approval", event.attributes.clone())?;
            raise(draft, "auto_accepted_subscription_request", event.attributes.clone())
        }
        false => Ok(()),
    }
}

fn is_match(expression: &str, text: &str) -> bool {
    regex::Regex::new(expression).is_ok_and(|regex| regex.is_match(text))
}
