//! Tests of the service over HTTP on a real gateway, through restarts and under memory pressure.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use preferences::user::{Act, ActionKind, Recommend, Recommendations, User, UserCommand};
use serde_json::{Value, json};
use std::{net::SocketAddr, path::Path};
use throng::{Engine, Options};
use throng_http::{Gateway, Running};
use throng_testing::{JSON, block_on, in_memory, request};

fn served() -> Running {
    let engine = in_memory(preferences::kinds(Engine::builder()));
    let routes = preferences::routes(engine.clone());
    Gateway::builder(engine)
        .routes(routes)
        .describe(preferences::describe())
        .start()
        .unwrap()
}

fn exchange(address: SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> (u16, Value) {
    let response = request(address, method, path, headers, body).unwrap();
    (response.status, response.json())
}

fn post(address: SocketAddr, path: &str, body: &str) -> (u16, Value) {
    exchange(address, "POST", path, JSON, body)
}

fn get(address: SocketAddr, path: &str) -> (u16, Value) {
    exchange(address, "GET", path, "", "")
}

#[test]
fn actions_go_in_and_recommendations_come_out() {
    let service = served();
    let at = service.address();
    let body = json!({ "actions": [{ "action": "buy", "item": 17 }, { "action": "like", "item": 40 }] }).to_string();
    assert_eq!(post(at, "/users/anna/actions", &body), (200, json!({ "actions": 2 })));
    let (status, list) = get(at, "/users/anna/recommendations?limit=5");
    assert_eq!(status, 200);
    assert_eq!(list["user"], "anna");
    let items = list["items"].as_array().unwrap();
    assert_eq!(items.len(), 5);
    assert!(items.iter().all(|item| item["item"] != 17), "{list}");
    let scores: Vec<f64> = items.iter().map(|item| item["score"].as_f64().unwrap()).collect();
    assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
    let (status, generic) = get(at, "/api/user/anna/recommendations?limit=5");
    assert_eq!((status, generic), (200, list));
    assert_eq!(
        get(at, "/users/anna/recommendations").1["items"]
            .as_array()
            .unwrap()
            .len(),
        10
    );
    service.stop_blocking();
}

#[test]
fn an_invalid_request_gets_a_problem_that_names_the_field() {
    let service = served();
    let at = service.address();
    for (body, status, field) in [
        (r#"{"actions":[]}"#.to_owned(), 422, Some("actions")),
        (
            r#"{"actions":[{"action":"view","item":4096}]}"#.to_owned(),
            422,
            Some("item"),
        ),
        (r#"{"actions":[{"action":"steal","item":1}]}"#.to_owned(), 400, None),
        (r#"{"actions":[{"action":"view","item":-1}]}"#.to_owned(), 400, None),
        (r#"{"actions""#.to_owned(), 400, None),
        (r#"{}"#.to_owned(), 400, None),
    ] {
        let (found, problem) = post(at, "/users/ben/actions", &body);
        assert_eq!(found, status, "{body}: {problem}");
        assert_eq!(problem["status"], status, "{body}");
        if let Some(field) = field {
            assert_eq!(problem["field"], field, "{body}: {problem}");
        }
    }
    let body = r#"{"actions":[{"action":"view","item":1}]}"#;
    assert_eq!(
        exchange(at, "POST", "/users/ben/actions", "content-type: text/plain\r\n", body).0,
        415
    );
    assert_eq!(
        get(at, "/users/ben/recommendations").0,
        404,
        "none of all that was taken"
    );
    assert_eq!(post(at, "/users/ben/actions", body).0, 200);
    for limit in ["0", "51", "-1", "ten", ""] {
        let (status, problem) = get(at, &format!("/users/ben/recommendations?limit={limit}"));
        assert_eq!(
            (status, &problem["field"]),
            (400, &json!("limit")),
            "{limit}: {problem}"
        );
    }
    service.stop_blocking();
}

#[test]
fn actions_under_one_idempotency_key_count_once() {
    let service = served();
    let at = service.address();
    let body = r#"{"actions":[{"action":"view","item":1}]}"#;
    let headers = "content-type: application/json\r\nidempotency-key: k1\r\n";
    for _ in 0..2 {
        let answer = exchange(at, "POST", "/users/cleo/actions", headers, body);
        assert_eq!(answer, (200, json!({ "actions": 1 })));
    }
    service.stop_blocking();
}

const USERS: u32 = 400;

/// Returns actions of a user. Some are so old that only the stored state has them.
fn actions(user: u32, round: u32) -> Vec<Act> {
    let kinds = [ActionKind::View, ActionKind::Like, ActionKind::Buy];
    (0..40)
        .map(|n| Act {
            action: kinds[((user + n) % 3) as usize],
            item: (user * 97 + round * 1_009 + n * 31) % 4_096,
        })
        .collect()
}

async fn start(directory: &Path, memory_bytes_max: usize) -> Engine {
    let (journal, store) = throng_log::open_embedded(directory, throng_log::Options::default()).unwrap();
    let options = Options {
        memory_bytes_max,
        ..Options::default()
    };
    preferences::kinds(Engine::builder())
        .options(options)
        .start_shared(journal, store)
        .await
        .unwrap()
}

async fn lists(engine: &Engine) -> Vec<Recommendations> {
    let mut all = Vec::new();
    for user in 0..USERS {
        let user = engine.entity::<User>(format!("u{user}"));
        all.push(user.read(Recommend { limit: 20 }).await.unwrap());
    }
    all
}

fn loads(engine: &Engine) -> u64 {
    let mut text = String::new();
    engine.metrics().encode(&mut text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("throng_loads_total "));
    line.unwrap().parse().unwrap()
}

#[test]
fn lists_survive_a_restart_and_passivation_under_a_small_budget() {
    let directory = tempfile::tempdir().unwrap();
    block_on(async {
        let engine = start(directory.path(), 512 << 20).await;
        for round in 0..3 {
            for user in 0..USERS {
                let command = UserCommand::Act {
                    actions: actions(user, round),
                };
                engine.entity::<User>(format!("u{user}")).ask(command).await.unwrap();
            }
        }
        let expected = lists(&engine).await;
        assert_eq!(loads(&engine), 0, "all users are at hand");
        engine.stop().await;
        drop(engine);

        // Memory for some tens of the users.
        let engine = start(directory.path(), 64 << 10).await;
        assert_eq!(lists(&engine).await, expected);
        assert_eq!(lists(&engine).await, expected);
        assert!(
            loads(&engine) > u64::from(USERS),
            "users went out and came in again: {}",
            loads(&engine)
        );
        assert!(engine.health().entities < u64::from(USERS), "{:?}", engine.health());
        engine.stop().await;
    });
}
