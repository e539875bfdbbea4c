//! A test of the arrangement with a broker and Redis, as processes on real servers. Each is killed under load. In the end every ride that was
//! answered with 201 counts exactly once in every query.

use crate::{
    model::Model,
    process::{Process, free_address, get},
};
use serde_json::{Value, json};
use servers::{RabbitMq, RabbitMqOptions, Redis, Stop};
use skiers::ride::{ResortDayId, Ride};
use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};
use throng_testing::{JSON, request, until};

const RESORT: u32 = 56;
const SEASON: u32 = 2022;

/// Posts rides from several clients until it is stopped. Each ride has a key, and is repeated until it is answered with 201.
struct Load<'a> {
    server: SocketAddr,
    end: &'a AtomicBool,
    answered: &'a AtomicUsize,
    model: &'a Mutex<Model>,
    refused_at_once: &'a AtomicUsize,
}

impl Load<'_> {
    fn run(&self, client: u32) {
        let mut random = fastrand(client);
        let mut number = 0_u32;
        while !self.end.load(Ordering::Acquire) {
            let skier = client * 10 + random() % 5;
            let ride = Ride {
                resort: RESORT,
                season: SEASON,
                day: 1 + random() % 3,
                time: 1 + random() % 420,
                lift: 1 + random() % 4,
                wait: Some(random() % 3),
            };
            let path = format!("/skiers/{RESORT}/seasons/{SEASON}/days/{}/skiers/{skier}", ride.day);
            let body = json!({"time": ride.time, "liftID": ride.lift, "waitTime": ride.wait}).to_string();
            let headers = format!("{JSON}idempotency-key: {client}-{number}\r\n");
            until("a ride is taken", || {
                let Ok(answer) = request(self.server, "POST", &path, &headers, &body) else {
                    return false;
                };
                match answer.status {
                    201 => return true,
                    503 if answer.header("retry-after").is_some() => {
                        self.refused_at_once.fetch_add(1, Ordering::AcqRel);
                    }
                    504 => {}
                    _ => panic!("{answer:?}"),
                }
                false
            });
            self.model.lock().unwrap().add(skier, ride);
            self.answered.fetch_add(1, Ordering::AcqRel);
            number += 1;
        }
    }
}

/// Returns a source of pseudo-random numbers, always the same for a seed.
fn fastrand(seed: u32) -> impl FnMut() -> u32 {
    let mut state = u64::from(seed) + 0x9e37_79b9;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    }
}

