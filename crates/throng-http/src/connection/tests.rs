use super::*;
use tokio::sync::Notify;

const BOUNDS: Bounds = Bounds {
    idle: 75,
    header: 10,
    body: 30,
    silence: 20,
    write: 30,
    linger: 2,
    body_grace: 5,
    body_bytes_a_tick: 1_000,
    write_bytes_a_tick: 1_000,
};

fn connection() -> (Rc<Ticks>, Connection) {
    let ticks = Rc::new(Ticks::default());
    (ticks.clone(), Connection::new(ticks, Rc::default()))
}

fn after(ticks: &Ticks, connection: &Connection, count: u32) -> Verdict {
    (0..count).for_each(|_| ticks.tick());
    connection.sweep(&BOUNDS);
    connection.verdict()
}

#[test]
fn only_trusted_proxies_may_name_the_client_in_a_header() {
    let (_, connection) = connection();
    let believed = |address: &str, proxies: &[&str]| {
        let proxies: Vec<IpAddr> = proxies.iter().map(|proxy| proxy.parse().unwrap()).collect();
        connection.came_from(address.parse().unwrap(), &proxies);
        connection.is_believed()
    };
    assert!(believed("203.0.113.9", &[]));
    assert!(believed("10.0.0.1", &["10.0.0.2", "10.0.0.1"]) && believed("::ffff:10.0.0.1", &["10.0.0.1"]));
    assert!(!believed("10.0.0.3", &["10.0.0.2", "10.0.0.1"]) && !believed("::1", &["10.0.0.1"]));
}

#[test]
fn an_idle_connection_finishes_after_its_bound() {
    let (ticks, connection) = connection();
    assert_eq!(after(&ticks, &connection, 75), Verdict::Serve);
    assert_eq!(after(&ticks, &connection, 1), Verdict::Finish);
}

#[test]
fn a_head_that_does_not_come_to_its_end_ends_the_connection() {
    let (ticks, connection) = connection();
    connection.came();
    assert_eq!(after(&ticks, &connection, 10), Verdict::Serve);
    connection.came();
    assert_eq!(
        after(&ticks, &connection, 1),
        Verdict::Drop,
        "a byte now and then does not help"
    );
}

#[test]
fn a_request_the_engine_works_on_may_take_its_time() {
    let (ticks, connection) = connection();
    connection.came();
    let in_flight = connection.begin(http::Version::HTTP_11);
    assert_eq!(after(&ticks, &connection, 1_000), Verdict::Serve);
    drop(in_flight);
    assert_eq!(after(&ticks, &connection, 75), Verdict::Serve);
}

#[test]
fn a_client_that_takes_nothing_is_cut_off() {
    let (ticks, connection) = connection();
    let _in_flight = connection.begin(http::Version::HTTP_11);
    connection.blocks();
    assert_eq!(after(&ticks, &connection, 30), Verdict::Serve);
    connection.went(1);
    assert_eq!(after(&ticks, &connection, 30), Verdict::Serve);
    connection.blocks();
    assert_eq!(after(&ticks, &connection, 31), Verdict::Drop);
}

#[test]
fn a_body_that_is_late_is_told_so_and_its_connection_lives() {
    let (ticks, connection) = connection();
    let _in_flight = connection.begin(http::Version::HTTP_2);
    let (mut late, mut in_time) = (Coming::new(&connection), Coming::new(&connection));
    assert!(late.waits(Waker::noop()));
    late.came(1 << 20);
    assert_eq!(after(&ticks, &connection, 20), Verdict::Serve);
    assert!(late.waits(Waker::noop()) && in_time.waits(Waker::noop()));
    in_time.came(1 << 20);
    // The end of another request has no effect.
    drop(connection.begin(http::Version::HTTP_2));
    assert_eq!(after(&ticks, &connection, 11), Verdict::Serve);
    assert!(!late.waits(Waker::noop()) && in_time.waits(Waker::noop()));
    drop(late);
    assert!(
        Coming::new(&connection).waits(Waker::noop()),
        "the next one has its own time"
    );
}

#[test]
fn a_body_that_comes_too_slowly_is_late_after_some_grace() {
    let (ticks, connection) = connection();
    let _in_flight = connection.begin(http::Version::HTTP_11);
    let (mut slow, mut quick) = (Coming::new(&connection), Coming::new(&connection));
    assert!(slow.waits(Waker::noop()) && quick.waits(Waker::noop()));
    assert_eq!(after(&ticks, &connection, 5), Verdict::Serve);
    assert!(slow.waits(Waker::noop()), "nothing may come for a while");
    slow.came(5_999);
    quick.came(6_000);
    assert_eq!(after(&ticks, &connection, 1), Verdict::Serve);
    assert!(!slow.waits(Waker::noop()) && quick.waits(Waker::noop()));
}

