//! A serde enum as (variant name, content), without a second parse: the name goes to a record's directory or comes from
//! the route, the content is written and read directly.

use serde::{
    Serialize,
    de::{
        self, DeserializeOwned, DeserializeSeed, EnumAccess, IntoDeserializer, VariantAccess, Visitor,
        value::{Error as ValueError, StrDeserializer},
    },
    ser,
};
type J = serde_json::Error;

/// The value of the variant `name` with this content; empty content is `{}`.
///
/// # Errors
/// The content is not that variant's, or the enum has no such variant.
pub fn from_parts<T: DeserializeOwned>(name: &str, body: &[u8]) -> Result<T, J> {
    T::deserialize(Parts::new(name, body))
}

/// As [`from_parts`], for what a client sends: fields that the variant does not have are refused.
///
/// # Errors
/// The content is not that variant's, the enum has no such variant, or there is a field it does not have; in a sentence.
pub fn from_client<T: DeserializeOwned>(name: &str, body: &[u8]) -> Result<T, String> {
    let mut unknown = None;
    let parts = Parts {
        from_client: true,
        ..Parts::new(name, body)
    };
    let body = parts.body;
    let read = noting(parts, &mut |path| {
        unknown.get_or_insert_with(|| path.to_string());
    });
    match (read, unknown) {
        (Err(why), _) => Err(located(&why, body)),
        (Ok(_), Some(path)) => {
            // Options and variants stand in it as question marks.
            let path: Vec<&str> = path.split('.').filter(|part| *part != "?").collect();
            Err(match path.split_last() {
                Some((field, [])) => format!("unknown field `{field}`"),
                Some((field, parents)) => format!("{}: unknown field `{field}`", parents.join(".")),
                None => "there is an unknown field".into(),
            })
        }
        (Ok(value), None) => Ok(value),
    }
}

/// As [`from_client`], for what was recorded, perhaps by another release: fields that the variant does not have are passed over.
///
/// # Errors
/// As [`from_client`]'s.
pub fn from_recorded<T: DeserializeOwned>(name: &str, body: &[u8]) -> Result<T, String> {
    let parts = Parts::new(name, body);
    let body = parts.body;
    noting(parts, &mut |_| {}).map_err(|why| located(&why, body))
}

/// What reads commands is compiled once for each type, whoever wants to know of unknown fields.
fn noting<T: DeserializeOwned>(parts: Parts<'_>, note: &mut dyn FnMut(serde_ignored::Path<'_>)) -> Result<T, J> {
    serde_ignored::deserialize(parts, note)
}

/// Why a content cannot be read, behind the field at fault.
fn located(error: &J, body: &[u8]) -> String {
    let why = error.to_string();
    if error.line() == 0 {
        return why;
    }
    let lines = body.split_inclusive(|byte| *byte == b'\n');
    let before: usize = lines.take(error.line() - 1).map(<[u8]>::len).sum();
    let path = path_at(&body[..body.len().min(before + error.column())]);
    if path.is_empty() { why } else { format!("{path}: {why}") }
}

/// The field at which the beginning of a JSON text ends: `order.lines[2].cents`.
fn path_at(text: &[u8]) -> String {
    enum Level<'a> {
        Object { key: &'a [u8], is_named: bool },
        Array(usize),
    }
    let mut levels = Vec::new();
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        match first {
            b'{' => levels.push(Level::Object {
                key: &[],
                is_named: false,
            }),
            b'[' => levels.push(Level::Array(0)),
            b'}' | b']' => drop(levels.pop()),
            b',' => match levels.last_mut() {
                Some(Level::Object { is_named, .. }) => *is_named = false,
                Some(Level::Array(at)) => *at += 1,
                None => {}
            },
            b'"' => {
                let mut is_escaped = false;
                let end = behind.iter().position(|byte| {
                    let ends = *byte == b'"' && !is_escaped;
                    is_escaped = *byte == b'\\' && !is_escaped;
                    ends
                });
                let (text, behind) = behind.split_at(end.unwrap_or(behind.len()));
                rest = behind.get(1..).unwrap_or_default();
                if let Some(Level::Object { key, is_named }) = levels.last_mut()
                    && !*is_named
                {
                    (*key, *is_named) = (text, true);
                }
            }
            _ => {}
        }
    }
    let mut path = String::new();
    for level in levels {
        match level {
            Level::Object { is_named: false, .. } => {}
            Level::Object { key, .. } => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(&String::from_utf8_lossy(key));
            }
            Level::Array(at) => path.push_str(&format!("[{at}]")),
        }
    }
    path
}

