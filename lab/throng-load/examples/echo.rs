//! The cheapest possible HTTP server, as a target for measuring load generators.
//!
//! Each thread has one epoll loop and sends a constant answer to each request head. It does not support bodies of requests. The arguments are
//! `echo [PORT] [THREADS] [PAUSE_SECONDS]`. It prints `ready PORT` once it listens. With a pause it stops for this long in every ten seconds, like a
//! server in a long garbage collection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::net::{AddressFamily, SocketType, bind, listen, socket, sockopt};

const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 17\r\n\r\n{\"answer\":\"pong\"}";
const PAUSE_EVERY: Duration = Duration::from_secs(10);

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let port: u16 = arguments.next().map_or(Ok(9666), |text| text.parse())?;
    let threads: usize = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let pause = Duration::from_secs_f64(arguments.next().map_or(Ok(0.0), |text| text.parse())?);
    println!("ready {port}");
    let workers: Vec<_> = (0..threads)
        .map(|_| std::thread::spawn(move || serve(port, pause)))
        .collect();
    for worker in workers {
        worker.join().map_err(|_| anyhow::anyhow!("a worker panicked"))??;
    }
    Ok(())
}

fn serve(port: u16, pause: Duration) -> anyhow::Result<()> {
    let listener = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    sockopt::set_socket_reuseaddr(&listener, true)?;
    sockopt::set_socket_reuseport(&listener, true)?;
    bind(&listener, &SocketAddr::from(([127, 0, 0, 1], port)))?;
    listen(&listener, 4096)?;
    let listener = TcpListener::from(listener);
    listener.set_nonblocking(true)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(
        &epoll,
        &listener,
        epoll::EventData::new_u64(u64::MAX),
        epoll::EventFlags::IN,
    )?;
    let mut connections: Vec<Option<TcpStream>> = Vec::new();
    let mut events = Vec::with_capacity(512);
    let mut buffer = vec![0; 64 * 1024];
    let mut answers = Vec::new();
    let long = Timespec::try_from(Duration::from_secs(3600))?;
    let mut next_pause = Instant::now() + PAUSE_EVERY / 2;
    loop {
        if !pause.is_zero() && Instant::now() >= next_pause {
            // Missed pauses are not made up for.
            while next_pause <= Instant::now() {
                next_pause += PAUSE_EVERY;
            }
            std::thread::sleep(pause);
        }
        events.clear();
        if epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), Some(&long)).is_err() {
            continue; // interrupted
        }
        for event in &events {
            let number = event.data.u64();
            if number == u64::MAX {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true)?;
                    stream.set_nodelay(true)?;
                    let free = connections
                        .iter()
                        .position(Option::is_none)
                        .unwrap_or(connections.len());
                    epoll::add(
                        &epoll,
                        stream.as_fd(),
                        epoll::EventData::new_u64(free as u64),
                        epoll::EventFlags::IN,
                    )?;
                    if free == connections.len() {
                        connections.push(None);
                    }
                    connections[free] = Some(stream);
                }
                continue;
            }
            let slot = &mut connections[number as usize];
            let Some(stream) = slot else { continue };
            let keep = match stream.read(&mut buffer) {
                Ok(0) => false,
                Ok(read) => {
                    answers.clear();
                    for _ in 0..buffer[..read].windows(4).filter(|window| window == b"\r\n\r\n").count() {
                        answers.extend_from_slice(ANSWER);
                    }
                    stream.write_all(&answers).is_ok()
                }
                Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
            };
            if !keep {
                *slot = None;
            }
        }
    }
}
