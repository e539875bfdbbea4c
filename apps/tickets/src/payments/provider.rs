//! A provider for demonstrations. It is slow, loses requests and answers, and handles some requests twice.

use super::{Declined, PaymentRequest, Receipt};
use anyhow::Context as _;
use serde::Deserialize;
use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::{self, BufRead as _, BufReader, Write as _},
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use throng_app::model::CallError;

/// The token of a card that is always declined.
pub const DECLINED_TOKEN: &str = "declined";

/// The provider's faults. Each share is a fraction of all requests, from 0 to 1.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The longest time of a request, in milliseconds.
    pub slow_ms: u64,
    /// The share of requests that are lost on the way.
    pub lost: f64,
    /// The share of lost answers, whose requests were done.
    pub mute: f64,
    /// The share of requests that arrive twice.
    pub twice: f64,
    /// The file of its payments. Without it they are only in memory, and a restarted process has forgotten them.
    pub ledger: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            slow_ms: 500,
            lost: 0.05,
            mute: 0.05,
            twice: 0.05,
            ledger: None,
        }
    }
}

impl Settings {
    /// Reads the settings from the variable `TICKETS_PROVIDER`, if it is set.
    ///
    /// # Errors
    ///
    /// The variable has invalid settings.
    pub fn of_environment() -> anyhow::Result<Self> {
        std::env::var("TICKETS_PROVIDER").map_or_else(|_| Ok(Self::default()), |text| Self::read(&text))
    }

    /// Parses the settings from JSON.
    ///
    /// # Errors
    ///
    /// The text is not valid.
    pub fn read(text: &str) -> anyhow::Result<Self> {
        serde_json::from_str(text).with_context(|| {
            format!("TICKETS_PROVIDER is {text:?}; write JSON with slow_ms, lost, mute, twice, ledger")
        })
    }
}

/// A provider in this process. Its settings make it slow, lose answers or handle requests twice.
pub struct DemoProvider {
    settings: Settings,
    ledger: Mutex<Ledger>,
}

/// Payments by name. Each request changes them under one lock.
#[derive(Default)]
struct Ledger {
    payments: HashMap<String, Payment>,
    file: Option<File>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Payment {
    Charged,
    /// Reversed, or reversed before any charge.
    Reversed,
}

impl DemoProvider {
    /// Returns a provider with these faults.
    ///
    /// # Errors
    ///
    /// Its ledger file cannot be read.
    pub fn new(settings: Settings) -> anyhow::Result<Self> {
        let ledger = match &settings.ledger {
            None => Ledger::default(),
            Some(path) => Ledger::open(path.clone()).with_context(|| format!("the ledger {}", path.display()))?,
        };
        Ok(Self {
            settings,
            ledger: Mutex::new(ledger),
        })
    }

    /// Makes a request, with the faults on its way.
    ///
    /// # Errors
    ///
    /// The provider declines it, or there is no answer.
    pub(super) async fn ask(&self, request: PaymentRequest) -> Result<Receipt, CallError<Declined>> {
        let happens = |share: f64| fastrand::f64() < share;
        let millis = fastrand::u64(0..=self.settings.slow_ms);
        tokio::time::sleep(Duration::from_millis(millis)).await;
        if happens(self.settings.lost) {
            return Err(CallError::InDoubt("the connection broke".into()));
        }
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let mut answer = ledger.take(&request);
        if happens(self.settings.twice) {
            answer = ledger.take(&request);
        }
        drop(ledger);
        match answer {
            _ if happens(self.settings.mute) => Err(CallError::InDoubt("the connection broke".into())),
            Ok(Ok(receipt)) => Ok(receipt),
            Ok(Err(declined)) => Err(CallError::Failed(declined)),
            Err(why) => Err(CallError::NotSent(format!("the ledger cannot be written: {why}"))),
        }
    }
}

impl Ledger {
    fn open(path: PathBuf) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let mut payments = HashMap::new();
        for line in BufReader::new(&file).lines() {
            match line?.split_once(' ') {
                Some(("charged", name)) => payments.insert(name.to_owned(), Payment::Charged),
                Some((_, name)) => payments.insert(name.to_owned(), Payment::Reversed),
                // A killed process may have left the last line incomplete.
                None => None,
            };
        }
        Ok(Self {
            payments,
            file: Some(file),
        })
    }

    /// Does a request, at most once per payment name.
    fn take(&mut self, request: &PaymentRequest) -> io::Result<Result<Receipt, Declined>> {
        let declined = |why: &str| Ok(Err(Declined { why: why.to_owned() }));
        let (payment, was, is) = match request {
            PaymentRequest::Charge { token, .. } if token == DECLINED_TOKEN => return declined("the card is declined"),
            PaymentRequest::Charge { payment, .. } => match self.payments.get(payment) {
                Some(Payment::Reversed) => return declined("the payment was reversed"),
                was => (payment, was, Payment::Charged),
            },
            PaymentRequest::Reverse { payment } => (payment, self.payments.get(payment), Payment::Reversed),
        };
        if was != Some(&is) {
            if let Some(file) = &mut self.file {
                let did = match (is, was) {
                    (Payment::Charged, _) => "charged",
                    (Payment::Reversed, Some(_)) => "reversed",
                    (Payment::Reversed, None) => "blocked",
                };
                file.write_all(format!("{did} {payment}\n").as_bytes())?;
            }
            self.payments.insert(payment.clone(), is);
        }
        let payment = payment.clone();
        Ok(Ok(Receipt { payment }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charge(token: &str) -> PaymentRequest {
        PaymentRequest::Charge {
            payment: "o/1".into(),
            cents: 5_000,
            token: token.into(),
        }
    }

    fn reverse() -> PaymentRequest {
        let payment = "o/1".into();
        PaymentRequest::Reverse { payment }
    }

    fn written(requests: &[PaymentRequest]) -> String {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger");
        for request in requests {
            // A new ledger for each request, as after a restart.
            drop(Ledger::open(path.clone()).unwrap().take(request).unwrap());
        }
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn payment_is_made_and_reversed_once_over_all_processes() {
        let requests = [charge("card"), charge("card"), reverse(), reverse(), charge("card")];
        assert_eq!(written(&requests), "charged o/1\nreversed o/1\n");
    }

    #[test]
    fn payment_is_not_taken_after_its_reversal() {
        assert_eq!(written(&[reverse(), charge("card")]), "blocked o/1\n");
        assert_eq!(written(&[charge(DECLINED_TOKEN)]), "");
    }

    #[test]
    fn settings_are_named_where_they_cannot_be_read() {
        let read = Settings::read(r#"{"slow_ms":5,"lost":0.5}"#).unwrap();
        assert_eq!((read.slow_ms, read.lost, read.twice), (5, 0.5, 0.05));
        assert!(
            Settings::read(r#"{"slow":5}"#)
                .unwrap_err()
                .to_string()
                .contains("slow_ms")
        );
    }
}
