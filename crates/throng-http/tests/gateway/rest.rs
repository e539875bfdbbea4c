//! Connections that are alone on their loops, and idle for longer than a deadline between requests. An answer must not depend on the earlier
//! requests, and the idle time must not count as a request's age.

use crate::{
    access_log::{lines, logging},
    actors::Rate,
    support::{
        Client,
        both_paths::FULL,
        client::{PATIENCE, request},
        engine_of,
        http2::{Http2, patiently, read},
        socket::{command, query},
    },
    tls::Files,
};
use axum::{
    Router,
    body::Body,
    routing::{get, post},
};
use futures_util::{future::join_all, stream};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::{
    convert::Infallible,
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
    thread,
    time::Duration,
};
use tempfile::TempDir;
use throng_http::{Gateway, Limits, Running};
use tokio::runtime::Runtime;
use tokio_rustls::{TlsConnector, rustls::pki_types::ServerName};
use tokio_tungstenite::tungstenite::{
    self, Message, WebSocket,
    protocol::frame::{
        Frame,
        coding::{Data, OpCode},
    },
};

const DEADLINE: Duration = Duration::from_millis(500);
/// Twice as long. A busy machine adds far less to a request's age.
const REST: Duration = Duration::from_secs(1);
/// The number of requests of a connection, with a rest before each but the first.
const ROUNDS: usize = 3;
/// The attempts for a row that fails.
const TRIES: usize = 3;
/// The services start one after another. However long that takes, their connections are not closed meanwhile.
const START_WAIT: Duration = Duration::from_secs(3_600);
const ORIGIN: &str = "https://app.example";

const ADD: &str = "/api/section/S1/add-student";
const STUDENT: &str = r#"{"student":"7"}"#;
const VIEW: &str = "/api/section/S1";
const COUNT: &str = "/api/rate/R1/count-many";
const HITS: &str = r#"{"hits":0}"#;
const PAGE: (&str, &str) = ("origin", ORIGIN);
const TRACE: (&str, &str) = ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
const TIMEOUT: (&str, &str) = ("request-timeout", "500ms");
const STREAM: (&str, &str) = ("accept", "text/event-stream");

trait Bytes: Read + Write + Send {}
impl<T: Read + Write + Send> Bytes for T {}

/// Sends the requests of this round. Returns the greatest status of the answers.
type Ask = Box<dyn FnMut(usize) -> u16 + Send>;
type Begin<C> = Box<dyn Fn(C) -> Ask + Sync>;

/// The request of a connection in each round.
enum Shape {
    Http1(Begin<Client<Box<dyn Bytes>>>),
    Http2(Begin<(Runtime, Http2)>),
    Socket(Begin<WebSocket<Box<dyn Bytes>>>),
}

fn http1(rounds: impl Fn(&mut Client<Box<dyn Bytes>>, usize) -> u16 + Clone + Send + Sync + 'static) -> Shape {
    Shape::Http1(Box::new(move |mut client| {
        let rounds = rounds.clone();
        Box::new(move |round| rounds(&mut client, round))
    }))
}

/// Returns the shape of the same request in each round.
fn same(method: &str, path: &str, fields: &[(&str, &str)], body: &str) -> Shape {
    let bytes = request(method, path, fields, body);
    http1(move |client, _| client.send(&bytes).answer().status)
}

/// Returns the shape of a request in the first round, followed by commands.
fn first(before: String) -> Shape {
    http1(move |client, round| match round {
        0 => client.send(&before).answer().status,
        _ => client.post(ADD, STUDENT).status,
    })
}

/// Returns the shape of a command whose body is sent after its head was read. Everything before the head is answered first.
fn in_two_packets(path: &str, body: &'static str) -> Shape {
    let head = request("POST", path, &[], body);
    let begin = request("GET", VIEW, &[], "") + head.strip_suffix(body).unwrap();
    http1(move |client, _| {
        let before = client.send(&begin).answer().status;
        client.send(body).answer().status.max(before)
    })
}

fn http2<F: Future<Output = u16>>(rounds: impl Fn(Http2, usize) -> F + Clone + Send + Sync + 'static) -> Shape {
    Shape::Http2(Box::new(move |(runtime, client)| {
        let rounds = rounds.clone();
        Box::new(move |round| runtime.block_on(rounds(client.clone(), round)))
    }))
}

fn same_of_http2(method: &'static str, path: &'static str, fields: &'static [(&str, &str)]) -> Shape {
    http2(move |client, _| async move { read(client.begin_with(method, path, fields, STUDENT).await).await.0 })
}

