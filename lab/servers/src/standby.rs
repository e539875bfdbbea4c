//! Copies of a private PostgreSQL: standbys that follow it, and base backups.

use crate::{Error, keeper::Directory, ports::free_port, postgres::Postgres, programs::User};
use std::{
    fmt::Write as _,
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// The limit for a statement, and for a condition to come true. Beyond it either is an error.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

impl Postgres {
    /// Makes a base backup of it, on a port of its own, and does not start it. After [`resume`](Self::resume) it is an independent server on the same
    /// timeline, without later commits.
    ///
    /// # Errors
    /// `pg_basebackup` failed with this text.
    pub fn backup(&self) -> Result<Self, Error> {
        self.backup_at(free_port()?)
    }

    /// Does the same with a given port.
    ///
    /// # Errors
    /// `pg_basebackup` failed with this text.
    pub fn backup_at(&self, port: u16) -> Result<Self, Error> {
        let directory = Directory::create("throng-postgres-", self.directory.user, None)?;
        let mut backup = Command::new(self.programs.join("pg_basebackup"));
        backup
            .args(["--checkpoint=fast", "--wal-method=stream", "--no-sync", "--pgdata"])
            .arg(directory.path().join("data"))
            .env("PGHOST", "127.0.0.1")
            .env("PGPORT", self.port().to_string())
            .env("PGUSER", Self::USER)
            .env("PGPASSWORD", Self::PASSWORD)
            .env("PGCONNECT_TIMEOUT", "60")
            .current_dir(directory.path())
            .stdin(Stdio::null());
        let done = User::of(directory.user, &mut backup)
            .output()
            .map_err(Error::io("starting pg_basebackup"))?;
        if !done.status.success() {
            return Err(Error::Failed {
                program: "pg_basebackup",
                said: String::from_utf8_lossy(&done.stderr).trim().replace('\n', " | "),
            });
        }
        let copy = Self::at_rest(directory, self.programs.clone(), port);
        copy.add_settings(&[
            ("port", copy.port().to_string()),
            ("unix_socket_directories", format!("'{}'", copy.socket().display())),
        ])?;
        Ok(copy)
    }

    /// Starts a standby of this name that follows it. The standby takes reading sessions.
    ///
    /// # Errors
    /// `pg_basebackup` or the standby failed with this text.
    pub fn standby(&self, name: &str) -> Result<Self, Error> {
        let mut standby = self.backup()?;
        let following = format!("'{}'", self.to_be_followed(name).replace('\'', "''"));
        standby.add_settings(&[("primary_conninfo", following)])?;
        standby.directory.secret(Path::new("data/standby.signal"), "")?;
        standby.resume()?;
        Ok(standby)
    }

    fn to_be_followed(&self, name: &str) -> String {
        let (user, password, port) = (Self::USER, Self::PASSWORD, self.port());
        format!("host=127.0.0.1 port={port} user={user} password='{password}' application_name={name}")
    }

    /// Cuts a standby off from the server it follows. From then on it lags.
    ///
    /// # Errors
    /// The standby failed with this text.
    pub fn hold_back(&self) -> Result<(), Error> {
        self.sql("ALTER SYSTEM SET primary_conninfo TO ''")?;
        self.sql("SELECT pg_reload_conf()")?;
        // The server ends its receiver after a while.
        self.until("SELECT count(*) = 0 FROM pg_stat_wal_receiver")
    }

    /// Promotes a standby, and waits until it takes writes.
    ///
    /// # Errors
    /// The standby failed with this text.
    pub fn promote(&self) -> Result<(), Error> {
        // The promotion is not waited for here: such a session would hold a snapshot, and the recovery that has to end first would wait for it.
        self.sql("SELECT pg_promote(false) WHERE pg_is_in_recovery()")?;
        self.until("SELECT NOT pg_is_in_recovery()")
    }

    /// Waits until a query of one row and one column is true.
    ///
    /// # Errors
    /// The server's last answer was an error, or the condition was not true within a minute.
    pub fn until(&self, condition: &str) -> Result<(), Error> {
        let begun = Instant::now();
        while self.sql(condition)?.trim() != "t" {
            if begun.elapsed() > PATIENCE {
                return Err(Error::Failed {
                    program: "psql",
                    said: format!("never came true in {} s: {condition}", PATIENCE.as_secs()),
                });
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Runs a statement as the superuser and returns the output. Repeats it if the recovery of a standby cancels it.
    ///
    /// # Errors
    /// The server failed with this text.
    pub fn sql(&self, statement: &str) -> Result<String, Error> {
        let limit = format!("SET statement_timeout TO '{}s'", PATIENCE.as_secs());
        let settings = ["-XAtq", "-v", "ON_ERROR_STOP=1", "-d", "postgres"];
        let arguments = [&settings[..], &["-c", &limit, "-c", statement]].concat();
        let begun = Instant::now();
        loop {
            match self.run("psql", &arguments) {
                // The cancelled statement has changed nothing.
                Err(Error::Failed { said, .. })
                    if said.contains("conflict with recovery") && begun.elapsed() < PATIENCE => {}
                said => return Ok(String::from_utf8_lossy(&said?).into_owned()),
            }
        }
    }

    /// Appends settings. The last of several lines with one name counts.
    fn add_settings(&self, settings: &[(&str, String)]) -> Result<(), Error> {
        let path = self.data().join("postgresql.conf");
        let mut text = fs::read_to_string(&path).map_err(Error::io(format!("reading {}", path.display())))?;
        for (name, value) in settings {
            writeln!(text, "{name} = {value}").expect("a string takes any text");
        }
        fs::write(&path, text).map_err(Error::io(format!("writing {}", path.display())))
    }
}
