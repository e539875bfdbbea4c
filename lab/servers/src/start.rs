//! Waits for a server that was just started.

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

/// The limit for a start. A broker needs seconds of a core, and the machine may have other work.
const PATIENCE: Duration = Duration::from_secs(180);
const PAUSE: Duration = Duration::from_millis(10);

pub(crate) fn takes_connections(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// Returns true if a Redis answers commands. While it loads its data it takes connections, but refuses every other command.
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

/// Waits until the server says that it is ready. Fails if the server ends before, or takes too long.
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
