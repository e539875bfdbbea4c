//! The service's program as a process, for tests.

use serde_json::Value;
use std::{
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
};
use throng_testing::{JSON, request};

/// A process of the service. It is killed on drop.
pub struct Program {
    child: Child,
    pub address: SocketAddr,
}

fn serve(data: &Path, provider: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tickets"));
    command
        .args(["serve", "--role", "trial", "--listen", "127.0.0.1:0", "--data"])
        .arg(data)
        .env("TICKETS_PROVIDER", provider)
        .stdin(Stdio::null());
    command
}

impl Program {
    pub fn start(data: &Path, provider: &str) -> Self {
        let mut command = serve(data, provider);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let address = line.trim().trim_start_matches("http://").parse().unwrap();
        Self { child, address }
    }

    pub fn kill(&mut self) {
        // Both fail only if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub fn get(&self, path: &str) -> Value {
        let found = request(self.address, "GET", path, "", "").unwrap();
        assert_eq!(found.status, 200, "{path}: {}", found.body);
        found.json()
    }

    pub fn post(&self, path: &str, body: &Value) -> Value {
        let found = request(self.address, "POST", path, JSON, &body.to_string()).unwrap();
        assert!([200, 201].contains(&found.status), "{path}: {}", found.body);
        found.json()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
fn wrong_settings_of_the_provider_stop_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let refused = serve(directory.path(), r#"{"slow":5}"#).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("slow_ms"), "{said}");
}
