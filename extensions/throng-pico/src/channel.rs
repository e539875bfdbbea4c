//! Channels and their policies.

use crate::{
    id::{PicoId, Secret},
    intern::Interned,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;

/// The most rules of a policy, and the most tags of a channel.
const RULES_MAX: usize = 1_000;
/// The most bytes of a tag, or of one part of a rule.
const TEXT_BYTES_MAX: usize = 1_024;

/// A channel: a way into a pico.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Channel {
    /// The part that makes it unguessable.
    pub secret: Secret,
    /// The only pico that may use the channel. With `None`, anyone who has the ECI may use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<PicoId>,
    /// The tags and policies, shared by all channels with equal ones.
    #[serde(flatten, with = "shared")]
    pub shape: Arc<Shape>,
}

/// The attributes that many channels share.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shape {
    /// The normalized tags, in the given order.
    pub tags: Vec<Box<str>>,
    /// The events that are allowed.
    pub event_policy: Policy<EventRule>,
    /// The queries that are allowed.
    pub query_policy: Policy<QueryRule>,
}

/// A policy. It allows what at least one `allow` rule matches and no `deny` rule matches.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Policy<R> {
    /// The rules of which at least one must match.
    pub allow: Vec<R>,
    /// The rules of which none may match. They are checked first.
    pub deny: Vec<R>,
}

/// A rule for events, by domain and name. `*` matches any.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EventRule {
    domain: Box<str>,
    name: Box<str>,
}

/// A rule for queries, by ruleset and name. `*` matches any.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct QueryRule {
    rid: Box<str>,
    name: Box<str>,
}

/// The reason why a channel refuses an event or a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A rule of `deny` matches. Then `allow` does not count.
    Denied,
    /// No rule allows it.
    NotAllowed,
}

/// The error for invalid tags or an invalid policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidShape(pub String);

/// A rule for events or for queries: two parts, each a name or `*`.
pub trait Rule: Sized {
    /// The names of the two parts.
    const PARTS: [&'static str; 2];
    /// Returns a rule of these two parts.
    fn of(first: &str, second: &str) -> Self;
    /// Returns the two parts: domain and name, or ruleset and name.
    fn parts(&self) -> [&str; 2];
}

impl Rule for EventRule {
    const PARTS: [&'static str; 2] = ["domain", "name"];

    fn of(first: &str, second: &str) -> Self {
        Self {
            domain: first.into(),
            name: second.into(),
        }
    }

    fn parts(&self) -> [&str; 2] {
        [&self.domain, &self.name]
    }
}

impl Rule for QueryRule {
    const PARTS: [&'static str; 2] = ["rid", "name"];

    fn of(first: &str, second: &str) -> Self {
        Self {
            rid: first.into(),
            name: second.into(),
        }
    }

    fn parts(&self) -> [&str; 2] {
        [&self.rid, &self.name]
    }
}

impl<R: Rule> Policy<R> {
    /// Returns the default policy of a channel.
    #[must_use]
    pub fn all() -> Self {
        Self::only(&[("*", "*")])
    }

    /// Returns a policy that allows only these.
    #[must_use]
    pub fn only(rules: &[(&str, &str)]) -> Self {
        Self {
            allow: rules.iter().map(|(first, second)| R::of(first, second)).collect(),
            deny: Vec::new(),
        }
    }

    /// Checks that the policy allows an event or a query.
    ///
    /// # Errors
    ///
    /// [`Refused`]: it does not.
    pub fn check(&self, first: &str, second: &str) -> Result<(), Refused> {
        let matches = |rules: &[R]| {
            rules.iter().any(|rule| {
                let [a, b] = rule.parts();
                (a == "*" || a == first) && (b == "*" || b == second)
            })
        };
        match (matches(&self.deny), matches(&self.allow)) {
            (true, _) => Err(Refused::Denied),
            (false, true) => Ok(()),
            (false, false) => Err(Refused::NotAllowed),
        }
    }

