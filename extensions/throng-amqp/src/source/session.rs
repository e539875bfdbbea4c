//! Consumes a queue over one connection.

use super::{
    Arrived, QueueOptions,
    dead_letters::{DeadLetters, Fate, WAITING_MAX},
    window::Window,
};
use crate::{
    Error, Message,
    properties::{header_bytes, message},
    repair::SUBSTITUTE,
    topology::short,
};
use futures_util::Stream as _;
use lapin::{
    Channel, Connection, Consumer,
    message::Delivery,
    options::{
        BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicQosOptions, BasicRejectOptions,
        QueueDeclareOptions,
    },
    types::{FieldTable, ShortString},
};
use prometheus_client::metrics::gauge::Gauge;
use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};
use throng_connectors::{Dead, Outcome, Received, Settled};
use tokio::{
    task::JoinSet,
    time::{Sleep, sleep, timeout},
};

/// The most messages returned at a time. They are committed together, and other tasks of the thread run in between.
const TURN: usize = 1_024;
/// The interval at which the window is adjusted.
const OBSERVE: Duration = Duration::from_secs(1);
/// The interval at which a consumer standing by checks the queue, and the number of checks in a row that must find no consumer.
const FREE_LOOK: Duration = Duration::from_secs(1);
const FREE_LOOKS: u32 = 3;
/// The consumer tag. It needs to be unique only in its channel.
const TAG: &str = "throng";
/// The action named in an error of consuming.
const CONSUMING: &str = "consuming the queue";

type Pending<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// A connection that consumes or stands by.
pub(super) struct Session {
    connection: Connection,
    channel: Channel,
    queue: ShortString,
    single_active: bool,
    consuming: Consuming,
    window: Window,
    bytes_max: usize,
    prefetch: Gauge,
    /// The acknowledgement in flight. Messages settled meanwhile are acknowledged by the next one.
    telling: Option<Pin<Box<dyn Future<Output = lapin::Result<()>> + Send>>>,
    /// The acknowledgements to send next.
    to_tell: Vec<Settle>,
    /// Dead letters in flight, of messages received earlier.
    letters: JoinSet<SentLetter>,
    letter_bytes: usize,
    /// The number of dead letters that waited when consuming began: the broker may have that many more messages unsettled.
    beside: usize,
    /// Fires when the window is to be adjusted, even if no message arrives.
    observe: Pin<Box<Sleep>>,
    seen: Seen,
    /// The number of messages received and not settled.
    in_flight: usize,
    /// The number of messages in the queue when the session began.
    waiting: u32,
    has_settled: bool,
    /// True if a message has shown that the window has the wrong size.
    is_misfit: bool,
}

/// The state of the consumer.
enum Consuming {
    /// Another consumer has the queue, or had it a moment ago.
    StandsBy(Pending<()>),
    Now(Consumer),
    /// The consumer is starting. Holds the messages that were sent to the previous consumer.
    Soon(Pending<(Consumer, Vec<Delivery>)>),
}

/// A dead letter after its publication, successful or not.
struct SentLetter {
    tag: u64,
    bytes: usize,
    fate: Fate,
}

/// The acknowledgement that the broker gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Settle {
    /// Acknowledges all deliveries up to this tag.
    UpTo(u64),
    /// Acknowledges one delivery.
    One(u64),
    Reject(u64),
}

/// The counts since the window was last adjusted.
#[derive(Default)]
struct Seen {
    settled: u32,
    took: Duration,
    was_full: bool,
}

impl Session {
    /// Connects, and stands by if another consumer exists. A session that stood by before gives the other consumer time to return.
    pub(super) async fn open(
        options: &QueueOptions,
        (bytes_max, is_careful): (usize, bool),
        stood_by: bool,
        prefetch: Gauge,
    ) -> Result<Self, Error> {
        let connection = options.broker.connect(&format!("throng {}", options.queue)).await?;
        options.topology.apply(&connection).await?;
        let opened = connection.create_channel().await;
        let channel = opened.map_err(Error::broker("opening a channel"))?;
        let queue = short(&options.queue)?;
        let looked = look(&channel, &queue).await?;
        let is_taken = options.single_active && looked.consumer_count() > 0;
        if is_taken && !stood_by {
            tracing::info!("another consumer has the queue {queue:?}: this one stands by");
        }
        let stands_by = stood_by || is_taken;
        let window = Window::new(&options.prefetch, options.latency, bytes_max);
        let mut window = if is_careful { window.of_one() } else { window };
        let size = window.grant();
        prefetch.set(i64::from(size));
        let single_active = options.single_active;
        let consuming = match stands_by {
            false => begin(&channel, &queue, size, single_active),
            true => {
                let (channel, queue) = (channel.clone(), queue.clone());
                Consuming::StandsBy(Box::pin(async move { until_free(&channel, &queue).await }))
            }
        };
        Ok(Self {
            connection,
            channel,
            queue,
            single_active,
            consuming,
            window,
            bytes_max,
            prefetch,
            telling: None,
            to_tell: Vec::new(),
            letters: JoinSet::new(),
            letter_bytes: 0,
            beside: 0,
            observe: Box::pin(sleep(OBSERVE)),
            seen: Seen::default(),
            in_flight: 0,
            waiting: looked.message_count(),
            has_settled: false,
            is_misfit: false,
        })
    }

