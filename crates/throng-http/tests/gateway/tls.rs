//! TLS: real handshakes, on both paths, over HTTP/2 and under a WebSocket.

use crate::support::{
    Client,
    client::{PATIENCE, request},
    http2::{END_STREAM, Frames, HEADERS},
    plain, start,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa, KeyIdMethod,
    KeyPair, KeyUsagePurpose, RevokedCertParams, SanType, date_time_ymd,
};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use serde_json::json;
use std::{
    fs,
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};
use throng_http::{Gateway, Running, Tls};
use throng_testing::until;

pub(crate) type Secure = StreamOwned<ClientConnection, TcpStream>;

/// A certificate authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Issues a certificate. Returns it with its key.
    fn signs(&self, params: CertificateParams) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    fn serves(&self, names: &[&str]) -> (String, String) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        self.signs(CertificateParams::new(names).unwrap())
    }

    /// Returns a revocation list of these serial numbers.
    fn revokes(&self, numbers: &[u64]) -> String {
        let revoked = |number: &u64| RevokedCertParams {
            serial_number: (*number).into(),
            revocation_time: date_time_ymd(2026, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2026, 1, 1),
            next_update: date_time_ymd(2026, 1, 2),
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: numbers.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.0).unwrap().pem().unwrap()
    }

    fn root(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }
}

/// The key and certificate files of a gateway.
pub(crate) struct Files {
    dir: tempfile::TempDir,
    authority: Authority,
}

impl Files {
    pub(crate) fn new() -> Self {
        let files = Self {
            dir: tempfile::tempdir().unwrap(),
            authority: Authority::new(),
        };
        files.write(files.authority.serves(&["localhost"]));
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, (certificate, key): (String, String)) {
        fs::write(self.path("key.pem"), key).unwrap();
        fs::write(self.path("cert.pem"), certificate).unwrap();
    }

    pub(crate) fn tls(&self, client_ca: Option<&Authority>) -> Tls {
        let client_ca = client_ca.map(|authority| {
            fs::write(self.path("ca.pem"), authority.0.pem()).unwrap();
            self.path("ca.pem")
        });
        Tls {
            certificate: self.path("cert.pem"),
            key: self.path("key.pem"),
            client_ca,
            client_crl: None,
        }
    }

    pub(crate) fn config(&self, certificate: Option<&(String, String)>) -> ClientConfig {
        self.config_of(rustls::DEFAULT_VERSIONS, certificate)
    }

