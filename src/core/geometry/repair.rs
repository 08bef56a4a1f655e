//! Mends common defects: what `make_valid` of shapely does by its `linework` method, for areas.
//!
//! The rings are cut where they meet, equal pieces are kept once, and a face of what they divide the plane into belongs
//! to the result if an odd number of lines parts it from the outside. So a bow-tie becomes two polygons, a hole that
//! sticks out adds what is outside, nested holes become islands, parts that overlap lose the overlap, and equal parts
//! are one. Spikes and repeated points go; open rings are closed; shells turn counter-clockwise.
//!
//! Invariants: the result is valid by [`super::check`], or there is none; every corner of it is a corner of the input or
//! a rounded crossing; nothing changes that was valid. What it does not do: it keeps no lines or points that an area
//! collapses to (GEOS adds them as a collection, which receivers of areas refuse); it keeps no altitude; it
//! invents no area.

mod lines;
mod planar;

use super::{DefectKind, Geometry, GeometryVerdict, check};

/// What was done to a geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    /// A ring was closed.
    RingClosed,
    /// Lines were cut where they meet, and areas put together anew.
    Rebuilt,
    /// A part without length or area was left out.
    PartDropped,
    /// It has another GeoJSON type now.
    TypeChanged,
}

impl Change {
    /// In words, for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Change::RingClosed => "ring closed",
            Change::Rebuilt => "areas rebuilt from their lines",
            Change::PartDropped => "a part without length or area left out",
            Change::TypeChanged => "geometry type changed",
        }
    }
}

/// A geometry that is valid now.
#[derive(Clone, Debug, PartialEq)]
pub struct Repaired {
    /// The geometry.
    pub geometry: Geometry,
    /// What was done, each once; nothing for a geometry that was valid.
    pub changes: Vec<Change>,
}

/// Why a geometry cannot be mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unmendable {
    /// There is nothing in it.
    #[error("there is nothing in it")]
    Empty,
    /// It holds a coordinate that is not finite.
    #[error("a coordinate is not finite")]
    NotFinite,
    /// It has no length or area: it would become a point or a line.
    #[error("it has no length or area")]
    Collapsed,
    /// Its lines meet too often to be cut within the work allowed.
    #[error("its lines meet too often")]
    Tangled,
    /// Rounding spoils every attempt.
    #[error("rounding of the crossings spoils every attempt")]
    Unstable,
}

/// Mends a geometry as far as that can be done without inventing anything.
pub fn repair(geometry: &Geometry) -> Result<Repaired, Unmendable> {
    match check(geometry) {
        GeometryVerdict::Valid => return Ok(Repaired { geometry: geometry.clone(), changes: Vec::new() }),
        GeometryVerdict::Empty => return Err(Unmendable::Empty),
        GeometryVerdict::Invalid(defect) if defect.kind == DefectKind::InvalidCoordinate => {
            return Err(Unmendable::NotFinite);
        }
        GeometryVerdict::Invalid(_) => {}
    }
    let mut changes = Vec::new();
    let mended = mend(geometry, &mut changes)?;
    if std::mem::discriminant(&mended) != std::mem::discriminant(geometry) {
        changes.push(Change::TypeChanged);
    }
    changes.sort_unstable();
    changes.dedup();
    match check(&mended) {
        GeometryVerdict::Valid => Ok(Repaired { geometry: mended, changes }),
        _ => Err(Unmendable::Unstable),
    }
}

fn mend(geometry: &Geometry, changes: &mut Vec<Change>) -> Result<Geometry, Unmendable> {
    if check(geometry) == GeometryVerdict::Valid {
        return Ok(geometry.clone());
    }
    match geometry {
        Geometry::Point(_) | Geometry::MultiPoint(_) => Err(Unmendable::NotFinite),
        Geometry::LineString(_) => Err(Unmendable::Collapsed),
        Geometry::MultiLineString(parts) => {
            let long = |line: &&Vec<[f64; 2]>| line.iter().any(|point| Some(point) != line.first());
            let kept: Vec<_> = parts.iter().filter(long).cloned().collect();
            changes.push(Change::PartDropped);
            if kept.is_empty() { Err(Unmendable::Collapsed) } else { Ok(Geometry::MultiLineString(kept)) }
        }
        Geometry::Polygon(rings) => mend_areas(geometry, std::slice::from_ref(rings), changes),
        Geometry::MultiPolygon(polygons) => mend_areas(geometry, polygons, changes),
        Geometry::GeometryCollection(members) => {
            let mut kept = Vec::new();
            for member in members {
                match mend(member, changes) {
                    Ok(member) => kept.push(member),
                    // Members that hold nothing may stand in a collection.
                    Err(_) if check(member) == GeometryVerdict::Empty => kept.push(member.clone()),
                    Err(Unmendable::Collapsed) => changes.push(Change::PartDropped),
                    Err(other) => return Err(other),
                }
            }
            if kept.is_empty() { Err(Unmendable::Collapsed) } else { Ok(Geometry::GeometryCollection(kept)) }
        }
    }
}

fn mend_areas(
    geometry: &Geometry,
    polygons: &[Vec<Vec<[f64; 2]>>],
    changes: &mut Vec<Change>,
) -> Result<Geometry, Unmendable> {
    let closed: Vec<Vec<Vec<[f64; 2]>>> =
        polygons.iter().map(|rings| rings.iter().map(|ring| closed(ring, changes)).collect()).collect();
    let closed = match geometry {
        Geometry::Polygon(_) => Geometry::Polygon(closed.into_iter().flatten().collect()),
        _ => Geometry::MultiPolygon(closed),
    };
    if check(&closed) == GeometryVerdict::Valid {
        return Ok(closed);
    }
    changes.push(Change::Rebuilt);
    let segments = lines::noded(lines::segments(polygons))?;
    let mut areas = planar::odd_faces(&segments).ok_or(Unmendable::Unstable)?;
    match (areas.len(), geometry) {
        (0, _) => Err(Unmendable::Collapsed),
        (1, Geometry::Polygon(_)) => Ok(Geometry::Polygon(areas.swap_remove(0))),
        _ => Ok(Geometry::MultiPolygon(areas)),
    }
}

fn closed(ring: &[[f64; 2]], changes: &mut Vec<Change>) -> Vec<[f64; 2]> {
    let mut ring = ring.to_vec();
    if let (Some(first), Some(last)) = (ring.first().copied(), ring.last())
        && first != *last
    {
        ring.push(first);
        changes.push(Change::RingClosed);
    }
    ring
}

#[cfg(test)]
mod tests;
