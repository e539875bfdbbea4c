//! JSON web tokens (RFC 7519), by the keys of their issuer (RFC 7517).

mod fetch;
mod header;
mod keys;
mod verify;

use super::{Refresh, Watched};
use crate::{
    caller::{Caller, Means, is_name},
    error::FileError,
    places::Places,
    problem::Problem,
};
use fetch::Fetched;
use jsonwebtoken::{Validation, decode, decode_header, errors::ErrorKind};
use keys::Keys;
use serde_json::{Map, Value};
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;

/// The accepted JSON web tokens. A token needs a `sub`, which is its caller's name, and an `exp`; clocks may differ by a minute.
#[derive(Clone, Debug)]
pub struct Jwt {
    /// The issuer's keys, as a set of JSON web keys: a file, or a URL. A file is read again when it changes.
    /// A URL is read again every five minutes, and when a token names a key that is not in the set.
    /// Symmetric keys (HS256 and so on) are taken from a file only.
    pub keys: String,
    /// The value that `iss` must have.
    pub issuer: Option<String>,
    /// The value that `aud` must be or contain. `None`: a token that names an audience is refused.
    pub audience: Option<String>,
}

/// The most keys that a token is tried with: each attempt takes the loop's time.
const KEYS_TRIED_MAX: usize = 8;

const UNKNOWN_KEY: &str = "The token is signed with a key that is not among its issuer's.";
/// The time for which that is so without another look.
pub(crate) const UNKNOWN_LIFE: Duration = Duration::from_secs(10);
/// The longest wait of a request for the keys, and the most requests that wait.
const KEYS_WAIT: Duration = Duration::from_secs(5);
const KEYS_WAITING_MAX: usize = 256;
/// The pause suggested to a client whose issuer is unreachable.
const KEYS_RETRY: Duration = Duration::from_secs(2);

/// Returns the problem for a token whose key is not known.
pub(crate) fn unknown_key() -> Box<Problem> {
    Problem::unauthorized(UNKNOWN_KEY).boxed()
}

/// Looks at tokens.
pub(crate) struct Verifier {
    keys: Source,
    /// Requests that wait for the keys.
    waiting: Places,
    issuer: Option<String>,
    audience: Option<String>,
}

/// A token is not taken.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) problem: Box<Problem>,
    /// True if the present keys can never accept it. Finding that out took time, so it is remembered.
    pub(crate) is_final: bool,
}

impl Refusal {
    pub(crate) fn passing(problem: Box<Problem>) -> Self {
        let is_final = false;
        Self { problem, is_final }
    }
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
            waiting: Places::new(KEYS_WAITING_MAX),
            issuer: jwt.issuer,
            audience: jwt.audience,
        })
    }

    /// Verifies a token. Returns its caller, and the time when it expires, in seconds since 1970.
    pub(crate) fn verify(&self, token: &[u8]) -> Result<(Caller, Option<i64>), Refusal> {
        let no = |why: &str| Refusal::passing(Problem::unauthorized(why).boxed());
        header::check(token).map_err(no)?;
        let header = decode_header(token).map_err(|_| no("The token is not one that this service takes."))?;
        let keys = self.keys();
        let candidates = keys.for_token(header.kid.as_deref(), header.alg);
        if candidates.is_empty() {
            self.want_keys();
            return Err(Refusal::passing(unknown_key()));
        }
        if candidates.len() > KEYS_TRIED_MAX {
            return Err(no(
                "The token does not name its key (kid), and too many of its issuer's keys may be meant.",
            ));
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
        Err(Refusal {
            problem: Problem::unauthorized(reason(&refused)).boxed(),
            is_final: !matches!(refused, ErrorKind::ImmatureSignature),
        })
    }

    /// A token names a key that a fetch may bring.
    pub(crate) fn misses_key(&self, token: &[u8]) -> bool {
        matches!(self.keys, Source::Url(_))
            && header::check(token).is_ok()
            && decode_header(token)
                .is_ok_and(|header| self.keys().for_token(header.kid.as_deref(), header.alg).is_empty())
    }

    /// Waits until the keys were fetched once more.
    ///
    /// # Errors
    /// A problem with status 503: the issuer does not answer in time, or too many requests wait.
    pub(crate) async fn fetched_again(&self) -> Result<(), Box<Problem>> {
        let Source::Url(keys) = &self.keys else { return Ok(()) };
        let detail = "The keys of the token's issuer cannot be had now. Nothing was done; try again later.";
        let no = || Problem::unavailable(detail, KEYS_RETRY).boxed();
        let _place = self.waiting.take().ok_or_else(no)?;
        match timeout(KEYS_WAIT, keys.fetched_again()).await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(no()),
        }
    }

    /// Has the keys fetched again if a token was refused because its key is not known.
    pub(crate) fn want_unless_final(&self, problem: &Problem) {
        if problem.detail() == UNKNOWN_KEY {
            self.want_keys();
        }
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

fn caller(claims: Map<String, Value>, leeway_s: u64) -> Result<(Caller, Option<i64>), Refusal> {
    let no = |why: &str| Refusal {
        problem: Problem::unauthorized(why).boxed(),
        is_final: true,
    };
    // A list might hold the right issuer beside others.
    if claims.get("iss").is_some_and(|issuer| !issuer.is_string()) {
        return Err(no("The token is of another issuer: its claim iss is no text."));
    }
    let until = claims.get("exp").and_then(Value::as_f64);
    let until = until.map(|until| (until as i64).saturating_add_unsigned(leeway_s));
    match claims.get("sub").and_then(Value::as_str) {
        None | Some("") => Err(no("The token has no text as its claim sub.")),
        Some(name) if !is_name(name) => Err(no(
            "The token's claim sub is no name: it has control characters, or blanks around it.",
        )),
        Some(name) => Ok((Caller::new(name.to_owned(), Means::Jwt, claims), until)),
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

    fn has_failed(&self) -> bool {
        match &self.keys {
            Source::File(keys) => keys.has_failed(),
            Source::Url(keys) => keys.has_failed(),
        }
    }
}