    /// Reads a policy as a client writes it: a map of exactly `allow` and `deny`, both lists of maps of exactly two texts. Null allows everything.
    ///
    /// # Errors
    ///
    /// [`InvalidShape`]: the value has another form.
    pub fn read(value: &Value, what: &str) -> Result<Self, InvalidShape> {
        if value.is_null() {
            return Ok(Self::all());
        }
        let invalid = |why: String| InvalidShape(format!("{what}: {why}"));
        let Some(map) = value.as_object() else {
            return Err(invalid("expected a map of `allow` and `deny`".into()));
        };
        if let Some(other) = map.keys().find(|key| !matches!(key.as_str(), "allow" | "deny")) {
            return Err(invalid(format!("expected exactly `allow` and `deny`, found {other:?}")));
        }
        let rules = |name: &str| {
            let list = map.get(name).and_then(Value::as_array);
            let list = list.ok_or_else(|| invalid(format!("expected a list in `{name}`")))?;
            if list.len() > RULES_MAX {
                return Err(invalid(format!(
                    "`{name}` has {} rules, at most {RULES_MAX} are allowed",
                    list.len()
                )));
            }
            list.iter().map(|rule| read_rule(rule).map_err(invalid)).collect()
        };
        Ok(Self {
            allow: rules("allow")?,
            deny: rules("deny")?,
        })
    }
}

fn read_rule<R: Rule>(rule: &Value) -> Result<R, String> {
    let [first, second] = R::PARTS;
    let expected = || format!("expected a rule of exactly `{first}` and `{second}`, found {rule}");
    let map = rule.as_object().filter(|map| map.len() == 2).ok_or_else(expected)?;
    let part = |name: &str| {
        let text = map
            .get(name)
            .and_then(Value::as_str)
            .map(str::trim)
            .ok_or_else(expected)?;
        match text.len() {
            0 => Err(format!("`{name}` of a rule is blank")),
            1..=TEXT_BYTES_MAX => Ok(text),
            bytes => Err(format!(
                "`{name}` of a rule has {bytes} bytes, at most {TEXT_BYTES_MAX} are allowed"
            )),
        }
    };
    Ok(R::of(part(first)?, part(second)?))
}

/// Reads and normalizes tags. They become lower case, and `-` replaces each character other than `a-z`, `0-9`, `_` and `-`.
///
/// # Errors
///
/// [`InvalidShape`]: a tag is blank or reserved, or there are too many.
pub fn read_tags(value: &Value) -> Result<Vec<Box<str>>, InvalidShape> {
    let texts: Vec<&str> = match value {
        Value::Null => Vec::new(),
        Value::String(text) => text.split(',').collect(),
        Value::Array(list) => {
            let texts = list.iter().map(Value::as_str).collect::<Option<_>>();
            texts.ok_or_else(|| InvalidShape(format!("tags: expected texts, found {value}")))?
        }
        other => return Err(InvalidShape(format!("tags: expected a list of texts, found {other}"))),
    };
    if texts.len() > RULES_MAX {
        return Err(InvalidShape(format!(
            "there are {} tags, at most {RULES_MAX} are allowed",
            texts.len()
        )));
    }
    texts.into_iter().map(clean_tag).collect()
}

fn clean_tag(text: &str) -> Result<Box<str>, InvalidShape> {
    let clean = |c: char| {
        if matches!(c, 'a'..='z' | '0'..='9' | '_' | '-') {
            c
        } else {
            '-'
        }
    };
    let tag: String = text.trim().to_lowercase().chars().map(clean).collect();
    match tag.as_str() {
        "" => Err(InvalidShape("a tag is blank".into())),
        "system" => Err(InvalidShape("the tag \"system\" is reserved".into())),
        tag if tag.len() > TEXT_BYTES_MAX => Err(InvalidShape(format!("a tag has more than {TEXT_BYTES_MAX} bytes"))),
        tag => Ok(tag.into()),
    }
}

impl Shape {
    /// Reads the tags and policies of a channel as a client writes them.
    ///
    /// # Errors
    ///
    /// [`InvalidShape`]: one of the three has another form.
    pub fn read(tags: &Value, events: &Value, queries: &Value) -> Result<Self, InvalidShape> {
        Ok(Self {
            tags: read_tags(tags)?,
            event_policy: Policy::read(events, "eventPolicy")?,
            query_policy: Policy::read(queries, "queryPolicy")?,
        })
    }

    /// Returns a shape with these tags that allows everything.
    #[must_use]
    pub fn open(tags: &[&str]) -> Self {
        Self {
            tags: tags.iter().map(|tag| (*tag).into()).collect(),
            event_policy: Policy::all(),
            query_policy: Policy::all(),
        }
    }

