//! Decisions of operators about a call outside.

use super::OperatorResult;
use crate::engine::Engine;
use serde::Deserialize;
use throng_core::{
    model::Error,
    shard::{JsonRejection, OperatorDecision},
};

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reply {
    GivenUp { is_sent: bool },
}

impl Engine {
    /// Has the next attempt of a call outside made now, without the rest of the pause. `kind` is that of the worker's calls. The operator
    /// and the reason are recorded.
    ///
    /// # Errors
    /// `Rejected` if an attempt is under way, the call waits in a line, or it has its outcome. `Unknown` or `Ended` if there is no such
    /// call; otherwise the engine's error.
    pub async fn hasten_call(&self, kind: &str, id: &str, by: OperatorDecision<'_>) -> OperatorResult<()> {
        self.command_call((kind, id), "hasten", by).await.map(drop)
    }

    /// Gives a call outside up: no further attempt is made, and its entity gets the outcome. That is `Unknown` if an attempt, perhaps one
    /// under way, may have reached the provider, else `Refused`. The operator and the reason are recorded. Returns true if an attempt was
    /// sent.
    ///
    /// # Errors
    /// `Rejected` if it has its outcome. `Unknown` or `Ended` if there is no such call; otherwise the engine's error.
    pub async fn give_up_call(&self, kind: &str, id: &str, by: OperatorDecision<'_>) -> OperatorResult<bool> {
        let reply = self.command_call((kind, id), "give_up", by).await?;
        match serde_json::from_slice(&reply) {
            Ok(Reply::GivenUp { is_sent }) => Ok(is_sent),
            // The restored copy has given the call up already.
            Err(_) => Ok(true),
        }
    }

    async fn command_call(
        &self,
        (kind, id): (&str, &str),
        name: &str,
        by: OperatorDecision<'_>,
    ) -> OperatorResult<Vec<u8>> {
        let context = &self.core.context;
        context.may_change()?;
        let index = context.kind(kind)?;
        if !context.registry.kinds()[index].is_internal {
            return Err(Error::Rejected(no_call(kind)));
        }
        let body = serde_json::json!({ "by": by.by, "reason": by.reason }).to_string();
        let driver = self.driver();
        let attempt = driver.command(index, id, name, body.into_bytes())?;
        driver.answer(attempt).await
    }
}

fn no_call(kind: &str) -> JsonRejection {
    JsonRejection {
        code: "no-call",
        status: 409,
        field: None,
        message: format!("{kind} is no kind of calls: name the kind call-NAME of a worker"),
        body: Vec::new(),
    }
}
