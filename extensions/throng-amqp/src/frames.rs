//! Frames of many messages: those that gather while the broker confirms earlier frames are sent as the next one.

use crate::{Message, PublishError, Publisher};
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use throng_connectors::frame;
use tokio::sync::{mpsc, oneshot};

/// The options for frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameOptions {
    /// The most messages in a frame. With 1, each message is a frame.
    pub messages_max: usize,
    /// The most unconfirmed frames. Further messages gather meanwhile.
    pub frames_max: usize,
    /// The most messages that gather or wait for confirms. Beyond it publishing fails with [`PublishError::Full`].
    pub waiting_max: usize,
}

impl Default for FrameOptions {
    fn default() -> Self {
        Self {
            messages_max: 1_000,
            frames_max: 2,
            waiting_max: 10_000,
        }
    }
}

/// Publishes messages in frames. Clones share the connection.
#[derive(Clone, Debug)]
pub struct Frames {
    queue: mpsc::Sender<Waiting>,
    waiting_max: usize,
}

#[derive(Debug)]
struct Waiting {
    body: Vec<u8>,
    confirmed: oneshot::Sender<Result<(), PublishError>>,
}

impl Frames {
    /// Starts frames over a publisher, with this routing key.
    #[must_use]
    pub fn start(publisher: Publisher, routing_key: String, options: FrameOptions) -> Self {
        let waiting_max = options.waiting_max.max(1);
        let (queue, waiting) = mpsc::channel(waiting_max);
        let own = publisher.clone();
        publisher.spawn(async move { send(own, routing_key, options, waiting).await });
        Self { queue, waiting_max }
    }

    /// Publishes a JSON text together with others sent at the same time, and waits for the broker's confirm.
    ///
    /// # Errors
    /// [`PublishError`]: the message was not confirmed. The variant tells whether it was sent.
    pub async fn publish(&self, body: Vec<u8>) -> Result<(), PublishError> {
        let (confirmed, told) = oneshot::channel();
        self.queue
            .try_send(Waiting { body, confirmed })
            .map_err(|_| PublishError::Full(self.waiting_max))?;
        told.await
            .unwrap_or_else(|_| Err(PublishError::Unknown("the publisher has ended".into())))
    }
}

async fn send(publisher: Publisher, routing_key: String, options: FrameOptions, mut queue: mpsc::Receiver<Waiting>) {
    let mut under_way = FuturesUnordered::new();
    let mut gathered = Vec::new();
    loop {
        let has_room = under_way.len() < options.frames_max.max(1);
        tokio::select! {
            biased;
            Some(()) = under_way.next() => {}
            count = queue.recv_many(&mut gathered, options.messages_max.max(1)), if has_room => {
                if count == 0 {
                    break;
                }
                under_way.push(send_frame(&publisher, &routing_key, std::mem::take(&mut gathered)));
            }
        }
    }
    while under_way.next().await.is_some() {}
}

async fn send_frame(publisher: &Publisher, routing_key: &str, waiting: Vec<Waiting>) {
    let (bodies, confirmed): (Vec<_>, Vec<_>) = waiting
        .into_iter()
        .map(|waiting| (waiting.body, waiting.confirmed))
        .unzip();
    let message = Message {
        body: frame::encode(&bodies),
        content_type: Some(frame::CONTENT_TYPE.into()),
        routing_key: routing_key.to_owned(),
        ..Message::default()
    };
    let published = publisher.publish(message).await;
    for confirmed in confirmed {
        // A caller that dropped its future gets no answer.
        let _ = confirmed.send(published.clone());
    }
}
