//! Differential search: the gate against an oracle written plainly from the rules of OGC simple features.
//!
//! The oracle looks at every pair of segments, samples midpoints for "inside", and floods the interior slab by slab. It
//! works on whole coordinates in exact fractions and shares nothing with the gate: no sweep, no ring graph, no
//! floating point. `WAYPOST_GEOMETRY_CASES` makes the search longer, `WAYPOST_GEOMETRY_SEED` repeats one.

use std::collections::BTreeSet;

use rand::RngExt;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use waypost::core::geometry::repair::repair;
use waypost::core::geometry::{DefectKind, Geometry, GeometryVerdict, check};

type P = (i64, i64);
type Ring = Vec<P>;
type Polygon = Vec<Ring>;

/// A fraction with a positive denominator.
#[derive(Clone, Copy, Debug)]
struct Fraction(i64, i64);

impl Fraction {
    fn less(self, other: Fraction) -> bool {
        self.0 * other.1 < other.0 * self.1
    }
}

fn turn(a: P, b: P, c: P) -> i64 {
    ((b.0 - a.0) * (c.1 - a.1) - (b.1 - a.1) * (c.0 - a.0)).signum()
}

fn on(p: P, a: P, b: P) -> bool {
    turn(a, b, p) == 0
        && (a.0.min(b.0)..=a.0.max(b.0)).contains(&p.0)
        && (a.1.min(b.1)..=a.1.max(b.1)).contains(&p.1)
}

/// Corners of a ring, repeats and the closing position left out.
fn corners(ring: &Ring) -> Vec<P> {
    let mut corners = ring.clone();
    corners.dedup();
    while corners.len() > 1 && corners.first() == corners.last() {
        corners.pop();
    }
    corners
}

fn edges(corners: &[P]) -> Vec<(P, P)> {
    (0..corners.len()).map(|i| (corners[i], corners[(i + 1) % corners.len()])).collect()
}

/// 1 inside, 0 on the line, -1 outside; `p` is given times two so that midpoints are whole.
fn locate(p2: P, corners: &[P]) -> i32 {
    let doubled: Vec<P> = corners.iter().map(|(x, y)| (2 * x, 2 * y)).collect();
    let mut inside = false;
    for (a, b) in edges(&doubled) {
        if on(p2, a, b) {
            return 0;
        }
        if (a.1 > p2.1) != (b.1 > p2.1) && (turn(a, b, p2) > 0) == (b.1 > a.1) {
            inside = !inside;
        }
    }
    if inside { 1 } else { -1 }
}

/// Whether two segments meet in the interior of both, or along a stretch.
fn clash(a: (P, P), b: (P, P)) -> bool {
    let of_b = turn(a.0, a.1, b.0) * turn(a.0, a.1, b.1);
    let of_a = turn(b.0, b.1, a.0) * turn(b.0, b.1, a.1);
    if of_b < 0 && of_a < 0 {
        return true;
    }
    let shared: BTreeSet<P> = [(b.0, a), (b.1, a), (a.0, b), (a.1, b)]
        .into_iter()
        .filter(|(p, s)| on(*p, s.0, s.1))
        .map(|(p, _)| p)
        .collect();
    shared.len() > 1
}

/// Points that two segments have in common, if they do not clash: an end of one of them.
fn contacts(a: (P, P), b: (P, P)) -> BTreeSet<P> {
    [(b.0, a), (b.1, a), (a.0, b), (a.1, b)]
        .into_iter()
        .filter(|(p, s)| on(*p, s.0, s.1))
        .map(|(p, _)| p)
        .collect()
}

