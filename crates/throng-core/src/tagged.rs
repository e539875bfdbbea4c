//! Reads and writes a serde enum as variant name and content, without a second parse. The name goes to a record's directory or comes from
//! the route; the content is read and written directly.

use serde::{
    Serialize,
    de::{
        self, DeserializeOwned, DeserializeSeed, EnumAccess, IntoDeserializer, VariantAccess, Visitor,
        value::{Error as ValueError, StrDeserializer},
    },
    ser,
};
use throng_journal::byte_order_mark;

type J = serde_json::Error;

/// Returns the variant `name` with this content. Empty content counts as `{}`.
///
/// # Errors
/// The content is not that variant's, or there is no such variant. [`explain`] describes it in a sentence.
pub fn from_parts<T: DeserializeOwned>(name: &str, body: &[u8]) -> Result<T, J> {
    T::deserialize(Parts::new(name, body))
}

/// Reads what a client sends, like [`from_parts`], but refuses fields that the variant does not have.
///
/// # Errors
/// A sentence: the content is not that variant's, there is no such variant, or a field is unknown.
pub fn from_client<T: DeserializeOwned>(name: &str, body: &[u8]) -> Result<T, String> {
    let mut unknown = None;
    let parts = Parts {
        from_client: true,
        ..Parts::new(name, body)
    };
    let read = serde_ignored::deserialize(parts, |path| {
        unknown.get_or_insert_with(|| path.to_string());
    });
    match (read, unknown) {
        (Err(why), _) if why.to_string() == NO_FIELDS => Err(NO_FIELDS.into()),
        (Err(_), _) => Err(match byte_order_mark(body) {
            Some(why) => format!("the content cannot be read: {why}"),
            None => explain::<T>(name, body),
        }),
        (Ok(_), Some(path)) => {
            // The path has question marks for options and variants.
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

/// Explains why [`from_parts`] fails, with the field at fault. Parses the content again, slowly.
#[must_use]
pub fn explain<T: DeserializeOwned>(name: &str, body: &[u8]) -> String {
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(Parts::new(name, body), &mut track);
    // The code after the path does not depend on the type, so that it is compiled once.
    let mut tracked = <dyn erased_serde::Deserializer<'_>>::erase(tracked);
    match erased_serde::deserialize::<T>(&mut tracked) {
        Ok(_) => "the content could not be read".into(),
        Err(error) => {
            drop(tracked);
            let path = track.path().to_string();
            let path = path.strip_prefix(&format!("{name}.")).unwrap_or(&path).to_owned();
            let why = error.to_string();
            if path.is_empty() || path == "." || path == name || path == "?" {
                why
            } else {
                format!("{path}: {why}")
            }
        }
    }
}

/// The error for a unit variant with content from a client.
const NO_FIELDS: &str = "this command takes no fields";

struct Parts<'a> {
    name: &'a str,
    body: &'a [u8],
    /// False for recorded data, which may come from a time when the variant had fields.
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
/// The value is not an enum's struct, newtype or unit variant, or cannot be written as JSON.
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
/// A struct variant being written. Public only because serde's traits name it.
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
    fn unknown_fields_are_refused_from_clients_and_not_from_records() {
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
    fn client_input_is_read_as_the_type_says() {
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
}
