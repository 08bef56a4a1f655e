//! On which side of a line a point lies, exactly, for every finite double.
//!
//! Three steps, each only where the one before cannot tell: plain doubles with an error bound (nearly always), the
//! adaptive predicate of the `robust` crate (exact unless products leave the range of doubles), and whole numbers of
//! any length (coordinates like 1e300 or 1e-300). No epsilon anywhere.

use std::cmp::Ordering;

/// Error bound of the plain determinant, (3 + 16 ε) ε with ε = 2⁻⁵³ (Shewchuk 1997, `ccwerrboundA`).
const ERROR_BOUND: f64 = 3.330_669_073_875_471_6e-16;
/// Below this a product may have lost bits to underflow, which the bound above does not cover.
const PRODUCT_MIN: f64 = 1e-280;
/// Magnitudes between these keep every product of two differences, and its rounding error, in the range of doubles:
/// 2⁻⁴⁸⁰ squared times ε² is above 2⁻¹⁰⁷⁴, and 2⁵⁰⁰ squared is far from overflow.
const MAGNITUDE_MIN: f64 = 3.2e-145;
const MAGNITUDE_MAX: f64 = 3.2e150;

/// `Greater` if `c` lies left of the line from `a` to `b` (a, b, c turn counter-clockwise), `Less` if right of it,
/// `Equal` if on it.
pub(super) fn orient(a: [f64; 2], b: [f64; 2], c: [f64; 2]) -> Ordering {
    let (acx, bcx, acy, bcy) = (a[0] - c[0], b[0] - c[0], a[1] - c[1], b[1] - c[1]);
    let (left, right) = (acx * bcy, acy * bcx);
    let (det, sum) = (left - right, left.abs() + right.abs());
    if det.abs() > ERROR_BOUND * sum && sum > PRODUCT_MIN && sum < f64::INFINITY {
        return sign(det);
    }
    // A difference of doubles is zero only if they are equal, so this zero is exact.
    if (acx == 0.0 || bcy == 0.0) && (acy == 0.0 || bcx == 0.0) {
        return Ordering::Equal;
    }
    slow(a, b, c)
}

fn sign(x: f64) -> Ordering {
    x.partial_cmp(&0.0).unwrap_or(Ordering::Equal)
}

#[cold]
fn slow(a: [f64; 2], b: [f64; 2], c: [f64; 2]) -> Ordering {
    let tame = |x: f64| x == 0.0 || (MAGNITUDE_MIN..MAGNITUDE_MAX).contains(&x.abs());
    if [a, b, c].iter().flatten().all(|x| tame(*x)) {
        let coord = |p: [f64; 2]| robust::Coord { x: p[0], y: p[1] };
        sign(robust::orient2d(coord(a), coord(b), coord(c)))
    } else {
        whole(a, b, c)
    }
}

/// The determinant in whole numbers: every coordinate as a multiple of the smallest unit that any of them needs.
fn whole(a: [f64; 2], b: [f64; 2], c: [f64; 2]) -> Ordering {
    let unit = [a, b, c].iter().flatten().filter(|x| **x != 0.0).map(|x| exponent(*x)).min().unwrap_or(0);
    let difference = |p: f64, q: f64| Whole::of(p, unit).minus(&Whole::of(q, unit));
    let left = difference(a[0], c[0]).times(&difference(b[1], c[1]));
    let right = difference(a[1], c[1]).times(&difference(b[0], c[0]));
    left.cmp(&right)
}

/// Exponent of the last bit of a finite double.
fn exponent(x: f64) -> i32 {
    let biased = ((x.to_bits() >> 52) & 0x7ff) as i32;
    biased.max(1) - 1075
}

/// A whole number: sign and limbs, lowest first, without zero limbs at the top.
struct Whole {
    negative: bool,
    limbs: Vec<u64>,
}

impl Whole {
    /// `x / 2^unit`, which the caller knows to be whole.
    fn of(x: f64, unit: i32) -> Self {
        let fraction = x.to_bits() & ((1 << 52) - 1);
        let subnormal = (x.to_bits() >> 52) & 0x7ff == 0;
        let mantissa = if subnormal { fraction } else { fraction | (1 << 52) };
        if mantissa == 0 {
            return Whole { negative: false, limbs: Vec::new() };
        }
        let shift = (exponent(x) - unit).max(0) as usize;
        let mut limbs = vec![0; shift / 64];
        let wide = u128::from(mantissa) << (shift % 64);
        limbs.extend([wide as u64, (wide >> 64) as u64]);
        Whole { negative: x < 0.0, limbs }.trimmed()
    }

    fn trimmed(mut self) -> Self {
        while self.limbs.last() == Some(&0) {
            self.limbs.pop();
        }
        self.negative &= !self.limbs.is_empty();
        self
    }

    fn magnitude_cmp(&self, other: &Self) -> Ordering {
        let by_length = self.limbs.len().cmp(&other.limbs.len());
        by_length.then_with(|| self.limbs.iter().rev().cmp(other.limbs.iter().rev()))
    }

    fn cmp(&self, other: &Self) -> Ordering {
        match (self.negative, other.negative) {
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => self.magnitude_cmp(other),
            (true, true) => other.magnitude_cmp(self),
        }
    }

    fn minus(&self, other: &Self) -> Self {
        if self.negative != other.negative {
            return Whole { negative: self.negative, limbs: added(&self.limbs, &other.limbs) }.trimmed();
        }
        match self.magnitude_cmp(other) {
            Ordering::Less => {
                Whole { negative: !self.negative, limbs: subtracted(&other.limbs, &self.limbs) }
            }
            _ => Whole { negative: self.negative, limbs: subtracted(&self.limbs, &other.limbs) },
        }
        .trimmed()
    }