/// The pieces of a ring between its corners and the corners of others on it, as midpoints times two. Rings meet in
/// corners only, so each piece lies wholly in, on, or out of another ring.
fn midpoints(ring: &[P], others: &[P]) -> Vec<P> {
    let mut found = Vec::new();
    for (a, b) in edges(ring) {
        let mut stops: Vec<P> = others.iter().copied().filter(|p| on(*p, a, b)).chain([a, b]).collect();
        stops.sort_by_key(|p| (p.0 - a.0).abs() + (p.1 - a.1).abs());
        stops.dedup();
        found.extend(stops.windows(2).map(|s| (s[0].0 + s[1].0, s[0].1 + s[1].1)));
    }
    found
}

/// Everything that is wrong, rule by rule; later rules only mean something where the earlier ones hold.
fn faults(polygons: &[Polygon]) -> BTreeSet<&'static str> {
    let mut found = BTreeSet::new();
    let rings: Vec<Vec<Vec<P>>> =
        polygons.iter().map(|polygon| polygon.iter().map(corners).collect()).collect();
    let all: Vec<&Vec<P>> = rings.iter().flatten().collect();
    if all.iter().any(|ring| ring.len() < 3) {
        found.insert("Too few points in geometry component");
        return found;
    }
    for (i, ring) in all.iter().enumerate() {
        for (j, other) in all.iter().enumerate().skip(i) {
            for (k, a) in edges(ring).into_iter().enumerate() {
                for (l, b) in edges(other).into_iter().enumerate() {
                    if i == j && k >= l {
                        continue;
                    }
                    if clash(a, b) {
                        found.insert("Self-intersection");
                    } else if i == j {
                        let next = l == k + 1 || (k == 0 && l + 1 == ring.len());
                        if !next && !contacts(a, b).is_empty() {
                            found.insert("Ring Self-intersection");
                        }
                    }
                }
            }
        }
    }
    if found.contains("Self-intersection") {
        return found;
    }
    // Rings that meet, and touch themselves, in points only. Rings cross if one has pieces both in and out of the other.
    let where_is = |a: &[P], b: &[P]| -> (bool, bool) {
        let sides: Vec<i32> = midpoints(a, b).into_iter().map(|p| locate(p, b)).collect();
        (sides.contains(&1), sides.contains(&-1))
    };
    for (i, ring) in all.iter().enumerate() {
        for (j, other) in all.iter().enumerate() {
            if i != j && where_is(ring, other) == (true, true) {
                found.insert("Self-intersection");
            }
        }
    }
    if !found.is_empty() {
        return found;
    }
    let within = |a: &[P], b: &[P]| where_is(a, b) == (true, false);
    for polygon in &rings {
        for (i, hole) in polygon.iter().enumerate().skip(1) {
            if !within(hole, &polygon[0]) {
                found.insert("Hole lies outside shell");
            }
            if polygon.iter().enumerate().skip(1).any(|(j, other)| i != j && within(hole, other)) {
                found.insert("Holes are nested");
            }
        }
    }
    for (i, a) in rings.iter().enumerate() {
        for (j, b) in rings.iter().enumerate() {
            let in_hole = || b[1..].iter().any(|hole| within(&a[0], hole));
            if i != j && within(&a[0], &b[0]) && !in_hole() {
                found.insert("Nested shells");
            }
        }
    }
    if found.is_empty() && rings.iter().any(|polygon| pieces(polygon) != 1) {
        found.insert("Interior is disconnected");
    }
    found
}

