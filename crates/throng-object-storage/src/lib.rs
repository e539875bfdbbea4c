//! A Throng journal's objects on S3-compatible storage. For operators there is a page of its own, `docs/object-storage.md`.
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
//! A call of [`ConditionalStore`](throng_conditional::ConditionalStore) is one request: signed, sent once, read exactly. Nothing is repeated here.
//! A client that repeats hides from the protocol which attempt a 412 answers. So `object_store` is not used: it repeats what failed, and tells a
//! conflict (409) as an object that exists.
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
//! Every field is signed, the conditions among them: a proxy that drops one is refused by the storage.
//!
//! # Admission
//!
//! [`Bucket::admit`] looks at the bucket's rules and runs the [`trial`](throng_conditional::trial) before the first journal is begun at a prefix.
//! [`Bucket::verify`] does so at any time.
//!
//! # Limits
//!
//! An object has at most 256 MiB. An idle connection is kept for 4 s. A request has 20 s, or what the location says.

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
