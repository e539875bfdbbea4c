//! The same request on each of the two paths, and over HTTP/2.

use super::{
    Client, Received,
    http2::{Http2, read},
    wait,
};
use throng_http::Running;

/// A field that moves a request, and its connection, to the full path.
pub(crate) const FULL: (&str, &str) = ("te", "trailers");

/// Asks in the fast path and in the full one.
pub(crate) fn in_both(
    gateway: &Running,
    method: &str,
    path: &str,
    fields: &[(&str, &str)],
    body: &str,
) -> [Received; 2] {
    [&[][..], &[FULL]].map(|more| {
        let fields = [fields, more].concat();
        Client::new(gateway).request(method, path, &fields, body)
    })
}

/// The same with a head of one's own.
pub(crate) fn raw_in_both(gateway: &Running, head: &str) -> [Received; 2] {
    ["", "te: trailers\r\n"].map(|more| {
        let mut client = Client::new(gateway);
        client
            .send(format!("{head}{more}content-length: 2\r\n\r\n{{}}"))
            .answer()
    })
}

/// Asks with these fields and no others but `host` and a missing `content-length`: by both paths, and over HTTP/2.
pub(crate) fn in_all(
    gateway: &Running,
    method: &str,
    path: &str,
    fields: &[(&str, &str)],
    body: &str,
) -> [Received; 3] {
    let length = body.len().to_string();
    let has_length = fields
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let lengths = [("content-length", &*length)];
    let more = if has_length { &[][..] } else { &lengths };
    let [direct, full] = [&[][..], &[FULL]].map(|way| {
        let fields: String = [fields, more, way]
            .concat()
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let head = format!("{method} {path} HTTP/1.1\r\nHOST: localhost\r\n{fields}\r\n");
        Client::new(gateway).send(head + body).answer()
    });
    // HTTP/2 allows only lower-case names.
    let small: Vec<(String, &str)> = fields
        .iter()
        .map(|(name, value)| (name.to_lowercase(), *value))
        .collect();
    let fields: Vec<(&str, &str)> = small.iter().map(|(name, value)| (&**name, *value)).collect();
    let http2 = wait(async {
        let (client, _task) = Http2::new(gateway.address(), |_| {}).await;
        let response = client.begin_with(method, path, &fields, body).await;
        let named = response.headers().iter();
        let headers = named.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
        let headers = headers.collect();
        let (status, body) = read(response).await;
        Received {
            status,
            headers,
            body: body.into_bytes(),
        }
    });
    [direct, full, http2]
}