/// Into how many pieces the interior of a polygon falls: slabs between the corners' x, cells between edges in each slab,
/// cells of neighbouring slabs joined where they share a stretch of the line between them.
fn pieces(polygon: &[Vec<P>]) -> usize {
    let xs: BTreeSet<i64> = polygon.iter().flatten().map(|p| p.0).collect();
    let xs: Vec<i64> = xs.into_iter().collect();
    let height = |(a, b): (P, P), x2: i64| {
        // At x2 / 2.
        let (a, b) = if a.0 < b.0 { (a, b) } else { (b, a) };
        Fraction(2 * a.1 * (b.0 - a.0) + (b.1 - a.1) * (x2 - 2 * a.0), 2 * (b.0 - a.0))
    };
    let all: Vec<(P, P)> = polygon.iter().flat_map(|ring| edges(ring)).filter(|(a, b)| a.0 != b.0).collect();
    let mut cells: Vec<(usize, (P, P), (P, P))> = Vec::new();
    for (slab, pair) in xs.windows(2).enumerate() {
        let middle = pair[0] + pair[1];
        let mut over: Vec<(P, P)> =
            all.iter().copied().filter(|(a, b)| a.0.min(b.0) <= pair[0] && a.0.max(b.0) >= pair[1]).collect();
        over.sort_by(|e, f| {
            let (e, f) = (height(*e, middle), height(*f, middle));
            (e.0 * f.1).cmp(&(f.0 * e.1))
        });
        // Counted from below, every edge changes between in and out.
        cells.extend(over.chunks(2).filter(|c| c.len() == 2).map(|c| (slab, c[0], c[1])));
    }
    let mut group: Vec<usize> = (0..cells.len()).collect();
    for (i, (slab, low, high)) in cells.iter().enumerate() {
        for (j, (other_slab, other_low, other_high)) in cells.iter().enumerate() {
            if *other_slab != slab + 1 {
                continue;
            }
            let x2 = 2 * xs[slab + 1];
            let (l, h) = (height(*low, x2), height(*high, x2));
            let (ol, oh) = (height(*other_low, x2), height(*other_high, x2));
            let (from, to) = (if l.less(ol) { ol } else { l }, if h.less(oh) { h } else { oh });
            if from.less(to) {
                let (a, b) = (group[i], group[j]);
                group.iter_mut().filter(|g| **g == b).for_each(|g| *g = a);
            }
        }
    }
    group.into_iter().collect::<BTreeSet<_>>().len()
}

fn ring(points: &[P]) -> Ring {
    let mut ring = points.to_vec();
    ring.push(points[0]);
    ring
}

fn random_ring(rng: &mut Pcg64Mcg, side: i64, corners: usize) -> Ring {
    let points: Vec<P> =
        (0..corners).map(|_| (rng.random_range(0..=side), rng.random_range(0..=side))).collect();
    ring(&points)
}

/// Corners sorted by direction from a centre: often simple.
fn starlike(rng: &mut Pcg64Mcg, side: i64, corners: usize) -> Ring {
    let centre = (side as f64 / 2.0 + 0.1, side as f64 / 2.0 + 0.3);
    let mut points = random_ring(rng, side, corners);
    points.pop();
    let angle = |p: &P| (p.1 as f64 - centre.1).atan2(p.0 as f64 - centre.0);
    points.sort_by(|a, b| angle(a).total_cmp(&angle(b)));
    ring(&points)
}

fn shifted(ring: Ring, dx: i64, dy: i64) -> Ring {
    ring.into_iter().map(|(x, y)| (x + dx, y + dy)).collect()
}

fn random_area(rng: &mut Pcg64Mcg) -> Vec<Polygon> {
    let square = |side: i64| ring(&[(0, 0), (side, 0), (side, side), (0, side)]);
    match rng.random_range(0..8) {
        0 => vec![vec![random_ring(rng, 4, 3)]],
        1 => {
            let corners = rng.random_range(4..8);
            vec![vec![random_ring(rng, 4, corners)]]
        }
        2 => {
            let corners = rng.random_range(4..10);
            vec![vec![starlike(rng, 8, corners)]]
        }
        3 => {
            let holes = rng.random_range(1..4);
            let mut polygon = vec![square(6)];
            for _ in 0..holes {
                let corners = rng.random_range(3..5);
                polygon.push(starlike(rng, 6, corners));
            }
            vec![polygon]
        }
        4 => {
            // Small holes that often touch each other and the shell.
            let mut polygon = vec![square(6)];
            for _ in 0..rng.random_range(2..6) {
                let (dx, dy) = (rng.random_range(0..5), rng.random_range(0..5));
                polygon.push(shifted(starlike(rng, 2, 4), dx, dy));
            }
            vec![polygon]
        }
        5 => {
            let parts = rng.random_range(2..4);
            (0..parts).map(|_| vec![starlike(rng, 6, 3)]).collect()
        }
        6 => {
            // Parts within holes of others.
            let mut outer = vec![starlike(rng, 8, 7)];
            outer.push(shifted(starlike(rng, 4, 5), 2, 2));
            let inner = vec![shifted(starlike(rng, 3, 4), 2, 3)];
            if rng.random_range(0..2) == 0 { vec![outer, inner] } else { vec![inner, outer] }
        }
        _ => {
            let mut polygon = vec![starlike(rng, 8, 8)];
            for _ in 0..rng.random_range(1..4) {
                let (dx, dy) = (rng.random_range(1..5), rng.random_range(1..5));
                polygon.push(shifted(starlike(rng, 3, 4), dx, dy));
            }
            vec![polygon]
        }
    }
}