    fn config_of(
        &self,
        versions: &[&'static rustls::SupportedProtocolVersion],
        certificate: Option<&(String, String)>,
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.root()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        match certificate {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        }
    }

    pub(crate) fn connect(&self, gateway: &Running, certificate: Option<&(String, String)>) -> Client<Secure> {
        connect(gateway.address(), self.config(certificate))
    }
}

fn connect(address: SocketAddr, config: ClientConfig) -> Client<Secure> {
    connect_with(address, Arc::new(config))
}

fn connect_with(address: SocketAddr, config: Arc<ClientConfig>) -> Client<Secure> {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    Client::over(StreamOwned::new(ClientConnection::new(config, name).unwrap(), socket))
}

/// The fields that lead a request to each of the paths.
const PATHS: [&[(&str, &str)]; 2] = [&[], &[("te", "trailers")]];

#[test]
fn both_paths_answer_requests_under_tls() {
    let files = Files::new();
    let gateway = start(|gateway| gateway.tls(files.tls(None)));
    assert!(gateway.url().starts_with("https://"));
    for way in PATHS {
        let mut client = files.connect(&gateway, None);
        let open = request("POST", "/api/section/S1/open", way, r#"{"capacity":5000}"#);
        assert_eq!(client.send(open).answer().status, 200);
        assert_eq!(
            client.request("GET", "/health/live", way, "").text(),
            r#"{"live":true}"#
        );
        let added: String = (0..200)
            .map(|number| {
                request(
                    "POST",
                    "/api/section/S1/add_student",
                    way,
                    &format!(r#"{{"student":"{number}"}}"#),
                )
            })
            .collect();
        client.send(added);
        for _ in 0..200 {
            assert_eq!(client.answer().status, 200);
        }
        let view = client.request("GET", "/api/section/S1", way, "").json();
        assert_eq!(view["students"].as_array().unwrap().len(), 200);
        // Large in both directions, so it takes many records.
        let title = "x".repeat(300_000);
        let renamed = client.request(
            "POST",
            "/api/section/S1/rename",
            way,
            &json!({ "title": title }).to_string(),
        );
        assert_eq!(renamed.status, 200);
        let events = client.request("GET", "/api/section/S1/events?after=100&limit=1000", way, "");
        assert!(events.text().contains(&title));
        // The end of the connection is announced.
        let mut rest = Vec::new();
        let closing = request("GET", "/health/live", &[("connection", "close")], "");
        client.send(closing).answer();
        let mut stream = client.into_inner();
        assert_eq!(std::io::Read::read_to_end(&mut stream, &mut rest).unwrap(), 0);
    }
}

#[test]
fn clients_without_tls_or_trust_are_refused_and_hold_up_none() {
    let files = Files::new();
    let gateway = start(|gateway| gateway.tls(files.tls(None)));
    let mut plain = Client::new(&gateway);
    plain.send("GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert!(plain.try_answer().is_err());
    let silent = TcpStream::connect(gateway.address()).unwrap();
    let other = Files::new();
    let mut client = connect(gateway.address(), other.config(None));
    let sent = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        client.request("GET", "/health/live", &[], "").status
    }));
    assert!(sent.is_err());
    assert_eq!(files.connect(&gateway, None).get("/health/live").status, 200);
    drop(silent);
    let told = || files.connect(&gateway, None).get("/metrics").text().to_owned();
    for reason in ["no_tls", "not_trusted"] {
        let line = format!("throng_http_tls_failures_total{{reason=\"{reason}\"}} 1");
        until(reason, || told().contains(&line));
    }
}

#[test]
fn a_handshake_that_was_not_done_holds_up_no_stop() {
    let files = Files::new();
    let limits = throng_http::Limits {
        header_wait: std::time::Duration::from_hours(1),
        drain: std::time::Duration::from_hours(1),
        ..throng_http::Limits::default()
    };
    let gateway = start(|gateway| gateway.tls(files.tls(None)).limits(limits));
    let _silent = TcpStream::connect(gateway.address()).unwrap();
    // This client is behind the other one in the listener's queue. Once it is served, the other was accepted, too.
    assert_eq!(files.connect(&gateway, None).get("/health/live").status, 200);
    gateway.stop_blocking();
}

#[test]
fn http2_is_agreed_on_and_a_websocket_opens() {
    let files = Files::new();
    let gateway = start(|gateway| gateway.tls(files.tls(None)));
    let mut config = files.config(None);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let mut stream = connect(gateway.address(), config.clone()).into_inner();
    stream.conn.complete_io(&mut stream.sock).unwrap();
    assert_eq!(stream.conn.alpn_protocol(), Some(b"h2".as_slice()));
    let mut frames = Frames::over(stream);
    for path in ["/health/live", "/none"] {
        let answer = frames.ask("HEAD", path, &[]);
        assert_eq!(
            (answer.kind, answer.flags & END_STREAM),
            (HEADERS, END_STREAM),
            "{path}"
        );
    }

    let stream = files.connect(&gateway, None).into_inner();
    let (mut socket, _) = tokio_tungstenite::tungstenite::client("wss://localhost/api/ws", stream).unwrap();
    let mut ask = |text: String| {
        socket
            .send(tokio_tungstenite::tungstenite::Message::text(text))
            .unwrap();
        socket.read().unwrap().into_text().unwrap().to_string()
    };
    let open = json!({ "type": "command", "id": 1, "kind": "section", "entity": "S1", "command": "open", "body": { "capacity": 9 } });
    assert!(ask(open.to_string()).contains("hello"));
    assert!(socket.read().unwrap().into_text().unwrap().contains("capacity"));
}

#[test]
fn certificates_are_read_again_without_a_restart() {
    let files = Files::new();
    let gateway = start(|gateway| gateway.tls(files.tls(None)));
    let shown = || {
        let mut stream = files.connect(&gateway, None).into_inner();
        stream.conn.complete_io(&mut stream.sock).unwrap();
        stream.conn.peer_certificates().unwrap()[0].clone()
    };
    let mut held = files.connect(&gateway, None);
    let first = shown();
    files.write(files.authority.serves(&["localhost", "new.example"]));
    while shown() == first {
        std::thread::yield_now();
    }
    // A half-written file has no effect.
    let second = shown();
    fs::write(files.path("cert.pem"), "-----BEGIN").unwrap();
    assert_eq!((shown(), held.get("/health/live").status), (second, 200));
    let error = Gateway::builder(crate::support::engine())
        .tls(files.tls(None))
        .start()
        .err()
        .unwrap();
    assert!(error.to_string().contains("cert.pem"), "{error}");
}

#[test]
fn certificate_that_expires_is_told_by_health_and_metrics() {
    let files = Files::new();
    let in_days = |days: u64| {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        params.not_after = date_time_ymd(1970, 1, 1) + since_epoch + Duration::from_hours(24 * days + 1);
        files.write(files.authority.signs(params));
    };
    in_days(40);
    let other = files.path("other");
    fs::write(&other, "first").unwrap();
    let read = Arc::new(Mutex::new(Vec::new()));
    let gateway = start(|gateway| {
        let read = read.clone();
        gateway
            .tls(files.tls(None))
            .watch_files(vec![other.clone()], move |files| match files {
                [text] if text != b"bad" => {
                    read.lock().unwrap().push(text.clone());
                    Ok(())
                }
                _ => Err("it is bad".into()),
            })
            // Nodes may use the same certificate.
            .watch_files(vec![files.path("cert.pem")], |_| Ok(()))
    });
    let told = |path: &str| files.connect(&gateway, None).get(path).text().to_owned();
    assert!(!told("/health/ready").contains("certificates"));
    in_days(20);
    until("it is told", || told("/health/ready").contains("expires at"));
    let ready = told("/health/ready");
    assert!(
        ready.contains("in 20 days") && ready.contains(r#""ready":true"#),
        "{ready}"
    );
    let metrics = told("/metrics");
    assert!(
        metrics.contains("throng_certificate_expiry_timestamp_seconds{file=") && metrics.contains("cert.pem"),
        "{metrics}"
    );

    fs::write(&other, "second").unwrap();
    until("it is read again", || read.lock().unwrap().len() == 2);
    fs::write(&other, "bad").unwrap();
    until("it is told", || told("/health/ready").contains("credentials"));
    assert_eq!(*read.lock().unwrap(), [b"first".to_vec(), b"second".to_vec()]);
    let series = metrics.matches("throng_certificate_expiry_timestamp_seconds{file=");
    assert_eq!(series.count(), 1, "a file read for two uses: {metrics}");
}

/// Returns a client's certificate with these names.
fn certificate(authority: &Authority, common: &str, names: Vec<SanType>) -> (String, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, common);
    params.subject_alt_names = names;
    authority.signs(params)
}

#[test]
fn a_clients_certificate_names_the_caller() {
    let (files, clients) = (Files::new(), Authority::new());
    let gateway = start(|gateway| gateway.tls(files.tls(Some(&clients))));
    let uri = SanType::URI("spiffe://example/desk".try_into().unwrap());
    let dns = SanType::DnsName("desk.example".try_into().unwrap());
    for (names, expected) in [
        (Vec::new(), "ann"),
        (vec![dns.clone()], "desk.example"),
        (vec![dns, uri], "spiffe://example/desk"),
    ] {
        let shown = certificate(&clients, "ann", names);
        for way in PATHS {
            let mut client = files.connect(&gateway, Some(&shown));
            let path = format!("/api/section/{}", if way.is_empty() { "L" } else { "F" });
            let open = client.request("POST", &format!("{path}/open"), way, r#"{"capacity":9}"#);
            assert_eq!(open.status, 200);
            let signed = client.request("POST", &format!("{path}/sign"), way, "{}").json();
            assert_eq!(signed["students"].as_array().unwrap().last(), Some(&json!(expected)));
        }
    }
    for way in PATHS {
        let mut nobody = files.connect(&gateway, None);
        nobody
            .request("POST", "/api/section/L/sign", way, "{}")
            .problem(401, "unauthorized");
        assert_eq!(nobody.request("GET", "/health/ready", way, "").status, 200);
    }
    let forged = certificate(&Authority::new(), "ann", Vec::new());
    let mut client = files.connect(&gateway, Some(&forged));
    let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        client.request("GET", "/api/section", &[], "").status
    }));
    assert!(asked.is_err(), "a certificate that nobody known has signed");
}

