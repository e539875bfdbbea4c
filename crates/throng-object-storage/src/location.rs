//! The location of a journal in a bucket, and the settings of requests to it.

use http::Uri;
use std::{fmt, str::FromStr, time::Duration};

/// The most bytes of a prefix: a key has at most 1,024, and the journal's own part needs some.
const PREFIX_BYTES_MAX: usize = 512;
const KNOWN: &str = "endpoint, region, timeout, encryption, encryption-key";

/// A location that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("reading the location in object storage failed: {0}")]
pub struct InvalidLocation(String);

fn refused(why: impl Into<String>) -> InvalidLocation {
    InvalidLocation(why.into())
}

/// Reads the server of a storage: its URL without a path.
fn server(url: &str) -> Result<String, InvalidLocation> {
    let wrong = |why: &str| refused(format!("the endpoint {url:?} {why}"));
    if url.contains('@') {
        return Err(refused(
            "the endpoint holds a name or a password: give these as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        ));
    }
    let uri: Uri = url.parse().map_err(|_| wrong("is no URL"))?;
    let Some(scheme @ ("https" | "http")) = uri.scheme_str() else {
        return Err(wrong("begins with neither https:// nor http://"));
    };
    let authority = uri.authority().ok_or_else(|| wrong("has no host"))?;
    if uri.path().len() > 1 || uri.query().is_some() {
        return Err(wrong("has a path: name the bucket before the question mark"));
    }
    Ok(format!("{scheme}://{authority}"))
}

/// The encryption to request from the storage, with its own key or the user's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Encryption {
    /// `AES256`, `aws:kms` or `aws:kms:dsse`.
    pub(crate) algorithm: String,
    pub(crate) key: Option<String>,
}

/// A bucket, a prefix in it, and the settings of requests. Parsed from `s3://bucket/prefix?endpoint=https://…&region=…`.
///
/// | option | meaning | default |
/// |---|---|---|
/// | `endpoint` | the storage's URL | `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, or Amazon's of the region |
/// | `region` | the region that signatures name | `AWS_REGION`, `AWS_DEFAULT_REGION`; `us-east-1` at another endpoint |
/// | `timeout` | the wait for a whole answer, as `500ms` or `20s` | `20s` |
/// | `encryption` | `AES256`, `aws:kms` or `aws:kms:dsse` | the bucket's |
/// | `encryption-key` | the key's name, for `aws:kms` | the account's |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Location {
    pub(crate) bucket: String,
    /// The start of every key. Ends with a slash, unless empty.
    pub(crate) prefix: String,
    /// The server's URL, without a slash at its end.
    pub(crate) endpoint: String,
    pub(crate) region: String,
    pub(crate) timeout: Duration,
    pub(crate) encryption: Option<Encryption>,
}

impl S3Location {
    /// Parses a URL. Missing options are looked up in these variables.
    ///
    /// # Errors
    /// The invalid part, and its correct form.
    pub fn read(url: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self, InvalidLocation> {
        let rest = url
            .strip_prefix("s3://")
            .ok_or_else(|| refused("it does not begin with s3://"))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        let (mut endpoint, mut region, mut timeout) = (None, None, Duration::from_secs(20));
        let (mut algorithm, mut key) = (None, None);
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let value = value.into_owned();
            match &*name {
                "endpoint" => endpoint = Some(value),
                "region" => region = Some(value),
                "timeout" => timeout = duration(&value)?,
                "encryption" => algorithm = Some(value),
                "encryption-key" => key = Some(value),
                other => return Err(refused(format!("the option {other:?} is unknown; known are {KNOWN}"))),
            }
        }
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let endpoint = endpoint
            .or_else(|| set("AWS_ENDPOINT_URL_S3"))
            .or_else(|| set("AWS_ENDPOINT_URL"));
        let region = region
            .or_else(|| set("AWS_REGION"))
            .or_else(|| set("AWS_DEFAULT_REGION"));
        let (endpoint, region) = match (endpoint, region) {
            (Some(endpoint), region) => (endpoint, region.unwrap_or_else(|| "us-east-1".into())),
            (None, Some(region)) => (format!("https://s3.{region}.amazonaws.com"), region),
            (None, None) => {
                return Err(refused(
                    "name the bucket's region, as ?region=eu-central-1, or the storage, as ?endpoint=https://HOST",
                ));
            }
        };
        if !region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return Err(refused(format!("the region {region:?} is none")));
        }
        Ok(Self {
            bucket: named_bucket(bucket)?,
            prefix: named_prefix(prefix)?,
            endpoint: server(&endpoint)?,
            region,
            timeout,
            encryption: encryption(algorithm, key)?,
        })
    }
}

