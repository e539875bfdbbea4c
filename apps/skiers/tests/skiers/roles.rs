//! Tests of starts, stand-bys and readiness of servers and consumers, as processes.

use crate::process::{Process, check, command, free_address};
use serde_json::json;
use servers::{RabbitMq, RabbitMqOptions, Redis};
use std::{net::SocketAddr, process::Stdio, sync::LazyLock};
use throng_testing::{JSON, request, until};

static BROKER: LazyLock<RabbitMq> = LazyLock::new(|| {
    let options = RabbitMqOptions {
        users: vec![("server".into(), "admin".into()), ("consumer".into(), "admin".into())],
        ..RabbitMqOptions::default()
    };
    RabbitMq::start(options).unwrap()
});

const DAY: &str = "/resorts/56/seasons/2022/day/12/lifts/7";

/// Posts a ride on lift 7, with a key of its own.
fn ride(server: SocketAddr, number: u32) {
    let headers = format!("{JSON}idempotency-key: ride-{number}\r\n");
    let path = format!("/skiers/56/seasons/2022/days/12/skiers/{number}");
    let body = json!({"time": 1, "liftID": 7}).to_string();
    until("a ride is taken", || {
        request(server, "POST", &path, &headers, &body).is_ok_and(|taken| taken.status == 201)
    });
}

fn rides(at: SocketAddr) -> u64 {
    match request(at, "GET", DAY, "", "") {
        Ok(found) if found.status == 200 => found.json()["rides"].as_u64().unwrap(),
        _ => 0,
    }
}

fn is(at: SocketAddr, name: &str, status: &str, part: &str) -> bool {
    check(at, name).is_some_and(|(_, check)| check["status"] == status && check.to_string().contains(part))
}

/// All roles in one test, because a broker has the queue only once.
#[test]
fn second_consumer_takes_over_and_redis_is_in_the_readiness() {
    let directory = tempfile::tempdir().unwrap();
    let redis = Redis::start().unwrap();
    let mut to_redis = throng_redis::redis::Client::open(redis.url())
        .unwrap()
        .get_connection()
        .unwrap();
    let mut command = |words: &[&str]| {
        let () = throng_redis::redis::cmd(words[0])
            .arg(&words[1..])
            .query(&mut to_redis)
            .unwrap();
    };
    let consumes = [("SKIERS_BROKER", BROKER.url_of("consumer", "admin"))];
    let into_redis = [consumes[0].clone(), ("SKIERS_REDIS", redis.url())];
    let serves = [
        ("SKIERS_BROKER", BROKER.url_of("server", "admin")),
        ("SKIERS_REDIS", redis.url()),
    ];
    let start = |role: &str, name: &str, variables: &[(&str, String)]| {
        Process::start(role, free_address(), &directory.path().join(name), variables)
    };
    let mut first = start("consumer", "first", &consumes);
    until("the first consumes", || is(first.address, "queue skiers", "PASS", ""));
    let second = start("consumer", "second", &into_redis);
    until("the second stands by", || {
        is(second.address, "queue skiers", "WARN", "stands by")
    });
    let server = start("server", "server", &serves);
    (0..10).for_each(|number| ride(server.address, number));
    until("the first counts", || rides(first.address) == 10);
    assert_eq!(rides(second.address), 0);
    // Killed before that, it leaves rides that it has counted to the second.
    until("the first has acknowledged them", || {
        let messages = BROKER.control(&["list_queues", "--quiet", "--no-table-headers", "messages"]);
        messages.unwrap().split_whitespace().all(|count| count == "0")
    });
    first.kill();
    (10..15).for_each(|number| ride(server.address, number));
    until("the second counts", || rides(second.address) == 5);
    assert!(is(second.address, "queue skiers", "PASS", ""));

    let model = "read model ride-counts";
    until("Redis has them", || rides(server.address) == 5);
    until("the server says so", || is(server.address, model, "PASS", ""));
    command(&["CONFIG", "SET", "maxmemory", "1"]);
    for _ in 0..10 {
        assert_eq!(rides(server.address), 5, "a Redis that is full answers");
    }
    command(&["CONFIG", "SET", "maxmemory", "0"]);
    let mut second = second;
    second.kill();
    command(&["FLUSHALL"]);
    let found = request(server.address, "GET", DAY, "", "").unwrap();
    assert_eq!(found.status, 503, "and not that there is nothing");
    until("the server says why", || {
        is(server.address, model, "WARN", "not complete")
    });
    assert_eq!(
        check(server.address, model).unwrap().0,
        200,
        "rides are taken all the same"
    );
    let second = start("consumer", "second", &into_redis);
    until("Redis is filled again", || rides(server.address) == 5);
    until("all is well", || is(server.address, model, "PASS", ""));
    drop(second);
}

#[test]
fn wrong_password_ends_the_start_with_a_sentence() {
    let directory = tempfile::tempdir().unwrap();
    for role in ["server", "consumer"] {
        let variables = [("SKIERS_BROKER", BROKER.url_of(role, "wrong"))];
        let ended = command(role, free_address(), &directory.path().join(role), &variables)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(said.contains("look at user, password and virtual host"), "{said}");
        assert!(!said.contains("wrong"), "the password is not shown: {said}");
    }
}

/// The command `dead-letters` from start to end.
#[test]
fn dead_letters_command_sends_rides_again() {
    let broker = RabbitMq::start(RabbitMqOptions::default()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let variables = [("SKIERS_BROKER", broker.url())];
    let server = Process::start("server", free_address(), &directory.path().join("server"), &variables);
    // Two rides with one key: the second becomes a dead letter, though it was answered with 201.
    for time in [1, 2] {
        let body = json!({"time": time, "liftID": 7}).to_string();
        let headers = format!("{JSON}idempotency-key: same\r\n");
        let path = "/skiers/56/seasons/2022/days/12/skiers/1";
        let taken = request(server.address, "POST", path, &headers, &body).unwrap();
        assert_eq!(taken.status, 201);
    }
    let consumer = Process::start(
        "consumer",
        free_address(),
        &directory.path().join("consumer"),
        &variables,
    );
    let run = |arguments: &[&str]| {
        let done = std::process::Command::new(env!("CARGO_BIN_EXE_skiers"))
            .arg("dead-letters")
            .args(arguments)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    };
    until("one is dead", || {
        run(&["--dry-run"]).contains("1 would be sent again to the queue skiers")
    });
    // A letter that stays is out of the queue for a moment.
    until("it stays", || {
        run(&["--reason", "expired"]).contains("1 left in skiers-dead")
    });
    until("it is there", || run(&[]).contains("1 sent again to the queue skiers"));
    until("it is dead again and stays", || {
        run(&[]).contains("1 left in skiers-dead: it was sent again before")
    });
    assert_eq!(rides(consumer.address), 1);
}
