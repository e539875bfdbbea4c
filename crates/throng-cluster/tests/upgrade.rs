//! Real nodes on a private PostgreSQL server. Under load, each is replaced by the next release, and one is rolled back in between.
#![allow(clippy::unwrap_used, reason = "tests")]

/// The two releases of the simulated upgrade: the next one adds a command, a timer's command and a kind.
#[path = "../../throng-sim/tests/nodes/rolling_upgrade/page.rs"]
mod page;

use page::{After, Before, FIRST_LEAF, Known, Leaf, Told, ToldAfter, ToldLeaf};
use servers::{Postgres, PostgresOptions};
use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};
use throng::{Engine, JsonRejection, Options, driver::Driver, model::Error};
use throng_cluster::{Links, Node, NodeOptions, Timing, Trust, frame::Secret};
use throng_journal::{FEATURES, Join};
use throng_postgres::open_postgres;
use throng_testing::{PATIENCE, pause, until, until_ok};
use tokio::runtime::Runtime;

const BEFORE: u64 = 1;
const AFTER: u64 = 2;
const NAMES: [&str; 3] = ["a", "b", "c"];
const SHARDS: u16 = 16;
const PAGES: u64 = 12;
const CLIENTS: u64 = 4;
/// The number of answers between two steps of the upgrade.
const MORE: u64 = 300;

struct Started {
    app: u64,
    engine: Engine,
    node: Node,
}

struct World {
    runtime: Runtime,
    url: String,
    /// The running nodes, which clients ask. The test adds and removes them under the lock.
    drivers: Mutex<BTreeMap<&'static str, Driver>>,
    is_over: AtomicBool,
    /// Counts commands that were answered, or left to a newer node.
    told: AtomicU64,
}

/// The acknowledged facts: messages by sender and receiver, and timers by page.
#[derive(Default)]
struct Acknowledged {
    sent: BTreeMap<(u64, u64), u64>,
    set: BTreeMap<u64, u64>,
    left_to_upgrade: u64,
}

#[derive(Clone)]
struct Asked {
    page: u64,
    name: &'static str,
    to: u64,
    key: String,
}

impl World {
    fn start(&self, name: &'static str, app: u64) -> Started {
        let opened = open_postgres(self.url.parse().unwrap()).unwrap();
        let trust = Trust::by_secret(Secret::new(b""));
        let links = Links::new(SHARDS, trust.clone());
        let options = Options {
            checkpoint_every: Duration::from_millis(500),
            ..Options::default()
        };
        let builder = Engine::builder().options(options).shards(SHARDS);
        let builder = builder.peers(Arc::new(links.clone()));
        let builder = match app {
            BEFORE => builder.with::<Before>().query::<Before, Told>(),
            _ => {
                let builder = builder.with::<After>().query::<After, ToldAfter>();
                builder.with::<Leaf>().query::<Leaf, ToldLeaf>()
            }
        };
        let engine = self
            .runtime
            .block_on(builder.start_shared(opened.journal, opened.store));
        let engine = engine.unwrap();
        let options = NodeOptions {
            join: Join {
                name: name.into(),
                app,
                features: FEATURES,
                shards: SHARDS,
                ..Join::default()
            },
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            trust,
            timing: Timing::of(Duration::from_secs(1)),
            standby: None,
            loops: Vec::new(),
        };
        let node = Node::start(opened.directory, Arc::new(engine.driver()), links, options).unwrap();
        assert!(node.wait_until_serving(PATIENCE), "{name} serves");
        self.drivers.lock().unwrap().insert(name, engine.driver());
        Started { app, engine, node }
    }

    /// Ends a node as SIGTERM would.
    fn end(&self, name: &str, Started { engine, node, .. }: Started) {
        self.drivers.lock().unwrap().remove(name);
        node.drain();
        self.runtime.block_on(engine.stop());
        node.leave();
    }

