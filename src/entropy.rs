//! The only source of true randomness: seeds, and the salt of a store.
//!
//! It goes through *ring*, whose generator makes the system call itself. `rand`'s own source looks the C library's
//! function up at run time, finds none in a static binary, and then wants `/dev/urandom`, which an empty chroot has not.

/// Eight random bytes. A system without a random number generator is no place to make keys: the process ends.
pub fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    rustls::crypto::ring::default_provider()
        .secure_random
        .fill(&mut bytes)
        .expect("invariant: Linux gives random bytes");
    u64::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_draws_differ() {
        assert_ne!(random_u64(), random_u64());
    }
}
