//! The meaning of a storage's reply, determined by status and error code alone.

use http::StatusCode;

/// The most bytes of a storage's message that an error quotes.
const MESSAGE_BYTES_MAX: usize = 200;

/// The kinds of request whose replies differ in meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// A put of a key that does not exist yet.
    Create,
    /// A put over the version that was read.
    Replace,
    Read,
    ReadRange,
    /// A request for an object's fields alone. Its answer has no body, so it cannot say whether the object or the bucket is missing.
    Head,
    Delete,
}

/// The meaning of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    Done,
    /// The condition of a put does not hold.
    ConditionFailed,
    /// The storage could not decide between requests for this key.
    Conflict,
    /// There is no such object.
    NoObject,
    /// The request may have been carried out. Repeating it settles that.
    Unknown(String),
    /// The request was not carried out, and will not be until a person intervenes.
    Refused(String),
}

/// Interprets a reply. An object is missing only if the storage says `NoSuchKey`: a missing bucket, or a proxy's page, must never pass for the end of
/// a stream.
pub(crate) fn meaning(asked: Asked, status: StatusCode, body: &[u8]) -> Meaning {
    // A body of megabytes is not an error message.
    let text = if status.is_success() {
        "".into()
    } else {
        String::from_utf8_lossy(body)
    };
    let code = element(&text, "Code").unwrap_or_default();
    let words = || {
        let message: String = element(&text, "Message")
            .unwrap_or_default()
            .chars()
            .take(MESSAGE_BYTES_MAX)
            .collect();
        format!("{status} {code} {message}").trim_end().to_owned()
    };
    let refused = |advice: &str| Meaning::Refused(format!("{advice} ({})", words()));
    let unknown = |advice: &str| Meaning::Unknown(format!("{advice} ({})", words()));
    let is_put = matches!(asked, Asked::Create | Asked::Replace);
    match (status.as_u16(), code) {
        (200, _) => Meaning::Done,
        (206, _) if asked == Asked::ReadRange => Meaning::Done,
        (201 | 204, _) if is_put || asked == Asked::Delete => Meaning::Done,
        (412, _) if is_put => Meaning::ConditionFailed,
        (404, "NoSuchKey") => match asked {
            // Amazon answers `If-Match` of a missing object so.
            Asked::Replace => Meaning::ConditionFailed,
            Asked::Delete => Meaning::Done,
            _ => Meaning::NoObject,
        },
        (404, "NoSuchBucket") => refused("there is no such bucket: create it, or name another"),
        (404, "") if asked == Asked::Head => Meaning::NoObject,
        (409, _) if is_put => Meaning::Conflict,
        (409, _) => unknown("another request for the object was under way"),
        (_, "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired") => {
            unknown("the access key has expired: give the service a new one")
        }
        (_, "RequestTimeTooSkewed" | "RequestExpired") => {
            unknown("this machine's clock differs from the storage's: set it")
        }
        (507, _)
        | (_, "QuotaExceeded" | "InsufficientStorage" | "XMinioStorageFull" | "XMinioAdminBucketQuotaExceeded") => {
            unknown("the storage is full, or its quota is used up: make room")
        }
        (429, _) | (_, "SlowDown" | "ServiceUnavailable" | "Throttling" | "TooManyRequests") => {
            unknown("the storage asks for fewer requests")
        }
        (501 | 405, _) => refused("the storage does not know such requests"),
        (_, "RequestTimeout" | "InternalError" | "OperationAborted") | (408 | 500.., _) => {
            unknown("the storage does not know the outcome")
        }
        (403, "InvalidObjectState") => {
            refused("the object was moved to an archive: restore it, and remove the rule that did so")
        }
        (403, "InvalidAccessKeyId" | "SignatureDoesNotMatch") => {
            refused("the storage does not know the access key, or its secret is another")
        }
        // Amazon answers so for a missing key if the caller may not list the bucket.
        (401 | 403, _) => refused(
            "the access key may not do this: it needs s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket",
        ),
        (300..=399, _) => {
            refused("the storage sends this request elsewhere: name the bucket's own region and endpoint")
        }
        _ => refused("the storage does not take the request"),
    }
}

/// Returns the text of the first element of this name.
pub(crate) fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    elements(text, name).next()
}

/// Returns the texts of all elements of this name. They must not be nested.
pub(crate) fn elements<'a>(text: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let mut rest = text;
    std::iter::from_fn(move || {
        let (_, after) = rest.split_once(&*open)?;
        let (inner, after) = after.split_once(&*close)?;
        rest = after;
        Some(inner.trim())
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn said(asked: Asked, status: u16, code: &str) -> Meaning {
        let body = match code {
            "" => String::new(),
            code => format!("<?xml version=\"1.0\"?>\n<Error><Code>{code}</Code><Message>words</Message></Error>"),
        };
        meaning(asked, StatusCode::from_u16(status).unwrap(), body.as_bytes())
    }

    #[test]
    fn put_is_known_by_200_and_412_alone() {
        use Asked::{Create, Replace};
        for asked in [Create, Replace] {
            assert_eq!(said(asked, 200, ""), Meaning::Done);
            assert_eq!(said(asked, 412, "PreconditionFailed"), Meaning::ConditionFailed);
            assert_eq!(said(asked, 409, "ConditionalRequestConflict"), Meaning::Conflict);
            assert_eq!(said(asked, 409, "OperationAborted"), Meaning::Conflict);
            for (status, code) in [
                (400, "RequestTimeout"),
                (400, "ExpiredToken"),
                (403, "RequestTimeTooSkewed"),
                (403, "QuotaExceeded"),
                (429, ""),
                (500, "InternalError"),
                (502, ""),
                (503, "SlowDown"),
                (504, ""),
                (507, "XMinioStorageFull"),
            ] {
                assert!(
                    matches!(said(asked, status, code), Meaning::Unknown(_)),
                    "{status} {code}"
                );
            }
            for (status, code) in [
                (403, "AccessDenied"),
                (404, "NoSuchBucket"),
                (404, ""),
                (301, "PermanentRedirect"),
                (400, "InvalidRequest"),
            ] {
                assert!(
                    matches!(said(asked, status, code), Meaning::Refused(_)),
                    "{status} {code}"
                );
            }
        }
        assert_eq!(said(Replace, 404, "NoSuchKey"), Meaning::ConditionFailed);
    }

    #[test]
    fn only_no_such_key_says_that_an_object_is_missing() {
        assert_eq!(said(Asked::Read, 404, "NoSuchKey"), Meaning::NoObject);
        assert_eq!(said(Asked::Delete, 404, "NoSuchKey"), Meaning::Done);
        for (status, code) in [
            (404, "NoSuchBucket"),
            (404, ""),
            (403, "AccessDenied"),
            (410, "Gone"),
            (412, ""),
            (206, ""),
            (204, ""),
        ] {
            assert!(
                matches!(said(Asked::Read, status, code), Meaning::Refused(_)),
                "{status} {code}"
            );
        }
    }

    #[test]
    fn refusal_says_the_storages_words_and_the_advice() {
        let Meaning::Refused(said) = said(Asked::Read, 403, "InvalidAccessKeyId") else {
            panic!("it is refused")
        };
        assert_eq!(
            said,
            "the storage does not know the access key, or its secret is another (403 Forbidden InvalidAccessKeyId words)"
        );
    }

    #[test]
    fn elements_are_found_one_after_the_other() {
        let text = "<List><Key>a</Key><Key> b </Key><Key>c";
        assert_eq!(elements(text, "Key").collect::<Vec<_>>(), ["a", "b"]);
    }
}