/// A unit variant from a client that was given some content.
const NO_FIELDS: &str = "this command takes no fields";

struct Parts<'a> {
    name: &'a str,
    body: &'a [u8],
    /// Else it was recorded, perhaps when the variant had fields still.
    from_client: bool,
}
impl<'a> Parts<'a> {
    fn new(name: &'a str, body: &'a [u8]) -> Self {
        Self {
            name,
            body: if body.trim_ascii().is_empty() { b"{}" } else { body },
            from_client: false,
        }
    }
}
impl<'de> de::Deserializer<'de> for Parts<'de> {
    type Error = J;
    fn deserialize_any<V: Visitor<'de>>(self, v: V) -> Result<V::Value, J> {
        v.visit_enum(self)
    }
    serde::forward_to_deserialize_any! { bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any }
}
impl<'de> EnumAccess<'de> for Parts<'de> {
    type Error = J;
    type Variant = Content<'de>;
    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Content<'de>), J> {
        let name: StrDeserializer<'_, ValueError> = self.name.into_deserializer();
        let value = seed.deserialize(name).map_err(<J as de::Error>::custom)?;
        let Self { body, from_client, .. } = self;
        Ok((value, Content { body, from_client }))
    }
}
struct Content<'a> {
    body: &'a [u8],
    from_client: bool,
}
impl Content<'_> {
    /// Nothing, `null`, or an object without a field.
    fn is_empty(&self) -> bool {
        let empty: Result<Option<std::collections::BTreeMap<String, de::IgnoredAny>>, J> =
            serde_json::from_slice(self.body);
        empty.is_ok_and(|fields| fields.is_none_or(|fields| fields.is_empty()))
    }
}
impl<'de> VariantAccess<'de> for Content<'de> {
    type Error = J;
    fn unit_variant(self) -> Result<(), J> {
        match self.from_client && !self.is_empty() {
            true => Err(<J as de::Error>::custom(NO_FIELDS)),
            false => Ok(()),
        }
    }
    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, J> {
        let mut d = serde_json::Deserializer::from_slice(self.body);
        let v = seed.deserialize(&mut d)?;
        d.end()?;
        Ok(v)
    }
    fn tuple_variant<V: Visitor<'de>>(self, _n: usize, v: V) -> Result<V::Value, J> {
        let mut d = serde_json::Deserializer::from_slice(self.body);
        let v = de::Deserializer::deserialize_seq(&mut d, v)?;
        d.end()?;
        Ok(v)
    }
    fn struct_variant<V: Visitor<'de>>(self, _f: &'static [&'static str], v: V) -> Result<V::Value, J> {
        let mut d = serde_json::Deserializer::from_slice(self.body);
        let v = de::Deserializer::deserialize_map(&mut d, v)?;
        d.end()?;
        Ok(v)
    }
}

