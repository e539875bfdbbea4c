//! Tests of orders, roles, feeds and the best sellers, over sockets.

use crate::service::{Service, authorization};
use serde_json::{Value, json};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::TcpStream,
};
use throng_testing::{READ_PATIENCE, block_on, openapi_faults};
use tickets::{access::Counter, best_sellers::BestSellers, payments::DECLINED_TOKEN};

fn problem(answer: &(u16, Value)) -> (u16, &str) {
    let slug = answer.1["type"].as_str().unwrap();
    (answer.0, slug.strip_prefix("/problems/").unwrap())
}

#[test]
fn order_is_held_paid_and_confirmed() {
    let service = Service::start(Counter::Guarded);
    service.announce("hamlet", 3);
    assert_eq!(service.order("ann", "o-1", 2), (201, json!("held")));
    let zone = |free: u32, held: u32, sold: u32| json!({ "name": "stalls", "cents": 5_000, "seats": 3, "free": free, "held": held, "sold": sold, "waiting": 0 });
    assert_eq!(
        service.get("", "/api/concert/hamlet").1["zones"],
        json!([zone(1, 2, 0)])
    );
    let declined = service.pay("ann", "o-1", DECLINED_TOKEN);
    assert_eq!(
        (&declined["stage"], &declined["seats"]),
        (&json!("held"), &json!([1, 2]))
    );
    let paid = service.pay("ann", "o-1", "card");
    assert_eq!((&paid["stage"], &paid["cents"]), (&json!("confirmed"), &json!(10_000)));
    let payments = json!([{ "payment": "o-1/1", "status": "failed" }, { "payment": "o-1/2", "status": "taken" }]);
    assert_eq!(paid["payments"], payments);
    assert_eq!(
        service.get("", "/api/concert/hamlet").1["zones"],
        json!([zone(1, 0, 2)])
    );
    let late = service.ask("ann", "POST", "/orders/o-1/payment", &json!({ "token": "card" }));
    assert_eq!(problem(&late), (409, "not-payable"));
}

#[test]
fn seats_of_a_cancelled_order_go_to_the_waiting_list() {
    let service = Service::start(Counter::Guarded);
    service.announce("hamlet", 2);
    assert_eq!(service.order("ann", "o-1", 2), (201, json!("held")));
    assert_eq!(service.order("bob", "o-2", 1), (201, json!("waiting")));
    assert_eq!(service.order("cid", "o-3", 1), (201, json!("waiting")));
    service.pay("ann", "o-1", "card");
    let cancelled = service.ask("ann", "POST", "/orders/o-1/cancel", &Value::Null);
    assert_eq!((cancelled.0, &cancelled.1["stage"]), (200, &json!("cancelled")));
    throng_testing::until("the money is back, and both have seats", || {
        let order = |caller: &str, order: &str| service.get(caller, &format!("/orders/{order}")).1;
        order("ann", "o-1")["payments"][0]["status"] == "reversed"
            && order("bob", "o-2")["seats"] == json!([1])
            && order("cid", "o-3")["seats"] == json!([2])
    });
}

#[test]
fn customers_have_a_limit_over_all_concerts() {
    let service = Service::start(Counter::Guarded);
    service.announce("hamlet", 20);
    service.announce("macbeth", 20);
    assert_eq!(service.order("ann", "o-1", 6), (201, json!("held")));
    let body = json!({ "concert": "macbeth", "zone": "stalls", "tickets": 3 });
    let (status, refused) = service.ask("ann", "POST", "/orders/o-2", &body);
    assert_eq!((status, &refused["stage"]), (201, &json!("refused")));
    let why = "a customer has at most 8 tickets, this one has 6";
    assert_eq!(refused["why"], why);
    let customer = json!({ "tickets": 6, "limit": 8, "orders": { "o-1": 6 } });
    assert_eq!(service.get("ann", "/customers/ann"), (200, customer));
    let nothing = json!({ "tickets": 0, "limit": 8, "orders": {} });
    assert_eq!(service.get("bob", "/customers/bob"), (200, nothing));
}

#[test]
fn customers_see_their_own_and_the_box_office_all() {
    let service = Service::start(Counter::Guarded);
    service.announce("hamlet", 10);
    service.order("ann", "o-1", 1);
    assert_eq!(service.get("ann", "/orders/o-1").0, 200);
    assert_eq!(service.get("office", "/orders/o-1").0, 200);
    assert_eq!(problem(&service.get("bob", "/orders/o-1")), (403, "not-yours"));
    assert_eq!(problem(&service.get("", "/orders/o-1")), (401, "unauthorized"));
    for path in ["/orders/o-1/events", "/customers/ann", "/api/order/o-1", "/api/order"] {
        assert_eq!(service.get("bob", path).0, 403, "{path}");
    }
    assert_eq!(service.get("office", "/api/order").1["entities"][0]["id"], "o-1");
    let pay = json!({ "token": "card" });
    let others = service.ask("bob", "POST", "/orders/o-1/payment", &pay);
    assert_eq!(problem(&others), (403, "not-yours"));
    let cancel = service.ask("bob", "POST", "/orders/o-1/cancel", &Value::Null);
    assert_eq!(problem(&cancel), (403, "not-yours"));
    let mut body = json!({ "concert": "hamlet", "zone": "stalls", "tickets": 1, "customer": "ann" });
    assert_eq!(service.ask("bob", "POST", "/orders/o-2", &body).0, 403);
    assert_eq!(service.ask("office", "POST", "/orders/o-2", &body).0, 201);
    body["customer"] = Value::Null;
    assert_eq!(
        problem(&service.ask("office", "POST", "/orders/o-3", &body)),
        (400, "malformed")
    );
    assert_eq!(service.get("ann", "/customers/ann").1["tickets"], 2);
    let announce = service.ask(
        "ann",
        "POST",
        "/api/concert/macbeth/announce",
        &json!({ "title": "", "zones": [] }),
    );
    assert_eq!(announce.0, 403);
    assert_eq!(
        service.get("ann", "/api/concert/hamlet/events").0,
        403,
        "it names orders"
    );
}

