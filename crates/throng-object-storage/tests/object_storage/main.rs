//! The crate from outside: a real storage, behind a network that loses answers.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod admission;
mod lost;
mod operations;
mod proxy;

use servers::Seaweed;
use std::sync::{Arc, LazyLock};
use throng_object_storage::{Bucket, S3Location};

/// The server of all tests that do not stop it. It ends with the program.
static SERVER: LazyLock<Seaweed> = LazyLock::new(|| Seaweed::start().unwrap());

/// Creates a unique bucket. The server allocates space for its first objects, which takes seconds.
fn fresh_bucket() -> String {
    let name = format!("bucket-{:08x}", fastrand::u32(..));
    SERVER.create_bucket(&name).unwrap();
    name
}

/// Returns a unique prefix in the bucket that most tests share.
fn fresh_place() -> String {
    static SHARED: LazyLock<String> = LazyLock::new(fresh_bucket);
    format!("{}/{:08x}", *SHARED, fastrand::u32(..))
}

fn opened(place: &str, endpoint: &str, more: &str) -> Arc<Bucket> {
    let location: S3Location = format!("s3://{place}?endpoint={endpoint}{more}").parse().unwrap();
    Arc::new(Bucket::open_as(location, Seaweed::ACCESS_KEY, Seaweed::SECRET_KEY).unwrap())
}

fn fresh() -> Arc<Bucket> {
    opened(&fresh_place(), &SERVER.endpoint(), "")
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}
