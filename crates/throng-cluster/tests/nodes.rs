//! Nodes that communicate over real connections. The actions of their engines are recorded.
#![allow(clippy::unwrap_used, reason = "tests")]

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose};
use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use throng::driver::peers::{Ask, Asked, Peers as _, Reply, Request};
use throng_cluster::{Host, Links, Node, NodeError, NodeOptions, Timing, Trust, frame::Secret};
use throng_journal::{
    Directory, Error, FEATURES, Join, Later, MemoryDirectory, MemoryJournal, NodeId, NodeState, ShardId, ShardSet,
    features,
};
use throng_testing::{PATIENCE, block_on as wait, until};
use tokio::runtime::{Handle, Runtime};

const SHARDS: u16 = 16;

/// An engine that only records its instructions.
#[derive(Default)]
struct Noted {
    serves: Mutex<Option<ShardSet>>,
    asked: Mutex<Vec<String>>,
    at_work: AtomicUsize,
    /// Requests to this entity are never answered.
    held: Option<&'static str>,
}

struct Engine(Arc<Noted>, MemoryJournal);

impl Host for Engine {
    fn serve(&self, node: NodeId, shards: ShardSet) -> Later<'static, Result<(), Error>> {
        use throng_journal::Journal as _;
        let (noted, journal) = (self.0.clone(), self.1.clone());
        Box::pin(async move {
            journal.open_shards(node, &shards).await?;
            *noted.serves.lock().unwrap() = Some(shards);
            Ok(())
        })
    }

    fn release(&self) -> Later<'static, Result<(), Error>> {
        // The stream goes on, so no shard can be given away.
        Box::pin(std::future::ready(Ok(())))
    }

    fn answer(&self, request: Request, _: Duration) -> Later<'static, Reply> {
        let noted = self.0.clone();
        let Request::Ask(ask) = request else {
            return Box::pin(std::future::ready(Reply::NotHere));
        };
        noted.asked.lock().unwrap().push(ask.id.clone());
        Box::pin(async move {
            noted.at_work.fetch_add(1, SeqCst);
            if noted.held == Some(&*ask.id) {
                std::future::pending::<()>().await;
            }
            noted.at_work.fetch_sub(1, SeqCst);
            Reply::Done(ask.id.into_bytes())
        })
    }
}

struct Started {
    node: Option<Node>,
    links: Links,
    noted: Arc<Noted>,
}

fn by_secret(secret: &[u8]) -> Trust {
    Trust::by_secret(Secret::new(secret))
}

fn start(
    directory: &MemoryDirectory,
    journal: &MemoryJournal,
    name: &str,
    trust: Trust,
    held: Option<&'static str>,
) -> Started {
    start_on(Vec::new(), directory, journal, name, trust, held)
}

fn start_on(
    loops: Vec<Handle>,
    directory: &MemoryDirectory,
    journal: &MemoryJournal,
    name: &str,
    trust: Trust,
    held: Option<&'static str>,
) -> Started {
    try_start(loops, directory, journal, name, trust, held).unwrap()
}

fn try_start(
    loops: Vec<Handle>,
    directory: &MemoryDirectory,
    journal: &MemoryJournal,
    name: &str,
    trust: Trust,
    held: Option<&'static str>,
) -> Result<Started, NodeError> {
    advertised((name, ""), loops, (directory, journal), trust, held)
}

/// Starts a node that advertises this address, or the one where it listens.
fn advertised(
    (name, peer): (&str, &str),
    loops: Vec<Handle>,
    (directory, journal): (&MemoryDirectory, &MemoryJournal),
    trust: Trust,
    held: Option<&'static str>,
) -> Result<Started, NodeError> {
    let links = Links::new(SHARDS, trust.clone());
    let noted = Arc::new(Noted {
        held,
        ..Noted::default()
    });
    let options = NodeOptions {
        join: Join {
            name: name.into(),
            peer: peer.into(),
            features: FEATURES,
            shards: SHARDS,
            ..Join::default()
        },
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        trust,
        // Nodes check often, but none is declared dead on a busy machine.
        timing: Timing {
            lease: PATIENCE,
            ..Timing::of(Duration::from_secs(1))
        },
        standby: None,
        loops,
    };
    let host = Arc::new(Engine(noted.clone(), journal.clone()));
    let node = Node::start(Arc::new(directory.clone()), host, links.clone(), options)?;
    Ok(Started {
        node: Some(node),
        links,
        noted,
    })
}

