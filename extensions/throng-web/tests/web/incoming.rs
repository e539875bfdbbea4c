//! Incoming webhooks: those accepted, once and after their commit, and those refused.

use super::{
    outgoing::secret,
    provider::{Provider, answer},
    shop::{self, Order, Payments},
};
use std::{
    io::ErrorKind,
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::SeqCst},
    },
};
use throng::{
    Engine,
    host::{Host, TokioHost},
    journal::{Journal, MemoryJournal, MemoryStore},
    model::Timestamp,
};
use throng_http::{Gateway, Problem, Running};
use throng_testing::{
    Client, HeldJournal, JSON, PATIENCE, Response, block_on, delegate,
    fixtures::{Command, Counter, Hits},
    in_memory, start_on, until,
};
use throng_web::{HttpClient, Received, Receiver, Webhooks};

/// Hits the counter that the webhook names. `refused` names one that refuses.
async fn hit(engine: Engine, webhook: Received) -> Result<(), Problem> {
    let name: String = webhook.json()?;
    let command = if name == "refused" {
        Command::Refuse {}
    } else {
        Command::Hit {}
    };
    webhook.once(engine.entity::<Counter>(name)).ask(command).await?;
    Ok(())
}

/// Counters behind a gateway.
struct Counters {
    engine: Engine,
    running: Running,
}

impl Counters {
    fn of(engine: Engine) -> Self {
        let standard = Receiver::standard("pay", [secret('a'), secret('b')]).route(engine.clone(), hit);
        let stripe = Receiver::stripe("stripe", ["whsec_any-text"]).route(
            engine.clone(),
            async |engine: Engine, webhook: Received| {
                webhook
                    .once(engine.entity::<Counter>("stripe"))
                    .ask(Command::Hit {})
                    .await?;
                Ok(())
            },
        );
        let routes = throng_app::axum::Router::new()
            .route("/in", standard)
            .route("/stripe", stripe);
        let running = Gateway::builder(engine.clone())
            .bind("127.0.0.1:0")
            .loops(1)
            .routes(routes)
            .start()
            .unwrap();
        Self { engine, running }
    }

    fn in_memory() -> Self {
        Self::of(in_memory(Engine::builder().with::<Counter>()))
    }

    fn post(&self, path: &str, headers: &str, body: &str) -> Response {
        Client::connect(self.running.address())
            .unwrap()
            .request("POST", path, headers, body)
            .unwrap()
    }

    fn hits(&self, name: &str) -> u64 {
        block_on(self.engine.entity::<Counter>(name).read(Hits)).unwrap()
    }

    fn seconds(&self) -> i64 {
        self.engine.now().micros / 1_000_000
    }

    /// Returns the header fields of a webhook signed now with this secret.
    fn fields(&self, byte: char, id: &str, body: &str) -> String {
        signed(byte, id, self.seconds(), body)
    }
}

fn signed(byte: char, id: &str, seconds: i64, body: &str) -> String {
    let signature = secret(byte).sign(id, seconds, body.as_bytes());
    format!("{JSON}webhook-id: {id}\r\nwebhook-timestamp: {seconds}\r\nwebhook-signature: {signature}\r\n")
}

#[test]
fn webhook_takes_effect_once_also_after_a_restart() {
    let journal = MemoryJournal::new();
    let store = MemoryStore::new(journal.clone());
    for start in 0..2 {
        let counters = Counters::of(start_on(
            Engine::builder().with::<Counter>(),
            journal.clone(),
            store.clone(),
        ));
        for byte in ['a', 'b', 'a'] {
            let fields = counters.fields(byte, "msg_1", "\"one\"");
            assert_eq!(counters.post("/in", &fields, "\"one\"").status, 204);
        }
        assert_eq!(counters.hits("one"), 1, "start {start}");
        let other = counters.fields('a', &format!("msg_2_{start}"), "\"two\"");
        assert_eq!(counters.post("/in", &other, "\"two\"").status, 204);
        assert_eq!(counters.hits("two"), start + 1);
        counters.running.stop_blocking();
    }
}

