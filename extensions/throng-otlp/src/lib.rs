//! Exports the traces of an engine to an OpenTelemetry collector, by OTLP over HTTP with Protocol Buffers.
//!
//! An [`Exporter`] is the [`SpanSink`](throng::spans::SpanSink) of a [`Tracer`](throng::spans::Tracer), which is given to an engine:
//!
//! ```
//! use std::sync::Arc;
//! use throng::spans::{TraceOptions, Tracer};
//! use throng_otlp::Exporter;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let exporter = Arc::new(Exporter::start("http://127.0.0.1:4318", "shop")?);
//! let tracer = Tracer::new(exporter.clone(), TraceOptions::default());
//! let builder = throng::Engine::builder().tracer(Arc::new(tracer));
//! # drop(builder);
//! # Ok(())
//! # }
//! ```
//!
//! A span is encoded when it ends, into a buffer of bounded bytes. A thread of its own sends the buffer each second, or when it is half
//! full. A span that finds no room is dropped and counted; nobody waits for the collector.

mod encode;
mod exporter;
mod send;

pub use exporter::{Exporter, Settings};
pub use send::UrlError;
