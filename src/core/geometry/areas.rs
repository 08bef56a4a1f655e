//! The rules for polygons and multipolygons: rings meet in single points only, holes lie in their shell and not in each
//! other, shells not in each other, and the interior hangs together.
//!
//! How it fits: [`super::check`] calls [`judge`] once it knows that every ring is closed and has points enough. One
//! sweep over all rings gives everything: crossings end it; the edge next below a ring's leftmost point says which ring
//! it lies in; and touching points, as links between rings, cut the interior exactly where they form a cycle.

use super::explain;
use super::orient::crossing_point;
use super::sweep::{Clash, Meeting, Net, Visitor, sweep};
use super::{Defect, DefectKind};

/// Rings of one or more polygons, and which polygon each is of.
#[derive(Default)]
pub(super) struct Areas {
    pub(super) net: Net,
    /// Polygon of a ring.
    pub(super) polygon_of: Vec<u32>,
}

impl Areas {
    /// Of closed rings with three corners at least; empty holes are passed over.
    pub(super) fn of(polygons: &[Vec<Vec<[f64; 2]>>]) -> Self {
        let vertices = polygons.iter().flatten().map(Vec::len).sum();
        let rings = polygons.iter().map(Vec::len).sum();
        let mut areas =
            Areas { net: Net::with_capacity(vertices, rings), polygon_of: Vec::with_capacity(rings) };
        for (number, polygon) in polygons.iter().enumerate() {
            for ring in polygon.iter().filter(|ring| !ring.is_empty()) {
                areas.net.push_ring(ring);
                areas.polygon_of.push(number as u32);
            }
        }
        areas
    }

    /// The shell stands first among the rings of a polygon.
    fn is_shell(&self, ring: u32) -> bool {
        ring == 0 || self.polygon_of[ring as usize - 1] != self.polygon_of[ring as usize]
    }

    fn first_point(&self, ring: u32) -> [f64; 2] {
        self.net.point(self.net.starts[ring as usize])
    }
}

/// The first defect in GEOS's order of checks, if any.
pub(super) fn judge(areas: &Areas) -> Option<Defect> {
    let mut look = Look::new(areas);
    if let Err(defect) = sweep(&areas.net, &mut look) {
        // Which of several intersections is reported first is GEOS's choice, followed where that is cheap.
        return Some(explain::first_intersection(areas).unwrap_or_else(|| defect.settle(&areas.net)));
    }
    look.nesting().or_else(|| {
        look.cut.map(|point| Defect { kind: DefectKind::DisconnectedInterior, location: Some(point) })
    })
}

/// What ended a sweep.
enum Stop {
    Clash(Clash),
    Touch([f64; 2], DefectKind),
}

impl From<Clash> for Stop {
    fn from(clash: Clash) -> Self {
        Stop::Clash(clash)
    }
}

impl Stop {
    fn settle(self, net: &Net) -> Defect {
        let (kind, point) = match self {
            Stop::Clash(Clash::At(point)) => (DefectKind::SelfIntersection, point),
            Stop::Clash(Clash::Cross(a, b)) => {
                (DefectKind::SelfIntersection, crossing_point(net.ends(a), net.ends(b)))
            }
            Stop::Touch(point, kind) => (kind, point),
        };
        Defect { kind, location: Some(point) }
    }
}

/// No ring.
const NONE: u32 = u32::MAX;

/// What the sweep has learnt about the rings.
struct Look<'a> {
    areas: &'a Areas,
    /// Whether a ring's leftmost point has been met.
    met: Vec<bool>,
    /// The innermost ring that a ring lies in.
    container: Vec<u32>,
    /// Whether a ring turns counter-clockwise.
    counter_clockwise: Vec<bool>,
    /// Rings linked by touching points (union-find).
    linked: Vec<u32>,
    /// Where such links closed a cycle first.
    cut: Option<[f64; 2]>,
    chords: Vec<u32>,
    touching: Vec<(u32, u32)>,
}

impl Visitor for Look<'_> {
    type Stop = Stop;

    fn meet(&mut self, net: &Net, meeting: &Meeting<'_>) -> Result<(), Stop> {
        if meeting.vertices.len() > 1 || meeting.through.is_some() {
            self.touch(net, meeting)?;
        }
        if meeting.outgoing.len() > 1 {
            self.place_rings(net, meeting);
        }
        Ok(())
    }
}

impl<'a> Look<'a> {
    fn new(areas: &'a Areas) -> Self {
        let rings = areas.polygon_of.len();
        Look {
            areas,
            met: vec![false; rings],
            container: vec![NONE; rings],
            counter_clockwise: vec![false; rings],
            linked: (0..rings as u32).collect(),
            cut: None,
            chords: Vec::new(),
            touching: Vec::new(),
        }
    }

