//! A private Redis.

use crate::{
    Error, Stop,
    keeper::{Directory, Keeper},
    ports::free_port,
    programs::{self, User},
    start::{answers_ping, until_ready},
};

const INSTALL: &str = "the package redis-server of the distribution (./test does so)";

/// A Redis of one's own on a free port of the loopback, without a password. It keeps what it holds in an append-only file that is
/// synced before each answer. Dropped, it is gone with all it held.
#[derive(Debug)]
pub struct Redis {
    // Before the directory: dropped first.
    keeper: Option<Keeper>,
    directory: Directory,
    program: String,
    port: u16,
}

impl Redis {
    /// Sets one up and waits until it answers commands.
    ///
    /// # Errors
    /// The program is not there, or something it said.
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

    /// Its port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `redis://127.0.0.1:PORT`, without a password.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
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

    /// Starts it again on what it holds, on the same port, and waits until it answers commands.
    ///
    /// # Errors
    /// The text of the program.
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

    /// The id of its process, for measuring what it uses.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        self.directory.process_id()
    }

    /// The end of its log, for a failed test.
    #[must_use]
    pub fn log(&self) -> String {
        self.directory.log()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // The shell ends the server and removes the directory; the directory's own drop takes what is left.
        self.keeper = None;
    }
}
