//! The engine from outside: over a journal in memory, alone and as several nodes of one process.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod actors;
mod asker;
mod behaviour;
mod check;
mod clock;
mod cluster;
mod cluster_erase;
mod cluster_operator;
mod cluster_reads;
mod cluster_retention;
mod credit;
mod dead;
mod end;
mod epochs;
mod evolution;
mod filter;
mod follow;
mod inside;
mod kinds;
mod layout;
mod nodes;
mod operator;
mod projection;
mod publish;
mod receiver;
mod requests;
mod restart;
mod retention;
mod share;
mod slices;
mod slow;
mod table;
mod traces;
mod what_if;
