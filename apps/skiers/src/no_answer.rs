//! The answer of a query that has none.

use throng_http::Problem;

/// Why a query has no answer.
pub(crate) enum NoAnswer {
    /// There is nothing of the kind.
    NotFound,
    /// It cannot be told now.
    Failed(Box<Problem>),
}
