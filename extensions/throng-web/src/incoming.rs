//! A route that receives webhooks and applies each once.

#![expect(clippy::result_large_err, reason = "handlers return a problem as it is")]

use crate::{
    Secret,
    signature::{is_signed, standard, stripe},
};
use axum::routing::{MethodRouter, post};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, de::DeserializeOwned};
use std::{sync::Arc, time::Duration};
use throng::{
    Engine, Handle,
    driver::KeyLife,
    limits::NAME_BYTES_MAX,
    model::{Entity, Timestamp},
};
use throng_http::Problem;

/// The largest difference in seconds between a webhook's time and the engine's clock.
const TOLERANCE: u64 = 300;
/// The most bytes of a webhook.
const BODY_BYTES_MAX: usize = 256 << 10;
/// The time for which a webhook's id is remembered: senders repeat a webhook for three days.
const KNOWN: Duration = Duration::from_hours(96);

/// Receives the webhooks of one sender.
///
/// ```
/// use throng_web::{Received, Receiver, Secret};
/// # use throng::{Engine, model::Entity};
/// # use throng_http::Problem;
/// # #[derive(serde::Deserialize)] struct Paid<C> { order: String, command: C }
///
/// async fn paid<Order: Entity<Id = String>>(engine: Engine, webhook: Received) -> Result<(), Problem> {
///     let paid: Paid<Order::Command> = webhook.json()?;
///     webhook.once(engine.entity::<Order>(paid.order)).ask(paid.command).await?;
///     Ok(())
/// }
///
/// fn routes<Order: Entity<Id = String>>(engine: Engine, secret: Secret) -> axum::Router {
///     let payments = Receiver::standard("payments", [secret]);
///     axum::Router::new().route("/webhooks/payments", payments.route(engine, paid::<Order>))
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Receiver {
    sender: &'static str,
    format: Format,
    secrets: Vec<Secret>,
    known: KeyLife,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Standard,
    Stripe,
}

/// A webhook whose signature was verified.
#[derive(Clone, Debug)]
pub struct Received {
    id: String,
    key: String,
    known: KeyLife,
    body: Bytes,
}

/// The parts of a webhook that its sender signed.
struct Signed<'a> {
    id: String,
    /// The time as written in the header.
    seconds: &'a str,
    signatures: Vec<Vec<u8>>,
}

impl Receiver {
    fn new(sender: &'static str, format: Format, secrets: impl IntoIterator<Item = Secret>) -> Self {
        Self {
            sender,
            format,
            secrets: secrets.into_iter().collect(),
            known: KeyLife::at_least(KNOWN),
        }
    }

    /// Receives webhooks in the format of Standard Webhooks. Give each sender a name of its own, since two senders may use the same id.
    /// Never change the name.
    #[must_use]
    pub fn standard(sender: &'static str, secrets: impl IntoIterator<Item = Secret>) -> Self {
        Self::new(sender, Format::Standard, secrets)
    }

