use crate::Value;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The progress of a ruleset's rules in their event expressions, in one pico. It has only rules that are in the middle of one. Rules that a single
/// event selects are never in it.
///
/// The state is invalid after an [`Interrupt`](crate::Interrupt): keep a copy from before the transaction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SelectState {
    pub(crate) rules: BTreeMap<String, RuleState>,
}

impl SelectState {
    /// True if no rule is in the middle of its event expression.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

/// The progress of one rule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RuleState {
    /// The fingerprint of the event expression. If it differs, another version of the rule recorded this, and the rule begins anew.
    pub(crate) expression: u64,
    /// The states in which the machine is now.
    pub(crate) states: Vec<u16>,
    /// When the time of `within` began, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) began_ms: Option<i64>,
    /// The variables that `setting` has set so far, in the order in which the rule names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) settings: Vec<Value>,
    /// The values that aggregators have gathered, for each variable of `settings`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) gathered: Vec<Vec<Value>>,
}
