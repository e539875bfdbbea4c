use std::collections::BTreeMap;

use crate::ResponseParts;

/// The bytes of a body that are kept, and the statuses of a class.
const BYTES_MAX: usize = 300;
const STATUSES_MAX: usize = 8;

/// The body of the first failed answer of each status, on one line, cut after 300 bytes.
pub type Examples = BTreeMap<u16, String>;

/// Keeps the body of an answer that failed if it is the first of its status.
pub(crate) fn keep(examples: &mut Examples, answer: &ResponseParts<'_>) {
    if answer.body.is_empty() || examples.contains_key(&answer.status) || examples.len() == STATUSES_MAX {
        return;
    }
    let cut = &answer.body[..answer.body.len().min(BYTES_MAX)];
    let text = String::from_utf8_lossy(cut);
    let mut text = text.replace(|sign: char| sign.is_control(), " ");
    if cut.len() < answer.body.len() {
        text.push('…');
    }
    examples.insert(answer.status, text);
}

/// Adds the statuses that were not known.
pub(crate) fn add(examples: &mut Examples, others: &Examples) {
    for (status, body) in others {
        examples.entry(*status).or_insert_with(|| body.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_body_of_a_status_is_kept_on_one_line_and_cut() {
        let mut examples = Examples::new();
        let mut answered = |status, body: &str| {
            let body = body.as_bytes();
            keep(
                &mut examples,
                &ResponseParts {
                    status,
                    head: b"",
                    body,
                },
            );
        };
        answered(404, "");
        answered(404, "no such\n\x1b[31morder");
        answered(404, "other");
        answered(500, &"x".repeat(400));
        (600..700).for_each(|status| answered(status, "many"));
        assert_eq!(examples[&404], "no such  [31morder");
        assert_eq!(examples[&500], format!("{}…", "x".repeat(300)));
        assert_eq!(examples.len(), STATUSES_MAX);
    }
}
