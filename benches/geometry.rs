//! The geometry gate beside `geo` and, with `--features bench-geos`, GEOS itself, on the same shapes.
//! `cargo bench --bench geometry`; shapely's times: `python3 benches/geometry_shapely.py`.
#![allow(missing_docs)]

use std::f64::consts::TAU;
use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use geo::Validation as _;
use waypost::core::geometry::{Geometry, GeometryVerdict, check};

#[allow(dead_code, clippy::unwrap_used, reason = "shared with the tests, which use more of it")]
#[path = "../tests/it/geometry/recipes.rs"]
mod recipes;

/// `geo` compares all pairs of segments: a thousand times more vertices take a million times longer.
const GEO_VERTICES_MAX: u32 = 10_000;

fn star(vertices: u32) -> Geometry {
    let mut ring: Vec<[f64; 2]> = (0..vertices - 1)
        .map(|n| {
            let radius = if n % 2 == 0 { 1.0 } else { 0.6 };
            let angle = TAU * f64::from(n) / f64::from(vertices - 1);
            [13.4 + radius * angle.cos(), 52.5 + radius * angle.sin()]
        })
        .collect();
    ring.push(ring[0]);
    Geometry::Polygon(vec![ring])
}

fn recipe(kind: &str, vertices: u32) -> Geometry {
    let found = recipes::ALL.iter().find(|recipe| recipe.kind == kind && recipe.defect.is_empty());
    recipes::make(found.expect("a recipe of this kind"), vertices.into())
}

/// The comb on its side: every tooth reaches over the whole width, so half of the edges are under the sweep line at once.
fn lying_comb(vertices: u32) -> Geometry {
    let Geometry::Polygon(mut rings) = recipe("comb", vertices) else { unreachable!("a comb is a polygon") };
    for point in rings.iter_mut().flatten() {
        point.swap(0, 1);
    }
    Geometry::Polygon(rings)
}

/// Name, vertices, shape.
fn shapes() -> Vec<(&'static str, u32, Geometry)> {
    let mut shapes = vec![
        ("point", 1, Geometry::Point(Some([13.4, 52.5]))),
        (
            "square",
            5,
            Geometry::Polygon(vec![vec![[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.0, 0.0]]]),
        ),
    ];
    for vertices in [1_000, 10_000, 100_000, 1_000_000] {
        shapes.push(("comb", vertices, recipe("comb", vertices)));
        shapes.push(("lying comb", vertices, lying_comb(vertices)));
        shapes.push(("star", vertices, star(vertices)));
    }
    // 100 × 100 holes, 50 × 50 parts.
    shapes.push(("holes", 50_000, recipe("hole-grid", 50_000)));
    shapes.push(("parts", 12_500, recipe("square-grid", 12_500)));
    shapes
}

fn ring(ring: &[[f64; 2]]) -> geo::LineString {
    ring.iter().map(|[x, y]| (*x, *y)).collect()
}

fn polygon(rings: &[Vec<[f64; 2]>]) -> geo::Polygon {
    let holes = rings.iter().skip(1).map(|hole| ring(hole)).collect();
    geo::Polygon::new(
        rings.first().map_or_else(|| geo::LineString::new(Vec::new()), |shell| ring(shell)),
        holes,
    )
}

fn for_geo(geometry: &Geometry) -> geo::Geometry {
    match geometry {
        Geometry::Point(point) => {
            let [x, y] = point.unwrap_or_default();
            geo::Point::new(x, y).into()
        }
        Geometry::Polygon(rings) => polygon(rings).into(),
        Geometry::MultiPolygon(parts) => {
            geo::MultiPolygon::new(parts.iter().map(|part| polygon(part)).collect()).into()
        }
        other => unreachable!("no {} among the shapes", other.type_name()),
    }
}

#[cfg(feature = "bench-geos")]
fn for_geos(geometry: &Geometry) -> geos::Geometry {
    let ring = |ring: &Vec<[f64; 2]>| {
        let positions: Vec<String> = ring.iter().map(|[x, y]| format!("{x} {y}")).collect();
        format!("({})", positions.join(","))
    };
    let rings = |rings: &Vec<Vec<[f64; 2]>>| {
        let rings: Vec<String> = rings.iter().map(ring).collect();
        format!("({})", rings.join(","))
    };
    let text = match geometry {
        Geometry::Point(point) => {
            let [x, y] = point.unwrap_or_default();
            format!("POINT({x} {y})")
        }
        Geometry::Polygon(shape) => format!("POLYGON{}", rings(shape)),
        Geometry::MultiPolygon(parts) => {
            let parts: Vec<String> = parts.iter().map(rings).collect();
            format!("MULTIPOLYGON({})", parts.join(","))
        }
        other => unreachable!("no {} among the shapes", other.type_name()),
    };
    geos::Geometry::new_from_wkt(&text).expect("the shape reads as text")
}

fn gate(criterion: &mut Criterion) {
    for (name, vertices, shape) in shapes() {
        assert_eq!(check(&shape), GeometryVerdict::Valid, "{name} {vertices}");
        let mut group = criterion.benchmark_group(name);
        group
            .sample_size(10)
            .warm_up_time(Duration::from_millis(500))
            .measurement_time(Duration::from_secs(2));
        group.bench_function(BenchmarkId::new("ours", vertices), |bench| {
            bench.iter(|| check(black_box(&shape)));
        });
        if vertices <= GEO_VERTICES_MAX {
            let same = for_geo(&shape);
            group.bench_function(BenchmarkId::new("geo", vertices), |bench| {
                bench.iter(|| black_box(&same).is_valid());
            });
        }
        #[cfg(feature = "bench-geos")]
        if name != "star" || vertices <= GEO_VERTICES_MAX {
            // Above that GEOS takes most of a minute for one star.
            use geos::Geom as _;
            let same = for_geos(&shape);
            group.bench_function(BenchmarkId::new("geos", vertices), |bench| {
                bench.iter(|| black_box(&same).is_valid());
            });
        }
        group.finish();
    }
}

criterion_group!(benches, gate);
criterion_main!(benches);