    fn replace(&self, nodes: &mut BTreeMap<&'static str, Started>, name: &'static str, app: u64) {
        let before = nodes.remove(name).unwrap();
        assert_ne!(before.app, app);
        self.end(name, before);
        nodes.insert(name, self.start(name, app));
    }

    /// Waits for more answers to clients.
    fn more(&self) {
        let enough = self.told.load(Ordering::Relaxed) + MORE;
        until("clients are answered", || self.told.load(Ordering::Relaxed) >= enough);
    }

    /// Returns a running node.
    fn driver(&self, number: u64) -> Driver {
        let drivers = self.drivers.lock().unwrap();
        let at = usize::try_from(number).unwrap() % drivers.len();
        drivers.values().nth(at).unwrap().clone()
    }

    /// Asks a node, a different one each time.
    fn ask(&self, asked: &Asked, number: u64) -> Result<(), Error<JsonRejection>> {
        let driver = self.driver(number);
        let Asked { page, name, to, key } = asked.clone();
        self.runtime.block_on(async {
            let body = format!(r#"{{"to":{to}}}"#).into_bytes();
            let attempt = driver.command(0, page.to_string(), name, body)?.once(key)?;
            driver.answer(attempt).await.map(drop)
        })
    }

    /// Asks until it is done. Returns false if a newer release must do it and `waits` is false.
    fn is_done(&self, asked: &Asked, waits: bool) -> bool {
        let mut numbers = asked.to..;
        until_ok(&format!("{}/{}", asked.name, asked.key), || {
            match self.ask(asked, numbers.next().unwrap()) {
                Ok(()) => Ok(true),
                Err(Error::Unavailable { reason }) if reason.contains("a newer release") && !waits => Ok(false),
                Err(why) => Err(why),
            }
        })
    }

    /// Lets pages send messages and set timers in ways that both releases know. Once a node of the next release runs, also in its new ways.
    fn client(&self, client: u64, has_next: &AtomicBool) -> Acknowledged {
        let mut acknowledged = Acknowledged::default();
        let mut left = Vec::new();
        let mut done = |asked: &Asked| match asked.name {
            "Remind" => *acknowledged.set.entry(asked.page).or_default() += 1,
            _ => *acknowledged.sent.entry((asked.page, asked.to)).or_default() += 1,
        };
        for number in 0.. {
            if self.is_over.load(Ordering::Relaxed) {
                break;
            }
            let page = (client * 7 + number * 5) % PAGES;
            let to = (page + 1 + number % (PAGES - 1)) % PAGES;
            let (name, to) = match (has_next.load(Ordering::Relaxed), number % 5) {
                (false, _) | (_, 0 | 1) => ("Send", to),
                (_, 2) => ("SendNew", to),
                (_, 3) => ("SendToLeaf", FIRST_LEAF + to),
                _ => ("Remind", to),
            };
            let key = format!("{client}-{number}");
            let asked = Asked { page, name, to, key };
            match self.is_done(&asked, false) {
                true => done(&asked),
                false => left.push(asked),
            }
            self.told.fetch_add(1, Ordering::Relaxed);
            // There is enough load, and the test should end soon.
            self.runtime.block_on(pause());
        }
        for asked in &left {
            assert!(self.is_done(asked, true));
            done(asked);
        }
        acknowledged.left_to_upgrade = left.len() as u64;
        acknowledged
    }

    /// Returns the state of pages and leaves.
    fn known(&self) -> BTreeMap<u64, Known> {
        let ids = (0..PAGES).chain(FIRST_LEAF..FIRST_LEAF + PAGES);
        let known = ids.filter_map(|id| {
            let (driver, kind) = (self.driver(id), usize::from(id >= FIRST_LEAF));
            let asked = async { driver.answer(driver.query(kind, id.to_string(), "known", "")?).await };
            let told = self.runtime.block_on(asked).ok()?;
            Some((id, serde_json::from_slice(&told).unwrap()))
        });
        known.collect()
    }
}

/// Compares the state with the acknowledged facts. Returns each loss, duplicate and wrong order.
fn wrong(acknowledged: &[Acknowledged], known: &BTreeMap<u64, Known>) -> Vec<String> {
    let mut wrong: Vec<String> = known.values().flat_map(|of| of.wrong.clone()).collect();
    let (mut sent, mut set) = (BTreeMap::<(u64, u64), u64>::new(), BTreeMap::<u64, u64>::new());
    for of in acknowledged {
        of.sent
            .iter()
            .for_each(|(pair, count)| *sent.entry(*pair).or_default() += count);
        of.set
            .iter()
            .for_each(|(page, count)| *set.entry(*page).or_default() += count);
    }
    for ((from, to), count) in sent {
        let has_sent = known.get(&from).and_then(|of| of.sent.get(&to)).copied();
        let taken = known.get(&to).and_then(|of| of.taken.get(&from)).map(|of| of.count);
        if (has_sent, taken) != (Some(count), Some(count)) {
            wrong.push(format!(
                "{count} from {from} to {to} are acknowledged, {has_sent:?} are sent, {taken:?} taken"
            ));
        }
    }
    for (page, count) in set {
        let found = known.get(&page).map(|of| (of.set, of.rung));
        if found != Some((count, count)) {
            wrong.push(format!(
                "{count} timers of {page} are acknowledged; set and rung: {found:?}"
            ));
        }
    }
    wrong
}

#[test]
fn a_rolling_upgrade_with_one_step_back_delivers_exactly_once() {
    let server = Postgres::start(PostgresOptions::default()).unwrap();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let world = World {
        runtime: builder.worker_threads(2).enable_all().build().unwrap(),
        url: format!("{}?schema=upgrade&lease=1s", server.url("postgres")),
        drivers: Mutex::default(),
        is_over: AtomicBool::new(false),
        told: AtomicU64::new(0),
    };
    let has_next = AtomicBool::new(false);
    let mut nodes: BTreeMap<_, _> = NAMES.map(|name| (name, world.start(name, BEFORE))).into();
    let acknowledged: Vec<Acknowledged> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (world, has_next) = (&world, &has_next);
                scope.spawn(move || world.client(client, has_next))
            })
            .collect();
        // The clients must end even if the upgrade panics.
        let upgraded = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let steps = [("a", AFTER), ("b", AFTER), ("b", BEFORE), ("b", AFTER), ("c", AFTER)];
            for (name, app) in steps {
                world.more();
                world.replace(&mut nodes, name, app);
                has_next.store(true, Ordering::Relaxed);
            }
            world.more();
        }));
        world.is_over.store(true, Ordering::Relaxed);
        let acknowledged = clients.into_iter().map(|client| client.join().unwrap()).collect();
        upgraded.unwrap();
        acknowledged
    });
    until_ok("all that was acknowledged is known once", || {
        let wrong = wrong(&acknowledged, &world.known());
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(wrong.join("; "))
        }
    });
    for Started { engine, .. } in nodes.values() {
        let dead = world.runtime.block_on(engine.dead_messages(None, None, 100)).unwrap();
        assert!(dead.messages.is_empty(), "{:?}", dead.messages);
        assert_eq!(engine.stuck(), []);
    }
    let sum = |count: fn(&Acknowledged) -> u64| acknowledged.iter().map(count).sum::<u64>();
    let (sent, set) = (sum(|of| of.sent.values().sum()), sum(|of| of.set.values().sum()));
    let (to_leaves, left) = (
        sum(|of| {
            of.sent
                .iter()
                .filter(|((_, to), _)| *to >= FIRST_LEAF)
                .map(|(_, count)| count)
                .sum()
        }),
        sum(|of| of.left_to_upgrade),
    );
    println!("{sent} messages ({to_leaves} to a kind of the next release), {set} timers; {left} left to a newer node");
    assert!(to_leaves > 0 && set > 0 && left > 0);
    for (name, node) in nodes {
        world.end(name, node);
    }
}
