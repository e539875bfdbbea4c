//! An engine of picos in memory behind HTTP, with a client and a browser.

use axum::Router;
use picos::Settings;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use throng::Engine;
use throng_http::{Gateway, Running};
use throng_pico::Picos;
use throng_testing::{JSON, Response, in_memory, request, until};
pub use throng_testing::{PATIENCE, browse as open};

fn rulesets() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("rulesets")
}

pub struct Service {
    running: Option<Running>,
    end: Option<Box<dyn FnOnce() + Send>>,
    pub root: String,
}

impl Service {
    /// Starts an engine of picos, with more routes.
    pub fn start(more: Router) -> Self {
        let settings = Settings {
            files: Some(rulesets()),
            ..Settings::default()
        };
        let engine = in_memory(throng_pico::kinds(Engine::builder()));
        let picos = Picos::new(engine.clone(), settings);
        let end = picos.work().unwrap();
        let routes = throng_pico::routes(picos).merge(picos::student::routes()).merge(more);
        let running = throng_pico::gateway(Gateway::builder(engine).routes(routes))
            .start()
            .unwrap();
        let mut service = Self {
            running: Some(running),
            end: Some(end),
            root: String::new(),
        };
        let pico = service.get(&format!("/c/{}/query/io.picolabs.pico-engine-ui/pico", service.ui()));
        let channels = pico.json()["channels"].clone();
        let own = channels
            .as_array()
            .unwrap()
            .iter()
            .find(|channel| channel["tags"] == json!(["system", "self"]));
        service.root = text(&own.unwrap()["id"]);
        service
    }

    /// Starts an engine whose root is the owner.
    pub fn of_owner(more: Router) -> Self {
        let service = Self::start(more);
        assert_eq!(service.get("/api/owner-eci").status, 404);
        let url = format!("file://{}/app_registration_owner.krl", rulesets().display());
        service.event("wrangler/install_ruleset_request", &json!({ "url": url }));
        service
    }

    pub fn url(&self) -> String {
        self.running.as_ref().unwrap().url()
    }

    /// Returns the root's console channel.
    pub fn ui(&self) -> String {
        text(&self.get("/api/ui-context").json()["eci"])
    }

    pub fn get(&self, path: &str) -> Response {
        request(self.running.as_ref().unwrap().address(), "GET", path, "", "").unwrap()
    }

    /// Sends an event to the owner.
    pub fn event(&self, name: &str, attributes: &Value) {
        let path = format!("/c/{}/event-wait/{name}", self.root);
        let address = self.running.as_ref().unwrap().address();
        let response = request(address, "POST", &path, JSON, &attributes.to_string()).unwrap();
        assert_eq!(response.status, 200, "{}", response.body);
    }

    /// Sends an event, and returns the channel in its directive of this name.
    pub fn told(&self, eci: &str, event: &str, name: &str) -> Option<String> {
        let response = self.get(&format!("/sky/event/{eci}/none/{event}"));
        assert_eq!(response.status, 200, "{}", response.body);
        let directives = response.json()["directives"].clone();
        let found = directives
            .as_array()
            .unwrap()
            .iter()
            .find(|directive| directive["name"] == name)?;
        Some(found["options"]["eci"].as_str().unwrap_or_default().to_owned())
    }

    /// Returns the collection's anonymous channel, found as a student finds it.
    ///
    /// # Panics
    ///
    /// If the collection does not appear.
    pub fn collection(&self) -> String {
        let mut found = None;
        until("there is a collection", || {
            found = self.find_collection();
            found.is_some()
        });
        found.unwrap()
    }

    fn find_collection(&self) -> Option<String> {
        let owner = self.get("/api/owner-eci").json();
        assert_eq!(owner["ok"], json!(true));
        let registration = self.told(
            &text(&owner["eci"]),
            "registration/channel_needed?student_id=ann",
            "registration",
        );
        self.told(&registration?, "section/needed?student_id=ann", "section_collection")
    }

    /// Opens a section, and waits until a student finds it.
    pub fn open_section(&self, id: &str, capacity: u32) {
        self.event("section/needed", &json!({ "section_id": id, "capacity": capacity }));
        let collection = self.collection();
        let needed = format!("section/needed?student_id=ann&section_id={id}");
        until("there is the section", || {
            self.told(&collection, &needed, "section_ready").is_some()
        });
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.end.take().unwrap()();
        self.running.take().unwrap().stop_blocking();
    }
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

/// Returns true, and prints a notice, if the tests run without a browser.
pub fn is_without_browser() -> bool {
    let is_without = std::env::var_os("THRONG_NO_BROWSER").is_some();
    if is_without {
        eprintln!("left out: THRONG_NO_BROWSER is set");
    }
    is_without
}
