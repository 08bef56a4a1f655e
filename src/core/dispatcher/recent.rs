//! How attempts of an endpoint went of late: what tells one event's fault from the receiver's.

use super::super::ids::Seq;

/// Attempts within which two refusals of different deliveries are one receiver's overload: a drain is full of them, though
/// a box may see none in a hundred attempts.
const OVERLOAD_LOOK_BACK: u64 = 1000;

/// The last attempts that say something, and whom they failed. Attempts at a held endpoint are left out.
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// One bit per attempt, newest lowest; set if it failed.
    bits: u128,
    /// How many bits of it count.
    len: u32,
    /// Attempts that were ever noted.
    noted: u64,
    /// The last two deliveries that the receiver refused for overload, the last one first, with `noted` then.
    overloads: [Option<(Seq, u64)>; 2],
}

impl Recent {
    /// An attempt has ended.
    pub(super) fn note(&mut self, failed: bool) {
        self.bits = self.bits << 1 | u128::from(failed);
        self.len = (self.len + 1).min(u128::BITS);
        self.noted += 1;
    }

    /// Number of the last attempt that was noted.
    pub(super) fn number(&self) -> u64 {
        self.noted
    }

    /// How many attempts are looked back on.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Attempts since the last failure, at most so many as an unsigned number has bits.
    pub(super) fn passes_in_a_row(&self) -> u32 {
        self.bits.trailing_zeros()
    }

    /// Remember that the receiver refused a delivery for overload; true if it did so of late with another one as well.
    pub(super) fn overloaded(&mut self, seq: Seq) -> bool {
        if self.overloads[0].is_none_or(|(last, _)| last != seq) {
            self.overloads[1] = self.overloads[0];
        }
        self.overloads[0] = Some((seq, self.noted));
        self.overloads[1].is_some_and(|(_, noted)| noted + OVERLOAD_LOOK_BACK >= self.noted)
    }

    /// Upper bound (two standard errors) of the share of attempts that fail of late, without those of one delivery: the
    /// share seen in so few may be far below what the receiver really refuses. Failures of its own that are too old to
    /// count are not taken off again: it may have waited longer than the look-back reaches. Of a receiver that is at its
    /// limit, not even "none of 128" is taken to the letter (Agresti and Coull's interval).
    pub(super) fn failed_share(&self, own_failures: &[u64], overloaded: bool) -> f64 {
        let oldest = self.noted.saturating_sub(u64::from(u128::BITS));
        let own = own_failures.iter().filter(|noted| **noted > oldest).count() as u32;
        let (more_failed, more) = if overloaded { (2.0, 4.0) } else { (0.0, 0.0) };
        let failed = f64::from(self.bits.count_ones().saturating_sub(own)) + more_failed;
        let all = f64::from(self.len.saturating_sub(own).max(1)) + more;
        let share = failed / all;
        share + 2.0 * (share * (1.0 - share).max(0.0) / all).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_its_own_are_left_out_only_while_they_are_in_sight() {
        let mut recent = Recent::default();
        let mut own = Vec::new();
        for n in 0..128 {
            recent.note(n % 32 == 0);
            if n % 32 == 0 {
                own.push(recent.number());
            }
        }
        assert_eq!(recent.failed_share(&own, false), 0.0);
        assert!(recent.failed_share(&[], false) > 4.0 / 128.0);
        assert!(recent.failed_share(&own, true) > 2.0 / 128.0, "none of 128 is not never");
        for n in 0..128 {
            recent.note(n == 0);
        }
        assert!(recent.failed_share(&own, false) > 1.0 / 128.0, "the one in sight is another's");
    }

    #[test]
    fn two_deliveries_refused_of_late_are_an_overload() {
        let mut recent = Recent::default();
        assert!(!recent.overloaded(Seq(1)) && !recent.overloaded(Seq(1)));
        assert!(recent.overloaded(Seq(2)) && recent.overloaded(Seq(2)));
        for _ in 0..=OVERLOAD_LOOK_BACK {
            recent.note(false);
        }
        assert!(!recent.overloaded(Seq(2)));
    }
}