fn socket(rounds: impl Fn(&mut WebSocket<Box<dyn Bytes>>, usize) -> u16 + Clone + Send + Sync + 'static) -> Shape {
    Shape::Socket(Box::new(move |mut socket| {
        let rounds = rounds.clone();
        Box::new(move |round| rounds(&mut socket, round))
    }))
}

/// Sends a frame and waits for this many messages.
fn tell(socket: &mut WebSocket<Box<dyn Bytes>>, frame: &Value, messages: usize) -> u16 {
    socket.send(Message::text(frame.to_string())).unwrap();
    told(socket, messages)
}

fn told(socket: &mut WebSocket<Box<dyn Bytes>>, messages: usize) -> u16 {
    let mut told = Vec::new();
    while told.len() < messages {
        let Message::Text(text) = socket.read().unwrap() else {
            continue;
        };
        match serde_json::from_str(&text).unwrap() {
            Value::Array(all) => told.extend(all),
            one => told.push(one),
        }
    }
    let status = |message: &Value| message["problem"]["status"].as_u64().unwrap_or(200);
    told.iter().map(status).max().unwrap() as u16
}

fn of_http1() -> Vec<(&'static str, Shape)> {
    vec![
        ("command", same("POST", ADD, &[], STUDENT)),
        ("query", same("GET", VIEW, &[], "")),
        ("list", same("GET", "/api/section", &[], "")),
        ("history", same("GET", "/api/section/S1/events", &[], "")),
        (
            "command under a key",
            same("POST", ADD, &[("idempotency-key", "k")], STUDENT),
        ),
        ("command of a page", same("POST", ADD, &[PAGE], STUDENT)),
        ("query of a page", same("GET", VIEW, &[PAGE], "")),
        ("command with traceparent", same("POST", ADD, &[TRACE], STUDENT)),
        ("command with Request-Timeout", same("POST", ADD, &[TIMEOUT], STUDENT)),
        ("query with Request-Timeout", same("GET", VIEW, &[TIMEOUT], "")),
        ("command in the full path", same("POST", ADD, &[FULL], STUDENT)),
        ("query in the full path", same("GET", VIEW, &[FULL], "")),
        (
            "command that is refused",
            same("POST", "/api/section/S1/drop-student", &[], STUDENT),
        ),
        ("app's route", same("GET", "/now", &[], "")),
        ("app's route of a page", same("GET", "/now", &[PAGE], "")),
        ("app's route with Request-Timeout", same("GET", "/now", &[TIMEOUT], "")),
        ("app's route with a body", same("POST", "/length", &[], STUDENT)),
        ("app's route that waits", same("GET", "/later", &[], "")),
        ("command after a large answer", first(request("GET", "/large", &[], ""))),
        ("command after health", first(request("GET", "/health/live", &[], ""))),
        (
            "command after a preflight",
            first(request(
                "OPTIONS",
                ADD,
                &[PAGE, ("access-control-request-method", "POST")],
                "",
            )),
        ),
        ("command of an actor", same("POST", COUNT, &[], HITS)),
        ("command in two packets", in_two_packets(ADD, STUDENT)),
        ("command of an actor in two packets", in_two_packets(COUNT, HITS)),
        (
            "command whose body comes in chunks",
            http1(|client, _| {
                let head = "content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
                let length = STUDENT.len();
                client.send(format!(
                    "POST {ADD} HTTP/1.1\r\nhost: localhost\r\n{head}{length:x}\r\n{STUDENT}\r\n"
                ));
                client.send("0\r\n\r\n").answer().status
            }),
        ),
        (
            "requests sent together",
            http1(|client, _| {
                let (command, query) = (request("POST", ADD, &[], STUDENT), request("GET", VIEW, &[], ""));
                client.send(format!("{command}{command}{query}{command}"));
                (0..4).map(|_| client.answer().status).max().unwrap()
            }),
        ),
        (
            "app's stream",
            http1(|client, _| {
                let head = client.send(request("GET", "/stream", &[], "")).head().unwrap();
                while !client.line().unwrap().starts_with('0') {}
                client.line().unwrap();
                head.status
            }),
        ),
    ]
}

