//! JSON web tokens, with keys from a file and from an issuer's URL.

use crate::support::{Client, engine, start};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::{
    hmac,
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _},
};
use serde_json::{Value, json};
use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    sync::{Arc, Mutex},
    thread,
    time::{SystemTime, UNIX_EPOCH},
};
use throng_http::{Access, Gateway, Jwt, Problem};

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// Returns the time in this many seconds, in seconds since 1970.
fn in_seconds(seconds: i64) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(now.as_secs()).unwrap() + seconds
}

fn signed(header: &Value, claims: &Value, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let message = format!("{}.{}", encoded(header.to_string()), encoded(claims.to_string()));
    let signature = sign(message.as_bytes());
    format!("Bearer {message}.{}", encoded(signature))
}

/// An issuer with a key on the P-256 curve.
struct Issuer {
    id: &'static str,
    key: EcdsaKeyPair,
}

impl Issuer {
    fn new(id: &'static str) -> Self {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random).unwrap();
        Self { id, key }
    }

    fn jwk(&self) -> Value {
        let point = self.key.public_key().as_ref();
        json!({ "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": self.id,
            "x": encoded(&point[1..33]), "y": encoded(&point[33..]) })
    }

    fn token(&self, claims: &Value) -> String {
        let header = json!({ "alg": "ES256", "typ": "JWT", "kid": self.id });
        let random = SystemRandom::new();
        signed(&header, claims, |message| {
            self.key.sign(&random, message).unwrap().as_ref().to_vec()
        })
    }
}

fn claims(name: &str) -> Value {
    json!({ "sub": name, "exp": in_seconds(600), "iss": "https://id.example", "aud": "bank", "role": "teller" })
}

fn with(claims: &Value, name: &str, value: impl Into<Value>) -> Value {
    let mut claims = claims.clone();
    claims[name] = value.into();
    claims
}

fn without(claims: &Value, name: &str) -> Value {
    let mut claims = claims.clone();
    claims.as_object_mut().unwrap().remove(name);
    claims
}

fn jwt(keys: impl ToString) -> Jwt {
    Jwt {
        keys: keys.to_string(),
        issuer: Some("https://id.example".into()),
        audience: Some("bank".into()),
    }
}

