//! A client of throng.v1 in Rust: a batch of commands in one frame, then what has happened.

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio_tungstenite::{
    client_async,
    tungstenite::{Message, client::IntoClientRequest, http::HeaderValue},
};

type Error = Box<dyn std::error::Error>;

/// Counts so many times in one frame, and follows the counter until it has seen all of it. Returns how many frames the
/// answers and events came in.
pub(crate) async fn talk(url: &str, counter: &str, times: u64) -> Result<u64, Error> {
    let mut request = url.into_client_request()?;
    let authority = request.uri().authority().ok_or("the address has no host")?.to_string();
    let protocol = HeaderValue::from_static("throng.v1");
    request.headers_mut().insert("sec-websocket-protocol", protocol);
    let stream = tokio::net::TcpStream::connect(&authority).await?;
    stream.set_nodelay(true)?;
    let (mut socket, _) = client_async(request, stream).await?;

    let follow = json!({ "type": "subscribe", "id": "events", "kind": "counter", "after": "start", "credit": 1_000 });
    let mut batch: Vec<Value> = (0..times)
        .map(|id| json!({ "type": "command", "id": id, "kind": "counter", "entity": counter, "command": "hit" }))
        .collect();
    batch.push(follow);
    socket.send(Message::text(Value::Array(batch).to_string())).await?;

    let (mut replies, mut seen, mut frames) = (0, 0, 0);
    while replies < times || seen < times {
        let Message::Text(text) = socket.next().await.ok_or("the service has closed the socket")?? else {
            continue;
        };
        frames += 1;
        let messages = match serde_json::from_str(&text)? {
            Value::Array(messages) => messages,
            message => vec![message],
        };
        for message in messages {
            match message["type"].as_str() {
                Some("reply") => replies += 1,
                Some("events") => {
                    let events = message["events"].as_array().map_or(&[][..], Vec::as_slice);
                    seen += events.iter().filter(|event| event["entity"] == counter).count() as u64;
                    let credit = json!({ "type": "credit", "id": "events", "credit": events.len() });
                    socket.send(Message::text(credit.to_string())).await?;
                }
                Some("problem" | "ended") => return Err(message["problem"]["detail"].to_string().into()),
                _ => {}
            }
        }
    }
    socket.close(None).await?;
    Ok(frames)
}
