//! The program of the book's page about brokers: messages of the queue `orders` become commands of an entity, its events messages of the queue
//! `shipments`.

mod stock {
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};
    use throng::model::{CommandAnswer, Entity, Event, Rejection, Turn};

    #[derive(Default, Serialize, Deserialize)]
    pub(crate) struct Stock {
        pieces: u64,
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    pub(crate) enum StockCommand {
        Receive { pieces: u64 },
        Take { pieces: u64 },
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    pub(crate) enum StockEvent {
        Received { pieces: u64 },
        Taken { pieces: u64 },
    }
    impl Event for StockEvent {}

    #[derive(Debug, Serialize, Deserialize, JsonSchema, thiserror::Error)]
    #[error("there are only {pieces} pieces")]
    pub(crate) struct OutOfStock {
        pieces: u64,
    }
    impl Rejection for OutOfStock {
        fn code(&self) -> &'static str {
            "out-of-stock"
        }
    }

    impl Entity for Stock {
        const KIND: &'static str = "stock";
        const PUBLIC: &'static [&'static str] = &["Receive", "Take"];
        type Id = String;
        type Command = StockCommand;
        type Event = StockEvent;
        type Reply = u64;
        type Rejection = OutOfStock;

        fn decide(&self, command: StockCommand, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, OutOfStock> {
            match command {
                StockCommand::Receive { pieces } => turn.emit(StockEvent::Received { pieces }),
                StockCommand::Take { pieces } if pieces <= self.pieces => turn.emit(StockEvent::Taken { pieces }),
                StockCommand::Take { .. } => return Err(OutOfStock { pieces: self.pieces }),
            }
            Ok(CommandAnswer::after(|stock: &Self| stock.pieces))
        }

        fn evolve(&mut self, event: &StockEvent) {
            match event {
                StockEvent::Received { pieces } => self.pieces += pieces,
                StockEvent::Taken { pieces } => self.pieces -= pieces,
            }
        }
    }
}

use serde_json::json;
use std::{error::Error, path::Path};
use stock::{Stock, StockEvent};
use throng::{Engine, model::Entity as _, projection::DurableEvent};
use throng_amqp::*;

/// The command that a message is: its type names the command, its header the article.
fn read(message: &Message) -> Result<Vec<EntityCommand>, String> {
    let command = message.message_type.as_deref().ok_or("it has no type")?.to_owned();
    let article = message.header("article").ok_or("it has no header \"article\"")?;
    let body = message.body.clone();
    Ok(vec![EntityCommand::new(Stock::KIND, article, command, body)])
}

/// The message that an event is.
struct Shipments;

impl Outbound for Shipments {
    const NAME: &'static str = "shipments";
    type Of = Stock;
    type Item = Message;

    fn map(&self, seen: &DurableEvent<Stock>) -> Option<Message> {
        let StockEvent::Taken { pieces } = seen.event else {
            return None;
        };
        Some(Message {
            body: json!({ "article": seen.id, "pieces": pieces }).to_string().into_bytes(),
            routing_key: "shipments".into(),
            content_type: Some("application/json".into()),
            message_type: Some("Taken".into()),
            ..Message::default()
        })
    }
}

pub(crate) async fn start(broker: &str, journal: &Path) -> Result<(Engine, Ingress), Box<dyn Error>> {
    let (broker, queues): (Broker, _) = (broker.parse()?, Topology::durable(["orders", "shipments"]));
    let publisher = Publisher::start(PublisherOptions {
        topology: queues.clone(),
        mandatory: true,
        ..PublisherOptions::new(broker.clone(), "")
    })?;
    let (log, store) = throng_log::open_embedded(journal, throng_log::Options::default())?;
    let views = std::sync::Arc::new(throng_log::EmbeddedViews::open(log.clone())?);
    let egress = Egress::new(Shipments, ExchangeTarget::new(publisher));
    let builder = Engine::builder().with::<Stock>().sink(egress).views(views);
    let engine = builder.start_shared(log, store).await?;
    let orders = QueueSource::new(QueueOptions {
        topology: queues.with_dead_letters("orders-dead"),
        dead_letters: Some("orders-dead".into()),
        ..QueueOptions::new(broker, "orders")
    });
    let ingress = Ingress::start(&engine, orders, IngressOptions::default(), read)?;
    Ok((engine, ingress))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let _service = start("amqp://guest:guest@localhost", Path::new("data/stock")).await?;
    std::future::pending().await
}
