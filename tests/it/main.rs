//! All integration tests, in the order of the purity ladder: pure tables, simulated world, loopback, real process.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(missing_docs)]

mod dash_faults;
mod dash_terminal;
mod dashboard;
mod data;
mod documents;
mod admin;
mod ingest;
mod geometry;
mod keys;
mod lint;
mod models;
mod clocks;
mod endurance;
mod ends;
mod faults;
mod outage;
mod plan;
mod policy;
mod receiver;
mod replay_cut;
mod repair;
mod security;
mod sender;
mod sim;
mod support;
mod cli;
mod crash;
mod damage;
mod disk;
mod datasets;
mod memory;
mod space;
mod durable;
mod static_binary;
mod tidy;
