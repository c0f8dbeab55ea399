//! The one integration-test binary of the workspace: it drives the built programs as a user would.
//!
//! Every test makes its own project in a temporary folder; nothing is shared but the programs, nothing is retried.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test says that it failed by panicking, and what it did by printing"
)]

mod support;

mod account;
mod cases;
mod commands;
mod concurrency;
mod crash;
mod dag;
mod deploy;
mod differences;
mod equal;
mod examples;
mod extracts;
mod facts;
mod first_steps;
mod fixtures;
mod hand;
mod health;
mod histories;
mod keys;
mod kills;
mod landing;
mod late;
mod layers;
mod layout;
mod logs;
mod models;
mod openings;
mod optimize;
mod outlook;
mod partial;
mod paths;
mod processes;
mod quarantine;
mod races;
mod rebuild;
mod refresh;
mod restore;
mod rules;
mod runs;
mod sample;
mod secrets;
mod selection;
mod snapshots;
mod soak;
mod tables;
mod truncates;
mod turns;
mod upkeep;
mod upserts;
mod vectors;
mod verify;
mod watch;