#[test]
fn tokens_of_the_issuer_are_taken_and_others_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys.json");
    let (issuer, other) = (Issuer::new("one"), Issuer::new("one"));
    let random = SystemRandom::new();
    let edwards = Ed25519KeyPair::from_pkcs8(Ed25519KeyPair::generate_pkcs8(&random).unwrap().as_ref()).unwrap();
    let edwards_jwk = json!({ "kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": encoded(edwards.public_key()) });
    let secret = b"a secret that both sides know, of 40 byt";
    let secret_jwk = json!({ "kty": "oct", "kid": "shared", "k": encoded(secret) });
    let unknown = json!({ "kty": "EC", "crv": "P-521", "kid": "x", "x": "AA", "y": "AA" });
    let set = json!({ "keys": [unknown, issuer.jwk(), edwards_jwk, secret_jwk] });
    fs::write(&file, set.to_string()).unwrap();
    let gateway = start(|gateway| {
        gateway.jwt(jwt(file.display())).authorize(|access: &Access<'_>| {
            let role = access
                .caller
                .and_then(|caller| caller.claims().get("role"))
                .and_then(Value::as_str);
            match role {
                Some("teller") => Ok(()),
                role => Err(Problem::forbidden(format!("The role is {role:?}, and not teller.")).into()),
            }
        })
    });
    let good = claims("ann");
    let symmetric = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let taken = [
        issuer.token(&good),
        issuer.token(&with(&good, "aud", json!(["shop", "bank"]))),
        signed(&json!({ "alg": "EdDSA", "kid": "ed" }), &good, |message| {
            edwards.sign(message).as_ref().to_vec()
        }),
        signed(&json!({ "alg": "HS256", "kid": "shared" }), &good, |message| {
            hmac::sign(&symmetric, message).as_ref().to_vec()
        }),
    ];
    let mut client = Client::new(&gateway);
    let mut ask =
        |bearer: &str, path: &str, body: &str| client.request("POST", path, &[("authorization", bearer)], body);
    assert_eq!(ask(&taken[0], "/api/section/S1/open", r#"{"capacity":9}"#).status, 200);
    for bearer in &taken {
        let signed = ask(bearer, "/api/section/S1/sign", "{}").json();
        assert_eq!(signed["students"].as_array().unwrap().last(), Some(&json!("ann")));
    }
    let public = issuer.key.public_key().as_ref().to_vec();
    let confused = hmac::Key::new(hmac::HMAC_SHA256, &public);
    for (bearer, reason) in [
        (issuer.token(&with(&good, "exp", in_seconds(-120))), "has expired"),
        (issuer.token(&with(&good, "nbf", in_seconds(600))), "does not hold yet"),
        (issuer.token(&with(&good, "aud", "shop")), "another audience"),
        (
            issuer.token(&with(&good, "iss", "https://evil.example")),
            "another issuer",
        ),
        (issuer.token(&without(&good, "sub")), "no claim sub"),
        (issuer.token(&without(&good, "exp")), "no claim exp"),
        (issuer.token(&without(&good, "aud")), "no claim aud"),
        (issuer.token(&with(&good, "sub", "")), "no text as its claim sub"),
        (issuer.token(&with(&good, "sub", "ann\r\nroot")), "claim sub is no name"),
        (issuer.token(&with(&good, "sub", " ")), "claim sub is no name"),
        (other.token(&good), "signature is wrong"),
        (Issuer::new("two").token(&good), "not among its issuer"),
        (format!("{}x", issuer.token(&good)), "not one that this service takes"),
        (
            signed(&json!({ "alg": "none", "kid": "one" }), &good, |_| Vec::new()),
            "not one that this service takes",
        ),
        (
            signed(&json!({ "alg": "HS256", "kid": "one" }), &good, |message| {
                hmac::sign(&confused, message).as_ref().to_vec()
            }),
            "not among its issuer",
        ),
        ("Bearer a.b.c".into(), "not one that this service takes"),
    ] {
        for way in [&[][..], &[("te", "trailers")]] {
            let fields = [&[("authorization", bearer.as_str())][..], way].concat();
            let refused = Client::new(&gateway).request("POST", "/api/section/S1/sign", &fields, "{}");
            let problem = refused.problem(401, "unauthorized");
            assert!(problem["detail"].to_string().contains(reason), "{reason}: {problem}");
        }
    }
    let clerk = issuer.token(&with(&good, "role", "clerk"));
    ask(&clerk, "/api/section/S1/sign", "{}").problem(403, "forbidden");
    let document = Client::new(&gateway).get("/openapi.json").json();
    assert_eq!(document["components"]["securitySchemes"]["token"]["scheme"], "bearer");
    assert_eq!(document["security"], json!([{ "token": [] }]));
    assert_eq!(document["paths"]["/health/live"]["get"]["security"], json!([]));
}

#[test]
fn token_with_unknown_demands_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys.json");
    let issuer = Issuer::new("one");
    fs::write(&file, json!({ "keys": [issuer.jwk()] }).to_string()).unwrap();
    let gateway = start(|gateway| gateway.jwt(jwt(file.display())));
    let mut client = Client::new(&gateway);
    let mut ask = |more: Value, claims: &Value| {
        let mut header = json!({ "alg": "ES256", "kid": "one" });
        header
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let random = SystemRandom::new();
        let bearer = signed(&header, claims, |message| {
            issuer.key.sign(&random, message).unwrap().as_ref().to_vec()
        });
        client.request("GET", "/api/section", &[("authorization", &bearer)], "")
    };
    let good = claims("ann");
    for header in [
        json!({}),
        json!({ "typ": "JWT" }),
        json!({ "typ": "at+jwt" }),
        json!({ "typ": "application/at+JWT" }),
    ] {
        assert_eq!(ask(header.clone(), &good).status, 200, "{header}");
    }
    for (header, word) in [
        (json!({ "crit": ["exp"] }), "crit"),
        (json!({ "crit": ["b64"], "b64": false }), "crit"),
        (json!({ "crit": [] }), "crit"),
        (json!({ "crit": null }), "crit"),
        (json!({ "b64": false }), "b64"),
        (json!({ "zip": "DEF" }), "zip"),
        (json!({ "typ": "logout+jwt" }), "typ"),
        (json!({ "typ": 7 }), "typ"),
    ] {
        let problem = ask(header.clone(), &good).problem(401, "unauthorized");
        assert!(problem["detail"].to_string().contains(word), "{header}: {problem}");
    }
    let many = with(&good, "iss", json!(["https://evil.example", "https://id.example"]));
    let problem = ask(json!({}), &many).problem(401, "unauthorized");
    assert!(problem["detail"].to_string().contains("issuer"), "{problem}");
}