#[test]
fn session_of_a_client_certificate_is_not_resumed() {
    let (files, clients) = (Files::new(), Authority::new());
    let shown = certificate(&clients, "ann", Vec::new());
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        for (client_ca, expected) in [
            (Some(&clients), rustls::HandshakeKind::Full),
            (None, rustls::HandshakeKind::Resumed),
        ] {
            let gateway = start(|gateway| gateway.tls(files.tls(client_ca)));
            let config = Arc::new(files.config_of(&[version], client_ca.map(|_| &shown)));
            let kind = || {
                let mut client = connect_with(gateway.address(), config.clone());
                assert_eq!(client.request("GET", "/api/section", &[], "").status, 200);
                client.into_inner().conn.handshake_kind()
            };
            assert_eq!(kind(), Some(rustls::HandshakeKind::Full));
            assert_eq!(kind(), Some(expected), "{version:?}");
        }
    }
}

#[test]
fn a_revoked_client_certificate_is_refused_from_then_on() {
    let (files, clients) = (Files::new(), Authority::new());
    let list = files.path("revoked.pem");
    fs::write(&list, clients.revokes(&[1])).unwrap();
    let client_crl = Some(list.clone());
    let tls = files.tls(Some(&clients));
    let gateway = start(|gateway| gateway.tls(Tls { client_crl, ..tls }));
    let [first, second] = [1_u64, 2].map(|number| {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "ann");
        params.serial_number = Some(number.into());
        clients.signs(params)
    });
    let is_taken = |shown: &(String, String)| {
        let mut stream = files.connect(&gateway, Some(shown)).into_inner();
        let asked = std::io::Write::write_all(&mut stream, request("GET", "/api/section", &[], "").as_bytes());
        asked.is_ok()
            && Client::over(stream)
                .try_answer()
                .is_ok_and(|answer| answer.status == 200)
    };
    assert!(!is_taken(&first) && is_taken(&second));
    fs::write(&list, clients.revokes(&[1, 2])).unwrap();
    while is_taken(&second) {
        std::thread::yield_now();
    }
    fs::write(&list, "").unwrap();
    let client_crl = Some(list);
    let tls = files.tls(Some(&clients));
    let error = Gateway::builder(crate::support::engine())
        .tls(Tls { client_crl, ..tls })
        .start()
        .err()
        .unwrap();
    assert!(error.to_string().contains("no list of revoked certificates"), "{error}");
}

