//! Tests of fairness: a pico that keeps asking a slow server does not delay the requests of others.

use crate::service::{Service, tagged, text, until};
use serde_json::{Value, json};
use std::{
    io::{Read, Write},
    net::TcpListener,
    thread,
};
use throng_pico::Settings;

const UI: &str = "io.picolabs.pico-engine-ui";

const ASKS: &str = r#"ruleset asks {
  meta { shares status, got }
  global {
    status = function(url) { http:get(url){"status_code"} }
    got = function() { ent:got }
  }
  rule ask {
    select when asks ask
    http:get(event:attr("url")) setting(response)
    fired { ent:got := response{"status_code"} }
  }
  rule have_asked {
    select when asks have_asked
    foreach 1.range(event:attr("times").as("Number")) setting(n)
    event:send({"eci": event:attr("eci"), "domain": "asks", "type": "ask", "attrs": {"url": event:attr("url")}})
  }
}
"#;

/// Half of the places for requests.
const HALF: usize = 16;

/// Makes a child with the ruleset, and returns its own channel.
fn child(service: &Service, name: &str) -> String {
    service.event(&service.ui(), "engine_ui", "new", &json!({ "name": name }));
    let children = service.query(&service.ui(), UI, "box", "")["children"].clone();
    let ui = text(children.as_array().unwrap().last().unwrap());
    install(service, &ui);
    tagged(&service.query(&ui, UI, "pico", ""), &["system", "self"])
}

fn install(service: &Service, ui: &str) {
    let installed = service.post(&format!("/c/{ui}/install"), &json!({ "source": ASKS }));
    assert_eq!(installed.status, 200, "{}", installed.body);
}

/// Starts a server that answers each request at once, and returns its address.
fn quick() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4_096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        }
    });
    address
}

#[test]
fn pico_that_floods_a_silent_server_leaves_places_for_others() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (silent_address, quick) = (silent.local_addr().unwrap().to_string(), quick());
    let service = Service::start(Settings {
        hosts: vec![silent_address.clone(), quick.clone()],
        ..Settings::default()
    });
    install(&service, &service.ui());
    let (flood, other) = (child(&service, "Flood"), child(&service, "Other"));
    // The flood asks more often than there are places for requests.
    let have_asked = |eci: &str, address: &str, times: usize| {
        let asked = json!({ "eci": eci, "url": format!("http://{address}/"), "times": times });
        service.event(&service.root(), "asks", "have_asked", &asked);
    };
    have_asked(&flood, &silent_address, 400);
    let taken: Vec<_> = (0..HALF).map(|_| silent.accept().unwrap()).collect();

    let status = format!("/c/{other}/query/asks/status?url=http://{quick}/");
    let answered = service.get(&status);
    assert_eq!((answered.status, &*answered.body), (200, "200"));
    have_asked(&other, &quick, 1);
    until(|| service.query(&other, "asks", "got", "") == json!(200));
    assert_eq!(service.query(&flood, "asks", "got", ""), Value::Null);
    // The waiting requests fail at once, so that the service can end.
    drop((taken, silent));
}
