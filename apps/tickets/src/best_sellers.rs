//! The read model of the best sellers of each hour. It lags slightly behind the journal.

use crate::order::{Order, OrderEvent, text_of};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use throng_app::{
    Engine,
    http::Problem,
    model::Timestamp,
    projections::{DurableEvent, Interrupt, Projection, Rows, Table, row_key},
};

const HOUR_MICROS: i64 = 3_600_000_000;
const PAGE_DEFAULT: usize = 10;
const PAGE_MAX: usize = 1_000;

/// The read model. A sale counts even if it is cancelled later.
#[derive(Clone, Copy, Debug, Default)]
pub struct BestSellers;

/// The sales of a concert in an hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Sold {
    tickets: u32,
    cents: u64,
}

/// The sales by hour and concert. The newest hour comes first, and in it the best seller.
struct Sales;

impl Table for Sales {
    const NAME: &'static str = "sales";
    type Key = (Timestamp, String);
    type Row = Sold;
    type Order = (Reverse<Timestamp>, Reverse<u32>);

    fn order((hour, _): &Self::Key, row: &Sold) -> Option<Self::Order> {
        Some((Reverse(*hour), Reverse(row.tickets)))
    }
}

fn key(seen: &DurableEvent<Order>) -> Option<(<Sales as Table>::Key, Sold)> {
    let OrderEvent::Confirmed {
        concert,
        tickets,
        cents,
        ..
    } = &seen.event
    else {
        return None;
    };
    let micros = seen.at.micros - seen.at.micros.rem_euclid(HOUR_MICROS);
    let sold = Sold {
        tickets: *tickets,
        cents: *cents,
    };
    Some(((Timestamp { micros }, concert.clone()), sold))
}

impl Projection for BestSellers {
    const NAME: &'static str = "best-sellers";
    type Of = Order;

    fn apply(&self, seen: &DurableEvent<Order>, rows: &mut Rows<'_>) -> Result<(), Interrupt> {
        let Some((key, sold)) = key(seen) else { return Ok(()) };
        let before = rows.row::<Sales>(&key)?.unwrap_or_default();
        let sum = Sold {
            tickets: before.tickets + sold.tickets,
            cents: before.cents + sold.cents,
        };
        rows.set_row::<Sales>(&key, &sum)
    }

    fn reads(&self, seen: &DurableEvent<Order>) -> Vec<Vec<u8>> {
        key(seen).iter().map(|(key, _)| row_key::<Sales>(key)).collect()
    }
}

/// The parameters of a page.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Page {
    /// The value of `next` on the previous page.
    pub after: Option<String>,
    /// The number of rows, at most 1,000; 10 by default.
    pub limit: Option<usize>,
}

/// The sales of a concert in an hour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HourOfSales {
    /// The start of the hour.
    pub hour: String,
    /// The concert's id.
    pub concert: String,
    /// The number of tickets confirmed in the hour.
    pub tickets: u32,
    /// The cents paid for them.
    pub cents: u64,
}

/// A page of the best sellers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BestSellersPage {
    /// The sales, newest hour first, and in it the best seller first.
    pub sales: Vec<HourOfSales>,
    /// The `after` of the next page; `None` on the last.
    pub next: Option<String>,
}

/// Reads a page of the best sellers.
///
/// # Errors
/// The read model cannot be read.
pub async fn page(engine: &Engine, page: Page) -> Result<BestSellersPage, Problem> {
    let limit = page.limit.unwrap_or(PAGE_DEFAULT).clamp(1, PAGE_MAX);
    let rows = engine.read_model::<BestSellers>();
    let found = rows.rows_in_order::<Sales>(page.after.as_deref(), limit).await;
    let found = found.map_err(|why| Problem::malformed(why.to_string()))?;
    let sales = found.rows.into_iter().map(|((hour, concert), sold)| HourOfSales {
        hour: text_of(hour),
        concert,
        tickets: sold.tickets,
        cents: sold.cents,
    });
    Ok(BestSellersPage {
        sales: sales.collect(),
        next: found.next,
    })
}
