//! What an account is asked, what happens to it, and what it answers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use throng_app::model::{Event, Rejection, TextId};

/// What an account can be asked to do: each variant in `PUBLIC` is a route, `POST /api/account/{id}/{command}`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Opens the account; an open one stays as it is.
    Open {},
    /// Adds money that comes from outside.
    Deposit {
        /// What is added to the balance.
        cents: u64,
    },
    /// Takes money out, if there is enough of it.
    Withdraw {
        /// What is taken from the balance.
        cents: u64,
    },
    /// Sends money to another account, and takes it back if that account does not take it.
    Transfer {
        /// The other account.
        to: TextId,
        /// What leaves the balance at once.
        cents: u64,
    },
    /// Closes the account, which must be empty.
    Close {},
    /// From an account that transfers: takes the money.
    Receive {
        /// What the sender has given up already.
        cents: u64,
    },
    /// From the engine: what came of a transfer.
    FinishTransfer {
        /// The number the transfer was begun with.
        number: u64,
        /// Why it was not taken; nothing if it was.
        refused: Option<String>,
    },
    /// From the timer: pays the interest of a day, and of those that were missed.
    PayInterest {},
}

/// What can happen to an account. Events are kept for good: their names and fields are a format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AccountEvent {
    /// It was opened.
    Opened {},
    /// Money was paid in.
    Deposited {
        /// Added to the balance.
        cents: u64,
    },
    /// Money was paid out.
    Withdrawn {
        /// Taken from the balance.
        cents: u64,
    },
    /// Money left for another account, and is on its way.
    TransferStarted {
        /// The transfer's number, from 1.
        number: u64,
        /// The other account.
        to: String,
        /// Taken from the balance, on its way.
        cents: u64,
    },
    /// The other account has taken it.
    TransferFinished {
        /// The transfer's number.
        number: u64,
    },
    /// The other account has not taken it: the money is back.
    TransferRefunded {
        /// The transfer's number.
        number: u64,
        /// What the other account said, or why it could not be asked.
        reason: String,
    },
    /// Money came from another account.
    Received {
        /// Added to the balance.
        cents: u64,
    },
    /// Interest was paid.
    InterestPaid {
        /// Added to the balance.
        cents: u64,
    },
    /// It was closed.
    Closed {},
}

impl Event for AccountEvent {}

/// What an account answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Balance {
    /// What can be spent.
    pub cents: u64,
    /// What is on its way to other accounts, by the number of the transfer.
    pub on_the_way: BTreeMap<u64, u64>,
}

/// How an account says no. The asker is told, and nothing has happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum AccountRejection {
    /// There is not enough money.
    #[error("there are only {cents} cents")]
    BalanceTooLow {
        /// What there is.
        cents: u64,
    },
    /// More than an account can hold.
    #[error("an account holds no more than that")]
    TooMuch,
    /// It was closed.
    #[error("the account is closed")]
    IsClosed,
    /// It is not empty.
    #[error("the account is not empty")]
    IsNotEmpty,
    /// A transfer to the account it comes from.
    #[error("money is not transferred to where it comes from")]
    ToItself,
}

impl Rejection for AccountRejection {
    fn code(&self) -> &'static str {
        match self {
            Self::BalanceTooLow { .. } => "balance-too-low",
            Self::TooMuch => "too-much",
            Self::IsClosed => "is-closed",
            Self::IsNotEmpty => "is-not-empty",
            Self::ToItself => "to-itself",
        }
    }

    fn field(&self) -> Option<&'static str> {
        match self {
            Self::BalanceTooLow { .. } | Self::TooMuch => Some("cents"),
            Self::ToItself => Some("to"),
            Self::IsClosed | Self::IsNotEmpty => None,
        }
    }
}
