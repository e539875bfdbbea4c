//! A standby without the last commits replaces its primary, and a server stops answering.

use super::{
    cluster::serves,
    kit::{Served, assert_refused, run, throng},
    postgres::{fill, json_of, serve_with, students},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use servers::{Postgres, PostgresOptions, Stop};
use throng_testing::{Client, until};

struct Pair {
    primary: Postgres,
    standby: Postgres,
}

impl Pair {
    fn start() -> Self {
        let primary = Postgres::start(PostgresOptions::default()).unwrap();
        let standby = primary.standby("standby").unwrap();
        Self { primary, standby }
    }

    /// Returns the URL of both servers.
    fn place(&self) -> String {
        let at = |server: &Postgres| format!("127.0.0.1:{}", server.port());
        let both = format!("{},{}", at(&self.primary), at(&self.standby));
        let url = self.primary.url("postgres").replace(&at(&self.primary), &both);
        format!("{url}?lease=1s")
    }

    /// Adds bob in a commit that the standby lacks, and promotes the standby.
    fn lose_bob(&mut self, served: &Served) {
        fill(served);
        let end = self.primary.sql("SELECT pg_current_wal_flush_lsn()").unwrap();
        let has_all = format!("SELECT pg_last_wal_replay_lsn() >= '{}'", end.trim());
        self.standby.until(&has_all).unwrap();
        self.standby.hold_back().unwrap();
        assert_eq!(add_bob(served), 200);
        self.primary.stop(Stop::Immediate);
        self.standby.promote().unwrap();
    }
}

fn add_bob(served: &Served) -> u16 {
    let added = served
        .client()
        .post("/sections/A%201/add", Some("key-of-bob"), r#"{"student":"bob"}"#);
    added.unwrap().status
}

/// Returns the journal's only loss, which is bob's commit.
fn loss_of_bob(place: &str) -> Value {
    let found = json_of(&["journal", "loss", place, "--json"]);
    let losses = found["losses"].as_array().unwrap();
    assert_eq!(losses.len(), 1, "{found}");
    let loss = losses[0].clone();
    assert_eq!(loss["missing"], 1, "{loss}");
    assert_eq!(loss["commits"][0]["entities"], json!(["section/A 1"]), "{loss}");
    assert_eq!(loss["commits"][0]["keys"], json!(["key-of-bob"]), "{loss}");
    loss
}

fn health(served: &Served) -> Value {
    served.client().get("/health/ready").unwrap().json()
}

fn is_lost(text: &Value) -> bool {
    text.as_str()
        .is_some_and(|text| text.contains("acknowledged commits are lost"))
}

fn error_of_loss(said: &str, loss: &Value) -> bool {
    let at = format!("commit {} was acknowledged", loss["acknowledged"].as_str().unwrap());
    let is_error = |line: &str| line.contains("ERROR") && line.contains("acknowledged commits are lost");
    said.lines().any(|line| is_error(line) && line.contains(&at))
}

#[test]
fn service_stops_at_a_loss_until_a_person_accepts_it() {
    let mut pair = Pair::start();
    let place = pair.place();
    let served = serve_with(&place, &[]);
    pair.lose_bob(&served);
    until("it says that it stops", || is_lost(&health(&served)["reason"]));
    assert_eq!(served.client().get("/sections/A%201/roster").unwrap().status, 503);
    let loss = loss_of_bob(&place);
    assert!(
        health(&served)["troubles"].as_array().unwrap().iter().any(is_lost),
        "{}",
        health(&served)
    );
    assert_eq!(loss["accepted_at"], Value::Null);
    let named = loss["acknowledged"].as_str().unwrap();
    let told = String::from_utf8(run(&["journal", "loss", &place]).stdout).unwrap();
    for part in ["1 commits are lost", "not accepted", "section/A 1", "keys key-of-bob"] {
        assert!(told.contains(part), "no {part:?} in {told}");
    }
    served.signal(Signal::TERM);
    let (_, said) = served.ended();
    assert!(error_of_loss(&said, &loss), "{said}");

    let start = ["serve", "--listen", "127.0.0.1:0", "--journal", &place];
    assert_refused(&run(&start), &["commits are lost", &format!("--accept-loss {named}")]);
    let accepting = serve_with(&place, &["--accept-loss", named]);
    assert_eq!(students(&accepting), json!(["ann"]));
    assert_eq!(add_bob(&accepting), 200);
    assert_ne!(loss_of_bob(&place)["accepted_at"], Value::Null);
    accepting.signal(Signal::TERM);
    assert!(accepting.ended().0.success());
    let again = serve_with(&place, &[]);
    assert_eq!(students(&again), json!(["ann", "bob"]));
    let verified = run(&["journal", "verify", &place]);
    let said = String::from_utf8_lossy(&verified.stdout);
    assert!(!verified.status.success() && said.contains("accepted loss"), "{said}");
}

#[test]
fn service_goes_on_without_lost_commits_where_told_to() {
    let mut pair = Pair::start();
    let place = pair.place();
    let served = serve_with(&place, &["--on-loss", "continue"]);
    pair.lose_bob(&served);
    // No request reaches the service meanwhile.
    let is_told = |health: &Value| health["troubles"].as_array().is_some_and(|all| all.iter().any(is_lost));
    until("it has noticed and goes on", || {
        let health = health(&served);
        health["ready"] == true && is_told(&health)
    });
    assert_eq!(students(&served), json!(["ann"]));
    let loss = loss_of_bob(&place);
    assert_ne!(loss["accepted_at"], Value::Null);
    let told = String::from_utf8(run(&["journal", "loss", &place]).stdout).unwrap();
    assert!(told.contains("accepted at"), "{told}");
    until("the metric counts it", || {
        let mut admin = Client::connect(served.admin).unwrap();
        let metrics = admin.get("/metrics").unwrap();
        metrics.body.contains("\nthrong_losses 1\n")
    });
    // The request is executed again under the same key.
    assert_eq!(add_bob(&served), 200);
    assert_eq!(students(&served), json!(["ann", "bob"]));
    assert!(error_of_loss(&served.said(), &loss), "{}", served.said());
}

#[test]
fn database_that_is_silent_for_a_lease_is_an_error() {
    let server = Postgres::start(PostgresOptions::default()).unwrap();
    let place = format!("{}?connect_timeout=4", server.url("postgres"));
    let mut command = throng();
    command.args(["serve", "--listen", "127.0.0.1:0", "--journal", &place]);
    command.args(["--cluster", "--name", "a", "--cluster-lease", "1s"]);
    let served = Served::spawn(command);
    until("the node owns all shards", || serves(&served, 256));
    fill(&served);
    let signal = |signal| {
        for id in server.processes() {
            // The process may have just ended.
            let _ = Pid::from_raw(id.cast_signed()).map(|id| kill_process(id, signal));
        }
    };
    let has_error = |part: &str| {
        let said = served.said();
        said.lines().any(|line| line.contains("ERROR") && line.contains(part))
    };
    for silence in ["no write was answered by the database for", "could not say for"] {
        assert!(!has_error(silence), "{}", served.said());
    }
    signal(Signal::STOP);
    until("a lease without a renewal is told", || {
        has_error("no write was answered by the database for")
    });
    until("a lease without a beat is told", || has_error("could not say for"));
    assert_ne!(served.client().get("/sections/A%201/roster").unwrap().status, 200);
    signal(Signal::CONT);
    until("it answers again", || {
        let roster = served.client().get("/sections/A%201/roster");
        roster.is_ok_and(|roster| roster.status == 200)
    });
}