/// Ways to draw the same area: what is valid stays so.
fn drawn(polygons: &[Polygon], way: u32) -> Geometry {
    let place = |(x, y): P| {
        let (x, y) = if way & 1 == 0 { (x, y) } else { (y, x) };
        let scale = match way / 8 {
            0 => 1.0,
            1 => 2_f64.powi(-530) * 2_f64.powi(-530),
            2 => 2_f64.powi(1015),
            _ => 0.375,
        };
        [x as f64 * scale, y as f64 * scale]
    };
    let ring = |ring: &Ring| {
        let mut points: Vec<[f64; 2]> = ring.iter().map(|p| place(*p)).collect();
        if way & 2 != 0 {
            points.reverse();
        }
        if way & 4 != 0 {
            points.pop();
            points.rotate_left(1);
            points.push(points[0]);
        }
        points
    };
    let mut parts: Vec<Vec<_>> = polygons.iter().map(|polygon| polygon.iter().map(ring).collect()).collect();
    if parts.len() == 1 { Geometry::Polygon(parts.remove(0)) } else { Geometry::MultiPolygon(parts) }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[test]
fn areas_on_a_small_grid_are_judged_as_the_rules_say() {
    let seed = setting("WAYPOST_GEOMETRY_SEED", 20_260_301);
    let cases = setting("WAYPOST_GEOMETRY_CASES", if cfg!(debug_assertions) { 6_000 } else { 60_000 });
    println!("WAYPOST_GEOMETRY_SEED={seed} WAYPOST_GEOMETRY_CASES={cases}");
    let (mut valid, mut mended) = (0, 0);
    let mut kinds = BTreeSet::new();
    for case in 0..cases {
        let mut rng = Pcg64Mcg::seed_from_u64(seed.wrapping_add(case));
        let polygons = random_area(&mut rng);
        let wanted = faults(&polygons);
        let way = rng.random_range(0..32);
        let geometry = drawn(&polygons, way);
        match check(&geometry) {
            GeometryVerdict::Valid => {
                assert!(wanted.is_empty(), "case {case}, way {way}: {polygons:?}: {wanted:?}");
                valid += 1;
            }
            GeometryVerdict::Invalid(defect) => {
                let kind = defect.kind.as_str();
                assert!(
                    wanted.contains(kind),
                    "case {case}, way {way}: {polygons:?}: {kind}, wanted {wanted:?}"
                );
                kinds.insert(kind);
                if way < 8
                    && let Ok(repaired) = repair(&geometry)
                {
                    assert_eq!(check(&repaired.geometry), GeometryVerdict::Valid, "case {case}");
                    mended += 1;
                }
            }
            GeometryVerdict::Empty => panic!("case {case}: empty"),
        }
    }
    println!("{valid} valid, {mended} mended, kinds {kinds:?}");
    assert!(valid * 20 > cases, "the search meets valid areas too: {valid}");
    assert_eq!(kinds.len(), 7, "{kinds:?}");
}

/// Any geometry, what is wrong with it (each kind that could be named), and whether there is nothing in it.
fn random_member(rng: &mut Pcg64Mcg, depth: u32) -> (Geometry, BTreeSet<&'static str>, bool) {
    let few = DefectKind::TooFewPoints.as_str();
    let mut run = || -> Vec<[f64; 2]> {
        let count = rng.random_range(0..4);
        (0..count).map(|_| [rng.random_range(0..2_u8), rng.random_range(0..2_u8)].map(f64::from)).collect()
    };
    // A line needs two different points.
    let flat = |line: &Vec<[f64; 2]>| !line.is_empty() && line.iter().all(|point| *point == line[0]);
    let (one, two) = (run(), run());
    let wrong = |wrong: bool| if wrong { BTreeSet::from([few]) } else { BTreeSet::new() };
    match rng.random_range(0..6) {
        0 => (Geometry::Point(one.first().copied()), wrong(false), one.is_empty()),
        1 => (Geometry::MultiPoint(one.clone()), wrong(false), one.is_empty()),
        2 => (Geometry::LineString(one.clone()), wrong(flat(&one)), one.is_empty()),
        3 => {
            let (is_wrong, is_empty) = (flat(&one) || flat(&two), one.is_empty() && two.is_empty());
            (Geometry::MultiLineString(vec![one, two]), wrong(is_wrong), is_empty)
        }
        4 if depth < 3 => random_collection(rng, depth + 1),
        _ => {
            let polygons = random_area(rng);
            (drawn(&polygons, rng.random_range(0..8)), faults(&polygons), false)
        }
    }
}

/// The first member that is not valid speaks for the collection.
fn random_collection(rng: &mut Pcg64Mcg, depth: u32) -> (Geometry, BTreeSet<&'static str>, bool) {
    let (mut members, mut wanted, mut empty) = (Vec::new(), BTreeSet::new(), true);
    for _ in 0..rng.random_range(0..4) {
        let (member, faults, is_empty) = random_member(rng, depth);
        if wanted.is_empty() {
            wanted = faults;
        }
        empty &= is_empty;
        members.push(member);
    }
    (Geometry::GeometryCollection(members), wanted, empty)
}

#[test]
fn every_type_and_collections_are_judged_as_the_rules_say() {
    let seed = setting("WAYPOST_GEOMETRY_SEED", 7);
    let cases = setting("WAYPOST_GEOMETRY_CASES", if cfg!(debug_assertions) { 6_000 } else { 60_000 });
    println!("WAYPOST_GEOMETRY_SEED={seed} WAYPOST_GEOMETRY_CASES={cases}");
    let (mut counts, mut types) = ([0_u64; 3], BTreeSet::new());
    for case in 0..cases {
        let mut rng = Pcg64Mcg::seed_from_u64(seed.wrapping_add(case));
        let (geometry, wanted, empty) = random_member(&mut rng, 0);
        types.insert(geometry.type_name());
        match check(&geometry) {
            GeometryVerdict::Empty => {
                assert!(empty, "case {case}: {geometry:?}");
                counts[0] += 1;
            }
            GeometryVerdict::Valid => {
                assert!(wanted.is_empty() && !empty, "case {case}: {geometry:?}: {wanted:?}");
                counts[1] += 1;
            }
            GeometryVerdict::Invalid(defect) => {
                let kind = defect.kind.as_str();
                assert!(wanted.contains(kind), "case {case}: {geometry:?}: {kind}, wanted {wanted:?}");
                counts[2] += 1;
                if let Ok(repaired) = repair(&geometry) {
                    assert_eq!(check(&repaired.geometry), GeometryVerdict::Valid, "case {case}");
                }
            }
        }
    }
    let [empty, valid, invalid] = counts;
    println!("{empty} empty, {valid} valid, {invalid} invalid, types {types:?}");
    assert!(counts.iter().all(|count| count * 20 > cases), "{counts:?}");
    assert_eq!(types.len(), 7, "{types:?}");
}
