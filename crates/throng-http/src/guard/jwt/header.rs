//! The header of a JSON web token: its demands on a verifier.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::{Map, Value};

/// The kinds of tokens that are for asking a service: RFC 7519 §5.1, RFC 9068 §2.1.
const KINDS: [&str; 2] = ["jwt", "at+jwt"];

/// Refuses a token with demands that this verifier does not support.
pub(super) fn check(token: &[u8]) -> Result<(), &'static str> {
    let head = token.split(|byte| *byte == b'.').next().unwrap_or_default();
    let head = BASE64_URL_SAFE_NO_PAD.decode(head).ok();
    let head = head.and_then(|head| serde_json::from_slice::<Map<String, Value>>(&head).ok());
    let head = head.ok_or("The token is not one that this service takes.")?;
    // RFC 7515 §4.1.11: extensions that are not understood make a token invalid. None is understood here.
    if head.contains_key("crit") {
        return Err("The token demands extensions (crit) that this service does not know.");
    }
    // RFC 7797: its message would differ from what was signed.
    if head
        .get("b64")
        .is_some_and(|is_encoded| *is_encoded != Value::Bool(true))
    {
        return Err("The token's claims are not encoded (b64), which this service does not take.");
    }
    if head.contains_key("zip") {
        return Err("The token's claims are compressed (zip), which this service does not take.");
    }
    let is_kind = |kind: &Value| {
        let kind = kind.as_str().map(str::to_ascii_lowercase);
        kind.is_some_and(|kind| KINDS.contains(&kind.strip_prefix("application/").unwrap_or(&kind)))
    };
    match head.get("typ") {
        Some(kind) if !is_kind(kind) => Err("The token is of another kind (typ): it is not for asking a service."),
        _ => Ok(()),
    }
}
