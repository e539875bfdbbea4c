//! Operator actions: a button of the console, a route of the API.

use crate::caller::Role;
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde_json::{Value, json};
use std::borrow::Cow;
use throng::projection::{EventOffset, Progress, ProjectionState};

/// Something a person can do.
pub(super) struct Action {
    name: &'static str,
    label: &'static str,
    path: String,
    confirm: Option<Cow<'static, str>>,
    /// True if the operator has to give a reason: `reason` is added to the path.
    needs_reason: bool,
}

impl Action {
    pub(super) fn new(name: &'static str, label: &'static str, path: String) -> Self {
        Self {
            name,
            label,
            path,
            confirm: None,
            needs_reason: false,
        }
    }

    /// Sets the text that the operator confirms.
    pub(super) fn confirm(self, confirm: impl Into<Cow<'static, str>>) -> Self {
        Self {
            confirm: Some(confirm.into()),
            ..self
        }
    }

    pub(super) fn needs_reason(self) -> Self {
        Self {
            needs_reason: true,
            ..self
        }
    }

    pub(super) fn shown(&self) -> Value {
        let Self {
            name,
            label,
            path,
            confirm,
            needs_reason,
        } = self;
        let route = path.split('?').next().unwrap_or(path);
        let role = Role::of_path(&Method::POST, route).name();
        json!({ "name": name, "label": label, "method": "POST", "path": path, "confirm": confirm, "needs_reason": needs_reason, "needs_role": role })
    }

    /// The actions on an entity that is not quarantined.
    pub(super) fn of_entity(of: (&str, &str)) -> Vec<Self> {
        vec![Self::quarantine(of), Self::erase(of)]
    }

    /// The actions on a call outside that is open.
    pub(super) fn of_call(of: (&str, &str)) -> Vec<Self> {
        let attempt = Self::entity("attempt", "Attempt now", "/admin/call/attempt", of);
        let confirm = "No attempt is made any more, and its entity hears the outcome: that nothing was sent, or that it is not known.";
        let give_up = Self::entity("give-up", "Give up", "/admin/call/give-up", of);
        let mut all = vec![attempt, give_up.confirm(confirm).needs_reason()];
        all.extend(Self::of_entity(of));
        all
    }

    /// Returns the actions for a quarantined entity: by an operator, or because it cannot be loaded.
    pub(super) fn of_quarantined(of: (&str, &str), by_operator: bool) -> Vec<Self> {
        let label = if by_operator { "Release" } else { "Load again" };
        let release = Self::entity("release", label, "/admin/release", of);
        if !by_operator {
            return vec![release, Self::erase(of)];
        }
        let release = release.confirm("It has its turns again, and takes what has waited for it, in order.");
        let drop = Self::entity("drop-messages", "Drop its messages", "/admin/messages/drop", of)
            .confirm("What waits for it now is never taken: nobody can try it again. Whoever asked for an outcome hears that it was dropped.");
        vec![release, drop.needs_reason(), Self::erase(of)]
    }

    pub(super) fn quarantine(of: (&str, &str)) -> Self {
        let confirm = "It has no turn from now on, also after a restart, until somebody releases it: commands and queries are refused, messages and timers wait.";
        let quarantine = Self::entity("quarantine", "Quarantine", "/admin/quarantine", of);
        quarantine.confirm(confirm).needs_reason()
    }

    fn erase(of: (&str, &str)) -> Self {
        let confirm =
            "It ends, and all that is recorded of it is overwritten, in the journal, too. There is no way back.";
        Self::entity("erase", "Erase", "/admin/erase", of).confirm(confirm)
    }

    fn entity(name: &'static str, label: &'static str, path: &str, (kind, id): (&str, &str)) -> Self {
        let path = format!("{path}?kind={}&id={}", encoded(kind), encoded(id));
        Self::new(name, label, path)
    }

    /// Returns the actions on a projection or sink.
    pub(super) fn of_projection(progress: &Progress) -> Vec<Self> {
        let action = |name, label| {
            let path = format!("/admin/projection/{name}?name={}", encoded(progress.name));
            Self::new(name, label, path)
        };
        let is_stopped = matches!(progress.state, ProjectionState::Stopped { .. });
        let resume = is_stopped.then(|| action("resume", "Try again"));
        let skip = match &progress.state {
            ProjectionState::Stopped { at: Some(event), .. } => Some(Self::skip(progress, *event)),
            _ => None,
        };
        let rebuild = match progress.is_sink {
            true => action("rebuild", "Deliver again").confirm(
                "Every event that is kept is delivered again, from the first: its receiver sees all of them once more.",
            ),
            false => action("rebuild", "Rebuild").confirm("Its rows are removed and built again from the first event that is kept. Until that is done, lists from it are not complete, and say so."),
        };
        resume.into_iter().chain(skip).chain([rebuild]).collect()
    }

    /// Names the event, so that only the event the operator has seen can be skipped.
    fn skip(progress: &Progress, event: EventOffset) -> Self {
        let lost = match progress.is_sink {
            true => "its receiver never gets it",
            false => "what it would have changed is missing in the rows until they are rebuilt",
        };
        let path = format!("/admin/projection/skip?name={}&event={event}", encoded(progress.name));
        let confirm = format!("It goes past the event at {event} and no other: {lost}. A rebuild comes to it again.");
        Self::new("skip", "Skip the event", path)
            .confirm(confirm)
            .needs_reason()
    }
}

/// A part of a query string.
pub(super) fn encoded(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, NON_ALPHANUMERIC)
}
