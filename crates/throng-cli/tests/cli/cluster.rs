//! Several nodes on a private PostgreSQL server, from outside.

use super::kit::{Served, assert_refused, run, throng};
use rustix::process::Signal;
use serde_json::{Value, json};
use servers::{Postgres, PostgresOptions};
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, ErrorKind},
    net::{SocketAddr, TcpStream},
    process::Stdio,
    sync::LazyLock,
};
use throng_testing::{Client, PATIENCE, until};
use tokio_tungstenite::tungstenite::{
    Message, WebSocket,
    client::{IntoClientRequest, client},
    http::HeaderValue,
};

static SERVER: LazyLock<Postgres> = LazyLock::new(|| Postgres::start(PostgresOptions::default()).unwrap());

const SECTIONS: usize = 12;

pub(super) fn place(schema: &str) -> String {
    format!("{}?schema={schema}", SERVER.url("postgres"))
}

fn node(schema: &str, name: &str) -> Served {
    Served::spawn(command(schema, name))
}

fn command(schema: &str, name: &str) -> std::process::Command {
    let place = place(schema);
    let mut command = throng();
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    command.args([
        "--journal",
        &place,
        "--cluster",
        "--name",
        name,
        "--cluster-lease",
        "1s",
    ]);
    command
}

/// Starts two nodes, each of which serves one half.
fn two(schema: &str) -> [Served; 2] {
    let nodes = ["a", "b"].map(|name| node(schema, name));
    until("each node has its share", || nodes.iter().all(|node| serves(node, 128)));
    nodes
}

/// Returns true if a node serves exactly this number of shards.
pub(super) fn serves(node: &Served, shards: usize) -> bool {
    let seen = Client::connect(node.admin).and_then(|mut client| client.get("/admin/cluster"));
    seen.is_ok_and(|seen| seen.status == 200 && seen.json()["serves"] == shards)
}

fn post(node: &Served, path: &str, body: &Value) {
    let key = format!("{path}-{body}");
    until(&key, || {
        let answer =
            Client::connect(node.address).and_then(|mut client| client.post(path, Some(&key), &body.to_string()));
        answer.is_ok_and(|answer| answer.status < 300)
    });
}

fn id(section: usize) -> String {
    format!("S{section}")
}

fn open_all(nodes: &[Served; 2]) {
    for section in 0..SECTIONS {
        let path = format!("/api/section/{}/open", id(section));
        post(&nodes[section % 2], &path, &json!({ "capacity": 1_000 }));
    }
}

fn add(node: &Served, student: usize) {
    add_to(node, student, 0);
}

fn add_to(node: &Served, student: usize, first: usize) {
    for section in first..SECTIONS {
        let path = format!("/api/section/{}/add", id(section));
        post(node, &path, &json!({ "student": student.to_string() }));
    }
}

/// A socket that follows all sections at one node.
struct Follower(WebSocket<TcpStream>);

