//! The options of a database and its connections, as a URL gives them.

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};
use throng_journal::{Durability, Error, Position};
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

/// The check of the server's certificate; the words of libpq.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    /// No TLS. The default on the loopback and on Unix sockets.
    Disable,
    /// TLS if the server offers it, its certificate is not checked.
    Prefer,
    /// TLS, its certificate is not checked.
    Require,
    /// TLS, and a certificate of a trusted authority for this host. The default for any other host.
    VerifyFull,
}

/// The answer of an engine that finds acknowledged commits lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLoss {
    /// The engine answers nothing until an operator has accepted the loss, and neither does any other engine on the journal.
    #[default]
    Stop,
    /// The service goes on with what is left. The loss is recorded in the journal all the same.
    Continue,
}

/// A database and its settings. Parsed from `postgres://user:password@host:port/database?option=value&…`; see the [crate's
/// page](crate#the-url) for the options. `Display` hides the password.
#[derive(Clone)]
pub struct PostgresOptions {
    /// The options of the driver.
    pub(crate) config: tokio_postgres::Config,
    /// The schema with the tables, which one engine uses. Default `throng`.
    pub schema: String,
    /// Fills the table `events`. Default yes.
    pub events: bool,
    /// The failures that an acknowledged commit survives. Default [`Durability::Fsync`]; [`Durability::Memory`] is treated like
    /// [`Durability::Os`].
    pub durability: Durability,
    /// The time for which this engine may answer reads after the server last confirmed that it is not taken over; zero: for ever. Default 5
    /// s.
    pub lease: Duration,
    /// Appends in flight at once; `None`: one, or four if a round trip takes over a millisecond.
    pub depth: Option<usize>,
    /// Connections for reads and checkpoints. Default 4.
    pub pool: usize,
    /// An accepted loss, named by the commit that the checkpoint covers: see [`Loss`](throng_journal::Loss). Any other loss is refused.
    /// Default none.
    pub accept_loss: Option<Position>,
    /// The behaviour if acknowledged commits are lost. Default [`OnLoss::Stop`]; with [`Durability::Os`] it is always [`OnLoss::Continue`],
    /// since that durability permits losses.
    pub on_loss: OnLoss,
    /// The service's release. Refused if the journal was [finalized](throng_journal::Directory::finalize) at a greater one. Default:
    /// greater than any, for tools.
    pub release: u64,
    /// The checks of the server's certificate.
    pub tls: Tls,
    /// A PEM file of certificates to trust, besides the system's.
    pub root_certificates: Option<PathBuf>,
}

/// Our options, and those of the driver that make sense here.
const KNOWN: &str = "schema, events, durability, lease, depth, pool, sslmode, sslrootcert, host, port, user, dbname, \
    application_name, connect_timeout, keepalives, keepalives_idle, keepalives_interval, keepalives_retries, \
    tcp_user_timeout, target_session_attrs, channel_binding, load_balance_hosts, hostaddr, options";
const DEPTH_MAX: usize = 16;
const POOL_MAX: usize = 64;
/// PostgreSQL cuts longer names.
const SCHEMA_BYTES_MAX: usize = 63;

fn refused(why: impl ToString) -> Error {
    Error::backend("reading the PostgreSQL URL", why)
}

/// `%20` and the like.
fn decoded(text: &str) -> Result<String, Error> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first == b'%' {
            let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
            let byte = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
            bytes
                .push(byte.ok_or_else(|| refused("an option has a % that is not followed by two hexadecimal digits"))?);
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).map_err(|_| refused("an option is not UTF-8"))
}

fn duration(name: &str, text: &str) -> Result<Duration, Error> {
    let (number, micros) = match text.strip_suffix("ms") {
        Some(number) => (number, 1_000),
        None => (text.strip_suffix('s').unwrap_or(text), 1_000_000),
    };
    let number: u64 = number
        .parse()
        .map_err(|_| refused(format!("{name} is {text:?}; write a time as 5s or 500ms")))?;
    Ok(Duration::from_micros(number.saturating_mul(micros)))
}

fn number(name: &str, text: &str, max: usize) -> Result<usize, Error> {
    match text.parse() {
        Ok(number) if (1..=max).contains(&number) => Ok(number),
        _ => Err(refused(format!("{name} is {text:?}; it is a number from 1 to {max}"))),
    }
}

