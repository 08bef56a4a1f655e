//! The pure centre: what an event is, what its key is, whether its geometry can ever be delivered, and every decision
//! about attempts.
//!
//! **Purity rule.** Nothing here names tokio, sled, reqwest, axum, files, sockets or a clock. Functions take
//! `(state, now, rng, input)` and return decisions; only parsing bytes from outside can fail. So every rule is a
//! table in a unit test, and the simulated world runs the same code as the appliance.
//!
//! Reading order: [`ids`] and [`time`] are the vocabulary; [`event`], [`geometry`], [`key`] and [`route`] make an
//! event of bytes; [`classify`] (with [`body`] and [`retry_after`]), [`backoff`],
//! [`budget`], [`hold`] are the leaves that [`decide`] puts together;
//! [`wheel`] and [`delivery`] carry the [`dispatcher`]; [`history`] is what screens look back on.

pub mod backoff;
pub mod body;
pub mod budget;
pub mod classify;
pub mod decide;
pub mod delivery;
pub mod dispatcher;
pub mod event;
pub mod geometry;
pub mod history;
pub mod hold;
pub mod ids;
pub mod json;
pub mod key;
pub mod policy;
pub mod retry_after;
pub mod route;
pub mod text;
pub mod time;
pub mod wheel;
pub mod window;