    /// Starts to consume, unless it stands by. A temporary error is returned later, where messages are received, because the broker was
    /// reached.
    pub(super) async fn consume(&mut self) -> Result<(), Error> {
        if let Consuming::Soon(soon) = &mut self.consuming {
            self.consuming = match soon.as_mut().await {
                Ok((consumer, _)) => Consuming::Now(consumer),
                Err(error) if error.is_final() => return Err(error),
                Err(error) => Consuming::Soon(Box::pin(std::future::ready(Err(error)))),
            };
        }
        Ok(())
    }

    pub(super) fn stands_by(&self) -> bool {
        matches!(self.consuming, Consuming::StandsBy(_))
    }

    pub(super) fn has_settled(&self) -> bool {
        self.has_settled
    }

    /// Tells whether no message was settled although there were some.
    pub(super) fn is_barren(&self) -> bool {
        !self.has_settled && (self.waiting > 0 || self.in_flight > 0)
    }

    /// Returns the messages that arrived, at most `TURN`, and sends acknowledgements meanwhile.
    pub(super) fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<Result<Vec<Received<Arrived>>, Error>> {
        while self.poll_letter(context).is_ready() {}
        self.poll_tell(context).map_err(Error::broker("settling messages"))?;
        if self.may_begin_anew() {
            self.is_misfit |= self.window_has_changed(context);
        }
        let mut received = Vec::new();
        loop {
            // Before acknowledging messages received here: for each one the broker would send the old consumer another.
            if self.is_misfit && self.may_begin_anew() {
                self.begin_anew();
            }
            let is_full = self.is_full();
            let is_there = match &mut self.consuming {
                Consuming::StandsBy(free) => match free.as_mut().poll(context)? {
                    Poll::Ready(()) => {
                        let size = self.window.grant();
                        self.consuming = begin(&self.channel, &self.queue, size, self.single_active);
                        true
                    }
                    Poll::Pending => false,
                },
                Consuming::Now(_) if is_full => false,
                Consuming::Now(consumer) => match Pin::new(consumer).poll_next(context) {
                    Poll::Ready(Some(delivery)) => {
                        let delivery = delivery.map_err(Error::broker(CONSUMING))?;
                        received.push(self.take(delivery));
                        true
                    }
                    Poll::Ready(None) => {
                        let why = "the broker has ended the consumer: the queue may have been deleted".to_owned();
                        return Poll::Ready(Err(Error::Broker { doing: CONSUMING, why }));
                    }
                    Poll::Pending => false,
                },
                Consuming::Soon(soon) => match soon.as_mut().poll(context)? {
                    Poll::Ready((consumer, deliveries)) => {
                        self.consuming = Consuming::Now(consumer);
                        received.extend(deliveries.into_iter().map(|delivery| self.take(delivery)));
                        true
                    }
                    Poll::Pending => false,
                },
            };
            if !is_there && received.is_empty() {
                return Poll::Pending;
            }
            if !is_there || received.len() >= TURN {
                return Poll::Ready(Ok(received));
            }
        }
    }

    fn take(&mut self, delivery: Delivery) -> Received<Arrived> {
        self.in_flight += 1;
        self.seen.was_full |= self.in_flight * 2 >= usize::from(self.window.size());
        let header_bytes = header_bytes(&delivery.properties);
        self.is_misfit |= self.window.weigh(delivery.data.len() + header_bytes);
        let message = message(&delivery);
        let names = [
            ("message-id", message.id.as_deref()),
            ("routing key", Some(message.routing_key.as_str())),
        ];
        let damaged = names
            .iter()
            .find(|(_, text)| text.is_some_and(|text| text.contains(SUBSTITUTE)));
        let damaged = damaged.map(|(name, _)| format!("its {name} is not UTF-8, or its properties are damaged"));
        let position = Arrived {
            tag: delivery.delivery_tag,
            came: Instant::now(),
            routing_key: delivery.routing_key,
            properties: delivery.properties,
        };
        let body = Message {
            body: delivery.data,
            ..message
        };
        let received = Received::new(position, body);
        Received {
            bytes: received.bytes + header_bytes,
            is_again: delivery.redelivered,
            damaged,
            ..received
        }
    }