#[test]
fn token_that_names_no_key_is_tried_with_a_few_only() {
    let dir = tempfile::tempdir().unwrap();
    for (count, reason) in [(8, None), (9, Some("does not name its key"))] {
        let file = dir.path().join(format!("{count}.json"));
        let issuers: Vec<_> = (0..count).map(|_| Issuer::new("any")).collect();
        let keys: Vec<_> = issuers.iter().map(|issuer| without(&issuer.jwk(), "kid")).collect();
        fs::write(&file, json!({ "keys": keys }).to_string()).unwrap();
        let gateway = start(|gateway| gateway.jwt(jwt(file.display())));
        let mut client = Client::new(&gateway);
        let random = SystemRandom::new();
        let bearer = signed(&json!({ "alg": "ES256" }), &claims("ann"), |message| {
            issuers[7].key.sign(&random, message).unwrap().as_ref().to_vec()
        });
        let answer = client.request("GET", "/api/section", &[("authorization", &bearer)], "");
        match reason {
            None => assert_eq!(answer.status, 200),
            Some(reason) => {
                let problem = answer.problem(401, "unauthorized");
                assert!(problem["detail"].to_string().contains(reason), "{problem}");
            }
        }
    }
}

#[test]
fn symmetric_key_shorter_than_its_hash_stops_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys.json");
    for (algorithm, bytes, is_taken) in [
        (None, 0, false),
        (None, 31, false),
        (Some("HS256"), 1, false),
        (Some("HS256"), 32, true),
        (Some("HS512"), 63, false),
        (Some("HS512"), 64, true),
    ] {
        let mut key = json!({ "kty": "oct", "kid": "shared", "k": encoded(vec![7; bytes]) });
        if let Some(algorithm) = algorithm {
            key["alg"] = algorithm.into();
        }
        // Another key in the set does not make it valid.
        fs::write(&file, json!({ "keys": [Issuer::new("one").jwk(), key] }).to_string()).unwrap();
        let started = Gateway::builder(engine()).jwt(jwt(file.display())).start();
        match started {
            Ok(gateway) => {
                assert!(is_taken, "{algorithm:?} of {bytes} bytes");
                gateway.stop_blocking();
            }
            Err(error) => {
                let said = error.to_string();
                assert!(!is_taken && said.contains("shared") && said.contains("bytes"), "{said}");
            }
        }
    }
}

#[test]
fn a_file_of_keys_that_is_none_stops_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys.json");
    for (text, why) in [
        ("{}", "no set of JSON web keys"),
        (r#"{"keys":[]}"#, "none of its keys"),
    ] {
        fs::write(&file, text).unwrap();
        let error = Gateway::builder(engine())
            .jwt(jwt(file.display()))
            .start()
            .err()
            .unwrap();
        assert!(error.to_string().contains(why), "{error}");
    }
    for url in ["http://", "https:// x/"] {
        assert!(Gateway::builder(engine()).jwt(jwt(url)).start().is_err(), "{url}");
    }
}

/// Serves a document that changes, and counts the requests.
fn serve(document: Arc<Mutex<String>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/keys", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut asked = [0; 4_096];
            let count = stream.read(&mut asked).unwrap();
            assert!(asked[..count].starts_with(b"GET /keys HTTP/1.1\r\n"));
            let text = document.lock().unwrap().clone();
            let (one, two) = text.split_at(text.len() / 2);
            let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
            let body = format!("{:x}\r\n{one}\r\n{:x}\r\n{two}\r\n0\r\n\r\n", one.len(), two.len());
            stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        }
    });
    url
}

