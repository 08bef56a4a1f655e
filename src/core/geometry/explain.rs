//! Which intersection to report: the one that GEOS meets first, so that reason and place read alike.
//!
//! Called only once a geometry is known to be invalid. Rings are cut into chains that run into one quadrant each; pairs
//! of chains are taken in GEOS's order (its chains in turn, partners by the order of a packed tree), and the first
//! illegal contact wins. The work is bounded: beyond [`PAIRS_PER_VERTEX`] the caller reports what the sweep found.

use std::cmp::Ordering;

use super::areas::Areas;
use super::boxes::{Tree, bounds, meet};
use super::orient::{crossing_point, orient};
use super::sweep::{Net, lesser};
use super::{Defect, DefectKind};

/// Tests of two boxes allowed per vertex: an invalid star of 250,000 corners must not hold a core for seconds.
const PAIRS_PER_VERTEX: usize = 100;
/// Tests allowed in any case, some 20 ms of them: small geometries are explained as GEOS does whatever their shape.
const PAIRS_FREE: usize = 1_000_000;

/// A run of edges of one ring that goes into one quadrant.
struct Chain {
    /// First and last vertex by place in the ring (the last may be one past the ring's end).
    from: u32,
    to: u32,
    ring: u32,
    bounds: [f64; 4],
}

/// The first illegal contact, unless finding it takes too much work.
pub(super) fn first_intersection(areas: &Areas) -> Option<Defect> {
    let net = &areas.net;
    let chains = chains(net);
    let tree = Tree::of(chains.iter().map(|chain| chain.bounds));
    let mut budget = PAIRS_FREE + PAIRS_PER_VERTEX * net.points.len();
    let mut partners = Vec::new();
    for (number, chain) in chains.iter().enumerate() {
        partners.clear();
        tree.find(chain.bounds, &mut partners, &mut budget)?;
        let later = partners.iter().filter(|partner| **partner > number);
        for partner in later {
            if let Some(defect) = overlaps(net, chain, &chains[*partner], &mut budget) {
                return Some(defect);
            }
        }
    }
    None
}

/// The vertex at a place of a ring.
fn vertex(net: &Net, ring: u32, place: u32) -> u32 {
    let (start, end) = (net.starts[ring as usize], net.starts[ring as usize + 1]);
    start + place % (end - start)
}

fn chains(net: &Net) -> Vec<Chain> {
    let mut chains = Vec::new();
    for ring in 0..net.starts.len() as u32 - 1 {
        let edges = net.starts[ring as usize + 1] - net.starts[ring as usize];
        let point = |place: u32| net.point(vertex(net, ring, place));
        let quadrant = |place: u32| {
            let (a, b) = (point(place), point(place + 1));
            (b[0] >= a[0], b[1] >= a[1])
        };
        let mut from = 0;
        while from < edges {
            let mut to = from + 1;
            while to < edges && quadrant(to) == quadrant(from) {
                to += 1;
            }
            chains.push(Chain { from, to, ring, bounds: bounds(point(from), point(to)) });
            from = to;
        }
    }
    chains
}

/// The first illegal contact of two chains, halves before halves.
fn overlaps(net: &Net, a: &Chain, b: &Chain, budget: &mut usize) -> Option<Defect> {
    let mut open = vec![((a.from, a.to), (b.from, b.to))];
    while let Some((first, second)) = open.pop() {
        *budget = budget.checked_sub(1)?;
        let corner = |ring: u32, place: u32| net.point(vertex(net, ring, place));
        if first.1 - first.0 == 1 && second.1 - second.0 == 1 {
            let defect = contact(net, vertex(net, a.ring, first.0), vertex(net, b.ring, second.0));
            if defect.is_some() {
                return defect;
            }
            continue;
        }
        let of_first = bounds(corner(a.ring, first.0), corner(a.ring, first.1));
        let of_second = bounds(corner(b.ring, second.0), corner(b.ring, second.1));
        if !meet(of_first, of_second) {
            continue;
        }
        let halves = |(from, to): (u32, u32)| {
            let middle = from.midpoint(to);
            [(from, middle), (middle, to)].into_iter().filter(|(from, to)| from < to)
        };
        let pairs: Vec<_> = halves(first).flat_map(|x| halves(second).map(move |y| (x, y))).collect();
        open.extend(pairs.into_iter().rev());
    }
    None
}

