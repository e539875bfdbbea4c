//! A private Redis.

use crate::{
    Error, Stop,
    keeper::{Directory, Keeper},
    ports::free_port,
    programs::{self, User},
    start::{answers_ping, until_ready},
};

const INSTALL: &str = "the package redis-server of the distribution (./test does so)";

/// A private Redis on a free port of the loopback, without a password. It keeps its data in an append-only file that is synced before each answer.
/// Dropping it ends the server and removes its data.
#[derive(Debug)]
pub struct Redis {
    // Stands before the directory, because fields are dropped in order.
    keeper: Option<Keeper>,
    directory: Directory,
    program: String,
    port: u16,
}

impl Redis {
    /// Starts a new server and waits until it answers commands.
    ///
    /// # Errors
    /// The program is missing, or failed.
    pub fn start() -> Result<Self, Error> {
        let programs = programs::find(&["redis-server"], &[], INSTALL)?;
        let user = User::unprivileged(&["redis"]);
        let mut server = Self {
            keeper: None,
            directory: Directory::create("throng-redis-", user, None)?,
            program: programs.join("redis-server").display().to_string(),
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

    /// Returns `redis://127.0.0.1:PORT`, without a password.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
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

    /// Starts it again with its data on the same port, and waits until it answers commands.
    ///
    /// # Errors
    /// The server failed with this text.
    pub fn resume(&mut self) -> Result<(), Error> {
        let port = self.port.to_string();
        let directory = self.directory.path().display().to_string();
        let arguments = [
            (&*self.program, ""),
            ("--port", &*port),
            ("--bind", "127.0.0.1"),
            ("--dir", &*directory),
            ("--appendonly", "yes"),
            ("--appendfsync", "always"),
        ];
        let words = arguments.iter().flat_map(|(name, value)| [*name, *value]);
        let command: Vec<String> = words.filter(|word| !word.is_empty()).map(str::to_owned).collect();
        let keeper = Keeper::start(&self.directory, "KILL", &command)?;
        let keeper = self.keeper.insert(keeper);
        until_ready("redis-server", keeper, &self.directory, || answers_ping(self.port))
    }

    /// Returns the id of its process, for measuring what it uses.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        self.directory.process_id()
    }

    /// Returns the end of its log, for a failed test.
    #[must_use]
    pub fn log(&self) -> String {
        self.directory.log()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // The shell ends the server and removes the directory. The directory's own drop removes what is left.
        self.keeper = None;
    }
}