#[test]
fn url_keys_are_there_at_start_and_symmetric_ones_refused() {
    let issuer = Issuer::new("one");
    let secret = json!({ "kty": "oct", "kid": "shared", "k": encoded([7; 40]) });
    let document = Arc::new(Mutex::new(json!({ "keys": [issuer.jwk(), secret] }).to_string()));
    let gateway = start(|gateway| gateway.jwt(jwt(serve(document))));
    let mut client = Client::new(&gateway);
    let mut ask = |bearer: &str| client.request("GET", "/api/section", &[("authorization", bearer)], "");
    assert_eq!(ask(&issuer.token(&claims("ann"))).status, 200);
    let symmetric = hmac::Key::new(hmac::HMAC_SHA256, &[7; 40]);
    let header = json!({ "alg": "HS256", "kid": "shared" });
    let token = signed(&header, &claims("ann"), |message| {
        hmac::sign(&symmetric, message).as_ref().to_vec()
    });
    ask(&token).problem(401, "unauthorized");
}

#[test]
fn request_with_a_new_key_waits_for_the_keys_of_its_issuer() {
    let (old, new) = (Issuer::new("old"), Issuer::new("new"));
    let document = Arc::new(Mutex::new(json!({ "keys": [old.jwk()] }).to_string()));
    let gateway = start(|gateway| gateway.jwt(jwt(serve(document.clone()))));
    let ask = |bearer: &str, more: &[(&str, &str)]| {
        let fields = [&[("authorization", bearer)][..], more].concat();
        let mut client = Client::new(&gateway);
        [("GET", "/api/section"), ("POST", "/api/section/S1/open")]
            .map(|(method, path)| client.request(method, path, &fields, r#"{"capacity":9}"#).status)
    };
    let (by_old, by_new) = (old.token(&claims("ann")), new.token(&claims("ann")));
    assert_eq!(ask(&by_old, &[]), [200, 200]);
    *document.lock().unwrap() = json!({ "keys": [new.jwk()] }).to_string();
    assert_eq!(ask(&by_new, &[]), [200, 200], "the first request with it");
    while ask(&by_old, &[("te", "trailers")]) != [401, 401] {}
}

#[test]
fn service_starts_and_answers_503_while_its_issuer_is_away() {
    let gateway = start(|gateway| gateway.jwt(jwt("http://127.0.0.1:1/keys")));
    let mut client = Client::new(&gateway);
    let bearer = Issuer::new("one").token(&claims("ann"));
    let refused = client.request("GET", "/api/section", &[("authorization", &bearer)], "");
    refused.problem(503, "unavailable");
    assert!(refused.header("retry-after").is_some());
    assert_eq!(client.get("/health/live").status, 200);
}

#[test]
fn url_of_keys_with_a_password_is_refused_without_showing_it() {
    for url in [
        "https://ann:secret@id.example/keys",
        "http://secret@127.0.0.1:1/keys",
        "http://ann:secret@ /keys",
        "HTTPS://ann:secret@id.example/keys",
    ] {
        let error = Gateway::builder(engine())
            .jwt(jwt(url))
            .start()
            .err()
            .unwrap()
            .to_string();
        assert!(!error.contains("secret"), "{error}");
    }
}

#[test]
fn claim_of_a_token_gives_a_role_in_administration() {
    let issuer = Issuer::new("one");
    let directory = tempfile::tempdir().unwrap();
    let keys = directory.path().join("keys.json");
    fs::write(&keys, json!({ "keys": [issuer.jwk()] }).to_string()).unwrap();
    let gateway = start(|gateway| {
        let gateway = gateway.admin(([127, 0, 0, 1], 0).into()).jwt(jwt(keys.display()));
        gateway.admin_claim("realm.roles")
    });
    let ask = |roles: Value, path: &str| {
        let token = issuer.token(&with(&claims("ann"), "realm", json!({ "roles": roles })));
        let mut client = Client::of(gateway.admin_address().unwrap());
        client.request("GET", path, &[("authorization", &token)], "")
    };
    assert_eq!(ask(json!(["staff", "viewer"]), "/admin/overview").status, 200);
    assert_eq!(ask(json!(["metrics"]), "/metrics").status, 200);
    ask(json!(["metrics"]), "/admin/overview").problem(403, "forbidden");
    ask(json!(["teller"]), "/metrics").problem(403, "forbidden");
}
