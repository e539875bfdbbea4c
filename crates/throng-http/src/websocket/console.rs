//! `GET /admin/live`: a WebSocket with a point each second, and live events of entities. A client that does not read loses points; its
//! events wait in the journal.

use super::wire::Wire;
use crate::{
    access,
    caller::ShownCredentials,
    connection::{Connection, Stream},
    console::{PROTOCOL, map},
    follow,
    places::Taken,
    server::{Server, Shared},
};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use serde::Deserialize;
use serde_json::json;
use std::{collections::HashMap, rc::Rc, time::Duration};
use throng::{Follow, inspect::Inspect};
use tokio::{
    sync::{broadcast, mpsc},
    task::AbortHandle,
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message as Frame, Utf8Bytes,
        protocol::{CloseFrame, Role, WebSocketConfig},
    },
};

/// The most subscriptions of a socket.
const SUBSCRIPTIONS_MAX: usize = 16;
/// The most bytes of a received frame.
const FRAME_BYTES_MAX: usize = 4 << 10;
/// The events of one read, and the frames that wait for a client.
const EVENTS: usize = 100;
const FRAMES_MAX: usize = 200;
/// The time after which a client that takes nothing is cut off.
const WRITE_WAIT: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum Said {
    Subscribe {
        subscription: u32,
        kind: String,
        id: String,
        after: Option<u64>,
    },
    Unsubscribe {
        subscription: u32,
    },
}

/// Ends when it is dropped.
struct Subscription(AbortHandle);

