//! HTTP/2 without TLS, with prior knowledge.

use crate::support::{
    client::PATIENCE,
    held::held,
    http2::{Frames, HELLO, Http2, patiently, read},
    plain, start, wait,
};
use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};
use throng_http::{Access, Action, Limits, Running};

fn limited(set: impl FnOnce(&mut Limits)) -> Running {
    let mut limits = Limits::default();
    set(&mut limits);
    start(|gateway| gateway.limits(limits))
}

#[test]
fn many_commands_share_one_connection() {
    let gateway = plain();
    wait(async {
        let (client, _) = Http2::new(gateway.address(), |_| {}).await;
        let (status, body) = client.ask("POST", "/api/section/S1/open", r#"{"capacity":100}"#).await;
        assert_eq!((status, body.as_str()), (200, r#"{"capacity":100,"students":[]}"#));
        let mut asks = tokio::task::JoinSet::new();
        for student in 0..100 {
            let client = client.clone();
            asks.spawn(async move {
                let body = format!(r#"{{"student":"{student}"}}"#);
                client.ask("POST", "/api/section/S1/add-student", &body).await
            });
        }
        let wrong: Vec<_> = asks
            .join_all()
            .await
            .into_iter()
            .filter(|(status, _)| *status != 200)
            .collect();
        assert!(wrong.is_empty(), "{} {:?}", wrong.len(), wrong[0]);
        let (_, body) = client.ask("GET", "/api/section/S1", "").await;
        let view: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(view["students"].as_array().unwrap().len(), 100);
        assert_eq!(client.ask("GET", "/api/section/S2", "").await.0, 404);
        gateway.stop().await;
    });
}

#[test]
fn waiting_commands_are_answered_by_commit_or_deadline() {
    let (gateway, hold) = held(Limits::default());
    wait(async {
        let (client, _) = Http2::new(gateway.address(), |_| {}).await;
        assert_eq!(
            client.ask("POST", "/api/section/S1/open", r#"{"capacity":9}"#).await.0,
            200
        );
        hold.send(true).unwrap();
        let add = |student: &str| {
            let (client, body) = (client.clone(), format!(r#"{{"student":"{student}"}}"#));
            tokio::spawn(async move { client.ask("POST", "/api/section/S1/add-student", &body).await })
        };
        // The first commit is in flight, and the second gathers commands behind it.
        let (one, two) = (add("a"), add("b"));
        assert_eq!(client.ask("GET", "/health/live", "").await.0, 200);
        assert!(!one.is_finished() && !two.is_finished());
        hold.send(false).unwrap();
        assert_eq!((one.await.unwrap().0, two.await.unwrap().0), (200, 200));
        gateway.stop().await;
    });
    let (gateway, hold) = held(Limits {
        deadline: Duration::from_millis(60),
        ..Limits::default()
    });
    wait(async {
        let (client, _) = Http2::new(gateway.address(), |_| {}).await;
        hold.send(true).unwrap();
        let (status, body) = client.ask("POST", "/api/section/S1/open", r#"{"capacity":9}"#).await;
        assert!(status == 504 && body.contains("outcome-unknown"), "{status} {body}");
        hold.send(false).unwrap();
        gateway.stop().await;
    });
}

#[test]
fn a_late_body_is_refused_while_others_on_its_connection_end() {
    let gateway = limited(|limits| limits.body_wait = Duration::from_millis(60));
    wait(async {
        let (client, _) = Http2::new(gateway.address(), |_| {}).await;
        let (pieces, answer) = client.upload("/api/section/S1/open");
        pieces.send("{\"capa").unwrap();
        for _ in 0..3 {
            assert_eq!(client.ask("GET", "/health/live", "").await.0, 200);
        }
        let answer = patiently(answer).await.unwrap().unwrap();
        let (status, body) = read(answer).await;
        assert!(status == 408 && body.contains("request-timeout"), "{status} {body}");
    });
}

#[test]
fn uploads_after_a_late_one_are_taken() {
    let gateway = limited(|limits| limits.body_wait = Duration::from_millis(60));
    wait(async {
        let (client, _) = Http2::new(gateway.address(), |_| {}).await;
        let (late, answer) = client.upload("/api/section/S1/open");
        late.send("{\"capa").unwrap();
        assert_eq!(patiently(answer).await.unwrap().unwrap().status(), 408);
        // On a busy machine an upload may be late by accident.
        for _ in 0..100 {
            let (pieces, answer) = client.upload("/api/section/S2/open");
            pieces.send("{\"capacity\":").unwrap();
            // Once this answer is there, the first piece has arrived, and the second is awaited.
            assert_eq!(client.ask("GET", "/health/live", "").await.0, 200);
            pieces.send("7}").unwrap();
            drop(pieces);
            if patiently(answer).await.unwrap().unwrap().status() == 200 {
                return;
            }
        }
        panic!("all later uploads were late, too");
    });
}

#[test]
fn a_client_that_takes_no_answer_is_cut_off_despite_pings() {
    let gateway = limited(|limits| limits.write_wait = Duration::from_millis(60));
    wait(async {
        for path in ["/openapi.json", "/api/section/none"] {
            let (client, ended) = Http2::lively(gateway.address(), 0).await;
            let _unread = client.begin("GET", path, "").await;
            patiently(ended).await.unwrap();
        }
    });
}

#[test]
fn an_idle_connection_is_told_to_go_away_despite_pings() {
    let gateway = limited(|limits| {
        limits.header_wait = Duration::from_millis(30);
        limits.idle = Duration::from_millis(90);
    });
    wait(async {
        let (client, ended) = Http2::lively(gateway.address(), 1 << 16).await;
        patiently(ended).await.unwrap();
        drop(client);
    });
    let stream = TcpStream::connect(gateway.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut frames = Frames::over(stream);
    const GOAWAY: u8 = 7;
    loop {
        let frame = frames.next();
        if frame.kind == GOAWAY {
            assert_eq!(frame.payload[4..8], [0; 4], "it goes away without a complaint");
            return;
        }
    }
}

#[test]
fn half_a_greeting_ends_like_half_a_head() {
    let gateway = limited(|limits| limits.header_wait = Duration::from_millis(30));
    for length in [10, 18, 20] {
        let mut stream = TcpStream::connect(gateway.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&HELLO[..length]).unwrap();
        let ended = stream.read_to_end(&mut Vec::new());
        assert!(ended.is_ok() || ended.is_err_and(|why| why.kind() == std::io::ErrorKind::ConnectionReset));
    }
}

//= promise 8: a panic costs one command
#[test]
fn a_panic_of_the_gateway_costs_only_its_request() {
    let gateway = start(|gateway| {
        gateway.authorize(|access: &Access<'_>| match access.action {
            Action::Command("rename") => panic!("nobody thought of that"),
            _ => Ok(()),
        })
    });
    wait(async {
        let (client, connection) = Http2::new(gateway.address(), |_| {}).await;
        let open = ("/api/section/S1/open", r#"{"capacity":9}"#);
        assert_eq!(client.ask("POST", open.0, open.1).await.0, 200);
        let (body, uploading) = client.upload("/api/section/S1/add-student");
        let (status, answer) = client.ask("POST", "/api/section/S1/rename", r#"{"title":"x"}"#).await;
        assert_eq!(status, 500, "{answer}");
        let problem: serde_json::Value = serde_json::from_str(&answer).unwrap();
        let said = "The handler of this request crashed: nobody thought of that.";
        assert_eq!(
            (&problem["detail"], &problem["instance"]),
            (&said.into(), &"/api/section/S1/rename".into())
        );
        // The concurrent upload goes on.
        body.send(r#"{"student":"1"}"#).unwrap();
        drop(body);
        assert_eq!(read(uploading.await.unwrap().unwrap()).await.0, 200);
        assert!(!connection.is_finished());
        gateway.stop().await;
    });
}
