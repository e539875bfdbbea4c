//! A bare epoll + `httparse` HTTP/1.1 keep-alive server: the engine's answers without the engine.
//!
//! A request is read, parsed in full (method, path, headers, `Content-Length` body, the body's JSON by `serde_json`) and answered with `200`,
//! `content-type`, `content-length` and a small JSON object that names the method and path and repeats the body:
//!
//! ```text
//! POST /api/section/S1/add  {"student":"7"}   →   {"method":"POST","path":"/api/section/S1/add","body":{"student":"7"}}
//! ```
//!
//! There is no route, no shard, no lock and no journal. So no service on this machine can answer such requests much faster over the same kind of
//! connections. Each loop is one thread; several loops share a port by `SO_REUSEPORT`.
//!
//! ```
//! use std::io::{Read, Write};
//! use yardsticks::echo::{self, Stop};
//!
//! let listeners = echo::listen("127.0.0.1:0".parse()?, 1)?;
//! let address = listeners[0].local_addr()?;
//! let stop = Stop::new()?;
//! std::thread::scope(|scope| {
//!     let server = scope.spawn(|| echo::serve_all(listeners, &stop));
//!     let mut client = std::net::TcpStream::connect(address)?;
//!     client.write_all(b"GET /health HTTP/1.1\r\nconnection: close\r\n\r\n")?;
//!     let mut answer = String::new();
//!     client.read_to_string(&mut answer)?;
//!     assert!(answer.ends_with(r#"{"method":"GET","path":"/health"}"#));
//!     stop.raise();
//!     assert_eq!(server.join().expect("the loop does not panic")?.requests, 1);
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Limits
//! Header 16 KiB and 64 fields, body 1 MiB, 10,000 connections a loop (further ones are closed at once). A body without a length
//! (`Transfer-Encoding`) is refused with 411. While a client does not read its answers, its connection is not read.

mod answer;
mod command;
mod connection;
mod event_loop;
mod listen;
mod process;
mod request;
mod stop;

pub use command::EchoArguments;
pub use event_loop::{CONNECTIONS_MAX, Served, serve, serve_all};
pub use listen::{LOOPS_MAX, listen};
pub use process::EchoProcess;
pub use request::{BODY_BYTES_MAX, HEADER_BYTES_MAX, HEADERS_MAX};
pub use stop::Stop;

use std::net::SocketAddr;

/// The reason why the echo could not be started or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum EchoError {
    /// The number of loops is out of range.
    #[error("cannot run {loops} loops: choose 1 to {LOOPS_MAX}")]
    Loops {
        /// The requested number.
        loops: usize,
    },
    /// The address cannot be listened on.
    #[error("could not listen on {address}: {source} (choose another port with --port, or 0 for any free one)")]
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A new connection could not be accepted.
    #[error("could not accept a connection: {0} (with too many open files, raise the limit: ulimit -n 20000)")]
    Accept(std::io::Error),
    /// The loop could not wait for its sockets.
    #[error("could not {step}: {source}")]
    Loop {
        /// The failed operation, as it completes "could not …".
        step: &'static str,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The echo could not be started as a process of its own.
    #[error("could not start the echo as a process of its own ({program}): {reason}")]
    Process {
        /// The program that should run it.
        program: String,
        /// The reason of the failure.
        reason: String,
    },
}

impl EchoError {
    fn failed<E: Into<std::io::Error>>(step: &'static str) -> impl Fn(E) -> Self {
        move |source| Self::Loop {
            step,
            source: source.into(),
        }
    }
}
