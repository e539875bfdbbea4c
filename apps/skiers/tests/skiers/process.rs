//! The service as processes, with a client over HTTP.

use serde_json::Value;
use std::{
    io::{BufRead, BufReader},
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::{Child, Command, Stdio},
};
use throng_testing::{request, until};

/// A process of the service. It is killed on drop.
pub(crate) struct Process {
    child: Child,
    pub(crate) address: SocketAddr,
}

/// Returns the command for the service in a role.
pub(crate) fn command(role: &str, address: SocketAddr, directory: &Path, variables: &[(&str, String)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_skiers"));
    command
        .args(["serve", "--role", role, "--listen", &address.to_string(), "--data"])
        .arg(directory)
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null());
    command
}

impl Process {
    pub(crate) fn start(role: &str, address: SocketAddr, directory: &Path, variables: &[(&str, String)]) -> Self {
        let mut child = command(role, address, directory, variables)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert!(line.starts_with("http://"), "the {role} did not start");
        Self { child, address }
    }
}

impl Process {
    pub(crate) fn kill(&mut self) {
        // Both fail only if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(crate) fn free_address() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, servers::free_port().unwrap()).into()
}

/// Repeats a query until it is answered.
pub(crate) fn get(address: SocketAddr, path: &str) -> Value {
    let mut found = Value::Null;
    until(path, || match request(address, "GET", path, "", "") {
        Ok(response) if response.status == 200 => {
            found = response.json();
            true
        }
        _ => false,
    });
    found
}

/// Returns one of a service's health checks, with the status of its readiness as a whole.
pub(crate) fn check(address: SocketAddr, name: &str) -> Option<(u16, Value)> {
    let ready = request(address, "GET", "/health/ready", "", "").ok()?;
    let body = ready.json();
    let checks = body["checks"].as_array()?;
    let check = checks.iter().find(|check| check["name"] == name)?;
    Some((ready.status, check.clone()))
}