#[test]
fn rides_count_once_though_broker_redis_and_consumer_die() {
    let rounds = std::env::var("THRONG_TEST_PIPELINE_ROUNDS").map_or(1, |rounds| rounds.parse().unwrap());
    let mut broker = RabbitMq::start(RabbitMqOptions {
        users: vec![("server".into(), "admin".into()), ("consumer".into(), "admin".into())],
        ..RabbitMqOptions::default()
    })
    .unwrap();
    let mut redis = Redis::start().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (at, data) = (free_address(), directory.path().join("consumer"));
    let frame = ("SKIERS_FRAME", "100".to_owned());
    let (serves, consumes) = (
        [
            ("SKIERS_BROKER", broker.url_of("server", "admin")),
            ("SKIERS_CONSUMER", format!("http://{at}")),
            frame,
        ],
        [
            ("SKIERS_BROKER", broker.url_of("consumer", "admin")),
            ("SKIERS_REDIS", redis.url()),
        ],
    );
    let serves_from_redis = [
        ("SKIERS_BROKER", broker.url_of("server", "admin")),
        ("SKIERS_REDIS", redis.url()),
    ];
    let server = Process::start("server", free_address(), &directory.path().join("server"), &serves);
    let other = Process::start(
        "server",
        free_address(),
        &directory.path().join("other"),
        &serves_from_redis,
    );
    let mut consumer = Process::start("consumer", at, &data, &consumes);
    let (end, answered, refused_at_once) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let model = Mutex::new(Model::default());
    let load = Load {
        server: server.address,
        end: &end,
        answered: &answered,
        model: &model,
        refused_at_once: &refused_at_once,
    };
    thread::scope(|scope| {
        // Stops the clients, even if a check panics.
        let _ends = Ends(&end);
        for client in 0..6 {
            let load = &load;
            scope.spawn(move || load.run(client));
        }
        let more = |rides: usize| {
            let enough = answered.load(Ordering::Acquire) + rides;
            until("more rides are answered", || answered.load(Ordering::Acquire) >= enough);
        };
        more(100);
        for _ in 0..rounds {
            consumer.kill();
            more(50);
            consumer = Process::start("consumer", at, &data, &consumes);
            more(100);
            redis.stop(Stop::Immediate);
            more(50);
            redis.resume().unwrap();
            broker.stop(Stop::Immediate);
            let before = refused_at_once.load(Ordering::Acquire);
            until("servers say so while the broker is down", || {
                refused_at_once.load(Ordering::Acquire) > before + 10
            });
            broker.resume().unwrap();
            more(100);
        }
    });
    let model = model.into_inner().unwrap();
    let rides = model.rides.len() as u64;
    until("all rides are counted", || counted(server.address, &model) >= rides);
    compare(server.address, &model);
    until("Redis has all rides", || in_redis(&redis) == expected_in_redis(&model));
    until("Redis has counted them", || counted(other.address, &model) >= rides);
    compare(other.address, &model);
    let season = request(
        server.address,
        "POST",
        "/resorts/57/seasons",
        JSON,
        r#"{"year":"2023"}"#,
    )
    .unwrap();
    assert_eq!(season.status, 201, "passed on to the consumer");
    answers_alike(&model, server.address, other.address);
    // Forwarded requests are measured, too.
    let statistics = get(server.address, "/statistics");
    let operations = statistics["endpointStats"].as_array().unwrap();
    for url in ["/resorts", "/skiers/{skierID}/vertical"] {
        let is_there = |row: &Value| row["URL"] == url && row["operation"] == "GET";
        assert!(operations.iter().any(is_there), "{url}: {statistics}");
    }
}

/// Stops the clients on drop.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn day_path(day: ResortDayId, what: &str) -> String {
    format!("/resorts/{RESORT}/seasons/{SEASON}/day/{}/{what}", day.day)
}

/// Returns the number of rides that all days have counted.
fn counted(server: SocketAddr, model: &Model) -> u64 {
    let hours = |day| get(server, &day_path(day, "hours"));
    let sum = |hours: Value| {
        hours["hours"]
            .as_array()
            .unwrap()
            .iter()
            .map(|hour| hour.as_u64().unwrap())
            .sum::<u64>()
    };
    model.days().into_iter().map(|day| sum(hours(day))).sum()
}

/// Compares every query at the front server with the model.
fn compare(server: SocketAddr, model: &Model) {
    let lifts = |lifts: &[skiers::ride::LiftRides]| -> Value {
        lifts
            .iter()
            .map(|lift| json!({"liftID": lift.lift, "rides": lift.rides}))
            .collect()
    };
    for day in model.days() {
        let expected = model.resort_day(day);
        assert_eq!(get(server, &day_path(day, "skiers"))["numSkiers"], expected.skiers);
        assert_eq!(get(server, &day_path(day, "lifts"))["lifts"], lifts(&expected.lifts));
        assert_eq!(get(server, &day_path(day, "hours"))["hours"], json!(expected.hours));
    }
    for skier in model.skiers() {
        let season = model.season(skier, RESORT, SEASON).unwrap();
        let found = get(server, &format!("/skiers/{RESORT}/seasons/{SEASON}/skiers/{skier}"));
        assert_eq!(
            (&found["daysSkied"], &found["rides"]),
            (&json!(season.days.len()), &json!(season.rides))
        );
        assert_eq!(found["totalVert"], season.vertical);
        let found = get(server, &format!("/skiers/{skier}/vertical?resort={RESORT}"));
        assert_eq!(found["resorts"][0]["totalVert"], season.vertical);
        for day in season.days {
            let path = format!("/skiers/{RESORT}/seasons/{SEASON}/days/{}/skiers/{skier}", day.day);
            assert_eq!(get(server, &path), json!(day.vertical));
            assert_eq!(get(server, &format!("{path}/lifts"))["lifts"], lifts(&day.lifts));
        }
    }
}

