//! Requests that leave the process: rulesets from their URLs, and HTTP requests of rulesets.

use super::places::{Holder, Places};
use crate::{Settings, ask::Answered};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::{
    fmt::Write as _,
    fs::File,
    io::Read as _,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use throng_krl::Value;
use ureq::{
    Agent,
    config::Config,
    http::Uri,
    unversioned::{
        resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver},
        transport::{DefaultConnector, NextTimeout},
    },
};

/// The most requests in progress. No pico takes more than half of these places.
const AT_ONCE: usize = 32;
/// The most requests that wait for such a place. No pico takes more than half of this room.
const WAITING_MAX: usize = 1_024;
/// The timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The most bytes of a response's body.
const BODY_BYTES_MAX: u64 = 2 << 20;
/// The most redirections that are followed.
const REDIRECTS_MAX: u32 = 5;

/// The HTTP client, restricted to the allowed hosts.
pub(super) struct Web {
    agent: Agent,
    following: Agent,
    files: Option<PathBuf>,
    places: Places,
}

/// The allowed hosts.
#[derive(Clone, Debug)]
struct Allowed(Arc<[String]>);

impl Allowed {
    /// Returns `Some(true)` for a named host, which may be at any address, and `Some(false)` for another host if all public ones are allowed. `None`
    /// means refused.
    fn is_named(&self, host: &str, port: u16) -> Option<bool> {
        let named = |allowed: &String| *allowed == host || *allowed == format!("{host}:{port}");
        if self.0.iter().any(named) {
            return Some(true);
        }
        self.0.iter().any(|allowed| allowed == "*").then_some(false)
    }
}

/// True for a public address: none of this machine, of a private network, or of the cloud provider's metadata service.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let [a, b, ..] = v4.octets();
            let is_shared = a == 100 && (64..128).contains(&b);
            let is_reserved = a == 0 || a >= 240 || a == 198 && (18..20).contains(&b) || a == 192 && b == 0;
            !(v4.is_loopback()
                || v4.is_private()
                || v4.is_link_local()
                || v4.is_multicast()
                || v4.is_documentation()
                || is_shared
                || is_reserved)
        }
        // Global unicast, except the ranges for embedded IPv4 addresses and for documentation.
        IpAddr::V6(v6) => {
            let [a, b, ..] = v6.segments();
            a & 0xe000 == 0x2000 && a != 0x2002 && !(a == 0x2001 && (b == 0 || b == 0xdb8))
        }
    }
}

impl Resolver for Allowed {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let denied = |why: String| ureq::Error::Other(why.into());
        let host = uri.host().unwrap_or_default();
        let port = uri
            .port_u16()
            .unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
        let Some(is_named) = self.is_named(host, port) else {
            return Err(denied(format!("the host {host:?} is none that may be asked")));
        };
        let resolved = DefaultResolver::default().resolve(uri, config, timeout)?;
        if is_named {
            return Ok(resolved);
        }
        let mut public = self.empty();
        resolved
            .iter()
            .filter(|address: &&SocketAddr| is_public(address.ip()))
            .for_each(|address| public.push(*address));
        match public.is_empty() {
            true => Err(denied(format!(
                "the host {host:?} is not public, and is not named as one that may be asked"
            ))),
            false => Ok(public),
        }
    }
}

/// A request, parsed from the arguments of `http:get` and the like.
struct Request {
    method: String,
    url: String,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
    parses: bool,
    follows: bool,
}

