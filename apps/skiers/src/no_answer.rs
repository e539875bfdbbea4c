//! The reason why a query has no answer.

use throng_http::Problem;

/// The reason why a query has no answer.
pub(crate) enum NoAnswer {
    /// The resource does not exist.
    NotFound,
    /// The answer is not available now.
    Failed(Box<Problem>),
}
