//! The rules of a bucket: those that destroy a journal, and those that make it expensive.

use crate::{
    client::Client,
    reply::{element, elements},
};
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, header::SERVER};
use throng_conditional::Fault;

/// A finding about a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// A journal must not be stored in this bucket.
    Refused(String),
    /// The bucket works, but the operator should know this.
    Warning(String),
}

impl Client {
    /// Checks the bucket's rules.
    ///
    /// # Errors
    /// The storage could not be asked.
    pub(crate) async fn findings(&self) -> Result<Vec<Finding>, Fault> {
        let (place, prefix) = (&self.location, &self.location.prefix);
        let mut findings = Vec::new();
        for (query, read) in [
            ("versioning=", versioning as fn(&str, &str) -> Option<Finding>),
            ("object-lock=", retention),
            ("lifecycle=", expiry),
        ] {
            let answer = self
                .ask(Method::GET, "", query, HeaderMap::new(), Bytes::new())
                .await
                .map_err(|why| Fault::Unavailable(format!("{place}: {why}")))?;
            if findings.is_empty() {
                findings.extend(server(answer.headers()));
            }
            let text = String::from_utf8_lossy(answer.body());
            let subject = query.trim_end_matches('=');
            match (answer.status(), element(&text, "Code")) {
                (StatusCode::OK, _) => findings.extend(read(&text, prefix)),
                (StatusCode::NOT_FOUND, Some("NoSuchBucket")) => {
                    return Err(Fault::Refused(format!("{place}: there is no such bucket: create it, or name another")));
                }
                // There is no such rule.
                (StatusCode::NOT_FOUND, _) => {}
                (status, code) if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED => {
                    return Err(Fault::Unavailable(format!("{place}: asking for the bucket's {subject}: {status} {}", code.unwrap_or_default())));
                }
                (status, code) => findings.push(Finding::Warning(format!(
                    "the bucket's {subject} could not be looked at ({status} {}): see yourself that no rule removes or archives objects",
                    code.unwrap_or_default()
                ))),
            }
        }
        Ok(findings)
    }
}

/// Reports a server that is known to let two writers win in cases that a trial cannot provoke.
fn server(fields: &HeaderMap) -> Option<Finding> {
    let name = fields.get(SERVER)?.to_str().ok()?;
    name.starts_with("SeaweedFS").then(|| {
        Finding::Warning(format!(
            "{name} is known to let two writers win at times, and the trial need not see it: try things out on it, and keep there nothing that must \
             not be lost"
        ))
    })
}

fn versioning(text: &str, _: &str) -> Option<Finding> {
    (element(text, "Status") == Some("Enabled")).then(|| {
        Finding::Warning(
            "the bucket keeps old versions: each deleted or replaced object goes on costing; add a rule that removes noncurrent versions, or switch \
             versioning off"
                .into(),
        )
    })
}

fn retention(text: &str, _: &str) -> Option<Finding> {
    let rule = element(text, "DefaultRetention")?;
    let unit = ["Days", "Years"]
        .into_iter()
        .find_map(|unit| Some((element(rule, unit)?, unit.to_lowercase())));
    let (number, unit) = unit?;
    Some(Finding::Warning(format!(
        "the bucket locks each object for {number} {unit}: nothing that the journal deletes or replaces frees room before"
    )))
}

/// Finds a rule that removes or archives objects of the journal by age. The age of an object does not tell if it is still needed.
fn expiry(text: &str, prefix: &str) -> Option<Finding> {
    let harms = |rule: &&str| {
        let is_on = element(rule, "Status") == Some("Enabled");
        let ours = element(rule, "Prefix").unwrap_or_default();
        // Objects of a journal have no tags.
        let is_ours = (ours.starts_with(prefix) || prefix.starts_with(ours)) && element(rule, "Tag").is_none();
        let expires =
            elements(rule, "Expiration").any(|how| ["Days", "Date"].iter().any(|unit| element(how, unit).is_some()));
        let archives = elements(rule, "Transition")
            .any(|how| matches!(element(how, "StorageClass"), Some("GLACIER" | "DEEP_ARCHIVE")));
        is_on && is_ours && (expires || archives)
    };
    let rule = elements(text, "Rule").find(harms)?;
    let name = element(rule, "ID").map_or_else(String::new, |name| format!(" {name:?}"));
    Some(Finding::Refused(format!(
        "the bucket's rule{name} removes or archives objects by their age, those of the journal among them: remove the rule, or let it spare the prefix {prefix:?}"
    )))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn rule(inner: &str) -> Option<Finding> {
        expiry(
            &format!("<LifecycleConfiguration><Rule>{inner}</Rule></LifecycleConfiguration>"),
            "shows/main/",
        )
    }

    #[test]
    fn rule_that_reaches_the_journal_is_refused() {
        let days = "<Status>Enabled</Status><Expiration><Days>30</Days></Expiration>";
        for reaches in [
            format!("<ID>old</ID>{days}"),
            format!("<Prefix></Prefix>{days}"),
            format!("<Filter><Prefix>shows/</Prefix></Filter>{days}"),
            format!("<Filter><Prefix>shows/main/w</Prefix></Filter>{days}"),
            "<Status>Enabled</Status><Transition><Days>9</Days><StorageClass>GLACIER</StorageClass></Transition>"
                .into(),
        ] {
            assert!(matches!(rule(&reaches), Some(Finding::Refused(_))), "{reaches}");
        }
        for spares in [
            format!("<Filter><Prefix>logs/</Prefix></Filter>{days}"),
            format!("<Filter><Tag><Key>a</Key><Value>b</Value></Tag></Filter>{days}"),
            days.replace("Enabled", "Disabled"),
            "<Status>Enabled</Status><NoncurrentVersionExpiration><NoncurrentDays>3</NoncurrentDays></NoncurrentVersionExpiration>".into(),
            "<Status>Enabled</Status><Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>".into(),
            "<Status>Enabled</Status><Transition><Days>30</Days><StorageClass>STANDARD_IA</StorageClass></Transition>".into(),
            "<Status>Enabled</Status><AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation></AbortIncompleteMultipartUpload>".into(),
        ] {
            assert_eq!(rule(&spares), None, "{spares}");
        }
        let Some(Finding::Refused(said)) = rule(&format!("<ID>old</ID>{days}")) else {
            panic!("it is refused")
        };
        assert!(said.contains("\"old\"") && said.contains("shows/main/"), "{said}");
    }

    #[test]
    fn versions_and_retention_are_told() {
        assert!(
            versioning(
                "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>",
                ""
            )
            .is_some()
        );
        assert_eq!(
            versioning(
                "<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>",
                ""
            ),
            None
        );
        let locked = "<ObjectLockConfiguration><Rule><DefaultRetention><Mode>COMPLIANCE</Mode><Days>7</Days></DefaultRetention></Rule></ObjectLockConfiguration>";
        assert!(matches!(retention(locked, ""), Some(Finding::Warning(said)) if said.contains("7 days")));
        assert_eq!(retention("<ObjectLockConfiguration/>", ""), None);
    }
}
