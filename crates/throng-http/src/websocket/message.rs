//! The messages of a client, without I/O.

use super::CREDIT_MAX;
use crate::{key::checked_key, problem::Problem};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value, value::RawValue};
use std::{borrow::Cow, fmt, marker::PhantomData, time::Duration, vec};
use throng::journal::byte_order_mark;

/// The number of messages of a frame up to which all are parsed at once, since parsed messages take a multiple of their bytes.
const AT_ONCE_MAX: usize = 256;
/// Bytes of an id that is text.
const ID_BYTES_MAX: usize = 64;

/// The client's own id of a request or subscription, which its answers carry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Id {
    Number(u64),
    Text(Box<str>),
}

#[derive(Debug)]
pub(crate) enum Message<'a> {
    Command(CommandMessage<'a>),
    Query(Query<'a>),
    Subscribe(Subscribe<'a>),
    Credit(u32),
    Unsubscribe,
}

/// A client's frame `{"type":"command",…}`
#[derive(Debug)]
pub(crate) struct CommandMessage<'a> {
    pub(super) kind: Cow<'a, str>,
    pub(super) entity: Cow<'a, str>,
    pub(super) command: Cow<'a, str>,
    /// The command's content, as in the frame.
    pub(super) body: &'a str,
    pub(super) key: Option<String>,
    pub(super) timeout: Option<Duration>,
    pub(super) traceparent: Option<Cow<'a, str>>,
}

impl CommandMessage<'_> {
    /// True if the command sets no timeout and no trace parent, so that all such commands have the same deadline. Answers leave in order: a
    /// command with a longer deadline would delay the answers after it.
    pub(super) fn is_plain(&self) -> bool {
        self.timeout.is_none() && self.traceparent.is_none()
    }
}

/// A client's frame `{"type":"query",…}`
#[derive(Debug)]
pub(crate) struct Query<'a> {
    pub(super) kind: Cow<'a, str>,
    pub(super) entity: Cow<'a, str>,
    pub(super) query: Option<Cow<'a, str>>,
    /// The arguments as a query string.
    pub(super) arguments: String,
    pub(super) timeout: Option<Duration>,
    pub(super) traceparent: Option<Cow<'a, str>>,
}

impl Query<'_> {
    /// Copies the query, so that it outlives its frame.
    pub(super) fn into_owned(self) -> Query<'static> {
        let own = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        Query {
            kind: own(self.kind),
            entity: own(self.entity),
            query: self.query.map(own),
            arguments: self.arguments,
            timeout: self.timeout,
            traceparent: self.traceparent.map(own),
        }
    }
}

/// A client's frame `{"type":"subscribe",…}`
#[derive(Debug)]
pub(crate) struct Subscribe<'a> {
    pub(super) kind: Cow<'a, str>,
    pub(super) entity: Option<Cow<'a, str>>,
    pub(super) after: Option<After<'a>>,
    pub(super) credit: u32,
}

/// The point after which a subscription begins.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum After<'a> {
    Seq(u64),
    Cursor(Cow<'a, str>),
}

/// Returns the messages of a frame: one, or an array of up to `most`. Each comes with its id.
/// A message that cannot be read comes with a problem, and with its id if that could be read.
///
/// # Errors
/// A problem: there are too many messages, or an array is not JSON.
pub(crate) fn messages(frame: &str, most: usize) -> Result<Messages<'_>, Box<Problem>> {
    if !frame.trim_start().starts_with('[') {
        return Ok(Messages::Each(vec![frame].into_iter()));
    }
    // All are parsed at once, if they are few and none of them is malformed.
    if let Ok(all) = array::<Fields<'_>>(frame, most.min(AT_ONCE_MAX)) {
        return Ok(Messages::All(all.into_iter()));
    }
    let each = array::<&RawValue>(frame, most)?;
    let each: Vec<&str> = each.into_iter().map(RawValue::get).collect();
    Ok(Messages::Each(each.into_iter()))
}

/// The messages of a frame, in its order.
pub(crate) enum Messages<'a> {
    All(vec::IntoIter<Fields<'a>>),
    /// Messages that are read separately, so that an error in one concerns that one alone.
    Each(vec::IntoIter<&'a str>),
}

impl<'a> Iterator for Messages<'a> {
    type Item = (Option<Id>, Result<Message<'a>, Box<Problem>>);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::All(all) => all.next().map(of_fields),
            Self::Each(each) => each.next().map(read),
        }
    }
}

