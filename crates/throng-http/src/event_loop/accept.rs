//! Taking connections, up to their limit.

use super::{
    shared::EventLoop,
    socket::{RefusedHead, plain},
};
use crate::{
    admission::Client,
    connection::{AcceptedBy, ConnectionPlaces, OpenConnection, Stream, Verdict, client_at, linger},
    guard::tls,
    http1::Wire,
    limits::CONNECTION_BYTES,
    metrics::Limit,
    problem::Problem,
    routes,
    server::ADMIN_CONNECTIONS_MAX,
};
use bytes::Bytes;
use rustls::ServerConfig;
use std::{
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
    sync::Notify,
    time::{sleep, timeout},
};

/// The bytes of a refused client's request that are examined.
const FIRST_BYTES: usize = 2 << 10;
/// The time that a refused client has to read the reason.
const REFUSAL_WAIT: Duration = Duration::from_secs(1);
/// The number of refusals in a row before a pause, and the pause: at most 3,200 refusals a second.
const REFUSALS_TOGETHER: usize = 32;
const REFUSALS_PAUSE: Duration = Duration::from_millis(10);
/// The pause when the system has no file descriptors left.
const NO_FILES_WAIT: Duration = Duration::from_millis(50);

/// Takes connections until the loop drains.
pub(super) async fn accept(event_loop: Rc<EventLoop>, listener: TcpListener, accepted_by: AcceptedBy) {
    let mut refused = 0;
    loop {
        let accepted = tokio::select! {
            biased;
            accepted = listener.accept() => accepted,
            () = event_loop.server.drains() => return,
        };
        match accepted {
            Ok((stream, address)) => {
                if take(&event_loop, stream, address.ip(), accepted_by) {
                    continue;
                }
                refused += 1;
                // Older refused connections end meanwhile, and free their file descriptors.
                match refused % REFUSALS_TOGETHER {
                    0 => tokio::time::sleep(REFUSALS_PAUSE).await,
                    _ => tokio::task::yield_now().await,
                }
            }
            Err(error) if is_passing(&error) => tracing::debug!("a connection went before it was taken: {error}"),
            Err(error) => {
                event_loop.server.shared().refused.fails(&error);
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

/// Takes a connection over; `false`: it was refused.
fn take(event_loop: &Rc<EventLoop>, stream: TcpStream, address: IpAddr, accepted_by: AcceptedBy) -> bool {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!("a connection ended at once: {error}");
        return true;
    }
    let arrival = Arrival { address, accepted_by };
    let tls = event_loop.server.shared().tls(accepted_by);
    match (places(event_loop, client_at(address), accepted_by), tls) {
        (Ok(places), None) => enter(event_loop, Stream::plain(stream), arrival, places, Bytes::new()),
        (Ok(places), Some(config)) => {
            let open = open(event_loop, arrival, places);
            drop(tokio::task::spawn_local(shake_hands(
                event_loop.clone(),
                (open, address),
                stream,
                config,
            )));
        }
        (Err(refused), tls) => {
            let (limit, problem) = *refused;
            event_loop.server.metrics().limited(limit);
            event_loop.server.metrics().refused_connections.inc();
            event_loop.server.shared().refused.count();
            refuse(event_loop, stream, tls, arrival, problem);
            return false;
        }
    }
    true
}

/// The address of a new connection, and the listener that accepted it.
#[derive(Clone, Copy)]
struct Arrival {
    address: IpAddr,
    accepted_by: AcceptedBy,
}

/// Returns the places that a connection takes of the limits. Administration has its own.
fn places(
    event_loop: &EventLoop,
    client: Client,
    accepted_by: AcceptedBy,
) -> Result<ConnectionPlaces, Box<(Limit, Problem)>> {
    let shared = event_loop.server.shared();
    let too_many = |whose: &str, most: usize| {
        let detail = format!("There are {most} connections{whose} already. Nothing was done; try again later.");
        Problem::overloaded(detail, REFUSAL_WAIT)
    };
    if accepted_by.is_admin {
        return match shared.held.admin.take(CONNECTION_BYTES) {
            Some(memory) => Ok(ConnectionPlaces::new(memory, None)),
            None => {
                let problem = too_many(" for administration", ADMIN_CONNECTIONS_MAX);
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
    let Some(of_address) = shared.connected.enter(client) else {
        let problem = too_many(" of this address", shared.connected.most());
        return Err(Box::new((Limit::ConnectionsPerAddress, problem)));
    };
    match shared.held.connections.take(CONNECTION_BYTES) {
        Some(memory) => Ok(ConnectionPlaces::new(memory, of_address)),
        None => {
            let problem = too_many("", event_loop.server.limits().connections_max);
            Err(Box::new((Limit::Connections, problem)))
        }
    }
}

fn open(event_loop: &Rc<EventLoop>, arrival: Arrival, places: ConnectionPlaces) -> OpenConnection {
    let is_spare = places.is_spare();
    let open = event_loop.connections.add(places);
    let connection = &open.connection;
    connection.came_from(arrival.address, &event_loop.server.shared().proxies);
    connection.came_by(arrival.accepted_by);
    // A connection beyond the limits may send a single request.
    if is_spare || event_loop.server.is_draining() {
        connection.condemn(Verdict::Finish);
    }
    open
}

fn enter(event_loop: &Rc<EventLoop>, stream: Stream, arrival: Arrival, places: ConnectionPlaces, first: Bytes) {
    let open = open(event_loop, arrival, places);
    let wire = Wire::new(stream, event_loop.server.clone(), open.connection.clone()).with(first);
    event_loop.intake.enter(open, wire);
}

/// Opens the TLS session of a connection, within the time a head may take.
async fn shake_hands(
    event_loop: Rc<EventLoop>,
    (open, address): (OpenConnection, IpAddr),
    stream: TcpStream,
    config: Arc<ServerConfig>,
) {
    let wait = event_loop.server.limits().header_wait;
    let mut accepting = pin!(timeout(wait, Stream::accept(stream, config)));
    let accepted = poll_fn(|context| {
        open.connection.set_waker(context.waker());
        // No request was sent yet.
        if open.connection.is_ending() {
            return Poll::Ready(None);
        }
        accepting.as_mut().poll(context).map(Some)
    });
    let Some(accepted) = accepted.await else { return };
    match accepted {
        Ok(Ok(stream)) => {
            let shown = stream.certificates().and_then(|chain| chain.first());
            open.connection.shows(shown.and_then(tls::caller));
            let wire = Wire::new(stream, event_loop.server.clone(), open.connection.clone());
            event_loop.intake.enter(open, wire);
        }
        Ok(Err(error)) => {
            let reason = tls::failure(&error);
            event_loop.server.metrics().tls_failed(reason);
            tracing::debug!("a TLS handshake with {address} failed ({reason}): {error}");
        }
        Err(_) => {
            event_loop.server.metrics().tls_failed("timeout");
            tracing::debug!("a TLS handshake with {address} was not done within {wait:?}");
        }
    }
}

/// Lets a connection beyond the limits send requests that always have a place, and answers others with the reason.
fn refuse(
    event_loop: &Rc<EventLoop>,
    stream: TcpStream,
    tls: Option<Arc<ServerConfig>>,
    arrival: Arrival,
    problem: Problem,
) {
    let (own, gives_way) = (event_loop.clone(), Rc::new(Notify::new()));
    let number = event_loop.refusals.push(gives_way.clone(), refusals_max(event_loop));
    tokio::task::spawn_local(async move {
        let begun = tokio::select! {
            biased;
            begun = timeout(REFUSAL_WAIT, begin_refused(stream, tls)) => begun.ok(),
            () = gives_way.notified() => None,
        };
        match begun {
            Some(Ok(stream)) => answer_first(&own, stream, arrival, &problem, &gives_way).await,
            Some(Err(error)) => tracing::debug!("a TLS handshake failed: {error}"),
            None => tracing::debug!("a refused connection ended before it was told why"),
        }
        own.refusals.left(number);
    });
}

async fn begin_refused(stream: TcpStream, tls: Option<Arc<ServerConfig>>) -> io::Result<Stream> {
    match tls {
        None => Ok(Stream::plain(stream)),
        Some(config) => {
            // A refused client may send one request, which is examined first. HTTP/2 would begin with a preface instead.
            let mut config = (*config).clone();
            config.alpn_protocols = vec![tls::HTTP1.to_vec()];
            Stream::accept(stream, Arc::new(config)).await
        }
    }
}

/// Returns the most refusals at a time on this loop. All loops use half of the spare connections for refusals. The other half is for
/// health, metrics and administration.
fn refusals_max(event_loop: &EventLoop) -> usize {
    let loops = usize::try_from(event_loop.server.metrics().loops.get()).unwrap_or(1);
    (event_loop.server.limits().spare_connections_max / 2 / loops.max(1)).max(1)
}

async fn answer_first(
    event_loop: &Rc<EventLoop>,
    mut stream: Stream,
    arrival: Arrival,
    problem: &Problem,
    gives_way: &Notify,
) {
    let mut first = [0; FIRST_BYTES];
    let (count, stays) = tokio::select! {
        biased;
        read = stream.read(&mut first) => match read {
            Ok(count @ 1..) => (count, true),
            _ => return,
        },
        () = gives_way.notified() => (0, false),
        () = sleep(REFUSAL_WAIT) => (0, true),
    };
    let (came, shared) = (&first[..count], event_loop.server.shared());
    if is_urgent(came)
        && let Some(spare) = shared.spare.take()
    {
        let came = Bytes::copy_from_slice(came);
        return enter(event_loop, stream, arrival, ConnectionPlaces::spare(spare), came);
    }
    let refused = RefusedHead::read(came, &event_loop.server, arrival.accepted_by);
    let answer = plain(problem, &refused);
    let told = timeout(REFUSAL_WAIT, async {
        stream.write_all(&answer).await?;
        stream.flush().await
    });
    let is_told = matches!(told.await, Ok(Ok(())));
    if stays && is_told {
        tokio::select! {
            () = linger(&mut stream, REFUSAL_WAIT) => {}
            () = gives_way.notified() => {}
        }
    }
}

/// True if these bytes are a complete head of a request for health, metrics or administration.
fn is_urgent(came: &[u8]) -> bool {
    let path = came.split(|byte| matches!(byte, b' ' | b'?')).nth(1);
    let is_urgent = path.is_some_and(|path| std::str::from_utf8(path).is_ok_and(routes::is_urgent));
    is_urgent && came.windows(4).any(|bytes| bytes == b"\r\n\r\n")
}
