//! A surge over WebSockets: each connection has one command in flight.

use super::load::{Load, Students};
use anyhow::{Context as _, ensure};
use futures_util::{SinkExt as _, StreamExt as _};
use std::{
    cell::RefCell,
    net::SocketAddr,
    rc::Rc,
    time::{Duration, Instant},
};
use throng_load::{Next, Source as _};
use tokio::{
    net::TcpStream,
    sync::{Notify, mpsc},
    task::{LocalSet, spawn_local},
    time::{sleep_until, timeout},
};
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{Message, protocol::WebSocketConfig},
};

/// The most handshakes at a time.
const OPENING_MAX: usize = 64;
/// The time after which an answer counts as lost.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// The bytes of a client's read buffer. Each connection has its own and clears it before each read. With the usual 128 KiB, ten thousand clients
/// would be measured instead of the service.
const READ_BYTES: usize = 1 << 10;
/// The status that [`Students::count`] gets for a missing answer.
const NO_ANSWER: u16 = 0;

/// The state that the connections of one run share, all on one thread.
struct Run {
    begun: Instant,
    students: RefCell<Students>,
    /// The connections without a command in flight.
    free: RefCell<Vec<usize>>,
    has_free: Notify,
}

impl Run {
    fn now_nanos(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Runs the load to its end, and waits for the last answers.
pub(super) fn drive(load: &Load, students: Students) -> anyhow::Result<Students> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, drive_all(load, students))
}

async fn drive_all(load: &Load, students: Students) -> anyhow::Result<Students> {
    let sockets = open_all(load.address, load.connections).await?;
    let run = Rc::new(Run {
        begun: Instant::now(),
        students: RefCell::new(students),
        free: RefCell::new((0..sockets.len()).collect()),
        has_free: Notify::new(),
    });
    let mut senders = Vec::with_capacity(sockets.len());
    let mut tasks = Vec::with_capacity(sockets.len());
    for (at, socket) in sockets.into_iter().enumerate() {
        let (sender, commands) = mpsc::channel(1);
        senders.push(sender);
        tasks.push(spawn_local(connection(run.clone(), at, socket, commands)));
    }
    let end = run.begun + load.lasts_in_all();
    while Instant::now() < end {
        let Some(at) = run.free.borrow_mut().pop() else {
            let _ = timeout(end.saturating_duration_since(Instant::now()), run.has_free.notified()).await;
            continue;
        };
        let command = match run.students.borrow_mut().next(run.now_nanos()) {
            Next::Send(shot) => Ok(String::from_utf8(shot.bytes.to_vec())?),
            Next::WaitUntil(nanos) => Err(Some(nanos)),
            _ => Err(None),
        };
        match command {
            Ok(command) => {
                senders[at].send(command).await.context("a connection has ended")?;
            }
            Err(due) => {
                run.free.borrow_mut().push(at);
                let due = due.map_or(end, |nanos| run.begun + Duration::from_nanos(nanos));
                sleep_until(due.min(end).into()).await;
            }
        }
    }
    drop(senders);
    for task in tasks {
        task.await?;
    }
    let run = Rc::into_inner(run).context("all connections have ended")?;
    Ok(run.students.into_inner())
}

/// Sends the commands that it is given, one at a time.
async fn connection(
    run: Rc<Run>,
    at: usize,
    mut socket: WebSocketStream<TcpStream>,
    mut commands: mpsc::Receiver<String>,
) {
    while let Some(command) = commands.recv().await {
        let sent_nanos = run.now_nanos();
        let answer = timeout(ANSWER_MAX, ask(&mut socket, command)).await;
        let status = answer.ok().and_then(Result::ok).unwrap_or(NO_ANSWER);
        let done_nanos = run.now_nanos();
        run.students.borrow_mut().count(status, sent_nanos, done_nanos);
        run.free.borrow_mut().push(at);
        run.has_free.notify_one();
    }
    // Fails if the service has closed it already.
    let _ = socket.close(None).await;
}

/// Sends a command and returns the status that HTTP would have.
async fn ask(socket: &mut WebSocketStream<TcpStream>, command: String) -> anyhow::Result<u16> {
    socket.send(Message::text(command)).await?;
    loop {
        let message = socket.next().await.context("the service has closed the socket")??;
        if let Message::Text(text) = message {
            return status(&text);
        }
    }
}

/// Returns the status of a frame with one answer.
fn status(frame: &str) -> anyhow::Result<u16> {
    if frame.contains(r#""type":"reply""#) {
        return Ok(200);
    }
    let (_, rest) = frame.split_once(r#""status":"#).context("a problem has a status")?;
    let digits = rest.find(|next: char| !next.is_ascii_digit()).unwrap_or(rest.len());
    Ok(rest[..digits].parse()?)
}

async fn open_all(address: SocketAddr, count: usize) -> anyhow::Result<Vec<WebSocketStream<TcpStream>>> {
    let opened: Vec<_> = futures_util::stream::iter((0..count).map(|_| open(address)))
        .buffer_unordered(OPENING_MAX)
        .collect()
        .await;
    opened.into_iter().collect()
}

async fn open(address: SocketAddr) -> anyhow::Result<WebSocketStream<TcpStream>> {
    let stream = TcpStream::connect(address).await.context("cannot connect")?;
    stream.set_nodelay(true)?;
    let config = WebSocketConfig::default().read_buffer_size(READ_BYTES);
    let (mut socket, _) = client_async_with_config(format!("ws://{address}/api/ws"), stream, Some(config))
        .await
        .context("cannot open a WebSocket")?;
    let hello = socket.next().await.context("the service says no hello")??;
    ensure!(hello.is_text(), "the service says {hello:?} where a hello was due");
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answers_status_is_that_of_http() {
        assert_eq!(status(r#"{"type":"reply","id":1,"body":{}}"#).unwrap(), 200);
        let problem = r#"{"type":"problem","id":1,"problem":{"status":503,"title":"overloaded"}}"#;
        assert_eq!(status(problem).unwrap(), 503);
        assert!(status(r#"{"type":"hello"}"#).is_err());
    }
}
