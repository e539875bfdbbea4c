//! A private PostgreSQL.

use crate::{
    Error,
    keeper::{Directory, Keeper},
    ports::free_port,
    programs::{self, User},
    start::{takes_connections, until_ready},
};
use std::{
    fmt::Write as _,
    fs,
    io::Write as _,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

const INSTALL: &str = "the package postgresql of the distribution (./test does so)";

/// The options of a private PostgreSQL.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// Commits survive power loss. The default is on, as in production.
    pub fsync: bool,
    /// More lines of `postgresql.conf`: name and value as written there.
    pub settings: Vec<(String, String)>,
    /// The certificate and key to serve TLS with, both PEM.
    pub tls: Option<(String, String)>,
    /// The parent of its directory, for example a file system that can be filled. The default is the directory of temporary files.
    pub directory: Option<PathBuf>,
    /// The parent of the directory of its write-ahead log, if that is not in its own directory.
    pub wal_directory: Option<PathBuf>,
    /// Another address of this machine to listen at, and the number of leading bits of the network from which it takes connections. These connections
    /// need the password, too.
    pub network: Option<(IpAddr, u8)>,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            fsync: true,
            settings: Vec::new(),
            tls: None,
            directory: None,
            wal_directory: None,
            network: None,
        }
    }
}

/// The manner of stopping a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Cuts connections and writes out what is committed.
    Fast,
    /// Simulates a crash. The server recovers at the next start.
    Immediate,
}

/// A private PostgreSQL on a free port of the loopback: superuser [`USER`](Self::USER) with the password [`PASSWORD`](Self::PASSWORD), database
/// `postgres`. Dropping it ends the server and removes its data.
#[derive(Debug)]
pub struct Postgres {
    // Stands before the directory, because fields are dropped in order.
    keeper: Option<Keeper>,
    pub(crate) directory: Directory,
    /// Held so that its drop removes the directory.
    _wal: Option<Directory>,
    pub(crate) programs: PathBuf,
    port: u16,
}

impl Postgres {
    /// The superuser of the private server.
    pub const USER: &str = "throng";
    /// The superuser's password.
    pub const PASSWORD: &str = "a secret of the tests";
    const PASSWORD_IN_URL: &str = "a%20secret%20of%20the%20tests";

    /// Starts a new server and waits until it takes connections.
    ///
    /// # Errors
    /// The programs are missing, or one of them failed.
    pub fn start(options: PostgresOptions) -> Result<Self, Error> {
        let directories = programs::versions("/usr/lib/postgresql");
        let programs = programs::find(&["postgres", "initdb"], &directories, INSTALL)?;
        let user = User::unprivileged(&["postgres"]);
        let directory = Directory::create("throng-postgres-", user, options.directory.as_deref())?;
        let wal = options.wal_directory.as_deref();
        let wal = wal
            .map(|within| Directory::create("throng-wal-", user, Some(within)))
            .transpose()?;
        initialise(&programs, &directory, wal.as_ref())?;
        let mut server = Self::at_rest(directory, programs, free_port()?);
        server._wal = wal;
        server.configure(&options)?;
        server.resume()?;
        Ok(server)
    }

    /// Returns a server on a directory with data. It is not started.
    pub(crate) fn at_rest(directory: Directory, programs: PathBuf, port: u16) -> Self {
        Self {
            keeper: None,
            directory,
            _wal: None,
            programs,
            port,
        }
    }

    /// Runs one of PostgreSQL's programs (`createdb`, `pg_dump`, …) on it as the superuser, and returns the output.
    ///
    /// # Errors
    /// The program is missing, or failed with this text.
    pub fn run(&self, program: &'static str, arguments: &[&str]) -> Result<Vec<u8>, Error> {
        let done = Command::new(self.programs.join(program))
            .args(arguments)
            .env("PGHOST", "127.0.0.1")
            .env("PGPORT", self.port.to_string())
            .env("PGUSER", Self::USER)
            .env("PGPASSWORD", Self::PASSWORD)
            .env("PGCONNECT_TIMEOUT", "60")
            .stdin(Stdio::null())
            .output()
            .map_err(Error::io(format!("starting {program}")))?;
        if !done.status.success() {
            return Err(Error::Failed {
                program,
                said: String::from_utf8_lossy(&done.stderr).trim().replace('\n', " | "),
            });
        }
        Ok(done.stdout)
    }