/// What is wrong with how two edges meet, if anything (the rules of OGC simple features for rings).
fn contact(net: &Net, e: u32, f: u32) -> Option<Defect> {
    let (a, b) = ([net.point(e), net.point(net.next(e))], [net.point(f), net.point(net.next(f))]);
    if !meet(bounds(a[0], a[1]), bounds(b[0], b[1])) {
        return None;
    }
    let on_a = [orient(a[0], a[1], b[0]), orient(a[0], a[1], b[1])];
    let on_b = [orient(b[0], b[1], a[0]), orient(b[0], b[1], a[1])];
    if on_a == [Ordering::Equal; 2] {
        return collinear(net, e, f, a, b);
    }
    let apart = |signs: [Ordering; 2]| signs[0] == signs[1] && signs[0] != Ordering::Equal;
    if apart(on_a) || apart(on_b) {
        return None;
    }
    let ends = [(on_a[0], b[0]), (on_a[1], b[1]), (on_b[0], a[0]), (on_b[1], a[1])];
    match ends.iter().find(|(side, _)| *side == Ordering::Equal) {
        None => defect(DefectKind::SelfIntersection, crossing_point(a, b)),
        Some((_, point)) => at_point(net, e, f, *point),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "every caller ends with its finding")]
fn defect(kind: DefectKind, point: [f64; 2]) -> Option<Defect> {
    Some(Defect { kind, location: Some(point) })
}

/// Two edges on one line, boxes meeting: a stretch in common, or one point.
fn collinear(net: &Net, e: u32, f: u32, a: [[f64; 2]; 2], b: [[f64; 2]; 2]) -> Option<Defect> {
    let sorted = |s: [[f64; 2]; 2]| if lesser(s[0], s[1]) { s } else { [s[1], s[0]] };
    let (left, right) = (sorted(a), sorted(b));
    let from = if lesser(left[0], right[0]) { right[0] } else { left[0] };
    let to = if lesser(left[1], right[1]) { left[1] } else { right[1] };
    if lesser(from, to) {
        // GEOS names the first of b's ends that lies on a, or else a's.
        let within = |p: [f64; 2], s: [[f64; 2]; 2]| !lesser(p, s[0]) && !lesser(s[1], p);
        let inner = b.iter().find(|p| within(**p, left)).or_else(|| a.iter().find(|p| within(**p, right)));
        return defect(DefectKind::SelfIntersection, inner.copied().unwrap_or(from));
    }
    if from == to { at_point(net, e, f, from) } else { None }
}

/// Two edges with one point in common, an end of one of them at least.
fn at_point(net: &Net, e: u32, f: u32, point: [f64; 2]) -> Option<Defect> {
    if net.ring(e) == net.ring(f) {
        let adjacent = net.next(e) == f || net.next(f) == e;
        return if adjacent { None } else { defect(DefectKind::RingSelfIntersection, point) };
    }
    // The end of an edge is looked at as the start of the next one.
    if point == net.point(net.next(e)) || point == net.point(net.next(f)) {
        return None;
    }
    let arms = |edge: u32| {
        let back = if net.point(edge) == point { net.previous(edge) } else { edge };
        [net.point(back), net.point(net.next(edge))]
    };
    let (one, other) = (arms(e), arms(f));
    let inside = |p: [f64; 2]| between(point, one[0], one[1], p);
    match (inside(other[0]), inside(other[1])) {
        (Some(first), Some(second)) if first != second => defect(DefectKind::SelfIntersection, point),
        _ => None,
    }
}

/// Whether the direction to `p` lies counter-clockwise between those to `from` and `to`; `None` on either.
fn between(apex: [f64; 2], from: [f64; 2], to: [f64; 2], p: [f64; 2]) -> Option<bool> {
    let (a, b) = (orient(apex, from, p), orient(apex, p, to));
    let ray = |end: [f64; 2], side: Ordering| side == Ordering::Equal && lesser(apex, end) == lesser(apex, p);
    if ray(from, a) || ray(to, b) {
        return None;
    }
    let sector =
        |from, to| orient(apex, from, p) == Ordering::Greater && orient(apex, p, to) == Ordering::Greater;
    Some(match orient(apex, from, to) {
        Ordering::Greater => sector(from, to),
        Ordering::Less => !sector(to, from),
        Ordering::Equal => a == Ordering::Greater,
    })
}
