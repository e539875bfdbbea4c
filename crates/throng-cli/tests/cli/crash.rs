//! `kill -9` at random moments: every acknowledged request is kept, and none takes effect twice.

use super::kit::{Random, Served};
use rustix::process::Signal;
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::mpsc,
    thread,
    time::{SystemTime, UNIX_EPOCH},
};
use throng_testing::{Client, PATIENCE};

const ROUNDS: u64 = 6;
const CLIENTS: u64 = 8;
const SECTIONS: u64 = 5;
const SEATS: u32 = 400;
const ACKNOWLEDGED_MAX: u64 = 1_500;

/// A client, with its answers and the request that has no answer yet.
struct Person {
    name: u64,
    random: Random,
    next: u64,
    /// Its students in each section, according to the answers.
    seated: BTreeMap<u64, BTreeSet<String>>,
    /// The number of acknowledged changes, by section.
    changes: BTreeMap<u64, u64>,
    open: Option<Asked>,
}

#[derive(Clone)]
struct Asked {
    key: String,
    section: u64,
    student: String,
    command: &'static str,
}

impl Person {
    fn new(name: u64, seed: u64) -> Self {
        Self {
            name,
            random: Random(seed ^ name.wrapping_mul(0x1234_5678_9ABC_DEF1)),
            next: 0,
            seated: BTreeMap::new(),
            changes: BTreeMap::new(),
            open: None,
        }
    }

    /// Chooses a new student, or with a chance of one in three the drop of an existing one.
    fn choose(&mut self) -> Asked {
        let section = self.random.below(SECTIONS);
        let key = format!("{}-{}", self.name, self.next);
        self.next += 1;
        let seated = self.seated.entry(section).or_default();
        if self.random.below(3) == 0 && !seated.is_empty() {
            let place = self.random.below(seated.len() as u64) as usize;
            let student = seated.iter().nth(place).unwrap().clone();
            return Asked {
                key,
                section,
                student,
                command: "drop",
            };
        }
        Asked {
            student: format!("s{key}"),
            key,
            section,
            command: "add",
        }
    }

    /// Sends requests until the connection ends. A request without an answer is repeated under its key in the next epoch.
    fn ask_on(&mut self, address: SocketAddr, acknowledged: &mpsc::Sender<()>, requests_max: u64) {
        let Ok(mut client) = Client::connect(address) else {
            return;
        };
        for _ in 0..requests_max {
            let asked = self.open.take().unwrap_or_else(|| self.choose());
            self.open = Some(asked.clone());
            let path = format!("/api/section/S{}/{}", asked.section, asked.command);
            let body = json!({ "student": asked.student }).to_string();
            let answer = loop {
                match client.post(&path, Some(&asked.key), &body) {
                    // The journal's lease may expire on a busy machine.
                    Ok(answer) if answer.status == 503 => {}
                    Ok(answer) => break answer,
                    Err(_) => return,
                }
            };
            self.take(&asked, answer.status, &answer.body);
            self.open = None;
            let _ = acknowledged.send(());
        }
    }

    fn take(&mut self, asked: &Asked, status: u16, text: &str) {
        let seated = self.seated.entry(asked.section).or_default();
        match (asked.command, status) {
            // Each student is added under a single key, so `already-present` means that a request took effect twice.
            ("add", 200) => {
                assert!(text.contains(r#""change":"added""#), "{text}");
                assert!(seated.insert(asked.student.clone()));
                *self.changes.entry(asked.section).or_default() += 1;
            }
            ("add", 409) => assert!(text.contains("section-full"), "{text}"),
            ("drop", 200) => {
                assert!(text.contains(r#""change":"dropped""#), "{text}");
                assert!(seated.remove(&asked.student));
                *self.changes.entry(asked.section).or_default() += 1;
            }
            _ => panic!("{} {}: {status} {text}", asked.command, asked.student),
        }
    }
}

#[test]
fn acknowledged_requests_survive_kill_9_and_count_once() {
    let directory = tempfile::tempdir().unwrap();
    hold_what_was_acknowledged(ROUNDS, ACKNOWLEDGED_MAX, &|more| Served::start(directory.path(), more));
}

/// Repeats this many times: starts a service, kills it at a random moment, restarts it, and compares its state with the answers.
pub(super) fn hold_what_was_acknowledged(rounds: u64, acknowledged_max: u64, start: &dyn Fn(&[&str]) -> Served) {
    let seed = std::env::var("THRONG_TEST_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64);
    println!("THRONG_TEST_SEED={seed} chooses the same requests and moments again");
    let mut random = Random(seed);
    let mut people: Vec<Person> = (0..CLIENTS).map(|name| Person::new(name, seed)).collect();
    for round in 0..rounds {
        let served = start(&["--checkpoint", "1"]);
        if round == 0 {
            open_sections(&mut served.client());
        }
        let acknowledged_before_the_kill = random.below(acknowledged_max);
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            for person in &mut people {
                let (sender, address) = (sender.clone(), served.address);
                scope.spawn(move || person.ask_on(address, &sender, u64::MAX));
            }
            for _ in 0..acknowledged_before_the_kill {
                receiver.recv_timeout(PATIENCE).unwrap();
            }
            served.signal(Signal::KILL);
        });
        check_after_restart(start(&[]), &mut people);
    }
}

fn open_sections(client: &mut Client) {
    for section in 0..SECTIONS {
        let answer = client.post(
            &format!("/api/section/S{section}/open"),
            None,
            &json!({ "capacity": SEATS }).to_string(),
        );
        assert_eq!(answer.unwrap().status, 200);
    }
}

/// Repeats the request in flight, then compares every roster and history with the answers.
fn check_after_restart(served: Served, people: &mut [Person]) {
    let (sender, _receiver) = mpsc::channel();
    for person in people.iter_mut().filter(|person| person.open.is_some()) {
        person.ask_on(served.address, &sender, 1);
        assert!(
            person.open.is_none(),
            "the request in flight was not answered after the restart"
        );
    }
    let mut client = served.client();
    let mut read = |path: &str| loop {
        let answer = client.get(path).unwrap();
        if answer.status != 503 {
            break answer.json();
        }
    };
    for section in 0..SECTIONS {
        let of = |person: &Person| person.seated.get(&section).cloned().unwrap_or_default();
        let expected: BTreeSet<String> = people.iter().flat_map(of).collect();
        let page = read(&format!("/api/section/S{section}/roster"));
        let found: BTreeSet<String> = serde_json::from_value(page["students"].clone()).unwrap();
        assert_eq!(found, expected, "section S{section}");
        assert!(found.len() <= SEATS as usize);
        let changes: u64 = people
            .iter()
            .map(|person| person.changes.get(&section).copied().unwrap_or(0))
            .sum();
        let history = read(&format!("/api/section/S{section}/events?after={changes}&limit=10"));
        let last: Vec<u64> = history["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| event["seq"].as_u64().unwrap())
            .collect();
        assert_eq!(
            last,
            [changes + 1],
            "section S{section}: one event for being opened, and one for each change"
        );
    }
    served.signal(Signal::KILL);
}
