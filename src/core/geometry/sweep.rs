//! A plane sweep over the edges of closed rings: it meets every vertex from left to right and keeps the edges under the
//! sweep line in order, so that each check looks at neighbours only.
//!
//! This is Shamos and Hoey's algorithm, extended by the contacts that are legal: a vertex on another ring's vertex or
//! edge. All decisions are signs of exact orientations. Until the first crossing is found the order of the edges is
//! right; a crossing is found when its two edges become neighbours, left of it. So n log n holds for every input, also
//! for those on which bounding boxes overlap everywhere.
//!
//! Invariants: edges run from their lesser to their greater end in (x, y) order; points next to each other in a ring
//! differ. What it does not do: it judges nothing; what a meeting means is the [`Visitor`]'s business.

use std::cmp::Ordering;

use super::orient::orient;
use super::status::Status;

/// Rings as flat arrays. Vertex `v` is also the name of the edge from it to [`Net::next`]`(v)`.
#[derive(Default)]
pub(super) struct Net {
    /// Positions of all rings, repeats and the closing position left out.
    pub(super) points: Vec<[f64; 2]>,
    /// Which ring a vertex is of.
    pub(super) ring_of: Vec<u32>,
    /// First vertex of each ring, and the end.
    pub(super) starts: Vec<u32>,
}

impl Net {
    pub(super) fn with_capacity(vertices: usize, rings: usize) -> Self {
        let mut starts = Vec::with_capacity(rings + 1);
        starts.push(0);
        Net { points: Vec::with_capacity(vertices), ring_of: Vec::with_capacity(vertices), starts }
    }

    /// Adds a ring, given with or without its closing position.
    pub(super) fn push_ring(&mut self, positions: &[[f64; 2]]) {
        let ring = self.starts.len() as u32 - 1;
        let start = self.points.len();
        for position in positions {
            // Adding zero makes -0 and 0 one value.
            let point = [position[0] + 0.0, position[1] + 0.0];
            if self.points.len() == start || self.points.last() != Some(&point) {
                self.points.push(point);
                self.ring_of.push(ring);
            }
        }
        while self.points.len() > start + 1 && self.points.last() == self.points.get(start) {
            self.points.pop();
            self.ring_of.pop();
        }
        self.starts.push(self.points.len() as u32);
    }

    pub(super) fn point(&self, vertex: u32) -> [f64; 2] {
        self.points[vertex as usize]
    }

    pub(super) fn ring(&self, vertex: u32) -> u32 {
        self.ring_of[vertex as usize]
    }

    pub(super) fn next(&self, vertex: u32) -> u32 {
        let after = vertex + 1;
        let ring = self.ring(vertex) as usize;
        if after == self.starts[ring + 1] { self.starts[ring] } else { after }
    }

    pub(super) fn previous(&self, vertex: u32) -> u32 {
        let ring = self.ring(vertex) as usize;
        if vertex == self.starts[ring] { self.starts[ring + 1] - 1 } else { vertex - 1 }
    }

    /// Whether an edge is walked from left to right.
    pub(super) fn rightward(&self, edge: u32) -> bool {
        lesser(self.point(edge), self.point(self.next(edge)))
    }

    /// Left and right end of an edge.
    pub(super) fn ends(&self, edge: u32) -> [[f64; 2]; 2] {
        let (a, b) = (self.point(edge), self.point(self.next(edge)));
        if lesser(a, b) { [a, b] } else { [b, a] }
    }
}

/// The order of the sweep: by x, then y.
pub(super) fn lesser(a: [f64; 2], b: [f64; 2]) -> bool {
    a[0] < b[0] || (a[0] == b[0] && a[1] < b[1])
}

/// What stands at one point when the sweep line passes it.
pub(super) struct Meeting<'a> {
    /// The point.
    pub(super) point: [f64; 2],
    /// Vertices at it.
    pub(super) vertices: &'a [Event],
    /// Edges that come to it from the left, those that pass through it included, from the bottom up.
    pub(super) incoming: &'a [u32],
    /// The one edge that passes through it, if any.
    pub(super) through: Option<u32>,
    /// Edges that leave it to the right, the one that passes through included, from the bottom up.
    pub(super) outgoing: &'a [u32],
    /// The edge next below the point.
    pub(super) below: Option<u32>,
}

