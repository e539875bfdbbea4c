//! The same request by each of the two lanes.

use super::{Answer, Client};
use throng_http::Running;

/// A field that sends a request, and its connection, to the full lane.
pub(crate) const FULL: (&str, &str) = ("te", "trailers");

/// Asks in the lane of plain requests and in the full one.
pub(crate) fn in_both(gateway: &Running, method: &str, path: &str, fields: &[(&str, &str)], body: &str) -> [Answer; 2] {
    [&[][..], &[FULL]].map(|more| {
        let fields = [fields, more].concat();
        Client::new(gateway).request(method, path, &fields, body)
    })
}

/// The same with a head of one's own.
pub(crate) fn raw_in_both(gateway: &Running, head: &str) -> [Answer; 2] {
    ["", "te: trailers\r\n"].map(|more| {
        let mut client = Client::new(gateway);
        client
            .send(format!("{head}{more}content-length: 2\r\n\r\n{{}}"))
            .answer()
    })
}