fn of_http2() -> Vec<(&'static str, Shape)> {
    vec![
        ("command", same_of_http2("POST", ADD, &[])),
        ("query", same_of_http2("GET", VIEW, &[])),
        ("list", same_of_http2("GET", "/api/section", &[])),
        ("history", same_of_http2("GET", "/api/section/S1/events", &[])),
        ("command of a page", same_of_http2("POST", ADD, &[PAGE])),
        ("command with Request-Timeout", same_of_http2("POST", ADD, &[TIMEOUT])),
        ("app's route", same_of_http2("GET", "/now", &[])),
        ("app's stream", same_of_http2("GET", "/stream", &[])),
        (
            "commands at once",
            http2(|client, _| async move {
                let asked = (0..3).map(|_| client.ask("POST", ADD, STUDENT));
                join_all(asked)
                    .await
                    .into_iter()
                    .map(|(status, _)| status)
                    .max()
                    .unwrap()
            }),
        ),
        (
            "command whose body comes in pieces",
            http2(|client, _| async move {
                let (pieces, answer) = client.upload(ADD);
                pieces.send(&STUDENT[..4]).unwrap();
                // The first piece has arrived before this answer.
                assert_eq!(client.ask("GET", "/health/live", "").await.0, 200);
                pieces.send(&STUDENT[4..]).unwrap();
                drop(pieces);
                patiently(answer).await.unwrap().unwrap().status().as_u16()
            }),
        ),
        (
            "command beside an event stream",
            Shape::Http2(Box::new(|(runtime, client)| {
                let mut open = None;
                Box::new(move |_| {
                    runtime.block_on(async {
                        if open.is_none() {
                            open = Some(client.begin_with("GET", "/api/section/S1/events", &[STREAM], "").await);
                        }
                        client.ask("POST", ADD, STUDENT).await.0
                    })
                })
            })),
        ),
    ]
}

fn of_socket() -> Vec<(&'static str, Shape)> {
    let student = || json!({ "student": "7" });
    let add = move || command("c", "S1", "add_student", &student());
    let view = || query("q", "S1", "view", &json!({}));
    let with = |mut message: Value, name: &str, value: Value| {
        message[name] = value;
        message
    };
    vec![
        ("command", socket(move |socket, _| tell(socket, &add(), 1))),
        ("query", socket(move |socket, _| tell(socket, &view(), 1))),
        (
            "command with a timeout",
            socket(move |socket, _| tell(socket, &with(add(), "timeout_ms", 500.into()), 1)),
        ),
        (
            "query with a timeout",
            socket(move |socket, _| tell(socket, &with(view(), "timeout_ms", 500.into()), 1)),
        ),
        (
            "command with traceparent",
            socket(move |socket, _| tell(socket, &with(add(), "traceparent", TRACE.1.into()), 1)),
        ),
        (
            "command and query in one frame",
            socket(move |socket, _| tell(socket, &json!([add(), view(), add()]), 3)),
        ),
        (
            "command that is refused",
            socket(move |socket, _| tell(socket, &command("c", "S1", "drop_student", &student()), 1)),
        ),
        (
            "subscription",
            socket(|socket, round| {
                let message = json!({ "type": "subscribe", "id": round, "kind": "section", "entity": "S1", "after": 1, "credit": 1 });
                tell(socket, &message, 1)
            }),
        ),
        (
            "command in pieces",
            socket(move |socket, _| {
                let text = add().to_string().into_bytes();
                let (begin, end) = text.split_at(9);
                for (piece, kind, is_last) in [(begin, Data::Text, false), (end, Data::Continue, true)] {
                    let frame = Frame::message(piece.to_vec(), OpCode::Data(kind), is_last);
                    socket.send(Message::Frame(frame)).unwrap();
                }
                told(socket, 1)
            }),
        ),
    ]
}

/// A service with only one connection.
struct Alone {
    name: String,
    gateway: Running,
    dir: TempDir,
    ask: Ask,
}

