//! Many clients that change sections under idempotency keys. Each remembers its requests, their times and the answers.

use crate::http_client::{self, Connection, Response};
use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

pub(super) const SECTIONS: u32 = 24;
/// Every eighth section is small, so that students are refused.
const SMALL_ONE_IN: u32 = 8;
const SMALL_SEATS: u32 = 40;
const SEATS: u32 = 10_000_000;
/// The pause between two attempts of the same request.
const RETRY_PAUSE: Duration = Duration::from_millis(10);
/// The time for which a client repeats a request before the service counts as gone for good.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// The time for which a client waits for an answer. Then it repeats the request on another connection.
const PATIENCE_FOR_ONE: Duration = Duration::from_millis(700);
/// The most of its students that a client remembers. It never drops more of them.
const SEATED_MAX: usize = 1_000;

pub(super) fn seats(section: u32) -> u32 {
    if section.is_multiple_of(SMALL_ONE_IN) {
        SMALL_SEATS
    } else {
        SEATS
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Add(String),
    Drop(String),
    Look,
}

/// A request with all its attempts. Times are nanoseconds since the load began.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub(super) section: u32,
    pub(super) asked: Asked,
    /// The time of the first attempt.
    pub(super) invoked: u64,
    /// The time of the last attempt.
    pub(super) sent: u64,
    /// The time of the final answer; `None` if the client gave up.
    pub(super) answered: Option<u64>,
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

impl Operation {
    pub(super) fn is_acknowledged_change(&self) -> bool {
        self.asked != Asked::Look && self.answered.is_some() && self.status == 200
    }

    /// Returns the key of a change. Each student joins and leaves at most once.
    pub(super) fn key(&self) -> Option<String> {
        match &self.asked {
            Asked::Add(student) => Some(format!("add-{student}")),
            Asked::Drop(student) => Some(format!("drop-{student}")),
            Asked::Look => None,
        }
    }

    pub(super) fn request(&self) -> Vec<u8> {
        let (command, student) = match &self.asked {
            Asked::Add(student) => ("add", student),
            Asked::Drop(student) => ("drop", student),
            Asked::Look => return http_client::get(&format!("/api/section/S{}", self.section)),
        };
        let path = format!("/api/section/S{}/{command}", self.section);
        let body = serde_json::json!({ "student": student }).to_string();
        http_client::post(&path, self.key().as_deref(), &body)
    }
}

/// The state that all clients share and the campaign reads meanwhile.
pub(super) struct Shared {
    begun: Instant,
    /// The possible addresses of a service. If a node does not serve, its clients change to the next one. Reads go to any of them.
    addresses: Mutex<Vec<SocketAddr>>,
    is_over: AtomicBool,
    /// Clients make no new requests.
    pub(super) is_paused: AtomicBool,
    pub(super) acknowledged: AtomicU64,
    /// The latest sending time of all acknowledged requests.
    acknowledged_sent: AtomicU64,
    pub(super) reads: AtomicU64,
    /// Answers that mean that nothing was done or that the outcome is unknown: 503, 504 and 507.
    pub(super) refused: AtomicU64,
    pub(super) refused_for_room: AtomicU64,
}

impl Shared {
    pub(super) fn now(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    pub(super) fn set_addresses(&self, addresses: &[SocketAddr]) {
        *self.lock() = addresses.to_vec();
    }

    fn address(&self, at: usize) -> SocketAddr {
        let addresses = self.lock();
        addresses[at % addresses.len()]
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<SocketAddr>> {
        self.addresses.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Returns true if a change was acknowledged that was sent after this moment.
    pub(super) fn serves_since(&self, nanos: u64) -> bool {
        self.acknowledged_sent.load(Ordering::Relaxed) > nanos
    }
}

pub(super) struct Load {
    pub(super) shared: Arc<Shared>,
    clients: Vec<JoinHandle<Vec<Operation>>>,
}

impl Load {
    /// Returns the number of clients.
    pub(super) fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Starts the clients. Students' names are filled up to this many bytes.
    pub(super) fn start(address: SocketAddr, clients: u32, seed: u64, name_bytes: usize) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            begun: Instant::now(),
            addresses: Mutex::new(vec![address]),
            is_over: AtomicBool::new(false),
            is_paused: AtomicBool::new(false),
            acknowledged: AtomicU64::new(0),
            acknowledged_sent: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            refused_for_room: AtomicU64::new(0),
        });
        let clients = (0..clients)
            .map(|name| {
                let mut client = Client::new(name, seed, Arc::clone(&shared));
                client.name_bytes = name_bytes;
                let builder = thread::Builder::new().name(format!("client-{name}"));
                builder.spawn(move || client.run())
            })
            .collect::<std::io::Result<_>>()?;
        Ok(Self { shared, clients })
    }

    /// Ends each client after the answer to its last request, and returns all their requests.
    pub(super) fn stop(self) -> Vec<Operation> {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let ended = self.clients.into_iter().map(JoinHandle::join);
        ended
            .flat_map(|client| client.expect("a client does not panic"))
            .collect()
    }
}

struct Client {
    name: u32,
    random: fastrand::Rng,
    shared: Arc<Shared>,
    /// The connections, by the index of their address.
    connections: Vec<Option<(SocketAddr, Connection)>>,
    /// The index of the address for changes.
    at: usize,
    students: u32,
    name_bytes: usize,
    seated: Vec<(u32, String)>,
    operations: Vec<Operation>,
}

impl Client {
    fn new(name: u32, seed: u64, shared: Arc<Shared>) -> Self {
        Self {
            name,
            random: fastrand::Rng::with_seed(seed ^ u64::from(name).wrapping_mul(0x9E37_79B9_7F4A_7C15)),
            shared,
            connections: Vec::new(),
            // If there are several addresses, each client begins at another one.
            at: name as usize,
            students: 0,
            name_bytes: 0,
            seated: Vec::new(),
            operations: Vec::new(),
        }
    }

    fn run(mut self) -> Vec<Operation> {
        while !self.shared.is_over.load(Ordering::Relaxed) {
            if self.shared.is_paused.load(Ordering::Relaxed) {
                thread::sleep(RETRY_PAUSE);
                continue;
            }
            let operation = self.choose();
            let operation = self.ask(operation);
            let is_answered = operation.answered.is_some();
            self.remember(operation);
            if !is_answered {
                break;
            }
        }
        self.operations
    }

    fn choose(&mut self) -> Operation {
        let (section, asked) = match self.random.u32(..10) {
            0..3 => (self.random.u32(..SECTIONS), Asked::Look),
            3..5 if !self.seated.is_empty() => {
                let place = self.random.usize(..self.seated.len());
                let (section, student) = self.seated.swap_remove(place);
                (section, Asked::Drop(student))
            }
            _ => {
                self.students += 1;
                let mut student = format!("c{}-{}", self.name, self.students);
                while student.len() < self.name_bytes {
                    student.push('-');
                }
                (self.random.u32(..SECTIONS), Asked::Add(student))
            }
        };
        let now = self.shared.now();
        Operation {
            section,
            asked,
            invoked: now,
            sent: now,
            answered: None,
            status: 0,
            body: Vec::new(),
        }
    }

    /// Repeats a request until it has a final answer.
    fn ask(&mut self, mut operation: Operation) -> Operation {
        let request = operation.request();
        let begun = Instant::now();
        let is_read = operation.asked == Asked::Look;
        while begun.elapsed() < PATIENCE {
            let at = if is_read { self.random.usize(..64) } else { self.at };
            operation.sent = self.shared.now();
            match self.ask_once(at, &request) {
                Ok(answer) if !matches!(answer.status, 503 | 504 | 507) => {
                    operation.answered = Some(self.shared.now());
                    (operation.status, operation.body) = (answer.status, answer.body);
                    return operation;
                }
                Ok(answer) => {
                    let counter = match answer.status {
                        507 => &self.shared.refused_for_room,
                        _ => &self.shared.refused,
                    };
                    counter.fetch_add(1, Ordering::Relaxed);
                }
                Err(_) => {}
            }
            self.at += usize::from(!is_read);
            // A failed read counts as none at the end, because nothing depends on it.
            if is_read && self.shared.is_over.load(Ordering::Relaxed) {
                break;
            }
            thread::sleep(RETRY_PAUSE);
        }
        operation
    }

    fn ask_once(&mut self, at: usize, request: &[u8]) -> std::io::Result<Response> {
        let address = self.shared.address(at);
        let known = self
            .connections
            .iter()
            .position(|slot| matches!(slot, Some((of, _)) if *of == address));
        let slot = known.unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        let mut connection = match self.connections.swap_remove(slot) {
            Some((_, connection)) => connection,
            None => Connection::open(address, PATIENCE_FOR_ONE)?,
        };
        let answer = connection.ask(request)?;
        self.connections.push(Some((address, connection)));
        Ok(answer)
    }

    fn remember(&mut self, operation: Operation) {
        if operation.is_acknowledged_change() {
            self.shared.acknowledged.fetch_add(1, Ordering::Relaxed);
            self.shared
                .acknowledged_sent
                .fetch_max(operation.sent, Ordering::Relaxed);
            if let Asked::Add(student) = &operation.asked
                && self.seated.len() < SEATED_MAX
            {
                self.seated.push((operation.section, student.clone()));
            }
        } else if operation.asked == Asked::Look && operation.answered.is_some() {
            self.shared.reads.fetch_add(1, Ordering::Relaxed);
        }
        self.operations.push(operation);
    }
}
