//! A network between client and storage that loses, delays and duplicates.

use servers::free_port;
use std::{
    collections::VecDeque,
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex},
    thread,
};

/// The fate of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Pass,
    /// The storage never receives it.
    LoseRequest,
    /// The storage carries it out, and the answer is lost.
    LoseAnswer,
    /// The storage carries it out, and the client gets half of the answer.
    CutAnswer,
    /// The storage carries it out twice, and the client gets the second answer.
    Twice,
    /// The storage carries it out after [`Proxy::release`], even if the client is gone.
    Delay,
    /// The storage never receives it. The client gets this status, and these lines of a head and a body.
    Say(u16, &'static str, &'static str),
}

#[derive(Default)]
struct Plan {
    fates: VecDeque<Fate>,
    is_released: bool,
    /// The number of delayed requests carried out.
    late: usize,
    requests: usize,
}

/// A proxy on a port of its own. Each request meets the next fate of the plan. After the last fate, all requests pass.
#[derive(Clone)]
pub(crate) struct Proxy {
    port: u16,
    plan: Arc<(Mutex<Plan>, Condvar)>,
}

impl Proxy {
    pub(crate) fn to(storage: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, free_port().unwrap())).unwrap();
        let proxy = Self {
            port: listener.local_addr().unwrap().port(),
            plan: Arc::default(),
        };
        let served = proxy.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let proxy = served.clone();
                // A client that has gone is no failure.
                thread::spawn(move || drop(proxy.serve(client, storage)));
            }
        });
        proxy
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn plan(&self, fates: impl IntoIterator<Item = Fate>) {
        self.plan.0.lock().unwrap().fates.extend(fates);
    }

    /// Lets delayed requests reach the storage, and waits until it has answered this many.
    pub(crate) fn release(&self, late: usize) {
        let (plan, changed) = &*self.plan;
        let mut plan = plan.lock().unwrap();
        plan.is_released = true;
        changed.notify_all();
        drop(changed.wait_while(plan, |plan| plan.late < late).unwrap());
    }

    pub(crate) fn requests(&self) -> usize {
        self.plan.0.lock().unwrap().requests
    }

    fn serve(&self, mut client: TcpStream, storage: u16) -> io::Result<()> {
        let request = request(&mut client)?;
        let (plan, changed) = &*self.plan;
        let fate = {
            let mut plan = plan.lock().unwrap();
            plan.requests += 1;
            plan.fates.pop_front().unwrap_or(Fate::Pass)
        };
        match fate {
            Fate::Pass => client.write_all(&answer(storage, &request)?),
            Fate::LoseRequest => Ok(()),
            Fate::LoseAnswer => answer(storage, &request).map(drop),
            Fate::CutAnswer => {
                let answer = answer(storage, &request)?;
                client.write_all(&answer[..answer.len() - answer.len() / 4])
            }
            Fate::Twice => {
                answer(storage, &request)?;
                client.write_all(&answer(storage, &request)?)
            }
            Fate::Delay => {
                drop(
                    changed
                        .wait_while(plan.lock().unwrap(), |plan| !plan.is_released)
                        .unwrap(),
                );
                let answer = answer(storage, &request)?;
                plan.lock().unwrap().late += 1;
                changed.notify_all();
                client.write_all(&answer)
            }
            Fate::Say(status, head, body) => {
                let length = body.len();
                write!(
                    client,
                    "HTTP/1.1 {status} Said\r\nConnection: close\r\n{head}Content-Length: {length}\r\n\r\n{body}"
                )
            }
        }
    }
}

/// Reads a raw request.
fn request(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut request = Vec::new();
    let mut chunk = [0; 16_384];
    loop {
        let count = client.read(&mut chunk)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        request.extend_from_slice(&chunk[..count]);
        let Some(end) = request.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8_lossy(&request[..end]).to_lowercase();
        let length = head.split("\r\n").find_map(|line| line.strip_prefix("content-length:"));
        let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
        if request.len() >= end + 4 + length {
            return Ok(request);
        }
    }
}

/// Returns the storage's whole answer, from a connection of its own.
fn answer(storage: u16, request: &[u8]) -> io::Result<Vec<u8>> {
    let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, storage))?;
    let first = request.windows(2).position(|bytes| bytes == b"\r\n").unwrap() + 2;
    connection.write_all(&[&request[..first], b"connection: close\r\n", &request[first..]].concat())?;
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer)?;
    Ok(answer)
}
