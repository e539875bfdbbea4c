//! A load generator for any HTTP service.
//!
//! A [`Source`] decides which request is sent when (closed model, open model, replay, plan). [`run`] drives it over many connections with an inner
//! loop of its own, and returns a [`Report`]. The report has exact counts, HdrHistograms of response and service time, a per-second series, and the
//! generator's own cost. The crate knows nothing of any engine.
//!
//! ```no_run
//! use throng_load::{Closed, Options, Request, Target, report, run};
//!
//! # fn main() -> throng_load::Result<()> {
//! let target = Target::resolve("http://127.0.0.1:8080/primes/20", false)?;
//! let request = Request::get(&target.authority, &target.path);
//! let finished = run(&Options::new(target), vec![Closed::new(request, 10_000)])?;
//! println!("{}", report::text(&finished.report));
//! # Ok(())
//! # }
//! ```

pub mod capacity;
pub mod cli;
pub mod comparison;
mod engine;
mod error;
pub mod measure;
pub mod plan;
pub mod report;
mod request;
pub mod sample;
pub mod source;
mod target;
pub mod trace;

pub use engine::{Options, Progress, Run, Stop, TlsOptions, file_descriptors_for, over_tls, run, run_watched};
pub use error::{Error, ErrorKind, Result};
pub use report::Report;
pub use request::{Request, RequestBuilder};
pub use source::{
    Aftermath, Arrivals, Closed, Next, Open, OrderedReplay, Outcome, ResponseParts, Shot, Source, Stage, Trace,
    TraceItem, Verdict,
};
pub use target::Target;
