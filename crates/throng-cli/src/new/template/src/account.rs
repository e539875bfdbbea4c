//! An account: it is opened, takes deposits, and pays withdrawals while there is money.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng_app::model::{CommandAnswer, Entity, Event, Moment, Query, Rejection, Turn, View};

/// The state. It follows from the events; a copy is stored now and then, so that loading need not read all of them.
#[derive(Default, Serialize, Deserialize)]
pub struct Account {
    cents: u64,
}

/// A command of an account. Each variant in `PUBLIC` is a route, `POST /api/account/{id}/{command}`.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    /// Opens the account; an open one stays as it is.
    Open {},
    /// Adds money that comes from outside.
    Deposit {
        /// At least one.
        cents: u64,
    },
    /// Takes money out; rejected if the balance is too low.
    Withdraw {
        /// At most the balance.
        cents: u64,
    },
}

/// An event of an account. Events are kept for good: their names and fields are a format.
#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AccountEvent {
    /// The account was opened.
    Opened {},
    /// Money came in.
    Deposited {
        /// Added to the balance.
        cents: u64,
    },
    /// Money went out.
    Withdrawn {
        /// Taken from the balance.
        cents: u64,
    },
}

impl Event for AccountEvent {}

/// The reply of an account.
#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Balance {
    /// The balance.
    pub cents: u64,
}

/// A refusal of an account. The caller is told, and nothing has happened.
#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum AccountRejection {
    /// The deposit was zero.
    #[error("a deposit is at least one cent")]
    NothingToDeposit,
    /// The balance is lower than the amount.
    #[error("there are only {cents} cents")]
    BalanceTooLow {
        /// The present balance.
        cents: u64,
    },
}

impl Rejection for AccountRejection {
    fn code(&self) -> &'static str {
        match self {
            Self::NothingToDeposit => "nothing-to-deposit",
            Self::BalanceTooLow { .. } => "balance-too-low",
        }
    }
}

impl Account {
    fn balance(&self) -> Balance {
        Balance { cents: self.cents }
    }
}

impl Entity for Account {
    const KIND: &'static str = "account";
    const PUBLIC: &'static [&'static str] = &["open", "deposit", "withdraw"];
    type Id = String;
    type Command = Command;
    type Event = AccountEvent;
    type Reply = Balance;
    type Rejection = AccountRejection;

    fn creates(command: &Command) -> bool {
        matches!(command, Command::Open {})
    }

    fn decide(
        &self,
        command: Command,
        turn: &mut Turn<'_, Self>,
    ) -> Result<CommandAnswer<Self>, AccountRejection> {
        match command {
            Command::Open {} if turn.is_new() => turn.emit(AccountEvent::Opened {}),
            Command::Open {} => {}
            Command::Deposit { cents: 0 } => return Err(AccountRejection::NothingToDeposit),
            Command::Deposit { cents } => turn.emit(AccountEvent::Deposited { cents }),
            Command::Withdraw { cents } if cents > self.cents => {
                return Err(AccountRejection::BalanceTooLow { cents: self.cents });
            }
            Command::Withdraw { cents } => turn.emit(AccountEvent::Withdrawn { cents }),
        }
        Ok(CommandAnswer::after(Self::balance))
    }

    fn evolve(&mut self, event: &AccountEvent) {
        match event {
            AccountEvent::Opened {} => {}
            AccountEvent::Deposited { cents } => self.cents += cents,
            AccountEvent::Withdrawn { cents } => self.cents -= cents,
        }
    }
}

/// Asks for the balance: `GET /api/account/{id}`.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct GetAccount {}

impl Query<Account> for GetAccount {
    const NAME: &'static str = View::NAME;
    type Answer = Balance;

    fn answer(
        self,
        account: &Account,
        _: &Moment<'_, Account>,
    ) -> Result<Balance, AccountRejection> {
        Ok(account.balance())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng_app::{Subject, model::Error};

    fn ann(events: impl IntoIterator<Item = AccountEvent>) -> Subject<Account> {
        Subject::given("ann", events)
    }

    #[test]
    fn a_deposit_is_added_and_answered() {
        let mut ann = ann([
            AccountEvent::Opened {},
            AccountEvent::Deposited { cents: 200 },
        ]);
        let done = ann.when(Command::Deposit { cents: 50 }).unwrap();
        assert_eq!(done.effects.events, [AccountEvent::Deposited { cents: 50 }]);
        assert_eq!(done.reply, Some(Balance { cents: 250 }));
    }

    #[test]
    fn more_than_there_is_cannot_be_withdrawn() {
        let mut ann = ann([
            AccountEvent::Opened {},
            AccountEvent::Deposited { cents: 200 },
        ]);
        let refused = ann.when(Command::Withdraw { cents: 201 }).err().unwrap();
        let Error::Rejected(refusal) = refused else {
            panic!("{refused}");
        };
        assert_eq!(refusal, AccountRejection::BalanceTooLow { cents: 200 });
    }

    #[test]
    fn an_account_is_opened_before_it_is_used() {
        let refused = ann([]).when(Command::Deposit { cents: 1 }).err().unwrap();
        assert!(matches!(refused, Error::Unknown { .. }), "{refused}");
    }
}