#[test]
fn webhook_is_answered_after_its_commit() {
    let journal = MemoryJournal::new();
    let store = MemoryStore::new(journal.clone());
    let (journal, hold) = HeldJournal::new(journal, false);
    let engine = block_on(
        Engine::builder()
            .with::<Counter>()
            .start(Box::new(journal) as Box<dyn Journal>, store),
    )
    .unwrap();
    let counters = Counters::of(engine);
    hold.send_replace(true);
    let fields = counters.fields('a', "msg_1", "\"one\"");
    let stream = TcpStream::connect(counters.running.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut client = Client::over(stream.try_clone().unwrap());
    client.send("POST", "/in", &fields, "\"one\"").unwrap();
    until("it was executed", || counters.engine.health().entities == 1);
    // The only loop would have sent an earlier answer before this one.
    let alive = Client::connect(counters.running.address()).unwrap().get("/health/live");
    assert_eq!(alive.unwrap().status, 200);
    stream.set_nonblocking(true).unwrap();
    assert_eq!(stream.peek(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    stream.set_nonblocking(false).unwrap();
    hold.send_replace(false);
    assert_eq!((client.response().unwrap().status, counters.hits("one")), (204, 1));
    counters.running.stop_blocking();
}

#[test]
fn webhook_that_is_not_signed_now_is_refused() {
    let counters = Counters::in_memory();
    let now = counters.seconds();
    let body = "\"one\"";
    let without = |name: &str| {
        let fields = counters.fields('a', "m", body);
        fields
            .split_inclusive("\r\n")
            .filter(|line| !line.starts_with(name))
            .collect::<String>()
    };
    for (fields, field, detail) in [
        (
            counters.fields('c', "m", body),
            "webhook-signature",
            "None of its 1 signatures",
        ),
        (
            counters.fields('a', "m", "\"two\""),
            "webhook-signature",
            "one of the 2 secrets for pay",
        ),
        (
            counters.fields('a', "m", body).replace("v1,", "v1a,"),
            "webhook-signature",
            "None of its 0 signatures",
        ),
        (signed('a', "m", now - 400, body), "webhook-timestamp", "s ago"),
        (
            signed('a', "m", now + 400, body),
            "webhook-timestamp",
            "s in the future",
        ),
        (
            signed('a', "m", now, body).replace(&now.to_string(), "soon"),
            "webhook-timestamp",
            "\"soon\" is no number",
        ),
        (signed('a', "m.1", now, body), "webhook-id", "has a dot"),
        (signed('a', &"m".repeat(250), now, body), "webhook-id", "too long"),
        (without("webhook-id"), "webhook-id", "is missing"),
        (without("webhook-timestamp"), "webhook-timestamp", "is missing"),
        (without("webhook-signature"), "webhook-signature", "is missing"),
    ] {
        let problem = counters.post("/in", &fields, body).problem(401, "webhook-refused");
        assert_eq!(problem["field"], field, "{problem}");
        let told = problem["detail"].as_str().unwrap();
        assert!(told.contains(detail) && told.ends_with("Nothing was done."), "{told}");
    }
    let long = format!("\"{}\"", "x".repeat(256 << 10));
    let fields = counters.fields('a', "m", &long);
    counters.post("/in", &fields, &long).problem(413, "webhook-too-large");
    assert_eq!(counters.engine.health().entities, 0);
    counters.running.stop_blocking();
}

#[test]
fn refusal_of_the_entity_is_the_answer() {
    let counters = Counters::in_memory();
    for _ in 0..2 {
        let fields = counters.fields('a', "m", "\"refused\"");
        assert_eq!(counters.post("/in", &fields, "\"refused\"").status, 409);
    }
    let fields = counters.fields('a', "n", "7");
    let problem = counters.post("/in", &fields, "7").problem(400, "malformed");
    assert!(
        problem["detail"].as_str().unwrap().contains("webhook n cannot be read"),
        "{problem}"
    );
    counters.running.stop_blocking();
}

#[test]
fn client_cannot_take_the_key_of_a_webhook() {
    let counters = Counters::in_memory();
    let mut client = Client::connect(counters.running.address()).unwrap();
    for key in ["@webhook/pay/msg_1", "webhook/pay/msg_1", "msg_1"] {
        let taken = client.post("/api/counter/one/Begin", Some(key), "{}").unwrap();
        assert_eq!(taken.status, 200);
    }
    let fields = counters.fields('a', "msg_1", "\"one\"");
    assert_eq!(counters.post("/in", &fields, "\"one\"").status, 204);
    assert_eq!(counters.hits("one"), 4);
    counters.running.stop_blocking();
}

/// The real environment, with a settable time of day.
struct Settable {
    host: TokioHost,
    ahead_hours: AtomicI64,
}

impl Host for Settable {
    delegate!(Host, host: elapsed_micros entropy spawn sleep close);

    fn now(&self) -> Timestamp {
        let micros = self.host.now().micros + self.ahead_hours.load(SeqCst) * 3_600_000_000;
        Timestamp { micros }
    }
}

#[test]
fn webhook_is_known_for_days_by_the_engines_clock() {
    let host = Arc::new(Settable {
        host: TokioHost::new().unwrap(),
        ahead_hours: AtomicI64::new(0),
    });
    let counters = Counters::of(in_memory(Engine::builder().with::<Counter>().host(host.clone())));
    let first = counters.fields('a', "msg_1", "\"one\"");
    for (hours, hits) in [(0, 1), (95, 1), (120, 2)] {
        host.ahead_hours.store(hours, SeqCst);
        let again = counters.fields('a', "msg_1", "\"one\"");
        assert_eq!(counters.post("/in", &again, "\"one\"").status, 204);
        assert_eq!(counters.hits("one"), hits, "after {hours} hours");
    }
    let replayed = counters.post("/in", &first, "\"one\"").problem(401, "webhook-refused");
    assert_eq!(replayed["field"], "webhook-timestamp");
    counters.running.stop_blocking();
}

#[test]
fn webhook_in_the_format_of_stripe_takes_effect_once() {
    use ring::hmac::{HMAC_SHA256, Key, sign};
    use std::fmt::Write as _;
    let counters = Counters::in_memory();
    let body = r#"{"id":"evt_1","type":"charge.succeeded"}"#;
    let fields = |secret: &str, seconds: i64| {
        let tag = sign(
            &Key::new(HMAC_SHA256, secret.as_bytes()),
            format!("{seconds}.{body}").as_bytes(),
        );
        let hex = tag.as_ref().iter().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").unwrap();
            hex
        });
        format!("{JSON}stripe-signature: t={seconds},v1={hex},v0=00\r\n")
    };
    for _ in 0..2 {
        let fields = fields("whsec_any-text", counters.seconds());
        assert_eq!(counters.post("/stripe", &fields, body).status, 204);
    }
    assert_eq!(counters.hits("stripe"), 1);
    for fields in [
        fields("another", counters.seconds()),
        fields("whsec_any-text", counters.seconds() - 400),
        JSON.to_owned(),
    ] {
        counters.post("/stripe", &fields, body).problem(401, "webhook-refused");
    }
    counters.running.stop_blocking();
}

#[test]
fn shop_is_paid_by_webhook_and_tells_its_customer() {
    let provider = Provider::start(&[answer("201 Created", r#"{"id":"ch_1"}"#)]);
    let customer = Provider::start(&[answer("500 Internal Server Error", ""), answer("204 No Content", "")]);
    let client = HttpClient::to_public_hosts().allow_private();
    let payments = Payments {
        client: client.clone(),
        url: provider.url(),
    };
    let receiver = Receiver::standard("payments", [secret('a')]);
    let webhooks = Webhooks::new(client, |_| vec![secret('c')]);
    let engine = in_memory(shop::app(payments, receiver.clone(), webhooks).into_builder());
    let gateway = Gateway::builder(engine.clone())
        .bind("127.0.0.1:0")
        .routes(shop::routes(engine.clone(), receiver));
    let running = gateway.start().unwrap();

    let mut shop = Client::connect(running.address()).unwrap();
    let placed = format!(r#"{{"cents":7,"hook":"{}"}}"#, customer.url());
    assert_eq!(shop.post("/api/order/1/place", None, &placed).unwrap().status, 200);
    let body = r#"{"order":"1","cents":7}"#;
    for _ in 0..2 {
        let fields = signed('a', "msg_1", engine.now().micros / 1_000_000, body);
        assert_eq!(
            shop.request("POST", "/webhooks/payments", &fields, body)
                .unwrap()
                .status,
            204
        );
    }
    let kind = engine.kind(<Order as throng::model::Entity>::KIND).unwrap();
    let events = || block_on(engine.history(kind, "1", 0, 100)).unwrap().events;
    let count = |name: &str| events().iter().filter(|event| &*event.name == name).count();
    until("both calls have their outcomes", || count("heard") == 2);
    assert_eq!((count("placed"), count("paid"), provider.seen().len()), (1, 1, 1));
    let told = customer.seen();
    assert_eq!(told.len(), 2, "the second attempt was taken");
    let id = |request: &str| {
        request
            .lines()
            .find(|line| line.starts_with("webhook-id: "))
            .unwrap()
            .to_owned()
    };
    assert_eq!(id(&told[0]), id(&told[1]));
    running.stop_blocking();
}
