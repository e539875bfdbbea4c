//! Consoles without a browser. Each makes the same requests as the page of its screen, equally often (`console/src`: `state/live.ts`, and `RELOAD_MS`
//! and `useFresh` of the screens).

use anyhow::{Context as _, bail, ensure};
use clap::ValueEnum;
use futures_util::{SinkExt as _, StreamExt as _};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::watch,
    task::JoinSet,
    time::{MissedTickBehavior, interval, timeout},
};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Message, client::IntoClientRequest as _},
};

/// The limit for all consoles to open, and for each answer to a console.
const PATIENCE: Duration = Duration::from_secs(30);
/// The period of reloading the journal's parts (`screens/journal/parts.tsx`).
const PARTS_EVERY: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Screen {
    /// All sections, as tiles.
    Map,
    /// The figures, which come over the WebSocket.
    Live,
    Trouble,
    /// Follows one section live.
    Entity,
    Journal,
}

impl Screen {
    /// Returns the requests that it repeats, with their periods. `{}` stands for its own section.
    fn asks(self) -> &'static [(&'static str, Duration)] {
        const HALF: Duration = Duration::from_millis(500);
        const SECOND: Duration = Duration::from_secs(1);
        const THREE: Duration = Duration::from_secs(3);
        const FIVE: Duration = Duration::from_secs(5);
        match self {
            Self::Map => &[("/admin/map/section?limit=1000", SECOND)],
            Self::Live => &[],
            Self::Trouble => &[("/admin/trouble", THREE)],
            // The page repeats this while the section changes, and it does (`FRESH_MS`).
            Self::Entity => &[("/admin/entity/section/{}", HALF)],
            Self::Journal => &[("/admin/journal", FIVE), ("/admin/journal/parts?limit=20", PARTS_EVERY)],
        }
    }

    /// Returns the further requests that it makes once when it opens.
    fn first(self) -> &'static [&'static str] {
        match self {
            Self::Entity => &["/admin/entity/section/{}/history?limit=50"],
            _ => &[],
        }
    }
}

/// The number and bytes of answers to consoles.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ConsoleAnswers {
    pub(super) answers: u64,
    pub(super) bytes: u64,
}

#[derive(Default)]
struct Count {
    answers: AtomicU64,
    bytes: AtomicU64,
}

impl Count {
    fn add(&self, bytes: usize) {
        self.answers.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }
}

/// Open consoles, on a thread of their own.
pub(super) struct Viewers {
    count: Arc<Count>,
    closing: watch::Sender<bool>,
    thread: thread::JoinHandle<anyhow::Result<()>>,
}

impl Viewers {
    /// Opens the consoles and waits until each has its first content.
    pub(super) fn open(address: SocketAddr, screens: Vec<Screen>) -> anyhow::Result<Self> {
        let (count, closing) = (Arc::<Count>::default(), watch::Sender::new(false));
        let (opened, is_open) = std::sync::mpsc::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (shared, closes) = (count.clone(), closing.subscribe());
        let thread = thread::Builder::new().name("consoles".into()).spawn(move || {
            runtime.block_on(async move {
                let mut all = JoinSet::new();
                for (number, screen) in screens.into_iter().enumerate() {
                    let viewer = Viewer {
                        address,
                        section: format!("S{number}"),
                        screen,
                        count: shared.clone(),
                    };
                    let (opened, closes) = (opened.clone(), closes.clone());
                    all.spawn(viewer.look(opened, closes));
                }
                drop(opened);
                while let Some(ended) = all.join_next().await {
                    ended.context("a console crashed")??;
                }
                Ok(())
            })
        })?;
        // Ends once each console has dropped its sender, because it is open or has failed.
        while is_open.recv_timeout(PATIENCE).is_ok() {}
        Ok(Self { count, closing, thread })
    }

    pub(super) fn seen(&self) -> ConsoleAnswers {
        ConsoleAnswers {
            answers: self.count.answers.load(Relaxed),
            bytes: self.count.bytes.load(Relaxed),
        }
    }

    /// Closes the consoles. Fails if one of them failed before.
    pub(super) fn close(self) -> anyhow::Result<()> {
        self.closing.send_replace(true);
        match self.thread.join() {
            Ok(ended) => ended,
            Err(_) => bail!("the consoles crashed"),
        }
    }
}

struct Viewer {
    address: SocketAddr,
    section: String,
    screen: Screen,
    count: Arc<Count>,
}

