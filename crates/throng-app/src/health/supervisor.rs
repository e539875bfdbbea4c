//! The protocol of `sd_notify`: it reports to systemd, or another supervisor that speaks it, when the service serves and when it ends.

use super::{LIVE, ask};
use std::{
    env,
    ffi::OsStr,
    io,
    net::SocketAddr,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            ffi::OsStrExt as _,
            net::{SocketAddr as UnixAddress, UnixDatagram},
        },
    },
    process,
    sync::Arc,
    thread,
    time::Duration,
};

/// The shortest time between two beats of the watchdog.
const BEAT_MIN: Duration = Duration::from_millis(10);

/// A supervisor that asked for notifications.
#[derive(Debug)]
pub(crate) struct Supervisor {
    socket: UnixDatagram,
    address: UnixAddress,
}

impl Supervisor {
    /// Reads `NOTIFY_SOCKET`; `None` if it is not set. An address that cannot be used is logged, and the service goes on.
    pub(crate) fn from_environment() -> Option<Self> {
        let socket = env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty())?;
        let open = || -> io::Result<Self> {
            let (address, socket) = (address(&socket)?, UnixDatagram::unbound()?);
            // A supervisor that does not read must not block the service.
            socket.set_nonblocking(true)?;
            Ok(Self { socket, address })
        };
        match open() {
            Ok(supervisor) => Some(supervisor),
            Err(error) => {
                tracing::warn!("NOTIFY_SOCKET {socket:?} cannot be used, so no supervisor is told anything: {error}");
                None
            }
        }
    }

    /// Sends lines of `NAME=value`.
    pub(crate) fn tell(&self, lines: &str) {
        if let Err(error) = self.socket.send_to_addr(lines.as_bytes(), &self.address) {
            tracing::warn!("the supervisor at NOTIFY_SOCKET was not told {lines:?}: {error}");
        }
    }

    /// Sends the watchdog's beats, if they are asked for, from a thread that lasts as long as the process. If the listener for
    /// administration is on loopback, the thread first asks the service for its health; without an answer it sends no beat.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn keep_watchdog(self: &Arc<Self>, admin: Option<SocketAddr>) -> io::Result<()> {
        let value = |name| env::var(name).ok();
        let Some(every) = beat(value("WATCHDOG_USEC"), value("WATCHDOG_PID"), process::id()) else {
            return Ok(());
        };
        let admin = admin.filter(|admin| admin.ip().is_loopback());
        let supervisor = Arc::clone(self);
        let watch = move || {
            loop {
                match admin.map(|admin| ask(admin, LIVE, every)) {
                    None | Some(Ok(_)) => supervisor.tell("WATCHDOG=1"),
                    Some(Err(error)) => tracing::warn!("the watchdog got no answer from this service: {error:#}"),
                }
                thread::sleep(every);
            }
        };
        thread::Builder::new().name("throng-watchdog".into()).spawn(watch)?;
        Ok(())
    }
}

/// Parses a path, or a name of the abstract namespace after an `@`.
fn address(socket: &OsStr) -> io::Result<UnixAddress> {
    match socket.as_bytes() {
        [b'@', name @ ..] => UnixAddress::from_abstract_name(name),
        [b'/', ..] => UnixAddress::from_pathname(socket),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "an address is a path from / on, or a name behind @",
        )),
    }
}

/// Returns the time between two beats, a third of the supervisor's timeout; `None` if the supervisor does not watch this process.
fn beat(micros: Option<String>, pid: Option<String>, own: u32) -> Option<Duration> {
    let is_ours = pid.is_none_or(|pid| pid.parse() == Ok(own));
    let micros: u64 = micros?.parse().ok().filter(|micros| is_ours && *micros > 0)?;
    Some((Duration::from_micros(micros) / 3).max(BEAT_MIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchdog_beats_thrice_in_its_time_for_its_own_process() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(beat(text("30000000"), None, 7), Some(Duration::from_secs(10)));
        assert_eq!(beat(text("30000000"), text("7"), 7), Some(Duration::from_secs(10)));
        assert_eq!(beat(text("30000000"), text("8"), 7), None);
        assert_eq!(beat(text("1"), None, 7), Some(BEAT_MIN));
        assert_eq!((beat(None, None, 7), beat(text("0"), None, 7)), (None, None));
    }

    #[test]
    fn notify_socket_is_a_path_or_an_abstract_name() {
        let path = address(OsStr::new("/run/notify")).expect("a path");
        assert_eq!(path.as_pathname().and_then(|path| path.to_str()), Some("/run/notify"));
        let name = address(OsStr::new("@notify")).expect("a name");
        assert_eq!(name.as_abstract_name(), Some(&b"notify"[..]));
        assert!(address(OsStr::new("notify")).is_err());
    }
}
