//! Certificates that expire.

use super::der::{Element, element};
use jiff::{SignedDuration, Timestamp};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::gauge::ConstGauge,
};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use std::fmt;
use throng::services::health::{Check, Reason, Status};

/// The time before its expiry from which on a certificate is reported.
const WARN_BEFORE: SignedDuration = SignedDuration::from_hours(30 * 24);
/// The interval of log lines about the same certificates.
const TELL_EVERY: SignedDuration = SignedDuration::from_hours(24);

/// The certificate in a file that expires first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expiry {
    pub(crate) file: String,
    pub(crate) at: Timestamp,
}

/// Returns when the first certificate in a PEM text expires; `None`: there is none, or none that expires.
pub(crate) fn first_expiry(pem: &[u8]) -> Option<Timestamp> {
    let certificates = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok);
    certificates.filter_map(|certificate| expires_at(&certificate)).min()
}

/// Reads `notAfter` of a certificate (RFC 5280, 4.1).
fn expires_at(certificate: &[u8]) -> Option<Timestamp> {
    const VERSION: u8 = 0xa0;
    // The serial number, the algorithm and the issuer.
    const BEFORE_VALIDITY: usize = 3;
    let to_be_signed = element(element(certificate)?.content)?.content;
    let first = element(to_be_signed)?;
    let mut rest = if first.tag == VERSION { first.rest } else { to_be_signed };
    for _ in 0..BEFORE_VALIDITY {
        rest = element(rest)?.rest;
    }
    let not_before = element(element(rest)?.content)?;
    time(&element(not_before.rest)?)
}

/// Reads a UTCTime or a GeneralizedTime, as certificates have them.
fn time(element: &Element<'_>) -> Option<Timestamp> {
    const UTC: u8 = 0x17;
    const GENERALIZED: u8 = 0x18;
    let text = str::from_utf8(element.content).ok()?;
    let year = match (element.tag, text.len()) {
        (UTC, 13) if text.get(..2)? < "50" => format!("20{text}"),
        (UTC, 13) => format!("19{text}"),
        (GENERALIZED, 15) => text.to_owned(),
        _ => return None,
    };
    let part = |at: usize| year.get(at..at + 2);
    let text = format!(
        "{}-{}-{}T{}:{}:{}Z",
        year.get(..4)?,
        part(4)?,
        part(6)?,
        part(8)?,
        part(10)?,
        part(12)?
    );
    text.parse().ok()
}

fn due(mut expiries: Vec<Expiry>, now: Timestamp) -> Vec<Expiry> {
    expiries.retain(|expiry| expiry.at.duration_since(now) < WARN_BEFORE);
    expiries
}

fn told(expiry: &Expiry, now: Timestamp) -> String {
    let left = expiry.at.duration_since(now);
    match left.is_positive() {
        true => format!("expires at {}, in {} days", expiry.at, left.as_hours() / 24),
        false => format!("has expired at {}", expiry.at),
    }
}

/// Warns of the certificate that expires first, without the names of files, which not every caller of the health route should see.
pub(crate) fn check(expiries: Vec<Expiry>, now: Timestamp) -> Option<Check> {
    let due = due(expiries, now);
    let first = due.iter().min_by_key(|expiry| expiry.at)?;
    let reason = format!(
        "a certificate {}: replace the file, which is read again by itself; the log names it",
        told(first, now)
    );
    Some(Check {
        name: "certificates".into(),
        status: Status::Warn,
        reason: Reason::Other(reason),
    })
}

/// Logs each file with a certificate that expires soon: at once, and then daily.
#[derive(Default)]
pub(crate) struct Reminder {
    last: Option<(Vec<Expiry>, Timestamp)>,
}

impl Reminder {
    /// Returns the lines that are due now.
    pub(crate) fn lines(&mut self, expiries: Vec<Expiry>, now: Timestamp) -> Vec<String> {
        let due = due(expiries, now);
        let is_told = |(before, at): &(Vec<Expiry>, Timestamp)| *before == due && now.duration_since(*at) < TELL_EVERY;
        if self.last.as_ref().is_some_and(is_told) {
            return Vec::new();
        }
        let line = |expiry: &Expiry| {
            format!(
                "the certificate in {} {}: replace the file, which is read again by itself",
                expiry.file,
                told(expiry, now)
            )
        };
        let lines = due.iter().map(line).collect();
        self.last = Some((due, now));
        lines
    }
}

/// Measures when certificates expire.
pub(crate) struct Expiries<F>(pub(crate) F);

impl<F> fmt::Debug for Expiries<F> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Expiries").finish_non_exhaustive()
    }
}

impl<F: Fn() -> Vec<Expiry> + Send + Sync + 'static> Collector for Expiries<F> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let expiries = (self.0)();
        if expiries.is_empty() {
            return Ok(());
        }
        let of_kind = ConstGauge::new(0_i64).metric_type();
        let help = "When the first certificate of a file expires, in seconds since 1970";
        let mut family = encoder.encode_descriptor("certificate_expiry_timestamp_seconds", help, None, of_kind)?;
        for expiry in expiries {
            let labels = [("file", expiry.file.as_str())];
            ConstGauge::new(expiry.at.as_second()).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    fn pem(year: i32) -> String {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_after = date_time_ymd(year, 3, 4);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    #[test]
    fn first_certificate_of_a_file_to_expire_counts() {
        let at = |text: &str| Some(text.parse::<Timestamp>().unwrap());
        // Dates until 2049 are UTCTime, later ones GeneralizedTime.
        assert_eq!(first_expiry(pem(2049).as_bytes()), at("2049-03-04T00:00:00Z"));
        assert_eq!(first_expiry(pem(2050).as_bytes()), at("2050-03-04T00:00:00Z"));
        let several = [pem(2031), pem(2030), pem(2032)].concat();
        assert_eq!(first_expiry(several.as_bytes()), at("2030-03-04T00:00:00Z"));
        assert_eq!(first_expiry(b"no certificate"), None);
        let certificate = CertificateDer::from_pem_slice(pem(2030).as_bytes()).unwrap();
        for length in 0..certificate.len() {
            // Any truncation is handled without a panic.
            let _ = expires_at(&certificate[..length]);
        }
    }

    #[test]
    fn expiring_certificate_is_told_for_30_days_once_a_day() {
        let at: Timestamp = "2030-03-04T00:00:00Z".parse().unwrap();
        let file = "cert.pem".to_owned();
        let expiries = || vec![Expiry { file: file.clone(), at }];
        let before = |days: i64| at - SignedDuration::from_hours(24 * days);
        let mut reminder = Reminder::default();
        assert!(check(expiries(), before(31)).is_none() && reminder.lines(expiries(), before(31)).is_empty());
        let reason = check(expiries(), before(29)).unwrap().reason.to_string();
        assert!(
            reason.contains("in 29 days") && !reason.contains("cert.pem"),
            "{reason}"
        );
        let lines = reminder.lines(expiries(), before(29));
        assert!(lines.len() == 1 && lines[0].contains("cert.pem"), "{lines:?}");
        assert!(reminder.lines(expiries(), before(29)).is_empty());
        assert_eq!(reminder.lines(expiries(), before(28)).len(), 1);
        let reason = check(expiries(), at).unwrap().reason.to_string();
        assert!(reason.contains("has expired"), "{reason}");
    }
}
