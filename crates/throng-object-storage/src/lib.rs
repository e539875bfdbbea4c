//! A Throng journal's objects on S3-compatible storage. The operator's guide is `docs/object-storage.md`.
//!
//! ```no_run
//! use std::sync::Arc;
//! use throng_conditional::{ConditionalOptions, open_conditional};
//! use throng_object_storage::{Bucket, S3Location};
//!
//! # async fn open() -> Result<(), Box<dyn std::error::Error>> {
//! let location: S3Location = "s3://shows/main?region=eu-central-1".parse()?;
//! let bucket = Arc::new(Bucket::open(location)?);
//! bucket.admit().await?;
//! let host = bucket.host();
//! let opened = open_conditional(bucket, host, ConditionalOptions::default());
//! # drop(opened);
//! # Ok(())
//! # }
//! ```
//!
//! # A request
//!
//! A call of [`ConditionalStore`](throng_conditional::ConditionalStore) is one signed request, sent once. It is never repeated here: a client that
//! repeats would hide from the protocol which attempt a 412 answers. So the crate `object_store` is not used. It repeats failed requests, and reports
//! a conflict (409) as an existing object.
//!
//! | reply | meaning |
//! |---|---|
//! | 200 | done; the ETag names the version |
//! | 412; 404 `NoSuchKey` to `If-Match` | the condition does not hold |
//! | 409 | nothing is known: put the same again |
//! | 5xx, 429, 408, `RequestTimeout`, `SlowDown`, an expired key, a full storage, no whole answer in time, a reset | the request may have been carried out |
//! | 404 `NoSuchKey` | there is no such object; any other 404 is no answer to this question |
//! | all else | refused, with a sentence that says what to do |
//!
//! Every field is signed, including the conditions. The storage refuses a request if a proxy dropped one.
//!
//! # Admission
//!
//! [`Bucket::admit`] checks the bucket's rules and runs the [`trial`](throng_conditional::trial) before the first journal is begun at a prefix.
//! [`Bucket::verify`] does so at any time.
//!
//! # Limits
//!
//! An object has at most 256 MiB. An idle connection is kept for 4 s. A request times out after 20 s, or after the location's `timeout`.

mod admission;
mod bucket;
mod client;
mod credentials;
mod location;
mod reply;
mod rules;
mod signature;

pub use admission::Inadmissible;
pub use bucket::Bucket;
pub use location::{InvalidLocation, S3Location};
