//! The richest: accounts in the order of what is on them, a moment behind.

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
    projections::{Interrupt, Projection, Rows, Seen, Table, row_key},
};

use crate::account::{Account, AccountEvent};

/// Accounts on one page, when the request does not say.
const PAGE_DEFAULT: usize = 10;
/// Most accounts on one page.
const PAGE_MAX: usize = 1_000;

/// The read model.
#[derive(Clone, Copy, Debug, Default)]
pub struct Richest;

/// An account's row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// What can be spent.
    pub cents: u64,
}

/// The rows: by the account's id, and with the richest first.
struct Accounts;

impl Table for Accounts {
    const NAME: &'static str = "accounts";
    type Key = String;
    type Row = Held;
    type Order = Reverse<u64>;

    fn order(_: &String, row: &Held) -> Option<Reverse<u64>> {
        Some(Reverse(row.cents))
    }
}

/// What is on its way, by account and transfer: a refund does not say how much it is.
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

    fn apply(&self, seen: &Seen<Account>, rows: &mut Rows<'_>) -> Result<(), Interrupt> {
        let id = &seen.id;
        let Held { cents } = rows.row::<Accounts>(id)?.unwrap_or_default();
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
        rows.set_row::<Accounts>(id, &Held { cents })
    }

    fn reads(&self, seen: &Seen<Account>) -> Vec<Vec<u8>> {
        let transfer = match seen.event {
            AccountEvent::TransferStarted { number, .. }
            | AccountEvent::TransferFinished { number }
            | AccountEvent::TransferRefunded { number, .. } => Some((seen.id.clone(), number)),
            _ => None,
        };
        transfer.iter().map(row_key::<OnTheWay>).collect()
    }
}

/// Which page of the richest.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Page {
    /// What the page before gave as `next`.
    pub after: Option<String>,
    /// How many accounts, at most 1,000; 10 unless said.
    pub limit: Option<usize>,
}

/// An account and what is on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RichAccount {
    /// The account's id.
    pub account: String,
    /// What can be spent.
    pub cents: u64,
}

/// A page of the richest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RichestPage {
    /// The accounts, the richest first.
    pub accounts: Vec<RichAccount>,
    /// What to give as `after` for the next page; nothing on the last.
    pub next: Option<String>,
}

/// A page of the richest.
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
        .map(|(account, Held { cents })| RichAccount { account, cents });
    Ok(RichestPage {
        accounts: accounts.collect(),
        next: found.next,
    })
}

/// The service's own route, `GET /richest`.
pub fn routes(engine: Engine) -> Router {
    Router::new().route("/richest", get(richest)).with_state(engine)
}

async fn richest(State(engine): State<Engine>, Query(asked): Query<Page>) -> Result<Json<RichestPage>, Problem> {
    Ok(Json(page(&engine, asked).await?))
}

/// What the route takes and gives, for the service's documentation.
#[must_use]
pub fn describe() -> Described {
    Described::new("richest", "The richest accounts").route(
        Route::get("/richest", "Lists the accounts, the richest first")
            .query::<Page>()
            .replies::<RichestPage>(200, "A page of them; a moment behind"),
    )
}