    fn times(&self, other: &Self) -> Self {
        let mut limbs = vec![0_u64; self.limbs.len() + other.limbs.len()];
        for (at, x) in self.limbs.iter().enumerate() {
            let mut carry = 0_u128;
            for (slot, y) in limbs[at..].iter_mut().zip(other.limbs.iter().chain([&0])) {
                let sum = u128::from(*x) * u128::from(*y) + u128::from(*slot) + carry;
                *slot = sum as u64;
                carry = sum >> 64;
            }
        }
        Whole { negative: self.negative != other.negative, limbs }.trimmed()
    }
}

fn added(a: &[u64], b: &[u64]) -> Vec<u64> {
    let mut carry = 0_u128;
    let mut sum = Vec::with_capacity(a.len().max(b.len()) + 1);
    for at in 0..=a.len().max(b.len()) {
        let limb = |limbs: &[u64]| u128::from(limbs.get(at).copied().unwrap_or(0));
        carry += limb(a) + limb(b);
        sum.push(carry as u64);
        carry >>= 64;
    }
    sum
}

/// `a - b` for `a >= b`.
fn subtracted(a: &[u64], b: &[u64]) -> Vec<u64> {
    let mut borrow = false;
    let mut difference = Vec::with_capacity(a.len());
    for (at, x) in a.iter().enumerate() {
        let (first, under) = x.overflowing_sub(b.get(at).copied().unwrap_or(0));
        let (second, again) = first.overflowing_sub(u64::from(borrow));
        difference.push(second);
        borrow = under || again;
    }
    difference
}

/// Where two properly crossing segments meet, to within rounding: on the first, by the ratio of the exact sides.
pub(super) fn crossing_point(a: [[f64; 2]; 2], b: [[f64; 2]; 2]) -> [f64; 2] {
    // Halved and scaled, so that no product leaves the range of doubles.
    let peak = a.iter().chain(&b).flatten().fold(0.0_f64, |peak, x| peak.max(x.abs()));
    let scale = if peak > 1e150 || (peak < 1e-150 && peak > 0.0) { peak } else { 1.0 };
    let coord = |p: [f64; 2]| robust::Coord { x: p[0] / scale, y: p[1] / scale };
    let side = |p| robust::orient2d(coord(b[0]), coord(b[1]), coord(p)).abs();
    let (from, to) = (side(a[0]), side(a[1]));
    let share = if from + to > 0.0 { from / (from + to) } else { 0.5 };
    let mut point = [0.0; 2];
    for (axis, slot) in point.iter_mut().enumerate() {
        let (low, high) = span(a, b, axis);
        // Written so that nothing overflows, and the end nearer to the crossing is the one started from.
        let at = if share <= 0.5 {
            a[0][axis] + (a[1][axis] * share - a[0][axis] * share)
        } else {
            a[1][axis] + (a[0][axis] * (1.0 - share) - a[1][axis] * (1.0 - share))
        };
        *slot = at.max(low).min(high);
    }
    point
}

/// The range that both segments have in common on one axis.
fn span(a: [[f64; 2]; 2], b: [[f64; 2]; 2], axis: usize) -> (f64, f64) {
    let low = |s: [[f64; 2]; 2]| s[0][axis].min(s[1][axis]);
    let high = |s: [[f64; 2]; 2]| s[0][axis].max(s[1][axis]);
    (low(a).max(low(b)), high(a).min(high(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_exact_at_every_magnitude() {
        for scale in [1.0, 1e300, 1e-300, 1e-320, 0.1] {
            let p = |x: f64, y: f64| [x * scale, y * scale];
            assert_eq!(orient(p(0.0, 0.0), p(2.0, 0.0), p(1.0, 1.0)), Ordering::Greater, "{scale}");
            assert_eq!(orient(p(0.0, 0.0), p(2.0, 0.0), p(1.0, -1.0)), Ordering::Less, "{scale}");
            assert_eq!(orient(p(0.0, 0.0), p(2.0, 2.0), p(1.0, 1.0)), Ordering::Equal, "{scale}");
        }
        let least = f64::from_bits(1);
        assert_eq!(orient([0.0, 0.0], [f64::MAX, f64::MAX], [0.0, least]), Ordering::Greater);
        assert_eq!(orient([0.0, 0.0], [f64::MAX, f64::MAX], [least, 0.0]), Ordering::Less);
        assert_eq!(orient([-f64::MAX, -f64::MAX], [f64::MAX, f64::MAX], [least, least]), Ordering::Equal);
        assert_eq!(orient([0.0, 0.0], [1.0, 1.0], [0.5 + f64::EPSILON, 0.5]), Ordering::Less);
    }

    #[test]
    fn whole_numbers_agree_with_the_adaptive_predicate() {
        let values = [0.0, 1.0, -1.0, 0.1, 0.3, 1e-17, 123_456.789, -2e6, 1.0 + f64::EPSILON];
        for (i, a) in values.iter().enumerate() {
            for b in values {
                for c in values {
                    let (p, q, r) = ([*a, b], [c, values[(i * 7 + 3) % 9]], [b, *a]);
                    assert_eq!(whole(p, q, r), slow(p, q, r), "{p:?} {q:?} {r:?}");
                }
            }
        }
    }
}
