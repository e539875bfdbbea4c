//! The service on an engine in memory, with a provider without faults, and callers with tokens.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::hmac;
use serde_json::{Value, json};
use std::{fs, net::SocketAddr, time::SystemTime};
use tempfile::TempDir;
use throng_app::{
    Engine,
    http::{Gateway, Jwt, Running},
};
use throng_testing::{JSON, in_memory, request, until};
use tickets::{
    access::Counter,
    order::Order,
    payments::{DemoProvider, Payments, Settings},
};

const SECRET: &[u8] = b"a secret that both sides know, of 40 byt";

/// Returns a provider that always answers at once.
pub fn provider() -> Payments {
    let settings = Settings {
        slow_ms: 0,
        lost: 0.0,
        mute: 0.0,
        twice: 0.0,
        ledger: None,
    };
    Payments::new(DemoProvider::new(settings).unwrap())
}

pub struct Service {
    pub engine: Engine,
    running: Option<Running>,
    _keys: TempDir,
}

impl Service {
    pub fn start(counter: Counter) -> Self {
        let builder = tickets::app().into_builder();
        let engine = in_memory(builder.outside::<Order, Payments>(provider()));
        let keys = tempfile::tempdir().unwrap();
        let file = keys.path().join("keys.json");
        let key = json!({ "kty": "oct", "k": BASE64_URL_SAFE_NO_PAD.encode(SECRET) });
        fs::write(&file, json!({ "keys": [key] }).to_string()).unwrap();
        let mut gateway = counter.guard(Gateway::builder(engine.clone()));
        if counter == Counter::Guarded {
            let keys = file.display().to_string();
            let jwt = Jwt {
                keys,
                issuer: None,
                audience: None,
            };
            gateway = gateway.jwt(jwt).anonymous();
        }
        let gateway = gateway.routes(tickets::routes(engine.clone(), counter));
        let running = gateway.describe(tickets::describe()).start().unwrap();
        Self {
            engine,
            running: Some(running),
            _keys: keys,
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.running.as_ref().unwrap().address()
    }

    /// Sends a request as a caller, or anonymously. `office` has the role of the box office.
    pub fn ask(&self, caller: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let headers = format!("{JSON}{}", authorization(caller));
        let response = request(self.address(), method, path, &headers, &body).unwrap();
        (response.status, response.json())
    }

    pub fn get(&self, caller: &str, path: &str) -> (u16, Value) {
        self.ask(caller, "GET", path, &Value::Null)
    }

    /// Announces a concert with one zone of this many seats.
    pub fn announce(&self, concert: &str, seats: u32) {
        let zones = json!([{ "name": "stalls", "cents": 5_000, "seats": seats }]);
        let body = json!({ "title": "Hamlet", "zones": zones });
        let announced = self.ask("office", "POST", &format!("/api/concert/{concert}/announce"), &body);
        assert_eq!(announced, (200, json!("done")));
    }

    /// Orders seats of Hamlet, and returns the stage of the order.
    pub fn order(&self, caller: &str, order: &str, tickets: u32) -> (u16, Value) {
        let body = json!({ "concert": "hamlet", "zone": "stalls", "tickets": tickets, "waits": true });
        let (status, answer) = self.ask(caller, "POST", &format!("/orders/{order}"), &body);
        (status, answer["stage"].clone())
    }

    /// Pays, and waits until the provider has answered.
    pub fn pay(&self, caller: &str, order: &str, token: &str) -> Value {
        let path = format!("/orders/{order}");
        let (status, answer) = self.ask(caller, "POST", &format!("{path}/payment"), &json!({ "token": token }));
        assert_eq!(status, 200, "{answer}");
        let mut found = Value::Null;
        until("the payment has an outcome", || {
            found = self.get(caller, &path).1;
            found["stage"] != "paying"
        });
        found
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop_blocking();
        }
    }
}

/// Returns the header of a caller with a JSON web token; empty for an anonymous caller.
pub fn authorization(caller: &str) -> String {
    if caller.is_empty() {
        return String::new();
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let roles: &[&str] = if caller == "office" { &["box-office"] } else { &[] };
    let claims = json!({ "sub": caller, "exp": now.as_secs() + 3_600, "roles": roles });
    let encoded = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let message = format!("{}.{}", encoded(&json!({ "alg": "HS256" })), encoded(&claims));
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET), message.as_bytes());
    let signature = BASE64_URL_SAFE_NO_PAD.encode(signature.as_ref());
    format!("authorization: Bearer {message}.{signature}\r\n")
}
