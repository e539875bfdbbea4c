//! What every journal and every store must do.
