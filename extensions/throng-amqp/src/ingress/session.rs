//! A session of consuming a queue: one connection's worth.

use super::{
    BARREN_MAX, Part,
    flow::{Flow, Settle},
    window::Window,
};
use crate::{Error, runner::Stop, topology::short};
use futures_util::Stream as _;
use lapin::{
    Channel, Consumer,
    message::Delivery,
    options::{
        BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicQosOptions, BasicRejectOptions,
        QueueDeclareOptions,
    },
    types::{FieldTable, ShortString},
};
use std::{
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::time::{Instant, Sleep, sleep, timeout};

/// Messages taken in one go: what they come to is one commit, and others of the thread have their turn then.
const TURN: usize = 1_024;
/// The time between two looks at the window.
const OBSERVE: Duration = Duration::from_secs(1);
/// When what the engine had no room for is tried again.
const AGAIN: Duration = Duration::from_millis(20);
/// The pause between two looks of a consumer that stands by, and the looks in a row that must find no other consumer.
const FREE_LOOK: Duration = Duration::from_secs(1);
const FREE_LOOKS: u32 = 3;
/// The name of the consumer at the broker; of a channel of its own.
const TAG: &str = "throng";

/// The end of a session.
pub(super) enum Ended {
    Stopped,
    Lost(Error),
}

/// Connects, and consumes until it is stopped or the connection is lost. An error: it did not come to that.
pub(super) async fn session(part: &Part, stop: &mut Stop, connected: &mut impl FnMut()) -> Result<Ended, Error> {
    let options = &part.options;
    let connection = options.broker.connect(&format!("throng {}", options.queue)).await?;
    options.topology.apply(&connection).await?;
    let opened = connection.create_channel().await;
    let channel = opened.map_err(Error::broker("opening a channel"))?;
    let queue = short(&options.queue)?;
    let Some(waiting) = when_free(part, &channel, &queue, stop, connected).await? else {
        return Ok(Ended::Stopped);
    };
    let window = Window::new(&options.prefetch, options.latency, part.bytes_max());
    let mut session = Session {
        flow: Flow::new(part),
        window: match part.barren.get() {
            0..BARREN_MAX => window,
            _ => window.of_one(),
        },
        queue,
        channel,
        telling: None,
        to_tell: Vec::new(),
        beside: 0,
        again: Box::pin(sleep(AGAIN)),
        observe: Box::pin(sleep(OBSERVE)),
        seen: Seen::default(),
        has_settled: false,
        is_misfit: false,
        part,
    };
    let ended = session.consume_until_end(stop, connected).await;
    let is_lost = !matches!(ended, Ok(Ended::Stopped));
    if is_lost && !session.has_settled && (waiting > 0 || session.flow.len() > 0) {
        part.barren.set(part.barren.get().saturating_add(1));
    }
    part.metrics.in_flight.set(0);
    let _ = timeout(Duration::from_secs(1), connection.close(200, "done".into())).await;
    ended
}

/// Waits until nobody else consumes the queue, and says how many messages wait in it; `None`: it is stopped before that. By looking, which no
/// broker refuses, and not by the exclusive consumer alone: of a quorum queue there is none.
async fn when_free(
    part: &Part,
    channel: &Channel,
    queue: &ShortString,
    stop: &mut Stop,
    connected: &mut impl FnMut(),
) -> Result<Option<u32>, Error> {
    let mut free = 0;
    loop {
        let looked = look(channel, queue).await?;
        part.standing.is_reached();
        if !part.options.single_active || looked.consumer_count() == 0 {
            free += 1;
            // One that was there is given the time to come back.
            if !part.stood_by.get() || free == FREE_LOOKS {
                part.stood_by.set(false);
                return Ok(Some(looked.message_count()));
            }
        } else {
            free = 0;
            if !part.stood_by.replace(true) {
                tracing::info!("another consumer has the queue {queue:?}: this one stands by");
            }
            part.standing.stands_by();
            connected();
        }
        tokio::select! {
            () = sleep(FREE_LOOK) => {}
            () = stop.wait() => return Ok(None),
        }
    }
}

/// Counts the consumers and messages of a queue.
async fn look(channel: &Channel, queue: &ShortString) -> Result<lapin::Queue, Error> {
    let options = QueueDeclareOptions {
        passive: true,
        ..QueueDeclareOptions::default()
    };
    let looked = channel.queue_declare(queue.clone(), options, FieldTable::default());
    looked.await.map_err(Error::broker("looking at the queue"))
}

struct Session<'a> {
    part: &'a Part,
    channel: Channel,
    queue: ShortString,
    flow: Flow<'a>,
    window: Window,
    /// The acknowledgement under way; what is settled meanwhile goes with the next.
    telling: Option<Pin<Box<dyn Future<Output = lapin::Result<()>> + Send>>>,
    /// The acknowledgement that the broker gets.
    to_tell: Vec<Settle>,
    /// Dead letters that were waiting when consuming began: the broker has so many messages more out.
    beside: usize,
    again: Pin<Box<Sleep>>,
    /// When the window is looked at, though nothing comes.
    observe: Pin<Box<Sleep>>,
    seen: Seen,
    has_settled: bool,
    /// A message has shown that the window has the wrong size.
    is_misfit: bool,
}

