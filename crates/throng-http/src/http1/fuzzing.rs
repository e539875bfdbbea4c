//! Properties that hold for any bytes as a request's head and body. `throng-fuzz` drives them.

use super::{
    head::{Head, Parsed, Room, parse},
    judge::{Extent, Judged, judge},
    next::BODY_BYTES_MAX,
};
use crate::{event_loop, limits::Limits};
use http::Uri;

/// Checks that all parsers of heads agree, and that cutting the bytes changes no result.
pub fn head(bytes: &[u8]) {
    let limits = Limits::default();
    let parsed = |bytes: &[u8], look: &mut dyn FnMut(Parsed<'_, '_>)| {
        look(parse(
            bytes,
            &mut Room::new(None),
            limits.header_bytes_max,
            BODY_BYTES_MAX,
        ));
    };
    let mut plain = None;
    parsed(bytes, &mut |parsed| match parsed {
        Parsed::Plain(head) => plain = Some(head.body.clone()),
        Parsed::Partial => assert!(matches!(judge(bytes, &limits), Judged::Unreadable)),
        Parsed::Odd => {}
    });
    if let Some(body) = plain {
        let judged = judge(bytes, &limits);
        assert!(matches!(judged, Judged::Request(Extent::Bytes(length)) if length == body.end as u64));
        for end in [body.start - 1, body.start / 2] {
            parsed(&bytes[..end], &mut |parsed| assert!(matches!(parsed, Parsed::Partial)));
        }
    }
    if let (Judged::Request(mut whole), Judged::Request(mut cut)) = (judge(bytes, &limits), judge(bytes, &limits)) {
        let taken = whole.take(bytes);
        let pieces: usize = bytes.chunks(3).map(|piece| cut.take(piece)).sum();
        assert_eq!((taken, whole.is_over()), (pieces, cut.is_over()));
    }
}

/// Checks that the fast path and hyper read the same request from the same bytes, and that bytes behind it change nothing.
pub fn exchange(bytes: &[u8]) {
    let limits = Limits::default();
    let Judged::Request(mut extent) = judge(bytes, &limits) else {
        return;
    };
    let taken = extent.take(bytes);
    if !extent.is_over() {
        return;
    }
    let seen = event_loop::fuzzing::request(&bytes[..taken], &limits);
    assert_eq!(seen, event_loop::fuzzing::request(bytes, &limits));
    let mut room = Room::new(None);
    let Parsed::Plain(head) = parse(bytes, &mut room, limits.header_bytes_max, BODY_BYTES_MAX) else {
        return;
    };
    let Some(seen) = seen else {
        panic!("the fast path takes what the full implementation does not");
    };
    assert_eq!(seen, of(&head, &bytes[head.body.clone()]));
}

fn of(head: &Head<'_, '_>, body: &[u8]) -> event_loop::fuzzing::HandledRequest {
    let target = Uri::try_from(head.target).map(|target| target.to_string());
    let mut fields: Vec<_> = head
        .fields()
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_vec()))
        .collect();
    fields.sort();
    event_loop::fuzzing::HandledRequest {
        method: head.method.to_owned(),
        target: target.unwrap_or_default(),
        fields,
        body: Some(body.to_vec()),
    }
}
