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
    /// Commits survive power loss. Default on, as in production.
    pub fsync: bool,
    /// More lines of `postgresql.conf`: name and value as it is written there.
    pub settings: Vec<(String, String)>,
    /// Serve TLS with this certificate and key, both PEM.
    pub tls: Option<(String, String)>,
    /// The place of its own directory, for example a file system that can be filled. By default the place of temporary files.
    pub directory: Option<PathBuf>,
    /// The place of the directory of its write-ahead log, if not within its own.
    pub wal_directory: Option<PathBuf>,
    /// Another address of this machine that it listens at, and the number of leading bits of the network from which it takes connections,
    /// with the password as everywhere.
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

/// The way to end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Connections are cut, what is committed is written out.
    Fast,
    /// A crash: it recovers at the next start.
    Immediate,
}

/// A PostgreSQL of one's own on a free port of the loopback: superuser [`USER`](Self::USER) with the password
/// [`PASSWORD`](Self::PASSWORD), database `postgres`. Dropped, it is gone with all it held.
#[derive(Debug)]
pub struct Postgres {
    // Before the directory: dropped first.
    keeper: Option<Keeper>,
    pub(crate) directory: Directory,
    /// Held for its removal.
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

    /// Sets one up and waits until it takes connections.
    ///
    /// # Errors
    /// The programs are not there, or something they said.
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

    /// Returns a server on a directory with data, not started.
    pub(crate) fn at_rest(directory: Directory, programs: PathBuf, port: u16) -> Self {
        Self {
            keeper: None,
            directory,
            _wal: None,
            programs,
            port,
        }
    }

    /// Runs a program of PostgreSQL's own (`createdb`, `pg_dump`, …) on it, as the superuser; what it wrote.
    ///
    /// # Errors
    /// The program is not there, or failed with this text.
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

    /// Its port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The directory of its Unix socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        self.directory.path()
    }

    /// A URL of a database of it, with user and password, over TCP.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        self.url_at(Ipv4Addr::LOCALHOST.into(), database)
    }

    /// The same by another address: see [`PostgresOptions::network`].
    #[must_use]
    pub fn url_at(&self, address: IpAddr, database: &str) -> String {
        let (user, password) = (Self::USER, Self::PASSWORD_IN_URL);
        let at = SocketAddr::new(address, self.port);
        format!("postgres://{user}:{password}@{at}/{database}")
    }

    /// Ends it; what it holds stays for [`resume`](Self::resume). Nothing if it was stopped already.
    pub fn stop(&mut self, how: Stop) {
        if let Some(keeper) = self.keeper.take() {
            keeper.stop(match how {
                Stop::Fast => "INT",
                Stop::Immediate => "QUIT",
            });
        }
    }

    /// Starts it again on what it holds, on the same port, and waits until it takes connections.
    ///
    /// # Errors
    /// The text of the program.
    pub fn resume(&mut self) -> Result<(), Error> {
        let program = self.programs.join("postgres").display().to_string();
        let data = self.data().display().to_string();
        let keeper = Keeper::start(&self.directory, "QUIT", &[program, "-D".into(), data])?;
        let keeper = self.keeper.insert(keeper);
        until_ready("postgres", keeper, &self.directory, || {
            is_ready(self.directory.path()) && takes_connections(self.port)
        })
    }

    /// [`stop`](Self::stop), then [`resume`](Self::resume).
    ///
    /// # Errors
    /// The text of the program.
    pub fn restart(&mut self, how: Stop) -> Result<(), Error> {
        self.stop(how);
        self.resume()
    }

    /// The id of its first process, for measuring what it and its children use.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        let file = fs::read_to_string(self.data().join("postmaster.pid")).ok()?;
        file.lines().next()?.trim().parse().ok()
    }

    /// The ids of all its processes, the first one first.
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

    /// Has it ended by itself, as a server does that cannot recover?
    #[must_use]
    pub fn has_ended(&mut self) -> bool {
        let directory = &self.directory;
        self.keeper.as_mut().is_none_or(|keeper| keeper.has_ended(directory))
    }

    /// The end of its log, for a failed test.
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
            // Where the server looks for them.
            self.secret("server.crt", certificate)?;
            self.secret("server.key", key)?;
        }
        fs::write(&path, text).map_err(Error::io(format!("writing {}", path.display())))
    }
}

impl Postgres {
    /// Takes connections from a network.
    fn let_in(&self, address: IpAddr, bits: u8) -> Result<(), Error> {
        let path = self.data().join("pg_hba.conf");
        let failed = || Error::io(format!("writing {}", path.display()));
        let mut file = fs::OpenOptions::new().append(true).open(&path).map_err(failed())?;
        writeln!(file, "host all all {address}/{bits} scram-sha-256").map_err(failed())
    }

    /// A file of the data directory that only the server reads.
    fn secret(&self, name: &str, text: &str) -> Result<(), Error> {
        self.directory.secret(&Path::new("data").join(name), text)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // The shell ends the server and removes the directory; the directory's own drop takes what is left.
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

/// The server writes the word when it takes connections, of a standby another one.
fn is_ready(directory: &Path) -> bool {
    let pid = fs::read_to_string(directory.join("data/postmaster.pid")).unwrap_or_default();
    let status = pid.lines().nth(7).map_or("", str::trim);
    matches!(status, "ready" | "standby")
}