/// The counts since the last look at the window.
#[derive(Default)]
struct Seen {
    settled: u32,
    took: Duration,
    was_full: bool,
}

/// Why it does not go on as it did.
enum Why {
    Stopped,
    /// The window has another size.
    Window,
}

impl Session<'_> {
    async fn consume_until_end(&mut self, stop: &mut Stop, connected: &mut impl FnMut()) -> Result<Ended, Error> {
        let mut consumer = self.consume().await?;
        let (options, standing) = (&self.part.options, &self.part.standing);
        tracing::info!(
            "the queue {:?} of the broker at {} is consumed",
            options.queue,
            options.broker
        );
        if self.part.barren.get() < BARREN_MAX {
            standing.consumes();
        }
        connected();
        loop {
            match self.run(&mut consumer, stop).await {
                Ok(Why::Stopped) => {
                    // What is not settled by then comes again.
                    let _ = timeout(options.drain, self.drain()).await;
                    return Ok(Ended::Stopped);
                }
                Ok(Why::Window) => match self.consume_anew(consumer).await {
                    Ok(anew) => consumer = anew,
                    Err(error) => return Ok(Ended::Lost(error)),
                },
                Err(error) => return Ok(Ended::Lost(error)),
            }
        }
    }

    async fn consume(&mut self) -> Result<Consumer, Error> {
        let failed = || Error::broker("consuming the queue");
        self.beside = self.flow.letters();
        let beside = u16::try_from(self.beside).unwrap_or(u16::MAX);
        let size = self.window.grant().saturating_add(beside);
        self.part.metrics.prefetch.set(i64::from(size));
        let limited = self.channel.basic_qos(size, BasicQosOptions::default());
        limited.await.map_err(failed())?;
        let single_active = self.part.options.single_active;
        let options = BasicConsumeOptions {
            exclusive: single_active,
            ..BasicConsumeOptions::default()
        };
        let consumer = self
            .channel
            .basic_consume(self.queue.clone(), TAG.into(), options, FieldTable::default());
        let consumer = consumer.await.map_err(failed())?;
        // Two that have found it free at the same moment both begin anew, after pauses that differ.
        if single_active && look(&self.channel, &self.queue).await?.consumer_count() != 1 {
            return Err(Error::Broker {
                doing: "consuming the queue",
                why: "another consumer has begun at the same moment".into(),
            });
        }
        Ok(consumer)
    }

    /// A consumer with the window as it is now: that of one which consumes cannot be changed.
    async fn consume_anew(&mut self, mut consumer: Consumer) -> Result<Consumer, Error> {
        let cancelled = self.channel.basic_cancel(TAG.into(), BasicCancelOptions::default());
        cancelled.await.map_err(Error::broker("changing the prefetch"))?;
        // What was on its way to it is ours, and never more than the window.
        while let Some(delivery) = std::future::poll_fn(|context| Pin::new(&mut consumer).poll_next(context)).await {
            self.take_in(delivery.map_err(Error::broker("consuming the queue"))?);
        }
        self.is_misfit = false;
        self.consume().await
    }

    fn take_in(&mut self, delivery: Delivery) {
        let bytes = self.flow.take(delivery);
        self.is_misfit |= self.window.weigh(bytes);
    }

    async fn run(&mut self, consumer: &mut Consumer, stop: &mut Stop) -> Result<Why, Error> {
        let mut stopped = pin!(stop.wait());
        std::future::poll_fn(|context| {
            if stopped.as_mut().poll(context).is_ready() {
                return Poll::Ready(Ok(Why::Stopped));
            }
            self.poll(Some(&mut *consumer), context)
        })
        .await
    }

    /// Settles what is in flight.
    async fn drain(&mut self) -> Result<Why, Error> {
        std::future::poll_fn(|context| {
            let polled = self.poll(None, context);
            match self.flow.len() == 0 && self.telling.is_none() && self.to_tell.is_empty() {
                true => Poll::Ready(Ok(Why::Stopped)),
                false => polled,
            }
        })
        .await
    }

    fn poll(&mut self, consumer: Option<&mut Consumer>, context: &mut Context<'_>) -> Poll<Result<Why, Error>> {
        while self.flow.is_held_up() && self.again.as_mut().poll(context).is_ready() {
            self.again.as_mut().reset(Instant::now() + AGAIN);
            self.flow.try_again();
        }
        let taken = match consumer {
            Some(_) if self.is_misfit || self.window_has_changed(context) => return Poll::Ready(Ok(Why::Window)),
            Some(consumer) => self.take(consumer, context),
            None => Poll::Pending,
        };
        // Behind it, so that what was just taken is waited for.
        self.settle(context).map_err(Error::broker("settling messages"))?;
        ready!(taken)?;
        // There is more; others of this thread have their turn first, and the committer is one of them.
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Takes what is there, at most a turn's worth; ready if there may be more.
    fn take(&mut self, consumer: &mut Consumer, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let failed = || Error::broker("consuming the queue");
        for _ in 0..TURN {
            // What the engine has no room for waits with the broker.
            if self.flow.is_held_up() {
                return self.again.as_mut().poll(context).map(Ok);
            }
            match ready!(Pin::new(&mut *consumer).poll_next(context)) {
                Some(delivery) => self.take_in(delivery.map_err(failed())?),
                None => {
                    let why = "the broker has ended the consumer: the queue may have been deleted".to_owned();
                    return Poll::Ready(Err(Error::Broker {
                        doing: "consuming the queue",
                        why,
                    }));
                }
            }
            let in_flight = self.flow.len();
            self.part.metrics.in_flight.set(in_flight as i64);
            self.seen.was_full |= in_flight * 2 >= usize::from(self.window.size());
            if self.is_misfit {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Tells the broker what is settled.
    fn settle(&mut self, context: &mut Context<'_>) -> lapin::Result<()> {
        let settled = self.flow.poll_settled(context);
        if settled.count > 0 {
            if !self.has_settled {
                self.has_settled = true;
                self.part.barren.set(0);
                self.part.standing.consumes();
            }
            self.part.metrics.taken.inc_by(u64::from(settled.count));
            self.part.metrics.in_flight.set(self.flow.len() as i64);
            self.seen.settled += settled.count;
            self.seen.took += settled.took;
        }
        self.to_tell.extend(settled.settles);
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
        self.observe.as_mut().reset(Instant::now() + OBSERVE);
        // Dead letters that wait take places of the window.
        let waiting = self.flow.letters().saturating_sub(self.beside);
        let is_crowded = waiting * 2 >= usize::from(self.window.size());
        if self.seen.settled == 0 && !is_crowded {
            return false;
        }
        let seen = std::mem::take(&mut self.seen);
        let has_changed = seen.settled > 0 && self.window.observe(seen.took / seen.settled, seen.was_full);
        has_changed || is_crowded
    }
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