impl Alone {
    fn new(name: &str, shape: &Shape, files: Option<&Files>) -> Self {
        let (dir, engine) = (
            tempfile::tempdir().unwrap(),
            engine_of(|builder| builder.actor::<Rate>()),
        );
        let routes = Router::new()
            .route("/now", get(async || "now"))
            .route("/length", post(async |body: String| body.len().to_string()))
            .route("/large", get(async || "x".repeat(8 << 20)))
            .route(
                "/later",
                get(async || {
                    tokio::task::yield_now().await;
                    "later"
                }),
            )
            .route(
                "/stream",
                get(async || Body::from_stream(stream::iter(["a", "b"].map(Ok::<_, Infallible>)))),
            );
        let limits = Limits {
            deadline: DEADLINE,
            header_wait: START_WAIT,
            idle: START_WAIT,
            socket_ping: START_WAIT,
            ..Limits::default()
        };
        let gateway = Gateway::builder(engine)
            .routes(routes)
            .loops(1)
            .limits(limits)
            .origin(ORIGIN);
        let gateway = match files {
            Some(files) => gateway.tls(files.tls(None)),
            None => gateway,
        };
        let gateway = logging(gateway, 1, &dir.path().join("log")).start().unwrap();
        // This may take any time on a busy machine.
        let mut before = Client::over(connect(&gateway, files));
        let open = request(
            "POST",
            "/api/section/S1/open",
            &[("request-timeout", "20s")],
            r#"{"capacity":9}"#,
        );
        assert_eq!(before.send(open).answer().status, 200);
        drop(before);
        let (protocol, ask) = match shape {
            Shape::Http1(begin) => ("HTTP/1.1", begin(Client::over(connect(&gateway, files)))),
            Shape::Http2(begin) => ("HTTP/2", begin(connect_http2(&gateway, files))),
            Shape::Socket(begin) => {
                let (mut socket, _) = tungstenite::client("ws://localhost/api/ws", connect(&gateway, files)).unwrap();
                told(&mut socket, 1);
                ("WebSocket", begin(socket))
            }
        };
        let tls = if files.is_some() { " over TLS" } else { "" };
        Self {
            name: format!("{protocol}{tls}: {name}"),
            gateway,
            dir,
            ask,
        }
    }

    /// Asks, rests, and asks again. Returns the fault of the answers after a rest, if any.
    fn run(mut self) -> Option<String> {
        (self.ask)(0);
        let rested = Timestamp::now();
        let rounds = (1..ROUNDS).map(|round| {
            thread::sleep(REST);
            (self.ask)(round)
        });
        let statuses: Vec<u16> = rounds.collect();
        drop(self.ask);
        self.gateway.stop_blocking();
        let lines = lines(&self.dir.path().join("log"));
        let after = lines
            .iter()
            .filter(|line| line["at"].as_str().unwrap().parse::<Timestamp>().unwrap() > rested);
        let micros: Vec<u64> = after.filter_map(|line| line["micros"].as_u64()).collect();
        let is_young = |micros: &u64| u128::from(*micros) < REST.as_micros();
        let is_right = statuses.iter().all(|status| *status < 500) && micros.iter().all(is_young);
        (!is_right).then(|| format!("{}: {statuses:?}, after {micros:?} µs", self.name))
    }
}

fn connect(gateway: &Running, files: Option<&Files>) -> Box<dyn Bytes> {
    if let Some(files) = files {
        let secure = files.connect(gateway, None).into_inner();
        secure.sock.set_nodelay(true).unwrap();
        return Box::new(secure);
    }
    let stream = TcpStream::connect(gateway.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    Box::new(stream)
}

fn connect_http2(gateway: &Running, files: Option<&Files>) -> (Runtime, Http2) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let client = runtime.block_on(async {
        let Some(files) = files else {
            return Http2::new(gateway.address(), |_| {}).await.0;
        };
        let mut config = files.config(None);
        config.alpn_protocols = vec![b"h2".to_vec()];
        let stream = tokio::net::TcpStream::connect(gateway.address()).await.unwrap();
        let secure = TlsConnector::from(Arc::new(config));
        let name = ServerName::try_from("localhost").unwrap();
        Http2::over(secure.connect(name, stream).await.unwrap(), |_| {}).await.0
    });
    (runtime, client)
}

#[test]
fn an_answer_does_not_depend_on_the_rest_before_it() {
    let files = Files::new();
    let shapes = [of_http1(), of_http2(), of_socket()];
    let mut rows: Vec<_> = shapes
        .iter()
        .flatten()
        .flat_map(|row| [(row, None), (row, Some(&files))])
        .collect();
    let mut wrong = Vec::new();
    // A busy machine may delay any answer. A service that counts the rest fails each time.
    for _ in 0..TRIES {
        // Services start one after another: all at once would delay other tests.
        let services: Vec<Alone> = rows
            .iter()
            .map(|((name, shape), files)| Alone::new(name, shape, *files))
            .collect();
        let threads: Vec<_> = services
            .into_iter()
            .map(|service| thread::spawn(|| service.run()))
            .collect();
        let found: Vec<Option<String>> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let mut is_wrong = found.iter().map(Option::is_some);
        rows.retain(|_| is_wrong.next() == Some(true));
        wrong = found.into_iter().flatten().collect();
        if wrong.is_empty() {
            return;
        }
    }
    panic!("{} rows are wrong: {wrong:#?}", wrong.len());
}
