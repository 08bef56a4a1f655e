//! Boxes packed into a tree: which of many meet a given one.
//!
//! Sort-tile-recursive packing, ten to a node, leaves in GEOS's order: explaining a defect depends on that order.

use std::cmp::Ordering;

/// Children of a node, as in GEOS.
const NODE_MAX: usize = 10;

/// `[west, south, east, north]` of a segment.
pub(super) fn bounds(a: [f64; 2], b: [f64; 2]) -> [f64; 4] {
    [a[0].min(b[0]), a[1].min(b[1]), a[0].max(b[0]), a[1].max(b[1])]
}

/// Whether two boxes have a point in common.
pub(super) fn meet(a: [f64; 4], b: [f64; 4]) -> bool {
    a[0] <= b[2] && b[0] <= a[2] && a[1] <= b[3] && b[1] <= a[3]
}

/// The tree. It holds one box at least, or finds nothing.
pub(super) struct Tree {
    /// Numbers of the boxes in the order of the leaves.
    order: Vec<usize>,
    /// Boxes of each level, those given first.
    levels: Vec<Vec<[f64; 4]>>,
}

impl Tree {
    pub(super) fn of(boxes: impl Iterator<Item = [f64; 4]>) -> Self {
        let boxes: Vec<_> = boxes.collect();
        let order = packed_order(&boxes);
        let mut levels = vec![order.iter().map(|number| boxes[*number]).collect::<Vec<_>>()];
        while let Some(last) = levels.last().filter(|last| last.len() > 1) {
            let parent = |boxes: &[[f64; 4]]| boxes.iter().copied().reduce(joined).unwrap_or_default();
            let parents = last.chunks(NODE_MAX).map(parent).collect();
            levels.push(parents);
        }
        Tree { order, levels }
    }

    /// Adds the numbers of the boxes that meet `bounds`; `None` when the work allowed is used up.
    pub(super) fn find(&self, bounds: [f64; 4], found: &mut Vec<usize>, budget: &mut usize) -> Option<()> {
        if self.order.is_empty() {
            return Some(());
        }
        let mut open = vec![(self.levels.len() - 1, 0)];
        while let Some((level, at)) = open.pop() {
            *budget = budget.checked_sub(1)?;
            if !meet(self.levels[level][at], bounds) {
                continue;
            }
            if level == 0 {
                found.push(self.order[at]);
            } else {
                let children = at * NODE_MAX..((at + 1) * NODE_MAX).min(self.levels[level - 1].len());
                open.extend(children.rev().map(|child| (level - 1, child)));
            }
        }
        Some(())
    }
}

fn joined(a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
    [a[0].min(b[0]), a[1].min(b[1]), a[2].max(b[2]), a[3].max(b[3])]
}

fn packed_order(boxes: &[[f64; 4]]) -> Vec<usize> {
    // Halved first, so that the sum stays in range.
    let middle = |number: usize, axis: usize| boxes[number][axis] / 2.0 + boxes[number][axis + 2] / 2.0;
    let by = |axis: usize| {
        move |a: &usize, b: &usize| middle(*a, axis).partial_cmp(&middle(*b, axis)).unwrap_or(Ordering::Equal)
    };
    let mut order: Vec<usize> = (0..boxes.len()).collect();
    let leaves = boxes.len().div_ceil(NODE_MAX);
    let slices = (leaves as f64).sqrt().ceil().max(1.0) as usize;
    order.sort_by(by(0));
    for slice in order.chunks_mut(boxes.len().div_ceil(slices).max(1)) {
        slice.sort_by(by(1));
    }
    order
}