    /// True if it has exactly these tags, in any order.
    #[must_use]
    pub fn is_tagged(&self, tags: &[&str]) -> bool {
        self.tags.len() == tags.len() && tags.iter().all(|tag| self.tags.iter().any(|own| &**own == *tag))
    }
}

impl Channel {
    pub(crate) fn new(secret: Secret, family: Option<PicoId>, shape: Shape) -> Self {
        Self {
            secret,
            family,
            shape: shared::intern(shape),
        }
    }

    /// True if it was made together with the pico. Such a channel cannot be edited or deleted.
    #[must_use]
    pub fn is_system(&self) -> bool {
        self.shape.tags.first().is_some_and(|tag| &**tag == "system")
    }

    /// Returns the channel as shown to clients.
    #[must_use]
    pub fn shown(&self, pico: PicoId) -> Value {
        let eci = crate::id::Eci::new(pico, self.secret);
        json!({
            "id": eci,
            "tags": self.shape.tags,
            "eventPolicy": self.shape.event_policy,
            "queryPolicy": self.shape.query_policy,
            "familyChannelPicoID": self.family,
        })
    }
}

/// Serializes a shape with each channel. In memory, equal shapes are one.
mod shared {
    use super::{Interned, Shape};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::sync::Arc;

    static SHAPES: Interned<Shape> = Interned::new();

    pub(super) fn intern(shape: Shape) -> Arc<Shape> {
        SHAPES.get(shape)
    }

    pub(super) fn serialize<S: Serializer>(shape: &Arc<Shape>, serializer: S) -> Result<S::Ok, S::Error> {
        shape.as_ref().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<Shape>, D::Error> {
        Shape::deserialize(deserializer).map(intern)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(value: Value) -> Result<Policy<EventRule>, InvalidShape> {
        Policy::read(&value, "eventPolicy")
    }

    #[test]
    fn a_denial_outweighs_every_allowance() {
        let policy = events(
            json!({ "allow": [{ "domain": "section", "name": "*" }], "deny": [{ "domain": "*", "name": "drop" }] }),
        )
        .unwrap();
        assert_eq!(policy.check("section", "add"), Ok(()));
        assert_eq!(policy.check("section", "drop"), Err(Refused::Denied));
        assert_eq!(policy.check("other", "add"), Err(Refused::NotAllowed));
        assert_eq!(events(Value::Null).unwrap().check("any", "thing"), Ok(()));
    }

    #[test]
    fn a_policy_has_exactly_its_two_lists_and_a_rule_its_two_texts() {
        for (value, says) in [
            (json!({ "allow": [], "deny": [], "ask": [] }), "ask"),
            (json!({ "allow": [] }), "deny"),
            (json!([]), "expected a map"),
            (json!({ "allow": {}, "deny": [] }), "allow"),
            (
                json!({ "allow": [{ "domain": "a" }], "deny": [] }),
                "exactly `domain` and `name`",
            ),
            (
                json!({ "allow": [{ "domain": "a", "name": "b", "rid": "c" }], "deny": [] }),
                "exactly",
            ),
            (
                json!({ "allow": [{ "domain": " ", "name": "b" }], "deny": [] }),
                "blank",
            ),
            (
                json!({ "allow": [{ "domain": 7, "name": "b" }], "deny": [] }),
                "exactly",
            ),
        ] {
            let said = events(value).unwrap_err().to_string();
            assert!(said.contains(says), "{said}");
        }
    }

    #[test]
    fn tags_are_cleaned_and_system_is_no_tag_of_a_client() {
        let tags = |value: Value| read_tags(&value).map(|tags| tags.join(","));
        assert_eq!(tags(json!(["UI", "My Tag!", "a_b-1"])).unwrap(), "ui,my-tag-,a_b-1");
        assert_eq!(tags(json!("one, two")).unwrap(), "one,two");
        for wrong in [
            json!(["system"]),
            json!(["System"]),
            json!([" "]),
            json!([7]),
            json!({}),
        ] {
            assert!(tags(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn channels_that_are_alike_share_their_policies() {
        let channel = || Channel::new(Secret(1), None, Shape::open(&["a"]));
        let read: Channel = serde_json::from_str(&serde_json::to_string(&channel()).unwrap()).unwrap();
        assert!(Arc::ptr_eq(&channel().shape, &read.shape));
        assert_eq!(read.secret, Secret(1));
    }
}
