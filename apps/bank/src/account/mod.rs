//! An account: it takes deposits, pays withdrawals, transfers to other accounts, and gets interest every day.
//!
//! A transfer is a request to the other account. The money leaves at once and is **on its way**, in the state and in the events, until the
//! outcome is known: it is gone if the other account took it, and back if that account is closed or does not exist. Nothing has to be asked
//! twice, and a crash at any point loses and doubles nothing.

mod messages;
#[cfg(test)]
mod tests;

pub use messages::{AccountEvent, AccountRejection, Balance, Command};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};
use throng_app::model::{CommandAnswer, Entity, IndexedField, Moment, OnOutcome, Query, RequestError, Turn, View};

/// The time between two payments of interest.
pub const INTEREST_EVERY: Duration = Duration::from_hours(24);
/// A balance of this many cents earns one cent of interest a day.
pub const INTEREST_ONE_IN: u64 = 10_000;
/// The most cents an account holds.
pub const CENTS_MAX: u64 = 1 << 53;

const INTEREST: &str = "interest";

/// An account's state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    cents: u64,
    /// Cents on their way, by the number of the transfer.
    on_the_way: BTreeMap<u64, u64>,
    transfers: u64,
    is_closed: bool,
}

impl Account {
    fn balance(&self) -> Balance {
        Balance {
            cents: self.cents,
            on_the_way: self.on_the_way.clone(),
        }
    }

    /// Returns `cents` if the balance covers them.
    fn spend(&self, cents: u64) -> Result<u64, AccountRejection> {
        match self.cents {
            there if there < cents => Err(AccountRejection::BalanceTooLow { cents: there }),
            _ => Ok(cents),
        }
    }

    /// Returns `cents` if there is room for them beside the transfers that may come back.
    fn take(&self, cents: u64) -> Result<u64, AccountRejection> {
        let held = self.cents + self.on_the_way.values().sum::<u64>();
        match held.checked_add(cents) {
            Some(sum) if sum <= CENTS_MAX => Ok(cents),
            _ => Err(AccountRejection::TooMuch),
        }
    }
}

impl Entity for Account {
    const KIND: &'static str = "account";
    const PUBLIC: &'static [&'static str] = &["open", "deposit", "withdraw", "transfer", "close"];
    const INDEXED: &'static [IndexedField<Self>] = &[
        IndexedField::of("cents", |account| account.cents.into()),
        IndexedField::of("is_closed", |account| account.is_closed.into()),
    ];
    type Id = String;
    type Command = Command;
    type Event = AccountEvent;
    type Reply = Balance;
    type Rejection = AccountRejection;
    const REQUESTS: &'static [&'static str] = &[Self::KIND];

    fn creates(command: &Command) -> bool {
        matches!(command, Command::Open {})
    }

    fn decide(&self, command: Command, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, AccountRejection> {
        match command {
            // Accepted even after the account was closed: the transfer began before that, and its outcome must be recorded.
            Command::FinishTransfer { number, refused } => {
                if self.on_the_way.contains_key(&number) {
                    turn.emit(match refused {
                        None => AccountEvent::TransferFinished { number },
                        Some(reason) => AccountEvent::TransferRefunded { number, reason },
                    });
                }
            }
            _ if self.is_closed => return Err(AccountRejection::IsClosed),
            Command::Open {} if turn.is_new() => {
                turn.emit(AccountEvent::Opened {});
                let first = turn.now().after(INTEREST_EVERY);
                turn.remind(INTEREST, first, Some(INTEREST_EVERY), Command::PayInterest {});
            }
            Command::Open {} => {}
            Command::Deposit { cents } => turn.emit(AccountEvent::Deposited {
                cents: self.take(cents)?,
            }),
            Command::Withdraw { cents } => turn.emit(AccountEvent::Withdrawn {
                cents: self.spend(cents)?,
            }),
            Command::Transfer { to, .. } if to.as_str() == turn.id() => return Err(AccountRejection::ToItself),
            Command::Transfer { to, cents } => {
                let (number, cents) = (self.transfers + 1, self.spend(cents)?);
                turn.emit(AccountEvent::TransferStarted {
                    number,
                    to: to.to_string(),
                    cents,
                });
                turn.request::<Self>(to, Command::Receive { cents }, number);
            }
            Command::Receive { cents } => turn.emit(AccountEvent::Received {
                cents: self.take(cents)?,
            }),
            Command::PayInterest {} => {
                let days = 1 + turn.missed_ticks();
                let cents = (self.cents / INTEREST_ONE_IN).saturating_mul(days);
                if let Ok(cents @ 1..) = self.take(cents) {
                    turn.emit(AccountEvent::InterestPaid { cents });
                }
            }
            Command::Close {} if self.cents > 0 || !self.on_the_way.is_empty() => {
                return Err(AccountRejection::IsNotEmpty);
            }
            Command::Close {} => {
                turn.emit(AccountEvent::Closed {});
                turn.cancel(INTEREST);
            }
        }
        Ok(CommandAnswer::after(Self::balance))
    }

    fn evolve(&mut self, event: &AccountEvent) {
        match event {
            AccountEvent::Opened {} => {}
            AccountEvent::Deposited { cents }
            | AccountEvent::Received { cents }
            | AccountEvent::InterestPaid { cents } => {
                self.cents += cents;
            }
            AccountEvent::Withdrawn { cents } => self.cents -= cents,
            AccountEvent::TransferStarted { number, cents, .. } => {
                self.cents -= cents;
                self.transfers = *number;
                self.on_the_way.insert(*number, *cents);
            }
            AccountEvent::TransferFinished { number } => {
                self.on_the_way.remove(number);
            }
            AccountEvent::TransferRefunded { number, .. } => {
                self.cents += self.on_the_way.remove(number).unwrap_or(0);
            }
            AccountEvent::Closed {} => self.is_closed = true,
        }
    }

    fn heap_bytes(&self) -> usize {
        self.on_the_way.len() * 32
    }
}

impl OnOutcome<Account> for Account {
    /// The transfer's number.
    type Note = u64;

    fn on_outcome(_: String, number: u64, outcome: Result<Balance, RequestError<AccountRejection>>) -> Command {
        Command::FinishTransfer {
            number,
            refused: outcome.err().map(|why| why.to_string()),
        }
    }
}

/// Asks for the balance: `GET /api/account/{id}`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct GetAccount {}

impl Query<Account> for GetAccount {
    const NAME: &'static str = View::NAME;
    type Answer = Balance;

    fn answer(self, account: &Account, _: &Moment<'_, Account>) -> Result<Balance, AccountRejection> {
        Ok(account.balance())
    }
}
