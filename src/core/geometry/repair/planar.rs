//! The faces that segments divide the plane into, and the areas made of every face an odd number of lines inside.
//!
//! Segments meet at their ends only. Each is two half-edges, one per direction; a half-edge has a face on its left.
//! Faces are walked round by turning as far clockwise as possible at each end; a group of lines inside a face is found by
//! the segment next below its leftmost point.

use std::cmp::Ordering;
use std::collections::VecDeque;

use super::super::boxes::Tree;
use super::super::orient::orient;
use super::super::sweep::lesser;
use super::lines::Segment;

/// Half-edge `2 s` runs along segment `s` from its lesser end, `2 s + 1` back.
struct Plane<'a> {
    segments: &'a [Segment],
    /// Half-edges out of each node, counter-clockwise from straight down.
    stars: Vec<Vec<usize>>,
    /// Node at which a half-edge starts, and its place in the star.
    from: Vec<(usize, usize)>,
    /// Face left of a half-edge, before faces are merged.
    walk: Vec<usize>,
    walks: usize,
}

/// Polygons (shell first, shells counter-clockwise); `None` if the segments do not form a plane after all.
pub(super) fn odd_faces(segments: &[Segment]) -> Option<Vec<Vec<Vec<[f64; 2]>>>> {
    if segments.is_empty() {
        return Some(Vec::new());
    }
    let plane = Plane::of(segments);
    let mut faces = Union::new(plane.walks + 1);
    let outside = plane.walks;
    plane.merge_walks(&mut faces, outside)?;
    let depth = plane.depths(&mut faces, outside);
    let kept = |faces: &mut Union, half: usize| depth[faces.root(plane.walk[half])] % 2 == 1;
    let rim: Vec<bool> =
        (0..plane.from.len()).map(|half| kept(&mut faces, half) && !kept(&mut faces, half ^ 1)).collect();
    // Kept faces side by side are one area.
    for half in 0..rim.len() {
        if kept(&mut faces, half) && kept(&mut faces, half ^ 1) {
            faces.join(plane.walk[half], plane.walk[half ^ 1]);
        }
    }
    plane.polygons(&rim, &mut faces)
}

