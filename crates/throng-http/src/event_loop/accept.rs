//! Taking connections, up to their limit.

use super::{
    EventLoop, OpenConnection, Places,
    socket::{RefusedHead, plain},
};
use crate::{
    access::{self, Entrance},
    connection::{Stream, Verdict, client_at, linger},
    gate::Client,
    lane::Wire,
    metrics::Limit,
    problem::Problem,
    routes,
};
use bytes::Bytes;
use rustls::ServerConfig;
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::{Future as _, poll_fn},
    io,
    net::IpAddr,
    pin::pin,
    rc::Rc,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::AbortHandle,
    time::timeout,
};

/// So much of what a client over the limits says is looked at.
const FIRST_BYTES: usize = 2 << 10;
/// How long a refused client may take to read why.
const REFUSAL_WAIT: Duration = Duration::from_secs(1);
/// How long to wait when the system has no file descriptors left.
const NO_FILES_WAIT: Duration = Duration::from_millis(50);

/// Takes connections until the loop drains.
pub(super) async fn accept(event_loop: Rc<EventLoop>, listener: TcpListener, entrance: Entrance) {
    loop {
        let accepted = tokio::select! {
            biased;
            accepted = listener.accept() => accepted,
            () = event_loop.server.drains() => return,
        };
        match accepted {
            Ok((stream, address)) => take(&event_loop, stream, address.ip(), entrance),
            Err(error) if is_passing(&error) => tracing::debug!("a connection went before it was taken: {error}"),
            Err(error) => {
                tracing::warn!(
                    "a connection could not be taken: {error} (with too many open files, raise the limit: ulimit -n 20000)"
                );
                tokio::time::sleep(NO_FILES_WAIT).await;
            }
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

fn take(event_loop: &Rc<EventLoop>, stream: TcpStream, address: IpAddr, entrance: Entrance) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!("a connection ended at once: {error}");
        return;
    }
    let arrival = Arrival { address, entrance };
    let tls = event_loop.server.shared().tls(entrance);
    match (places(event_loop, client_at(address), entrance), tls) {
        (Ok(places), None) => enter(event_loop, Stream::plain(stream), arrival, places, Bytes::new()),
        (Ok(places), Some(config)) => {
            let open = open(event_loop, arrival, places);
            drop(tokio::task::spawn_local(shake_hands(
                event_loop.clone(),
                open,
                stream,
                config,
            )));
        }
        (Err(refused), tls) => {
            let (limit, problem) = *refused;
            event_loop.server.metrics().limited(limit);
            event_loop.server.metrics().refused_connections.inc();
            refuse(event_loop, stream, tls, arrival, problem);
        }
    }
}

/// Where a connection came from, and by which listener.
#[derive(Clone, Copy)]
struct Arrival {
    address: IpAddr,
    entrance: Entrance,
}

/// What a connection takes of those there may be. Administration has its own.
fn places(event_loop: &EventLoop, client: Client, entrance: Entrance) -> Result<Places, Box<(Limit, Problem)>> {
    let shared = event_loop.server.shared();
    let too_many = |whose: &str, most: usize| {
        let detail = format!("There are {most} connections{whose} already. Nothing was done; try again later.");
        Problem::overloaded(detail, REFUSAL_WAIT)
    };
    if entrance.is_admin {
        let place = shared.admin_places.take();
        return match place {
            Some(place) => Ok((Some(place), None)),
            None => {
                let problem = too_many(" for administration", shared.admin_places.most());
                Err(Box::new((Limit::Connections, problem)))
            }
        };
    }
    if let Some(rate) = &shared.connection_rate
        && let Err(later) = rate.take(client, Instant::now())
    {
        let problem = Problem::too_often("An address", "connect", rate.a_second(), later);
        return Err(Box::new((Limit::ConnectionRate, problem)));
    }
    let Some(counted) = shared.connected.enter(client) else {
        let problem = too_many(" of this address", shared.connected.most());
        return Err(Box::new((Limit::ConnectionsPerAddress, problem)));
    };
    match shared.places.take() {
        Some(place) => Ok((Some(place), counted)),
        None => Err(Box::new((Limit::Connections, too_many("", shared.places.most())))),
    }
}

fn open(event_loop: &Rc<EventLoop>, arrival: Arrival, places: Places) -> OpenConnection {
    let is_spare = places.0.is_none();
    let open = event_loop.connections.add(event_loop, places);
    let connection = &open.connection;
    connection.came_from(arrival.address, &event_loop.server.shared().proxies);
    connection.came_by(arrival.entrance);
    // One beyond the limits has one request.
    if is_spare || event_loop.server.is_draining() {
        connection.condemn(Verdict::Finish);
    }
    open
}

fn enter(event_loop: &Rc<EventLoop>, stream: Stream, arrival: Arrival, places: Places, first: Bytes) {
    let open = open(event_loop, arrival, places);
    let wire = Wire::new(stream, event_loop.clone(), open.connection.clone()).with(first);
    event_loop.door.enter(open, wire);
}

/// Opens the TLS session of a connection, within the time a head may take.
async fn shake_hands(event_loop: Rc<EventLoop>, open: OpenConnection, stream: TcpStream, config: Arc<ServerConfig>) {
    let wait = event_loop.server.limits().header_wait;
    let mut accepting = pin!(timeout(wait, Stream::accept(stream, config)));
    let accepted = poll_fn(|context| {
        open.connection.set_waker(context.waker());
        // Nothing was asked yet.
        if open.connection.is_ending() {
            return Poll::Ready(None);
        }
        accepting.as_mut().poll(context).map(Some)
    });
    let Some(accepted) = accepted.await else { return };
    match accepted {
        Ok(Ok(stream)) => {
            let shown = stream.certificates().and_then(|chain| chain.first());
            open.connection.shows(shown.and_then(access::tls::caller));
            let wire = Wire::new(stream, event_loop.clone(), open.connection.clone());
            event_loop.door.enter(open, wire);
        }
        Ok(Err(error)) => tracing::debug!("a TLS handshake failed: {error}"),
        Err(_) => tracing::debug!("a TLS handshake was not done within {wait:?}"),
    }
}

/// Lets a connection beyond the limits ask for what always has a place, and tells others why there is none.
fn refuse(
    event_loop: &Rc<EventLoop>,
    stream: TcpStream,
    tls: Option<Arc<ServerConfig>>,
    arrival: Arrival,
    problem: Problem,
) {
    let (own, number) = (event_loop.clone(), event_loop.refusals.number());
    let task = tokio::task::spawn_local(async move {
        let told = async {
            let stream = match tls {
                None => Stream::plain(stream),
                Some(config) => {
                    // One request, which is looked at before it is let in: HTTP/2 would begin with something else.
                    let mut config = (*config).clone();
                    config.alpn_protocols = vec![access::tls::HTTP1.to_vec()];
                    Stream::accept(stream, Arc::new(config)).await?
                }
            };
            answer_first(&own, stream, arrival, &problem).await;
            Ok::<_, io::Error>(())
        };
        match timeout(REFUSAL_WAIT, told).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!("a TLS handshake failed: {error}"),
            Err(_) => tracing::debug!("a refused connection ended before it was told why"),
        }
        own.refusals.left(number);
    });
    event_loop.refusals.push(
        number,
        task.abort_handle(),
        event_loop.server.limits().spare_connections_max,
    );
}

