//! Cuts segments where they meet, until they meet at their ends only, and keeps equal pieces once.

use std::cmp::Ordering;

use super::super::boxes::{Tree, bounds, meet};
use super::super::orient::{crossing_point, orient};
use super::super::sweep::lesser;
use super::Unmendable;

/// Two points, the lesser one first.
pub(super) type Segment = [[f64; 2]; 2];

/// Rounds of cutting: rounded crossings move the pieces a little, so that new ones may meet; two rounds are usual.
const ROUNDS_MAX: usize = 12;
/// Meetings allowed, beyond as many again as there are segments: bounds memory and time on a scribble.
const MEETINGS_MAX: usize = 500_000;

/// The edges of all rings, closed.
pub(super) fn segments(polygons: &[Vec<Vec<[f64; 2]>>]) -> Vec<Segment> {
    let mut segments = Vec::new();
    for ring in polygons.iter().flatten() {
        let plain = |p: &[f64; 2]| [p[0] + 0.0, p[1] + 0.0];
        let ends = ring.iter().zip(ring.iter().cycle().skip(1));
        segments.extend(ends.filter_map(|(a, b)| segment(plain(a), plain(b))));
    }
    segments
}

fn segment(a: [f64; 2], b: [f64; 2]) -> Option<Segment> {
    if a == b {
        None
    } else if lesser(a, b) {
        Some([a, b])
    } else {
        Some([b, a])
    }
}

fn by_place(a: &[f64; 2], b: &[f64; 2]) -> Ordering {
    if a == b {
        Ordering::Equal
    } else if lesser(*a, *b) {
        Ordering::Less
    } else {
        Ordering::Greater
    }
}

/// The pieces, each once.
pub(super) fn noded(mut segments: Vec<Segment>) -> Result<Vec<Segment>, Unmendable> {
    let mut budget = MEETINGS_MAX + 2_000 * segments.len();
    for _ in 0..ROUNDS_MAX {
        segments.sort_unstable_by(|a, b| by_place(&a[0], &b[0]).then_with(|| by_place(&a[1], &b[1])));
        segments.dedup();
        let cuts = cuts(&segments, &mut budget)?;
        if cuts.iter().all(Vec::is_empty) {
            return Ok(segments);
        }
        let mut pieces = Vec::with_capacity(segments.len() * 2);
        for ([a, b], mut cuts) in segments.into_iter().zip(cuts) {
            cuts.sort_unstable_by(by_place);
            let mut from = a;
            for to in cuts.into_iter().chain([b]) {
                pieces.extend(segment(from, to));
                from = to;
            }
        }
        segments = pieces;
    }
    Err(Unmendable::Unstable)
}

/// For each segment the points, other than its ends, at which another one meets it.
fn cuts(segments: &[Segment], budget: &mut usize) -> Result<Vec<Vec<[f64; 2]>>, Unmendable> {
    let tree = Tree::of(segments.iter().map(|[a, b]| bounds(*a, *b)));
    let mut cuts: Vec<Vec<[f64; 2]>> = vec![Vec::new(); segments.len()];
    let mut near = Vec::new();
    let mut meetings = 0;
    for (number, segment) in segments.iter().enumerate() {
        near.clear();
        tree.find(bounds(segment[0], segment[1]), &mut near, budget).ok_or(Unmendable::Tangled)?;
        for other in near.iter().copied().filter(|other| *other > number) {
            for (at, point) in meeting(segment, &segments[other]) {
                cuts[if at == 0 { number } else { other }].push(point);
                meetings += 1;
            }
        }
        if meetings > segments.len() + MEETINGS_MAX {
            return Err(Unmendable::Tangled);
        }
    }
    Ok(cuts)
}

/// Where two segments meet, as cuts of the first (0) or second (1).
fn meeting(a: &Segment, b: &Segment) -> Vec<(usize, [f64; 2])> {
    if !meet(bounds(a[0], a[1]), bounds(b[0], b[1])) {
        return Vec::new();
    }
    let on_a = [orient(a[0], a[1], b[0]), orient(a[0], a[1], b[1])];
    let on_b = [orient(b[0], b[1], a[0]), orient(b[0], b[1], a[1])];
    let inside = |s: &Segment, p: [f64; 2]| lesser(s[0], p) && lesser(p, s[1]);
    let mut found = Vec::new();
    for end in 0..2 {
        if on_a[end] == Ordering::Equal && inside(a, b[end]) {
            found.push((0, b[end]));
        }
        if on_b[end] == Ordering::Equal && inside(b, a[end]) {
            found.push((1, a[end]));
        }
    }
    let parted = |sides: [Ordering; 2]| sides[0] != Ordering::Equal && sides[0] == sides[1].reverse();
    if parted(on_a) && parted(on_b) {
        let point = crossing_point(*a, *b);
        let point = [point[0] + 0.0, point[1] + 0.0];
        // A crossing that rounds to an end of one segment still cuts the other.
        found.extend(
            [(0, a), (1, b)]
                .into_iter()
                .filter(|(_, s)| point != s[0] && point != s[1])
                .map(|(at, _)| (at, point)),
        );
    }
    found
}