impl FromStr for PostgresOptions {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self, Error> {
        if !is_url(url) {
            return Err(refused("it does not begin with postgres:// or postgresql://"));
        }
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let mut options = Self {
            config: tokio_postgres::Config::new(),
            schema: "throng".into(),
            events: true,
            durability: Durability::Fsync,
            lease: Duration::from_secs(5),
            depth: None,
            pool: 4,
            accept_loss: None,
            on_loss: OnLoss::Stop,
            release: u64::MAX,
            tls: Tls::Disable,
            root_certificates: None,
        };
        let (mut tls, mut others) = (None, Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, raw) = pair
                .split_once('=')
                .ok_or_else(|| refused(format!("options are written as name=value; known are {KNOWN}")))?;
            let value = decoded(raw)?;
            match name {
                "schema" => options.schema = schema(value)?,
                "events" => {
                    options.events = match &*value {
                        "on" => true,
                        "off" => false,
                        other => return Err(refused(format!("events is {other:?}; it is on or off"))),
                    }
                }
                "durability" => {
                    options.durability = match &*value {
                        "fsync" => Durability::Fsync,
                        "os" => Durability::Os,
                        other => return Err(refused(format!("durability is {other:?}; it is fsync or os"))),
                    }
                }
                "lease" => options.lease = duration(name, &value)?,
                "depth" => options.depth = Some(number(name, &value, DEPTH_MAX)?),
                "pool" => options.pool = number(name, &value, POOL_MAX)?,
                "sslmode" => {
                    tls = Some(match &*value {
                        "disable" => Tls::Disable,
                        "prefer" => Tls::Prefer,
                        "require" => Tls::Require,
                        "verify-full" => Tls::VerifyFull,
                        other => {
                            return Err(refused(format!(
                                "sslmode is {other:?}; it is disable, prefer, require or verify-full"
                            )));
                        }
                    });
                }
                "sslrootcert" => options.root_certificates = Some(value.into()),
                _ => others.push(pair),
            }
        }
        let config: tokio_postgres::Config = format!("{base}?{}", others.join("&"))
            .parse()
            // The driver's words may hold parts of a password.
            .map_err(|_| {
                refused(format!(
                    "it is not postgres://user:password@host:port/database?option=value (special characters of a \
                     password are written as %xx), or an option is unknown; known are {KNOWN}"
                ))
            })?;
        options.config = config;
        let names_session = others.iter().any(|pair| pair.starts_with("target_session_attrs="));
        options.fill_in(tls, names_session);
        Ok(options)
    }
}

/// True if a text looks like the URL of a PostgreSQL database.
#[must_use]
pub fn is_url(text: &str) -> bool {
    text.starts_with("postgres://") || text.starts_with("postgresql://")
}

fn schema(name: String) -> Result<String, Error> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let begins = name
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_lowercase() || byte == b'_');
    if begins && name.len() <= SCHEMA_BYTES_MAX && name.bytes().all(fits) && !name.starts_with("pg_") {
        return Ok(name);
    }
    Err(refused(format!(
        "schema is {name:?}; it has 1 to {SCHEMA_BYTES_MAX} of a-z, 0-9 and _, begins with no digit, and not with pg_"
    )))
}