fn ask(links: &Links, shard: u16, id: &str, within: Duration) -> Later<'static, Reply> {
    let request = Request::Ask(Ask {
        kind: "show".into(),
        id: id.into(),
        what: Asked::Query {
            name: "view".into(),
            arguments: String::new(),
        },
        caller: None,
    });
    links.ask(ShardId(shard), request, within)
}

/// Waits until a node has checked the cluster three more times. By then it has tried to connect.
fn looks_again(started: &Started) {
    let looked = || started.node.as_ref().unwrap().status().looked;
    for _ in 0..3 {
        let before = looked();
        until("it looks again", || looked() != before);
    }
}

/// Returns the first node, which serves everything, and a second one that is connected to it and owns nothing.
fn pair(held: Option<&'static str>) -> (MemoryDirectory, MemoryJournal, Started, Started) {
    pair_that_trusts([by_secret(b"secret"), by_secret(b"secret")], held)
}

fn pair_that_trusts(
    [of_one, of_other]: [Trust; 2],
    held: Option<&'static str>,
) -> (MemoryDirectory, MemoryJournal, Started, Started) {
    let journal = MemoryJournal::new();
    let directory = journal.directory();
    let one = start(&directory, &journal, "one", of_one, held);
    until("the first one serves", || {
        one.noted
            .serves
            .lock()
            .unwrap()
            .as_ref()
            .is_some_and(|all| all.len() == 16)
    });
    // The directory gives no shards away until the first node's stream has ended, and this engine never ends one.
    let other = start(&directory, &journal, "other", of_other, None);
    until("they are connected", || {
        other
            .node
            .as_ref()
            .is_some_and(|node| !node.status().connected.is_empty())
    });
    (directory, journal, one, other)
}

#[test]
fn requests_reach_the_owner_in_the_order_they_were_made() {
    let (_directory, _journal, one, other) = pair(None);
    let asked: Vec<_> = (0..2_000)
        .map(|number| ask(&other.links, 3, &number.to_string(), PATIENCE))
        .collect();
    for (number, reply) in asked.into_iter().enumerate() {
        assert_eq!(wait(reply), Reply::Done(number.to_string().into_bytes()));
    }
    let expected: Vec<String> = (0..2_000).map(|number| number.to_string()).collect();
    assert_eq!(*one.noted.asked.lock().unwrap(), expected);
}

#[test]
fn a_timed_out_request_is_unknown_and_holds_up_no_other() {
    let (_directory, _journal, one, other) = pair(Some("late"));
    // On a busy machine the request may time out before it is sent.
    until("it is told before the answer is there", || {
        let told = wait(ask(&other.links, 3, "late", Duration::from_millis(100)));
        one.noted.at_work.load(SeqCst) > 0 && told == Reply::Unknown
    });
    assert_eq!(
        wait(ask(&other.links, 3, "patient", PATIENCE)),
        Reply::Done(b"patient".to_vec())
    );
    assert!(one.noted.asked.lock().unwrap().contains(&"late".to_owned()));
}

#[test]
fn waiters_on_loops_are_told_when_their_connection_ends() {
    let (directory, journal, one, _other) = pair(Some("sent"));
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let builder = builder.worker_threads(1).enable_all();
    let loops: Vec<Runtime> = (0..2).map(|_| builder.build().unwrap()).collect();
    let handles = loops.iter().map(|one| one.handle().clone()).collect();
    let third = start_on(handles, &directory, &journal, "third", by_secret(b"secret"), None);
    until("it is connected", || {
        third
            .node
            .as_ref()
            .is_some_and(|node| node.status().connected.len() == 2)
    });
    let before: usize = loops.iter().map(|one| one.metrics().num_alive_tasks()).sum();
    assert!(before >= 2, "{before} connections are worked there");
    let sent = ask(&third.links, 3, "sent", PATIENCE);
    until("it is worked on", || one.noted.at_work.load(SeqCst) > 0);
    loops.into_iter().for_each(Runtime::shutdown_background);
    assert_eq!(wait(sent), Reply::Unknown);
    assert_eq!(wait(ask(&third.links, 3, "late", PATIENCE)), Reply::NotHere);
}

