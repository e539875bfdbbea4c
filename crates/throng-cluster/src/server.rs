//! The connections from other nodes, on the answering side.

use crate::{
    Links,
    frame::{self, FRAME_BYTES_MAX, Frame, Hello, PROTOCOL, Role},
    node_loop::Host,
    wire::{self, Trust, Trusted, Wire},
};
use futures_util::{FutureExt as _, StreamExt as _, stream::FuturesUnordered};
use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use throng::driver::peers::Reply;
use throng_journal::{Directory, scratch};
use tokio::{
    io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    runtime::Handle,
    sync::oneshot,
    time::timeout,
};

const HANDSHAKE: Duration = Duration::from_secs(3);
/// A connection that takes no answers for so long is over.
const STALLED: Duration = Duration::from_secs(3);
/// The most connections that have not proved yet that they come from a node. Each further one closes the oldest.
const STRANGERS_MAX: usize = 64;
/// The least time between two of them: a TLS handshake costs about a millisecond of a loop with clients, and anybody who reaches the port
/// can begin one.
const STRANGER_EVERY: Duration = Duration::from_millis(10);
/// The most unanswered requests of one connection. Further ones are read once some are answered.
const ASKS_MAX: usize = 8_192;
/// The approximate bytes of answers in one frame.
const ANSWER_BYTES: usize = 1 << 20;

/// The least time between two warnings of a kind, because anybody who reaches the port can cause them.
const WARN_EVERY: Duration = Duration::from_secs(1);

/// Warnings of one kind, not all of which are logged.
#[derive(Default)]
pub(crate) struct Warnings(Mutex<(Option<Instant>, u64)>);

impl Warnings {
    /// Returns the number of warnings since the last logged one, including this; `None`: it is not logged.
    fn due(&self) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (written, count) = &mut *state;
        *count += 1;
        if written.is_some_and(|written| written.elapsed() < WARN_EVERY) {
            return None;
        }
        *written = Some(Instant::now());
        Some(std::mem::take(count))
    }
}

/// Connections that have not proved yet that they come from a node, the oldest first. Silent ones do not keep out a node that connects
/// later.
#[derive(Default)]
struct Strangers {
    waiting: Mutex<VecDeque<Waiting>>,
}

struct Waiting {
    number: u64,
    /// Dropped, the connection is closed.
    _keeps: oneshot::Sender<()>,
}

/// A place among them, until this is dropped.
struct Stranger {
    number: u64,
    kept: oneshot::Receiver<()>,
    of: Arc<Strangers>,
}

impl Strangers {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection; `true`: the oldest is closed for it.
    fn enter(self: &Arc<Self>, number: u64) -> (Stranger, bool) {
        let (_keeps, kept) = oneshot::channel();
        let mut waiting = self.waiting();
        let is_full = waiting.len() >= STRANGERS_MAX;
        if is_full {
            waiting.pop_front();
        }
        waiting.push_back(Waiting { number, _keeps });
        let of = Arc::clone(self);
        (Stranger { number, kept, of }, is_full)
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let number = self.number;
        self.of.waiting().retain(|waiting| waiting.number != number);
    }
}

/// The cluster whose nodes are accepted, and this node's own number.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) cluster: String,
    /// This node's number; 0 before it has joined.
    pub(crate) me: u64,
}

pub(crate) struct Server {
    /// The event loops that handle connections; at least one.
    pub(crate) loops: Vec<Handle>,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) directory: Arc<dyn Directory>,
    pub(crate) trust: Trust,
    pub(crate) shards: u16,
    pub(crate) known: Mutex<Known>,
    pub(crate) refused: Warnings,
    /// The number of refused connections.
    pub(crate) refusals: AtomicU64,
    /// Has this node's report.
    pub(crate) links: Links,
}

