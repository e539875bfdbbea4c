//! A rolling restart of three nodes behind balancers.

use super::{
    cluster::place,
    kit::{Served, throng},
};
use rustix::process::Signal;
use servers::free_port;
use std::{
    fs,
    net::{SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};
use throng_testing::{Client, until};

/// Entities that each client asks in turn.
const SECTIONS: usize = 5;
/// The requests that each client must complete before and after each restart.
const ANSWERED: usize = 10;

fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// A balancer as a process, killed on drop.
struct Balancer {
    address: SocketAddr,
    child: Child,
    _directory: tempfile::TempDir,
}

impl Balancer {
    fn start(program: &str, arguments: &[&str], config: impl FnOnce(u16, &str) -> String) -> Self {
        let (directory, port) = (tempfile::tempdir().unwrap(), free_port().unwrap());
        let path = directory.path().display().to_string();
        let file = format!("{path}/config");
        fs::write(&file, config(port, &path)).unwrap();
        let mut command = Command::new(program);
        command.args(arguments).arg(&file).stdin(Stdio::null());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.unwrap_or_else(|error| panic!("{program}: {error} (./test installs it)"));
        let address = local(port);
        until(program, || TcpStream::connect(address).is_ok());
        Self {
            address,
            child,
            _directory: directory,
        }
    }

    /// Balances as in the book, with health checks frequent enough for a test.
    fn haproxy(nodes: &[u16]) -> Self {
        Self::start("/usr/sbin/haproxy", &["-db", "-f"], |port, _| {
            let nodes = nodes
                .iter()
                .map(|node| format!("  server n{node} 127.0.0.1:{node} check\n"));
            format!(
                "defaults\n  mode http\n  timeout connect 1s\n  timeout check 10s\n  timeout client 60s\n  timeout server 60s\n\
                 listen service\n  bind 127.0.0.1:{port}\n  balance roundrobin\n  option httpchk\n  \
                 http-check send meth GET uri /health/ready ver HTTP/1.1 hdr Host localhost\n  \
                 retries 5\n  option redispatch 1\n  retry-on conn-failure empty-response 503\n  \
                 default-server inter 100ms fall 1 rise 1\n{}",
                nodes.collect::<String>()
            )
        })
    }

    fn nginx(nodes: &[u16]) -> Self {
        Self::start("/usr/sbin/nginx", &["-c"], |port, path| {
            let nodes = nodes.iter().map(|node| format!("server 127.0.0.1:{node} max_fails=0;"));
            let scratch = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
            let scratch = scratch.map(|of| format!("{of}_temp_path {path}/{of};")).concat();
            format!(
                "daemon off; master_process off; pid {path}/pid; error_log {path}/errors; events {{}}\n\
                 http {{ access_log off; {scratch}\n\
                 upstream nodes {{ {} }}\n\
                 server {{ listen 127.0.0.1:{port}; location / {{\n\
                 proxy_pass http://nodes; proxy_http_version 1.1; proxy_set_header Host $host; proxy_connect_timeout 1s;\n\
                 proxy_next_upstream error timeout http_503 non_idempotent; }} }} }}\n",
                nodes.collect::<String>()
            )
        })
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        // Both fail only if the process has already ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client that asks through a balancer until it is told to end, or until the first error.
struct Asking {
    answered: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), String>>,
}

impl Asking {
    fn start(name: &'static str, balancer: SocketAddr) -> Self {
        let (answered, is_over) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (count, ends) = (answered.clone(), is_over.clone());
        let ask = move |number: usize| {
            let path = format!("/api/section/S{}", number % SECTIONS);
            let key = format!("{name}-{number}");
            let body = format!(r#"{{"student":"{key}"}}"#);
            let mut client = Client::connect(balancer)?;
            let added = client.post(&format!("{path}/add"), Some(&key), &body)?;
            Ok::<_, std::io::Error>([added, Client::connect(balancer)?.get(&path)?])
        };
        let thread = thread::spawn(move || {
            for number in 0.. {
                if ends.load(Ordering::Relaxed) {
                    break;
                }
                let answers = ask(number).map_err(|error| format!("{name}, request {number}: {error}"))?;
                if let Some(failed) = answers.iter().find(|answer| answer.status != 200) {
                    return Err(format!("{name}, request {number}: {} {}", failed.status, failed.body));
                }
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        Self {
            answered,
            is_over,
            thread,
        }
    }

    /// Waits until some more requests are answered, or one fails.
    fn goes_on(&self) {
        let before = self.answered.load(Ordering::Relaxed);
        until("requests are answered", || {
            self.thread.is_finished() || self.answered.load(Ordering::Relaxed) >= before + ANSWERED
        });
    }

    fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        assert_eq!(self.thread.join().unwrap(), Ok(()));
    }
}

fn start(name: &str, port: u16) -> Served {
    let mut command = throng();
    command.args([
        "serve",
        "--listen",
        &local(port).to_string(),
        "--admin-listen",
        "127.0.0.1:0",
    ]);
    command.args(["--journal", &place("rolling"), "--cluster", "--name", name]);
    command.args(["--cluster-lease", "10s", "--drain-grace", "500ms"]);
    Served::spawn(command)
}

/// Returns true if each node serves its third, and reports that it is ready.
fn are_settled(nodes: &[Served]) -> bool {
    nodes.iter().all(|node| {
        let seen = Client::connect(node.admin).and_then(|mut client| client.get("/admin/cluster"));
        let has_share = seen.is_ok_and(|seen| seen.status == 200 && seen.json()["serves"].as_u64() >= Some(85));
        has_share
            && node
                .client()
                .get("/health/ready")
                .is_ok_and(|ready| ready.status == 200)
    })
}

#[test]
fn rolling_restart_behind_balancers_shows_clients_no_error() {
    let names = ["a", "b", "c"];
    let ports = names.map(|_| free_port().unwrap());
    let mut nodes: Vec<Served> = names.iter().zip(ports).map(|(name, port)| start(name, port)).collect();
    until("each node has its share", || are_settled(&nodes));
    for section in 0..SECTIONS {
        let path = format!("/api/section/S{section}/open");
        let opened = nodes[0]
            .client()
            .post(&path, Some(&path), r#"{"capacity":100000}"#)
            .unwrap();
        assert_eq!(opened.status, 200, "{}", opened.body);
    }
    let balancers = [Balancer::haproxy(&ports), Balancer::nginx(&ports)];
    let asking = [
        Asking::start("haproxy", balancers[0].address),
        Asking::start("nginx", balancers[1].address),
    ];
    asking.iter().for_each(Asking::goes_on);
    for (name, port) in names.iter().zip(ports) {
        let node = nodes.remove(0);
        node.signal(Signal::TERM);
        let (status, said) = node.ended();
        assert!(status.success(), "{said}");
        nodes.push(start(name, port));
        until("each node has its share again", || are_settled(&nodes));
        asking.iter().for_each(Asking::goes_on);
    }
    asking.into_iter().for_each(Asking::end);
}
