//! Typed rows of a read model, with a second order to read them in.
//!
//! A row is stored under `NAME 0 r key`. If it has a second order, the whole row is also stored under `NAME 0 o order key`. So a page in
//! that order is one scan, and shows the rows of one moment.

use super::{Interrupt, OrderedKey, Projection, ReadModel, Rows};
use crate::hex::{hex, read_hex};
use serde::{Serialize, de::DeserializeOwned};
use std::ops::Bound;
use throng_journal::{Error, ViewRange, ViewRow};

/// Typed rows of a read model. A projection may have several tables.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use std::cmp::Reverse;
/// use throng::projection::Table;
///
/// #[derive(Serialize, Deserialize)]
/// struct Account { cents: u64 }
///
/// /// Accounts by their id, and with the richest first.
/// struct Accounts;
///
/// impl Table for Accounts {
///     const NAME: &'static str = "accounts";
///     type Key = String;
///     type Row = Account;
///     type Order = Reverse<u64>;
///     fn order(_: &String, row: &Account) -> Option<Reverse<u64>> { Some(Reverse(row.cents)) }
/// }
/// ```
pub trait Table: 'static {
    /// The table's name within the projection, without a zero byte.
    const NAME: &'static str;
    /// The key by which a row is found.
    type Key: OrderedKey;
    /// A row, kept as JSON.
    type Row: Serialize + DeserializeOwned + Send + 'static;
    /// The second order in which rows can be read; `()` for none.
    type Order: OrderedKey;

    /// Returns a row's key in the second order; `None`: the row is not part of it.
    fn order(_key: &Self::Key, _row: &Self::Row) -> Option<Self::Order> {
        None
    }
}

const ROW: u8 = b'r';
const ORDER: u8 = b'o';

fn prefix<T: Table>(part: u8) -> Vec<u8> {
    let mut bytes = T::NAME.as_bytes().to_vec();
    bytes.extend_from_slice(&[0, part]);
    bytes
}

/// The bytes a typed row is kept under: for [`Projection::reads`].
#[must_use]
pub fn row_key<T: Table>(key: &T::Key) -> Vec<u8> {
    let mut bytes = prefix::<T>(ROW);
    key.encode(&mut bytes);
    bytes
}

fn order_key<T: Table>(key: &T::Key, row: &T::Row) -> Option<Vec<u8>> {
    let mut bytes = prefix::<T>(ORDER);
    T::order(key, row)?.encode(&mut bytes);
    key.encode(&mut bytes);
    Some(bytes)
}

impl Rows<'_> {
    /// Returns a typed row.
    ///
    /// # Errors
    /// The errors of [`get`](Self::get), and a poison if the value is not a row of this table.
    pub fn row<T: Table>(&mut self, key: &T::Key) -> Result<Option<T::Row>, Interrupt> {
        self.json(row_key::<T>(key))
    }

    /// Sets a typed row, also in its second order.
    ///
    /// # Errors
    /// The errors of [`row`](Self::row), because the former row's second key has to be read; or a poison if the row cannot be written as
    /// JSON.
    pub fn set_row<T: Table>(&mut self, key: &T::Key, row: &T::Row) -> Result<(), Interrupt> {
        let before = self.row::<T>(key)?;
        let (old, new) = (
            before.and_then(|before| order_key::<T>(key, &before)),
            order_key::<T>(key, row),
        );
        if let Some(old) = old
            && new.as_ref() != Some(&old)
        {
            self.remove(old);
        }
        if let Some(new) = new {
            self.put_json(new, row)?;
        }
        self.put_json(row_key::<T>(key), row)
    }

    /// Removes a typed row, also from its second order.
    ///
    /// # Errors
    /// The errors of [`row`](Self::row).
    pub fn remove_row<T: Table>(&mut self, key: &T::Key) -> Result<(), Interrupt> {
        if let Some(before) = self.row::<T>(key)? {
            order_key::<T>(key, &before)
                .into_iter()
                .for_each(|old| self.remove(old));
            self.remove(row_key::<T>(key));
        }
        Ok(())
    }
}

/// A page of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowPage<K, R> {
    /// The rows with their keys.
    pub rows: Vec<(K, R)>,
    /// The value of `after` for the next page; `None` on the last.
    pub next: Option<String>,
}

impl<P: Projection> ReadModel<P> {
    /// Returns a typed row.
    ///
    /// # Errors
    /// [`Error`]: the rows cannot be read, or are not rows of this table.
    pub async fn row<T: Table>(&self, key: &T::Key) -> Result<Option<T::Row>, Error> {
        let value = self.get(row_key::<T>(key)).await?;
        value.map(|value| read_row::<T>(&value)).transpose()
    }

    /// Returns a page of rows in the order of their keys: the one after the page that returned `after`, or the first.
    ///
    /// # Errors
    /// [`Error`]: the rows cannot be read, or are not rows of this table; or no page returned this `after`.
    pub async fn rows<T: Table>(&self, after: Option<&str>, limit: usize) -> Result<RowPage<T::Key, T::Row>, Error> {
        self.page::<T>(ROW, after, limit, |mut bytes| T::Key::decode(&mut bytes))
            .await
    }

    /// Returns a page of rows in their second order, and by key within it, like [`rows`](Self::rows).
    ///
    /// # Errors
    /// The errors of [`rows`](Self::rows).
    pub async fn rows_in_order<T: Table>(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<RowPage<T::Key, T::Row>, Error> {
        let key = |mut bytes: &[u8]| {
            T::Order::decode(&mut bytes)?;
            T::Key::decode(&mut bytes)
        };
        self.page::<T>(ORDER, after, limit, key).await
    }

    async fn page<T: Table>(
        &self,
        part: u8,
        after: Option<&str>,
        limit: usize,
        read_key: impl Fn(&[u8]) -> Option<T::Key>,
    ) -> Result<RowPage<T::Key, T::Row>, Error> {
        let prefix = prefix::<T>(part);
        let mut range = ViewRange {
            rows_max: limit.saturating_add(1),
            ..ViewRange::prefix(&prefix)
        };
        if let Some(after) = after {
            let after = read_hex(after).filter(|after| after.starts_with(&prefix));
            let after = after.ok_or_else(|| unreadable("a page begins only where another ended"))?;
            range.from = Bound::Excluded(after);
        }
        let mut found = self.scan(range).await?;
        let has_more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| has_more).map(|(key, _)| hex(key));
        let read = |(key, value): ViewRow| {
            let key = read_key(&key[prefix.len()..]).ok_or_else(|| unreadable("a key is not one of this table"))?;
            Ok((key, read_row::<T>(&value)?))
        };
        let rows = found.into_iter().map(read).collect::<Result<_, Error>>()?;
        Ok(RowPage { rows, next })
    }
}

fn read_row<T: Table>(value: &[u8]) -> Result<T::Row, Error> {
    serde_json::from_slice(value).map_err(|why| unreadable(&format!("a row of {} cannot be read: {why}", T::NAME)))
}

fn unreadable(why: &str) -> Error {
    Error::backend("reading a read model", why)
}