    /// Receives webhooks in Stripe's format. The id of a webhook is the `id` in its body. The secrets are the texts that Stripe shows.
    #[must_use]
    pub fn stripe<'a>(sender: &'static str, secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let secrets = secrets.into_iter().filter(|secret| !secret.is_empty());
        Self::new(
            sender,
            Format::Stripe,
            secrets.map(|secret| Secret::of_bytes(secret.as_bytes())),
        )
    }

    /// Sets how long a webhook's id is remembered, four days by default. It must be as long as the sender may repeat the webhook.
    #[must_use]
    pub fn known_for(mut self, life: KeyLife) -> Self {
        self.known = life;
        self
    }

    /// Returns a route that gives the webhooks to this handler. It answers 204 after the handler returned, so after the commit of the
    /// commands it sent.
    ///
    /// If the gateway requires a login, add the path by `Gateway::open_route`: a sender is authenticated by its signature.
    pub fn route<S, F>(
        self,
        engine: Engine,
        handler: impl Fn(Engine, Received) -> F + Clone + Send + Sync + 'static,
    ) -> MethodRouter<S>
    where
        S: Clone + Send + Sync + 'static,
        F: Future<Output = Result<(), Problem>> + Send + 'static,
    {
        let receiver = Arc::new(self);
        post(move |headers: HeaderMap, body: Bytes| {
            let (engine, handler) = (engine.clone(), handler.clone());
            let verified = receiver.verify(&headers, body, engine.now());
            async move { handler(engine, verified?).await.map(|()| StatusCode::NO_CONTENT) }
        })
    }

    /// Verifies the signature of a webhook.
    ///
    /// # Errors
    /// 401: no secret fits the signature, or its time is more than five minutes from `now`. 413: it is too long.
    pub fn verify(&self, headers: &HeaderMap, body: Bytes, now: Timestamp) -> Result<Received, Problem> {
        if body.len() > BODY_BYTES_MAX {
            let found = body.len();
            let detail =
                format!("The webhook has {found} bytes, at most {BODY_BYTES_MAX} are taken. Nothing was done.");
            return Err(Problem::new("webhook-too-large", 413, "Webhook too large", detail));
        }
        let Signed {
            id,
            seconds,
            signatures,
        } = match self.format {
            Format::Standard => self.standard_of(headers)?,
            Format::Stripe => self.stripe_of(headers, &body)?,
        };
        let time = seconds.parse::<i64>().ok().filter(|time| time.to_string() == seconds);
        let Some(time) = time else {
            return Err(refused(
                self.time_field(),
                format!("The time {seconds:?} is no number of seconds since 1970."),
            ));
        };
        let now = now.micros.div_euclid(1_000_000);
        if now.abs_diff(time) > TOLERANCE {
            let (found, side) = (now.abs_diff(time), if time < now { "ago" } else { "in the future" });
            let detail = format!(
                "It was signed {found} s {side}, and at most {TOLERANCE} s are taken. Have it sent again, and compare the clocks."
            );
            return Err(refused(self.time_field(), detail));
        }
        let signed: &[&[u8]] = match self.format {
            Format::Standard => &[id.as_bytes(), seconds.as_bytes(), &body],
            Format::Stripe => &[seconds.as_bytes(), &body],
        };
        if !is_signed(&self.secrets, signed, &signatures) {
            let (found, secrets, sender) = (signatures.len(), self.secrets.len(), self.sender);
            let detail = format!(
                "None of its {found} signatures of version v1 is that of its body under one of the {secrets} secrets for {sender}. \
                 Compare the secret with the sender's, and see that nothing on the way changes the body."
            );
            return Err(refused(self.signature_field(), detail));
        }
        // No client can use this key: a client's key does not begin with `@`, or has a hash after it.
        let key = format!("@webhook/{}/{id}", self.sender);
        if key.len() > NAME_BYTES_MAX {
            return Err(refused(
                "webhook-id",
                format!("Its id has {} bytes, which is too long.", id.len()),
            ));
        }
        let known = self.known;
        Ok(Received { id, key, known, body })
    }

    fn time_field(&self) -> &'static str {
        match self.format {
            Format::Standard => "webhook-timestamp",
            Format::Stripe => "stripe-signature",
        }
    }

    fn signature_field(&self) -> &'static str {
        match self.format {
            Format::Standard => "webhook-signature",
            Format::Stripe => "stripe-signature",
        }
    }

    fn field<'h>(&self, headers: &'h HeaderMap, name: &'static str) -> Result<&'h str, Problem> {
        let value = headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .filter(|value| !value.is_empty());
        value.ok_or_else(|| {
            let detail = format!(
                "The header field {name} is missing: webhooks of {} are signed.",
                self.sender
            );
            refused(name, detail)
        })
    }

    fn standard_of<'h>(&self, headers: &'h HeaderMap) -> Result<Signed<'h>, Problem> {
        let id = self.field(headers, "webhook-id")?;
        // The signed parts are joined by dots. With a dot in the id, id and time could be read in two ways.
        if id.contains('.') {
            return Err(refused(
                "webhook-id",
                "Its id has a dot, which Standard Webhooks forbids.".into(),
            ));
        }
        Ok(Signed {
            id: id.to_owned(),
            seconds: self.field(headers, "webhook-timestamp")?,
            signatures: standard(self.field(headers, "webhook-signature")?),
        })
    }

    fn stripe_of<'h>(&self, headers: &'h HeaderMap, body: &[u8]) -> Result<Signed<'h>, Problem> {
        #[derive(Deserialize)]
        struct Event {
            id: String,
        }
        let (seconds, signatures) = stripe(self.field(headers, "stripe-signature")?);
        let event: Result<Event, _> = serde_json::from_slice(body);
        let event = event.map_err(|why| refused("id", format!("The body has no id that can be read: {why}.")))?;
        let no_time = || refused("stripe-signature", "The header field stripe-signature has no t.".into());
        Ok(Signed {
            id: event.id,
            seconds: seconds.ok_or_else(no_time)?,
            signatures,
        })
    }
}

fn refused(field: &str, detail: String) -> Problem {
    let detail = format!("{detail} Nothing was done.");
    Problem::new("webhook-refused", 401, "Webhook refused", detail).at_field(field)
}

impl Received {
    /// Returns the id given by the sender. Repetitions have the same one.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the body as it was signed.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Parses the body as JSON.
    ///
    /// # Errors
    /// 400: the body is not JSON of this type.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        serde_json::from_slice(&self.body).map_err(|why| {
            Problem::malformed(format!(
                "The webhook {} cannot be read: {why}. Nothing was done.",
                self.id
            ))
        })
    }

    /// Returns a handle that sends commands under the webhook's id: a repetition gets the first answer, and takes effect once. Build the
    /// command from the webhook only; otherwise a repetition would be a different command.
    #[must_use]
    pub fn once<E: Entity>(&self, entity: Handle<E>) -> Handle<E> {
        entity.once(self.key.clone()).key_life(self.known)
    }
}
