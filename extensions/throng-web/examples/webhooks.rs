//! A shop: it charges a provider, hears of payments by the provider's webhooks, and tells its customers by webhooks of its own.
//!
//! `PAYMENTS_SECRET=whsec_… CUSTOMERS_SECRET=whsec_… cargo run -p throng-web --example webhooks -- serve`

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::process::ExitCode;
use throng_app::{
    App, Engine,
    axum::Router,
    http::Problem,
    model::{
        Attempt, CallError, CallId, CallOutcome, CommandAnswer, Entity, Event, OnCallOutcome, Outside, Rejection, Turn,
    },
};
use throng_web::{
    Delivered, Gone, HttpClient, Received, Receiver, Secret, Webhook, Webhooks, http::StatusCode, post_json, read_json,
    retry,
};

/// The worker that charges.
pub(crate) struct Payments {
    pub(crate) client: HttpClient,
    pub(crate) url: String,
}

/// A charge.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct Charge {
    pub(crate) cents: u64,
}

/// The provider's word on a charge.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct Charged {
    pub(crate) id: String,
}

impl Outside for Payments {
    const NAME: &'static str = "payments";
    type Request = Charge;
    type Answer = Charged;
    type Failure = String;

    async fn call(&self, charge: Charge, attempt: &Attempt) -> Result<Charged, CallError<String>> {
        let request = post_json(&self.url, &charge)?;
        let read = |status: StatusCode, headers: &_, body: &[u8]| match status {
            StatusCode::CREATED => read_json(body),
            StatusCode::PAYMENT_REQUIRED => Err(CallError::Failed("declined".to_owned())),
            _ => Err(retry(status, headers)),
        };
        self.client.call(request, attempt, read).await
    }
}

/// An order, and what happened to it.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Order {
    hook: String,
    log: Vec<String>,
}

/// Commands of an order. Each answers with its log.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OrderCommand {
    Place { cents: u64, hook: String },
    Pay { cents: u64 },
    Hear { text: String },
}

/// Events of an order.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OrderEvent {
    Placed { hook: String },
    Paid { cents: u64 },
    Heard { text: String },
}
impl Event for OrderEvent {}

/// An order's refusal.
#[derive(Debug, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OrderRejection {
    #[error("there is no such order")]
    Unplaced {},
}
impl Rejection for OrderRejection {
    fn code(&self) -> &'static str {
        "unplaced-order"
    }
}

impl Entity for Order {
    const KIND: &'static str = "order";
    const PUBLIC: &'static [&'static str] = &["place"];
    type Id = String;
    type Command = OrderCommand;
    type Event = OrderEvent;
    type Reply = Vec<String>;
    type Rejection = OrderRejection;

    fn decide(&self, command: OrderCommand, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, OrderRejection> {
        match command {
            OrderCommand::Place { cents, hook } => {
                turn.call::<Payments>(Charge { cents });
                turn.emit(OrderEvent::Placed { hook });
            }
            OrderCommand::Pay { .. } if self.hook.is_empty() => return Err(OrderRejection::Unplaced {}),
            OrderCommand::Pay { cents } => {
                turn.call::<Webhooks>(Webhook {
                    url: self.hook.clone(),
                    event: "order.paid".into(),
                    at: turn.now(),
                    data: json!({ "order": turn.id(), "cents": cents }),
                });
                turn.emit(OrderEvent::Paid { cents });
            }
            OrderCommand::Hear { text } => turn.emit(OrderEvent::Heard { text }),
        }
        Ok(CommandAnswer::after(|order: &Self| order.log.clone()))
    }

    fn evolve(&mut self, event: &OrderEvent) {
        match event {
            OrderEvent::Placed { hook } => self.hook.clone_from(hook),
            OrderEvent::Paid { cents } => self.log.push(format!("paid {cents}")),
            OrderEvent::Heard { text } => self.log.push(text.clone()),
        }
    }
}

impl OnCallOutcome<Payments> for Order {
    fn on_call_outcome(_: CallId, outcome: CallOutcome<Charged, String>) -> OrderCommand {
        let text = match outcome {
            CallOutcome::Answered(charged) => format!("charged as {}", charged.id),
            CallOutcome::Failed(why) => format!("not charged: {why}"),
            CallOutcome::Refused(_) | CallOutcome::Unknown(_) => "not known to be charged".into(),
        };
        OrderCommand::Hear { text }
    }

    fn on_late_answer(_: CallId, answer: Result<Charged, String>) -> OrderCommand {
        let text = answer.map_or_else(|why| why, |charged| format!("charged late as {}", charged.id));
        OrderCommand::Hear { text }
    }
}

impl OnCallOutcome<Webhooks> for Order {
    fn on_call_outcome(_: CallId, outcome: CallOutcome<Delivered, Gone>) -> OrderCommand {
        let text = match outcome {
            CallOutcome::Answered(_) => "customer told".into(),
            CallOutcome::Failed(Gone {}) => "customer wants no webhooks".into(),
            CallOutcome::Refused(why) | CallOutcome::Unknown(why) => format!("customer not told: {why}"),
        };
        OrderCommand::Hear { text }
    }

    fn on_late_answer(_: CallId, _: Result<Delivered, Gone>) -> OrderCommand {
        OrderCommand::Hear {
            text: "customer told late".into(),
        }
    }
}

/// The provider says that an order was paid.
#[derive(Deserialize)]
struct Paid {
    order: String,
    cents: u64,
}

async fn paid(engine: Engine, webhook: Received) -> Result<(), Problem> {
    let Paid { order, cents } = webhook.json()?;
    webhook
        .once(engine.entity::<Order>(order))
        .ask(OrderCommand::Pay { cents })
        .await?;
    Ok(())
}

/// The routes of the shop's own.
pub(crate) fn routes(engine: Engine, payments: Receiver) -> Router {
    Router::new().route("/webhooks/payments", payments.route(engine, paid))
}

/// The shop.
pub(crate) fn app(payments: Payments, receiver: Receiver, webhooks: Webhooks) -> App {
    App::new("shop")
        .with::<Order>()
        .outside::<Order, Payments>(payments)
        .outside::<Order, Webhooks>(webhooks)
        .routes(|engine| routes(engine, receiver))
        .gateway(|gateway| gateway.open_route("/webhooks/payments"))
}

fn from_environment() -> anyhow::Result<App> {
    let payments = Payments {
        client: HttpClient::to_hosts(["api.payments.example"]),
        url: "https://api.payments.example/charges".into(),
    };
    let receiver = Receiver::standard("payments", [std::env::var("PAYMENTS_SECRET")?.parse::<Secret>()?]);
    let secret: Secret = std::env::var("CUSTOMERS_SECRET")?.parse()?;
    let webhooks = Webhooks::new(HttpClient::to_public_hosts(), move |_| vec![secret.clone()]);
    Ok(app(payments, receiver, webhooks))
}

fn main() -> anyhow::Result<ExitCode> {
    Ok(from_environment()?.run())
}
