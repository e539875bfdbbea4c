//! A test that kills the program during many purchases. No seat is sold twice, and each confirmed order is paid once.

use crate::program::Program;
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    env, fs,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
};
use throng_testing::{JSON, request, until};

/// The seats for each kill. There are too few, so some orders wait in the end.
const SEATS: u64 = 20;
const BUYERS: u64 = 4;
/// The number of answered orders between two kills.
const ORDERS_BETWEEN: u64 = 12;

/// The sale, with buyers that continue while the program is killed.
struct Sale {
    /// A buyer holds a read lock during its requests. A write lock stops all buyers.
    address: RwLock<SocketAddr>,
    answered: AtomicU64,
    /// Set once, at the end.
    is_over: AtomicBool,
}

impl Sale {
    /// Orders, pays, and cancels some orders. A request without an answer is not repeated.
    fn buy(&self, buyer: u64) {
        for number in 0.. {
            if self.is_over.load(Relaxed) {
                return;
            }
            let address = self.address.read().unwrap();
            let post = |path: &str, body: Value| {
                let done = request(*address, "POST", path, JSON, &body.to_string());
                done.is_ok_and(|answer| answer.status < 300)
            };
            let (path, customer) = (format!("/orders/{buyer}-{number}"), format!("{buyer}-{number}"));
            let order =
                json!({ "concert": "hamlet", "zone": "stalls", "tickets": 1, "waits": true, "customer": customer });
            if post(&path, order) {
                self.answered.fetch_add(1, Relaxed);
                post(&format!("{path}/payment"), json!({ "token": "card" }));
                if number % 3 == 0 {
                    post(&format!("{path}/cancel"), Value::Null);
                }
            }
            drop(address);
            throng_testing::blocking_pause();
        }
    }
}

fn orders(program: &Program) -> Vec<String> {
    let (mut ids, mut path) = (Vec::new(), "/api/order?limit=1000".to_owned());
    loop {
        let page = program.get(&path);
        let found = page["entities"].as_array().unwrap();
        ids.extend(found.iter().map(|one| one["id"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => path = format!("/api/order?limit=1000&after={next}"),
            None => return ids,
        }
    }
}

/// Checks the rules that always hold while no buyer orders or cancels, even with other work in progress.
fn check(program: &Program, ledger: &Path, seats: u64) {
    let zone = program.get("/api/concert/hamlet")["zones"][0].clone();
    let count = |name: &str| zone[name].as_u64().unwrap();
    assert_eq!(count("free") + count("held") + count("sold"), seats, "{zone}");
    let found = orders(program).into_iter().map(|id| {
        let order = program.get(&format!("/orders/{id}"));
        (id, order)
    });
    let confirmed: Vec<_> = found.filter(|(_, order)| order["stage"] == "confirmed").collect();
    let ledger = fs::read_to_string(ledger).unwrap_or_default();
    let lines: BTreeSet<&str> = ledger.lines().collect();
    assert_eq!(
        lines.len(),
        ledger.lines().count(),
        "a payment was made or reversed twice"
    );
    let mut sold = BTreeSet::new();
    for (id, order) in confirmed {
        let seat = order["seats"][0].as_u64().unwrap();
        assert!(sold.insert(seat) && seat <= seats, "sold twice: {order}");
        let has = |did: &str, number: usize| lines.contains(&*format!("{did} {id}/{number}"));
        let payments = 1..=order["payments"].as_array().unwrap().len();
        let paid = payments.filter(|number| has("charged", *number) && !has("reversed", *number));
        assert_eq!(paid.count(), 1, "{order}");
    }
}

#[test]
fn killed_program_oversells_nothing() {
    // For a long run, set `TICKETS_KILLS=100`.
    let kills = env::var("TICKETS_KILLS").map_or(3, |text| text.parse().unwrap());
    let seats = SEATS * kills;
    let directory = tempfile::tempdir().unwrap();
    let (data, ledger) = (directory.path().join("data"), directory.path().join("ledger"));
    let provider = json!({ "slow_ms": 20, "lost": 0.02, "mute": 0.02, "twice": 0.1, "ledger": ledger }).to_string();
    let start = || Program::start(&data, &provider);
    let mut program = start();
    let zones = json!([{ "name": "stalls", "cents": 5_000, "seats": seats }]);
    // Unpaid holds end while the program is being killed.
    let announcement = json!({ "title": "Hamlet", "zones": zones, "hold_secs": 5 });
    program.post("/api/concert/hamlet/announce", &announcement);
    let sale = Arc::new(Sale {
        address: RwLock::new(program.address),
        answered: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
    });
    let buyer = |buyer: u64| {
        let sale = sale.clone();
        thread::spawn(move || sale.buy(buyer))
    };
    let buyers: Vec<_> = (0..BUYERS).map(buyer).collect();
    for _ in 0..kills {
        let before = sale.answered.load(Relaxed);
        until("orders are answered", || {
            sale.answered.load(Relaxed) >= before + ORDERS_BETWEEN
        });
        program.kill();
        let mut address = sale.address.write().unwrap();
        program = start();
        *address = program.address;
        check(&program, &ledger, seats);
    }
    sale.is_over.store(true, Relaxed);
    for buyer in buyers {
        buyer.join().unwrap();
    }
    let sold = || program.get("/api/concert/hamlet")["zones"][0]["sold"].as_u64().unwrap();
    until("something is sold", || sold() > 0);
    check(&program, &ledger, seats);
    println!(
        "{kills} kills, {} orders answered, {} of {seats} seats sold",
        sale.answered.load(Relaxed),
        sold()
    );
}
