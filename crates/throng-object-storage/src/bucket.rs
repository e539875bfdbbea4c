//! A bucket as a store with conditional puts.

use crate::{
    client::{Client, fields},
    location::S3Location,
    reply::{Asked, Meaning, meaning},
};
use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode};
use std::{fmt, io, sync::Arc};
use throng_conditional::{ConditionalStore, Fault, Host, Machine, Object, PutNew, Replaced, Version};
use throng_journal::Later;
use tokio::{
    runtime::{Handle, Runtime},
    sync::oneshot,
};

const THREADS: usize = 2;

/// A prefix in a bucket of an S3-compatible storage. Requests run on the bucket's own threads. A request runs to its end even if its caller is gone.
pub struct Bucket {
    pub(crate) client: Arc<Client>,
    handle: Handle,
    /// `None` only after `drop` has begun.
    runtime: Option<Runtime>,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bucket({})", self.client.location)
    }
}

impl Bucket {
    /// Opens a bucket with the access key from the environment. Sends no request yet.
    ///
    /// # Errors
    /// There is no access key, the certificates cannot be read, or threads cannot be started.
    pub fn open(location: S3Location) -> io::Result<Self> {
        Self::with(Client::new(location, None)?)
    }

    /// Opens a bucket with this access key and its secret.
    ///
    /// # Errors
    /// The certificates cannot be read, or threads cannot be started.
    pub fn open_as(location: S3Location, access_key: &str, secret_key: &str) -> io::Result<Self> {
        Self::with(Client::new(location, Some((access_key, secret_key)))?)
    }

    fn with(client: Client) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("throng-objects")
            .enable_all()
            .build()?;
        Ok(Self {
            client: Arc::new(client),
            handle: runtime.handle().clone(),
            runtime: Some(runtime),
        })
    }

    /// Returns the location of the bucket.
    #[must_use]
    pub fn location(&self) -> &S3Location {
        &self.client.location
    }

    /// Returns the host for a journal in this bucket: tasks on its threads, and the clocks of this machine.
    #[must_use]
    pub fn host(&self) -> Arc<dyn Host> {
        Arc::new(Machine::new(self.handle.clone()))
    }

    /// Sends one signed request about the bucket itself, for example for its rules.
    ///
    /// # Errors
    /// There is no complete answer; the storage may have carried out the request.
    pub fn ask_bucket(
        &self,
        method: Method,
        query: &str,
        body: Bytes,
    ) -> Later<'static, Result<Response<Bytes>, String>> {
        let (client, query) = (Arc::clone(&self.client), query.to_owned());
        let answered = async move { client.ask(method, "", &query, HeaderMap::new(), body).await };
        self.run(answered, Err)
    }

    /// Runs a future on the bucket's own threads. The waiting caller may be on any executor, and may go away.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
        gone: fn(String) -> T,
    ) -> Later<'static, T> {
        let (tell, told) = oneshot::channel();
        self.handle.spawn(async move {
            // The send fails if the caller is gone, which is fine.
            let _ = tell.send(future.await);
        });
        Box::pin(async move {
            told.await
                .unwrap_or_else(|_| gone("the connection to the storage is being closed".into()))
        })
    }

    /// Sends a request about an object, and interprets the reply.
    fn send(
        &self,
        asked: Asked,
        key: &str,
        with: &[(&'static str, &str)],
        body: Bytes,
    ) -> Later<'static, (Meaning, Response<Bytes>)> {
        let (client, fields) = (Arc::clone(&self.client), fields(with));
        let key = format!("{}{key}", client.location.prefix);
        let answered = async move {
            let method = match asked {
                Asked::Create | Asked::Replace => Method::PUT,
                Asked::Head => Method::HEAD,
                Asked::Delete => Method::DELETE,
                Asked::Read | Asked::ReadRange => Method::GET,
            };
            let fields = match fields {
                Ok(fields) => fields,
                Err(why) => return (Meaning::Refused(why), Response::default()),
            };
            let place = &client.location;
            match client.ask(method, &key, "", fields, body).await {
                Ok(answer) => match meaning(asked, answer.status(), answer.body()) {
                    Meaning::Refused(why) => (Meaning::Refused(format!("{place}: {why}")), answer),
                    Meaning::Unknown(why) => (Meaning::Unknown(format!("{place}: {why}")), answer),
                    known => (known, answer),
                },
                Err(why) => (Meaning::Unknown(format!("{place}: {why}")), Response::default()),
            }
        };
        self.run(answered, |why| (Meaning::Unknown(why), Response::default()))
    }

    fn put(
        &self,
        asked: Asked,
        key: &str,
        body: Bytes,
        condition: (&'static str, &str),
    ) -> Later<'static, (Meaning, Response<Bytes>)> {
        let mut with = vec![condition];
        if let Some(encryption) = &self.location().encryption {
            with.push(("x-amz-server-side-encryption", &encryption.algorithm));
            if let Some(key) = &encryption.key {
                with.push(("x-amz-server-side-encryption-aws-kms-key-id", key));
            }
        }
        self.send(asked, key, &with, body)
    }
}

