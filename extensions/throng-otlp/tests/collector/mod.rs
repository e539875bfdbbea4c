//! A private HTTP server that decodes requests, as a collector does.

use opentelemetry_proto::tonic::{
    common::v1::{KeyValue, any_value::Value},
    trace::v1::{Span, TracesData},
};
use prost::Message as _;
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

/// A received span.
pub(crate) type Received = Span;

/// A collector. Its thread ends with the test's process.
#[derive(Clone)]
pub(crate) struct Collector {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<TracesData>>>,
}

impl Collector {
    /// Starts a collector that answers each request with this status.
    pub(crate) fn start(status: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let collector = Self {
            address: listener.local_addr().unwrap(),
            requests: Arc::default(),
        };
        let requests = Arc::clone(&collector.requests);
        thread::spawn(move || {
            for stream in listener.incoming() {
                take(stream.unwrap(), status, |request| {
                    requests.lock().unwrap_or_else(PoisonError::into_inner).push(request);
                });
            }
        });
        collector
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn spans(&self) -> Vec<Span> {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let resources = requests.into_iter().flat_map(|request| request.resource_spans);
        let scopes = resources.flat_map(|resource| resource.scope_spans);
        scopes.flat_map(|scope| scope.spans).collect()
    }

    pub(crate) fn service_name(&self) -> String {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let resource = requests[0].resource_spans[0].resource.clone().unwrap();
        text(&resource.attributes, "service.name")
    }
}

/// Reads a request and answers it. The spans are stored before the answer.
fn take(stream: TcpStream, status: &str, keep: impl FnOnce(TracesData)) {
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        head.push(line.trim().to_ascii_lowercase());
    }
    assert_eq!(head[0], "post /v1/traces http/1.1");
    assert!(
        head.contains(&"content-type: application/x-protobuf".to_owned()),
        "{head:?}"
    );
    let length = head.iter().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.unwrap().parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    keep(TracesData::decode(&*body).unwrap());
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    // The exporter may be gone.
    let _ = reader.get_mut().write_all(answer.as_bytes());
}

/// Returns the text of an attribute, empty if the span lacks it.
pub(crate) fn attribute(span: &Span, key: &str) -> String {
    text(&span.attributes, key)
}

fn text(attributes: &[KeyValue], key: &str) -> String {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    match found.and_then(|found| found.value.clone()?.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        _ => String::new(),
    }
}