#[test]
fn requests_to_an_ending_node_are_unknown_then_unreachable() {
    let (_directory, _journal, mut one, other) = pair(Some("sent"));
    let sent = ask(&other.links, 3, "sent", PATIENCE);
    until("it is worked on", || one.noted.at_work.load(SeqCst) > 0);
    drop(one.node.take());
    assert_eq!(wait(sent), Reply::Unknown);
    until("nobody is there", || {
        wait(ask(&other.links, 3, "after", Duration::from_millis(200))) == Reply::NotHere
    });
}

#[test]
fn a_node_with_another_secret_or_none_is_refused_at_its_start() {
    let (directory, journal, one, other) = pair(None);
    for secret in [&b"another"[..], b""] {
        let started = try_start(Vec::new(), &directory, &journal, "stranger", by_secret(secret), None);
        let said = started.err().unwrap().to_string();
        assert!(
            said.starts_with("node one at 127.0.0.1:") && said.contains("--cluster-secret-file"),
            "{said}"
        );
    }
    let names: Vec<_> = wait(directory.view())
        .unwrap()
        .nodes
        .into_iter()
        .map(|node| node.said.name)
        .collect();
    assert_eq!(names, ["one", "other"], "nothing was changed");
    drop((one, other));
    // Nodes that are gone are no objection to it.
    drop(start(&directory, &journal, "alone", by_secret(b"another"), None));
}

/// Returns true if a node owns nothing, and gives the reason in these words.
fn is_apart(started: &Started, words: &[&str]) -> bool {
    let status = started.node.as_ref().unwrap().status();
    let is_told = status
        .apart
        .is_some_and(|why| words.iter().all(|word| why.contains(word)));
    let own = status.view.node(status.node);
    is_told && own.is_some_and(|own| own.state == NodeState::Draining)
}

#[test]
fn node_at_a_wrong_address_owns_nothing_and_names_why() {
    let (directory, journal, one, _other) = pair(None);
    let peer_of_one = wait(directory.view()).unwrap().nodes[0].said.peer.clone();
    for (name, peer) in [
        ("closed", "127.0.0.1:1"),
        ("unknown", "nowhere.invalid:7400"),
        ("of-one", &peer_of_one),
    ] {
        let trust = by_secret(b"secret");
        let stranger = advertised((name, peer), Vec::new(), (&directory, &journal), trust, None).unwrap();
        let words = [
            "does not reach itself",
            peer,
            "--peer-advertise",
            "not reached at",
            "by one at",
        ];
        until(name, || is_apart(&stranger, &words));
        let id = stranger.node.as_ref().unwrap().status().node;
        let view = one.node.as_ref().unwrap().status().view;
        assert!(view.shards_of(Some(id)).is_empty());
    }
}

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Issues a certificate for this host. Returns it with its key.
    fn certify(&self, host: &str, change: impl FnOnce(&mut CertificateParams)) -> [String; 2] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([host.to_owned()]).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&key, &self.0).unwrap().pem();
        [certificate, key.serialize_pem()]
    }

    /// Returns the trust of a node on this host, which accepts certificates of the same authority.
    fn trust(&self, host: &str) -> Trust {
        let trust = by_secret(b"secret");
        set_tls(&trust, &self.certify(host, |_| {}), &self.0.pem());
        trust
    }
}

fn set_tls(trust: &Trust, [certificate, key]: &[String; 2], roots: &str) {
    let set = trust.set_tls(certificate.as_bytes(), key.as_bytes(), roots.as_bytes());
    set.unwrap();
}

/// Starts a node, waits until it is connected to both nodes of a pair, and stops it.
fn newcomer_is_taken_in(directory: &MemoryDirectory, journal: &MemoryJournal, name: &str, trust: &Trust) {
    let started = start(directory, journal, name, trust.clone(), None);
    let node = started.node.unwrap();
    until(name, || {
        let status = node.status();
        status.connected.len() == 2 && status.apart.is_none()
    });
    node.leave();
}