impl Follower {
    fn new(node: &Served, after: &Value) -> Self {
        let stream = TcpStream::connect(node.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut request = format!("ws://{}/api/ws", node.address).into_client_request().unwrap();
        let protocol = HeaderValue::from_static("throng.v1");
        request.headers_mut().insert("sec-websocket-protocol", protocol);
        let mut socket = client(request, stream).unwrap().0;
        let subscribe =
            json!({ "type": "subscribe", "id": "all", "kind": "section", "after": after, "credit": 10_000 });
        socket.send(Message::text(subscribe.to_string())).unwrap();
        Self(socket)
    }

    /// Returns the next frame's messages, all of this type.
    fn next(&mut self, of: &str) -> Vec<Value> {
        loop {
            let Message::Text(text) = self.0.read().unwrap() else {
                continue;
            };
            let frame: Value = serde_json::from_str(&text).unwrap();
            let messages = match frame {
                Value::Array(messages) => messages,
                one => vec![one],
            };
            let found: Vec<Value> = messages.into_iter().filter(|message| message["type"] == of).collect();
            if !found.is_empty() {
                return found;
            }
        }
    }

    /// Reads until this many events of all sections were received. Returns the cursor.
    fn read(&mut self, told: &mut BTreeMap<String, u64>, until: usize) -> Value {
        let mut cursor = Value::Null;
        while told.values().sum::<u64>() < until as u64 {
            for message in self.next("events") {
                for event in message["events"].as_array().unwrap() {
                    let last = told.entry(event["entity"].as_str().unwrap().to_owned()).or_default();
                    assert_eq!(event["seq"], *last + 1, "{event} after {last}");
                    *last += 1;
                }
                cursor = message["cursor"].clone();
            }
        }
        cursor
    }
}

#[test]
fn a_kind_is_followed_over_nodes_and_past_the_death_of_one() {
    let [a, b] = two("follow");
    let nodes = [a, b];
    open_all(&nodes);
    let mut told = BTreeMap::new();
    let mut at_a = Follower::new(&nodes[0], &json!("start"));
    at_a.read(&mut told, SECTIONS);
    // Later events arrive without another request, whichever node got the command.
    for student in 0..4 {
        add(&nodes[student % 2], student);
    }
    let cursor = at_a.read(&mut told, 5 * SECTIONS);
    // These events go to the other node. Then the client's node ends, and the client moves to the other one.
    add(&nodes[1], 4);
    let [a, b] = nodes;
    a.signal(Signal::KILL);
    drop((a, at_a));
    let mut at_b = Follower::new(&b, &cursor);
    add(&b, 5);
    let cursor = at_b.read(&mut told, 7 * SECTIONS);
    assert!(told.len() == SECTIONS && told.values().all(|seq| *seq == 7), "{told:?}");
    // The first node starts again, with a new stream.
    let a = node("follow", "a");
    add(&a, 6);
    Follower::new(&a, &cursor).read(&mut told, 8 * SECTIONS);
    let mut all = BTreeMap::new();
    Follower::new(&a, &json!("start")).read(&mut all, 8 * SECTIONS);
    assert_eq!(all, told);
    let mut nowhere = Follower::new(&b, &json!("999.1"));
    let problem = nowhere.next("problem").remove(0).to_string();
    assert!(problem.contains("is not a place in this service"), "{problem}");
}

/// Sends a request to a node's administration. Returns the status and body.
fn administrate(node: &Served, path: &str) -> (u16, String) {
    let answer = Client::connect(node.admin).unwrap().post(path, None, "").unwrap();
    (answer.status, answer.body)
}

/// Returns the rows of the journal and the store that contain a text.
fn rows_with(schema: &str, text: &str) -> String {
    let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    let within = |column: &str| format!("position('\\x{hex}'::bytea IN {column}) > 0");
    let query = format!(
        "SELECT (SELECT count(*) FROM {schema}.commits WHERE {}) + (SELECT count(*) FROM {schema}.states WHERE {})",
        within("body"),
        within("state")
    );
    let found = SERVER.run("psql", &["-At", "-d", "postgres", "-c", &query]);
    String::from_utf8(found.unwrap()).unwrap()
}

#[test]
fn an_entity_is_erased_at_any_node_while_all_go_on() {
    let nodes = two("erases");
    open_all(&nodes);
    for section in 0..SECTIONS {
        let path = format!("/api/section/{}/add", id(section));
        post(
            &nodes[section % 2],
            &path,
            &json!({ "student": format!("known-only-to-{section}.") }),
        );
    }
    for section in 0..SECTIONS / 2 {
        let path = format!("/admin/erase?kind=section&id={}", id(section));
        let (status, said) = administrate(&nodes[section % 2], &path);
        assert!(status == 200 && said.contains("records"), "{status} {said}");
        // The other sections go on.
        add_to(&nodes[0], section, SECTIONS / 2);
    }
    for section in 0..SECTIONS {
        let found = rows_with("erases", &format!("known-only-to-{section}."));
        assert_eq!(found.trim() == "0", section < SECTIONS / 2, "{section}: {found}");
    }
    let (status, said) = administrate(&nodes[0], "/admin/erase?kind=section&id=nobody");
    assert_eq!(status, 404, "{said}");
}

/// Runs `throng cluster …` on a schema.
fn cluster(schema: &str, what: &[&str]) -> std::process::Output {
    let place = place(schema);
    run(&[&["cluster"], what, &["--journal", &place]].concat())
}

fn said(output: &std::process::Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn moved_shards_stay_at_their_node_until_they_are_released() {
    let [a, b] = two("moves");
    let nodes = [a, b];
    open_all(&nodes);
    let moved = said(&cluster("moves", &["move", "0-99,150-199", "--to", "b"]));
    assert!(moved.contains("the shards 0-99,150-199 are pinned to b"), "{moved}");
    let are_at_b = |b: &Served| {
        let owned: Value = serde_json::from_str(&said(&cluster("moves", &["shards", "--json"]))).unwrap();
        assert_eq!(owned["pinned"], json!({ "b": "0-99,150-199" }));
        owned["owned"]["b"] == "0-99,150-199" && serves(b, 150)
    };
    until("they are at b, and the others are not", || {
        are_at_b(&nodes[1]) && serves(&nodes[0], 106)
    });
    add(&nodes[0], 0);
    let shown = said(&cluster("moves", &["shards"]));
    assert!(shown.ends_with("pinned to b: 0-99,150-199\n"), "{shown}");
    // The node ends and starts again.
    let [a, b] = nodes;
    b.signal(Signal::KILL);
    drop(b);
    until("a has all", || serves(&a, 256));
    let nodes = [a, node("moves", "b")];
    until("they are at b again", || are_at_b(&nodes[1]));
    add(&nodes[1], 1);
    said(&cluster("moves", &["move", "0-255", "--to", "any"]));
    until("each has its half", || nodes.iter().all(|node| serves(node, 128)));
    add(&nodes[0], 2);
    let seen = Client::connect(nodes[0].admin).unwrap().get("/admin/cluster").unwrap();
    assert_eq!(seen.json()["pinned"], json!({}));
}

#[test]
fn console_of_one_node_shows_drains_and_pins_all() {
    let nodes = two("console");
    open_all(&nodes);
    let look = || {
        let seen = Client::connect(nodes[0].admin).unwrap().get("/admin/cluster/nodes");
        seen.unwrap().json()["nodes"].as_array().unwrap().clone()
    };
    until("each node says what it does", || {
        let seen = look();
        seen.len() == 2 && seen.iter().all(|node| node["now"]["series"]["commands"].is_number())
    });
    for (node, seen) in nodes.iter().zip(look()) {
        assert_eq!(seen["console"], format!("http://{}/console/", node.admin));
        let confirm = seen["actions"][0]["confirm"].as_str().unwrap().to_owned();
        assert!(confirm.contains("gives its 128 shards to"), "{confirm}");
    }
    let act = |name: &str| {
        let node = look().into_iter().find(|node| node["name"] == "b").unwrap();
        assert_eq!(node["actions"][0]["name"], name);
        let path = node["actions"][0]["path"].as_str().unwrap().to_owned();
        let (status, said) = administrate(&nodes[0], &path);
        assert_eq!(status, 200, "{said}");
    };
    act("drain");
    until("a has all", || serves(&nodes[0], 256));
    act("undrain");
    until("b has its half", || serves(&nodes[1], 128));
    let (status, said) = administrate(&nodes[1], "/admin/cluster/pin?shards=0-199&to=a");
    assert_eq!((status, &*said), (200, r#"{"pinned":"0-199","to":"a"}"#));
    until("they are at a", || serves(&nodes[0], 200));
    for wrong in [
        "pin?shards=0-999&to=b",
        "pin?shards=x&to=b",
        "pin?shards=0-9&to=c",
        "pin?to=b",
        "drain?name=c",
    ] {
        let (status, said) = administrate(&nodes[0], &format!("/admin/cluster/{wrong}"));
        assert_eq!(status, 400, "{wrong}: {said}");
    }
    let (status, said) = administrate(&nodes[1], "/admin/cluster/pin?shards=0-255");
    assert_eq!((status, &*said), (200, r#"{"pinned":"0-255","to":null}"#));
    until("each has its half", || nodes.iter().all(|node| serves(node, 128)));
}

#[test]
fn a_move_that_cannot_be_is_told_and_changes_nothing() {
    let nodes = two("refuses");
    let refused = |what: &[&str], parts: &[&str]| assert_refused(&cluster("refuses", what), parts);
    refused(
        &["move", "0-9", "--to", "c"],
        &["there is no node \"c\" that lives", "cluster status"],
    );
    refused(
        &["move", "250-260", "--to", "a"],
        &["there are no shards 256-260", "0-255"],
    );
    for list in ["", "x", "9-0", "0-", "1,,2"] {
        let output = cluster("refuses", &["move", list, "--to", "a"]);
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(2) && why.contains("SHARDS"),
            "{list:?}: {why}"
        );
    }
    said(&cluster("refuses", &["drain", "b"]));
    refused(
        &["move", "0-9", "--to", "b"],
        &["gives away its shards", "cluster undrain b"],
    );
    let shown = said(&cluster("refuses", &["shards"]));
    assert!(!shown.contains("pinned"), "{shown}");
    drop(nodes);
    let mut alone = throng();
    alone.args(["serve", "--listen", "127.0.0.1:0"]);
    alone.args(["--journal", &place("refuses_alone")]);
    let alone = Served::spawn(alone);
    let why = cluster("refuses_alone", &["move", "0-9", "--to", "a"]);
    assert_refused(&why, &["no node of a cluster has ever joined on this journal"]);
    drop(alone);
    let output = run(&["cluster", "move", "0-9", "--to", "a", "--journal", "./nowhere"]);
    assert_refused(&output, &["share a journal on PostgreSQL"]);
}

#[test]
fn once_a_release_is_finalized_no_older_one_joins() {
    let of_release = |name: &str, release: &str| {
        let mut command = command("finalized", name);
        command.args(["--app-number", release]);
        command
    };
    let [a, b] = ["a", "b"].map(|name| Served::spawn(of_release(name, "3")));
    let told = said(&cluster("finalized", &["finalize"]));
    assert!(told.contains("releases (--app-number) is raised from 0 to 3"), "{told}");
    let told = said(&cluster("finalized", &["finalize"]));
    assert!(told.contains("releases (--app-number) stays at 3"), "{told}");
    let output = of_release("c", "2").output().unwrap();
    assert_refused(&output, &["this is release 2 of the service", "release 3 at least"]);
    let shown = said(&cluster("finalized", &["status"]));
    assert!(shown.contains("or is of a release below 3"), "{shown}");
    let shown: Value = serde_json::from_str(&said(&cluster("finalized", &["status", "--json"]))).unwrap();
    assert_eq!(shown["floor"]["app"], 3);
    assert_eq!(shown["nodes"][1]["features"], shown["floor"]["features"]);
    drop((a, b));
}

#[test]
fn commands_of_a_release_that_left_are_answered_with_retry() {
    let schema = "newer_gone";
    let begun = |name: &str, app: &str| {
        let mut command = command(schema, name);
        command.args(["--app-number", app]);
        let node = Served::spawn(command);
        until("it serves all shards", || serves(&node, 256));
        node
    };
    let asked = |node: &Served| node.client().post("/api/section/S1/enrol", None, "{}").unwrap();
    let left = |node: Served| {
        node.signal(Signal::TERM);
        let (status, said) = node.ended();
        assert!(status.success(), "{said}");
    };
    let alone = begun("before", "1");
    assert_eq!(asked(&alone).status, 404);
    left(alone);
    left(begun("newer", "2"));

    let again = begun("again", "1");
    let answer = asked(&again);
    let detail = answer.json()["detail"].as_str().unwrap().to_owned();
    assert_eq!(answer.status, 503, "{detail}");
    assert!(detail.contains("node newer, which is gone for"), "{detail}");
}

#[test]
fn node_that_others_cannot_reach_owns_nothing_and_says_why() {
    let schema = "unreached";
    let nodes = two(schema);
    let mut stranger = command(schema, "c");
    stranger.args(["--peer-advertise", "127.0.0.1:1"]);
    let mut stranger = stranger.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(stranger.stderr.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let admin: Option<SocketAddr> = lines.find_map(|line| {
        let admin = line.split_once("administration and metrics on http://")?.1;
        Some(admin.trim().parse().unwrap())
    });
    let told = lines.find(|line| line.contains("owns nothing and is not ready"));
    let told = told.expect("it goes on and says why");
    for part in [
        "does not reach itself at 127.0.0.1:1",
        "--peer-advertise",
        "not reached at",
        "a at",
        "b at",
    ] {
        assert!(told.contains(part), "no {part:?} in {told}");
    }
    let shown: Value = serde_json::from_str(&said(&cluster(schema, &["status", "--json"]))).unwrap();
    let shown = &shown["nodes"][2];
    assert!(
        shown["apart"].as_str().unwrap().contains("not reached at 127.0.0.1:1"),
        "{shown}"
    );
    assert_eq!(
        (&shown["name"], &shown["state"], &shown["owns"]),
        (&json!("c"), &json!("draining"), &json!(0))
    );
    assert!(
        nodes.iter().all(|node| serves(node, 128)),
        "the others keep what they have"
    );
    let ready = Client::connect(admin.unwrap()).unwrap().get("/health/ready").unwrap();
    let reason = ready.json()["reason"].as_str().unwrap().to_owned();
    assert!(
        ready.status == 503 && reason.contains("not reached at 127.0.0.1:1"),
        "{reason}"
    );
    let clients: SocketAddr = shown["http"].as_str().unwrap()["http://".len()..].parse().unwrap();
    let refused = TcpStream::connect(clients).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "it lets no clients in");
    rustix::process::kill_process(rustix::process::Pid::from_child(&stranger), Signal::TERM).unwrap();
    assert!(stranger.wait().unwrap().success());
    let rest: Vec<String> = lines.collect();
    assert!(
        rest.iter()
            .any(|line| line.contains("told to end before it could serve")),
        "{rest:?}"
    );
}

#[test]
fn answers_name_the_owner_and_another_one_after_a_handoff() {
    let schema = "owners";
    let nodes = ["a", "b", "c"].map(|name| {
        let mut command = command(schema, name);
        if name != "c" {
            command.arg("--tell-owner");
        }
        Served::spawn(command)
    });
    let told = |node: &Served, section: usize| {
        let path = format!("/api/section/{}", id(section));
        let read = node.client().get(&path).unwrap();
        let added = node.client().post(&format!("{path}/add"), None, r#"{"student":"1"}"#);
        [read, added.unwrap()].map(|answer| answer.header("throng-owner").map(str::to_owned))
    };
    for section in 0..SECTIONS {
        let path = format!("/api/section/{}/open", id(section));
        post(&nodes[section % 3], &path, &json!({ "capacity": 1_000 }));
    }
    for (owner, name) in [(1, "b"), (2, "c"), (0, "a")] {
        said(&cluster(schema, &["move", "0-255", "--to", name]));
        let url = Some(format!("http://{}", nodes[owner].address));
        until("it is told as the owner of all", || {
            let mut asked = (0..SECTIONS).flat_map(|section| nodes[..2].iter().map(move |node| (node, section)));
            asked.all(|(node, section)| told(node, section) == [url.clone(), url.clone()])
        });
        let told = told(&nodes[2], 0);
        assert_eq!(told, [None, None], "a node that is not asked to tells no owner");
    }
}

#[test]
fn start_with_another_lease_or_on_another_journal_is_refused() {
    let schema = "unlike";
    let _a = node(schema, "a");
    let place = place(schema);
    let serve = ["serve", "--listen", "127.0.0.1:0", "--cluster", "--name", "b"];
    let refused = |more: &[&str], parts: &[&str]| assert_refused(&run(&[&serve[..], more].concat()), parts);
    refused(
        &["--journal", &place, "--cluster-lease", "2s"],
        &["a lease of 2s", "node \"a\" has one of 1s", "--cluster-lease"],
    );
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data").display().to_string();
    refused(&["--data", &data], &["share a journal on PostgreSQL"]);
    assert!(
        !directory.path().join("data").exists(),
        "a refused start leaves nothing"
    );
}
