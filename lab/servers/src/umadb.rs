//! A private UmaDB.

use crate::{
    Error, Stop,
    keeper::{Directory, Keeper},
    ports::free_port,
    programs,
    start::{takes_connections, until_ready},
};
use std::{
    env,
    path::{Path, PathBuf},
};

const INSTALL: &str = "cargo install umadb --version 0.7.8, with protoc beside it";

/// A private UmaDB on a free port of the loopback, without a password. It syncs each append before its answer. Dropping it ends the server and
/// removes its data.
#[derive(Debug)]
pub struct Umadb {
    // Stands before the directory, because fields are dropped in order.
    keeper: Option<Keeper>,
    directory: Directory,
    program: String,
    port: u16,
}

impl Umadb {
    /// Starts a new server in this directory, by default in that of temporary files, and waits until it takes connections.
    ///
    /// # Errors
    /// The program is missing, or failed.
    pub fn start(within: Option<&Path>) -> Result<Self, Error> {
        let installed = env::home_dir().map(|home| home.join(".cargo/bin"));
        let installed: Vec<PathBuf> = installed.into_iter().collect();
        let programs = programs::find(&["umadb"], &installed, INSTALL)?;
        let mut server = Self {
            keeper: None,
            directory: Directory::create("throng-umadb-", None, within)?,
            program: programs.join("umadb").display().to_string(),
            port: free_port()?,
        };
        server.resume()?;
        Ok(server)
    }

    /// Returns its port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Ends the server. Its data stays for [`resume`](Self::resume). Does nothing if it was stopped already.
    pub fn stop(&mut self, how: Stop) {
        if let Some(keeper) = self.keeper.take() {
            keeper.stop(match how {
                Stop::Fast => "TERM",
                Stop::Immediate => "KILL",
            });
        }
    }

    /// Starts it again with its data on the same port, and waits until it takes connections.
    ///
    /// # Errors
    /// The server failed with this text.
    pub fn resume(&mut self) -> Result<(), Error> {
        let listen = format!("127.0.0.1:{}", self.port);
        let file = self.directory.path().join("events.db").display().to_string();
        let command = [&*self.program, "--listen", &listen, "--db-path", &file].map(str::to_owned);
        let keeper = Keeper::start(&self.directory, "KILL", &command)?;
        let keeper = self.keeper.insert(keeper);
        until_ready("umadb", keeper, &self.directory, || takes_connections(self.port))
    }

    /// Returns the id of its process, for measuring what it uses.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        self.directory.process_id()
    }
}

impl Drop for Umadb {
    fn drop(&mut self) {
        // The shell ends the server and removes the directory. The directory's own drop removes what is left.
        self.keeper = None;
    }
}
