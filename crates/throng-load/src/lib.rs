//! A load generator for any HTTP service.
