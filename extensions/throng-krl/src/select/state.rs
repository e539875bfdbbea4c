use crate::Value;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The progress of a ruleset's rules in one pico in their event expressions. Only rules in the middle of one are in it: for rules that one
/// event selects it stays empty.
///
/// After an [`Interrupt`](crate::Interrupt) it is of no use: the caller keeps the one from before the transaction.
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
    /// The fingerprint of the event expression: another version of the rule begins anew.
    pub(crate) expression: u64,
    /// The states of the machine it may be in.
    pub(crate) states: Vec<u16>,
    /// When the time of `within` began, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) began_ms: Option<i64>,
    /// The variables that `setting` has set so far, in the order the rule names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) settings: Vec<Value>,
    /// The values that aggregators have gathered, for each variable of `settings`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) gathered: Vec<Vec<Value>>,
}