    /// Returns its port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the directory of its Unix socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the URL of one of its databases over TCP, with user and password.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        self.url_at(Ipv4Addr::LOCALHOST.into(), database)
    }

    /// Returns the URL of a database at another address, see [`PostgresOptions::network`].
    #[must_use]
    pub fn url_at(&self, address: IpAddr, database: &str) -> String {
        let (user, password) = (Self::USER, Self::PASSWORD_IN_URL);
        let at = SocketAddr::new(address, self.port);
        format!("postgres://{user}:{password}@{at}/{database}")
    }

    /// Ends the server. Its data stays for [`resume`](Self::resume). Does nothing if it was stopped already.
    pub fn stop(&mut self, how: Stop) {
        if let Some(keeper) = self.keeper.take() {
            keeper.stop(match how {
                Stop::Fast => "INT",
                Stop::Immediate => "QUIT",
            });
        }
    }

    /// Starts it again with its data on the same port, and waits until it takes connections.
    ///
    /// # Errors
    /// The server failed with this text.
    pub fn resume(&mut self) -> Result<(), Error> {
        let program = self.programs.join("postgres").display().to_string();
        let data = self.data().display().to_string();
        let keeper = Keeper::start(&self.directory, "QUIT", &[program, "-D".into(), data])?;
        let keeper = self.keeper.insert(keeper);
        until_ready("postgres", keeper, &self.directory, || {
            is_ready(self.directory.path()) && takes_connections(self.port)
        })
    }

    /// Does [`stop`](Self::stop), then [`resume`](Self::resume).
    ///
    /// # Errors
    /// The server failed with this text.
    pub fn restart(&mut self, how: Stop) -> Result<(), Error> {
        self.stop(how);
        self.resume()
    }

    /// Returns the id of its first process, for measuring what it and its children use.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        let file = fs::read_to_string(self.data().join("postmaster.pid")).ok()?;
        file.lines().next()?.trim().parse().ok()
    }

    /// Returns the ids of all its processes, the first one first.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        let Some(first) = self.process_id() else {
            return Vec::new();
        };
        let ids = fs::read_dir("/proc").into_iter().flatten().flatten();
        let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        std::iter::once(first)
            .chain(ids.filter(|id| programs::parent(*id) == Some(first)))
            .collect()
    }

    /// Returns true if it has ended by itself, as a server does that cannot recover.
    #[must_use]
    pub fn has_ended(&mut self) -> bool {
        let directory = &self.directory;
        self.keeper.as_mut().is_none_or(|keeper| keeper.has_ended(directory))
    }

    /// Returns the end of its log, for a failed test.
    #[must_use]
    pub fn log(&self) -> String {
        self.directory.log()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn configure(&self, options: &PostgresOptions) -> Result<(), Error> {
        let path = self.data().join("postgresql.conf");
        let mut text = fs::read_to_string(&path).map_err(Error::io(format!("reading {}", path.display())))?;
        let fsync = if options.fsync { "on" } else { "off" };
        let mut line = |name: &str, value: &str| {
            writeln!(text, "{name} = {value}").expect("a string takes any text");
        };
        match options.network {
            None => line("listen_addresses", "'127.0.0.1'"),
            Some((address, _)) => line("listen_addresses", &format!("'127.0.0.1,{address}'")),
        }
        line("port", &self.port.to_string());
        line(
            "unix_socket_directories",
            &format!("'{}'", self.directory.path().display()),
        );
        line("fsync", fsync);
        line("max_connections", "100");
        for (name, value) in &options.settings {
            line(name, value);
        }
        if let Some((address, bits)) = options.network {
            self.let_in(address, bits)?;
        }
        if let Some((certificate, key)) = &options.tls {
            line("ssl", "on");
            // The place where the server looks for both files.
            self.secret("server.crt", certificate)?;
            self.secret("server.key", key)?;
        }
        fs::write(&path, text).map_err(Error::io(format!("writing {}", path.display())))
    }
}

impl Postgres {
    /// Allows connections from a network.
    fn let_in(&self, address: IpAddr, bits: u8) -> Result<(), Error> {
        let path = self.data().join("pg_hba.conf");
        let failed = || Error::io(format!("writing {}", path.display()));
        let mut file = fs::OpenOptions::new().append(true).open(&path).map_err(failed())?;
        writeln!(file, "host all all {address}/{bits} scram-sha-256").map_err(failed())
    }

    /// Writes a file in the data directory that only the server can read.
    fn secret(&self, name: &str, text: &str) -> Result<(), Error> {
        self.directory.secret(&Path::new("data").join(name), text)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // The shell ends the server and removes the directory. The directory's own drop removes what is left.
        self.keeper = None;
    }
}

fn initialise(programs: &Path, directory: &Directory, wal: Option<&Directory>) -> Result<(), Error> {
    let password = directory.path().join("password");
    directory.secret(Path::new("password"), Postgres::PASSWORD)?;
    let mut initdb = Command::new(programs.join("initdb"));
    initdb
        .args([
            "--no-sync",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
        ])
        .arg(format!("--username={}", Postgres::USER))
        .arg(format!("--pwfile={}", password.display()))
        .args(wal.map(|wal| format!("--waldir={}", wal.path().join("wal").display())))
        .arg(directory.path().join("data"))
        .current_dir(directory.path())
        .stdin(Stdio::null());
    let done = User::of(directory.user, &mut initdb)
        .output()
        .map_err(Error::io("starting initdb"))?;
    if !done.status.success() {
        return Err(Error::Failed {
            program: "initdb",
            said: String::from_utf8_lossy(&done.stderr).trim().replace('\n', " | "),
        });
    }
    Ok(())
}

/// Returns true once the server has written that it takes connections. A standby writes another word.
fn is_ready(directory: &Path) -> bool {
    let pid = fs::read_to_string(directory.join("data/postmaster.pid")).unwrap_or_default();
    let status = pid.lines().nth(7).map_or("", str::trim);
    matches!(status, "ready" | "standby")
}