    /// Several ring passages at one point: of different rings, not crossing, they only touch.
    fn touch(&mut self, net: &Net, meeting: &Meeting<'_>) -> Result<(), Stop> {
        self.touching.clear();
        let rings = meeting.vertices.iter().map(|event| net.ring(event.vertex));
        for ring in rings.chain(meeting.through.map(|edge| net.ring(edge))) {
            self.touching.push((self.areas.polygon_of[ring as usize], ring));
        }
        self.touching.sort_unstable();
        if self.touching.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Stop::Touch(meeting.point, DefectKind::RingSelfIntersection));
        }
        if self.crosses(net, meeting) {
            return Err(Stop::Touch(meeting.point, DefectKind::SelfIntersection));
        }
        for pair in 1..self.touching.len() {
            let (before, here) = (self.touching[pair - 1], self.touching[pair]);
            if before.0 == here.0 && !self.link(before.1, here.1) && self.cut.is_none() {
                self.cut = Some(meeting.point);
            }
        }
        Ok(())
    }

    /// Whether passages cross at the point: as chords of a small circle round it, they must nest like brackets.
    fn crosses(&mut self, net: &Net, meeting: &Meeting<'_>) -> bool {
        let passage = |edge: u32| {
            if Some(edge) == meeting.through {
                // No vertex of its own: told apart by a number above all vertices.
                return NONE;
            }
            if net.point(edge) == meeting.point { edge } else { net.next(edge) }
        };
        self.chords.clear();
        for edge in meeting.outgoing.iter().chain(meeting.incoming.iter().rev()) {
            let chord = passage(*edge);
            if self.chords.last() == Some(&chord) {
                self.chords.pop();
            } else {
                self.chords.push(chord);
            }
        }
        !self.chords.is_empty()
    }

    fn root(&mut self, mut ring: u32) -> u32 {
        while self.linked[ring as usize] != ring {
            let parent = self.linked[ring as usize];
            self.linked[ring as usize] = self.linked[parent as usize];
            ring = parent;
        }
        ring
    }

    /// Links two rings; false if they were linked before.
    fn link(&mut self, a: u32, b: u32) -> bool {
        let (a, b) = (self.root(a), self.root(b));
        self.linked[b as usize] = a;
        a != b
    }

    /// For each ring whose leftmost point this is: how it turns, and what it lies in.
    fn place_rings(&mut self, net: &Net, meeting: &Meeting<'_>) {
        let mut below = meeting.below;
        for edge in meeting.outgoing {
            let ring = net.ring(*edge) as usize;
            if !self.met[ring] {
                self.met[ring] = true;
                // Its lower edge leaves the leftmost point first; a ring that takes it forward turns left.
                self.counter_clockwise[ring] = net.rightward(*edge);
                self.container[ring] = below.map_or(NONE, |under| {
                    let other = net.ring(under) as usize;
                    let inside = net.rightward(under) == self.counter_clockwise[other];
                    if inside { other as u32 } else { self.container[other] }
                });
            }
            below = Some(*edge);
        }
    }

    /// Rules about what lies in what. In a valid geometry every hole lies directly in its own shell, and every shell in
    /// nothing or in a hole; the reasons are sought only where that fails.
    fn nesting(&self) -> Option<Defect> {
        let rings = 0..self.container.len() as u32;
        let shell_of = Shells::of(self.areas);
        let fits = |ring: u32| {
            let container = self.container[ring as usize];
            if self.areas.is_shell(ring) {
                container == NONE || !self.areas.is_shell(container)
            } else {
                container == shell_of.0[ring as usize]
            }
        };
        if rings.clone().all(fits) {
            return None;
        }
        let spans = Spans::of(&self.container);
        let holes = rings.clone().filter(|ring| !self.areas.is_shell(*ring));
        let outside = holes.clone().find(|hole| !spans.within(*hole, shell_of.0[*hole as usize]));
        if let Some(hole) = outside {
            return Some(self.defect(DefectKind::HoleOutsideShell, hole));
        }
        for hole in holes.filter(|hole| !fits(*hole)) {
            let mut outer = self.container[hole as usize];
            while outer != shell_of.0[hole as usize] && outer != NONE {
                if self.areas.polygon_of[outer as usize] == self.areas.polygon_of[hole as usize] {
                    return Some(self.defect(DefectKind::NestedHoles, hole));
                }
                outer = self.container[outer as usize];
            }
        }
        let nested = rings.clone().find(|ring| self.areas.is_shell(*ring) && !fits(*ring));
        // Every other misfit is a consequence of a nested shell.
        nested
            .or_else(|| rings.clone().find(|ring| !fits(*ring)))
            .map(|ring| self.defect(DefectKind::NestedShells, ring))
    }

    fn defect(&self, kind: DefectKind, ring: u32) -> Defect {
        Defect { kind, location: Some(self.areas.first_point(ring)) }
    }
}

/// The shell of each ring's polygon.
struct Shells(Vec<u32>);

impl Shells {
    fn of(areas: &Areas) -> Self {
        let mut shell = 0;
        let shell_of = |ring: u32| {
            if areas.is_shell(ring) {
                shell = ring;
            }
            shell
        };
        Shells((0..areas.polygon_of.len() as u32).map(shell_of).collect())
    }
}

/// Ring within ring at any depth, answered at once: entry and exit numbers of a walk through the forest.
struct Spans(Vec<(u32, u32)>);

impl Spans {
    fn of(container: &[u32]) -> Self {
        let mut inner: Vec<Vec<u32>> = vec![Vec::new(); container.len()];
        let mut open = Vec::new();
        for (ring, outer) in container.iter().enumerate() {
            match inner.get_mut(*outer as usize) {
                Some(rings) => rings.push(ring as u32),
                None => open.push((ring as u32, 0)),
            }
        }
        let (mut spans, mut clock) = (vec![(0, 0); container.len()], 0);
        while let Some((ring, child)) = open.pop() {
            clock += 1;
            if child == 0 {
                spans[ring as usize].0 = clock;
            }
            if let Some(next) = inner[ring as usize].get(child) {
                open.push((ring, child + 1));
                open.push((*next, 0));
            } else {
                spans[ring as usize].1 = clock;
            }
        }
        Spans(spans)
    }

    fn within(&self, ring: u32, outer: u32) -> bool {
        let (inner, outer) = (self.0[ring as usize], self.0[outer as usize]);
        outer.0 < inner.0 && inner.1 <= outer.1
    }
}