impl Drop for Subscription {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The reason why a socket ends.
enum End {
    Gone,
    Close(u16, &'static str),
}

type Socket = WebSocketStream<Wire>;

/// Serves a socket to its end.
pub(crate) async fn run(server: Rc<Server>, connection: Rc<Connection>, stream: Stream, came: Bytes) {
    // A socket counts as one long request of its connection, so that it may be silent for long.
    let _in_flight = connection.begin(http::Version::HTTP_11);
    let config = WebSocketConfig::default()
        .max_message_size(Some(FRAME_BYTES_MAX))
        .max_frame_size(Some(FRAME_BYTES_MAX));
    let wire = Wire::new(stream, connection.clone(), server.clone(), came, Vec::new());
    let opening = WebSocketStream::from_raw_socket(wire, Role::Server, Some(config));
    let mut socket = opening.await;
    let held = connection.take_held();
    let end = match server.shared().console.sockets.take() {
        Some(place) => converse(&server, &mut socket, held.as_ref(), place).await,
        None => End::Close(1013, "too many consoles are open"),
    };
    if let End::Close(code, reason) = end {
        let frame = CloseFrame {
            code: code.into(),
            reason: Utf8Bytes::from_static(reason),
        };
        let closing = async {
            socket.close(Some(frame)).await.ok();
            while let Some(Ok(_)) = socket.next().await {}
        };
        drop(timeout(Duration::from_secs(1), closing).await);
    }
}

async fn send(socket: &mut Socket, text: String) -> Result<(), End> {
    let sent = timeout(WRITE_WAIT, socket.send(Frame::text(text))).await;
    sent.map_err(|_| End::Close(4408, "nothing is read"))?
        .map_err(|_| End::Gone)
}

async fn converse(server: &Rc<Server>, socket: &mut Socket, held: Option<&ShownCredentials>, _place: Taken) -> End {
    match talk(server, socket, held).await {
        Ok(()) => End::Gone,
        Err(end) => end,
    }
}

async fn talk(server: &Rc<Server>, socket: &mut Socket, held: Option<&ShownCredentials>) -> Result<(), End> {
    let ping_every = server.limits().socket_ping;
    let mut points = server.shared().console.points.subscribe();
    let (frames, mut told) = mpsc::channel(FRAMES_MAX);
    let mut subscriptions: HashMap<u32, Subscription> = HashMap::new();
    let hello = json!({
        "type": "hello", "protocol": PROTOCOL, "subscriptions_max": SUBSCRIPTIONS_MAX,
        "ping_ms": u64::try_from(ping_every.as_millis()).unwrap_or(u64::MAX),
    });
    send(socket, hello.to_string()).await?;
    let mut missed = 0;
    let mut is_alive = true;
    let mut ping = tokio::time::interval(ping_every.max(Duration::from_millis(1)));
    ping.tick().await;
    let ends = access::ends(held, server);
    let drains = server.drains();
    tokio::pin!(ends, drains);
    loop {
        tokio::select! {
            () = &mut ends => return Err(End::Close(4401, "the token is not taken any more")),
            () = &mut drains => return Err(End::Close(1001, "the service is stopping: connect again")),
            _ = ping.tick() => {
                if !std::mem::replace(&mut is_alive, false) {
                    return Err(End::Close(4408, "nothing came, not even a pong"));
                }
                let sent = timeout(WRITE_WAIT, socket.send(Frame::Ping(Bytes::new()))).await;
                sent.map_err(|_| End::Gone)?.map_err(|_| End::Gone)?;
            }
            point = points.recv() => match point {
                Ok(point) => {
                    send(socket, format!("{point},\"missed\":{missed}}}")).await?;
                    missed = 0;
                }
                Err(broadcast::error::RecvError::Lagged(points)) => missed += points,
                Err(broadcast::error::RecvError::Closed) => return Err(End::Close(1001, "the service is stopping")),
            },
            Some(frame) = told.recv() => send(socket, frame).await?,
            came = socket.next() => {
                is_alive = true;
                match came {
                    Some(Ok(Frame::Text(text))) => {
                        if let Err(detail) = hear(server, &text, &mut subscriptions, &frames) {
                            send(socket, json!({ "type": "problem", "detail": detail }).to_string()).await?;
                        }
                    }
                    Some(Ok(Frame::Binary(_))) => return Err(End::Close(1003, "frames are JSON text, not binary")),
                    Some(Ok(Frame::Close(_))) | None => return Ok(()),
                    Some(Ok(_)) => {}
                    Some(Err(_)) => return Err(End::Gone),
                }
            }
        }
    }
}

/// Executes a client's message.
fn hear(
    server: &Rc<Server>,
    text: &str,
    subscriptions: &mut HashMap<u32, Subscription>,
    frames: &mpsc::Sender<String>,
) -> Result<(), String> {
    let said = serde_json::from_str(text).map_err(|why| format!("the frame cannot be read: {why}"))?;
    let (subscription, kind, id, after) = match said {
        Said::Unsubscribe { subscription } => {
            drop(subscriptions.remove(&subscription));
            return Ok(());
        }
        Said::Subscribe {
            subscription,
            kind,
            id,
            after,
        } => (subscription, kind, id, after),
    };
    subscriptions.retain(|_, subscription| !subscription.0.is_finished());
    if subscriptions.contains_key(&subscription) {
        return Err(format!("there is a subscription {subscription} already"));
    }
    if subscriptions.len() >= SUBSCRIPTIONS_MAX {
        return Err(format!("there are {SUBSCRIPTIONS_MAX} subscriptions already"));
    }
    let kind = map::kind(server.shared(), &kind).map_err(|problem| problem.detail().to_owned())?;
    let task = tokio::task::spawn_local({
        let (server, frames) = (server.clone(), frames.clone());
        async move {
            let reason = follow(server.shared(), (kind, id, after), subscription, &frames).await;
            let ended = json!({ "type": "ended", "subscription": subscription, "reason": reason });
            drop(frames.send(ended.to_string()).await);
        }
    });
    subscriptions.insert(subscription, Subscription(task.abort_handle()));
    Ok(())
}

/// Sends the events of an entity until that fails, and returns the reason.
async fn follow(
    shared: &Shared,
    (kind, id, after): (usize, String, Option<u64>),
    subscription: u32,
    frames: &mpsc::Sender<String>,
) -> String {
    let after = match after {
        Some(after) => after,
        None => match shared.engine.inspect(kind, &id, Inspect::default()).await {
            Ok(now) => now.seq,
            Err(error) => return error.to_string(),
        },
    };
    let from = Follow::Entity {
        kind,
        id,
        after,
        at: None,
    };
    let mut follower = match shared.engine.follow(from).await {
        Ok(follower) => follower,
        Err(error) => return error.to_string(),
    };
    loop {
        let events = match follower.next(EVENTS).await {
            Ok(events) => events,
            Err(error) => return error.to_string(),
        };
        for event in events {
            // They are JSON, written once for all followers.
            let members = String::from_utf8_lossy(follow::members(&event));
            let frame = format!("{{\"type\":\"event\",\"subscription\":{subscription},\"event\":{{{members}}}}}");
            if frames.send(frame).await.is_err() {
                return "the socket is closed".into();
            }
        }
    }
}