#[test]
fn loopback_administration_needs_no_service_certificate() {
    let files = Files::new();
    let gateway = start(|gateway| gateway.tls(files.tls(None)).admin(([127, 0, 0, 1], 0).into()));
    assert_eq!(Client::of(gateway.admin_address().unwrap()).get("/metrics").status, 200);
    drop(plain());
    assert!(Path::new(&files.path("key.pem")).exists());
}

#[test]
fn health_has_a_place_under_tls_when_all_are_taken() {
    let files = Files::new();
    let gateway = start(|gateway| {
        let gateway = gateway.tls(files.tls(None));
        gateway.adjust_limits(|limits| limits.connections_max = 1)
    });
    let mut only = files.connect(&gateway, None);
    assert_eq!(only.get("/api/section").status, 200);
    let mut config = files.config(None);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    for config in [files.config(None), config] {
        let mut probe = connect(gateway.address(), config.clone());
        assert_eq!(probe.get("/health/live").status, 200);
        connect(gateway.address(), config)
            .get("/api/section")
            .problem(503, "overloaded");
    }
    assert_eq!(only.get("/api/section").status, 200);
}

#[test]
fn key_that_asks_for_a_passphrase_is_said_to_be_one() {
    let files = Files::new();
    for key in [
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nAAAA\n-----END RSA PRIVATE KEY-----\n",
    ] {
        fs::write(files.path("key.pem"), key).unwrap();
        let started = Gateway::builder(crate::support::engine()).tls(files.tls(None)).start();
        let error = started.err().unwrap().to_string();
        assert!(error.contains("encrypted") && error.contains("passphrase"), "{error}");
        assert!(
            error.starts_with(&files.path("key.pem").display().to_string()),
            "{error}"
        );
    }
}

#[test]
fn fault_of_a_tls_file_names_that_file() {
    for name in ["cert.pem", "key.pem", "ca.pem", "revoked.pem"] {
        let files = Files::new();
        let mut tls = files.tls(Some(&files.authority));
        fs::write(files.path("revoked.pem"), files.authority.revokes(&[1])).unwrap();
        tls.client_crl = Some(files.path("revoked.pem"));
        fs::write(files.path(name), "nothing of that").unwrap();
        let started = Gateway::builder(crate::support::engine()).tls(tls).start();
        let error = started.err().unwrap().to_string();
        assert!(error.starts_with(&files.path(name).display().to_string()), "{error}");
    }
}
