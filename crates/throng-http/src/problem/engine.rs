//! Conversion of the engine's errors to problems: the one place where they meet.

use super::{
    Problem,
    catalog::{self},
    parse,
};
use crate::key::written_key;
use serde_json::value::RawValue;
use std::time::Duration;
use throng::{
    JsonRejection,
    model::{Error, Rejection},
    projection::{EventOffset, SkipError},
};

/// The pause suggested while the engine is unavailable.
const UNAVAILABLE_RETRY: Duration = Duration::from_secs(1);

/// The engine's answer as a problem, in a box.
pub(crate) fn engine_problem(error: Error<JsonRejection>) -> Box<Problem> {
    Problem::of_engine(error).boxed()
}

impl Problem {
    /// Converts an error of the engine, or the rejection of an entity.
    #[must_use]
    pub fn of_engine(error: Error<JsonRejection>) -> Self {
        match error {
            Error::Rejected(rejection) => Self::of_rejection(rejection),
            Error::Unknown { kind, id } => Self::unknown_entity(kind, &id),
            Error::Ended { .. } => Self::of(&catalog::ENDED, sentence(&error.to_string())),
            Error::Malformed(why) => Self::of_malformed(&why),
            Error::TooLarge { .. } => Self::of(&catalog::TOO_LARGE, sentence(&error.to_string())),
            Error::KeyReused(key) => {
                let error: Error<JsonRejection> = Error::KeyReused(written_key(&key).to_owned());
                Self::of(&catalog::KEY_REUSED, sentence(&error.to_string())).at_field("Idempotency-Key")
            }
            Error::KeyRefused(key) => {
                let error: Error<JsonRejection> = Error::KeyRefused(written_key(&key).to_owned());
                Self::of(&catalog::KEY_REFUSED, sentence(&error.to_string())).at_field("Idempotency-Key")
            }
            Error::Overloaded { retry_after } => {
                Self::overloaded("Too much is waiting. Nothing was done; try again later.", retry_after)
            }
            Error::StorageFull { retry_after } => {
                let detail = "There is no room to record what a command does. Nothing was done; queries are answered.";
                let mut problem = Self::of(&catalog::STORAGE_FULL, detail);
                problem.retry_after = Some(retry_after);
                problem
            }
            Error::Unavailable { reason } => {
                let mut problem = Self::of(
                    &catalog::UNAVAILABLE,
                    format!("{} Nothing was done; try again later.", sentence(&reason)),
                );
                problem.retry_after = Some(UNAVAILABLE_RETRY);
                problem
            }
            Error::Expired => Self::expired(),
            Error::OutcomeUnknown => Self::of(&catalog::OUTCOME_UNKNOWN, sentence(&error.to_string())),
            Error::Crashed { .. } => Self::of(&catalog::CRASHED, sentence(&error.to_string())),
            // The reason is between operators.
            Error::Quarantined {
                address,
                by_operator: true,
                ..
            } => Self::of(
                &catalog::QUARANTINED,
                format!("{address} is quarantined by an operator or the engine. Nothing was done."),
            ),
            // Stored data of the entity cannot be read. Clients do not get the place of the damage.
            Error::Quarantined { address, seq: 0, .. } => {
                let detail = format!("{address} is quarantined: what is stored of it cannot be read.");
                Self::of(&catalog::QUARANTINED, detail)
            }
            Error::Quarantined { .. } => Self::of(&catalog::QUARANTINED, sentence(&error.to_string())),
        }
    }

    /// Returns a 503 for stored data that cannot be read. The client gets `what`; `why`, with files and addresses, goes to the log.
    #[must_use]
    pub fn of_journal(what: &str, why: &throng::journal::Error) -> Self {
        tracing::error!("{what} {why}");
        let mut problem = Self::of(&catalog::UNAVAILABLE, format!("{what} The service's log says why."));
        problem.retry_after = Some(UNAVAILABLE_RETRY);
        problem
    }

    /// Returns a 503: the store's file could not be compacted, and is unchanged.
    #[must_use]
    pub(crate) fn not_compacted(why: &throng::journal::Error) -> Self {
        Self::of(&catalog::UNAVAILABLE, sentence(&why.to_string()))
    }

    /// 409: a projection did not go past an event.
    #[must_use]
    pub(crate) fn not_skipped(name: &str, event: EventOffset, why: &SkipError) -> Self {
        Self::of(
            &catalog::NOT_SKIPPED,
            format!("{name} does not go past the event at {event}: {why}."),
        )
    }

    fn of_rejection(rejection: JsonRejection) -> Self {
        // An entity's rejection is the caller's to handle, so its status must be a 4xx.
        let status = if (400..500).contains(&rejection.status) {
            rejection.status
        } else {
            409
        };
        let mut problem = Self::new(
            rejection.code,
            status,
            title(rejection.code),
            sentence(&rejection.message),
        );
        problem.field = rejection.field.map(str::to_owned);
        problem.rejection = String::from_utf8(rejection.body)
            .ok()
            .and_then(|body| RawValue::from_string(body).ok());
        problem
    }

    /// Returns the problem of a malformed part of a request, with serde's explanation.
    pub(crate) fn unreadable(what: &str, why: &str) -> Self {
        let mut problem = Self::of_malformed(why);
        problem.detail = format!("{what} cannot be read: {why}.");
        problem
    }

