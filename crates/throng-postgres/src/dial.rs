//! Connecting. Each host of a URL has its own time limit, and all connections can be cut at once.

use crate::{
    error::explain,
    options::PostgresOptions,
    tls::{MakeTls, Session},
};
use deadpool_postgres::Connect;
use std::{
    future::{Future, poll_fn},
    net::IpAddr,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Poll, ready},
    time::Duration,
};
use throng_journal::Error;
use tokio::{sync::watch, task::JoinHandle, time::timeout};
use tokio_postgres::{
    AsyncMessage, Client, Config, Connection, NoTls, Socket,
    config::{Host, LoadBalanceHosts},
    error::{DbError, Severity},
};

pub(crate) type Connected = (Client, Connection<Socket, Session<Socket>>);

/// The server's function that waits for its standbys. Its warnings reveal a commit that did not wait to the end.
const WAIT_FOR_STANDBY: &str = "SyncRepWaitForLSN";

/// Makes all connections of one engine.
pub(crate) struct Dialer {
    options: PostgresOptions,
    hosts: Vec<OneHost>,
    tls: MakeTls,
    cut: watch::Sender<()>,
    /// The number of commits that did not wait until they were on a standby. Each connection's task adds to it when the server warns of
    /// one.
    unreplicated: AtomicU64,
    /// The reason why the last attempt made no connection. The pool's errors cannot hold it.
    failure: Mutex<String>,
    /// The host of the last connection.
    used: Mutex<String>,
}

/// A single host of a URL.
struct OneHost {
    config: Config,
    /// The name to be looked up each time, since its address may change.
    name: Option<(String, u16)>,
    shown: String,
}

impl Dialer {
    pub(crate) fn new(options: &PostgresOptions) -> Result<Self, Error> {
        Ok(Self {
            options: options.clone(),
            hosts: hosts(&options.config),
            tls: MakeTls::new(options)?,
            cut: watch::Sender::new(()),
            unreplicated: AtomicU64::new(0),
            failure: Mutex::default(),
            used: Mutex::default(),
        })
    }

    /// Tries the hosts in order.
    pub(crate) async fn dial(&self, doing: &str) -> Result<Connected, Error> {
        let (mut order, mut failures): (Vec<&OneHost>, Vec<String>) = (self.hosts.iter().collect(), Vec::new());
        if self.options.config.get_load_balance_hosts() == LoadBalanceHosts::Random {
            fastrand::shuffle(&mut order);
        }
        for host in &order {
            match self.dial_one(host).await {
                Ok(connected) => {
                    self.uses(host);
                    return Ok(connected);
                }
                Err(why) if order.len() == 1 => failures.push(why),
                Err(why) => failures.push(format!("{}: {why}", host.shown)),
            }
        }
        Err(Error::backend(
            format!("{doing} ({})", self.options.place()),
            failures.join("; "),
        ))
    }

