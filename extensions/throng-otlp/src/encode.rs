//! The messages of OTLP that a span needs, in Protocol Buffers (opentelemetry-proto 1.x, `trace/v1/trace.proto`).

use throng::spans::{Attribute, Span, SpanKind, TraceContext};

/// The wire types of Protocol Buffers: the low three bits of a tag.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;
const FIXED32: u64 = 5;

/// `Status.code`: the work failed.
const STATUS_ERROR: u64 = 2;

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8 & 0x7f) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn tag(out: &mut Vec<u8>, field: u64, wire: u64) {
    varint(out, field << 3 | wire);
}

fn number(out: &mut Vec<u8>, field: u64, value: u64) {
    tag(out, field, VARINT);
    varint(out, value);
}

fn fixed64(out: &mut Vec<u8>, field: u64, value: u64) {
    tag(out, field, FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}

fn fixed32(out: &mut Vec<u8>, field: u64, value: u32) {
    tag(out, field, FIXED32);
    out.extend_from_slice(&value.to_le_bytes());
}

fn bytes(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    tag(out, field, BYTES);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// A message within another. Its length goes before it once it is written.
fn message(out: &mut Vec<u8>, field: u64, write: impl FnOnce(&mut Vec<u8>)) {
    tag(out, field, BYTES);
    let begin = out.len();
    write(out);
    let end = out.len();
    varint(out, (end - begin) as u64);
    out[begin..].rotate_left(end - begin);
}

/// Writes an attribute as a message `KeyValue`.
fn attribute(out: &mut Vec<u8>, field: u64, key: &str, value: Attribute<'_>) {
    message(out, field, |out| {
        bytes(out, 1, key.as_bytes());
        message(out, 2, |out| match value {
            Attribute::Text(text) => bytes(out, 1, text.as_bytes()),
            Attribute::Number(value) => number(out, 3, value.cast_unsigned()),
        });
    });
}

fn ids(out: &mut Vec<u8>, context: TraceContext) {
    bytes(out, 1, &context.trace().to_be_bytes());
    bytes(out, 2, &context.span.to_be_bytes());
}

fn nanos(micros: i64) -> u64 {
    micros.max(0).cast_unsigned().saturating_mul(1_000)
}

/// Writes a span, as one of a `ScopeSpans`.
pub(crate) fn span(out: &mut Vec<u8>, span: &Span<'_>) {
    let kind = match span.kind {
        SpanKind::Internal => 1,
        SpanKind::Server => 2,
        SpanKind::Client => 3,
        SpanKind::Consumer => 5,
    };
    message(out, 2, |out| {
        ids(out, span.context);
        if let Some(parent) = span.parent {
            bytes(out, 4, &parent.to_be_bytes());
        }
        bytes(out, 5, span.name.as_bytes());
        number(out, 6, kind);
        fixed64(out, 7, nanos(span.begun_micros));
        fixed64(out, 8, nanos(span.ended_micros));
        for (key, value) in span.attributes {
            attribute(out, 9, key, *value);
        }
        for link in span.links {
            message(out, 13, |out| ids(out, *link));
        }
        if span.links_dropped > 0 {
            number(out, 14, span.links_dropped.into());
        }
        if span.is_failed {
            message(out, 15, |out| number(out, 3, STATUS_ERROR));
        }
        fixed32(out, 16, span.context.is_sampled.into());
    });
}

/// Writes an `ExportTraceServiceRequest` of these spans of a service.
pub(crate) fn request(spans: &[u8], resource: &[(&'static str, String)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(spans.len() + 256);
    message(&mut out, 1, |out| {
        message(out, 1, |out| {
            for (key, value) in resource {
                attribute(out, 1, key, Attribute::Text(value));
            }
        });
        message(out, 2, |out| {
            message(out, 1, |out| {
                bytes(out, 1, b"throng");
                bytes(out, 2, env!("CARGO_PKG_VERSION").as_bytes());
            });
            out.extend_from_slice(spans);
        });
    });
    out
}
