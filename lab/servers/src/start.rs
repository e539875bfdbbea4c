//! Waiting for a server that was just started.

use crate::{
    Error,
    keeper::{Directory, Keeper},
};
use std::{
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
    thread,
    time::{Duration, Instant},
};

/// A broker takes seconds of a core to start, on a machine that may have others to serve.
const PATIENCE: Duration = Duration::from_secs(180);
const PAUSE: Duration = Duration::from_millis(10);

pub(crate) fn takes_connections(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// True if a Redis answers commands: one that still loads its data takes connections and refuses everything else.
pub(crate) fn answers_ping(port: u16) -> bool {
    let pong = || -> io::Result<bool> {
        let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        connection.set_read_timeout(Some(PATIENCE))?;
        connection.write_all(b"PING\r\n")?;
        let mut answer = [0; 7];
        connection.read_exact(&mut answer)?;
        Ok(&answer == b"+PONG\r\n")
    };
    pong().unwrap_or(false)
}

/// Waits until the server says that it is ready; an error if it ends before, or takes too long.
pub(crate) fn until_ready(
    program: &'static str,
    keeper: &mut Keeper,
    directory: &Directory,
    is_ready: impl Fn() -> bool,
) -> Result<(), Error> {
    let begun = Instant::now();
    while !is_ready() {
        if keeper.has_ended(directory) || begun.elapsed() > PATIENCE {
            return Err(Error::Silent {
                program,
                seconds: begun.elapsed().as_secs(),
                said: directory.log(),
            });
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}