    pub(super) fn of_malformed(why: &str) -> Self {
        let place = parse::place(why);
        let mut problem = Self::malformed(sentence(why));
        problem.field = place.field;
        problem.line = place.line;
        problem.column = place.column;
        problem
    }
}

impl<R: Rejection> From<Error<R>> for Problem {
    fn from(error: Error<R>) -> Self {
        Self::of_engine(match error.engine::<JsonRejection>() {
            Ok(error) => error,
            Err(rejection) => Error::Rejected(rejection.into()),
        })
    }
}

/// `seat-taken` → `Seat taken`.
pub(crate) fn title(code: &str) -> String {
    capital(&code.replace(['-', '_'], " "))
}

/// Returns the text with a capital letter and a full stop.
fn sentence(text: &str) -> String {
    let mut sentence = capital(text);
    if !sentence.ends_with(['.', '!', '?']) {
        sentence.push('.');
    }
    sentence
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn shown(error: Error<JsonRejection>) -> Value {
        serde_json::to_value(Problem::of_engine(error)).unwrap()
    }

    #[test]
    fn where_the_rows_of_a_quarantined_entity_stand_is_not_told() {
        let problem = Problem::of_engine(Error::Quarantined {
            address: "section/A".into(),
            seq: 0,
            reason: "damage at 1.3 (/srv/data/00000001.log at offset 1024)".into(),
            by_operator: false,
        });
        assert!(problem.detail().contains("section/A") && !problem.detail().contains("/srv"));
        let problem = Problem::of_engine(Error::Quarantined {
            address: "section/A".into(),
            seq: 0,
            reason: "the dean asked for it".into(),
            by_operator: true,
        });
        assert!(problem.detail().contains("by an operator") && !problem.detail().contains("dean"));
        let why = throng::journal::Error::io("reading /srv/data/views.redb")(std::io::Error::other("gone"));
        let problem = Problem::of_journal("The list cannot be read.", &why);
        assert!(problem.status() == 503 && !problem.detail().contains("/srv"));
    }

    #[test]
    fn every_error_of_the_engine_has_its_status_and_a_sentence() {
        let later = Duration::from_millis(1_500);
        let cases: [(Error<JsonRejection>, u16, &str); 12] = [
            (
                Error::Unknown {
                    kind: "section",
                    id: "S1".into(),
                },
                404,
                "/problems/unknown-entity",
            ),
            (
                Error::Malformed("student: expected a string at line 2 column 7".into()),
                400,
                "/problems/malformed",
            ),
            (
                Error::TooLarge {
                    what: "the command",
                    found: 3,
                    limit: 2,
                },
                413,
                "/problems/too-large",
            ),
            (Error::KeyReused("k".into()), 422, "/problems/key-reused"),
            (Error::KeyRefused("k".into()), 409, "/problems/key-refused"),
            (Error::Overloaded { retry_after: later }, 503, "/problems/overloaded"),
            (Error::StorageFull { retry_after: later }, 507, "/problems/storage-full"),
            (
                Error::Unavailable {
                    reason: "it is starting".into(),
                },
                503,
                "/problems/unavailable",
            ),
            (Error::Expired, 504, "/problems/expired"),
            (Error::OutcomeUnknown, 504, "/problems/outcome-unknown"),
            (
                Error::Crashed {
                    reason: "index out of bounds".into(),
                },
                500,
                "/problems/crashed",
            ),
            (
                Error::Quarantined {
                    address: "a/b".into(),
                    seq: 3,
                    reason: "no step up".into(),
                    by_operator: false,
                },
                500,
                "/problems/quarantined",
            ),
        ];
        for (error, status, kind) in cases {
            let shown = shown(error);
            assert_eq!((&shown["status"], &shown["type"]), (&json!(status), &json!(kind)));
            let detail = shown["detail"].as_str().unwrap();
            assert!(detail.ends_with('.') && !detail.ends_with(".."), "{detail}");
            assert!(detail.starts_with(char::is_uppercase), "{detail}");
        }
    }

    #[test]
    fn a_rejection_says_its_code_its_field_and_itself() {
        let rejection = JsonRejection {
            code: "seat-taken",
            status: 409,
            field: Some("seat"),
            message: "seat 7 is taken".into(),
            body: br#"{"Taken":{"seat":7}}"#.to_vec(),
        };
        let expected = json!({
            "type": "/problems/seat-taken", "title": "Seat taken", "status": 409, "detail": "Seat 7 is taken.",
            "field": "seat", "rejection": {"Taken": {"seat": 7}},
        });
        assert_eq!(shown(Error::Rejected(rejection)), expected);
    }

    #[test]
    fn a_rejection_with_a_status_that_is_none_is_a_conflict() {
        let rejection = JsonRejection {
            code: "no",
            status: 200,
            field: None,
            message: "no".into(),
            body: Vec::new(),
        };
        assert_eq!(shown(Error::Rejected(rejection))["status"], 409);
    }

    #[test]
    fn overload_says_when_to_come_back() {
        let problem = Problem::of_engine(Error::Overloaded {
            retry_after: Duration::from_millis(1_500),
        });
        assert_eq!(problem.response().headers()["retry-after"], "2");
    }
}