impl<'a> Plane<'a> {
    fn of(segments: &'a [Segment]) -> Self {
        let mut ends: Vec<(f64, f64, usize)> = segments
            .iter()
            .enumerate()
            .flat_map(|(s, [a, b])| [(a[0], a[1], 2 * s), (b[0], b[1], 2 * s + 1)])
            .collect();
        ends.sort_unstable_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
        let mut plane = Plane {
            segments,
            stars: Vec::new(),
            from: vec![(0, 0); segments.len() * 2],
            walk: Vec::new(),
            walks: 0,
        };
        for node in ends.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let mut star: Vec<usize> = node.iter().map(|(_, _, half)| *half).collect();
            star.sort_by(|a, b| plane.by_angle(*a, *b));
            for (place, half) in star.iter().enumerate() {
                plane.from[*half] = (plane.stars.len(), place);
            }
            plane.stars.push(star);
        }
        plane.walk_faces();
        plane
    }

    fn start(&self, half: usize) -> [f64; 2] {
        self.segments[half / 2][half % 2]
    }

    fn end(&self, half: usize) -> [f64; 2] {
        self.segments[half / 2][1 - half % 2]
    }

    /// Counter-clockwise from straight down: first what leaves to the right or straight up, then the rest.
    fn by_angle(&self, a: usize, b: usize) -> Ordering {
        (a % 2).cmp(&(b % 2)).then_with(|| orient(self.start(a), self.end(a), self.end(b)).reverse())
    }

    /// The half-edge that follows round the same face.
    fn next(&self, half: usize) -> usize {
        let (node, place) = self.from[half ^ 1];
        let star = &self.stars[node];
        star[(place + star.len() - 1) % star.len()]
    }

    fn walk_faces(&mut self) {
        self.walk = vec![usize::MAX; self.from.len()];
        for first in 0..self.from.len() {
            if self.walk[first] != usize::MAX {
                continue;
            }
            let mut half = first;
            while self.walk[half] == usize::MAX {
                self.walk[half] = self.walks;
                half = self.next(half);
            }
            self.walks += 1;
        }
    }

    /// Joins the outer walk of each group of connected lines to the face in which the group lies.
    fn merge_walks(&self, faces: &mut Union, outside: usize) -> Option<()> {
        let mut groups = Union::new(self.stars.len());
        for half in (0..self.from.len()).step_by(2) {
            groups.join(self.from[half].0, self.from[half ^ 1].0);
        }
        let tree = Tree::of(self.segments.iter().map(|[a, b]| super::super::boxes::bounds(*a, *b)));
        let mut seen = vec![false; self.stars.len()];
        // Nodes are in the order of the sweep: the first of a group is its leftmost.
        for node in 0..self.stars.len() {
            if std::mem::replace(&mut seen[groups.root(node)], true) {
                continue;
            }
            let uppermost = *self.stars[node].last()?;
            let below = self.below(&tree, self.start(uppermost));
            let face = below.map_or(outside, |segment| self.walk[2 * segment]);
            faces.join(face, self.walk[uppermost]);
        }
        Some(())
    }

    /// The segment next below a point that lies on none but those that start there.
    fn below(&self, tree: &Tree, point: [f64; 2]) -> Option<usize> {
        let mut near = Vec::new();
        // Work without bound: the segments have been cut within one already.
        tree.find([point[0], f64::NEG_INFINITY, point[0], point[1]], &mut near, &mut { usize::MAX })?;
        let under = near.into_iter().filter(|number| {
            let [a, b] = self.segments[*number];
            a[0] <= point[0] && point[0] < b[0] && orient(a, b, point) == Ordering::Greater
        });
        under.max_by(|a, b| self.by_height(*a, *b))
    }

    /// Which of two segments over one place is the upper one; they do not cross.
    fn by_height(&self, a: usize, b: usize) -> Ordering {
        let (s, t) = (self.segments[a], self.segments[b]);
        if lesser(s[0], t[0]) {
            return self.by_height(b, a).reverse();
        }
        orient(t[0], t[1], s[0]).then_with(|| orient(t[0], t[1], s[1]))
    }

    /// How many lines part each face from the outside at least, and two.
    fn depths(&self, faces: &mut Union, outside: usize) -> Vec<usize> {
        const UNSEEN: usize = 0;
        let mut beside: Vec<Vec<usize>> = vec![Vec::new(); self.walks + 1];
        for half in 0..self.from.len() {
            let (here, there) = (faces.root(self.walk[half]), faces.root(self.walk[half ^ 1]));
            if here != there {
                beside[here].push(there);
            }
        }
        let mut depth = vec![UNSEEN; self.walks + 1];
        let start = faces.root(outside);
        // Even, and not the mark of a face not seen yet.
        depth[start] = 2;
        let mut open = VecDeque::from([start]);
        while let Some(face) = open.pop_front() {
            for next in &beside[face] {
                if depth[*next] == UNSEEN {
                    depth[*next] = depth[face] + 1;
                    open.push_back(*next);
                }
            }
        }
        depth
    }

    /// The rings along the rim, put together area by area.
    fn polygons(&self, rim: &[bool], faces: &mut Union) -> Option<Vec<Vec<Vec<[f64; 2]>>>> {
        let mut area_of = std::collections::BTreeMap::<usize, usize>::new();
        let mut areas: Vec<(Vec<Vec<[f64; 2]>>, Vec<Vec<[f64; 2]>>)> = Vec::new();
        let mut used = vec![false; rim.len()];
        for first in (0..rim.len()).filter(|half| rim[*half]) {
            if used[first] {
                continue;
            }
            let count = areas.len();
            let area = *area_of.entry(faces.root(self.walk[first])).or_insert(count);
            if area == count {
                areas.push((Vec::new(), Vec::new()));
            }
            let mut path: Vec<usize> = Vec::new();
            let mut half = first;
            while !std::mem::replace(&mut used[half], true) {
                path.push(half);
                half = self.next_rim(rim, half)?;
            }
            for mut ring in self.simple_rings(&path) {
                let turns_left = settle(&mut ring)?;
                if turns_left { areas[area].0.push(ring) } else { areas[area].1.push(ring) }
            }
        }
        areas
            .into_iter()
            .map(|(mut shells, holes)| {
                let shell = shells.pop().filter(|_| shells.is_empty())?;
                Some(std::iter::once(shell).chain(holes).collect())
            })
            .collect()
    }

    /// The next half-edge of the rim round the same area.
    fn next_rim(&self, rim: &[bool], half: usize) -> Option<usize> {
        let (node, place) = self.from[half ^ 1];
        let star = &self.stars[node];
        (1..=star.len()).map(|step| star[(place + star.len() - step) % star.len()]).find(|next| rim[*next])
    }

    /// Cuts a closed walk at the points to which it comes twice.
    fn simple_rings(&self, path: &[usize]) -> Vec<Vec<[f64; 2]>> {
        let mut rings = Vec::new();
        let mut place_of = std::collections::HashMap::<usize, usize>::new();
        let mut open: Vec<usize> = Vec::new();
        for half in path.iter().chain(path.first()) {
            let node = self.from[*half].0;
            if let Some(place) = place_of.get(&node).copied() {
                let loop_of = open.split_off(place);
                for passed in &loop_of {
                    place_of.remove(&self.from[*passed].0);
                }
                let mut ring: Vec<[f64; 2]> = loop_of.iter().map(|half| self.start(*half)).collect();
                ring.extend(ring.first().copied());
                rings.push(ring);
            }
            place_of.insert(node, open.len());
            open.push(*half);
        }
        rings
    }
}

/// Lets a simple closed ring begin at its leftmost corner; says whether it turns counter-clockwise.
fn settle(ring: &mut Vec<[f64; 2]>) -> Option<bool> {
    ring.pop();
    let corners = ring.len();
    let least = (0..corners).reduce(|best, at| if lesser(ring[at], ring[best]) { at } else { best })?;
    ring.rotate_left(least);
    let turn = orient(ring[corners - 1], ring[0], ring[1 % corners]);
    ring.push(ring[0]);
    Some(turn == Ordering::Greater)
}

/// Disjoint sets.
struct Union(Vec<usize>);

impl Union {
    fn new(count: usize) -> Self {
        Union((0..count).collect())
    }

    fn root(&mut self, mut item: usize) -> usize {
        while self.0[item] != item {
            self.0[item] = self.0[self.0[item]];
            item = self.0[item];
        }
        item
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        self.0[b] = a;
    }
}
