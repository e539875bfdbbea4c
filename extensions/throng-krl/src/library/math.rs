use super::Result;
use crate::host::Arguments;
use crate::run::Run;
use crate::{Error, Value};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use ring::{digest, hmac};

/// The supported hash algorithms, by their names in the original.
const ALGORITHMS: [&str; 5] = ["sha1", "sha256", "sha384", "sha512", "sha512-256"];

/// Converts an argument to a number as JavaScript does. An array of one item counts as that item. Maps, undefined and texts that are no number
/// give `None`.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Undefined | Value::Map(_) => None,
        Value::Array(items) => match &items[..] {
            [] | [Value::Null | Value::Undefined] => Some(0.0),
            [Value::Boolean(_)] => None,
            [item] => number(item),
            _ => None,
        },
        other => other.to_number(),
    }
}

/// Applies a function to the argument; null if that is no number.
fn of_number(arguments: &Arguments, function: impl FnOnce(f64) -> f64) -> Result<Value> {
    let number = number(&arguments.find(0, "number").unwrap_or(Value::Undefined));
    Ok(number.map_or(Value::Null, |number| Value::number(function(number))))
}

pub(super) fn abs(_: &mut Run<'_>, arguments: &Arguments) -> Result<Value> {
    of_number(arguments, f64::abs)
}

/// Rounds to a number of decimals. It moves the decimal point in the number's text, so that 1.005 rounds like its decimal notation.
fn rounded(arguments: &Arguments, round: fn(f64) -> f64) -> Result<Value> {
    let precision = arguments
        .get(1, "precision")
        .to_number()
        .unwrap_or(0.0)
        .trunc()
        .clamp(-292.0, 292.0);
    if precision == 0.0 {
        return of_number(arguments, round);
    }
    let precision = precision as i32;
    let moved = |number: f64, places: i32| {
        let text = format!("{number:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent = exponent.parse::<i32>().unwrap_or(0) + places;
        format!("{mantissa}e{exponent}").parse().unwrap_or(number)
    };
    of_number(arguments, |number| moved(round(moved(number, precision)), -precision))
}

pub(super) fn ceiling(_: &mut Run<'_>, arguments: &Arguments) -> Result<Value> {
    rounded(arguments, f64::ceil)
}

pub(super) fn floor(_: &mut Run<'_>, arguments: &Arguments) -> Result<Value> {
    rounded(arguments, f64::floor)
}

/// Rounds halves up, also below 0.
pub(super) fn round(_: &mut Run<'_>, arguments: &Arguments) -> Result<Value> {
    rounded(arguments, |number| (number + 0.5).floor())
}

pub(super) fn int(_: &mut Run<'_>, arguments: &Arguments) -> Result<Value> {
    of_number(arguments, f64::trunc)
}

pub(super) fn base64_encode(_: &mut Run<'_>, arguments: &Arguments) -> Result<Value> {
    Ok(Value::from(STANDARD.encode(&*arguments.get(0, "str").text())))
}

pub(super) fn base64_decode(_: &mut Run<'_>, arguments: &Arguments) -> Result<Value> {
    let text = arguments.get(0, "str");
    let text: String = text
        .text()
        .chars()
        .filter(|character| !character.is_whitespace())
        .collect();
    let text = text.trim_end_matches('=').replace('-', "+").replace('_', "/");
    match STANDARD_NO_PAD.decode(&text) {
        Ok(bytes) => Ok(Value::from(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) => Err(Error::value_error(format!("math:base64decode was given no base64: {error}")).into()),
    }
}

pub(super) fn hash_algorithms(_: &mut Run<'_>, _: &Arguments) -> Result<Value> {
    Ok(Value::array(ALGORITHMS.into_iter().map(Value::from).collect()))
}

fn algorithm(arguments: &Arguments, function: &str) -> Result<String> {
    match arguments.get(0, "algorithm") {
        Value::String(name) if ALGORITHMS.contains(&&*name) => Ok(name.to_string()),
        Value::String(name) => {
            let known = ALGORITHMS.join(", ");
            let message = format!("math:{function} doesn't recognize the hash algorithm {name}; there are {known}");
            Err(Error::value_error(message).into())
        }
        other => {
            let message = format!(
                "math:{function} was given {} instead of a algorithm string",
                other.text()
            );
            Err(Error::type_error(message).into())
        }
    }
}

fn written(bytes: &[u8], encoding: &Value, function: &str) -> Result<Value> {
    let encoding = if encoding.is_true() {
        encoding.text()
    } else {
        "hex".into()
    };
    match &*encoding {
        "hex" => Ok(Value::from(
            bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
        )),
        "base64" => Ok(Value::from(STANDARD.encode(bytes))),
        other => {
            let message = format!("math:{function} encoding must be \"hex\" or \"base64\" but was {other}");
            Err(Error::value_error(message).into())
        }
    }
}

pub(super) fn hash(run: &mut Run<'_>, arguments: &Arguments) -> Result<Value> {
    let algorithm = match &*algorithm(arguments, "hash")? {
        "sha1" => &digest::SHA1_FOR_LEGACY_USE_ONLY,
        "sha384" => &digest::SHA384,
        "sha512" => &digest::SHA512,
        "sha512-256" => &digest::SHA512_256,
        _ => &digest::SHA256,
    };
    let text = arguments.get(1, "str").to_text();
    run.budget().step(text.len() as u64 / 8)?;
    written(
        digest::digest(algorithm, text.as_bytes()).as_ref(),
        &arguments.get(2, "encoding"),
        "hash",
    )
}

pub(super) fn hmac(run: &mut Run<'_>, arguments: &Arguments) -> Result<Value> {
    let Value::String(key) = arguments.get(1, "key") else {
        return Err(Error::value_error("math:hmac needs a key string").into());
    };
    let algorithm = match &*algorithm(arguments, "hmac")? {
        "sha1" => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        "sha256" => hmac::HMAC_SHA256,
        "sha384" => hmac::HMAC_SHA384,
        "sha512" => hmac::HMAC_SHA512,
        other => {
            return Err(Error::value_error(format!("math:hmac doesn't recognize the hash algorithm {other}")).into());
        }
    };
    let message = arguments.get(2, "message").to_text();
    run.budget().step((key.len() + message.len()) as u64 / 8)?;
    let tag = hmac::sign(&hmac::Key::new(algorithm, key.as_bytes()), message.as_bytes());
    written(tag.as_ref(), &arguments.get(3, "encoding"), "hmac")
}
