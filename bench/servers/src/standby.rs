//! Copies of a private PostgreSQL: standbys that follow it, and base backups.

use crate::{Error, keeper::Directory, postgres::Postgres, programs::User, start::free_port};
use std::{
    fmt::Write as _,
    fs,
    path::Path,
    process::{Command, Stdio},
};

impl Postgres {
    /// A base backup of it on a port of its own, which is not started: with [`resume`](Self::resume) it is a server by itself, without what
    /// was committed since, on the same timeline.
    ///
    /// # Errors
    /// The text of `pg_basebackup`.
    pub fn backup(&self) -> Result<Self, Error> {
        self.backup_at(free_port()?)
    }

    /// The same on a port that is known before.
    ///
    /// # Errors
    /// The text of `pg_basebackup`.
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

    /// A standby that follows it, by this name; it takes reading sessions.
    ///
    /// # Errors
    /// The text of `pg_basebackup` or of the standby.
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

    /// Cuts a standby off from the server it follows: from here on it lags.
    ///
    /// # Errors
    /// The text of the program.
    pub fn hold_back(&self) -> Result<(), Error> {
        self.sql("ALTER SYSTEM SET primary_conninfo TO ''")?;
        self.sql("SELECT pg_reload_conf()")?;
        // It ends its receiver by and by.
        let is_over = || Ok(self.sql("SELECT count(*) FROM pg_stat_wal_receiver")?.trim() == "0");
        while !is_over()? {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Promotes a standby, and waits until it takes writes.
    ///
    /// # Errors
    /// The text of the program.
    pub fn promote(&self) -> Result<(), Error> {
        self.sql("SELECT pg_promote(true, 60)").map(drop)
    }

    /// Runs a statement as the superuser; what it says.
    ///
    /// # Errors
    /// The last answer of the server.
    pub fn sql(&self, statement: &str) -> Result<String, Error> {
        let arguments = ["-XAtq", "-v", "ON_ERROR_STOP=1", "-d", "postgres", "-c", statement];
        let said = self.run("psql", &arguments)?;
        Ok(String::from_utf8_lossy(&said).into_owned())
    }

    /// The last of several lines of one name counts.
    fn add_settings(&self, settings: &[(&str, String)]) -> Result<(), Error> {
        let path = self.data().join("postgresql.conf");
        let mut text = fs::read_to_string(&path).map_err(Error::io(format!("reading {}", path.display())))?;
        for (name, value) in settings {
            writeln!(text, "{name} = {value}").expect("a string takes any text");
        }
        fs::write(&path, text).map_err(Error::io(format!("writing {}", path.display())))
    }
}