impl Request {
    fn read(method: &str, arguments: &Value) -> Result<Self, String> {
        let given = |name: &str| arguments.child(name).cloned().unwrap_or_default();
        let mut url = given("url").as_str().ok_or("http: the url is missing")?.to_owned();
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in given("qs").as_map().into_iter().flatten() {
            query.append_pair(name, &value.text());
        }
        let query = query.finish();
        if !query.is_empty() {
            let join = if url.contains('?') { '&' } else { '?' };
            let _ = write!(url, "{join}{query}");
        }
        let mut headers: Vec<(String, String)> = Vec::new();
        for (name, value) in given("headers").as_map().into_iter().flatten() {
            headers.push((name.to_string(), value.text().into_owned()));
        }
        let auth = given("auth");
        if let Some(user) = auth.child("username").or_else(|| auth.child("user")) {
            let password = auth.child("password").or_else(|| auth.child("pass"));
            let password = password
                .map(|password| password.text().into_owned())
                .unwrap_or_default();
            let basic = STANDARD.encode(format!("{}:{password}", user.text()));
            headers.push(("authorization".into(), format!("Basic {basic}")));
        }
        let (body, kind) = body(&given("body"), &given("json"), &given("form"));
        if let Some(kind) = kind
            && !headers
                .iter()
                .any(|(name, _)| name.eq_ignore_ascii_case("content-type"))
        {
            headers.push(("content-type".into(), kind.into()));
        }
        Ok(Self {
            method: method.to_owned(),
            url,
            headers,
            body,
            parses: given("parseJSON").is_true(),
            follows: !given("dontFollowRedirect").is_true(),
        })
    }
}

fn body(body: &Value, json: &Value, form: &Value) -> (Option<Vec<u8>>, Option<&'static str>) {
    if !body.is_null() {
        return (Some(body.text().into_owned().into_bytes()), None);
    }
    if !json.is_null() {
        return (Some(json.to_json().into_bytes()), Some("application/json"));
    }
    if let Some(form) = form.as_map() {
        let mut pairs = form_urlencoded::Serializer::new(String::new());
        for (name, value) in form {
            pairs.append_pair(name, &value.text());
        }
        return (
            Some(pairs.finish().into_bytes()),
            Some("application/x-www-form-urlencoded"),
        );
    }
    (None, None)
}

impl Web {
    pub(super) fn new(settings: &Settings) -> Self {
        let allowed = Allowed(settings.hosts.clone().into());
        let agent = |redirects: u32| {
            let config = Agent::config_builder()
                .timeout_global(Some(TIMEOUT))
                .max_redirects(redirects)
                .max_redirects_will_error(redirects > 0)
                .http_status_as_error(false)
                .allow_non_standard_methods(false)
                // Behind a proxy, the target's address could not be checked here.
                .proxy(None)
                .build();
            Agent::with_parts(config, DefaultConnector::default(), allowed.clone())
        };
        Self {
            agent: agent(0),
            following: agent(REDIRECTS_MAX),
            files: settings.files.clone(),
            places: Places::new(AT_ONCE, WAITING_MAX),
        }
    }

    /// Makes the request of `http:get` and the like.
    pub(super) async fn request(&self, of: Holder, method: &str, arguments: &Value) -> Answered {
        let request = Request::read(method, arguments)?;
        let agent = if request.follows { &self.following } else { &self.agent }.clone();
        self.blocking(of, move || send(&agent, &request)).await
    }

    /// Returns the path of a `file:` URL, if its directory is allowed.
    pub(super) fn file(&self, url: &str) -> Result<PathBuf, Box<str>> {
        let path = url.strip_prefix("file://").ok_or("a file's URL begins with file://")?;
        within(self.files.as_deref(), Path::new(path))
    }

    /// Returns the source at a URL, if its host or directory is allowed and it is not too large.
    pub(super) async fn ruleset(&self, of: Holder, url: &str) -> Result<String, Box<str>> {
        if url.starts_with("file://") {
            let path = self.file(url)?;
            return self.blocking(of, move || read(&path)).await;
        }
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(format!("a ruleset's URL begins with file://, http:// or https://, found {url:?}").into());
        }
        let arguments = Value::map([("url", Value::from(url))]);
        let response = self.request(of, "GET", &arguments).await?;
        let status = response
            .child("status_code")
            .and_then(Value::to_number)
            .unwrap_or_default();
        if !(200.0..300.0).contains(&status) {
            return Err(format!("{url} answers with status {status}").into());
        }
        let content = response.child("content").map(|content| content.text().into_owned());
        Ok(content.unwrap_or_default())
    }

    async fn blocking<T: Send + 'static>(
        &self,
        of: Holder,
        run: impl FnOnce() -> Result<T, Box<str>> + Send + 'static,
    ) -> Result<T, Box<str>> {
        let given = self.places.enter(of).map_err(|full| full.to_string())?;
        let place = given.await.map_err(|_| "its place was taken away")?;
        let run = move || {
            // Held until the thread is free again, even if the caller has gone.
            let _place = place;
            run()
        };
        tokio::task::spawn_blocking(run)
            .await
            .map_err(|error| error.to_string())?
    }
}

