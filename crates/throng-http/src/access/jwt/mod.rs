//! JSON web tokens (RFC 7519), by the keys of their issuer (RFC 7517).

mod fetch;
mod keys;
mod verify;

use super::{Caller, FileError, Means, Refresh, Watched};
use crate::problem::Problem;
use fetch::Fetched;
use jsonwebtoken::{Validation, decode, decode_header, errors::ErrorKind};
use keys::Keys;
use serde_json::{Map, Value};
use std::sync::Arc;

/// Which JSON web tokens are taken. A token needs a `sub`, which is its caller's name, and an `exp`; clocks may differ by a minute.
#[derive(Clone, Debug)]
pub struct Jwt {
    /// Where the issuer's keys are, as a set of JSON web keys: a file, read again when it changes, or a URL, read again every five minutes
    /// and when a token names a key that is not among them. Symmetric keys (HS256 and so on) are taken of a file only.
    pub keys: String,
    /// What `iss` has to be.
    pub issuer: Option<String>,
    /// What `aud` has to be or to hold. Unless it is said, a token that names an audience is for somebody else.
    pub audience: Option<String>,
}

/// Looks at tokens.
pub(crate) struct Verifier {
    keys: Source,
    issuer: Option<String>,
    audience: Option<String>,
}

enum Source {
    File(Watched<Keys>),
    Url(Fetched<Keys>),
}

impl Verifier {
    pub(crate) fn new(jwt: Jwt) -> Result<Self, FileError> {
        verify::install();
        let keys = if fetch::is_url(&jwt.keys) {
            Source::Url(Fetched::new(jwt.keys.clone(), |text| Keys::parse(text, false))?)
        } else {
            Source::File(Watched::new(vec![jwt.keys.into()], |files| {
                Keys::parse(&files[0], true)
            })?)
        };
        Ok(Self {
            keys,
            issuer: jwt.issuer,
            audience: jwt.audience,
        })
    }

    /// Whose token this is, and until when, in seconds since 1970.
    pub(crate) fn verify(&self, token: &[u8]) -> Result<(Caller, Option<i64>), Box<Problem>> {
        let no = |why: &str| Problem::unauthorized(why).boxed();
        let header = decode_header(token).map_err(|_| no("The token is not one that this service takes."))?;
        let keys = self.keys();
        let candidates = keys.for_token(header.kid.as_deref(), header.alg);
        if candidates.is_empty() {
            self.want_keys();
            return Err(no("The token is signed with a key that is not among its issuer's."));
        }
        let mut refused = ErrorKind::InvalidToken;
        for key in candidates {
            let mut validation = Validation::new(header.alg);
            validation.validate_nbf = true;
            let mut required = vec!["exp", "sub"];
            if let Some(issuer) = &self.issuer {
                validation.set_issuer(&[issuer]);
                required.push("iss");
            }
            if let Some(audience) = &self.audience {
                validation.set_audience(&[audience]);
                required.push("aud");
            }
            validation.set_required_spec_claims(&required);
            match decode::<Map<String, Value>>(token, key, &validation) {
                Ok(token) => return caller(token.claims, validation.leeway),
                Err(why) => refused = why.kind().clone(),
            }
        }
        Err(no(&reason(&refused)))
    }

    fn keys(&self) -> Arc<Keys> {
        match &self.keys {
            Source::File(keys) => keys.get(),
            Source::Url(keys) => keys.get(),
        }
    }

    fn want_keys(&self) {
        if let Source::Url(keys) = &self.keys {
            keys.want();
        }
    }
}

fn caller(claims: Map<String, Value>, leeway_s: u64) -> Result<(Caller, Option<i64>), Box<Problem>> {
    let until = claims.get("exp").and_then(Value::as_f64);
    let until = until.map(|until| (until as i64).saturating_add_unsigned(leeway_s));
    match claims
        .get("sub")
        .and_then(Value::as_str)
        .filter(|name| !name.is_empty())
    {
        Some(name) => Ok((Caller::new(name.to_owned(), Means::Jwt, claims), until)),
        None => Err(Problem::unauthorized("The token has no text as its claim sub.").boxed()),
    }
}

fn reason(refused: &ErrorKind) -> String {
    match refused {
        ErrorKind::ExpiredSignature => "The token has expired.".into(),
        ErrorKind::ImmatureSignature => "The token does not hold yet.".into(),
        ErrorKind::InvalidAudience => "The token is for another audience.".into(),
        ErrorKind::InvalidIssuer => "The token is of another issuer.".into(),
        ErrorKind::InvalidSignature => "The token's signature is wrong.".into(),
        ErrorKind::MissingRequiredClaim(claim) => format!("The token has no claim {claim}."),
        _ => "The token is not one that this service takes.".into(),
    }
}

impl Refresh for Verifier {
    fn refresh(&self) -> bool {
        match &self.keys {
            Source::File(keys) => keys.refresh(),
            Source::Url(keys) => keys.refresh(),
        }
    }
}