    /// Tells whether no more dead letters may wait, so that no more messages are taken.
    fn is_full(&self) -> bool {
        self.letters.len() >= WAITING_MAX || self.letter_bytes >= self.bytes_max
    }

    /// Tells whether a consumer exists and dead letters do not block it.
    fn may_begin_anew(&self) -> bool {
        matches!(self.consuming, Consuming::Now(_)) && !self.is_full()
    }

    /// Restarts the consumer with the current window, since the window of a running consumer cannot be changed.
    fn begin_anew(&mut self) {
        self.is_misfit = false;
        self.beside = self.letters.len();
        let beside = u16::try_from(self.beside).unwrap_or(u16::MAX);
        let size = self.window.grant().saturating_add(beside);
        self.prefetch.set(i64::from(size));
        let (channel, queue, single_active) = (self.channel.clone(), self.queue.clone(), self.single_active);
        let idle = Consuming::Soon(Box::pin(std::future::pending()));
        let Consuming::Now(mut old) = std::mem::replace(&mut self.consuming, idle) else {
            return;
        };
        self.consuming = Consuming::Soon(Box::pin(async move {
            let cancelled = channel.basic_cancel(TAG.into(), BasicCancelOptions::default());
            cancelled.await.map_err(Error::broker("changing the prefetch"))?;
            let mut deliveries = Vec::new();
            // Messages already sent to the old consumer must be processed. There are never more than the window.
            while let Some(delivery) = poll_fn(|context| Pin::new(&mut old).poll_next(context)).await {
                deliveries.push(delivery.map_err(Error::broker(CONSUMING))?);
            }
            Ok((consume(&channel, &queue, size, single_active).await?, deliveries))
        }));
    }

    /// Settles messages. A dead letter waits for its confirm without blocking other messages, within a bound.
    pub(super) async fn settle(&mut self, settled: Vec<Settled<Arrived>>, letters: &DeadLetters) -> Result<(), Error> {
        let settling = || Error::broker("settling messages");
        for Settled { position, outcome } in settled {
            self.in_flight = self.in_flight.saturating_sub(1);
            self.has_settled = true;
            match outcome {
                Outcome::Done => {
                    self.seen.settled += 1;
                    self.seen.took += position.came.elapsed();
                    self.done(position.tag, self.letters.is_empty());
                }
                Outcome::Dead(dead) => {
                    while self.is_full() {
                        poll_fn(|context| {
                            self.poll_tell(context)?;
                            self.poll_letter(context).map(Ok)
                        })
                        .await
                        .map_err(settling())?;
                    }
                    self.put_aside(position, dead, letters);
                }
            }
        }
        poll_fn(|context| Poll::Ready(self.poll_tell(context)))
            .await
            .map_err(settling())
    }

    fn put_aside(&mut self, position: Arrived, dead: Box<Dead>, letters: &DeadLetters) {
        let (tag, bytes) = (position.tag, dead.bytes);
        self.letter_bytes += bytes;
        let sent = letters.send(position, dead);
        self.letters.spawn(async move {
            let fate = sent.await;
            SentLetter { tag, bytes, fate }
        });
    }

    /// Acknowledges a message. `is_first` tells that no earlier one waits.
    fn done(&mut self, tag: u64, is_first: bool) {
        match self.to_tell.last_mut() {
            Some(Settle::UpTo(up_to)) if is_first => *up_to = tag,
            _ if is_first => self.to_tell.push(Settle::UpTo(tag)),
            _ => self.to_tell.push(Settle::One(tag)),
        }
    }

    /// Settles a dead letter whose publication ended. Pending if there is none.
    fn poll_letter(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let SentLetter { tag, bytes, fate } = match ready!(self.letters.poll_join_next(context)) {
            Some(Ok(sent)) => sent,
            // The message stays at the broker, which delivers it again over the next connection.
            Some(Err(_)) => return Poll::Ready(()),
            None => return Poll::Pending,
        };
        self.letter_bytes -= bytes;
        match fate {
            Fate::Kept => self.done(tag, false),
            Fate::Rejected => self.to_tell.push(Settle::Reject(tag)),
        }
        Poll::Ready(())
    }