#[test]
fn an_untaken_answer_ends_its_connection_but_an_idle_stream_not() {
    let (ticks, connection) = connection();
    let connection = Rc::new(connection);
    drop(connection.begin(http::Version::HTTP_2));
    let going = Going::new(connection.clone());
    assert_eq!(
        after(&ticks, &connection, 1_000),
        Verdict::Serve,
        "it has nothing to give"
    );
    going.given(1);
    assert_eq!(after(&ticks, &connection, 30), Verdict::Serve);
    going.asked();
    assert_eq!(after(&ticks, &connection, 30), Verdict::Serve);
    going.given(1);
    connection.came();
    assert_eq!(after(&ticks, &connection, 31), Verdict::Drop);
}

#[test]
fn pings_keep_no_connection_and_unfinished_ones_are_dropped() {
    let (ticks, connection) = connection();
    connection.speaks_http2();
    assert_eq!(after(&ticks, &connection, 75), Verdict::Serve);
    connection.came();
    connection.went(1);
    assert_eq!(after(&ticks, &connection, 1), Verdict::Finish);
    assert_eq!(after(&ticks, &connection, 1), Verdict::Finish);
    assert_eq!(after(&ticks, &connection, 2), Verdict::Finish);
    assert_eq!(after(&ticks, &connection, 1), Verdict::Drop);
}

#[test]
fn the_owner_of_a_silent_socket_alone_is_told() {
    let (ticks, connection) = connection();
    for asks in [false, true, false] {
        connection.asks_if_silent(asks);
        connection.went(1);
        assert_eq!(after(&ticks, &connection, 20), Verdict::Serve);
        assert!(!connection.is_silent());
        assert_eq!(after(&ticks, &connection, 1), Verdict::Serve);
        assert_eq!(connection.is_silent(), asks);
    }
}

#[test]
fn http2_connection_that_was_told_its_end_waits_for_no_ping() {
    for (version, bound) in [(http::Version::HTTP_2, 2), (http::Version::HTTP_11, 30)] {
        let (ticks, connection) = connection();
        drop(connection.begin(version));
        assert_eq!(after(&ticks, &connection, 76), Verdict::Finish);
        assert_eq!(after(&ticks, &connection, 0), Verdict::Finish);
        let request_on_its_way = connection.begin(version);
        assert_eq!(after(&ticks, &connection, 40), Verdict::Finish);
        drop(request_on_its_way);
        assert_eq!(after(&ticks, &connection, 0), Verdict::Finish);
        assert_eq!(
            after(&ticks, &connection, bound),
            Verdict::Finish,
            "a request may be on its way"
        );
        assert_eq!(after(&ticks, &connection, 1), Verdict::Drop);
    }
}

#[test]
fn client_that_takes_less_than_the_least_rate_is_cut_off() {
    for (bytes, verdict) in [(900, Verdict::Drop), (1_000, Verdict::Serve)] {
        let (ticks, connection) = connection();
        let _in_flight = connection.begin(http::Version::HTTP_11);
        connection.went(1 << 30);
        for tick in 0..200 {
            connection.went(bytes);
            connection.blocks();
            let found = after(&ticks, &connection, 1);
            assert!(tick >= 30 || found == Verdict::Serve, "{tick}");
        }
        assert_eq!(connection.verdict(), verdict, "{bytes} bytes a tick");
    }
}

#[test]
fn stream_that_mostly_has_nothing_to_send_is_not_slow() {
    let (ticks, connection) = connection();
    let _in_flight = connection.begin(http::Version::HTTP_11);
    for _ in 0..100 {
        connection.went(1);
        connection.blocks();
        connection.went(1);
        assert_eq!(after(&ticks, &connection, 2), Verdict::Serve);
        assert_eq!(after(&ticks, &connection, 1), Verdict::Serve);
    }
}

#[test]
fn slow_http2_stream_is_reset_and_the_others_go_on() {
    let (ticks, connection) = connection();
    let connection = Rc::new(connection);
    let _in_flight = [(); 2].map(|()| connection.begin(http::Version::HTTP_2));
    let next = Rc::new(Notify::new());
    // Opens a stream that takes this many bytes each tick. It lives as long as the returned value has another owner.
    let open = |bytes: usize| {
        let lives = Rc::new(());
        let (connection, next, held) = (connection.clone(), next.clone(), lives.clone());
        spawn_stream(async move {
            let (going, _held) = (Going::new(connection), held);
            loop {
                going.given(bytes);
                next.notified().await;
                going.asked();
            }
        });
        lives
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let (slow, quick) = (open(499), open(1_000));
        for _ in 0..100 {
            tokio::task::yield_now().await;
            next.notify_waiters();
            tokio::task::yield_now().await;
            assert_eq!(after(&ticks, &connection, 1), Verdict::Serve);
        }
        assert_eq!((Rc::strong_count(&slow), Rc::strong_count(&quick)), (1, 2));
        // No bytes of any stream are taken.
        assert_eq!(after(&ticks, &connection, 29), Verdict::Serve);
        assert_eq!(after(&ticks, &connection, 2), Verdict::Drop);
    });
}