    /// Logs which of several hosts is used, if it has changed.
    fn uses(&self, host: &OneHost) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if self.hosts.len() > 1 && *used != host.shown {
            tracing::info!("connected to PostgreSQL at {}", host.shown);
            host.shown.clone_into(&mut used);
        }
    }

    async fn dial_one(&self, host: &OneHost) -> Result<Connected, String> {
        let limit = self.limit();
        let silent = || {
            format!(
                "no answer within {limit:?}; the host takes connections or drops them, and says nothing; where it is only slow, raise \
                 connect_timeout in the URL"
            )
        };
        let explained = |error: tokio_postgres::Error| explain(&error, &self.options);
        let Some((name, port)) = &host.name else {
            let connected = timeout(limit, host.config.connect(self.tls.clone())).await;
            return connected.map_err(|_| silent())?.map_err(explained);
        };
        let found = timeout(limit, tokio::net::lookup_host((&**name, *port))).await;
        let found = found
            .map_err(|_| format!("its address was not found within {limit:?}"))?
            .map_err(|error| format!("{error}; there is no host of that name"))?;
        let mut failure = "it has no address".to_owned();
        for address in found {
            let mut config = host.config.clone();
            config.hostaddr(address.ip());
            failure = match timeout(limit, config.connect(self.tls.clone())).await {
                Ok(Ok(connected)) => return Ok(connected),
                Ok(Err(error)) => explained(error),
                Err(_) => silent(),
            };
        }
        Err(failure)
    }

    /// Bounds the time until a session on a host can be used.
    pub(crate) fn limit(&self) -> Duration {
        let limit = self.options.config.get_connect_timeout();
        limit.copied().unwrap_or(Duration::from_secs(5))
    }

    /// Has a connection work until it ends, or all are cut.
    pub(crate) fn drive(self: &Arc<Self>, mut connection: Connection<Socket, Session<Socket>>) -> JoinHandle<()> {
        let (dialer, mut cut) = (Arc::clone(self), self.cut.subscribe());
        tokio::spawn(async move {
            let ended = poll_fn(|context| {
                loop {
                    match ready!(connection.poll_message(context)) {
                        Some(Ok(message)) => dialer.hear(&message),
                        Some(Err(error)) => return Poll::Ready(error.to_string()),
                        None => return Poll::Ready("its client has gone".into()),
                    }
                }
            });
            // Users of the connection learn of its end by their requests.
            let why = tokio::select! {
                why = ended => why,
                _ = cut.changed() => "the server is silent".into(),
            };
            tracing::debug!("a connection to PostgreSQL ended: {why}");
        })
    }

    /// Notes a message that the server sends by itself.
    pub(crate) fn hear(&self, message: &AsyncMessage) {
        if let AsyncMessage::Notice(notice) = message
            && is_unreplicated(notice)
        {
            self.unreplicated.fetch_add(1, Ordering::AcqRel);
            tracing::warn!(
                "a commit may not be on a standby: the server says {:?}",
                notice.message()
            );
        }
    }

    /// Returns the number of commits that may not be on a synchronous standby although they were reported as done. Which ones is not known.
    pub(crate) fn unreplicated(&self) -> u64 {
        self.unreplicated.load(Ordering::Acquire)
    }

    /// Ends all connections. Whatever waits on them fails.
    pub(crate) fn cut(&self) {
        self.cut.send_replace(());
    }

    /// Resolves when all connections are cut.
    pub(crate) async fn is_cut(&self) {
        // The sender exists as long as this.
        let _ = self.cut.subscribe().changed().await;
    }

    /// Why the pool got no connection last.
    pub(crate) fn failure(&self) -> String {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Returns the error for a missing connection from the pool.
pub(crate) fn no_connection(
    doing: &str,
    (options, dialer): (&PostgresOptions, &Dialer),
) -> impl FnOnce(deadpool_postgres::PoolError) -> Error {
    use deadpool_postgres::{HookError, PoolError};
    move |error| {
        let why = match &error {
            PoolError::Backend(_) => dialer.failure(),
            PoolError::PostCreateHook(HookError::Backend(error)) => explain(error, options),
            PoolError::Timeout(_) => {
                "no connection became free in time; the server is slow, or the option pool is too small".into()
            }
            other => other.to_string(),
        };
        Error::backend(format!("{doing} ({})", options.place()), why)
    }
}

fn is_unreplicated(notice: &DbError) -> bool {
    notice.parsed_severity() == Some(Severity::Warning) && notice.routine() == Some(WAIT_FOR_STANDBY)
}

/// The pool's connections.
pub(crate) struct PoolConnect(pub(crate) Arc<Dialer>);

impl Connect for PoolConnect {
    fn connect(
        &self,
        _: &Config,
    ) -> Pin<Box<dyn Future<Output = Result<(Client, JoinHandle<()>), tokio_postgres::Error>> + Send + '_>> {
        Box::pin(async {
            match self.0.dial("connecting").await {
                Ok((client, connection)) => Ok((client, self.0.drive(connection))),
                Err(error) => {
                    let why = match error {
                        Error::Backend { why, .. } => why,
                        other => other.to_string(),
                    };
                    *self.0.failure.lock().unwrap_or_else(PoisonError::into_inner) = why;
                    // Any error of the driver, since the true reason is in `failure`.
                    Config::new()
                        .connect(NoTls)
                        .await
                        .map(|_| unreachable!("without a host"))
                }
            }
        })
    }
}

