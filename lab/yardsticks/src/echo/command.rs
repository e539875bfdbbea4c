//! The echo from a command line.

use super::{EchoError, Stop, listen, serve_all};
use clap::Args;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// The arguments of the echo.
#[derive(Args, Clone, Debug)]
pub struct EchoArguments {
    /// The loopback port to listen on; 0 takes any free one.
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// Loops, each a thread of its own; they share the port.
    #[arg(long, default_value_t = 1)]
    pub loops: usize,
    /// Stop when standard input is closed: the parent that started this process has gone.
    #[arg(long, hide = true)]
    pub until_input_closes: bool,
}

impl EchoArguments {
    /// Prints the address as the first line on standard output, then serves until it is ended.
    ///
    /// # Errors
    /// The port is taken, or the loops failed.
    pub fn run(&self) -> Result<(), EchoError> {
        let listeners = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)), self.loops)?;
        let address = listeners[0]
            .local_addr()
            .map_err(EchoError::failed("read the listener's address"))?;
        let stop = Arc::new(Stop::new()?);

        let mut output = std::io::stdout();
        writeln!(output, "{address}")
            .and_then(|()| output.flush())
            .map_err(EchoError::failed("print the address"))?;

        if self.until_input_closes {
            // The thread is not joined, because it may wait for input as long as the process lives.
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                drain(std::io::stdin());
                stop.raise();
            });
        }
        serve_all(listeners, &stop).map(drop)
    }
}

/// Reads until the end or an error. Both mean that the other end is gone.
fn drain(mut input: impl Read) {
    let mut buffer = [0; 64];
    while matches!(input.read(&mut buffer), Ok(1..)) {}
}