fn array<'a, T: Deserialize<'a>>(frame: &'a str, most: usize) -> Result<Vec<T>, Box<Problem>> {
    let mut array = Array {
        most,
        has_more: false,
        of: PhantomData,
    };
    let mut frame = serde_json::Deserializer::from_str(frame);
    let read = frame.deserialize_seq(&mut array);
    if array.has_more {
        return Err(Problem::too_many_messages(most).boxed());
    }
    let read = read.and_then(|read| frame.end().map(|()| read));
    read.map_err(|why| unreadable(&why))
}

struct Array<T> {
    most: usize,
    has_more: bool,
    of: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> de::Visitor<'de> for &mut Array<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("messages")
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut frame: A) -> Result<Self::Value, A::Error> {
        let mut messages = Vec::new();
        while let Some(message) = frame.next_element()? {
            if messages.len() == self.most {
                self.has_more = true;
                return Err(de::Error::custom("too many messages"));
            }
            messages.push(message);
        }
        Ok(messages)
    }
}

fn read(message: &str) -> (Option<Id>, Result<Message<'_>, Box<Problem>>) {
    match serde_json::from_str(message) {
        Ok(fields) => of_fields(fields),
        Err(why) => {
            #[derive(Deserialize)]
            struct Only {
                id: Id,
            }
            let id = serde_json::from_str::<Only>(message).ok().map(|only| only.id);
            let problem = match byte_order_mark(message.as_bytes()) {
                Some(why) => Problem::unreadable("The frame", why).boxed(),
                None => unreadable(&why),
            };
            (id, Err(problem))
        }
    }
}

fn of_fields(mut fields: Fields<'_>) -> (Option<Id>, Result<Message<'_>, Box<Problem>>) {
    let id = fields.id.take();
    if id.is_none() {
        return (
            None,
            Err(missing(
                "id",
                "a number or a text of your choice: the answer carries it",
            )),
        );
    }
    (id, message_of(fields))
}

fn message_of(fields: Fields<'_>) -> Result<Message<'_>, Box<Problem>> {
    let timeout = fields.timeout_ms.map(Duration::from_millis);
    let kind = |kind| need(kind, "kind", "the kind of entity");
    let entity = |entity| need(entity, "entity", "the entity's id");
    match &*fields.is.0 {
        "command" => Ok(Message::Command(CommandMessage {
            kind: kind(fields.kind)?,
            entity: entity(fields.entity)?,
            command: need(fields.command, "command", "the command's name")?,
            body: fields.body.map_or("", RawValue::get),
            key: fields.key.map(key).transpose()?,
            timeout,
            traceparent: of(fields.traceparent),
        })),
        "query" => Ok(Message::Query(Query {
            kind: kind(fields.kind)?,
            entity: entity(fields.entity)?,
            query: of(fields.query),
            arguments: arguments(fields.arguments)?,
            timeout,
            traceparent: of(fields.traceparent),
        })),
        "subscribe" => Ok(Message::Subscribe(Subscribe {
            kind: kind(fields.kind)?,
            entity: of(fields.entity),
            after: fields.after,
            credit: credit(fields.credit)?,
        })),
        "credit" => Ok(Message::Credit(credit(fields.credit)?)),
        "unsubscribe" => Ok(Message::Unsubscribe),
        other => {
            let detail = format!("The type is {other:?}; there are: command, query, subscribe, credit, unsubscribe.");
            Err(Problem::malformed(detail).at_field("type").boxed())
        }
    }
}

fn of(text: Option<Text<'_>>) -> Option<Cow<'_, str>> {
    text.map(|text| text.0)
}

fn need<'a>(field: Option<Text<'a>>, name: &str, what: &str) -> Result<Cow<'a, str>, Box<Problem>> {
    field.map(|text| text.0).ok_or_else(|| missing(name, what))
}

fn missing(name: &str, what: &str) -> Box<Problem> {
    Problem::malformed(format!("The field {name} is missing: {what}."))
        .at_field(name)
        .boxed()
}

fn key(text: Text<'_>) -> Result<String, Box<Problem>> {
    let wrong = |wrong| Problem::malformed(format!("The key {wrong}.")).at_field("key").boxed();
    checked_key(text.0.as_bytes()).map_err(wrong)
}

fn credit(credit: Option<u32>) -> Result<u32, Box<Problem>> {
    match credit {
        Some(credit @ 1..=CREDIT_MAX) => Ok(credit),
        Some(found) => {
            let detail = format!("credit is {found}; it may be 1 to {CREDIT_MAX} events.");
            Err(Problem::malformed(detail).at_field("credit").boxed())
        }
        None => Err(missing("credit", "how many events you are ready to take")),
    }
}