impl PostgresOptions {
    fn fill_in(&mut self, tls: Option<Tls>, names_session: bool) {
        let config = &mut self.config;
        let remote = config.get_hosts().iter().any(|host| match host {
            Host::Tcp(name) => !(name == "localhost" || name == "::1" || name.starts_with("127.")),
            Host::Unix(_) => false,
        });
        self.tls = tls.unwrap_or(if remote { Tls::VerifyFull } else { Tls::Disable });
        config.ssl_mode(match self.tls {
            Tls::Disable => SslMode::Disable,
            Tls::Prefer => SslMode::Prefer,
            Tls::Require | Tls::VerifyFull => SslMode::Require,
        });
        if config.get_hosts().is_empty() {
            config.host("localhost");
        }
        // Of several hosts, the one that takes writes is used: the others are its standbys.
        if config.get_hosts().len() > 1 && !names_session {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        if config.get_password().is_none()
            && let Ok(password) = std::env::var("PGPASSWORD")
        {
            config.password(password);
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_secs(5));
        }
        // The loss of a server is noticed within a quarter of a minute.
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(Duration::from_secs(10));
        }
        if config.get_keepalives_idle() > Duration::from_secs(60) {
            config.keepalives_idle(Duration::from_secs(5));
            config.keepalives_interval(Duration::from_secs(3));
            config.keepalives_retries(3);
        }
    }

    /// The answer to lost acknowledged commits.
    pub(crate) fn on_loss(&self) -> OnLoss {
        match self.durability {
            Durability::Fsync => self.on_loss,
            Durability::Os | Durability::Memory => OnLoss::Continue,
        }
    }

    /// `user@host:port/database, schema throng`: where it is, without the password.
    #[must_use]
    pub fn place(&self) -> String {
        let config = &self.config;
        let ports = config.get_ports();
        let shown = |(at, host): (usize, &Host)| {
            let port = ports.get(at).or(ports.first()).copied().unwrap_or(5432);
            match host {
                Host::Tcp(name) => format!("{name}:{port}"),
                Host::Unix(path) => format!("{}:{port}", path.display()),
            }
        };
        let hosts: Vec<String> = config.get_hosts().iter().enumerate().map(shown).collect();
        let hosts = hosts.join(",");
        let user = config.get_user().map(|user| format!("{user}@")).unwrap_or_default();
        let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
        format!("postgres://{user}{hosts}/{database}, schema {}", self.schema)
    }

    /// Returns the number of hosts, which are tried in order.
    pub(crate) fn hosts(&self) -> usize {
        self.config.get_hosts().len().max(self.config.get_hostaddrs().len())
    }
}

impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("place", &self.place())
            .field("events", &self.events)
            .field("durability", &self.durability)
            .field("lease", &self.lease)
            .field("depth", &self.depth)
            .field("pool", &self.pool)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> PostgresOptions {
        url.parse().unwrap()
    }

    #[test]
    fn a_url_says_all_there_is_to_say() {
        let options = parsed(
            "postgres://ann:s%40crt@db.example:6432/shows?schema=box_office&events=off&durability=os&lease=1500ms\
             &depth=4&pool=8&sslmode=require&sslrootcert=%2Fetc%2Fca.pem&connect_timeout=3",
        );
        assert_eq!(
            options.place(),
            "postgres://ann@db.example:6432/shows, schema box_office"
        );
        assert_eq!((options.events, options.durability), (false, Durability::Os));
        assert_eq!(
            (options.lease, options.depth, options.pool),
            (Duration::from_millis(1500), Some(4), 8)
        );
        assert_eq!(
            (options.tls, options.root_certificates),
            (Tls::Require, Some("/etc/ca.pem".into()))
        );
        assert_eq!(options.config.get_password(), Some(&b"s@crt"[..]));
        assert_eq!(options.config.get_connect_timeout(), Some(&Duration::from_secs(3)));
    }

    #[test]
    fn a_certificate_is_checked_unless_the_server_is_at_hand() {
        assert_eq!(parsed("postgres://db.example/shows").tls, Tls::VerifyFull);
        for near in [
            "postgres://127.0.0.1/x",
            "postgres://localhost:1/x",
            "postgres:///x?host=/run/postgresql",
        ] {
            assert_eq!(parsed(near).tls, Tls::Disable, "{near}");
        }
    }

    #[test]
    fn nonsense_is_refused_without_showing_a_password() {
        let refusals = [
            ("mysql://ann:secret@h/d", "postgres://"),
            ("postgres://ann:secret@h/d?schema=A-B", "schema is"),
            ("postgres://ann:secret@h/d?schema=pg_x", "schema is"),
            ("postgres://ann:secret@h/d?events=maybe", "on or off"),
            ("postgres://ann:secret@h/d?lease=soon", "5s or 500ms"),
            ("postgres://ann:secret@h/d?depth=0", "1 to 16"),
            ("postgres://ann:secret@h/d?sslmode=x", "verify-full"),
            ("postgres://ann:secret@h/d?schemas=x", "known are"),
            ("postgres://ann:secret@h:port/d", "user:password@host:port"),
            ("postgres://ann:secret@h/d?schema=%zz", "hexadecimal"),
        ];
        for (url, part) in refusals {
            let said = url.parse::<PostgresOptions>().unwrap_err().to_string();
            assert!(said.contains(part) && !said.contains("secret"), "{said}");
        }
        let shown = format!("{:?}", parsed("postgres://ann:secret@h/d"));
        assert!(!shown.contains("secret"), "{shown}");
    }
}
