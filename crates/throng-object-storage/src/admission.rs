//! The admission of a storage: its rules, its contents, and the trial.

use crate::{bucket::Bucket, client::Client, reply::elements, rules::Finding};
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use std::sync::Arc;
use throng_conditional::{ConditionalStore as _, Fault, ROOT, Unfit, trial};
use throng_journal::Later;

/// The reason that a journal is not opened in a bucket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Inadmissible {
    /// The storage could not be asked, or refused.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The storage failed the trial.
    #[error("{place} cannot hold a journal: {why}")]
    Unfit {
        /// The bucket and the prefix.
        place: String,
        /// The fault that the trial found.
        why: Unfit,
    },
    /// A rule of the bucket would destroy the journal, or a foreign object exists at the prefix.
    #[error("{place} cannot hold a journal: {why}")]
    Rule {
        /// The bucket and the prefix.
        place: String,
        /// The rule or the foreign object, and the remedy.
        why: String,
    },
}

impl Bucket {
    /// Admits the place: checks the bucket's rules each time, and runs the [`trial`] if no journal exists. Returns sentences for the operator.
    ///
    /// # Errors
    /// [`Inadmissible`]: the reason that no journal is opened here.
    pub fn admit(self: &Arc<Self>) -> Later<'static, Result<Vec<String>, Inadmissible>> {
        self.look(false)
    }

    /// Checks the bucket's rules, and always runs the [`trial`]. Returns sentences for the operator.
    ///
    /// # Errors
    /// [`Inadmissible`]: the reason that the storage must not hold a journal.
    pub fn verify(self: &Arc<Self>) -> Later<'static, Result<Vec<String>, Inadmissible>> {
        self.look(true)
    }

    fn look(self: &Arc<Self>, is_tried_again: bool) -> Later<'static, Result<Vec<String>, Inadmissible>> {
        let (bucket, host) = (Arc::clone(self), self.host());
        let looked = async move {
            let place = || bucket.location().to_string();
            let mut warnings = Vec::new();
            for finding in bucket.client.findings().await? {
                match finding {
                    Finding::Warning(why) => warnings.push(why),
                    Finding::Refused(why) => return Err(Inadmissible::Rule { place: place(), why }),
                }
            }
            // A journal that is created meanwhile has its root before any other object.
            let foreign = bucket.client.foreign().await?;
            let is_begun = bucket.get(ROOT).await?.is_some();
            if let Some(key) = foreign.filter(|_| !is_begun) {
                let why =
                    format!("objects of something else stand there, {key:?} among them: name a prefix of its own");
                return Err(Inadmissible::Rule { place: place(), why });
            }
            if !is_begun || is_tried_again {
                let tried = trial(&*bucket, &*host).await;
                tried.map_err(|why| Inadmissible::Unfit { place: place(), why })?;
            }
            Ok(warnings)
        };
        self.run(looked, |why| Err(Fault::Unavailable(why).into()))
    }
}

impl Client {
    /// Returns the key of an object at the prefix that is not left over from a trial.
    async fn foreign(&self) -> Result<Option<String>, Fault> {
        let (place, prefix) = (&self.location, &self.location.prefix);
        let query = format!("list-type=2&max-keys=1000&prefix={}", prefix.replace('/', "%2F"));
        let answer = self.ask(Method::GET, "", &query, HeaderMap::new(), Bytes::new()).await;
        let answer = answer.map_err(|why| Fault::Unavailable(format!("{place}: {why}")))?;
        let text = String::from_utf8_lossy(answer.body());
        match answer.status() {
            StatusCode::OK if text.contains("ListBucketResult") => {}
            status if status.is_server_error() || status.is_success() => {
                return Err(Fault::Unavailable(format!(
                    "{place}: it cannot be listed now ({status})"
                )));
            }
            status => {
                return Err(Fault::Refused(format!(
                    "{place}: the access key may not list what stands there ({status}): it needs s3:ListBucket"
                )));
            }
        }
        let mut keys = elements(&text, "Key").filter_map(|key| key.strip_prefix(&**prefix));
        Ok(keys.find(|key| !key.starts_with("trial/")).map(str::to_owned))
    }
}