/// The fields of a query, as the query string of its HTTP route.
fn arguments(fields: Option<Map<String, Value>>) -> Result<String, Box<Problem>> {
    let wrong = |name: &str| {
        let detail = format!("arguments.{name} is not a text, a number, a boolean or null.");
        Problem::malformed(detail).at_field(format!("arguments.{name}")).boxed()
    };
    let mut written = Vec::new();
    for (name, value) in fields.unwrap_or_default() {
        match value {
            Value::Null => {}
            Value::String(text) => written.push((name, text)),
            Value::Number(number) => written.push((name, number.to_string())),
            Value::Bool(is) => written.push((name, is.to_string())),
            Value::Array(_) | Value::Object(_) => return Err(wrong(&name)),
        }
    }
    if written.is_empty() {
        return Ok(String::new());
    }
    serde_urlencoded::to_string(&written).map_err(|_| wrong("?"))
}

fn unreadable(why: &serde_json::Error) -> Box<Problem> {
    let what = match why.is_data() {
        true => "The message cannot be read",
        false => "The frame is not JSON",
    };
    Problem::of_json(what, why).boxed()
}

/// The fields of all messages.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fields<'a> {
    #[serde(rename = "type", borrow)]
    is: Text<'a>,
    id: Option<Id>,
    #[serde(borrow)]
    kind: Option<Text<'a>>,
    #[serde(borrow)]
    entity: Option<Text<'a>>,
    #[serde(borrow)]
    command: Option<Text<'a>>,
    #[serde(borrow)]
    query: Option<Text<'a>>,
    #[serde(borrow)]
    body: Option<&'a RawValue>,
    arguments: Option<Map<String, Value>>,
    #[serde(borrow)]
    key: Option<Text<'a>>,
    timeout_ms: Option<u64>,
    #[serde(borrow)]
    traceparent: Option<Text<'a>>,
    #[serde(borrow)]
    after: Option<After<'a>>,
    credit: Option<u32>,
}

/// A text, borrowed where it holds no escapes.
#[derive(Debug)]
struct Text<'a>(Cow<'a, str>);

struct TextVisitor;

impl<'de> de::Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

struct IdVisitor;

impl de::Visitor<'_> for IdVisitor {
    type Value = Id;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "an id: a whole number from 0, or a string of 1 to {ID_BYTES_MAX} bytes"
        )
    }

    fn visit_u64<E>(self, number: u64) -> Result<Id, E> {
        Ok(Id::Number(number))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Id, E> {
        if (1..=ID_BYTES_MAX).contains(&text.len()) {
            Ok(Id::Text(text.into()))
        } else {
            Err(E::invalid_length(text.len(), &self))
        }
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IdVisitor)
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(number) => serializer.serialize_u64(*number),
            Self::Text(text) => serializer.serialize_str(text),
        }
    }
}

struct AfterVisitor;

