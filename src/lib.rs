//! waypost: a store-and-forward outbox for GeoJSON events on edge gateways.
//!
//! Sensors post GeoJSON; every accepted event is on disk before the answer; each event is delivered to its
//! endpoints with classified failures, jittered delays, a retry budget and one idempotency key for ever; what can
//! never be delivered becomes a dead letter that a person can read, map, repair and send again.
//!
//! The modules below are listed outermost first. **A module may name `crate::x` only if `x` stands below it**, so
//! there are no cycles and this list reads from the outside in; `tests/it/tidy.rs` enforces it. `core` is pure:
//! state, time and randomness come in, decisions go out.

pub mod cli; // clap types, one file per command; a client of the admin API
pub mod dashboard; // the terminal screen; a client too, so it can never hurt the appliance
pub mod app; // composition root: config in, running appliance out
pub mod server; // HTTP intake and admin API, problem+json
pub mod client; // typed client of the admin API, over the Unix socket or a URL
pub mod receiver; // the scripted receiver of `waypost receive`, `demo` and the tests
pub mod sim; // a simulated world around the core: fleets, outages, plans
pub mod driver; // the loop: feed the core what happened, carry out what it asks for
pub mod sender; // one attempt over HTTP: request headers, signature, outcome
pub mod store; // segment log and sled trees: commit, settle, page, recover
pub mod lateness; // how late a timer of the runtime is
pub mod metrics; // the registry behind /metrics
pub mod telemetry; // tracing set-up
pub mod shutdown; // signals, and the deadline of a clean stop
pub mod config; // TOML to checked settings
pub mod clock; // the only reader of time
pub mod entropy; // the only source of true randomness
pub mod wire; // JSON types that server and client share
pub mod core; // pure: events, keys, geometry, policy, dispatcher
