//! HTTP/2 without TLS, by prior knowledge.

use crate::support::{plain, wait};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, client::conn::http2::SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};

async fn connect(address: std::net::SocketAddr) -> SendRequest<Full<Bytes>> {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    sender
}

async fn ask(mut sender: SendRequest<Full<Bytes>>, method: &str, path: &str, body: &str) -> (u16, String) {
    let request = Request::builder()
        .method(method)
        .header("content-type", "application/json")
        .uri(format!("http://localhost{path}"))
        .body(Full::from(body.to_owned()))
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[test]
fn many_commands_share_one_connection() {
    let gateway = plain();
    wait(async {
        let sender = connect(gateway.address()).await;
        let (status, body) = ask(sender.clone(), "POST", "/api/section/S1/open", r#"{"capacity":100}"#).await;
        assert_eq!((status, body.as_str()), (200, r#"{"capacity":100,"students":[]}"#));
        let mut asks = tokio::task::JoinSet::new();
        for student in 0..100 {
            let sender = sender.clone();
            asks.spawn(async move {
                ask(
                    sender,
                    "POST",
                    "/api/section/S1/add-student",
                    &format!(r#"{{"student":"{student}"}}"#),
                )
                .await
                .0
            });
        }
        assert!(asks.join_all().await.into_iter().all(|status| status == 200));
        let (_, body) = ask(sender.clone(), "GET", "/api/section/S1", "").await;
        let view: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(view["students"].as_array().unwrap().len(), 100);
        assert_eq!(ask(sender, "GET", "/api/section/S2", "").await.0, 404);
        gateway.stop().await;
    });
}