impl Server {
    /// Takes connections until its task is ended.
    pub(crate) async fn listen(self: Arc<Self>, listener: TcpListener) {
        let strangers = Arc::<Strangers>::default();
        let (mut number, closed) = (0, Warnings::default());
        let mut loops = self.loops.iter().cycle();
        loop {
            match listener.accept().await {
                Ok((stream, from)) => {
                    let stream = stream.into_std();
                    number += 1;
                    let (stranger, has_closed) = strangers.enter(number);
                    if has_closed && closed.due().is_some() {
                        tracing::warn!(
                            "the oldest connection that has not said which node it is was closed for one from {from}: there are {STRANGERS_MAX}"
                        );
                    }
                    let server = Arc::clone(&self);
                    let serve = async move {
                        if let Err(why) = server.serve((stream, from), stranger).await {
                            tracing::debug!("the connection of the node at {from} is over: {why}");
                        }
                    };
                    if let Some(on) = loops.next() {
                        on.spawn(serve);
                    }
                    tokio::time::sleep(STRANGER_EVERY).await;
                }
                Err(error) => {
                    tracing::warn!("no connection of another node can be taken: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn serve(
        &self,
        arrived: (io::Result<std::net::TcpStream>, SocketAddr),
        stranger: Stranger,
    ) -> Result<(), String> {
        let entered = self.enter(arrived, stranger).await;
        let wire = entered.inspect_err(|_| {
            self.refusals.fetch_add(1, Ordering::Relaxed);
        })?;
        self.answer(wire).await
    }

    /// Lets a connection in that proves to be a node's.
    async fn enter(
        &self,
        (stream, from): (io::Result<std::net::TcpStream>, SocketAddr),
        mut stranger: Stranger,
    ) -> Result<Wire, String> {
        // Registered with the loop that works it.
        let stream = stream.and_then(TcpStream::from_std).map_err(|why| why.to_string())?;
        stream.set_nodelay(true).map_err(|why| why.to_string())?;
        let trusted = self.trust.now();
        let shake = async {
            let mut wire = Wire::accepted(stream, &trusted).await?;
            match self.shake(&mut wire, &trusted).await {
                Ok(()) => Ok(wire),
                Err(why) => {
                    // The peer gets the reason, if it still listens.
                    let _ = wire.send(&Frame::Refused(why.clone())).await;
                    Err(why)
                }
            }
        };
        let shaken = tokio::select! {
            shaken = timeout(HANDSHAKE, shake) => shaken,
            _ = &mut stranger.kept => return Err("others came before it has said who it is".into()),
        };
        match shaken {
            Ok(Ok(wire)) => Ok(wire),
            Ok(Err(why)) => {
                if let Some(count) = self.refused.due() {
                    tracing::warn!(
                        "a connection from {from} is not let in as a node's ({count} since the last such line): {why}"
                    );
                }
                Err(why)
            }
            Err(_) => Err("it takes too long to say who it is".into()),
        }
    }

    /// Has the other node introduce and prove itself.
    async fn shake(&self, wire: &mut Wire, trusted: &Trusted) -> Result<(), String> {
        let Frame::Hello(hello) = wire.receive().await? else {
            return Err("it does not begin as a node does".into());
        };
        if hello.protocol != PROTOCOL {
            return Err(format!(
                "it speaks version {} of the frames, this node {PROTOCOL}: run programs of one version, or of two that follow each other",
                hello.protocol
            ));
        }
        let own = {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            if hello.cluster != known.cluster {
                return Err(format!("it is a node of another cluster, {:?}", hello.cluster));
            }
            if hello.shards != self.shards {
                return Err(format!(
                    "its service has {} shards, this one {}",
                    hello.shards, self.shards
                ));
            }
            Hello {
                protocol: PROTOCOL,
                cluster: known.cluster.clone(),
                node: known.me,
                shards: self.shards,
                nonce: rand::random(),
            }
        };
        let proof = trusted.secret().proof(Role::Server, &hello, &own);
        let welcome = Frame::Welcome {
            hello: own.clone(),
            proof,
        };
        wire.send(&welcome).await?;
        let Frame::Proof(proof) = wire.receive().await? else {
            return Err("it does not prove that it knows the cluster's secret".into());
        };
        match trusted.proved_by(&proof, Role::Client, &hello, &own) {
            Some(_) => Ok(()),
            None => Err(format!(
                "node {} does not know the cluster's secret: give all nodes the same --cluster-secret-file",
                hello.node
            )),
        }
    }

    /// Has the engine answer requests. They begin in the order they came.
    async fn answer(&self, wire: Wire) -> Result<(), String> {
        let Wire {
            mut reader,
            mut writer,
            read: mut bytes,
        } = wire;
        let mut working = FuturesUnordered::new();
        let mut out = Vec::new();
        loop {
            let mut used = 0;
            while working.len() < ASKS_MAX
                && let Some((frame, length)) =
                    frame::decode(&bytes[used..], FRAME_BYTES_MAX).map_err(|why| why.to_string())?
            {
                used += length;
                let asks = match frame {
                    Frame::Asks(asks) => asks,
                    Frame::AsksServer => {
                        let server = self.directory.server().await.ok().flatten();
                        tell(&mut writer, &Frame::UsesServer(server.unwrap_or_default())).await?;
                        continue;
                    }
                    Frame::AsksReport => {
                        tell(&mut writer, &Frame::Reports(self.links.report())).await?;
                        continue;
                    }
                    _ => return Err("it sends what is no request".into()),
                };
                for ask in asks {
                    let within = Duration::from_micros(u64::from(ask.within_micros));
                    let reply = self.host.answer(ask.request, within);
                    working.push(reply.map(move |reply| (ask.id, reply)));
                }
            }
            wire::advance(&mut bytes, used);
            let mut answers: Vec<(u32, Reply)> = Vec::new();
            let mut size = 0;
            while size < ANSWER_BYTES
                && let Some(Some((id, reply))) = working.next().now_or_never()
            {
                size += weight(&reply);
                answers.push((id, reply));
            }
            if answers.is_empty() {
                let may_read = working.len() < ASKS_MAX;
                tokio::select! {
                    read = reader.read_buf(&mut bytes), if may_read => {
                        if read.map_err(|why| why.to_string())? == 0 {
                            return Err("it was closed".into());
                        }
                        continue;
                    }
                    Some((id, reply)) = working.next() => answers.push((id, reply)),
                }
            }
            scratch::empty(&mut out);
            if let Err(why) = frame::encode(&Frame::Answers(answers), &mut out) {
                return Err(format!("an answer cannot be sent: {why}"));
            }
            let write = async {
                writer.write_all(&out).await?;
                writer.flush().await
            };
            match timeout(STALLED, write).await {
                Ok(written) => written.map_err(|why| why.to_string())?,
                Err(_) => return Err("it reads no answers".into()),
            }
        }
    }
}

async fn tell(writer: &mut (impl AsyncWrite + Unpin), told: &Frame) -> Result<(), String> {
    let mut bytes = Vec::new();
    frame::encode(told, &mut bytes).map_err(|why| why.to_string())?;
    writer.write_all(&bytes).await.map_err(|why| why.to_string())?;
    writer.flush().await.map_err(|why| why.to_string())
}

fn weight(reply: &Reply) -> usize {
    match reply {
        Reply::Done(body) => 16 + body.len(),
        Reply::Taken(taken) => 64 * taken.len(),
        Reply::History { events, .. } => events.iter().map(|event| 64 + event.payload.len()).sum(),
        Reply::Erased { .. } | Reply::Recorded { .. } | Reply::Operated(_) | Reply::Dropped { .. } => 64,
        Reply::Pruned { report, .. } => 256 + report.held_by.iter().map(String::len).sum::<usize>(),
        Reply::Listed { heads, .. } => heads.iter().map(|(id, _)| 16 + id.len()).sum(),
        Reply::Fields { rows, .. } => rows
            .iter()
            .map(|(id, row)| 16 + id.len() + row.as_ref().map_or(0, |row| row.len()))
            .sum(),
        Reply::Refused(_) | Reply::NotHere | Reply::Unknown => 128,
    }
}
