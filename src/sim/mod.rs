//! Simulated worlds around the real core, in virtual time and from one seed.
//!
//! [`world`] is the adversary: one appliance, receivers with every kind of fault, crashes, clock steps; it checks the
//! promises at every step, then stops the faults and demands that all settles. [`fleet`] is the planner's: many
//! appliances and one receiver with a capacity, to see what a policy does to an outage and to the drain after it.
//! Both run the same [`crate::core::dispatcher`] as the appliance over [`store`], a model of the durable outbox.
//!
//! [`models`] are smaller: known experiments that the simulator must reproduce before anybody believes it.
//!
//! Nothing here knows real time, files or sockets; the same seed gives the same run on every machine.

pub mod fleet;
pub mod models;
pub mod plan;
mod receiver;
pub mod store;
pub mod world;

/// Running hash of what happened, to compare two runs (FNV-1a, 64 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace(u64);

impl Default for Trace {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Trace {
    /// Take something in.
    pub fn note(&mut self, value: u64) {
        for byte in value.to_le_bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// The hash so far.
    pub fn hash(self) -> u64 {
        self.0
    }
}
