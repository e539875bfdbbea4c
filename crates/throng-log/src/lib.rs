//! The embedded journal and store.
