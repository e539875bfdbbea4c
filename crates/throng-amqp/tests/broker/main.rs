//! Ingress, egress and publisher on real brokers, also on such that are killed.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod counter;
mod egress;
mod faults;
mod ingress;
mod kit;
mod permissions;
mod poison;
mod process;
mod proxy;
mod publisher;
mod standby;
mod tls;
mod topology;
