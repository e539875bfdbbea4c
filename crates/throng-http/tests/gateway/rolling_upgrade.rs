//! Clients of a node in a rolling upgrade: another node's program may know what this one's does not.

use super::support::{
    Client, Received, engine_on,
    socket::{Socket, command, query},
    wait,
};
use serde_json::json;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use throng::{
    driver::peers::{Peers, Reply, Request},
    journal::{Directory as _, Join, Later, MemoryJournal, ShardId, ShardSet},
};
use throng_http::Gateway;

/// Another node. It is of a newer release while the first field is set, or was gone before for this many seconds.
#[derive(Default)]
struct Other(AtomicBool, AtomicU64);

impl Peers for Other {
    fn ask(&self, _: ShardId, _: Request, _: Duration) -> Later<'static, Reply> {
        Box::pin(std::future::ready(Reply::NotHere))
    }

    fn newer(&self) -> Option<String> {
        self.0.load(Ordering::SeqCst).then(|| "b".to_owned())
    }

    fn newer_gone(&self) -> Option<(String, Duration)> {
        let seconds = self.1.load(Ordering::SeqCst);
        (seconds > 0).then(|| ("b".to_owned(), Duration::from_secs(seconds)))
    }
}

#[test]
fn unknown_commands_are_retried_while_a_newer_release_may_live() {
    let (other, journal) = (Arc::new(Other::default()), MemoryJournal::new());
    let engine = engine_on(journal.clone(), |builder| builder.peers(other.clone()));
    wait(async {
        let directory = journal.directory();
        let join = Join {
            name: "a".into(),
            shards: 256,
            ..Join::default()
        };
        let (node, all) = (directory.join(join).await.unwrap(), ShardSet::first(256));
        directory.take(node, &all).await.unwrap();
        engine.driver().serve(node, all).await.unwrap();
    });
    let gateway = Gateway::builder(engine).start().unwrap();
    let mut client = Client::new(&gateway);
    let mut socket = Socket::new(&gateway);
    assert_eq!(client.post("/api/section/S1/open", r#"{"capacity":9}"#).status, 200);
    let mut asked = |status: u16, slugs: [&str; 6]| {
        let told: [Received; 6] = [
            client.post("/api/lecture/S1/open", "{}"),
            client.get("/api/lecture/S1"),
            client.post("/api/section/S1/enrol", "{}"),
            client.get("/api/section/S1/roster"),
            client.post("/api/section/S1/add-student", r#"{"number":7}"#),
            client.get("/api/section/S1/enrolled"),
        ];
        for (answer, slug) in told.iter().zip(slugs) {
            let status = if status == 503 || slug != "malformed" {
                status
            } else {
                400
            };
            let problem = answer.problem(status, slug);
            assert_eq!(answer.header("retry-after").is_some(), status == 503, "{problem}");
            let detail = problem["detail"].as_str().unwrap();
            assert_eq!(
                detail.contains("a newer release of the service") && detail.contains("node b"),
                status == 503,
                "{detail}"
            );
        }
        socket.send(&command("c", "S1", "enrol", &json!({})));
        socket.problem("c", slugs[2]);
        socket.send(&query("q", "S1", "roster", &json!({})));
        socket.problem("q", slugs[3]);
    };
    let known = [
        "unknown-kind",
        "unknown-kind",
        "unknown-command",
        "unknown-query",
        "malformed",
        "malformed",
    ];
    asked(404, known);
    // The newer release left before this engine began: too long ago, or recently.
    other.1.store(120, Ordering::SeqCst);
    asked(404, known);
    other.1.store(90, Ordering::SeqCst);
    asked(503, ["unavailable"; 6]);
    other.1.store(0, Ordering::SeqCst);
    asked(404, known);
    other.0.store(true, Ordering::SeqCst);
    asked(503, ["unavailable"; 6]);
    other.0.store(false, Ordering::SeqCst);
    asked(503, ["unavailable"; 6]);
}
