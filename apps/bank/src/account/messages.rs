//! The account's messages: commands, events, replies and rejections.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use throng_app::model::{Event, Rejection, TextId};

/// A command of an account. Each variant in `PUBLIC` is a route, `POST /api/account/{id}/{command}`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Opens the account; an open one stays as it is.
    Open {},
    /// Adds money that comes from outside.
    Deposit {
        /// The amount.
        cents: u64,
    },
    /// Takes money out; rejected if the balance is too low.
    Withdraw {
        /// The amount.
        cents: u64,
    },
    /// Sends money to another account. If that account refuses it, the money comes back.
    Transfer {
        /// The receiving account.
        to: TextId,
        /// Leaves the balance at once.
        cents: u64,
    },
    /// Closes the account, which must be empty.
    Close {},
    /// Takes the money of a transfer. Only accounts send this.
    Receive {
        /// The amount, which has left the sender's balance already.
        cents: u64,
    },
    /// Records the outcome of a transfer. Only the engine sends this.
    FinishTransfer {
        /// The number of the transfer, from `TransferStarted`.
        number: u64,
        /// The reason of a refusal; `None` if the money was taken.
        refused: Option<String>,
    },
    /// Pays the interest of a day and of each missed day. Only the timer sends this.
    PayInterest {},
}

/// An event of an account. Events are kept for good: their names and fields are a format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AccountEvent {
    /// The account was opened.
    Opened {},
    /// Money was paid in.
    Deposited {
        /// The amount.
        cents: u64,
    },
    /// Money was paid out.
    Withdrawn {
        /// The amount.
        cents: u64,
    },
    /// Money left for another account and is on its way.
    TransferStarted {
        /// The transfer's number, from 1.
        number: u64,
        /// The receiving account.
        to: String,
        /// Leaves the balance and is on its way.
        cents: u64,
    },
    /// The receiving account has taken the money.
    TransferFinished {
        /// The transfer's number.
        number: u64,
    },
    /// The receiving account refused the money: it is back.
    TransferRefunded {
        /// The transfer's number.
        number: u64,
        /// The answer of the receiving account, or the reason it could not be asked.
        reason: String,
    },
    /// Money came from another account.
    Received {
        /// The amount.
        cents: u64,
    },
    /// Interest was paid.
    InterestPaid {
        /// The amount.
        cents: u64,
    },
    /// The account was closed.
    Closed {},
}

impl Event for AccountEvent {}

/// The reply of an account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Balance {
    /// Can be spent.
    pub cents: u64,
    /// Cents on their way to other accounts, by the number of the transfer.
    pub on_the_way: BTreeMap<u64, u64>,
}

/// A refusal of an account. The caller is told, and nothing has happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum AccountRejection {
    /// The balance is lower than the amount.
    #[error("there are only {cents} cents")]
    BalanceTooLow {
        /// The present balance.
        cents: u64,
    },
    /// The sum is more than an account can hold.
    #[error("an account holds no more than that")]
    TooMuch,
    /// The account was closed.
    #[error("the account is closed")]
    IsClosed,
    /// The account still has money, or money on its way.
    #[error("the account is not empty")]
    IsNotEmpty,
    /// A transfer names the account itself as receiver.
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
