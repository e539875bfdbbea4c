//! Reads the service's answers as outcomes.

use registration::{
    reference::Outcome,
    section::{Change, SectionRejection, SectionReply},
    trace::Operation,
};
use serde::Deserialize;
use throng_load::ResponseParts;

/// The field of a problem that names its type.
#[derive(Deserialize)]
struct Problem {
    rejection: Option<SectionRejection>,
}

/// Reads the outcome from the answer to an add or a drop.
///
/// # Errors
/// A sentence with the unexpected answer.
pub fn outcome(operation: Operation, answer: &ResponseParts<'_>) -> Result<Outcome, String> {
    let found = match answer.status {
        200 => granted(answer)?,
        404 => Some(Outcome::NoSection),
        409 => match serde_json::from_slice(answer.body) {
            Ok(Problem {
                rejection: Some(SectionRejection::Full { .. }),
            }) => Some(Outcome::Full),
            _ => None,
        },
        _ => None,
    };
    let fits = found.filter(|outcome| match outcome {
        Outcome::Added | Outcome::AlreadyPresent | Outcome::Full => !operation.is_drop(),
        Outcome::Dropped | Outcome::NotPresent => operation.is_drop(),
        Outcome::NoSection => true,
    });
    fits.ok_or_else(|| said(answer))
}

fn granted(answer: &ResponseParts<'_>) -> Result<Option<Outcome>, String> {
    let reply: SectionReply = serde_json::from_slice(answer.body).map_err(|_| said(answer))?;
    if reply.taken.checked_add(reply.remaining) != Some(reply.capacity) {
        return Err(said(answer));
    }
    Ok(match reply.change {
        Change::Added => Some(Outcome::Added),
        Change::AlreadyPresent => Some(Outcome::AlreadyPresent),
        Change::Dropped => Some(Outcome::Dropped),
        Change::NotPresent => Some(Outcome::NotPresent),
        Change::Opened => None,
    })
}

/// Returns status and body, cut to the length of a line.
pub fn said(answer: &ResponseParts<'_>) -> String {
    let body: String = String::from_utf8_lossy(answer.body).chars().take(200).collect();
    format!("{} {body}", answer.status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(operation: Operation, status: u16, body: &str) -> Result<Outcome, String> {
        outcome(
            operation,
            &ResponseParts {
                status,
                head: b"",
                body: body.as_bytes(),
            },
        )
    }

    #[test]
    fn every_outcome_is_read_from_its_answer() {
        use Operation::{Add, Drop};
        let reply = |change: &str| format!(r#"{{"change":"{change}","capacity":3,"taken":1,"remaining":2}}"#);
        let full = r#"{"type":"/problems/section-full","rejection":{"reason":"full","capacity":3}}"#;
        assert_eq!(read(Add, 200, &reply("added")), Ok(Outcome::Added));
        assert_eq!(read(Add, 200, &reply("already-present")), Ok(Outcome::AlreadyPresent));
        assert_eq!(read(Drop, 200, &reply("dropped")), Ok(Outcome::Dropped));
        assert_eq!(
            read(Operation::AdministrativeDrop, 200, &reply("not-present")),
            Ok(Outcome::NotPresent)
        );
        assert_eq!(read(Add, 409, full), Ok(Outcome::Full));
        assert_eq!(read(Drop, 404, "{}"), Ok(Outcome::NoSection));
    }

    #[test]
    fn an_answer_that_makes_no_sense_is_repeated() {
        use Operation::{Add, Drop};
        let reply =
            |change: &str, taken: u32| format!(r#"{{"change":"{change}","capacity":3,"taken":{taken},"remaining":2}}"#);
        for (operation, status, body) in [
            (Add, 200, reply("dropped", 1)),
            (Drop, 200, reply("added", 1)),
            (Add, 200, reply("opened", 1)),
            (Add, 200, reply("added", 2)),
            (Add, 200, "pong".into()),
            (Add, 409, "{}".into()),
            (Add, 500, "{}".into()),
        ] {
            assert_eq!(read(operation, status, &body), Err(format!("{status} {body}")));
        }
    }
}
