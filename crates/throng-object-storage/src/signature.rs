//! The signature of a request: AWS Signature Version 4, including its body.

use crate::credentials::Credentials;
use http::{HeaderMap, HeaderValue, Method};
use jiff::Timestamp;
use ring::{digest, hmac};
use std::fmt::Write as _;

/// The parts of a request that are signed.
pub(crate) struct Signed<'a> {
    pub(crate) method: &'a Method,
    /// The path and the query. Names of buckets and keys consist of characters that need no escaping. The query's names are sorted, each with `=`.
    pub(crate) path: &'a str,
    pub(crate) query: &'a str,
    pub(crate) body: &'a [u8],
}

/// Adds the signature to a request's fields. It covers all fields present before, including `host`.
pub(crate) fn sign(
    request: &Signed<'_>,
    fields: &mut HeaderMap,
    credentials: &Credentials,
    region: &str,
    at: Timestamp,
) -> Result<(), String> {
    let time = at.strftime("%Y%m%dT%H%M%SZ").to_string();
    let hash = hex(digest::digest(&digest::SHA256, request.body).as_ref());
    let mut put = |name: &'static str, value: &str| -> Result<(), String> {
        let value =
            HeaderValue::from_str(value).map_err(|_| format!("{name} has characters that no field can have"))?;
        fields.insert(name, value);
        Ok(())
    };
    put("x-amz-date", &time)?;
    put("x-amz-content-sha256", &hash)?;
    if let Some(token) = &credentials.session_token {
        put("x-amz-security-token", token)?;
    }
    let mut signed: Vec<(&str, &str)> = Vec::with_capacity(fields.len());
    for (name, value) in &*fields {
        signed.push((name.as_str(), value.to_str().map_err(|_| format!("{name} is no text"))?));
    }
    signed.sort_unstable();
    let names = signed.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
    let mut canonical = format!("{}\n{}\n{}\n", request.method, request.path, request.query);
    for (name, value) in &signed {
        // Writing to a string never fails.
        let _ = writeln!(canonical, "{name}:{}", value.trim());
    }
    let _ = write!(canonical, "\n{names}\n{hash}");
    let date = &time[..8];
    let scope = format!("{date}/{region}/s3/aws4_request");
    let text = format!(
        "AWS4-HMAC-SHA256\n{time}\n{scope}\n{}",
        hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref())
    );
    let mut key = format!("AWS4{}", credentials.secret_key).into_bytes();
    for part in [date, region, "s3", "aws4_request"] {
        key = keyed(&key, part);
    }
    let signature = hex(&keyed(&key, &text));
    let value = format!(
        "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
        credentials.access_key
    );
    let mut value = HeaderValue::from_str(&value)
        .map_err(|_| "AWS_ACCESS_KEY_ID has characters that no field can have".to_owned())?;
    value.set_sensitive(true);
    fields.insert("authorization", value);
    Ok(())
}

fn keyed(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
        .as_ref()
        .to_vec()
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// The examples of Amazon's reference.
    #[test]
    fn signatures_are_those_of_the_reference() {
        let credentials = Credentials {
            access_key: "AKIAIOSFODNN7EXAMPLE".into(),
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            session_token: None,
        };
        let at: Timestamp = "2013-05-24T00:00:00Z".parse().unwrap();
        let signature = |method: Method, path: &str, query: &str, fields: &[(&'static str, &str)], body: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert("host", HeaderValue::from_static("examplebucket.s3.amazonaws.com"));
            for (name, value) in fields {
                headers.insert(*name, HeaderValue::from_str(value).unwrap());
            }
            let request = Signed {
                method: &method,
                path,
                query,
                body,
            };
            sign(&request, &mut headers, &credentials, "us-east-1", at).unwrap();
            headers["authorization"]
                .to_str()
                .unwrap()
                .rsplit_once('=')
                .unwrap()
                .1
                .to_owned()
        };
        assert_eq!(
            signature(Method::GET, "/test.txt", "", &[("range", "bytes=0-9")], b""),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        let put = [
            ("date", "Fri, 24 May 2013 00:00:00 GMT"),
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ];
        assert_eq!(
            signature(Method::PUT, "/test%24file.text", "", &put, b"Welcome to Amazon S3."),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"
        );
        assert_eq!(
            signature(Method::GET, "/", "lifecycle=", &[], b""),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
        );
        assert_eq!(
            signature(Method::GET, "/", "max-keys=2&prefix=J", &[], b""),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
        );
    }
}