#[test]
fn open_counter_takes_everybody_for_the_box_office() {
    let service = Service::start(Counter::Open);
    service.announce("hamlet", 1);
    let body = json!({ "concert": "hamlet", "zone": "stalls", "tickets": 1, "customer": "ann" });
    assert_eq!(service.ask("", "POST", "/orders/o-1", &body).0, 201);
    assert_eq!(service.pay("", "o-1", "card")["stage"], "confirmed");
}

/// The lines of a live stream.
struct Feed(BufReader<TcpStream>);

impl Feed {
    fn open(service: &Service, caller: &str, path: &str) -> Self {
        let mut stream = TcpStream::connect(service.address()).unwrap();
        stream.set_read_timeout(Some(READ_PATIENCE)).unwrap();
        let identity = authorization(caller);
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n{identity}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut feed = Self(BufReader::new(stream));
        assert!(feed.line("HTTP/1.1").starts_with(" 200"));
        feed.line("content-type: text/event-stream");
        feed
    }

    /// Returns the rest of the next line with this beginning.
    fn line(&mut self, begin: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream has ended");
            if let Some(rest) = line.strip_prefix(begin) {
                return rest.trim_end().to_owned();
            }
        }
    }

    fn next(&mut self) -> Value {
        serde_json::from_str(&self.line("data: ")).unwrap()
    }
}

#[test]
fn free_seats_and_order_steps_are_shown_live() {
    let service = Service::start(Counter::Guarded);
    service.announce("hamlet", 5);
    let mut seats = Feed::open(&service, "", "/concerts/hamlet/seats");
    service.order("ann", "o-1", 2);
    assert_eq!(seats.next(), json!({ "zone": "stalls", "free": 3 }));
    let mut order = Feed::open(&service, "ann", "/orders/o-1/events");
    let mut steps = || order.next()["name"].as_str().unwrap().to_owned();
    assert_eq!([steps(), steps(), steps()], ["placed", "allowed", "held"]);
    service.pay("ann", "o-1", "card");
    assert_eq!([steps(), steps()], ["payment_asked", "confirmed"]);
    service.order("bob", "o-2", 1);
    assert_eq!(
        seats.next(),
        json!({ "zone": "stalls", "free": 2 }),
        "a sale frees none"
    );
}

#[test]
fn best_sellers_are_listed_by_hour() {
    let service = Service::start(Counter::Guarded);
    service.announce("hamlet", 10);
    service.announce("macbeth", 10);
    for (caller, order, tickets) in [("ann", "o-1", 2), ("bob", "o-2", 3)] {
        service.order(caller, order, tickets);
        service.pay(caller, order, "card");
    }
    let body = json!({ "concert": "macbeth", "zone": "stalls", "tickets": 6 });
    service.ask("cid", "POST", "/orders/o-3", &body);
    service.pay("cid", "o-3", "card");
    assert!(block_on(service.engine.read_model::<BestSellers>().caught_up()));
    let (status, page) = service.get("", "/best-sellers");
    assert_eq!((status, &page["next"]), (200, &Value::Null));
    // The hour may have changed between two sales.
    let mut sums = std::collections::BTreeMap::<&str, (u64, u64)>::new();
    for row in page["sales"].as_array().unwrap() {
        let sum = sums.entry(row["concert"].as_str().unwrap()).or_default();
        sum.0 += row["tickets"].as_u64().unwrap();
        sum.1 += row["cents"].as_u64().unwrap();
        assert!(row["hour"].as_str().unwrap().ends_with(":00:00Z"), "{row}");
    }
    assert_eq!(sums, [("hamlet", (5, 25_000)), ("macbeth", (6, 30_000))].into());
    if let [first, second] = &page["sales"].as_array().unwrap()[..] {
        assert!(
            first["hour"] != second["hour"] || first["concert"] == "macbeth",
            "the best seller first"
        );
    }
}

#[test]
fn generators_take_the_document() {
    let service = Service::start(Counter::Guarded);
    let (_, document) = service.get("", "/openapi.json");
    assert_eq!(openapi_faults(&document), [""; 0]);
    assert!(document["paths"]["/orders/{order}/payment"].is_object());
    assert!(
        document["paths"]["/api/order/{id}/place"].is_null(),
        "orders have the routes of the service"
    );
}