/// Appends the content to `out` and returns the variant's name.
///
/// # Errors
/// It is not an enum's struct, newtype or unit variant, or cannot be written as JSON.
pub fn to_parts<T: Serialize>(value: &T, out: &mut Vec<u8>) -> Result<&'static str, J> {
    value.serialize(Split { out })
}
struct Split<'a> {
    out: &'a mut Vec<u8>,
}
fn no<T>() -> Result<T, J> {
    Err(<J as ser::Error>::custom(
        "a command or event must be an enum with struct, newtype or unit variants",
    ))
}
macro_rules! refuse { ($($f:ident: $t:ty),*) => { $(fn $f(self, _: $t) -> Result<&'static str, J> { no() })* } }
impl<'a> ser::Serializer for Split<'a> {
    type Ok = &'static str;
    type Error = J;
    type SerializeSeq = ser::Impossible<&'static str, J>;
    type SerializeTuple = ser::Impossible<&'static str, J>;
    type SerializeTupleStruct = ser::Impossible<&'static str, J>;
    type SerializeTupleVariant = ser::Impossible<&'static str, J>;
    type SerializeMap = ser::Impossible<&'static str, J>;
    type SerializeStruct = ser::Impossible<&'static str, J>;
    type SerializeStructVariant = Named<'a>;
    refuse! { serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64, serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64, serialize_f32: f32, serialize_f64: f64, serialize_char: char, serialize_str: &str, serialize_bytes: &[u8], serialize_unit_struct: &'static str }
    fn serialize_none(self) -> Result<&'static str, J> {
        no()
    }
    fn serialize_some<T: ?Sized + Serialize>(self, _: &T) -> Result<&'static str, J> {
        no()
    }
    fn serialize_unit(self) -> Result<&'static str, J> {
        no()
    }
    fn serialize_unit_variant(self, _: &'static str, _: u32, name: &'static str) -> Result<&'static str, J> {
        self.out.extend_from_slice(b"{}");
        Ok(name)
    }
    fn serialize_newtype_struct<T: ?Sized + Serialize>(self, _: &'static str, v: &T) -> Result<&'static str, J> {
        v.serialize(self)
    }
    fn serialize_newtype_variant<T: ?Sized + Serialize>(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        v: &T,
    ) -> Result<&'static str, J> {
        serde_json::to_writer(self.out, v)?;
        Ok(name)
    }
    fn serialize_seq(self, _: Option<usize>) -> Result<Self::SerializeSeq, J> {
        no()
    }
    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, J> {
        no()
    }
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeTupleStruct, J> {
        no()
    }
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, J> {
        no()
    }
    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, J> {
        no()
    }
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeStruct, J> {
        no()
    }
    fn serialize_struct_variant(self, _: &'static str, _: u32, name: &'static str, _: usize) -> Result<Named<'a>, J> {
        self.out.push(b'{');
        Ok(Named {
            name,
            out: self.out,
            first: true,
        })
    }
}
/// A struct variant being written; public only because serde's traits name it.
#[doc(hidden)]
#[allow(unreachable_pub, reason = "an associated type of a public trait")]
pub struct Named<'a> {
    name: &'static str,
    out: &'a mut Vec<u8>,
    first: bool,
}
impl ser::SerializeStructVariant for Named<'_> {
    type Ok = &'static str;
    type Error = J;
    fn serialize_field<T: ?Sized + Serialize>(&mut self, key: &'static str, value: &T) -> Result<(), J> {
        if !self.first {
            self.out.push(b',')
        }
        self.first = false;
        serde_json::to_writer(&mut *self.out, key)?;
        self.out.push(b':');
        serde_json::to_writer(&mut *self.out, value)
    }
    fn end(self) -> Result<&'static str, J> {
        self.out.push(b'}');
        Ok(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Coins {
        cents: u64,
        #[serde(default)]
        of: Option<Box<Coins>>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Command {
        Close,
        Deposit {
            cents: u64,
            #[serde(default, alias = "memo")]
            note: String,
        },
        Pay(Coins),
        Tag {
            #[serde(flatten)]
            rest: std::collections::BTreeMap<String, u64>,
        },
    }

    #[test]
    fn a_client_s_unknown_field_is_named_and_a_recorded_one_is_not_minded() {
        for (name, body, said) in [
            ("deposit", r#"{"cents":1,"amuont":2}"#, "unknown field `amuont`"),
            ("pay", r#"{"cents":1,"of":{"cents":1,"x":2}}"#, "of: unknown field `x`"),
            ("pay", r#"{"cents":1,"y":null}"#, "unknown field `y`"),
        ] {
            let why = from_client::<Command>(name, body.as_bytes()).unwrap_err();
            assert_eq!(why, said);
            assert!(from_parts::<Command>(name, body.as_bytes()).is_ok(), "{body}");
        }
        let why = from_client::<Command>("close", br#"{"at":1}"#).unwrap_err();
        assert_eq!(why, NO_FIELDS);
        assert_eq!(from_parts::<Command>("close", br#"{"at":1}"#).unwrap(), Command::Close);
    }

    #[test]
    fn a_client_is_given_what_the_type_says() {
        for body in ["", " {} ", "null"] {
            assert_eq!(from_client::<Command>("close", body.as_bytes()), Ok(Command::Close));
        }
        let deposit = Command::Deposit {
            cents: 1,
            note: "x".into(),
        };
        assert_eq!(from_client("deposit", br#"{"cents":1,"memo":"x"}"#), Ok(deposit));
        let tag = from_client::<Command>("tag", br#"{"a":1}"#).unwrap();
        assert!(matches!(tag, Command::Tag { rest } if rest["a"] == 1), "it takes any");
        let why = from_client::<Command>("deposit", br#"{"cents":"1"}"#).unwrap_err();
        assert!(why.starts_with("cents: invalid type"), "{why}");
    }

    #[test]
    fn what_cannot_be_read_is_said_behind_the_field_it_stands_in() {
        #[derive(Debug, PartialEq, Deserialize)]
        enum Order {
            Place { lines: Vec<Line> },
        }
        #[derive(Debug, PartialEq, Deserialize)]
        struct Line {
            of: Coins,
            side: Option<Side>,
        }
        #[derive(Debug, PartialEq, Deserialize)]
        enum Side {
            Buy,
            Sell { at: u64 },
        }
        let written = br#"{"lines":[{"of":{"cents":1},"side":{"Sell":{"at":2}}}]}"#;
        let line = Line {
            of: Coins { cents: 1, of: None },
            side: Some(Side::Sell { at: 2 }),
        };
        assert_eq!(from_client("Place", written), Ok(Order::Place { lines: vec![line] }));
        for (body, said) in [
            (r#"{"lines":7}"#, "lines: invalid type: integer `7`"),
            (
                r#"{"lines":[{"of":{"cents":1}}, {"of":{"cents":-1}}]}"#,
                "lines[1].of.cents: invalid value",
            ),
            (
                "{\n \"lines\":\n[{\"of\":\n{\"cents\":\n\"1\"}}]}",
                "lines[0].of.cents: invalid type",
            ),
            (
                r#"{"a\"]}":1,"lines":[{"of":{}}]}"#,
                "lines[0].of: missing field `cents`",
            ),
            (r#"{"lines":[{"side":"Buy"}]}"#, "lines[0]: missing field `of`"),
            (
                r#"{"lines":[{"of":{"cents":1},"side":"Keep"}]}"#,
                "lines[0].side: unknown variant `Keep`",
            ),
            (
                r#"{"lines":[{"of":{"cents":1},"side":{"Sell":{"at":"x"}}}]}"#,
                "lines[0].side.Sell.at: invalid type",
            ),
            (
                r#"{"lines":[{"of":{"cents":1,"cents":2}}]}"#,
                "lines[0].of.cents: duplicate field",
            ),
            (r#"{"lines":[{"of":{"cents":1}"#, "lines[0].of: EOF"),
            (r#"{"lines":[]}]"#, "trailing characters"),
            (r#"{}"#, "missing field `lines`"),
            (r#"x"#, "expected value"),
        ] {
            for read in [from_client::<Order>, from_recorded] {
                let why = read("Place", body.as_bytes()).unwrap_err();
                assert!(why.starts_with(said), "{body}: {why}");
            }
        }
        let why = from_recorded::<Order>("Sell", b"{}").unwrap_err();
        assert!(why.starts_with("unknown variant `Sell`"), "{why}");
    }
}