/// Edges that meet where none may, whatever rings they are of: in the interior of both, or along a stretch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Clash {
    /// They cross in the interior of both, right of the sweep line.
    Cross(u32, u32),
    /// They meet in the interior of both, or overlap, at this point.
    At([f64; 2]),
}

/// A vertex in the order of the sweep.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    x: f64,
    y: f64,
    /// Its number.
    pub(super) vertex: u32,
}

/// What looks on.
pub(super) trait Visitor {
    /// What ends the sweep early.
    type Stop: From<Clash>;
    /// Called for each point once, from left to right.
    fn meet(&mut self, net: &Net, meeting: &Meeting<'_>) -> Result<(), Self::Stop>;
}

/// An edge under the sweep line, with its ends at hand: the search through the status looks at many.
#[derive(Clone, Copy)]
struct Entry {
    left: [f64; 2],
    right: [f64; 2],
    edge: u32,
}

impl Entry {
    fn of(net: &Net, edge: u32) -> Self {
        let [left, right] = net.ends(edge);
        Entry { left, right, edge }
    }

    /// Where a point lies seen from the edge: `Greater` is above.
    fn side(&self, point: [f64; 2]) -> Ordering {
        #[cfg(test)]
        tests::LOOKS.with(|looks| looks.set(looks.get() + 1));
        // Most edges in reach of the line are above or below the point as a whole.
        if self.left[1].max(self.right[1]) < point[1] {
            return Ordering::Greater;
        }
        if self.left[1].min(self.right[1]) > point[1] {
            return Ordering::Less;
        }
        orient(self.left, self.right, point)
    }
}

/// Sweeps over the net. Ends early with what the visitor or a [`Clash`] says.
pub(super) fn sweep<V: Visitor>(net: &Net, visitor: &mut V) -> Result<(), V::Stop> {
    let events = events(net);
    let mut status = Status::new();
    let (mut incoming, mut outgoing, mut entries) = (Vec::new(), Vec::new(), Vec::new());
    let mut rest = events.as_slice();
    while let Some(first) = rest.first() {
        let point = [first.x, first.y];
        let count = rest.iter().take_while(|event| [event.x, event.y] == point).count();
        let (vertices, later) = rest.split_at(count);
        rest = later;

        incoming.clear();
        outgoing.clear();
        let place = status.seek(|entry: &Entry| entry.side(point) == Ordering::Greater);
        let below = status.before(place);
        let mut after = place;
        while let Some(entry) = status.get(after).filter(|entry| entry.side(point) == Ordering::Equal) {
            if entry.right != point {
                outgoing.push(entry.edge);
            }
            incoming.push(entry.edge);
            after = status.after(after);
        }
        let above = status.get(after);
        if outgoing.len() > 1 {
            return Err(Clash::At(point).into());
        }
        let through = outgoing.first().copied();
        for event in vertices {
            let previous = net.previous(event.vertex);
            if net.rightward(event.vertex) {
                outgoing.push(event.vertex);
            }
            if !net.rightward(previous) {
                outgoing.push(previous);
            }
        }
        sort_outgoing(net, point, &mut outgoing)?;
        let below_edge = below.map(|entry| entry.edge);
        visitor.meet(
            net,
            &Meeting {
                point,
                vertices,
                incoming: &incoming,
                through,
                outgoing: &outgoing,
                below: below_edge,
            },
        )?;
        entries.clear();
        entries.extend(outgoing.iter().map(|edge| Entry::of(net, *edge)));
        status.splice(place, incoming.len(), &entries);
        let pairs = match (entries.first(), entries.last()) {
            (Some(lowest), Some(highest)) => [(below, Some(*lowest)), (Some(*highest), above)],
            _ => [(below, above), (None, None)],
        };
        for pair in pairs {
            if let (Some(lower), Some(upper)) = pair
                && cross(&lower, &upper)
            {
                return Err(Clash::Cross(lower.edge, upper.edge).into());
            }
        }
    }
    Ok(())
}

/// All vertices from left to right.
fn events(net: &Net) -> Vec<Event> {
    let order = |a: f64, b: f64| a.partial_cmp(&b).unwrap_or(Ordering::Equal);
    let vertices = net.points.iter().enumerate();
    let mut events: Vec<Event> =
        vertices.map(|(at, [x, y])| Event { x: *x, y: *y, vertex: at as u32 }).collect();
    events.sort_unstable_by(|a, b| order(a.x, b.x).then_with(|| order(a.y, b.y)));
    events
}

/// Sorts the edges that leave a point from the bottom up. Two in one direction overlap.
fn sort_outgoing(net: &Net, point: [f64; 2], outgoing: &mut [u32]) -> Result<(), Clash> {
    if outgoing.len() < 2 {
        return Ok(());
    }
    let slope = |a: u32, b: u32| orient(point, net.ends(a)[1], net.ends(b)[1]).reverse();
    outgoing.sort_unstable_by(|a, b| slope(*a, *b));
    if outgoing.windows(2).any(|pair| slope(pair[0], pair[1]) == Ordering::Equal) {
        return Err(Clash::At(point));
    }
    Ok(())
}

/// Whether two edges cross in the interior of both.
fn cross(lower: &Entry, upper: &Entry) -> bool {
    let (a, b) = ([lower.left, lower.right], [upper.left, upper.right]);
    if a[0][1].max(a[1][1]) < b[0][1].min(b[1][1]) || a[1][0] < b[0][0] || b[1][0] < a[0][0] {
        return false;
    }
    let opposite = |s: [[f64; 2]; 2], t: [[f64; 2]; 2]| {
        let (from, to) = (orient(s[0], s[1], t[0]), orient(s[0], s[1], t[1]));
        from != Ordering::Equal && from == to.reverse()
    };
    opposite(a, b) && opposite(b, a)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::f64::consts::TAU;

    use super::super::{Geometry, GeometryVerdict, check};

    thread_local! {
        /// How often an edge was looked at: what grows fastest in a sweep.
        pub(super) static LOOKS: Cell<u64> = const { Cell::new(0) };
    }

    /// How many edges a judgement looks at.
    fn looks(ring: Vec<[f64; 2]>) -> u64 {
        LOOKS.with(|looks| looks.set(0));
        assert_eq!(check(&Geometry::Polygon(vec![ring])), GeometryVerdict::Valid);
        LOOKS.with(Cell::get)
    }

    fn star(corners: u32) -> Vec<[f64; 2]> {
        let corner = |n: u32| {
            let (angle, radius) = (TAU * f64::from(n) / f64::from(corners), f64::from(1 + n % 2));
            [radius * angle.cos(), radius * angle.sin()]
        };
        (0..corners).chain([0]).map(corner).collect()
    }

    /// Teeth from the bottom to the top, or, `lying`, from one side to the other: half of the edges at once under the line.
    fn comb(corners: u32, lying: bool) -> Vec<[f64; 2]> {
        let teeth = (0..corners - 2).map(|n| [f64::from(n), f64::from(n % 2)]);
        let mut ring: Vec<_> =
            teeth.chain([[f64::from(corners - 3), -1.0], [0.0, -1.0], [0.0, 0.0]]).collect();
        if lying {
            for point in &mut ring {
                point.swap(0, 1);
            }
        }
        ring
    }

    /// Counted, not timed: the work grows within n^1.15, for shapes whose boxes overlap everywhere too.
    #[test]
    fn the_work_grows_as_n_log_n() {
        let shapes: [(&str, &dyn Fn(u32) -> Vec<[f64; 2]>); 3] = [
            ("star", &star),
            ("comb", &|corners| comb(corners, false)),
            ("lying comb", &|corners| comb(corners, true)),
        ];
        for (name, shape) in shapes {
            let (few, many) = (looks(shape(1_000)), looks(shape(64_000)));
            let power = (many as f64 / few as f64).ln() / 64_f64.ln();
            assert!(power < 1.15, "{name}: {few} looks for 1,000 corners, {many} for 64,000: n^{power:.3}");
            assert!(many < 64_000 * 60, "{name}: {many} looks");
        }
    }
}
