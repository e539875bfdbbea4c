//! A worker of outside calls that sends signed webhooks.

use crate::{HttpClient, Secret, hosts::Origin, post_json, retry};
use http::{HeaderValue, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use throng::model::{Attempt, CallError, Outside, Timestamp};

/// A webhook that an entity sends. It is written to the journal, so it must hold no secrets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Webhook {
    /// The address of the receiver.
    pub url: String,
    /// The type, for example `order.paid`.
    #[serde(rename = "type")]
    pub event: String,
    /// The time of the event.
    pub at: Timestamp,
    /// The content, which receivers know by the type.
    pub data: Value,
}

/// The receiver accepted a webhook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Delivered {
    /// The status of the answer, 200 to 299.
    pub status: u16,
}

/// The receiver answered 410: it wants no more webhooks at this address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Gone {}

type SecretsOf = dyn Fn(&Webhook) -> Vec<Secret> + Send + Sync;

/// A worker that sends webhooks in the format of Standard Webhooks. It retries for at most three days.
#[derive(Clone)]
pub struct Webhooks {
    client: HttpClient,
    secrets: Arc<SecretsOf>,
}

impl Webhooks {
    /// Returns a worker that sends by this client. `secrets` returns the secrets that the webhook's receiver knows: one, or two while one
    /// is being replaced.
    #[must_use]
    pub fn new(client: HttpClient, secrets: impl Fn(&Webhook) -> Vec<Secret> + Send + Sync + 'static) -> Self {
        Self {
            client,
            secrets: Arc::new(secrets),
        }
    }
}

/// Returns the host of a webhook's receiver.
fn host(webhook: &Webhook) -> String {
    let origin = webhook.url.parse().ok().and_then(|url| Origin::of(&url).ok());
    origin.map_or_else(String::new, |origin| origin.host)
}

impl Outside for Webhooks {
    const NAME: &'static str = "webhooks";
    /// A receiver that does not answer occupies one of these for 25 seconds.
    const CONCURRENCY: usize = 64;
    /// No breaker: a receiver that is down tells nothing about the others.
    const BREAKER: u32 = 0;
    const DESTINATION: Option<fn(&Webhook) -> String> = Some(host);
    const WITHIN: Duration = Duration::from_hours(72);
    const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_hours(1));
    type Request = Webhook;
    type Answer = Delivered;
    type Failure = Gone;

    async fn call(&self, webhook: Webhook, attempt: &Attempt) -> Result<Delivered, CallError<Gone>> {
        let Webhook { url, event, at, data } = &webhook;
        let timestamp = jiff::Timestamp::from_microsecond(at.micros)
            .unwrap_or_default()
            .to_string();
        let mut request = post_json(url, &json!({ "type": event, "timestamp": timestamp, "data": data }))?;
        let secrets = (self.secrets)(&webhook);
        if secrets.is_empty() {
            return Err(CallError::NotSent(format!(
                "there is no secret for webhooks to {url}: give Webhooks::new one"
            )));
        }
        let (id, seconds) = (attempt.key(), attempt.begun.micros.div_euclid(1_000_000));
        let signatures: Vec<String> = secrets
            .iter()
            .map(|secret| secret.sign(&id, seconds, request.body()))
            .collect();
        for (name, value) in [
            ("webhook-signature", signatures.join(" ")),
            ("webhook-timestamp", seconds.to_string()),
            ("webhook-id", id),
        ] {
            let value = HeaderValue::try_from(value).map_err(|why| CallError::NotSent(format!("{name}: {why}")))?;
            request.headers_mut().insert(name, value);
        }
        let read = |status: StatusCode, headers: &_, _: &_| match status {
            status if status.is_success() => Ok(Delivered {
                status: status.as_u16(),
            }),
            StatusCode::GONE => Err(CallError::Failed(Gone {})),
            _ => Err(retry(status, headers)),
        };
        self.client.call(request, attempt, read).await
    }
}
