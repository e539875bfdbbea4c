//! The read model of the richest accounts, ordered by balance. It follows the journal a moment behind.

use axum::{Router, extract::State, routing::get};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use throng_app::{
    Engine,
    http::{
        Described, Problem, Route,
        extract::{Json, Query},
    },
    projections::{DurableEvent, Interrupt, Projection, Rows, Table, row_key},
};

use crate::account::{Account, AccountEvent};

/// Accounts on a page unless the request sets a limit.
const PAGE_DEFAULT: usize = 10;
/// The most accounts on a page.
const PAGE_MAX: usize = 1_000;

/// The read model.
#[derive(Clone, Copy, Debug, Default)]
pub struct Richest;

/// The row of an account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountRow {
    /// Can be spent.
    pub cents: u64,
}

/// The balances, by account id and ordered with the richest first.
struct Accounts;

impl Table for Accounts {
    const NAME: &'static str = "accounts";
    type Key = String;
    type Row = AccountRow;
    type Order = Reverse<u64>;

    fn order(_: &String, row: &AccountRow) -> Option<Reverse<u64>> {
        Some(Reverse(row.cents))
    }
}

/// Cents on their way, by account and transfer. A refund does not repeat its amount, so it is kept here.
struct OnTheWay;

impl Table for OnTheWay {
    const NAME: &'static str = "on-the-way";
    type Key = (String, u64);
    type Row = u64;
    type Order = ();
}

impl Projection for Richest {
    const NAME: &'static str = "richest";
    type Of = Account;

    fn apply(&self, seen: &DurableEvent<Account>, rows: &mut Rows<'_>) -> Result<(), Interrupt> {
        let id = &seen.id;
        let AccountRow { cents } = rows.row::<Accounts>(id)?.unwrap_or_default();
        let cents = match &seen.event {
            AccountEvent::Opened {} => cents,
            AccountEvent::Deposited { cents: more }
            | AccountEvent::Received { cents: more }
            | AccountEvent::InterestPaid { cents: more } => cents + more,
            AccountEvent::Withdrawn { cents: less } => cents - less,
            AccountEvent::TransferStarted {
                number, cents: less, ..
            } => {
                rows.set_row::<OnTheWay>(&(id.clone(), *number), less)?;
                cents - less
            }
            AccountEvent::TransferFinished { number } => {
                return rows.remove_row::<OnTheWay>(&(id.clone(), *number));
            }
            AccountEvent::TransferRefunded { number, .. } => {
                let transfer = (id.clone(), *number);
                let back = rows.row::<OnTheWay>(&transfer)?.unwrap_or(0);
                rows.remove_row::<OnTheWay>(&transfer)?;
                cents + back
            }
            AccountEvent::Closed {} => return rows.remove_row::<Accounts>(id),
        };
        rows.set_row::<Accounts>(id, &AccountRow { cents })
    }

    fn reads(&self, seen: &DurableEvent<Account>) -> Vec<Vec<u8>> {
        let transfer = match seen.event {
            AccountEvent::TransferStarted { number, .. }
            | AccountEvent::TransferFinished { number }
            | AccountEvent::TransferRefunded { number, .. } => Some((seen.id.clone(), number)),
            _ => None,
        };
        transfer.iter().map(row_key::<OnTheWay>).collect()
    }
}

/// The page that a request asks for.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Page {
    /// The value of `next` on the previous page.
    pub after: Option<String>,
    /// The number of accounts, at most 1,000; 10 by default.
    pub limit: Option<usize>,
}

/// An account with its balance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RichAccount {
    /// The account's id.
    pub account: String,
    /// Can be spent.
    pub cents: u64,
}

/// A page of the richest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RichestPage {
    /// The accounts, the richest first.
    pub accounts: Vec<RichAccount>,
    /// The `after` of the next page; `None` on the last.
    pub next: Option<String>,
}

/// Reads a page of the richest accounts.
///
/// # Errors
/// The read model cannot be read.
pub async fn page(engine: &Engine, page: Page) -> Result<RichestPage, Problem> {
    let limit = page.limit.unwrap_or(PAGE_DEFAULT).clamp(1, PAGE_MAX);
    let rows = engine.read_model::<Richest>();
    let found = rows.rows_in_order::<Accounts>(page.after.as_deref(), limit).await;
    let found = found.map_err(|why| Problem::malformed(why.to_string()))?;
    let accounts = found
        .rows
        .into_iter()
        .map(|(account, AccountRow { cents })| RichAccount { account, cents });
    Ok(RichestPage {
        accounts: accounts.collect(),
        next: found.next,
    })
}

/// Returns the service's own route, `GET /richest`.
pub fn routes(engine: Engine) -> Router {
    Router::new().route("/richest", get(richest)).with_state(engine)
}

async fn richest(State(engine): State<Engine>, Query(asked): Query<Page>) -> Result<Json<RichestPage>, Problem> {
    Ok(Json(page(&engine, asked).await?))
}

/// Describes the route's parameters and replies for the API documentation.
#[must_use]
pub fn describe() -> Described {
    Described::new("richest", "The richest accounts").route(
        Route::get("/richest", "Lists the accounts, the richest first")
            .query::<Page>()
            .replies::<RichestPage>(200, "A page of them; a moment behind"),
    )
}