async fn answer_first(event_loop: &Rc<EventLoop>, mut stream: Stream, arrival: Arrival, problem: &Problem) {
    let mut first = [0; FIRST_BYTES];
    let Ok(count @ 1..) = stream.read(&mut first).await else {
        return;
    };
    let came = &first[..count];
    let path = came.split(|byte| matches!(byte, b' ' | b'?')).nth(1);
    if path.is_some_and(|path| std::str::from_utf8(path).is_ok_and(routes::is_urgent)) {
        let first = Bytes::copy_from_slice(came);
        return enter(event_loop, stream, arrival, (None, None), first);
    }
    let refused = RefusedHead::read(came, &event_loop.server, arrival.entrance);
    if stream.write_all(&plain(problem, &refused)).await.is_ok() && stream.flush().await.is_ok() {
        linger(&mut stream, REFUSAL_WAIT).await;
    }
}

/// Connections over the limits that are looked at. There are never more than there may be: the oldest gives way.
#[derive(Default)]
pub(super) struct Refusals {
    tasks: RefCell<VecDeque<(u64, AbortHandle)>>,
    next: Cell<u64>,
}

impl Refusals {
    fn number(&self) -> u64 {
        self.next.replace(self.next.get() + 1)
    }

    fn push(&self, number: u64, task: AbortHandle, most: usize) {
        let mut tasks = self.tasks.borrow_mut();
        tasks.push_back((number, task));
        while tasks.len() > most
            && let Some((_, oldest)) = tasks.pop_front()
        {
            oldest.abort();
        }
    }

    fn left(&self, number: u64) {
        self.tasks.borrow_mut().retain(|(other, _)| *other != number);
    }
}
