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

/// A UmaDB of one's own on a free port of the loopback, without a password. It syncs each append before its answer. Dropped, it is gone
/// with all it held.
#[derive(Debug)]
pub struct Umadb {
    // Before the directory: dropped first.
    keeper: Option<Keeper>,
    directory: Directory,
    program: String,
    port: u16,
}

impl Umadb {
    /// Sets one up and waits until it takes connections; within this directory, else the one of temporary files.
    ///
    /// # Errors
    /// The program is not there, or something it said.
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

    /// Its port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Ends it; what it holds stays for [`resume`](Self::resume). Nothing if it was stopped already.
    pub fn stop(&mut self, how: Stop) {
        if let Some(keeper) = self.keeper.take() {
            keeper.stop(match how {
                Stop::Fast => "TERM",
                Stop::Immediate => "KILL",
            });
        }
    }

    /// Starts it again on what it holds, on the same port, and waits until it takes connections.
    ///
    /// # Errors
    /// The text of the program.
    pub fn resume(&mut self) -> Result<(), Error> {
        let listen = format!("127.0.0.1:{}", self.port);
        let file = self.directory.path().join("events.db").display().to_string();
        let command = [&*self.program, "--listen", &listen, "--db-path", &file].map(str::to_owned);
        let keeper = Keeper::start(&self.directory, "KILL", &command)?;
        let keeper = self.keeper.insert(keeper);
        until_ready("umadb", keeper, &self.directory, || takes_connections(self.port))
    }

    /// The id of its process, for measuring what it uses.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        self.directory.process_id()
    }
}

impl Drop for Umadb {
    fn drop(&mut self) {
        // The shell ends the server and removes the directory; the directory's own drop takes what is left.
        self.keeper = None;
    }
}