/// Each step changes one node, then the other. In between a node joins that has already done the step.
#[test]
fn secret_changes_node_by_node_while_nodes_come_in() {
    let secrets = |trust: &Trust, names: &[&str]| {
        let mut secrets = names.iter().map(|name| Secret::new(name.as_bytes()));
        trust.set_secrets(secrets.next().unwrap(), secrets);
    };
    let trusts = [by_secret(b"old"), by_secret(b"old")];
    let (directory, journal, one, other) = pair_that_trusts(trusts.clone(), None);
    let steps = [&["old", "new"][..], &["new", "old"], &["new"]];
    for (number, step) in steps.iter().enumerate() {
        secrets(&trusts[0], step);
        let newcomer = by_secret(b"");
        secrets(&newcomer, step);
        newcomer_is_taken_in(&directory, &journal, &format!("n{number}"), &newcomer);
        secrets(&trusts[1], step);
    }
    let refused = try_start(Vec::new(), &directory, &journal, "late", by_secret(b"old"), None);
    let said = refused.err().unwrap().to_string();
    assert!(said.contains("--cluster-secret-file"), "{said}");
    drop((one, other));
}

#[test]
fn certificates_and_ca_change_node_by_node_while_nodes_come_in() {
    let (old, new) = (Authority::new(), Authority::new());
    let here = "127.0.0.1";
    let own: [[String; 2]; 2] = std::array::from_fn(|_| old.certify(here, |_| {}));
    let renewed: [[String; 2]; 2] = std::array::from_fn(|_| new.certify(here, |_| {}));
    let trusts = [by_secret(b"secret"), by_secret(b"secret")];
    for (trust, own) in trusts.iter().zip(&own) {
        set_tls(trust, own, &old.0.pem());
    }
    let (directory, journal, one, other) = pair_that_trusts(trusts.clone(), None);
    let both = old.0.pem() + &new.0.pem();
    let steps = [(&own, &both), (&renewed, &both), (&renewed, &new.0.pem())];
    for (number, (certificates, roots)) in steps.into_iter().enumerate() {
        set_tls(&trusts[0], &certificates[0], roots);
        let newcomer = by_secret(b"secret");
        let signer = if number == 0 { &old } else { &new };
        set_tls(&newcomer, &signer.certify(here, |_| {}), roots);
        newcomer_is_taken_in(&directory, &journal, &format!("n{number}"), &newcomer);
        set_tls(&trusts[1], &certificates[1], roots);
    }
    let stranger = start(&directory, &journal, "late", old.trust(here), None);
    until("the old CA is not taken any more", || {
        is_apart(&stranger, &["does not reach one at", "not reached at"])
    });
    drop((one, other));
}

#[test]
fn under_tls_nodes_need_a_certificate_of_the_same_authority() {
    let authority = Authority::new();
    let trusts = [authority.trust("127.0.0.1"), authority.trust("127.0.0.1")];
    let (directory, journal, _one, other) = pair_that_trusts(trusts, None);
    let within = PATIENCE;
    let long = "x".repeat(1 << 20);
    assert_eq!(
        wait(ask(&other.links, 3, &long, within)),
        Reply::Done(long.clone().into_bytes())
    );
    let strangers = [
        ("plain", by_secret(b"secret")),
        ("of-others", Authority::new().trust("127.0.0.1")),
    ];
    for (name, trust) in strangers {
        let stranger = start(&directory, &journal, name, trust, None);
        until(name, || {
            is_apart(&stranger, &["does not reach one at", "not reached at"])
        });
        let asked = wait(ask(&stranger.links, 3, "x", PATIENCE));
        assert_eq!(asked, Reply::NotHere, "{name}");
    }
    // A node that cannot be authenticated is not asked.
    let elsewhere = start(
        &directory,
        &journal,
        "elsewhere",
        authority.trust("elsewhere.example"),
        None,
    );
    until("it asks", || {
        wait(ask(&elsewhere.links, 3, "x", within)) == Reply::Done(b"x".to_vec())
    });
    until("it owns nothing", || {
        is_apart(&elsewhere, &["does not reach itself", "by one at"])
    });
    looks_again(&other);
    let id = elsewhere.node.as_ref().unwrap().status().node;
    assert!(!other.node.as_ref().unwrap().status().connected.contains(&id));
}

#[test]
fn certificates_and_keys_that_are_none_are_told() {
    let authority = Authority::new();
    let root = authority.0.pem();
    let said = |certificate: &str, key: &str, roots: &str| {
        let trust = by_secret(b"secret").with_tls(certificate.as_bytes(), key.as_bytes(), roots.as_bytes());
        trust.err().unwrap()
    };
    assert!(said("", "", &root).contains("there is no certificate in it"));
    assert!(said(&root, "no key", &root).contains("the private key"));
    let others = KeyPair::generate().unwrap().serialize_pem();
    assert!(said(&root, &others, &root).contains("certificate and key"));
}