/// Compares the answers from Redis with the consumer's, for missing resources, malformed requests and lists.
fn answers_alike(model: &Model, consumer: SocketAddr, redis: SocketAddr) {
    let skier = model.rides[0].0;
    let paths = [
        "/resorts".into(),
        "/resorts/56/seasons".into(),
        "/resorts/57/seasons".into(),
        "/resorts/58/seasons".into(),
        "/resorts/57/seasons/2023/day/1/hours".into(),
        "/resorts/58/seasons/2023/day/1/hours".into(),
        "/resorts/56/seasons/2022/day/1/lifts/3".into(),
        "/resorts/56/seasons/2022/day/367/lifts".into(),
        format!("/skiers/56/seasons/2022/days/300/skiers/{skier}"),
        format!("/skiers/56/seasons/2021/skiers/{skier}"),
        "/skiers/56/seasons/2022/skiers/999".into(),
        format!("/skiers/{skier}/vertical"),
        format!("/Server_war/skiers/{skier}/vertical?resort=56&season=2022"),
        "/Server_war/skiers/999/vertical?resort=56".to_owned(),
    ];
    for path in paths {
        let answer = |address| {
            let answer = request(address, "GET", &path, "", "").unwrap();
            (answer.status, answer.body)
        };
        let expected = answer(consumer);
        assert!([200, 400, 404].contains(&expected.0), "{path}: {expected:?}");
        until(&path, || answer(redis) == expected);
    }
}

/// The original's sets in Redis, with their elements.
type Sets = BTreeSet<(String, BTreeSet<String>)>;

fn in_redis(redis: &Redis) -> Sets {
    let client = throng_redis::redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_connection().unwrap();
    let ask = |connection: &mut throng_redis::redis::Connection, command: &[&str]| -> Vec<String> {
        throng_redis::redis::cmd(command[0])
            .arg(&command[1..])
            .query(connection)
            .unwrap()
    };
    let keys = ask(&mut connection, &["KEYS", "*"]);
    let is_of_original = |key: &String| key.chars().all(|char| char.is_ascii_digit() || char == ':');
    let keys = keys.into_iter().filter(is_of_original);
    keys.map(|key| {
        let members = ask(&mut connection, &["SMEMBERS", &key]);
        (key, members.into_iter().collect())
    })
    .collect()
}

fn expected_in_redis(model: &Model) -> Sets {
    let mut sets = std::collections::BTreeMap::<String, BTreeSet<String>>::new();
    for (skier, ride) in &model.rides {
        let Ride { time, lift, day, .. } = ride;
        let wait = ride.wait.unwrap();
        let of_skier = pretty(&[
            ("liftID", *lift),
            ("time", *time),
            ("waitTime", wait),
            ("day", *day),
            ("seasonID", SEASON),
            ("resortID", RESORT),
        ]);
        let of_day = pretty(&[
            ("liftID", *lift),
            ("time", *time),
            ("waitTime", wait),
            ("skierID", *skier),
            ("resortID", RESORT),
        ]);
        sets.entry(skier.to_string()).or_default().insert(of_skier);
        sets.entry(format!("{SEASON}:{day}")).or_default().insert(of_day);
    }
    sets.into_iter().collect()
}

/// Returns an object in the original's form.
fn pretty(fields: &[(&str, u32)]) -> String {
    let fields: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("  \"{name}\": {value}"))
        .collect();
    format!("{{\n{}\n}}", fields.join(",\n"))
}