impl Viewer {
    /// Runs until it is closed. Drops `opened` once it has all its first content.
    async fn look(self, opened: std::sync::mpsc::Sender<()>, mut closes: watch::Receiver<bool>) -> anyhow::Result<()> {
        let mut http = Http::connect(self.address).await?;
        for path in ["/admin/series", "/admin/overview"] {
            self.count.add(http.get(path).await?);
        }
        let mut socket = self.socket().await?;
        for path in self.screen.first() {
            self.count.add(http.get(&self.path(path)).await?);
        }
        if matches!(self.screen, Screen::Entity) {
            let subscribe =
                serde_json::json!({ "type": "subscribe", "subscription": 1, "kind": "section", "id": self.section });
            socket.send(Message::text(subscribe.to_string())).await?;
        }
        let asks = self.screen.asks();
        for (path, _) in asks {
            self.count.add(http.get(&self.path(path)).await?);
        }
        let asking = async {
            let mut asking = JoinSet::new();
            for &(path, every) in asks {
                let (address, path, count) = (self.address, self.path(path), self.count.clone());
                asking.spawn(async move {
                    let mut http = Http::connect(address).await?;
                    let mut ticks = interval(every);
                    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                    ticks.tick().await;
                    loop {
                        ticks.tick().await;
                        count.add(http.get(&path).await?);
                    }
                    #[expect(unreachable_code, reason = "it says what the task's errors are")]
                    anyhow::Ok(())
                });
            }
            match asking.join_next().await {
                Some(ended) => ended.context("a console crashed")?,
                None => std::future::pending().await,
            }
        };
        drop(opened);
        tokio::select! {
            ended = asking => ended,
            ended = hear(&mut socket, &self.count) => ended,
            _ = closes.wait_for(|is_closing| *is_closing) => Ok(()),
        }
    }

    fn path(&self, path: &str) -> String {
        path.replace("{}", &self.section)
    }

    async fn socket(&self) -> anyhow::Result<WebSocketStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let mut request = format!("ws://{}/admin/live", self.address).into_client_request()?;
        request
            .headers_mut()
            .insert("sec-websocket-protocol", "throng.console.v1".parse()?);
        let (mut socket, _) = client_async(request, stream)
            .await
            .context("cannot open a console's socket")?;
        let hello = socket.next().await.context("the service says no hello")??;
        ensure!(hello.is_text(), "the service says {hello:?} where a hello was due");
        Ok(socket)
    }
}

/// Counts what arrives on the WebSocket.
async fn hear(socket: &mut WebSocketStream<TcpStream>, count: &Count) -> anyhow::Result<()> {
    loop {
        let frame = socket
            .next()
            .await
            .context("the service has closed a console's socket")??;
        if let Message::Text(text) = &frame {
            ensure!(
                !text.starts_with(r#"{"detail""#) && !text.contains(r#""type":"ended""#),
                "the service says {text}"
            );
        }
        count.add(frame.len());
    }
}

/// A connection that is kept, as a browser does.
struct Http {
    stream: TcpStream,
    address: SocketAddr,
    buffer: Vec<u8>,
}

impl Http {
    async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            address,
            buffer: Vec::new(),
        })
    }

    /// Returns the number of the answer's bytes.
    async fn get(&mut self, path: &str) -> anyhow::Result<usize> {
        let asking = timeout(PATIENCE, self.ask(path)).await;
        asking
            .with_context(|| format!("{path} is not answered"))?
            .with_context(|| format!("asking {path}"))
    }

    async fn ask(&mut self, path: &str) -> anyhow::Result<usize> {
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: {}\r\naccept: application/json\r\n\r\n",
            self.address
        );
        self.stream.write_all(request.as_bytes()).await?;
        self.buffer.clear();
        let (head, length) = loop {
            ensure!(
                self.stream.read_buf(&mut self.buffer).await? > 0,
                "the connection was closed"
            );
            if let Some(head) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                break (head + 4, length(&self.buffer[..head])?);
            }
        };
        while self.buffer.len() < head + length {
            ensure!(
                self.stream.read_buf(&mut self.buffer).await? > 0,
                "the connection was closed"
            );
        }
        Ok(head + length)
    }
}

/// Returns the length of the body from the head of an answer. Fails if the status is no success.
fn length(head: &[u8]) -> anyhow::Result<usize> {
    let head = std::str::from_utf8(head)?.to_ascii_lowercase();
    let mut lines = head.lines();
    let status = lines.next().unwrap_or_default();
    ensure!(status.contains(" 200 "), "it is answered with {status}");
    let length = lines.find_map(|line| line.strip_prefix("content-length:"));
    length
        .context("the answer does not say how long it is")?
        .trim()
        .parse()
        .context("its length is no number")
}

#[cfg(test)]
mod tests {
    use super::length;

    #[test]
    fn the_length_of_a_good_answer_is_read() {
        assert_eq!(length(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\nx: y").unwrap(), 12);
        assert!(length(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 1").is_err());
        assert!(length(b"HTTP/1.1 200 OK\r\nx: y").is_err());
    }
}
