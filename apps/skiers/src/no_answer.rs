//! The answer of a query that has none.

use throng_http::Problem;

/// Why a query has no answer.
pub(crate) enum NoAnswer {
    /// The resource does not exist.
    NotFound,
    /// The answer cannot be had now.
    Failed(Box<Problem>),
}
