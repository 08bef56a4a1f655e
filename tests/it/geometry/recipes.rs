//! Large geometries made by rule, as the reference vectors describe them (all coordinates are integers / 1024).

use serde_json::Value;
use waypost::core::geometry::Geometry;

/// A rule and what becomes of it.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    pub kind: &'static str,
    pub defect: &'static str,
    pub valid: bool,
}

const fn recipe(kind: &'static str, defect: &'static str, valid: bool) -> Recipe {
    Recipe { kind, defect, valid }
}

/// All of them.
pub const ALL: &[Recipe] = &[
    recipe("comb", "", true),
    recipe("comb", "bow-tie", false),
    recipe("comb", "spike", false),
    recipe("comb", "touch", false),
    recipe("hole-grid", "", true),
    recipe("hole-grid", "one-overlap", false),
    recipe("hole-grid", "one-outside", false),
    recipe("hole-checkerboard", "", false),
    recipe("square-grid", "", true),
    recipe("square-grid", "one-overlap", false),
    recipe("square-grid", "one-duplicate", false),
    recipe("zigzag-line", "", true),
    recipe("points", "", true),
];

/// With about `vertices` vertices.
pub fn make(recipe: &Recipe, vertices: i64) -> Geometry {
    let n = match recipe.kind {
        "hole-grid" | "square-grid" => ((vertices as f64 / 5.0).sqrt() as i64).max(2),
        "hole-checkerboard" => ((vertices as f64 / 2.5).sqrt() as i64).max(3),
        _ => vertices,
    };
    let w = if recipe.kind == "square-grid" { 8 } else { 6 };
    of(recipe.kind, recipe.defect, n, w)
}

/// From the vectors' `recipe` member.
pub fn build(recipe: &Value) -> Geometry {
    let kind = recipe["kind"].as_str().unwrap();
    let defect = recipe["defect"].as_str().unwrap_or_default();
    let width = recipe["w"].as_i64().unwrap_or(if kind == "square-grid" { 8 } else { 6 });
    of(kind, defect, recipe["n"].as_i64().unwrap(), width)
}

fn scaled(points: &[(i64, i64)]) -> Vec<[f64; 2]> {
    points.iter().map(|(x, y)| [*x as f64 / 1024.0, *y as f64 / 1024.0]).collect()
}

fn square(x: i64, y: i64, w: i64) -> Vec<[f64; 2]> {
    scaled(&[(x, y), (x + w, y), (x + w, y + w), (x, y + w), (x, y)])
}

fn of(kind: &str, defect: &str, n: i64, w: i64) -> Geometry {
    let cells = || (0..n).flat_map(|i| (0..n).map(move |j| (i, j)));
    match kind {
        "comb" => comb(defect, n),
        "hole-grid" => {
            let mut rings = vec![square(0, 0, 10 * n)];
            rings.extend(cells().map(|(i, j)| square(10 * i + 2, 10 * j + 2, w)));
            let middle = 10 * (n / 2) + 4;
            match defect {
                "one-overlap" => rings.push(square(middle, middle, w)),
                "one-outside" => rings.push(square(10 * n + 5, 5, w)),
                _ => {}
            }
            Geometry::Polygon(rings)
        }
        "hole-checkerboard" => {
            let mut rings = vec![square(0, 0, 10 * n + 10)];
            rings.extend(
                cells().filter(|(i, j)| (i + j) % 2 == 0).map(|(i, j)| square(10 * i + 5, 10 * j + 5, 10)),
            );
            Geometry::Polygon(rings)
        }
        "square-grid" => {
            let mut parts: Vec<_> = cells().map(|(i, j)| vec![square(10 * i, 10 * j, w)]).collect();
            let middle = 10 * (n / 2);
            match defect {
                "one-overlap" => parts.push(vec![square(middle + 4, middle + 4, w)]),
                "one-duplicate" => parts.push(vec![square(middle, middle, w)]),
                _ => {}
            }
            Geometry::MultiPolygon(parts)
        }
        "zigzag-line" => Geometry::LineString(scaled(&(0..n).map(|i| (i, i % 2)).collect::<Vec<_>>())),
        "points" => Geometry::MultiPoint(scaled(&(0..n).map(|i| (i % 1000, i / 1000)).collect::<Vec<_>>())),
        other => panic!("unknown recipe {other}"),
    }
}

fn comb(defect: &str, n: i64) -> Geometry {
    let h = n / 2 / 2 * 2;
    let mut points = Vec::new();
    for i in 0..n - 2 {
        points.push(if defect == "touch" && i == h { (h, -1) } else { (i, i % 2) });
        if defect == "spike" && i == h {
            points.extend([(h, -2), (h, 0)]);
        }
    }
    let tail = [(n - 3, -1), (0, -1)];
    points.extend(if defect == "bow-tie" { [tail[1], tail[0]] } else { tail });
    points.push((0, 0));
    Geometry::Polygon(vec![scaled(&points)])
}