impl<'de> de::Visitor<'de> for AfterVisitor {
    type Value = After<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence number, or a cursor as the service gave it")
    }

    fn visit_u64<E>(self, seq: u64) -> Result<After<'de>, E> {
        Ok(After::Seq(seq))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<After<'de>, E> {
        Ok(After::Cursor(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<After<'de>, E> {
        Ok(After::Cursor(Cow::Owned(text.to_owned())))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for After<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AfterVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the sentence and field of the message's problem.
    fn problem(text: &str) -> (String, Option<String>) {
        let problem = read(text).1.unwrap_err();
        let shown = serde_json::to_value(&*problem).unwrap();
        (problem.detail().to_owned(), shown["field"].as_str().map(str::to_owned))
    }

    #[test]
    fn a_frame_is_one_message_or_an_array_of_them() {
        let ids = |frame: &str, most: usize| {
            let read = messages(frame, most).map_err(|problem| problem.detail().to_owned())?;
            Ok(read.map(|(id, read)| (id, read.is_ok())).collect::<Vec<_>>())
        };
        let told = |id, is_read| (Some(Id::Number(id)), is_read);
        let end = |id: u64| format!(r#"{{"type":"unsubscribe","id":{id}}}"#);
        assert_eq!(ids(&format!(" {} ", end(1)), 1), Ok(vec![told(1, true)]));
        let all = format!(" [{}, {},{} ]", end(1), end(2), end(3));
        assert_eq!(ids(&all, 3), Ok(vec![told(1, true), told(2, true), told(3, true)]));
        // An error in one message does not affect the others.
        let one_is_wrong = format!(r#"[{}, 2,{{"id":3}},"[",{}]"#, end(1), end(4));
        let expected = vec![
            told(1, true),
            (None, false),
            told(3, false),
            (None, false),
            told(4, true),
        ];
        assert_eq!(ids(&one_is_wrong, 5), Ok(expected));
        for frame in [&all, &one_is_wrong] {
            let detail: String = ids(frame, 2).unwrap_err();
            assert!(detail.contains("may hold 2 messages"), "{detail}");
        }
        assert_eq!(ids("[]", 0), Ok(Vec::new()));
        let one = ["", "{", "no", r#"{"type":"unsubscribe","id":1} {}"#];
        let one = one.map(|wrong| read(wrong).1.unwrap_err().detail().to_owned());
        let many = ["[1,", "[1] 2"].map(|wrong| ids(wrong, 1).unwrap_err());
        for detail in one.iter().chain(&many) {
            assert!(detail.starts_with("The frame is not JSON"), "{detail}");
        }
    }

    #[test]
    fn a_command_takes_its_body_as_it_stands() {
        let raw = r#"{"type":"command","id":7,"kind":"section","entity":"C \"S\"","command":"add","body":{ "student" : "7" },"key":"k","timeout_ms":250}"#;
        let (id, Ok(Message::Command(command))) = read(raw) else {
            panic!("not a command")
        };
        assert_eq!(id, Some(Id::Number(7)));
        assert_eq!(
            (&*command.kind, &*command.entity, &*command.command),
            ("section", "C \"S\"", "add")
        );
        assert_eq!(
            (command.body, command.key.as_deref()),
            (r#"{ "student" : "7" }"#, Some("k"))
        );
        assert_eq!(command.timeout, Some(Duration::from_millis(250)));
        assert!(
            matches!(command.kind, Cow::Borrowed(_)),
            "nothing is copied that need not be"
        );
    }

    #[test]
    fn the_arguments_of_a_query_are_a_query_string() {
        let raw = r#"{"type":"query","id":"q","kind":"section","entity":"S1","query":"roster","arguments":{"after":"a&b","limit":7,"all":true,"none":null}}"#;
        let (Some(Id::Text(id)), Ok(Message::Query(query))) = read(raw) else {
            panic!("not a query")
        };
        assert_eq!((&*id, query.query.as_deref()), ("q", Some("roster")));
        let mut fields: Vec<&str> = query.arguments.split('&').collect();
        fields.sort_unstable();
        assert_eq!(fields, ["after=a%26b", "all=true", "limit=7"]);
    }

    #[test]
    fn errors_are_named_with_the_id_of_their_message() {
        assert_eq!(problem("7").1, None);
        assert_eq!(problem(r#"{"type":"credit","credit":1}"#).1.as_deref(), Some("id"));
        assert_eq!(problem(r#"{"type":"dance","id":1}"#).1.as_deref(), Some("type"));
        assert_eq!(problem(r#"{"type":"credit","id":1}"#).1.as_deref(), Some("credit"));
        assert_eq!(
            problem(r#"{"type":"credit","id":1,"credit":0}"#).1.as_deref(),
            Some("credit")
        );
        assert_eq!(
            problem(r#"{"type":"credit","id":1,"credit":10001}"#).1.as_deref(),
            Some("credit")
        );
        assert_eq!(
            problem(r#"{"type":"credit","id":1,"crédit":1}"#).1.as_deref(),
            Some("crédit")
        );
        let command = |more: &str| problem(&format!(r#"{{"type":"command","id":1,"kind":"k"{more}}}"#)).1;
        assert_eq!(command("").as_deref(), Some("entity"));
        assert_eq!(command(r#","entity":"e""#).as_deref(), Some("command"));
        assert_eq!(
            command(r#","entity":"e","command":"c","key":"""#).as_deref(),
            Some("key")
        );
        let nested = problem(r#"{"type":"query","id":1,"kind":"k","entity":"e","arguments":{"a":[1]}}"#);
        assert_eq!(nested.1.as_deref(), Some("arguments.a"));
        let raw = r#"{"type":"command","id":"mine","kind":7}"#;
        assert_eq!(read(raw).0, Some(Id::Text("mine".into())));
    }

    #[test]
    fn an_id_is_a_number_or_a_short_text() {
        let id = |text: &str| serde_json::from_str::<Id>(text).ok();
        assert_eq!(id("0"), Some(Id::Number(0)));
        assert_eq!(id("18446744073709551615"), Some(Id::Number(u64::MAX)));
        let longest = "x".repeat(64);
        assert_eq!(id(&format!("{longest:?}")), Some(Id::Text(longest.clone().into())));
        for wrong in ["-1", "1.5", "null", "\"\"", "[]", &format!("\"{longest}x\"")] {
            assert_eq!(id(wrong), None, "{wrong}");
        }
    }
}