/// Reads a file, if it is not larger than a ruleset may be.
fn read(path: &Path) -> Result<String, Box<str>> {
    let failed = |error: &dyn std::fmt::Display| -> Box<str> { format!("{}: {error}", path.display()).into() };
    let file = File::open(path).map_err(|error| failed(&error))?;
    let mut text = String::new();
    let read = file.take(BODY_BYTES_MAX + 1).read_to_string(&mut text);
    match read.map_err(|error| failed(&error))? as u64 {
        0..=BODY_BYTES_MAX => Ok(text),
        _ => Err(failed(&format!("it has more than {BODY_BYTES_MAX} bytes"))),
    }
}

/// Returns the real path of a file, if it is below the directory after all links are followed.
fn within(files: Option<&Path>, path: &Path) -> Result<PathBuf, Box<str>> {
    let Some(files) = files else {
        return Err("file: URLs are not loaded here: no directory of rulesets is named".into());
    };
    let found = |path: &Path| {
        path.canonicalize()
            .map_err(|error| format!("{}: {error}", path.display()))
    };
    let (files, path) = (found(files)?, found(path)?);
    match path.starts_with(&files) {
        true => Ok(path),
        false => Err(format!("{} is not below {}", path.display(), files.display()).into()),
    }
}

fn send(agent: &Agent, request: &Request) -> Answered {
    let failed =
        |error: &dyn std::fmt::Display| -> Box<str> { format!("{} {}: {error}", request.method, request.url).into() };
    let mut builder = ureq::http::Request::builder()
        .method(request.method.as_str())
        .uri(&request.url);
    for (name, value) in &request.headers {
        builder = builder.header(name, value);
    }
    let built = builder
        .body(request.body.clone().unwrap_or_default())
        .map_err(|error| failed(&error))?;
    let mut response = match request.body {
        Some(_) => agent.run(built),
        None => agent.run(built.map(|_| ())),
    }
    .map_err(|error| failed(&error))?;
    let read = response.body_mut().with_config().limit(BODY_BYTES_MAX).read_to_vec();
    let read = read.map_err(|error| failed(&error))?;
    let content = String::from_utf8_lossy(&read).into_owned();
    let parsed = match request.parses {
        true => serde_json::from_str(&content).unwrap_or_else(|_| Value::from(content.clone())),
        false => content.into(),
    };
    let header = |name: &str| {
        response
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
            .map(Value::from)
    };
    let headers = response.headers().iter();
    let headers = headers.filter_map(|(name, value)| Some((name.as_str(), Value::from(value.to_str().ok()?))));
    let status = response.status();
    let length = read.len() as f64;
    Ok(Value::map([
        ("content", parsed),
        ("content_type", header("content-type").unwrap_or_default()),
        ("content_length", length.into()),
        ("headers", Value::map(headers)),
        ("status_code", f64::from(status.as_u16()).into()),
        ("status_line", status.canonical_reason().unwrap_or_default().into()),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_private_networks_and_metadata_are_not_public() {
        for address in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "100.64.0.1",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
        for address in ["1.1.1.1", "93.184.216.34", "2606:2800:220:1::1"] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn only_named_hosts_may_be_of_this_machine() {
        let allowed = Allowed([String::from("*"), "localhost:9000".into()].into());
        assert_eq!(allowed.is_named("localhost", 9000), Some(true));
        assert_eq!(allowed.is_named("localhost", 8080), Some(false));
        assert_eq!(Allowed([].into()).is_named("example.com", 80), None);
    }

    #[test]
    fn a_file_is_loaded_only_below_its_directory() {
        let home = tempfile::tempdir().unwrap();
        let inside = home.path().join("a.krl");
        std::fs::write(&inside, "").unwrap();
        assert!(within(Some(home.path()), &inside).is_ok());
        assert!(within(Some(home.path()), &home.path().join("../../etc/passwd")).is_err());
        assert!(within(Some(home.path()), Path::new("/etc/hostname")).is_err());
        assert!(within(None, &inside).is_err());
    }
}