#[test]
fn a_stranger_is_told_so_or_cut_off() {
    let (directory, _journal, one, _other) = pair(None);
    let view = wait(directory.view()).unwrap();
    let refused = || one.node.as_ref().unwrap().status().refused;
    let before = refused();
    for hostile in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"THF1\xff\xff\xff\xff\0\0\0\0\0\0\0\0",
        &[0; 64],
    ] {
        let mut stream = TcpStream::connect(&view.nodes[0].said.peer).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(hostile).unwrap();
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        assert!(said.starts_with(b"THF1"), "it says why: {said:?}");
    }
    until("each is counted", || refused() >= before + 3);
}

#[test]
fn silent_strangers_are_bounded_and_nodes_enter_once_they_left() {
    let (directory, journal, _one, _other) = pair(None);
    let view = wait(directory.view()).unwrap();
    let silent: Vec<TcpStream> = (0..200)
        .map(|_| TcpStream::connect(&view.nodes[0].said.peer).unwrap())
        .collect();
    let is_closed = |stream: &TcpStream| {
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        matches!((&*stream).read(&mut [0; 1]), Ok(0)) || stream.take_error().unwrap().is_some()
    };
    until("some are closed at once", || {
        silent.iter().filter(|stream| is_closed(stream)).count() >= 100
    });
    drop(silent);
    let late = start(&directory, &journal, "late", by_secret(b"secret"), None);
    until("a node comes in", || {
        wait(ask(&late.links, 3, "x", Duration::from_secs(1))) == Reply::Done(b"x".to_vec())
    });
}

#[test]
fn silent_strangers_give_way_to_newcomers() {
    let (directory, _journal, _one, _other) = pair(None);
    let peer = &wait(directory.view()).unwrap().nodes[0].said.peer;
    let silent: Vec<TcpStream> = (0..64).map(|_| TcpStream::connect(peer).unwrap()).collect();
    let mut stream = TcpStream::connect(peer).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"THF1\xff\xff\xff\xff\0\0\0\0\0\0\0\0").unwrap();
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    assert!(
        said.starts_with(b"THF1"),
        "it is heard, and told why it is refused: {said:?}"
    );
    drop(silent);
}

#[test]
fn a_node_of_an_older_program_is_known_by_name_while_it_lives() {
    let (directory, _journal, one, other) = pair(None);
    let older = |started: &Started| started.links.without_feature(features::ERASES);
    let join = Join {
        name: "old".into(),
        shards: SHARDS,
        ..Join::default()
    };
    let old = wait(directory.join(join)).unwrap();
    until("both know it", || {
        [&one, &other].iter().all(|node| older(node) == Some("old".into()))
    });
    assert_eq!(one.links.without_feature(0), None);
    wait(directory.leave(old)).unwrap();
    until("it is gone", || older(&one).is_none() && older(&other).is_none());
}

#[test]
fn one_look_shows_a_newer_node_and_one_look_shows_it_gone() {
    let (directory, _journal, one, other) = pair(None);
    let newer = |started: &Started| {
        wait(started.links.looked());
        started.links.newer()
    };
    assert_eq!((newer(&one), newer(&other)), (None, None));
    let join = Join {
        name: "new".into(),
        app: 1,
        features: FEATURES,
        shards: SHARDS,
        ..Join::default()
    };
    let new = wait(directory.join(join)).unwrap();
    assert_eq!((newer(&one), newer(&other)), (Some("new".into()), Some("new".into())));
    wait(directory.leave(new)).unwrap();
    assert_eq!((newer(&one), newer(&other)), (None, None));
}

#[test]
fn a_port_that_is_taken_is_told() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let journal = MemoryJournal::new();
    let trust = by_secret(b"secret");
    let options = NodeOptions {
        join: Join {
            name: "one".into(),
            shards: SHARDS,
            ..Join::default()
        },
        listen: taken.local_addr().unwrap(),
        trust: trust.clone(),
        timing: Timing::default(),
        standby: None,
        loops: Vec::new(),
    };
    let host = Arc::new(Engine(Arc::default(), journal.clone()));
    let refused = Node::start(Arc::new(journal.directory()), host, Links::new(SHARDS, trust), options);
    let said = refused.err().unwrap().to_string();
    assert!(said.contains("cannot listen for other nodes"), "{said}");
}
