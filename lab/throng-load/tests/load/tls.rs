//! TLS targets: trusted, untrusted, and without TLS.

#![cfg(feature = "tls")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use crate::support::{self, Reply, Server};
use rustls::pki_types::PrivateKeyDer;
use throng_load::{Closed, ErrorKind, Options, Request, Target, run};

/// Starts a server with its own certificate for 127.0.0.1. Returns its address and the certificate in PEM.
fn start() -> (SocketAddr, String) {
    let certified = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_string()]).unwrap();
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let config = config.clone();
            std::thread::spawn(move || serve(stream, config));
        }
    });
    (address, certified.cert.pem())
}

fn serve(stream: TcpStream, config: Arc<rustls::ServerConfig>) {
    let session = rustls::ServerConnection::new(config).unwrap();
    let mut stream = rustls::StreamOwned::new(session, stream);
    let (mut buffer, mut came) = ([0; 4096], Vec::new());
    let body = "x".repeat(40_000); // more than a TLS record
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        came.extend_from_slice(&buffer[..count]);
        let Some(request) = request_bytes(&came).filter(|bytes| came.len() >= *bytes) else {
            continue;
        };
        came.drain(..request);
        if stream.write_all(&support::answer(200, &body)).is_err() {
            return;
        }
    }
}

/// Returns the length of a request with its body, once its head has arrived.
fn request_bytes(came: &[u8]) -> Option<usize> {
    let head = came.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    let text = String::from_utf8_lossy(&came[..head]).to_ascii_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:"));
    Some(head + 4 + length.map_or(0, |length| length.trim().parse().unwrap()))
}

fn options(address: SocketAddr) -> Options {
    let mut options = Options::new(Target::resolve(&format!("https://{address}/"), false).unwrap());
    options.connections = 3;
    options
}

fn load(options: &Options) -> throng_load::Report {
    let request = Request::get(&options.target.authority, "/");
    run(options, vec![Closed::new(request, 50)]).unwrap().report
}

#[test]
fn a_trusted_certificate_is_accepted() {
    let (address, pem) = start();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("roots.pem");
    std::fs::write(&path, pem).unwrap();
    let mut options = options(address);
    options.tls.roots = Some(path);
    let report = load(&options);
    assert_eq!(
        (report.counters.successes, report.counters.failures),
        (50, 0),
        "{:?}",
        report.counters.errors
    );
}

#[test]
fn a_body_larger_than_a_tls_record_is_sent_whole() {
    let (address, _) = start();
    let mut options = options(address);
    options.tls.insecure = true;
    let request = Request::build("POST", &options.target.authority, "/").body(vec![b'x'; 300_000]);
    let report = run(&options, vec![Closed::new(request.finish(), 5)]).unwrap().report;
    assert_eq!(report.counters.successes, 5, "{:?}", report.counters.errors);
}

#[test]
fn any_certificate_is_accepted_where_asked_for() {
    let (address, _) = start();
    let mut options = options(address);
    options.tls.insecure = true;
    assert_eq!(load(&options).counters.successes, 50);
}

#[test]
fn an_unknown_certificate_is_a_tls_failure() {
    let (address, _) = start();
    let report = load(&options(address));
    assert_eq!(report.counters.successes, 0);
    assert_eq!(report.counters.errors[&ErrorKind::Tls], 50);
    let reason = "TLS failed first with: invalid peer certificate: UnknownIssuer";
    assert!(
        report.warnings.iter().any(|warning| warning.starts_with(reason)),
        "{:?}",
        report.warnings
    );
}

#[test]
fn a_target_that_never_answers_the_handshake_is_a_timeout() {
    let server = Server::start(|_, _| Reply::Answer(200, String::new()));
    // The plain server waits for the end of a head, which a client's first TLS bytes do not contain.
    let mut options = options(server.address);
    options.request_timeout = std::time::Duration::from_millis(50);
    let report = load(&options);
    assert_eq!(report.counters.successes, 0);
    assert_eq!(report.counters.errors[&ErrorKind::Timeout], 50);
}