fn named_bucket(name: &str) -> Result<String, InvalidLocation> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.' | b'_');
    match (3..=63).contains(&name.len()) && name.bytes().all(fits) && !name.starts_with('.') {
        true => Ok(name.to_owned()),
        false => Err(refused(format!(
            "the bucket {name:?} has no name of 3 to 63 of a-z, 0-9, - and ."
        ))),
    }
}

/// Returns the prefix, empty or with a slash at its end.
fn named_prefix(prefix: &str) -> Result<String, InvalidLocation> {
    let prefix = prefix.trim_end_matches('/');
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/".contains(&byte);
    let parts_fit = prefix
        .split('/')
        .all(|part| !part.is_empty() && part != "." && part != "..");
    match prefix {
        "" => Ok(String::new()),
        _ if prefix.len() <= PREFIX_BYTES_MAX && prefix.bytes().all(fits) && parts_fit => Ok(format!("{prefix}/")),
        _ => Err(refused(format!(
            "the prefix {prefix:?} is none: it has at most {PREFIX_BYTES_MAX} of A-Z, a-z, 0-9, -, . and _, in parts with a slash between them"
        ))),
    }
}

fn duration(text: &str) -> Result<Duration, InvalidLocation> {
    let (number, millis) = match text.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => (text.strip_suffix('s').unwrap_or(text), 1_000),
    };
    match number.parse::<u32>() {
        Ok(number @ 1..) => Ok(Duration::from_millis(u64::from(number) * millis)),
        _ => Err(refused(format!("the timeout is {text:?}; write it as 20s or 500ms"))),
    }
}

fn encryption(algorithm: Option<String>, key: Option<String>) -> Result<Option<Encryption>, InvalidLocation> {
    match (algorithm, key) {
        (None, None) => Ok(None),
        (Some(algorithm), key) if algorithm.starts_with("aws:kms") || algorithm == "AES256" && key.is_none() => {
            Ok(Some(Encryption { algorithm, key }))
        }
        _ => Err(refused(
            "the encryption is AES256, or aws:kms or aws:kms:dsse with the name of a key as encryption-key",
        )),
    }
}

impl FromStr for S3Location {
    type Err = InvalidLocation;

    fn from_str(url: &str) -> Result<Self, InvalidLocation> {
        Self::read(url, |name| std::env::var(name).ok())
    }
}

impl fmt::Display for S3Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = self.prefix.trim_end_matches('/');
        write!(f, "s3://{}/{prefix} at {}", self.bucket, self.endpoint)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn read(url: &str) -> Result<S3Location, InvalidLocation> {
        S3Location::read(url, |name| (name == "AWS_REGION").then(|| "eu-central-1".into()))
    }

    #[test]
    fn url_names_bucket_prefix_and_endpoint() {
        let amazon = read("s3://shows-of-ours/main/").unwrap();
        assert_eq!(
            amazon.to_string(),
            "s3://shows-of-ours/main at https://s3.eu-central-1.amazonaws.com"
        );
        assert_eq!(amazon.prefix, "main/");
        let own = read("s3://box?endpoint=http://[::1]:8333&region=x&timeout=500ms").unwrap();
        assert_eq!(own.endpoint, "http://[::1]:8333");
        assert_eq!(
            (&*own.region, &*own.prefix, own.timeout),
            ("x", "", Duration::from_millis(500))
        );
        let key = read("s3://box/a/b?encryption=aws:kms&encryption-key=arn%3Aaws%3Akms").unwrap();
        assert_eq!(key.encryption.unwrap().key.unwrap(), "arn:aws:kms");
    }

    #[test]
    fn wrong_location_is_refused_with_the_reason() {
        for (url, why) in [
            ("s4://box", "s3://"),
            ("s3://", "bucket"),
            ("s3://Box/a", "bucket"),
            ("s3://box/../a", "prefix"),
            ("s3://box/a//b", "prefix"),
            ("s3://box/a?endpoint=ftp://h", "neither https://"),
            ("s3://box/a?endpoint=https://ann:secret@h", "AWS_SECRET_ACCESS_KEY"),
            ("s3://box/a?endpoint=ann:secret@h", "AWS_SECRET_ACCESS_KEY"),
            ("s3://box/a?endpoint=https://h/box", "before the question mark"),
            ("s3://box/a?timeout=soon", "20s or 500ms"),
            ("s3://box/a?timeout=0s", "20s or 500ms"),
            ("s3://box/a?speed=high", "known are"),
            ("s3://box/a?encryption=AES256&encryption-key=k", "aws:kms"),
        ] {
            let said = read(url).unwrap_err().to_string();
            assert!(said.contains(why) && !said.contains("secret@"), "{url}: {said}");
        }
        let nowhere = S3Location::read("s3://box/a", |_| None).unwrap_err().to_string();
        assert!(nowhere.contains("region"), "{nowhere}");
    }
}
