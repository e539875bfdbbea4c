//! Ingress, egress and publisher on real brokers, some of which are killed.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod counter;
mod egress;
mod faults;
mod ingress;
mod kit;
mod permissions;
mod poison;
mod prefetch;
mod process;
mod proxy;
mod publisher;
mod resend;
mod standby;
mod stock;
mod tls;
mod topology;
mod traces;