    /// Sends the acknowledgements.
    fn poll_tell(&mut self, context: &mut Context<'_>) -> lapin::Result<()> {
        loop {
            if let Some(telling) = &mut self.telling {
                match telling.as_mut().poll(context) {
                    Poll::Pending => return Ok(()),
                    Poll::Ready(told) => told?,
                }
                self.telling = None;
            }
            if self.to_tell.is_empty() {
                return Ok(());
            }
            let settles = std::mem::take(&mut self.to_tell);
            self.telling = Some(Box::pin(tell(self.channel.clone(), settles)));
        }
    }

    fn window_has_changed(&mut self, context: &mut Context<'_>) -> bool {
        if self.observe.as_mut().poll(context).is_pending() {
            return false;
        }
        self.observe.as_mut().reset(tokio::time::Instant::now() + OBSERVE);
        // Registers the waker for the next adjustment.
        let _ = self.observe.as_mut().poll(context);
        // Waiting dead letters occupy places of the window.
        let waiting = self.letters.len().saturating_sub(self.beside);
        let is_crowded = waiting * 2 >= usize::from(self.window.size());
        if self.seen.settled == 0 && !is_crowded {
            return false;
        }
        let seen = std::mem::take(&mut self.seen);
        let has_changed = seen.settled > 0 && self.window.observe(seen.took / seen.settled, seen.was_full);
        has_changed || is_crowded
    }

    /// Sends all acknowledgements, including those of dead letters.
    pub(super) async fn drain(&mut self) {
        poll_fn(|context| {
            while self.poll_letter(context).is_ready() {}
            let told = self.poll_tell(context);
            match told.is_err() || (self.letters.is_empty() && self.telling.is_none()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }

    pub(super) async fn close(self) {
        let _ = timeout(Duration::from_secs(1), self.connection.close(200, "done".into())).await;
    }
}

fn begin(channel: &Channel, queue: &ShortString, size: u16, single_active: bool) -> Consuming {
    let (channel, queue) = (channel.clone(), queue.clone());
    Consuming::Soon(Box::pin(async move {
        Ok((consume(&channel, &queue, size, single_active).await?, Vec::new()))
    }))
}

/// Starts a consumer with a window of this size.
async fn consume(channel: &Channel, queue: &ShortString, size: u16, single_active: bool) -> Result<Consumer, Error> {
    let failed = || Error::broker(CONSUMING);
    let limited = channel.basic_qos(size, BasicQosOptions::default());
    limited.await.map_err(failed())?;
    let options = BasicConsumeOptions {
        exclusive: single_active,
        ..BasicConsumeOptions::default()
    };
    let consumer = channel.basic_consume(queue.clone(), TAG.into(), options, FieldTable::default());
    let consumer = consumer.await.map_err(failed())?;
    // If two find the queue free at the same moment, both start again after different pauses.
    if single_active && look(channel, queue).await?.consumer_count() != 1 {
        let why = "another consumer has begun at the same moment".into();
        return Err(Error::Broker { doing: CONSUMING, why });
    }
    Ok(consumer)
}

/// Waits until nobody else consumes the queue. It polls, which every broker allows; an exclusive consumer is not available for quorum
/// queues.
async fn until_free(channel: &Channel, queue: &ShortString) -> Result<(), Error> {
    let mut free = 0;
    while free < FREE_LOOKS {
        sleep(FREE_LOOK).await;
        free = match look(channel, queue).await?.consumer_count() {
            0 => free + 1,
            _ => 0,
        };
    }
    Ok(())
}

/// Returns the numbers of consumers and messages of a queue.
async fn look(channel: &Channel, queue: &ShortString) -> Result<lapin::Queue, Error> {
    let options = QueueDeclareOptions {
        passive: true,
        ..QueueDeclareOptions::default()
    };
    let looked = channel.queue_declare(queue.clone(), options, FieldTable::default());
    looked.await.map_err(Error::broker("looking at the queue"))
}

async fn tell(channel: Channel, settles: Vec<Settle>) -> lapin::Result<()> {
    for settle in settles {
        match settle {
            Settle::UpTo(tag) => channel.basic_ack(tag, BasicAckOptions { multiple: true }).await?,
            Settle::One(tag) => channel.basic_ack(tag, BasicAckOptions { multiple: false }).await?,
            Settle::Reject(tag) => channel.basic_reject(tag, BasicRejectOptions { requeue: false }).await?,
        }
    }
    Ok(())
}