/// Returns the failure of a request that changes nothing.
fn fault(meaning: Meaning) -> Fault {
    match meaning {
        Meaning::Refused(why) => Fault::Refused(why),
        Meaning::Unknown(why) => Fault::Unavailable(why),
        other => Fault::Refused(format!("the storage's answer makes no sense here: {other:?}")),
    }
}

/// Returns the version in an answer. A storage that names no version cannot do conditional puts.
fn version(answer: &Response<Bytes>) -> Result<Version, String> {
    let tag = answer.headers().get("etag").and_then(|tag| tag.to_str().ok());
    let tag = tag.filter(|tag| !tag.is_empty() && !tag.starts_with("W/"));
    tag.map(|tag| Version(tag.into()))
        .ok_or_else(|| "the storage's answer names no ETag".into())
}

impl ConditionalStore for Bucket {
    fn put_new<'a>(&'a self, key: &'a str, body: Bytes) -> Later<'a, PutNew> {
        let sent = self.put(Asked::Create, key, body, ("if-none-match", "*"));
        Box::pin(async move {
            let (meaning, answer) = sent.await;
            match meaning {
                Meaning::Done => version(&answer).map_or_else(PutNew::Refused, PutNew::Stored),
                Meaning::ConditionFailed => PutNew::Exists,
                Meaning::Conflict => PutNew::Conflict,
                Meaning::Unknown(why) => PutNew::Unknown(why),
                other => PutNew::Refused(fault(other).to_string()),
            }
        })
    }

    fn replace<'a>(&'a self, key: &'a str, body: Bytes, seen: &'a Version) -> Later<'a, Replaced> {
        let sent = self.put(Asked::Replace, key, body, ("if-match", &seen.0));
        Box::pin(async move {
            let (meaning, answer) = sent.await;
            match meaning {
                Meaning::Done => version(&answer).map_or_else(Replaced::Refused, Replaced::Stored),
                Meaning::ConditionFailed => Replaced::Changed,
                Meaning::Conflict => Replaced::Conflict,
                Meaning::Unknown(why) => Replaced::Unknown(why),
                other => Replaced::Refused(fault(other).to_string()),
            }
        })
    }

    fn get<'a>(&'a self, key: &'a str) -> Later<'a, Result<Option<Object>, Fault>> {
        Box::pin(async move {
            let (meaning, answer) = self.send(Asked::Read, key, &[], Bytes::new()).await;
            match meaning {
                Meaning::Done => {
                    let version = version(&answer).map_err(Fault::Refused)?;
                    Ok(Some(Object {
                        body: answer.into_body(),
                        version,
                    }))
                }
                Meaning::NoObject => Ok(None),
                other => Err(fault(other)),
            }
        })
    }

    fn get_range<'a>(&'a self, key: &'a str, from: u64, len: u64) -> Later<'a, Result<Option<Bytes>, Fault>> {
        Box::pin(async move {
            // A range names its last byte, so an empty one cannot be requested.
            let Some(last) = len.checked_sub(1) else {
                return Ok(self.version(key).await?.map(|_| Bytes::new()));
            };
            // Servers parse the number as signed.
            let last = from.saturating_add(last).min(i64::MAX as u64);
            let range = format!("bytes={from}-{last}");
            let (meaning, answer) = self
                .send(Asked::ReadRange, key, &[("range", &*range)], Bytes::new())
                .await;
            match meaning {
                Meaning::Done if answer.status() == StatusCode::PARTIAL_CONTENT => Ok(Some(answer.into_body())),
                // The answer is the whole object.
                Meaning::Done => {
                    let body = answer.into_body();
                    let clamp = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(body.len());
                    Ok(Some(body.slice(clamp(from)..clamp(from.saturating_add(len)))))
                }
                Meaning::NoObject => Ok(None),
                _ if answer.status() == StatusCode::RANGE_NOT_SATISFIABLE => Ok(Some(Bytes::new())),
                other => Err(fault(other)),
            }
        })
    }

    fn version<'a>(&'a self, key: &'a str) -> Later<'a, Result<Option<Version>, Fault>> {
        Box::pin(async move {
            let (meaning, answer) = self.send(Asked::Head, key, &[], Bytes::new()).await;
            match meaning {
                Meaning::Done => version(&answer).map(Some).map_err(Fault::Refused),
                // The bucket may be missing instead; only an answer with a body tells.
                Meaning::NoObject => Ok(self.get(key).await?.map(|object| object.version)),
                other => Err(fault(other)),
            }
        })
    }

    fn delete<'a>(&'a self, key: &'a str) -> Later<'a, Result<(), Fault>> {
        Box::pin(async move {
            match self.send(Asked::Delete, key, &[], Bytes::new()).await {
                (Meaning::Done, _) => Ok(()),
                (other, _) => Err(fault(other)),
            }
        })
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