/// Returns a configuration for each host, with all other settings.
fn hosts(config: &Config) -> Vec<OneHost> {
    let (names, addresses, ports) = (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    let count = names.len().max(addresses.len());
    let host = |at: usize| {
        let port = ports.get(at).or(ports.first()).copied().unwrap_or(5432);
        let (name, address) = (names.get(at), addresses.get(at).copied());
        one_host(config, name, address, port)
    };
    (0..count).map(host).collect()
}

fn one_host(of: &Config, name: Option<&Host>, address: Option<IpAddr>, port: u16) -> OneHost {
    let mut config = Config::new();
    if let Some(user) = of.get_user() {
        config.user(user);
    }
    if let Some(password) = of.get_password() {
        config.password(password);
    }
    if let Some(database) = of.get_dbname() {
        config.dbname(database);
    }
    if let Some(options) = of.get_options() {
        config.options(options);
    }
    if let Some(name) = of.get_application_name() {
        config.application_name(name);
    }
    if let Some(timeout) = of.get_connect_timeout() {
        config.connect_timeout(*timeout);
    }
    if let Some(timeout) = of.get_tcp_user_timeout() {
        config.tcp_user_timeout(*timeout);
    }
    if let Some(interval) = of.get_keepalives_interval() {
        config.keepalives_interval(interval);
    }
    if let Some(retries) = of.get_keepalives_retries() {
        config.keepalives_retries(retries);
    }
    config
        .ssl_mode(of.get_ssl_mode())
        .ssl_negotiation(of.get_ssl_negotiation())
        .keepalives(of.get_keepalives())
        .keepalives_idle(of.get_keepalives_idle())
        .target_session_attrs(of.get_target_session_attrs())
        .channel_binding(of.get_channel_binding())
        .port(port);
    let mut to_look_up = None;
    let shown = match (name, address) {
        (Some(Host::Tcp(name)), _) => {
            config.host(name);
            to_look_up = address.is_none().then(|| (name.clone(), port));
            format!("{name}:{port}")
        }
        (Some(Host::Unix(path)), _) => {
            config.host_path(path);
            path.display().to_string()
        }
        (None, address) => address.map_or_else(String::new, |address| format!("{address}:{port}")),
    };
    if let Some(address) = address {
        config.hostaddr(address);
    }
    OneHost {
        config,
        name: to_look_up,
        shown,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may")]
mod tests {
    use super::*;
    use servers::{Postgres, PostgresOptions as ServerOptions};
    use std::net::TcpListener;

    #[test]
    fn host_that_accepts_and_says_nothing_is_passed_over() {
        let server = Postgres::start(ServerOptions::default()).unwrap();
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = silent.local_addr().unwrap().port();
        let behind = |first: &str| {
            let at = format!("127.0.0.1:{}", server.port());
            server.url("postgres").replace(&at, &format!("{first},{at}"))
        };
        let dial = |url: &str| {
            let options: PostgresOptions = url.parse().unwrap();
            let dialer = Dialer::new(&options).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async { dialer.dial("testing").await.map(drop) })
        };
        for silent in [format!("127.0.0.1:{port}"), format!("localhost:{port}")] {
            dial(&format!("{}?connect_timeout=1&sslmode=disable", behind(&silent))).unwrap();
        }
        let refused = dial(&format!("postgres://u@127.0.0.1:{port}/d?connect_timeout=1")).unwrap_err();
        assert!(refused.to_string().contains("no answer within 1s"), "{refused}");
        drop(silent);
        let refused = dial(&format!("postgres://u@127.0.0.1:{port},127.0.0.1:{port}/d")).unwrap_err();
        assert_eq!(
            refused.to_string().matches("Connection refused").count(),
            2,
            "{refused}"
        );
    }
}
